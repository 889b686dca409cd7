"""experiments/adapter_drift runs from beginning to end on a tiny model."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "adapter_drift" / "run.py"


def test_it_writes_a_row_for_every_setting(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "cache"))
    spec = importlib.util.spec_from_file_location("adapter_drift_experiment", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.METHODS = {method: module.METHODS[method] for method in ("adapter, k=16", "delta_b")}
    small = ["--ratios", "0", "1", "--steps", "3", "--anchors", "24", "--draws", "100"]
    module.main(["--model", str(tiny_llama), *small, "--out", str(tmp_path / "out")])
    with open(tmp_path / "out" / "figures.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    methods = len(module.METHODS) * len(module.CALIBRATIONS)
    assert len(rows) == methods * (2 + 2)  # two benchmarks; two harmless ends
    for row in rows:
        wanted = ("auc_within", "pearson_within") if row["kind"] == "contrast" else ("mean_shift", "below_zero")
        assert all(row[key] for key in wanted), row
    assert "| contrast | last | adapter, k=16 | none | planted |" in capsys.readouterr().out
    with open(tmp_path / "out" / "drift.csv", newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 2 * 2 * 2 * 7  # kinds, ends, blocks, modules
