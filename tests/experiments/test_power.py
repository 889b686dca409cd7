"""experiments/power runs from beginning to end on a tiny model."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "power" / "run.py"


def test_it_plans_and_checks(tiny_llama: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    spec = importlib.util.spec_from_file_location("power_experiment", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, small in (("CHECKED", ((50, 25), (12, 100))), ("REPEATS", 3), ("ANCHORS", (30,))):
        monkeypatch.setattr(module, name, small)
    places = ["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    module.main(["--model", str(tiny_llama), "--steps", "2", *places])
    assert "- raw: Attribute sentences carry" in capsys.readouterr().out
    found = {}
    for table in ("plan", "widths", "anchors"):
        with open(tmp_path / "out" / f"{table}.csv", newline="", encoding="utf-8") as file:
            found[table] = list(csv.DictReader(file))
    assert len(found["plan"]) == 2 * 25 and len(found["anchors"]) == 2 * 2
    assert [(row["targets"], row["attribute_pairs"]) for row in found["widths"]] == [("50", "25"), ("12", "100")] * 2
    for row in found["widths"]:
        assert 0.5 < float(row["measured"]) / float(row["predicted"]) < 2
    alike = [float(row["r_with_all"]) for row in found["anchors"] if row["anchors"] == "1000"]
    assert alike == pytest.approx([1.0, 1.0])
    for ending in ("png", "svg"):
        assert (tmp_path / "out" / f"power.{ending}").stat().st_size > 5000
