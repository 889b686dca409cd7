"""AUC taken apart, its ceiling, DeLong: laws, then numbers, then statsmodels and the definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from statsmodels.stats.nonparametric import rank_compare_2indep

from refbias import statistics
from refbias.errors import RefbiasError, UsageError
from tests.statistics.simulations import merges, names


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(2, 6))
def test_shares_add_up_to_the_whole(seed, checkpoints, groups):
    rng = np.random.default_rng(seed)
    cells = list(itertools.product(range(checkpoints), range(groups)))
    kept = [cell for cell in cells if rng.random() < 0.8] or cells
    score, labels = rng.integers(0, 4, len(kept)).astype(float), rng.random(len(kept)) < 0.5
    parts = statistics.auc_parts(score, labels, *zip(*kept, strict=True))
    whole = statistics.auc(score, labels)
    assert sum(part.pairs for part in parts) == labels.sum() * (~labels).sum()
    if whole.value is None:
        assert all(part.auc is None and part.reason == whole.reason for part in parts)
        return
    assert sum(part.share for part in parts) == pytest.approx(1)
    assert sum(part.share * (part.auc or 0) for part in parts) == pytest.approx(whole.value)


def test_parts_by_counting_pairs():
    X, Y = merges(np.random.default_rng(0), 5, 0.5, noise=0.3)
    score, labels = -X.ravel(), Y.ravel() > 0
    checkpoints, groups = names(5)
    won = {"same checkpoint": [], "same group": [], "neither": []}
    for i, j in itertools.product(np.flatnonzero(labels), np.flatnonzero(~labels)):
        same = checkpoints[i] == checkpoints[j], groups[i] == groups[j]
        kind = "same checkpoint" if same[0] else "same group" if same[1] else "neither"
        won[kind].append(float(score[i] > score[j]))
    for part in statistics.auc_parts(score, labels, checkpoints, groups):
        assert (part.pairs, part.auc) == (len(won[part.name]), pytest.approx(np.mean(won[part.name])))


def test_a_cell_that_comes_twice_is_refused_and_an_empty_part_says_why():
    with pytest.raises(RefbiasError, match="Checkpoint 'c' and group 'a' come together twice"):
        statistics.auc_parts(np.arange(2.0), [True, False], ["c", "c"], ["a", "a"])
    parts = statistics.auc_parts(np.arange(2.0), [True, False], ["c", "c"], ["a", "b"])
    assert [part.pairs for part in parts] == [1, 0, 0]
    assert parts[1].reason == "no group has two observations" and parts[2].reason == "no pair differs in both"


def test_the_ceiling_is_1_without_noise_and_falls_with_it():
    y = np.random.default_rng(0).normal(size=200)
    found = [statistics.noise_ceiling(y, 0.3, error).value for error in (0.0, 0.1, 0.3, 0.6)]
    assert found[0] == 1
    assert all(low < high for low, high in itertools.pairwise(found[::-1]))
    assert found[-1] > 0.5


def test_the_ceiling_pair_by_pair():
    rng = np.random.default_rng(1)
    y, error = rng.normal(size=9), rng.uniform(0.1, 0.5, 9)
    true = y.var(ddof=1) - np.mean(error**2)
    p = ndtr((y.mean() + np.sqrt(true / y.var(ddof=1)) * (y - y.mean()) - 0.2) / error)
    won = pairs = 0.0
    for i, j in itertools.permutations(range(9), 2):
        pairs += p[i] * (1 - p[j])
        won += p[i] * (1 - p[j]) * (p[i] > p[j])
    assert statistics.noise_ceiling(y, 0.2, error).value == pytest.approx(won / pairs)


def test_a_ceiling_that_cannot_be_known_has_a_reason():
    y = np.array([-0.1, 0.0, 0.1])
    assert "vary no more than their noise" in statistics.noise_ceiling(y, 0.0, 0.5).reason
    assert "needs both classes" in statistics.noise_ceiling(y, 1.0, 0.01).reason
    assert "at least 3" in statistics.noise_ceiling(y[:2], 0.0, 0.01).reason
    assert "0 or above" in statistics.noise_ceiling(y, 0.0, -1.0).reason


def placements(score: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """DeLong's structural components by their definition."""
    more, less = score[labels], score[~labels]
    kernel = (more[:, None] > less).astype(float) + 0.5 * (more[:, None] == less)
    return kernel.mean(axis=1), kernel.mean(axis=0)


@given(st.integers(0, 1000), st.booleans())
@settings(max_examples=25, deadline=None)
def test_delong_agrees_with_its_definition_and_with_statsmodels(seed, ties):
    rng = np.random.default_rng(seed)
    labels = np.arange(30) < 12
    one = rng.normal(size=30) + labels
    other = one + rng.normal(size=30)
    scores = np.round(np.array([one, other]), 0 if ties else 9)
    found = statistics.delong(scores, labels, range(30))
    v = [placements(s, labels) for s in scores]
    expected = np.cov([v[0][0], v[1][0]]) / 12 + np.cov([v[0][1], v[1][1]]) / 18
    np.testing.assert_allclose(found.covariance, expected, atol=1e-12)
    assert found.areas.tolist() == pytest.approx([statistics.auc(s, labels).value for s in scores])
    peer = rank_compare_2indep(scores[0][labels], scores[0][~labels], use_t=False)
    assert (found.areas[0], found.covariance[0, 0]) == pytest.approx((peer.prob1, peer.var_prob), abs=1e-9)


def test_delong_by_hand():
    # 3 + 2 observations: kernel rows (1 1), (1 0), (1 1); V10 = 1, ½, 1 and V01 = 1, ⅔
    found = statistics.delong([3.0, 1.5, 4.0, 1.0, 2.0], [1, 1, 1, 0, 0], "abcde")
    assert found.areas[0] == pytest.approx(5 / 6)
    assert found.covariance[0, 0] == pytest.approx((1 / 12) / 3 + (1 / 18) / 2)
    estimate = found.estimate()
    assert estimate.ci_high == 1 and estimate.ci_low == pytest.approx(5 / 6 - 1.959964 * np.sqrt(1 / 36 + 1 / 36))


def test_delong_refuses_groups_that_come_again_with_the_way_out():
    checkpoints, groups = names(24)
    with pytest.raises(UsageError, match=r"comes 7 times\. Use auc_difference or group_bootstrap"):
        statistics.delong(np.arange(168.0), checkpoints > 3, groups)
    with pytest.raises(RefbiasError, match="two observations of each class: got 1 more and 2 less"):
        statistics.delong([1.0, 2.0, 3.0], [1, 0, 0], "abc")
    assert statistics.delong([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1], "abcd").estimate().reason == (
        "the estimated variance is 0"
    )


def test_a_difference_after_delong():
    rng = np.random.default_rng(0)
    labels = np.arange(200) < 100
    good = rng.normal(size=200) + 2 * labels
    found = statistics.delong([good, rng.normal(size=200)], labels, range(200)).difference()
    assert found.ci_low > 0 and found.p_value < 1e-6
    assert statistics.delong([good, good], labels, range(200)).difference().reason == "the estimated variance is 0"


def test_the_sweep_has_a_row_for_each_threshold():
    X, Y = merges(np.random.default_rng(0), 8, 0.9)
    checkpoints, _ = names(8)
    rows = statistics.threshold_sweep(X.ravel(), Y.ravel(), [-99, 0.0, 99], checkpoints)
    assert [row["n_positive"] for row in rows] == [56, int((Y > 0).sum()), 0]
    assert rows[0]["auc"] is None and "needs both classes" in rows[0]["reason"]
    assert rows[1]["auc"] == statistics.auc(-X.ravel(), Y.ravel() > 0).value
