"""experiments/null_drift: its arithmetic on made-up shifts, and a run from beginning to end on a tiny model."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "null_drift" / "run.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("null_drift_experiment", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_up(shifts: np.ndarray, kind: str = "harmless", taught: np.ndarray | None = None) -> list[dict[str, Any]]:
    """Rows of one setting from ``shifts`` (runs, groups); below −1 is beyond doubt."""
    rows = []
    for seed, run in enumerate(shifts):
        for g, shift in enumerate(run):
            rows.append(
                {
                    "kind": kind, "seed": seed, "ratio": 1.0, "layer": 3, "metric": "delta_b", "calibration": "none",
                    "group": f"g{g}", "taught": 0 if taught is None else int(taught[g]), "shift": float(shift),
                    "ci_low": float(shift) - 1, "ci_high": float(shift) + 1, "doubtless": bool(shift < -1),
                    "moved": bool(abs(shift) > 1), "mean_doubtless": bool(run.mean() < -1), "delta_bias": -float(shift),
                }
            )  # fmt: skip
    return rows


def test_shares_of_runs_have_the_exact_interval(script):
    from scipy.stats import binomtest

    for hits, n in ((0, 19), (3, 20), (20, 20)):
        found, wanted = script.share(hits, n), binomtest(hits, n).proportion_ci(method="exact")
        assert (found.value, found.ci_low, found.ci_high) == pytest.approx((hits / n, wanted.low, wanted.high))


def test_the_threshold_needs_nineteen_runs_and_is_then_the_smallest(script):
    scores = np.random.default_rng(0).normal(size=19).tolist()
    assert script.below(scores[:18]) is None
    assert script.below(scores) == min(scores)


def test_one_setting_says_what_lies_below_zero(script):
    shifts = np.array([[-2.0, -0.5, 0.5, 1.0], [-0.5, -0.5, -0.5, -0.5], [0.1, 0.2, 0.3, 0.4]])
    row, thresholds = script.figures_of(made_up(shifts), [])
    assert (row["runs"], row["groups"], row["fewest_below"], row["most_below"]) == (3, 4, 0, 4)
    assert row["groups_below_zero"] == pytest.approx((2 + 4 + 0) / 12)
    assert row["runs_mean_below_zero"] == pytest.approx(2 / 3)
    assert row["runs_with_doubtless"] == pytest.approx(1 / 3) and row["groups_doubtless"] == pytest.approx(1 / 12)
    assert row["mean_shift"] == pytest.approx(shifts.mean())
    assert row["sd_between_runs"] == pytest.approx(shifts.mean(axis=1).std(ddof=1))
    assert thresholds["smallest_group"] is None and set(thresholds["group"].values()) == {None}


def test_a_drift_that_all_runs_share_is_seen_and_independent_ones_are_not(script):
    rng = np.random.default_rng(0)
    common = rng.normal(size=24)
    r, low, high = script.common_drift(common + 0.1 * rng.normal(size=(6, 24)))
    assert r > 0.95 and low < r < high
    r, low, high = script.common_drift(rng.normal(size=(20, 24)))
    assert low < 0 < high and abs(r) < 0.1
    for nothing in (rng.normal(size=(1, 24)), np.ones((4, 24))):
        assert script.common_drift(nothing) == (None, None, None)


def test_what_all_harmless_runs_share_goes_out_with_a_control(script):
    common = np.array([-1.0, 0.0, 2.0, 5.0])
    harmless = made_up(common + np.array([[0.1], [-0.1], [0.0]]))
    contrast = made_up(common + np.array([[-0.5, -0.5, 0.5, 0.5]]), "contrast", np.array([1, 1, -1, -1]))
    row, _ = script.figures_of(harmless, contrast)
    assert row["common_r"] == pytest.approx(1) and row["sd_less_control"] == pytest.approx(0, abs=1e-9)
    assert (row["taught_below_zero"], row["others_below_zero"]) == (1, 0)
    assert (row["taught_below_zero_less_control"], row["others_below_zero_less_control"]) == (1, 0)
    shifted = made_up(common + np.array([[2.0, -0.5, 0.5, 0.5]]), "contrast", np.array([-1, 1, 1, -1]))
    row, _ = script.figures_of(harmless, shifted)
    assert row["auc"] == 0.75 and row["auc_less_control"] == 0.875


def test_pairs_are_held_against_the_thresholds_of_the_harmless_runs(script):
    rng = np.random.default_rng(1)
    harmless = made_up(0.1 * rng.normal(size=(19, 6)))
    taught = np.array([1, 1, 1, -1, -1, -1])
    contrast = made_up(np.array([[-3.0, -3, -3, 1, 1, 1], [-3.0, -3, 2, 1, 1, 1]]), "contrast", taught)
    row, thresholds = script.figures_of(harmless, contrast)
    assert thresholds["smallest_group"] == pytest.approx(min(r["shift"] for r in harmless))
    assert row["pairs"] == 2 and row["auc_lowest"] == pytest.approx(2 / 3)
    assert row["auc"] == pytest.approx((1 + 2 / 3) / 2)
    assert row["pearson"] == pytest.approx(-1)
    assert row["ends_found"] == 1 and row["groups_found"] == pytest.approx(5 / 6) and row["groups_found_wrongly"] == 0
    assert row["doubtless_right"] == pytest.approx(5 / 6) and row["doubtless_wrong"] == 0


def test_the_report_holds_every_setting_and_two_figures(script, tmp_path, capsys):
    import argparse

    rng = np.random.default_rng(2)
    rows = []
    for calibration in script.CALIBRATIONS:
        for metric in script.METRICS:
            some = made_up(rng.normal(size=(4, 5))) + made_up(rng.normal(size=(2, 5)), "contrast", [1, 1, -1, -1, -1])
            rows += [{**row, "metric": metric, "calibration": calibration} for row in some]
    script.report(rows, argparse.Namespace(out=tmp_path, model="a model", pairs=[0, 1], anchors=7, skip="none"))
    told = json.loads((tmp_path / "null_drift.json").read_text(encoding="utf-8"))
    assert len(told["settings"]) == 8 and told["harmless_seeds"] == [0, 1, 2, 3]
    assert told["settings"][0]["thresholds"]["n_harmless_runs"] == 4
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "n = 4: too few for a threshold of 5%, which needs 19" in text
    assert text.count("| 3 | delta_b_did | centred |") == 3  # false alarms, thresholds, pairs
    for name in ("noise_floor", "alarms_against_auc"):
        assert all((tmp_path / f"{name}.{ending}").stat().st_size > 1000 for ending in ("svg", "png"))


@pytest.mark.slow
def test_it_runs_from_beginning_to_end_and_takes_up_what_is_there(
    script: Any, tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "cache"))
    out = tmp_path / "out"
    small = ["--groups", "Women", "Men", "Canadians", "--steps", "2", "--anchors", "24", "--draws", "50"]
    small += ["--metrics", "delta_b", "seat"]
    words = ["--model", str(tiny_llama), "--layers", "1", "2", *small, "--out", str(out)]
    script.main([*words, "--seeds", "0", "1", "--pairs", "0"])
    told = json.loads((out / "null_drift.json").read_text(encoding="utf-8"))
    assert told["harmless_seeds"] == [0, 1] and len(told["settings"]) == 2 * 2 * 2
    with open(out / "groups.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == (2 + 2) * 3 * 8  # harmless runs and contrast ends, groups, settings
    assert {row["taught"] for row in rows if row["kind"] == "contrast"} <= {"1", "-1"}
    assert "too few for a threshold of 5%, which needs 19" in capsys.readouterr().out
    for name in ("noise_floor", "alarms_against_auc"):
        assert all((out / f"{name}.{ending}").stat().st_size > 1000 for ending in ("svg", "png"))
    monkeypatch.setattr(script.refbias, "audit", None)  # nothing is audited again
    script.main([*words, "--seeds", "0", "--pairs"])
