"""task=sensitivity from the command line: a map that an audit can use, tables and pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from refbias.checkpoints import editing
from refbias.schema import result_schema
from refbias.sensitivity import load

FEW = (
    "task.doses=[0.2,0.4]", "task.seeds=2", "task.random=2", "task.rate=0.4", "task.families=[valence,all_one_way]",
    "task.layers=[4]", "task.poolings=[mean]", "task.geometries=[relative,absolute]", "task.anchors=8",
    "task.attributes=4", "groups=[Women,Men,Canadians,Immigrants]",
)  # fmt: skip


@pytest.fixture
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edits are made of fewer sentences, which are measured sooner."""
    monkeypatch.setattr(editing, "BEFORE_INITIAL", ("\n",))
    monkeypatch.setattr(editing, "BEFORE_MID", ("Many ",))
    monkeypatch.setattr(editing, "SUBJECTS", ("Those people",))


def test_the_command_leaves_a_map_tables_and_pictures(
    few_sentences: None, command: Callable[..., dict[str, Any]], tiny_llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = command("task=sensitivity", f"reference={tiny_llama}", *FEW)
    jsonschema.validate(data, result_schema())
    saved = load("out/sensitivity.json")
    assert saved.settings == data["sensitivity"] and len(saved.settings) == 1 * 2 * 2 * 2
    assert saved.model["fingerprint"] == data["reference"]["fingerprint"]
    assert "would have been found" in (saved.statement({"layer": -1}) or "")
    names = {file.name for file in Path("out").iterdir()}
    pictures = {
        f"{name}.{end}" for name in ("sensitivity_map", "power_over_dose", "planted_scores") for end in ("png", "svg")
    }
    assert {"sensitivity.csv", "recommended.csv", "power.csv", "scores.csv", *pictures} <= names
    assert data["settings"]["task.random"] == 2 and data["figures"]["recommended/power"] is not None
    said = capsys.readouterr().out
    for text in ("recommended for geometry=relative", "not ranked against each other", "other kinds of change"):
        assert text in " ".join(said.split())


def test_wrong_options_stop_before_anything_is_loaded(
    command: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    command("task=sensitivity", "reference=./no_such_model", "task.random=4", status=2)
    assert "task.random=4" in capsys.readouterr().err


def test_a_model_that_cannot_be_edited_is_refused(
    few_sentences: None,
    command: Callable[..., dict[str, Any]],
    tiny: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    command("task=sensitivity", f"reference={tiny['gemma3']}", *FEW, status=2)
    error = capsys.readouterr().err
    assert "task=sensitivity cannot edit" in error and "normalised or scaled" in error
    assert "checkpoints=" not in error
