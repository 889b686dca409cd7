"""Which jobs of an earlier sweep are taken as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from refbias import resume


def leave(folder: Path, outcome: dict[str, Any], result: dict[str, Any] | None = None) -> None:
    folder.mkdir()
    (folder / "outcome.json").write_text(json.dumps({"status": 0, "overrides": ["a=1"], "mark": "m", **outcome}))
    (folder / "result.json").write_text(json.dumps({"task": "audit"} if result is None else result))
    resume.set_aside(folder.parent)


def test_a_job_that_is_done_is_taken(tmp_path: Path) -> None:
    leave(tmp_path / "0", {})
    assert not (tmp_path / "0" / "outcome.json").exists()
    assert resume.done_before(tmp_path / "0", ["a=1"], "m") == {"task": "audit"}
    resume.forget(tmp_path / "0")
    assert resume.done_before(tmp_path / "0", ["a=1"], "m") is None


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        ({"status": 1}, None),
        ({"status": 3}, None),
        ({"overrides": ["a=2"]}, None),
        ({"mark": "other"}, None),
        ({}, {"stand_ins": [{"wanted": "alpaca"}]}),
    ],
)
def test_anything_else_runs_again(outcome: dict[str, Any], result: Any, tmp_path: Path) -> None:
    leave(tmp_path / "0", outcome, result)
    assert resume.done_before(tmp_path / "0", ["a=1"], "m") is None


def test_a_damaged_or_empty_folder_runs_again(tmp_path: Path) -> None:
    assert resume.done_before(tmp_path, ["a=1"], "m") is None
    leave(tmp_path / "0", {})
    (tmp_path / "0" / "result.json").write_text("{")
    assert resume.done_before(tmp_path / "0", ["a=1"], "m") is None


def test_the_mark_changes_with_settings_and_with_files_that_they_name(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("1")
    settings = {"reference": str(model), "layer": [1, 2], "tracking": {"name": "none"}, "cache": {"dir": "a"}}
    mark = resume.mark_of(settings)
    assert resume.mark_of({**settings, "tracking": {"name": "mlflow"}, "cache": {"dir": "b"}}) == mark
    assert resume.mark_of({**settings, "layer": [1, 3]}) != mark
    (model / "weights").write_text("22")
    assert resume.mark_of(settings) != mark


def test_the_mark_changes_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = resume.mark_of({})
    monkeypatch.setattr(resume, "_code", lambda: "another release")
    assert resume.mark_of({}) != mark
