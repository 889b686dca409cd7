"""Laws of d and p, the published figures on real vectors, and what cannot be computed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refbias.association_tests import association_scores, effect_size, sc_weat, weat
from refbias.association_tests.intervals import largest
from refbias.errors import RefbiasError


def sets(seed=0, sizes=(7, 5, 4, 6), dim=9):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(k, dim)) + rng.normal(size=dim) for k in sizes]


# Published figures on real vectors


@pytest.mark.parametrize(("test", "d", "p", "partitions"), [
    ("W6", 1.7078, 1 / 12870, 12870),
    ("W7", 1.4951, 0.000233, 12870),
    ("W9", 1.1369, 0.022727, 924),
])  # fmt: skip
def test_glove_50d(glove, test, d, p, partitions):
    found = weat(*glove.sets(test))
    assert found.effect_size == pytest.approx(d, abs=5e-5)
    assert found.p_value == pytest.approx(p, abs=5e-7)
    assert (found.method, found.partitions) == ("exact", partitions)


def test_glove_50d_with_ddof_0(glove):
    assert weat(*glove.sets("W6"), ddof=0).effect_size == pytest.approx(1.7638, abs=5e-5)


def test_w3_has_certified_bounds(glove):
    found = weat(*glove.sets("W3"))
    assert (found.method, found.partitions) == ("bounded", math.comb(64, 32))
    assert found.effect_size == pytest.approx(0.953, abs=5e-4)
    assert 0 < found.p_low < found.p_high == found.p_value < 1.02 * found.p_low


@pytest.mark.parametrize(("test", "d"), [("W1", 1.54), ("W2", 1.63), ("W6", 1.89), ("W7", 0.97), ("W8", 1.24)])
def test_word2vec_google_news(word2vec, test, d):
    X, Y, A, B = word2vec.sets(test)
    assert test != "W2" or len(Y) == 24  # axe is not among the vectors
    assert weat(X, Y, A, B, method="normal").effect_size == pytest.approx(d, abs=0.005)


# Laws


@given(st.integers(0, 1000))
def test_rotation_and_positive_scaling_of_each_vector_change_nothing(seed):
    rng = np.random.default_rng(seed)
    W = sets(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(9, 9)))
    moved = [M @ turn * rng.uniform(0.1, 10, size=(len(M), 1)) for M in W]
    here, there = weat(*W), weat(*moved)
    assert there.effect_size == pytest.approx(here.effect_size, abs=1e-10)
    assert there.p_value == here.p_value


@given(st.integers(0, 1000))
def test_antisymmetry(seed):
    X, Y, A, B = sets(seed)
    here, swapped, turned = weat(X, Y, A, B), weat(Y, X, A, B), weat(X, Y, B, A)
    for other in (swapped, turned):
        assert other.effect_size == pytest.approx(-here.effect_size, abs=1e-12)
        assert other.statistic == pytest.approx(-here.statistic, abs=1e-12)
        assert weat(X, Y, A, B, alternative="less").p_value == other.p_value
    assert weat(Y, X, B, A).effect_size == pytest.approx(here.effect_size, abs=1e-12)


@given(st.integers(0, 1000), st.integers(2, 9), st.integers(2, 9), st.sampled_from([0, 1]))
def test_d_is_bounded_and_the_bound_is_reached(seed, n, m, ddof):
    rng = np.random.default_rng(seed)
    bound = largest(n, m, ddof)
    assert bound == pytest.approx((n + m) / math.sqrt(n * m) * (math.sqrt((n + m - 1) / (n + m)) if ddof else 1))
    assert abs(effect_size(rng.normal(size=n), rng.normal(size=m), ddof)) <= bound + 1e-12
    assert effect_size(np.ones(n), np.zeros(m), ddof) == pytest.approx(bound)


def test_p_is_that_of_every_partition():
    X, Y, A, B = sets(3, (4, 5, 3, 3))
    everything, found = np.concatenate([X, Y]), weat(X, Y, A, B)
    s = association_scores(everything, A, B)
    assert found.statistic == pytest.approx(s[:4].sum() - s[4:].sum())
    # unequal sizes: differences of means, not of sums
    differences = [s[list(c)].mean() - np.delete(s, list(c)).mean() for c in itertools.combinations(range(9), 4)]
    assert found.p_value == pytest.approx(np.mean(np.array(differences) >= differences[0] - 1e-12))


def test_association_by_hand():
    s = association_scores([[1.0, 0.0], [3.0, 4.0]], [[2.0, 0.0]], [[0.0, 1.0], [0.0, -1.0]])
    np.testing.assert_allclose(s, [1.0, 0.6])


def test_one_target_word_against_two_attribute_sets():
    rng = np.random.default_rng(0)
    w, A, B = rng.normal(size=4), rng.normal(size=(5, 4)), rng.normal(size=(6, 4))
    a = A @ w / np.linalg.norm(A, axis=1) / np.linalg.norm(w)
    b = B @ w / np.linalg.norm(B, axis=1) / np.linalg.norm(w)
    found = sc_weat(w, A, B)
    assert found.effect_size == pytest.approx((a.mean() - b.mean()) / np.concatenate([a, b]).std(ddof=1))
    assert (found.method, found.partitions) == ("exact", math.comb(11, 5))
    assert sc_weat([w, 2 * w], A, B).effect_size == pytest.approx(found.effect_size)
    assert sc_weat(w, B, A).effect_size == pytest.approx(-found.effect_size)


# What cannot be computed


@pytest.mark.parametrize(("change", "reason"), [
    ({0: np.empty((0, 9))}, "too few words: X has 0, at least 2 needed"),
    ({1: []}, "too few words: Y has 0, at least 2 needed"),
    ({1: np.ones((1, 9))}, "too few words: Y has 1, at least 2 needed"),
    ({3: []}, "too few words: B has 0, at least 1 needed"),
    ({2: np.diag([1.0, 0.0])[:, [0] + [1] * 8]}, r"A holds a zero vector \(row 1\)"),
    ({0: np.ones((3, 9)), 1: np.ones((2, 9))}, "the scores of all words are equal"),
])  # fmt: skip
def test_what_cannot_be_computed_is_none_with_the_reason(change, reason):
    W = [change.get(i, M) for i, M in enumerate(sets())]
    found = weat(*W)
    assert found.effect_size is found.p_value is found.method is None
    with pytest.raises(RefbiasError, match=reason):
        raise RefbiasError(found.reason)


def test_wrong_use_raises():
    X, Y, A, B = sets()
    with pytest.raises(RefbiasError, match="ddof is 0 or 1: got 2"):
        weat(X, Y, A, B, ddof=2)
    with pytest.raises(RefbiasError, match="X holds NaN or infinity, first in row 0"):
        weat(X * np.nan, Y, A, B)
    with pytest.raises(RefbiasError, match="one width"):
        weat(X, Y, A[:, :3], B)
