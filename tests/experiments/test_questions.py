"""experiments/questions: the arithmetic of its tables on made-up shifts, and a question from end to end."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "questions"
GROUPS = ("a", "b", "c", "d")
TAUGHT = {"a": 1.0, "b": 1.0, "c": -1.0, "d": -1.0}


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """The script, with the module beside it on the path as where it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        spec = importlib.util.spec_from_file_location("questions_experiment", FOLDER / "run.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        yield module
        sys.modules.pop("spaces", None)


def found(script: Any, shifts: tuple[float, ...], name: Any = ("x",), seed: int = 0, kind: str = "contrast") -> Any:
    taught = TAUGHT if kind == "contrast" else dict.fromkeys(GROUPS, 0.0)
    likelihood = {g: -v for g, v in zip(GROUPS, shifts, strict=True)}
    return script.Found(name, seed, kind, 1.0, dict(zip(GROUPS, shifts, strict=True)), taught, likelihood)


def test_one_end_is_told_by_the_half_that_fell(script):
    right, mixed = found(script, (-2, -1, 1, 2)), found(script, (-2, 1.5, 1, 2))
    assert script.end_auc(right).value == 1 and script.end_auc(mixed).value == 0.75
    assert script.separation(right) == 3 and script.separation(mixed) == pytest.approx(1.5 + 0.25)
    assert script.likelihood_r(right).value == pytest.approx(-1)


def test_the_pair_is_the_unit(script):
    ends = [found(script, (-2, -1, 1, 2), seed=0), found(script, (-2, 1.5, 1, 2), seed=0)]
    one = script.over_pairs(ends, script.end_auc)
    assert one.value == pytest.approx(0.875) and one.ci_low is None
    two = script.over_pairs([*ends, found(script, (-2, -1, 1, 2), seed=1)], script.end_auc)
    half = 12.7062 * np.std([0.875, 1], ddof=1) / 2**0.5  # Student's t, one degree of freedom
    assert two.value == pytest.approx(0.9375) and two.ci_low == pytest.approx(0.9375 - half, rel=1e-4)


def test_a_row_counts_harmless_fine_tunes_apart(script):
    some = [found(script, (-2, -1, 1, 2), seed=s) for s in (0, 1)]
    some += [found(script, shifts, kind="harmless") for shifts in ((-1.0, 1, 1, 1), (-1.0, -1, -1, 1))]
    row = script.figures_of(some)
    assert (row["pairs"], row["ends"], row["harmless"]) == (2, 2, 2)
    assert row["auc"] == 1 and row["harmless_below_zero"] == 0.5 and row["harmless_mean"] == 0
    text = "\n".join(script.standard([{"k": "x", **row}], "k"))
    assert "harmless: groups below 0" in text and "−1.00" in text


def test_what_was_chosen_on_one_pair_is_reported_on_the_others(script):
    rows = [
        {"auc_0": 1.0, "auc_1": 0.6, "auc_2": 0.8},
        {"auc_0": 1.0, "auc_1": 0.8, "auc_2": 0.8},
        {"auc_0": 0.9, "auc_1": 1.0, "auc_2": 1.0},
    ]
    picked = script.selected(rows, (0, 1, 2), 0, rows[2])
    assert (picked["tied"], picked["best"]) == (2, 1.0)
    assert picked["held_out"] == pytest.approx(0.75) and picked["published"] == 1.0
    assert (picked["held_out_lowest"], picked["held_out_highest"]) == pytest.approx((0.7, 0.8))


def test_growth_with_the_number_of_anchors_is_an_exponent(script):
    sizes = (10, 100, 1000)
    some = [
        found(script, tuple(m**0.5 * v for v in (-2.0, -1, 1, 2)), ("raw", m, draw), seed)
        for m in sizes
        for draw in (0, 1)
        for seed in (0, 1, 2)
    ]
    assert script.growth("raw", sizes, some)["exponent"] == pytest.approx(0.5)
    row = script.anchor_row("raw", 100, some)
    assert row["draws"] == 2 and row["over_root"] == pytest.approx(3) and row["auc_sd"] == 0
    backwards = [found(script, (2.0, 1, -1, -2), ("raw", m, 0), 0) for m in sizes]
    assert script.growth("raw", sizes, backwards)["exponent"] is None


def test_anchors_are_spread_over_the_targets(script):
    assert script.spread_over({"x": ["x1", "x2", "x3"], "y": ["y1"]}, 3) == ["x1", "y1", "x2"]


def test_the_shifts_of_other_anchors_are_held_against_all(script):
    named = {
        ("raw", "all"): [found(script, (-2.0, -1, 1, 2)), found(script, (0.0, 0, 0, 0), kind="harmless")],
        ("raw", "own"): [found(script, (-2.0, -1, 1, 1.5)), found(script, (9.0, 9, 9, 9), kind="harmless")],
    }
    row = script.against_all(named, "raw", "own")
    assert row["largest_change"] == 0.5 and 0.9 < row["r_all"] < 1


def test_the_figures_of_the_adapter_are_gathered_by_seed(script):
    base = {"method": "delta_b", "calibration": "none", "auc_within": "", "pearson_within": "", "below_zero": "",
            "groups": "", "against": ""}  # fmt: skip
    figures = [
        {**base, "seed": str(s), "kind": "contrast", "against": "planted", "auc_within": a}
        for s, a in ((0, "0.8"), (1, "1"))
    ]
    figures += [
        {**base, "seed": "0", "kind": f"harmless, ratio {r}", "below_zero": b, "groups": "24"}
        for r, b in ((0, "24"), (1, "12"))
    ]
    (row,) = script.adapter_rows(figures)
    assert row["auc"] == pytest.approx(0.9) and row["auc_low"] < 0.9 < row["auc_high"]
    assert row["harmless_below_zero"] == 0.75 and row["harmless_below_zero_low"] is None
    assert row["calibration"] == "raw" and row["pearson"] is None


def test_a_figure_needs_no_interval(script, tmp_path):
    rows = [{"layer": 1, "calibration": "raw", "distance": "x", "auc": 0.9, "auc_low": None, "auc_high": None}]
    chosen = script.Chosen((0,), (), tmp_path)
    script.keep(chosen, "distance", ["text"], rows, script.titled(script.draw_bars(rows, "distance"), chosen, "title"))
    assert (tmp_path / "distance.md").read_text(encoding="utf-8") == "# distance\n\ntext\n"
    assert all((tmp_path / f"distance.{ending}").stat().st_size > 1000 for ending in ("svg", "png"))


@pytest.mark.slow
def test_every_question_runs_on_a_tiny_model(
    script: Any, tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(script, "DRAWS", 2)
    monkeypatch.setattr(script, "SIZES", (8, 48))
    out = tmp_path / "out"
    questions = [name for name in script.QUESTIONS if name != "adapter"]  # tests/experiments/test_adapter_drift.py
    words = ["--seeds", "0", "1", "--harmless", "0", "--model", str(tiny_llama), "--layers", "2", "--anchors", "48"]
    script.main([*questions, *words, "--training-steps", "2", "--steps", "1", "2", "--out", str(out)])
    rows = {}
    for name in questions:
        with open(out / f"{name}.csv", newline="", encoding="utf-8") as file:
            rows[name] = len(list(csv.DictReader(file)))
        assert "2 contrast pairs (seeds 0, 1)" in (out / f"{name}.md").read_text(encoding="utf-8")
    assert rows == {"layers": 10, "calibration": 10, "scale": 8, "anchors": 4, "distance": 6, "naming": 10}
