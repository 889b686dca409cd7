"""Jobs as they lie in a sweep folder, and the text that is made of a summary."""

from __future__ import annotations

import json
from pathlib import Path

from refbias import summaries
from refbias.result import Tables
from refbias.summaries.base import aligned, shown


def leave(folder: Path, number: int, status: int, result: object | None, message: str | None = None) -> None:
    folder.mkdir(parents=True)
    record = {"job": number, "status": status, "overrides": [f"seed={number}"], "message": message}
    (folder / "outcome.json").write_text(json.dumps({**record, "settings": {"geometry": {"name": "cka", "k": 2}}}))
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))


def test_jobs_are_read_in_their_order_with_the_reason_of_those_that_failed(tmp_path: Path) -> None:
    leave(tmp_path / "a", 10, 0, {"task": "audit"})
    leave(tmp_path / "b", 2, 1, {"task": "of an earlier sweep"}, "the hub is out of reach")
    leave(tmp_path / "c", 3, 3, {"task": "audit"}, "the gate says no")
    leave(tmp_path / "d", 4, 0, None)
    found = summaries.read_jobs(tmp_path)
    assert [job.number for job in found] == [2, 3, 4, 10]
    assert [job.data for job in found] == [None, {"task": "audit"}, None, {"task": "audit"}]
    assert [job.reason for job in found] == ["the hub is out of reach", None, "it left no result", None]
    assert (found[0].chosen("geometry"), found[0].option("geometry", "k")) == ("cka", 2)
    assert (found[0].chosen("pooling"), found[0].option("pooling", "skip")) == (None, None)


def test_the_text_has_the_columns_that_are_shown() -> None:
    rows = [
        {"name": "a|b", "value": 0.25, "low": -0.5, "high": 1.0, "hidden": 7},
        {"name": "c", "value": None, "low": None, "high": 2.0, "only_published": True},
    ]
    shown_columns = {"t": {"name": "name", "value": "value", "95 %": ("low", "high"), "nothing": "absent"}, "u": {}}
    data = {"title": "A title", "about": ["What was used."], "notes": ["Mind."], "shown": shown_columns}
    made = Tables({**data, "t": rows, "u": rows}, ("t", "u"))
    text = summaries.markdown(made)
    assert text.splitlines() == [
        "# A title",
        "",
        "What was used.",
        "",
        "| name | value | 95 %            |",
        "|------|-------|-----------------|",
        "| a/b  | 0.250 | [−0.500, 1.000] |",
        "| c    |       |                 |",
        "",
        "- Mind.",
    ]
    assert "1 published figures for which no job ran" in summaries.markdown(made, brief=True)
    assert "| c " not in summaries.markdown(made, brief=True)


def test_a_summary_of_a_plug_in_needs_no_more_than_tables() -> None:
    text = summaries.markdown(Tables({"task": "summary", "rows": [{"job": 0, "seconds": 1.5}]}, ("rows",)))
    assert "| job | seconds |" in text
    assert "| 0   | 1.500   |" in text


def test_numbers_are_short_and_none_is_empty() -> None:
    assert [shown(v) for v in (1, 136.0, 0.0, float("nan"), True, "a\nb")] == ["1", "136.0", "0.000", "", "yes", "a b"]
    assert aligned([["a", "b"], ["", "x"]]) == ["| b |", "|---|", "| x |"]
