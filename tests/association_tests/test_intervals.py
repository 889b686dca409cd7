"""Intervals of d and of its change: coverage, agreement with scipy, the verdicts and the chance of a flip."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from refbias.association_tests import effect_size, interval, paired_change, score_test, status
from refbias.association_tests.intervals import effect_sizes, flip_chance, largest
from refbias.errors import RefbiasError, UsageError


def words(rng, n, m, d, kind="normal"):
    """Scores of two sets whose populations have the effect size ``d`` at these sizes."""
    p, q = n / (n + m), m / (n + m)
    draws = {"normal": rng.normal, "skewed": lambda size: (rng.gamma(2, size=size) - 2) / math.sqrt(2)}[kind]
    return draws(size=n) + d / math.sqrt(1 - p * q * d * d), draws(size=m)


def test_the_standard_error_is_that_of_repeated_sampling():
    rng = np.random.default_rng(0)
    drawn = [words(rng, 60, 40, 0.8) for _ in range(2000)]
    d, error = effect_sizes(np.stack([x for x, _ in drawn]), np.stack([y for _, y in drawn]))
    assert np.median(error) == pytest.approx(d.std(), rel=0.06)
    assert d[0] == pytest.approx(effect_size(*drawn[0]))
    assert math.isnan(effect_sizes(np.ones((1, 3)), np.ones((1, 3)))[0][0])


@pytest.mark.parametrize("ddof", [0, 1])
def test_bca_and_percentile_agree_with_scipy(ddof):
    rng = np.random.default_rng(1)
    x, y = words(rng, 16, 12, 0.9, "skewed")

    for ours, theirs in (("bca", "BCa"), ("percentile", "percentile")):
        found = interval(x, y, kind=ours, ddof=ddof, draws=20_000)
        expected = stats.bootstrap(
            (x, y), lambda a, b, axis=-1: (a.mean(-1) - b.mean(-1)) / np.concatenate([a, b], -1).std(-1, ddof=ddof),
            vectorized=True, method=theirs, n_resamples=20_000, rng=np.random.default_rng(2),
        ).confidence_interval  # fmt: skip
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.03)


def test_coverage():
    rng = np.random.default_rng(3)
    runs, covered = 300, {"studentised": 0, "percentile": 0}
    for i in range(runs):
        x, y = words(rng, 8, 8, 1.0)
        for kind in covered:
            found = interval(x, y, kind=kind, draws=400, seed=i)
            covered[kind] += found.low <= 1.0 <= found.high
    assert 0.92 <= covered["studentised"] / runs <= 0.99
    assert covered["percentile"] / runs < 0.92


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "skewed"])
@pytest.mark.parametrize(("n", "m"), [(8, 8), (16, 16), (25, 25), (12, 24)])
@pytest.mark.parametrize("d", [0.0, 1.0, 1.6])
def test_coverage_by_size_effect_and_shape(kind, n, m, d):
    rng = np.random.default_rng(4)
    covered = 0
    for i in range(500):
        found = interval(*words(rng, n, m, d, kind), draws=600, seed=i)
        covered += found.low <= d <= found.high
    assert 0.88 <= covered / 500 <= 0.99


def test_an_interval_stays_inside_the_bounds_of_d():
    x, y = np.linspace(1, 1.2, 8), np.linspace(-0.1, 0, 8)
    for kind in ("studentised", "bca", "percentile"):
        found = interval(x, y, kind=kind, draws=500)
        assert -largest(8, 8) <= found.low < found.high <= largest(8, 8)


def test_swapping_the_sets_turns_the_interval_round():
    x, y = words(np.random.default_rng(5), 9, 9, 0.7)
    here, there = interval(x, y, draws=4000), interval(y, x, draws=4000)
    assert (here.low, here.high) == pytest.approx((-there.high, -there.low), abs=0.1)


def test_paired_change_of_equal_readings_is_0():
    x, y = words(np.random.default_rng(6), 8, 8, 1.0)
    p = score_test(x, y).p_value
    found = paired_change((x, y), (x, y), p, p)
    assert (found.change, found.interval.low, found.interval.high) == (0, 0, 0)
    assert (found.status, found.flip_chance) == ("Stable", 0)
    scaled = paired_change((x, y), (3 * x + 1, 3 * y + 1), p, p)
    assert scaled.change == pytest.approx(0, abs=1e-12) and scaled.flip_chance == 0


def readings(rng, n, d, shared=0.6):
    """Two readings with one truth, which share a part of each word's score."""
    delta = d / math.sqrt(1 - d * d / 4)
    sets = []
    for mean in (delta, 0.0):
        common = math.sqrt(shared) * rng.normal(size=n)
        sets.append([common + math.sqrt(1 - shared) * rng.normal(size=n) + mean for _ in range(2)])
    (x, u), (y, v) = sets
    return (x, y), (u, v)


def test_coverage_of_the_change_and_the_flip_rate():
    rng = np.random.default_rng(7)
    runs, covered, flips, expected = 250, 0, 0, 0.0
    for i in range(runs):
        before, after = readings(rng, 16, 0.5)
        p = [score_test(*pair, method="normal").p_value for pair in (before, after)]
        found = paired_change(before, after, *p, draws=400, seed=i)
        covered += found.interval.low <= 0 <= found.interval.high
        flips += found.status != "Stable"
        expected += found.flip_chance
    assert 0.91 <= covered / runs <= 0.985
    assert 0.15 < flips / runs < 0.35  # one truth, and yet a quarter of the labels changes
    assert expected / runs == pytest.approx(flips / runs, abs=0.09)


def test_flip_chance_of_a_plain_case():
    rng = np.random.default_rng(8)
    critical = stats.t.ppf(0.95, 14)
    edge = critical / math.sqrt(14 + critical**2)  # the r that is just significant with 16 words
    drawn = np.tanh(np.arctanh(edge) + 0.1 * rng.normal(size=(2, 40_000)))
    assert flip_chance(np.array([edge, edge]), drawn, 16) == pytest.approx(0.5, abs=0.01)
    together = np.tanh(np.arctanh(edge) + 0.1 * np.tile(rng.normal(size=40_000), (2, 1)))
    assert flip_chance(np.array([edge, edge]), together, 16) == 0
    assert flip_chance(np.array([0.99, 0.99]), np.tanh(np.arctanh(0.99) + 0 * drawn), 16) == 0


def test_status():
    assert status(0.04, 0.06) == "Disappearing"
    assert status(0.06, 0.04) == "Emerging"
    assert status(0.05, 0.9) == status(0.01, 0.02) == "Stable"
    assert status(0.04, 0.06, alpha=0.01) == "Stable"
    assert status(None, 0.01) is None


def test_what_cannot_be_computed_is_none_with_the_reason():
    assert interval([1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]).reason == (
        "too few words for an interval: 3 and 4, at least 4 needed"
    )
    assert interval(np.ones(5), np.ones(5)).reason == "the scores of all words are equal"
    assert "the scores of each set are equal" in interval(np.ones(5), np.zeros(5)).reason
    found = paired_change((np.arange(5.0), np.arange(5.0)), (np.ones(5), np.ones(5)), 0.1, None)
    assert (found.after, found.change, found.status, found.interval.low) == (None, None, None, None)
    assert found.reason == "the scores of all words are equal"


def test_wrong_use():
    x, y = np.arange(5.0), np.arange(6.0)
    with pytest.raises(UsageError, match="one of studentised, bca, percentile: got 'basic'"):
        interval(x, y, kind="basic")
    with pytest.raises(UsageError, match="between 0 and 1: got 95"):
        interval(x, y, level=95)
    with pytest.raises(UsageError, match="at least 100 draws: got 10"):
        interval(x, y, draws=10)
    with pytest.raises(RefbiasError, match=r"same words on both sides: got 5 \+ 6 and 5 \+ 5"):
        paired_change((x, y), (x, x), 0.1, 0.1)
