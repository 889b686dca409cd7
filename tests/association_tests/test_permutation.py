"""p-values against listing every partition, as numbers, and under exchangeability."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refbias.association_tests import permutation
from refbias.association_tests.permutation import partition_test
from refbias.errors import RefbiasError, UsageError

ALTERNATIVES = ("greater", "less", "two-sided")
RNG = np.random.default_rng


def listed(scores, n, alternative, ties):
    """The definition: every partition, differences of means in exact integers."""
    units = [int(u) for u in permutation._integers(np.asarray(scores, float))]
    total, everything = len(units), sum(units)
    far = [total * sum(units[i] for i in chosen) - n * everything for chosen in itertools.combinations(range(total), n)]
    turn = {"greater": lambda v: v, "less": lambda v: -v, "two-sided": abs}[alternative]
    seen = turn(far[0])
    return sum(turn(v) >= seen if ties == "inclusive" else turn(v) > seen for v in far) / len(far)


@st.composite
def partitions(draw):
    total = draw(st.integers(2, 9))
    values = st.one_of(st.integers(-3, 3).map(float), st.floats(-2, 2))
    return draw(st.lists(values, min_size=total, max_size=total)), draw(st.integers(1, total - 1))


@given(partitions(), st.sampled_from(ALTERNATIVES), st.sampled_from(["inclusive", "strict"]))
@settings(max_examples=150, deadline=None)
def test_exact_is_the_listing_and_the_bounds_hold_it(case, alternative, ties):
    scores, n = case
    expected = listed(scores, n, alternative, ties)
    found = partition_test(scores, n, alternative, ties)
    assert (found.method, found.p_value) == ("exact", pytest.approx(expected, abs=1e-14))
    bounded = partition_test(scores, n, alternative, ties, method="bounded")
    assert bounded.p_low - 1e-14 <= expected <= bounded.p_high + 1e-14
    assert bounded.p_value == bounded.p_high


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@pytest.mark.parametrize("n", [7, 20, 31])
def test_bounds_are_narrow_and_hold_the_exact_p(alternative, n):
    scores = RNG(n).normal(size=40) * 0.1
    scores[:n] += 0.03
    exact = partition_test(scores, n, alternative).p_value
    bounded = partition_test(scores, n, alternative, method="bounded")
    assert bounded.p_low <= exact <= bounded.p_high
    assert bounded.p_high - bounded.p_low < 2e-4


@pytest.mark.parametrize(("n", "m"), [(32, 32), (10, 50), (50, 10)])
def test_sampling_agrees_with_the_bounds(n, m):
    scores = RNG(1).normal(size=n + m)
    scores[:n] += 0.3
    bounded = partition_test(scores, n)
    sampled = partition_test(scores, n, method="sampled", permutations=40_000, seed=3)
    assert (bounded.method, sampled.method) == ("bounded", "sampled")
    assert bounded.p_high - bounded.p_low < sampled.standard_error
    assert abs(sampled.p_value - bounded.p_value) < 4 * sampled.standard_error


def test_a_p_that_sampling_cannot_reach():
    scores = np.concatenate([np.linspace(1, 2, 32), np.linspace(-2, -1, 32)])
    found = partition_test(scores, 32)
    assert found.p_low >= 1 / math.comb(64, 32) * (1 - 1e-9)
    assert found.p_high < 1e-15


def test_random_subsets_are_uniform():
    scores = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])  # every subset has a sum of its own
    for n in (2, 4):  # 4: the complement is drawn
        for limit in range(3, 63, 7):
            exact = sum(sum(c) >= limit for c in itertools.combinations(scores.tolist(), n)) / math.comb(6, n)
            hits = permutation._sampled_hits(scores.astype(np.int64), n, limit, None, 20_000, seed=limit)
            assert hits / 20_000 == pytest.approx(exact, abs=0.015)


def test_the_same_seed_draws_the_same():
    scores = RNG(0).normal(size=30)
    first, again, other = (partition_test(scores, 15, method="sampled", permutations=999, seed=s) for s in (1, 1, 2))
    assert first == again != other
    assert first.p_value * 1000 == pytest.approx(round(first.p_value * 1000))  # (b + 1) / (draws + 1)


@pytest.mark.parametrize("method", ["exact", "sampled"])
def test_p_is_uniform_under_exchangeability(method):
    rng = RNG(5)
    found = np.array([
        partition_test(rng.standard_t(3, size=15), 7, "two-sided", method=method, permutations=400, seed=i).p_value
        for i in range(800)
    ])  # fmt: skip
    for level in (0.05, 0.2, 0.5):
        assert (found <= level).mean() == pytest.approx(level, abs=0.04)


def test_ties_are_ties_despite_noise():
    scores = np.array([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2])  # 0.30000000000000004 and 0.3
    assert partition_test(scores, 2).p_value == 1.0
    assert partition_test(scores, 2, ties="strict").p_value == 0.0
    boundary = (np.arange(7) + 0.5) / permutation.SCALE  # halfway between two integers, where noise decides
    jittered = np.concatenate([boundary * (1 + 1e-15), boundary * (1 - 1e-15)])
    units = permutation._integers(jittered)
    np.testing.assert_array_equal(units[:7], units[7:])


def test_strict_can_reach_0_and_inclusive_cannot():
    scores = [3.0, 2.0, 1.0, 0.0]
    assert partition_test(scores, 2, ties="strict").p_value == 0.0
    assert partition_test(scores, 2).p_value == 1 / 6


def test_two_sided_is_centred_for_unequal_sizes():
    scores = 5 + np.array([0.3, -0.1, 0.0, 0.1, -0.2, -0.1])  # a sum Σx − Σy would be 5 − 25 here whatever is drawn
    assert partition_test(scores, 1, "two-sided").p_value == pytest.approx(1 / 6)
    assert partition_test(-scores, 1, "two-sided") == partition_test(scores, 1, "two-sided")


def test_large_sets_do_not_overflow():
    scores = RNG(2).normal(size=20_000) * 1e6
    found = partition_test(scores, 10_000, "two-sided", permutations=200)
    assert found.method == "sampled" and 0 < found.p_value <= 1
    assert found.p_value == pytest.approx(
        partition_test(scores, 10_000, "two-sided", method="normal").p_value, abs=0.15
    )


def test_normal_is_near_the_exact_p_and_only_taken_when_asked():
    scores = RNG(4).normal(size=40)
    scores[:20] += 0.5
    exact, normal = partition_test(scores, 20), partition_test(scores, 20, method="normal")
    assert (exact.method, normal.method) == ("exact", "normal")
    assert normal.p_value == pytest.approx(exact.p_value, rel=0.1)


def test_wrong_use_names_what_is_right():
    with pytest.raises(RefbiasError, match="two sets that are not empty: got 3 and 0"):
        partition_test([1.0, 2.0, 3.0], 3)
    with pytest.raises(UsageError, match="alternative is one of greater, less, two-sided: got 'both'"):
        partition_test([1.0, 2.0], 1, "both")
    with pytest.raises(UsageError, match="up to 52 scores: got 60. Use bounded or sampled"):
        partition_test(np.arange(60.0), 30, method="exact")
    with pytest.raises(UsageError, match="at least 1: got 0"):
        partition_test([1.0, 2.0], 1, permutations=0)
