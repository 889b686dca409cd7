"""Suites of the user's own: what is read, and errors that say where."""

from __future__ import annotations

import pytest

from refbias.errors import RefbiasError
from refbias.suites import SUITES, file

CSV = """test,set,label,word,category
T1,X,Cats,lynx,animals
T1,X,Cats,"puma, the",animals
T1,Y,Dogs,beagle,animals
T1,Y,Dogs,poodle,animals
T1,A,Good,fine,animals
T1,B,Bad,poor,animals
"""

YAML = """T1:
  category: animals
  name: cats and dogs
  X: {Cats: [lynx, puma]}
  Y: {Dogs: [beagle, poodle]}
  A: [fine]
  B: [poor]
T2:
  X: [one, two]
  Y: [three, four]
  A: [five]
  B: [six]
"""


def write(tmp_path, text, name="suite.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_csv(tmp_path):
    (test,) = file(path=write(tmp_path, CSV))
    assert (test.id, test.category, test.list_version) == ("T1", "animals", "file:suite.csv")
    assert test.X == ("lynx", "puma, the") and test.Y_name == "Dogs"
    assert test.name == "Cats / Dogs × Good / Bad"


def test_csv_needs_three_columns_only(tmp_path):
    text = "test,set,word\n" + "".join(f"T,{key},{key}{i}\n" for key in "XYAB" for i in (1, 2))
    (test,) = file(path=write(tmp_path, text))
    assert (test.X, test.B_name, test.category) == (("X1", "X2"), "B", "other")


def test_yaml(tmp_path):
    one, two = SUITES["file"](path=write(tmp_path, YAML, "suite.yaml"))
    assert (one.name, one.X_name, one.A_name) == ("cats and dogs", "Cats", "A")
    assert (two.Y, two.category) == (("three", "four"), "other")
    assert [t.id for t in file(path=write(tmp_path, YAML, "suite.yml"), tests=["T2"])] == ["T2"]


@pytest.mark.parametrize(("change", "message"), [
    (("beagle", "lynx"), r"row 4: 'lynx' stands in set X of test T1 already \(row 2\)"),
    (("poodle", "beagle"), r"row 5: 'beagle' stands in set Y of test T1 already \(row 4\)"),
    (("B,Bad,poor", "B,Bad,fine"), r"row 7: 'fine' stands in set A"),
    (("T1,B,Bad", "T1,C,Bad"), "row 7: no set 'C'. Sets are X, Y"),
    (("poodle", " "), "row 5: the word is empty"),
    (("T1,A,Good", ",A,Good"), "row 6: the test is empty"),
    (("T1,Y,Dogs,poodle", "T1,Y,Hounds,poodle"), "row 5: set Y of test T1 is labelled 'Dogs' before and 'Hounds' here"),
    (("T1,B,Bad,poor,animals\n", ""), "test T1 has no words in set B"),
    (("test,set", "test,kind"), "has no column 'set'"),
    (("lynx,animals", "lynx"), "row 2: 4 fields where the first row has 5"),
])  # fmt: skip
def test_csv_errors_say_the_row(tmp_path, change, message):
    assert change[0] in CSV
    with pytest.raises(RefbiasError, match=message):
        file(path=write(tmp_path, CSV.replace(*change)))


@pytest.mark.parametrize(("change", "message"), [
    (("[three, four]", "[three, one]"), r"line 10: 'one' stands in set X of test T2 already \(line 9\)"),
    (("[five]", "[yes]"), "line 11: 'yes' is not text in YAML. Put it in quotes"),
    (("[five]", "five"), "line 11: expected a list of words"),
    (("[five]", "[[five]]"), "line 11: expected one word or name, not a sequence"),
    (("T2:", "T1:"), "line 8: 'T1' stands on line 1 already"),
    (("  X: [one", "  Z: [one"), "line 9: no set 'Z'"),
    (("[six]", "[]"), "test T2 has no words in set B"),
    (("[six]", "[six"), "not valid YAML"),
])  # fmt: skip
def test_yaml_errors_say_the_line(tmp_path, change, message):
    assert change[0] in YAML
    with pytest.raises(RefbiasError, match=message):
        file(path=write(tmp_path, YAML.replace(*change), "suite.yaml"))


@pytest.mark.parametrize(("name", "text", "message"), [
    ("suite.csv", "test,set,word\n", "has no tests"),
    ("suite.yaml", "", "expected a mapping of tests"),
    ("suite.yaml", "- a\n", "line 1: expected a mapping of tests"),
    ("suite.txt", "x", "ends in '.txt'. Use .csv, .yaml or .yml"),
])  # fmt: skip
def test_files_without_tests(tmp_path, name, text, message):
    with pytest.raises(RefbiasError, match=message):
        file(path=write(tmp_path, text, name))


def test_no_file():
    with pytest.raises(RefbiasError, match=r"suite\.path is not set. Use suite\.path=FILE: CSV with the columns"):
        file()
    with pytest.raises(RefbiasError, match="no such file"):
        file(path="nowhere.csv")
