"""experiments/two_stage: cost and recall from files of audits, and from beginning to end on a tiny model."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from refbias.errors import RefbiasError

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "two_stage" / "run.py"


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("two_stage_experiment", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where dataclasses look for its names
    spec.loader.exec_module(module)
    return module


def write_audit(folder: Path, shift: float, seed: int, common: float = 0.0) -> Path:
    """A result.json of four checkpoints; ``common`` moves every raw shift, which centring would remove."""
    rng, groups = np.random.default_rng(seed), [f"g{i}" for i in range(8)]
    checkpoints, scores = [], {}
    for name, dose in (("m0", 0.0), ("m1", 0.5), ("m2", 1.0), ("m3", 2.0)):
        true = -shift * dose + 0.01 * rng.normal(size=8)
        rows = [
            {"group": g, "delta_b": t + common, "ci_high": t + common + 0.05, "p_adjusted": 0.01}
            | {"second_opinion": {"calibration": "center", "delta_b": t, "ci_high": t + 0.05, "p_adjusted": 0.01}}
            for g, t in zip(groups, true.tolist(), strict=True)
        ]
        checkpoints.append({"name": name, "ratio": dose / 2, "mean_delta_b": float(true.mean()), "groups": rows})
        scores[name] = {g: {"more_biased": bool(shift * dose > 0.1)} for g in groups}
    folder.mkdir()
    data = {"task": "audit", "checkpoints": checkpoints, "benchmark": {"scores": scores}}
    (folder / "result.json").write_text(json.dumps(data))
    return folder / "result.json"


def rows_of(file: Path) -> list[dict[str, str]]:
    with open(file, newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def test_files_give_cost_and_recall(experiment: ModuleType, tmp_path: Path, capsys: Any) -> None:
    runs = [("a", 0.3, 0.0), ("b", 0.3, -0.5), ("c", 0.0, -0.5)]
    files = [write_audit(tmp_path / name, shift, i, common) for i, (name, shift, common) in enumerate(runs)]
    experiment.main([*map(str, files), "--at-least", "1", "--wanted", "1", "--out", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    assert "12 checkpoints of 3 runs, 6 with a more biased observation (48 in all)" in shown
    curve = rows_of(tmp_path / "out" / "curve.csv")
    for shift, cost in (("centred", 0.5), ("raw", 11 / 12)):  # a shift common to two of the runs misleads the raw one
        full = next(row for row in curve if row["shift"] == shift and float(row["recall"]) == 1.0)
        assert float(full["cost"]) == pytest.approx(cost)
    left = [row for row in rows_of(tmp_path / "out" / "left_out.csv") if row["shift"] == "centred"]
    assert [row["run"] for row in left] == ["a", "b", "c"] and float(left[2]["cost"]) == 0.0
    assert "| centred | any group below zero beyond doubt | none | 0.50 | 1.00 |" in shown
    for ending in ("png", "svg"):
        assert (tmp_path / "out" / f"two_stage.{ending}").stat().st_size > 5000


def test_the_picture_shows_the_curves(experiment: ModuleType, tmp_path: Path) -> None:
    audits = [audited for i in range(2) for audited in experiment.read(write_audit(tmp_path / f"{i}", 0.3, i))]
    seen = experiment.gathered(audits, "raw", 1)
    rows = experiment.screening.cost_and_recall(seen)
    figure = experiment.cost_and_recall({"raw": rows}, experiment.best_order(seen), "setting", "footer")
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert lines["raw"].get_xdata().tolist() == [row["cost"] for row in rows]
    assert lines["raw"].get_ydata().tolist() == [row["recall"] for row in rows]
    assert lines["known order"].get_ydata().max() == 1.0 and "by chance" in lines


def test_a_table_of_ones_own_has_raw_shifts_only(experiment: ModuleType, tmp_path: Path) -> None:
    rows = [f"{run},m{m},g{g},{-0.1 * m * run},{m * run - 1}" for run in (1, 2) for m in range(3) for g in range(2)]
    file = tmp_path / "mine.csv"
    file.write_text("\n".join(["run,checkpoint,group,delta_b,delta_bias", *rows]) + "\n")
    audits = experiment.read(file)
    assert [audited.run for audited in audits] == ["1", "2"] and list(audits[0].shifts) == ["raw"]
    assert experiment.gathered(audits, "raw", 1).positive.tolist() == [0, 0, 2, 0, 2, 2]


def test_an_audit_without_a_benchmark_is_refused(experiment: ModuleType, tmp_path: Path) -> None:
    file = write_audit(tmp_path / "a", 0.1, 0)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"benchmark": {"name": None, "reason": "none"}}))
    with pytest.raises(RefbiasError, match="with a benchmark"):
        experiment.read(file)


def test_it_runs_on_a_model(experiment: ModuleType, tiny_llama: Path, tmp_path: Path, capsys: Any) -> None:
    small = ["--seeds", "0", "--kinds", "contrast", "--steps", "2", "--ratios", "0", "1", "--wanted", "0.5"]
    places = ["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    experiment.main(["--model", str(tiny_llama), *small, *places])
    assert "2 checkpoints of 1 runs" in capsys.readouterr().out
    assert {row["shift"] for row in rows_of(tmp_path / "out" / "curve.csv")} == {"raw", "centred"}
