"""Which checkpoints alarm, what skipping the others misses and saves."""

from __future__ import annotations

import numpy as np
import pytest

from refbias.errors import RefbiasError, UsageError
from refbias.screening import (
    Alarm,
    at_threshold,
    cost,
    cost_and_recall,
    expected_miss_rate,
    leave_one_run_out,
    screened,
    threshold_for,
)


def entry(*shifts, high=None, p=0.001):
    rows = [
        {"group": f"g{i}", "delta_b": s, "ci_high": s + 0.05 if high is None else high, "p_adjusted": p}
        for i, s in enumerate(shifts)
    ]
    known = [s for s in shifts if s is not None]
    return {"mean_delta_b": float(np.mean(known)) if known else None, "groups": rows, "mean": None}


def test_a_threshold_is_held_against_groups_or_their_mean():
    checkpoint = entry(-0.3, -0.1, 0.2)
    assert Alarm(-0.2).judge(checkpoint).groups == ("g0",)
    assert Alarm(-0.2).judge(checkpoint).alarmed and not Alarm(-0.2, at_least=2).judge(checkpoint).alarmed
    assert Alarm(-0.05, at_least=2).judge(checkpoint).alarmed
    assert not Alarm(-0.1, of="mean").judge(checkpoint).alarmed and Alarm(-0.06, of="mean").judge(checkpoint).alarmed
    assert not Alarm(-0.3).judge(checkpoint).alarmed  # at the threshold is not below it


def test_a_drift_alarms_above_its_threshold():
    assert Alarm(0.1, directed=False).judge(entry(0.2, 0.0)).groups == ("g0",)
    assert not Alarm(0.1, directed=False).judge(entry(-0.2, 0.0)).alarmed


def test_without_a_threshold_it_is_beyond_doubt():
    assert Alarm().judge(entry(-0.3, 0.1, high=-0.1)).groups == ("g0", "g1")  # the interval says so, not the sign
    assert not Alarm().judge(entry(-0.3, high=0.01)).alarmed
    assert not Alarm().judge(entry(-0.3, high=-0.1, p=0.06)).alarmed


def test_what_cannot_be_judged_goes_on_to_the_benchmark():
    missing = entry(None, 0.2, p=None, high=0.0)
    assert Alarm().judge(missing).alarmed and "no figure" in Alarm().judge(missing).why
    assert Alarm(-0.1).judge(missing).alarmed and not Alarm(-0.1, at_least=2).judge(missing).alarmed
    assert Alarm(of="mean").judge(entry(-0.1)).alarmed
    assert Alarm(-1.0, of="mean").judge({"mean_delta_b": None, "groups": []}).alarmed


def test_the_rule_is_said_in_words():
    assert Alarm(-0.25, at_least=3).said == "at least 3 groups below -0.250"
    assert Alarm(0.25, of="mean", directed=False).said == "the mean over groups above +0.250"
    assert Alarm().said == "at least 1 group below zero beyond doubt, in the shift or its second opinion"
    with pytest.raises(UsageError, match="at_least=0"):
        Alarm(at_least=0)


def test_expected_misses_are_shares_of_the_probabilities():
    chances = {"a": [0.9, 0.1], "b": [0.5, 0.5], "c": [0.0]}
    assert expected_miss_rate(chances, ["b", "c"]).value == pytest.approx(0.5)
    assert expected_miss_rate(chances, []).value == 0.0
    assert expected_miss_rate(chances, list(chances)).value == 1.0
    nothing = expected_miss_rate({"a": [0.0]}, ["a"])
    assert nothing.value is None and "no observation" in str(nothing.reason)


def test_cost_counts_the_reference_as_one_model():
    found = cost(checkpoints=7, benchmarked=1, stage_1_s=10.0, stage_2_s=25.0, benchmark_s=20.0)
    assert found["a_model_s"] == 10.0 and found["everything_s"] == 80.0
    assert found["benchmark_saved_share"] == 0.75 and found["saved_share"] == pytest.approx(1 - 35 / 80)
    assert cost(7, 7, 10.0, 85.0, 80.0)["benchmark_saved_share"] == 0.0
    assert cost(7, 7, 10.0, 85.0, 80.0)["saved_share"] < 0
    nothing = cost(7, 0, 10.0, 0.0, None)
    assert nothing["saved_share"] is None and "no checkpoint alarmed" in nothing["reason"]


@pytest.fixture
def four():
    """Four checkpoints of two runs, two observations each; a1 and b1 are more biased, b1 seen late."""
    x = [-0.5, 0.1, -0.1, 0.2, -0.2, -0.2, 0.3, 0.4]
    positive = [True, True, False, False, True, False, False, False]
    return x, positive, [c for c in ("a1", "a2", "b1", "b2") for _ in "xy"], ["a"] * 4 + ["b"] * 4


def test_a_checkpoint_scores_its_nth_most_alarming_shift(four):
    assert screened(*four).score.tolist() == pytest.approx([0.5, 0.1, 0.2, -0.3])
    assert screened(*four, at_least=2).score.tolist() == pytest.approx([-0.1, -0.2, 0.2, -0.4])
    assert screened(*four, directed=False).score.tolist() == pytest.approx([0.1, 0.2, -0.2, 0.4])
    with pytest.raises(RefbiasError, match="as many observations"):
        screened(*four, at_least=3)


def test_cost_and_recall_by_hand(four):
    rows = cost_and_recall(screened(*four))
    assert [row["cost"] for row in rows] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [row["recall"] for row in rows] == pytest.approx([0, 2 / 3, 1, 1, 1])
    assert [row["checkpoint_recall"] for row in rows] == [0, 0.5, 1, 1, 1]
    assert at_threshold(screened(*four), 0.2)["cost"] == 0.5


def test_checkpoints_of_one_score_alarm_together():
    rows = cost_and_recall(screened([0.0, 0.0, 0.0], [True, False, True], list("abc"), list("abc")))
    assert [(row["cost"], row["recall"]) for row in rows] == [(0.0, 0.0), (1.0, 1.0)]


def test_a_threshold_comes_from_the_other_runs(four):
    seen = screened(*four)
    assert threshold_for(seen, 0.6).value == pytest.approx(0.5) and threshold_for(seen, 1.0).value == pytest.approx(0.2)
    a, b = leave_one_run_out(seen, 1.0)
    assert a["score"] == pytest.approx(0.2) and (a["cost"], a["recall"]) == (0.5, 1.0)  # from run b
    assert b["score"] == pytest.approx(0.5) and (b["cost"], b["recall"]) == (0.0, 0.0)  # from run a: too high here
    with pytest.raises(UsageError, match="wanted recall"):
        threshold_for(seen, 0.0)


def test_a_run_without_others_to_learn_from_says_why(four):
    x, _, checkpoints, runs = four
    nothing = screened(x, [False] * 8, checkpoints, runs)
    assert at_threshold(nothing, 0.2)["recall"] is None
    row = leave_one_run_out(nothing, 0.9)[0]
    assert row["cost"] is None and "no more biased observation" in row["reason"]
