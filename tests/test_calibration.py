from __future__ import annotations

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf

from refbias import linalg
from refbias.calibration import ABTT, ZCA, Center, Identity, calibrate
from refbias.errors import RefbiasError, UsageError
from refbias.types import Space


def sample(n: int = 60, d: int = 5, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 10


def test_center_and_identity():
    X = sample()
    np.testing.assert_allclose(Center().fit(X).transform(X), X - X.mean(0))
    np.testing.assert_array_equal(Identity().fit(X).transform(X), X)


def test_zca_is_the_published_formula():
    X = sample()
    fitted = ZCA(eps=1e-3).fit(X)
    values, U = np.linalg.eigh(np.cov(X.T))
    expected = (X - X.mean(0)) @ (U * (values + 1e-3) ** -0.5 @ U.T)
    np.testing.assert_allclose(fitted.transform(X), expected)
    assert fitted.shrinkage_ == 0
    assert fitted.eps_relative_ == pytest.approx(1e-3 / values.mean())


def test_a_small_sample_takes_scikit_learns_ledoit_wolf():
    X = sample(n=30)
    assert ZCA().fit(X).shrinkage_ == pytest.approx(LedoitWolf().fit(X).shrinkage_)


def test_shrinkage_0_needs_more_rows_than_dimensions():
    with pytest.raises(RefbiasError, match="got 5 rows of width 5"):
        ZCA(shrinkage=0).fit(sample(n=5))
    assert np.isfinite(ZCA().fit(sample(n=5)).matrix_).all()


def test_abtt_takes_out_the_leading_directions():
    X = sample()
    Z = ABTT(k=2).fit(X).transform(X)
    np.testing.assert_allclose(Z @ linalg.top_directions(X, 2).T, 0, atol=1e-10)
    np.testing.assert_allclose(ABTT(k=0).fit(X).transform(X), X - X.mean(0))


@pytest.mark.parametrize(("make", "text"), [
    (lambda: ZCA(eps=-1), "eps is a ridge, 0 or more: got -1"),
    (lambda: ZCA(shrinkage=2), "between 0 and 1: got 2"),
    (lambda: ABTT(k=-1), "0 or more: got -1"),
])  # fmt: skip
def test_options_out_of_range(make, text):
    with pytest.raises(UsageError, match=text):
        make()


def test_use_before_fit_and_another_width():
    with pytest.raises(RefbiasError, match="ZCA is not fitted yet"):
        ZCA().transform(sample())
    with pytest.raises(RefbiasError, match=r"width 5: got \(3, 4\)"):
        Center().fit(sample()).transform(sample(3, 4))


def test_a_space_is_calibrated_on_its_own_anchors():
    space = Space({"g": sample(4)}, sample(5), sample(6), sample(40, seed=1))
    centred = calibrate(space, Center())
    np.testing.assert_allclose(centred.anchors.mean(0), 0, atol=1e-10)
    np.testing.assert_allclose(centred.positive, space.positive - space.anchors.mean(0))
    with pytest.raises(RefbiasError, match="Calibration Center needs anchors"):
        calibrate(Space({"g": sample(4)}, sample(5), sample(6)), Center())


def test_calibrating_leaves_the_given_object_unfitted():
    space = Space({"g": sample(4)}, sample(5), sample(6), sample(40))
    given = ZCA()
    calibrate(space, given)
    assert not hasattr(given, "mean_")
