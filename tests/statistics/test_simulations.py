"""Levels and coverage by simulation: fast versions here, the figures of docs/statistics.md by the slow ones."""

from __future__ import annotations

import pytest

from tests.statistics import simulations


def test_the_null_of_7_by_24_pairs():
    rates = simulations.null_rates(runs=60, draws=200)
    assert rates["pooled p, as published"] > 0.25
    assert rates["p within checkpoints, by t"] > 0.25
    assert rates["permuting checkpoints"] > 0.7 and rates["bootstrapping checkpoints"] > 0.7
    assert rates["common permutation of groups: r"] < 0.15
    assert rates["bootstrapping groups, as offered: r within"] < 0.2


@pytest.mark.slow
def test_the_null_of_7_by_24_pairs_at_length():
    rates = simulations.null_rates(runs=1000)
    for name in ("pooled p, as published", "p within checkpoints, by t"):
        assert 0.40 < rates[name] < 0.53
    for name in ("permuting checkpoints", "bootstrapping checkpoints"):
        assert rates[name] > 0.85
    for name, rate in rates.items():
        if name.startswith("common permutation"):
            assert 0.03 < rate < 0.07, name
        if "as offered" in name:
            assert 0.02 < rate < 0.09, name


@pytest.mark.slow
@pytest.mark.parametrize("link", [0.0, 0.5, 0.9])
def test_intervals_over_groups_cover(link):
    for name, count in simulations.group_coverage(600, 24, link).items():
        assert 0.90 < count.share < 0.985, name
        assert count.made == count.asked


@pytest.mark.slow
def test_differences_of_aucs_cover_and_keep_their_level():
    count, wrong = simulations.difference_coverage(600)
    assert 0.915 < count.share < 0.98
    assert 0.02 < wrong < 0.08


@pytest.mark.slow
def test_delong_covers_where_there_are_many():
    assert 0.92 < simulations.delong_coverage(1000, 168).share < 0.97


@pytest.mark.slow
@pytest.mark.parametrize(("pairs", "tau"), [(3, 0.3), (6, 0.3), (18, 0.3)])
def test_means_over_pairs_cover(pairs, tau):
    knapp, normal = simulations.meta_coverage(1000, pairs, tau)
    assert 0.90 < knapp.share < 0.975
    assert pairs > 6 or normal.share < knapp.share


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frames", "contrast", "paired", "low", "high"),
    [(2.0, False, None, 0.92, 0.975), (0.0, False, None, 0.92, 0.975), (2.0, True, None, 0.92, 0.975),
     (2.0, False, False, 0.99, 1.0)],
)  # fmt: skip
def test_shifts_cover_with_pairs_and_without(frames, contrast, paired, low, high):
    assert low <= simulations.crossed_coverage(600, frames, contrast, paired).share <= high


def test_the_best_of_many_is_worth_what_the_choice_leaves():
    alone, counted = simulations.choice_rates(40, alternatives=20, draws=200)
    assert alone > 0.2
    assert counted < 0.2


@pytest.mark.slow
def test_the_best_of_30_keeps_its_level():
    alone, counted = simulations.choice_rates(600)
    assert alone > 0.4
    assert 0.025 < counted < 0.075


def test_leaving_out_one_merge_leaks_and_one_run_does_not():
    merge, run = simulations.brier_skills(25)
    assert merge > 0.02
    assert run < 0


def test_the_ceiling_is_near_the_truth_and_leaving_the_shifts_wide_is_not():
    true, offered, plain = simulations.ceilings(60, 0.1)
    assert abs(offered - true) < 0.02 < plain - true


def test_a_conformal_threshold_keeps_its_rate():
    assert simulations.false_alarms(8000, 19) == pytest.approx(0.05, abs=0.01)
