"""Scores, thresholds and power on made-up numbers, by hand; and nothing of the reported half reaches the choice."""

from __future__ import annotations

import numpy as np
import pytest

from refbias.errors import UsageError
from refbias.sensitivity.grid import Setting
from refbias.sensitivity.judging import Scores, powers, recommend, score, share_of, smallest_dose
from refbias.sensitivity.plants import NULLS, Plant
from refbias.sensitivity.tables import judged
from refbias.statistics import auc

DOSES = (0.1, 0.2)
SETTINGS = [Setting(k, "mean", skip, "none", "relative", "delta_b") for k in (3, 4) for skip in ("none", "sink")]


def test_the_score_of_halves_is_the_auc_of_minus_the_shift() -> None:
    rng = np.random.default_rng(0)
    shifts = rng.normal(size=(5, 8)).round(1)  # with ties
    signs = np.array([1, -1, 1, 1, -1, -1, 1, -1])
    found = score(shifts, signs, False, 0.1, np.array([-1, -1, -1, 1, 1]))
    expected = [auc(a * row, signs > 0).value for a, row in zip((-1, -1, -1, 1, 1), shifts, strict=True)]
    assert found == pytest.approx(expected)
    assert score(np.array([[-2.0, 1.0, -1.0, 2.0]]), np.array([1, -1, 1, -1]), False, 0.1, np.array([-1.0])) == [1.0]
    shifts[2, 0] = np.nan
    assert np.flatnonzero(np.isnan(score(shifts, signs, False, 0.1, -np.ones(5)))).tolist() == [2]


def test_the_score_of_one_way_is_the_mean_per_dose() -> None:
    shifts = np.array([[-0.1, -0.3], [0.2, 0.2]])
    assert score(shifts, np.ones(2), True, 0.2, np.array([-1.0, 1.0])) == pytest.approx([1.0, 1.0])


def nulls(selects: list[float], reports: list[float]) -> tuple[list[Plant], list[float]]:
    plants = [Plant("random", 0.1, i, i < len(selects)) for i in range(len(selects) + len(reports))]
    return plants, [*selects, *reports]


def test_the_threshold_is_the_conformal_quantile_of_the_half_that_selects() -> None:
    """Of 9 means at 20 % it is the ⌈10 · 0.8⌉ = 8th smallest, 0.8, whatever the other half holds."""
    plants = [Plant("random_one_way", 0.1, i, i < 9) for i in range(13)]
    plants += [Plant("all_one_way", 0.1, i, False) for i in range(3)]
    values = [0.1, 0.9, 0.3, 0.2, 0.5, 0.4, 0.7, 0.6, 0.8, 5.0, 0.81, 0.8, 0.1, 0.80, 0.85, 0.99]
    scores = Scores(plants, np.array(values)[:, None])
    thresholds = scores.thresholds(0.2)
    assert thresholds == {"random_one_way": [0.8]}
    above = scores.above(thresholds)[:, 0]
    assert above[scores.which(False, family="random_one_way")].tolist() == [True, True, False, False]
    assert above[scores.which(False, family="all_one_way")].tolist() == [False, True, True]
    assert powers(scores, above[:, None], False).tolist() == [[pytest.approx(2 / 3)]]


def test_an_auc_counts_with_its_mirror_image() -> None:
    """|AUC − ½| of 4 directions: 0.05, 0.1, 0.3, 0.4; at 2 · 20 % the ⌈5 · 0.6⌉ = 3rd smallest is 0.3."""
    plants, values = nulls([0.1, 0.4, 0.2, 0.55], [0.85])
    found = Scores(plants, np.array(values)[:, None])
    assert found.thresholds(0.2)["random"] == pytest.approx([0.8])
    mirrored = Scores(plants, 1 - np.array(values)[:, None])
    assert mirrored.thresholds(0.2)["random"] == pytest.approx([0.8])
    low = Scores(plants, np.full((5, 1), 0.1))
    assert not low.above(low.thresholds(0.2)).any()


def test_too_few_directions_are_refused() -> None:
    plants, values = nulls([0.1, 0.2], [0.3, 0.4])
    with pytest.raises(UsageError, match=r"needs at least 9 harmless ones: there are 2\. .*task\.random"):
        Scores(plants, np.array(values)[:, None]).thresholds(0.05)


def test_wilson_s_interval() -> None:
    """Of 0 in 10 it is 0 to z² / (n + z²), z² = 3.8415."""
    found = share_of(0, 10)
    assert found["ci_low"] == pytest.approx(0.0, abs=1e-12)
    assert found["ci_high"] == pytest.approx(3.841459 / 13.841459, abs=1e-6)
    assert share_of(0, 0)["share"] is None


def test_the_smallest_dose_or_the_reason() -> None:
    assert smallest_dose(DOSES, [0.8, 1.0], 0.8) == (0.1, None)
    assert smallest_dose(DOSES, [0.5, 0.9], 0.8) == (0.2, None)
    assert smallest_dose((0.1, 0.2, 0.3), [0.9, 0.5, 0.8], 0.8) == (0.3, None)
    found, why = smallest_dose(DOSES, [0.9, 0.75], 0.8)
    assert found is None
    assert why == "power 0.8 is not reached at the largest dose; by dose it is 0.90, 0.75"


def test_ties_go_towards_the_default() -> None:
    power, usable = np.array([0.5, 0.7, 0.7, 0.9]), np.array([True, True, True, False])
    assert recommend(power, usable, [(0, 0), (1, 0), (0, 1), (0, 0)]) == 2
    assert recommend(power, usable, [(0, 0), (0, 0), (0, 0), (0, 0)]) == 1
    assert recommend(power, np.zeros(4, bool), [(0, 0)] * 4) is None


def made(seed: int = 0) -> tuple[list[Plant], np.ndarray, np.ndarray]:
    """Plants, signs and shifts (plants, settings, groups); setting 2 sees the plants best."""
    rng = np.random.default_rng(seed)
    plants = [Plant("valence", dose, i, i < 3) for i in range(6) for dose in DOSES]
    plants += [Plant("all_one_way", dose, i, i < 3) for i in range(6) for dose in DOSES]
    plants += [Plant(null, dose, i, i < 6) for null in NULLS for i in range(12) for dose in DOSES]
    signs = np.array([np.ones(8) if p.one_way else rng.permutation([1] * 4 + [-1] * 4) for p in plants])
    shifts = rng.normal(size=(len(plants), 4, 8))
    for i, plant in enumerate(plants):
        if not plant.is_null:
            shifts[i] -= 10 * plant.dose * signs[i] * np.array([0.2, 0.5, 3.0, 0.1])[:, None]
    return plants, signs, shifts


def test_what_is_reported_does_not_reach_the_choice() -> None:
    plants, signs, shifts = made()
    before = judged(plants, signs, shifts, SETTINGS, 4, [True], 0.1, 0.8)
    changed = shifts.copy()
    reported = np.array([not plant.selects for plant in plants])
    changed[reported] = np.random.default_rng(9).normal(size=changed[reported].shape)
    after = judged(plants, signs, changed, SETTINGS, 4, [True], 0.1, 0.8)
    chosen = [row for row in before["recommended"] if row["role"] == "recommended"]
    assert [(row["layer"], row["skip"]) for row in chosen] == [(4, "none")]
    for old, new in zip(before["recommended"], after["recommended"], strict=True):
        for key in ("role", "layer", "skip", "threshold_random", "threshold_random_one_way", "power_selection"):
            assert old[key] == new[key]
    assert before["recommended"][0]["power"] > 0.9 > after["recommended"][0]["power"]


def test_the_tables_count_edited_models() -> None:
    plants, signs, shifts = made()
    tables = judged(plants, signs, shifts, SETTINGS, 4, [True], 0.1, 0.8)
    row = tables["sensitivity"][2]
    assert (row["n_planted"], row["n_random"], row["found_0.2"]) == (6, 24, 6)
    assert row["power"] == pytest.approx((row["found_0.1"] + row["found_0.2"]) / 12)
    assert row["false_alarms"] == round(row["false_alarm_rate"] * 24)
    power = {(r["dose"], r["family"]): r for r in tables["power"] if r["layer"] == 4 and r["skip"] == "none"}
    assert power[0.2, "all"]["found"] == power[0.2, "valence"]["found"] + power[0.2, "all_one_way"]["found"]
    assert power[0.1, "random"]["n"] == 6
    roles = [(r["role"], r["layer"], r["alternatives"]) for r in tables["recommended"]]
    assert roles == [("recommended", 4, 4), ("default", 4, 4)]


def test_a_setting_without_scores_is_never_recommended() -> None:
    plants, signs, shifts = made()
    shifts[0, 2, 0] = np.nan
    tables = judged(plants, signs, shifts, SETTINGS, 4, [True], 0.1, 0.8)
    assert tables["sensitivity"][2]["power"] is None
    assert "not defined" in tables["sensitivity"][2]["reason"]
    assert tables["recommended"][0]["skip"] == "sink"
