from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf_shrinkage

from refbias.errors import RefbiasError
from refbias.moments import ROWS, Moments


def sample(n: int, d: int, seed: int = 0, offset: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + offset * rng.normal(size=d)


def moments(X: np.ndarray, sizes: list[int]) -> Moments:
    found, start = Moments(), 0
    for size in [*sizes, len(X)]:
        found.add(X[start : start + size])
        start += size
        if start >= len(X):
            break
    return found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 40), max_size=6), st.floats(0, 1e4))
def test_any_blocks_give_the_moments_of_the_whole(seed, sizes, offset):
    X = sample(120, 6, seed, offset)
    found = moments(X, sizes)
    assert found.n == 120
    np.testing.assert_allclose(found.mean, X.mean(0), rtol=1e-12, atol=1e-12)
    cov = np.cov(X.T)
    np.testing.assert_allclose(found.covariance(), cov, atol=1e-9 * np.abs(cov).max())
    assert found.total_variance == pytest.approx(np.trace(cov), rel=1e-9)
    assert found.ledoit_wolf() == pytest.approx(ledoit_wolf_shrinkage(X), abs=1e-8)


@pytest.mark.parametrize("shape", [(5, 5), (50, 200), (2, 3), (40, 1), (3 * ROWS + 1, 4)])
def test_ledoit_wolf_is_scikit_learns(shape):
    X = sample(*shape, offset=5.0)
    assert moments(X, [1, 1]).ledoit_wolf() == pytest.approx(ledoit_wolf_shrinkage(X), abs=1e-10)


def test_a_mean_far_from_0_costs_no_digits_of_the_covariance():
    """The textbook sum of squares minus the square of the mean would leave none of them."""
    X = sample(4000, 5)
    shifted = X + 1e7
    found = moments(shifted, [1, 900])
    np.testing.assert_allclose(found.covariance(), np.cov(X.T), rtol=1e-6)
    naive = (shifted.T @ shifted - len(X) * np.outer(shifted.mean(0), shifted.mean(0))) / (len(X) - 1)
    assert np.abs(naive / np.cov(X.T) - 1).max() > 1e-3


def test_a_covariance_is_symmetric_to_the_bit():
    covariance = moments(sample(300, 40), [100]).covariance()
    np.testing.assert_array_equal(covariance, covariance.T)


def test_float32_rows_are_summed_in_float64():
    X = sample(5000, 4, offset=100.0).astype(np.float32)
    np.testing.assert_allclose(moments(X, [500]).covariance(), np.cov(X.astype(float).T), rtol=1e-10)


def test_means_alone():
    X = sample(50, 3)
    found = Moments(scatter=False)
    found.add(X[:20])
    found.add(X[20:].tolist())
    np.testing.assert_allclose(found.mean, X.mean(0))


def test_what_cannot_be_added():
    found = Moments()
    found.add(sample(4, 3))
    with pytest.raises(RefbiasError, match="got 3, then 2"):
        found.add(sample(4, 2))
    bad = sample(4, 3)
    bad[2, 1] = np.inf
    with pytest.raises(RefbiasError, match="X from row 4 on holds NaN or infinity, first in row 2"):
        found.add(bad)
    with pytest.raises(RefbiasError, match="X holds NaN or infinity, first in row 2"):
        Moments().add(bad)
    assert found.n == 4
    one = Moments()
    one.add(sample(1, 3))
    with pytest.raises(RefbiasError, match="at least 2 rows: got 1"):
        one.covariance()
