"""Sentence files of the user's own: every form that is read, and the text of every error."""

from __future__ import annotations

import re

import pytest

from refbias.errors import RefbiasError
from refbias.stimuli import ANCHORS, ATTRIBUTES, TARGETS

TARGETS_READ = {"Bakers": ["Bakers live here.", "Bakers, too, read."], "Pilots": ["Pilots live here."]}
ATTRIBUTES_READ = (["Joy came."], ["Grief came.", "Pain came."])
ANCHORS_READ = ["One.", "Two, three.", "Four."]


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return write


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", 'group,sentence\nBakers,Bakers live here.\nPilots,Pilots live here.\n\n'
                  'Bakers,"Bakers, too, read."\n'),
        ("t.csv", '\ufeffid, sentence ,group\r\n1, Bakers live here. ,Bakers\r\n2,"Bakers, too, read.",Bakers\r\n'
                  "3,Pilots live here.,Pilots\r\n"),
        ("t.json", '{"Bakers": ["Bakers live here.", "Bakers, too, read."], "Pilots": ["Pilots live here."]}'),
        ("t.yaml", "Bakers:\n- Bakers live here.\n- Bakers, too, read.\nPilots:\n- Pilots live here.\n"),
        ("t.YML", "Bakers: [Bakers live here., 'Bakers, too, read.']\nPilots: [Pilots live here.]\n"),
    ],
)  # fmt: skip
def test_targets_are_read(file, name, text):
    assert TARGETS["file"](path=file(name, text)) == TARGETS_READ


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "valence,sentence\nnegative,Grief came.\npositive,Joy came.\nnegative,Pain came.\n"),
        ("a.json", '{"positive": ["Joy came."], "negative": ["Grief came.", "Pain came."]}'),
    ],
)
def test_attributes_are_read(file, name, text):
    assert ATTRIBUTES["file"](path=file(name, text)) == ATTRIBUTES_READ


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "One.\nTwo, three.\n\nFour.\n"),
        ("a.csv", 'sentence\nOne.\n"Two, three."\nFour.\n'),
        ("a.json", '["One.", "Two, three.", "Four."]'),
    ],
)
def test_anchors_are_read(file, name, text):
    path = file(name, text)
    assert ANCHORS["file"](path=path) == ANCHORS_READ
    sample = ANCHORS["file"](path=path, n=2, seed=5)
    assert ANCHORS["file"](path=path, n=3, seed=5)[:2] == sample
    assert set(sample) < set(ANCHORS_READ)


@pytest.mark.parametrize("parts", [TARGETS, ATTRIBUTES, ANCHORS])
def test_a_file_must_be_named_and_there(parts, file, tmp_path):
    option = {id(TARGETS): "targets", id(ATTRIBUTES): "attributes", id(ANCHORS): "anchors"}[id(parts)] + ".path"
    with pytest.raises(RefbiasError, match=rf"{option} is not set. Use {option}=FILE: .*sentence"):
        parts["file"]()
    with pytest.raises(RefbiasError, match=rf"{option}=no.csv: no such file in .*{tmp_path.name}. Use {option}=FILE"):
        parts["file"](path="no.csv")
    with pytest.raises(RefbiasError, match=rf"{option}={re.escape(str(tmp_path))} is a folder."):
        parts["file"](path=str(tmp_path))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "group,text\nA,x\n", "t.csv has no column 'sentence': its columns are 'group', 'text'. "
                                       "Its first row must be group,sentence."),
        ("t.csv", "", "t.csv has no column 'group' and no column 'sentence': its columns are none."),
        ("t.csv", "group,sentence\n", "t.csv has no sentences. Add some."),
        ("t.csv", "group,sentence\nA,One.\nA, \n", "t.csv, row 3: the sentence is empty."),
        ("t.csv", "group,sentence\nA,One.\n,Two.\n", "t.csv, row 3: the group is empty."),
        ("t.csv", "group,sentence\nA,One.\n\nB,One.\n", "t.csv, row 4: 'One.' stands in row 2 already."),
        ("t.csv", "group,sentence\nA,One, two.\n", "t.csv, row 2: 3 fields where the first row has 2. "
                                                   'Put "double quotes" around a sentence that has a comma in it.'),
        ("t.json", "[", "t.json is not valid JSON: Expecting value (line 1)."),
        ("t.json", "[]", "t.json holds a list at the top. Use {group: [sentence, ...]}."),
        ("t.json", '{"A": "One."}', "t.json: 'A' holds a str. Use a list of sentences."),
        ("t.json", '{"A": []}', "t.json: group 'A' has no sentences."),
        ("t.json", '{"A": ["One.", 2]}', "t.json, item 2 of 'A': 2 is not text."),
        ("t.json", '{"A": ["One."], "B": ["Two.", ""]}', "t.json, item 2 of 'B': the sentence is empty."),
        ("t.json", '{"A": ["One.", "One."]}', "t.json, item 2 of 'A': 'One.' stands in item 1 of 'A' already."),
        ("t.json", '{" ": ["One."]}', "the group is empty."),
        ("t.yaml", "A: [One.\n", "t.yaml is not valid YAML: "),
        ("t.xlsx", "", "targets.path=t.xlsx ends in '.xlsx'. Use one of .csv, .json, .yaml, .yml."),
    ],
)  # fmt: skip
def test_errors_of_targets(file, name, text, message):
    with pytest.raises(RefbiasError, match=re.escape(message)):
        TARGETS["file"](path=file(name, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("valence,sentence\ngood,One.\n", "a.csv, row 2: valence is 'good'. Use positive or negative."),
        ("valence,sentence\npositive,One.\npositive,Two.\n",
         "a.csv has 2 positive sentences and no negative one. Add negative sentences"),
        ("valence,sentence\nnegative,One.\n", "a.csv has 1 negative sentences and no positive one."),
        ("valence,sentence\npositive,One.\nnegative,One.\n", "a.csv, row 3: 'One.' stands in row 2 already."),
        ("group,sentence\nA,One.\n", "a.csv has no column 'valence'"),
    ],
)  # fmt: skip
def test_errors_of_attributes(file, text, message):
    with pytest.raises(RefbiasError, match=re.escape(message)):
        ATTRIBUTES["file"](path=file("a.csv", text))


@pytest.mark.parametrize(
    ("name", "text", "n", "message"),
    [
        ("a.txt", "One.\nTwo.\n", 1000, "anchors.n=1000 but a.txt has 2 sentences. Use anchors.n=2 or fewer."),
        ("a.txt", "One.\nTwo.\n", 0, "anchors.n=0 is no number of anchors."),
        ("a.txt", "One.\n\nOne.\n", None, "a.txt, row 3: 'One.' stands in row 1 already."),
        ("a.txt", "\n", None, "a.txt has no sentences."),
        ("a.csv", "text\nOne.\n", None, "a.csv has no column 'sentence': its columns are 'text'."),
        ("a.json", '{"a": 1}', None, "a.json holds a dict at the top. Use a list of sentences."),
        ("a.json", "[1]", None, "a.json, item 1: 1 is not text."),
        ("a.json", '["One.", ""]', None, "a.json, item 2: the sentence is empty."),
    ],
)
def test_errors_of_anchors(file, name, text, n, message):
    with pytest.raises(RefbiasError, match=re.escape(message)):
        ANCHORS["file"](path=file(name, text), n=n)


def test_text_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes("Café.\n".encode("latin-1"))
    with pytest.raises(RefbiasError, match=r"a.txt is not UTF-8 text \(byte 3\). Save it as UTF-8."):
        ANCHORS["file"](path=str(tmp_path / "a.txt"))
