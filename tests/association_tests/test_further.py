"""RND, ECT, RNSB and SAME by hand, their laws, and what cannot be computed."""

from __future__ import annotations

import numpy as np
import pytest

from refbias.association_tests import ect, rnd, rnsb, same
from refbias.errors import UsageError

RNG = np.random.default_rng(0)
X, Y, A, B = (RNG.normal(size=(k, 6)) for k in (5, 4, 7, 8))


def test_rnd_by_hand_and_antisymmetric():
    found = rnd([[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0], [0.0, 3.0]])
    np.testing.assert_allclose(found.parts["by_word"], [-np.sqrt(2), np.sqrt(2)])
    assert found.value == pytest.approx(0)
    for options in ({}, {"distance": "cos"}, {"normalise": False}):
        assert rnd(X, Y, A, **options).value == pytest.approx(-rnd(Y, X, A, **options).value)
    assert rnd(X, Y, A).value == pytest.approx(rnd(3 * X, Y, 5 * A).value)
    assert rnd(X, Y, A, normalise=False).value != pytest.approx(rnd(3 * X, Y, A, normalise=False).value)


def test_ect_is_1_for_equal_targets_and_symmetric():
    assert ect(X, X, A).value == pytest.approx(1)
    assert ect(X, -X, A).value == pytest.approx(-1)
    assert ect(X, Y, A).value == pytest.approx(ect(Y, X, A).value)


def test_rnsb_is_0_for_equal_words_and_grows_with_the_difference():
    assert rnsb([X[:1], X[:1]], A, B).value == pytest.approx(0, abs=1e-12)
    towards = B.mean(axis=0) - A.mean(axis=0)
    near, far = (rnsb([X[[0] * 5], X[[0] * 4] + k * towards], A, B) for k in (0.3, 3))
    assert 0 < near.value < far.value
    assert far.parts["negative"][1].mean() > far.parts["negative"][0].mean()
    assert [len(p) for p in far.parts["negative"]] == [5, 4]


def test_same_by_hand():
    found = same([[1.0, 0.0], [0.0, 1.0], [-2.0, 0.0]], [[4.0, 0.0]], [[-1.0, 0.0]])
    np.testing.assert_allclose(found.parts["by_word"], [1, 0, -1])
    assert found.value == pytest.approx(2 / 3)
    assert found.parts["skew"] == pytest.approx(0)
    assert found.parts["stereotype"] == pytest.approx(np.sqrt(2 / 3))
    swapped = same(X, B, A)
    assert swapped.value == pytest.approx(same(X, A, B).value)
    assert swapped.parts["skew"] == pytest.approx(-same(X, A, B).parts["skew"])


@pytest.mark.parametrize(("score", "reason"), [
    (lambda: rnd([], Y, A), "too few words: X has 0, at least 1 needed"),
    (lambda: rnd(X, 0 * Y, A), "Y holds a zero vector"),
    (lambda: rnd([[1.0, 0], [-1.0, 0]], [[1.0, 1]], [[1.0, 2]], distance="cos"), "the vectors of a target set cancel"),
    (lambda: ect(X, Y, A[:2]), "too few words: A has 2, at least 3"),
    (lambda: ect([[1.0, 0.0]], [[1.0, 1.0]], [[0.0, 1.0]] * 3), "equally near to one target set"),
    (lambda: same(X, A, A), "A and B have one mean direction"),
    (lambda: rnsb([X, []], A, B), "too few words: target 1 has 0"),
])  # fmt: skip
def test_what_cannot_be_computed_is_none_with_the_reason(score, reason):
    found = score()
    assert found.value is None and reason in found.reason


def test_wrong_use():
    with pytest.raises(UsageError, match="distance is one of norm, cos: got 'l1'"):
        rnd(X, Y, A, distance="l1")
    with pytest.raises(UsageError, match="two or more target sets: got 1"):
        rnsb([X], A, B)
