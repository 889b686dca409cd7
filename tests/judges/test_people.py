from __future__ import annotations

import csv
import io
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refbias.answers import Pair
from refbias.answers.judging import pair_id
from refbias.errors import RefbiasError, UsageError
from refbias.judges.people import about, cohen_kappa, export, files_of, fleiss_kappa, guarded, people, unguarded

PAIRS = [Pair("Is tea good?", text) for text in ("Yes.", "=1+1", "No,\n“really” not; ok", "+", "@home", "'quoted", "")]


def table(file, rows, columns="id,verdict,annotator"):
    text = io.StringIO()
    csv.writer(text).writerows([columns.split(","), *rows])
    file.write_text(text.getvalue(), encoding="utf-8")
    return str(file)


def read(file):
    return list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig"), newline="")))


def test_the_table_is_blinded_shuffled_and_whole(tmp_path):
    file = tmp_path / "table.csv"
    assert export([*PAIRS, *PAIRS[:2]], file, seed=1) == len(PAIRS)
    rows = read(file)
    assert list(rows[0]) == ["id", "question", "text", "verdict", "annotator"]
    found = {row["id"]: Pair(unguarded(row["question"]), unguarded(row["text"])) for row in rows}
    assert found == {pair_id(pair): pair for pair in PAIRS}
    assert [row["id"] for row in rows] != [pair_id(pair) for pair in PAIRS]
    first = file.read_bytes()
    export(PAIRS, file, seed=1)
    assert file.read_bytes() == first
    export(PAIRS, file, seed=2)
    assert file.read_bytes() != first
    assert first.startswith(b"\xef\xbb\xbf")


def test_no_field_is_a_formula(tmp_path):
    export([Pair("=A1", text) for text in ("=1+1", "+1", "-1", "@x", "\t=1", "\r=1")], tmp_path / "t.csv", seed=0)
    assert all(row[key][0] == "'" for row in read(tmp_path / "t.csv") for key in ("question", "text"))
    assert all(row["id"][0] == "p" for row in read(tmp_path / "t.csv"))


@given(st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["'", "''", "'=", "=", "'-1"]))
def test_the_guard_is_undone(field):
    assert unguarded(guarded(field)) == field
    assert not guarded(field).startswith(("=", "+", "-", "@"))


def test_what_people_fill_in_comes_back(tmp_path):
    file = tmp_path / "table.csv"
    export(PAIRS, file, seed=0)
    values = dict(zip(map(pair_id, PAIRS), ("1", "0", "-1", "\u22121", "?", "'-1", ""), strict=True))
    rows = [{**row, "verdict": values[row["id"]]} for row in read(file)]
    table(file, [list(row.values()) for row in rows], ",".join(rows[0]))
    found = people(PAIRS, path=str(file))
    assert [v.value for v in found] == [1, 0, -1, -1, None, -1, None]
    assert [v.label for v in found] == ["yes", "no", "opposite", "opposite", "unclear", "opposite", "unjudged"]
    assert people([Pair("another", "pair")], path=str(file))[0].label == "unjudged"


def test_semicolons_and_decimals_of_spreadsheets_are_read(tmp_path):
    ids = [pair_id(pair) for pair in PAIRS]
    file = tmp_path / "t.csv"
    file.write_text(f"ID;Verdict\r\n{ids[0]};1.0\r\n{ids[1]};0,0\r\n;\r\n", encoding="utf-8-sig")
    assert [v.value for v in people(PAIRS[:3], path=str(file))] == [1, 0, None]


def test_the_majority_decides_and_a_tie_is_no_verdict(tmp_path):
    one, two, three, four = (pair_id(pair) for pair in PAIRS[:4])
    votes = {"ann": (1, 1, "?", 1), "ben": (1, 0, "?", ""), "cleo": (0, "", 1, "")}
    keys = (one, two, three, four)
    rows = [(key, v, name) for name, given in votes.items() for key, v in zip(keys, given, strict=True)]
    path = table(tmp_path / "t.csv", rows)
    found = people(PAIRS[:4], path=path)
    assert [(v.value, v.label, v.detail) for v in found] == [
        (1, "yes", "2 of 3"), (None, "tie", "1 of 2"), (None, "unclear", "2 of 3"), (1, "yes", "1 of 1"),
    ]  # fmt: skip
    told = about(path=path)
    assert told["annotators"][0] == {"annotator": "ann", "judged": 4}
    assert told["rows_without_verdict"] == 3
    assert [row["measure"] for row in told["agreement"]] == ["cohen", "cohen", "cohen", "fleiss"]
    assert told["agreement"][0]["n"] == 3


def test_each_file_is_an_annotator_where_no_name_is_given(tmp_path):
    for name, value in (("ann", 1), ("ben", 1), ("cleo", 0)):
        table(tmp_path / f"{name}.csv", [(pair_id(PAIRS[0]), value, "")])
    for path in (tmp_path, tmp_path / "*.csv"):
        assert people(PAIRS[:1], path=str(path))[0].detail == "2 of 3"
    assert [row["annotator"] for row in about(path=str(tmp_path))["annotators"]] == ["ann", "ben", "cleo"]


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        ([("p1", "1")], "id,value", "has no column 'verdict'"),
        ([("p1", "1"), ("p2", "often")], "id,verdict", "row 3: verdict 'often' is none. Expected 1, 0, -1"),
        ([("p1", "2")], "id,verdict", "row 2: verdict '2' is none"),
        ([("p1", "x" * 50)], "id,verdict", "row 2: verdict of 50 characters is none"),
        ([("", "1")], "id,verdict", "row 2: the id is empty"),
        ([("p1", "1", "more")], "id,verdict", "row 2: 3 fields where the first row has 2"),
        ([("p1", "1"), (), ("p1", "0")], "id,verdict", "row 4: another verdict on id p1 than .*row 2 holds"),
    ],
)
def test_malformed_rows_are_named(tmp_path, rows, columns, said):
    with pytest.raises(RefbiasError, match=said):
        people(PAIRS[:1], path=table(tmp_path / "t.csv", rows, columns))


def test_a_path_that_leads_nowhere_is_wrong_use(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        files_of(str(tmp_path / "none*.csv"))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(*[st.sampled_from([1, 0, None])] * 2), min_size=2, max_size=30))
def test_cohen_agrees_with_scikit_learn(ratings):
    import warnings

    from sklearn.metrics import cohen_kappa_score

    words = [[str(value) for value in row] for row in ratings]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = cohen_kappa_score(*zip(*words, strict=True))
    ours, reason = cohen_kappa(ratings)
    if ours is None:
        assert "one category" in reason and math.isnan(theirs)
    else:
        assert ours == pytest.approx(theirs, abs=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(*[st.sampled_from([0, 1, 2])] * 4), min_size=1, max_size=20))
def test_fleiss_agrees_with_statsmodels(ratings):
    from statsmodels.stats.inter_rater import aggregate_raters
    from statsmodels.stats.inter_rater import fleiss_kappa as theirs

    ours, reason = fleiss_kappa(ratings)
    if len({value for row in ratings for value in row}) == 1:
        assert ours is None and "one category" in reason
    else:
        assert ours == pytest.approx(theirs(aggregate_raters(ratings)[0]), abs=1e-12)


def test_kappa_of_nothing_has_a_reason():
    assert cohen_kappa([]) == (None, "nothing was judged by both")
    assert fleiss_kappa([]) == (None, "nothing was judged by all")
