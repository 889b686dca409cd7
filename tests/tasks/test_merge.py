"""``task=merge`` and ``checkpoints=merge`` as they are typed."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refbias.cli import main
from tests.tiny_adapters import write_adapter
from tests.tiny_models import write_tiny

pytestmark = pytest.mark.usefixtures("hydra_restored")


@pytest.fixture
def ends(tiny: dict[str, Path], tmp_path: Path) -> list[str]:
    return [f"task.start={tiny['llama']}", f"task.end={write_tiny('llama', tmp_path / 'end', seed=8)}"]


@pytest.fixture
def refbias(tmp_path: Path) -> Callable[..., int]:
    """Runs the program in a run folder of its own, without tracking."""

    def run(*words: str) -> int:
        place = [f"hydra.run.dir={tmp_path / 'run'}", f"cache.dir={tmp_path / 'cache'}", "tracking=none"]
        return main([*words, *place])

    return run


def test_a_merge_is_written_and_told(
    ends: list[str], refbias: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["task=merge", *ends, "task.ratio=0.3", f"task.out={tmp_path / 'out'}"]
    assert refbias(*words) == 0
    assert f"Written to {tmp_path / 'out'}: 0 MiB in 38 tensors." in capsys.readouterr().out
    data = json.loads((tmp_path / "run" / "result.json").read_text())
    (row,) = data["merges"]
    assert (row["ratio"], row["form"], row["merged"]) == (0.3, "dense", "weights interpolated")
    assert data["figures"]["seconds"] > 0 and data["provenance"]["data_digests"]["end"] == row["end_fingerprint"]
    with (tmp_path / "run" / "merges.csv").open() as file:
        assert next(csv.DictReader(file))["tensors"] == "38"
    assert (tmp_path / "out" / "refbias.json").is_file()
    assert refbias(*words) == 0
    assert "holds this merge already" in capsys.readouterr().out


@pytest.mark.parametrize("ratio", ["1.2", "-0.1"])
def test_a_ratio_outside_of_the_line(
    ratio: str, ends: list[str], refbias: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refbias("task=merge", *ends, f"task.ratio={ratio}", f"task.out={tmp_path / 'out'}") == 2
    assert f"task.ratio={ratio}: expected a number from 0 (the start) to 1 (the end)." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_needed_is_asked_for(refbias: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert refbias("task=merge", "task.ratio=0.5") == 2
    assert "task.end, task.out, task.start" in capsys.readouterr().err


def test_notes_are_said(
    tiny: dict[str, Path], refbias: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = write_adapter(tiny["llama"], tmp_path / "adapter", use_dora=True)
    words = [f"task.start={tiny['llama']}", f"task.end={adapter}", "task.ratio=1", f"task.out={tmp_path / 'out'}"]
    assert refbias("task=merge", *words) == 0
    assert f"What {adapter} does is not linear in ΔW" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "refbias.json").read_text())["notes"]


def test_a_spectrum_is_audited(
    tiny: dict[str, Path], refbias: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends: list[Any] = [write_adapter(tiny["llama"], tmp_path / str(seed), seed) for seed in (1, 2)]
    words = [f"reference={tiny['llama']}", "checkpoints=merge", f"checkpoints.start={ends[0]}"]
    small = ["groups=[Women,Men]", "anchors.n=20", "draws=100", "benchmark=none", "checkpoints.ratios=[0,0.5,1]"]
    assert refbias(*words, f"checkpoints.end={ends[1]}", *small) == 0
    data = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [entry["name"] for entry in data["checkpoints"]] == ["merge-0", "merge-0.5", "merge-1"]
    assert data["series"]["merged"] == "changes of the base added up"
    assert "merged: changes of the base added up" in capsys.readouterr().out
