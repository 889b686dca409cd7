from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from refbias import isotropy
from refbias.calibration import ZCA, Center
from refbias.errors import RefbiasError, UsageError


def normal(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def published_iso_score(X: np.ndarray) -> float:
    """The steps of arXiv 2108.07344, section 3, one by one."""
    from sklearn.decomposition import PCA

    n = X.shape[1]
    variances = np.cov(PCA(n).fit_transform(X).T).diagonal()
    normalised = np.sqrt(n) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(normalised - 1) / np.sqrt(2 * (n - np.sqrt(n)))
    share = (n - defect**2 * (n - np.sqrt(n))) ** 2 / n**2
    return (n * share - 1) / (n - 1)


def test_split_is_two_parts_that_share_nothing():
    rest, held = isotropy.split(100, 30, seed=1)
    assert (len(rest), len(held)) == (70, 30)
    assert sorted([*rest, *held]) == list(range(100))
    np.testing.assert_array_equal(held, isotropy.split(100, 30, seed=1)[1])
    assert held.tolist() != isotropy.split(100, 30, seed=2)[1].tolist()
    with pytest.raises(UsageError, match="100 of 100 rows cannot be held out: expected 1 to 99"):
        isotropy.split(100, 100)


@pytest.mark.parametrize("shape", [(60, 7), (7, 60), (2, 3)])
def test_cosines_are_those_of_all_pairs(shape):
    X = normal(*shape) + 0.5
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    every = (U @ U.T)[np.triu_indices(len(X), 1)]
    found = isotropy.pairwise_cosines(X)
    assert (found.mean, found.sd) == pytest.approx((every.mean(), every.std()), abs=1e-7)
    assert found.pairs == len(every)


def test_a_narrow_cone_keeps_its_spread():
    X = 1e3 + normal(500, 50)
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    every = (U @ U.T)[np.triu_indices(500, 1)]
    assert isotropy.pairwise_cosines(X).sd == pytest.approx(every.std(), abs=1e-7)


def test_centring_alone_brings_the_mean_cosine_to_0():
    X = normal(400, 20) @ np.diag(np.arange(1.0, 21.0)) + 40
    assert isotropy.pairwise_cosines(X).mean > 0.8
    centred = Center().fit(X).transform(X)
    assert abs(isotropy.pairwise_cosines(centred).mean) < 0.01
    before, after = (isotropy.iso_score(isotropy.spectrum(rows)) for rows in (X, centred))
    assert before == pytest.approx(after)


@pytest.mark.parametrize("shape", [(80, 6), (6, 80), (6, 6)])
def test_a_spectrum_is_that_of_the_covariance(shape):
    X = normal(*shape)
    expected = np.sort(np.linalg.eigvalsh(np.cov(X.T)))[::-1]
    np.testing.assert_allclose(isotropy.spectrum(X), expected, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.01, 100))
def test_figures_of_the_spectrum_see_neither_rotation_nor_scale_nor_place(seed, scale):
    X = normal(40, 5, seed) @ np.diag([5.0, 3, 2, 1, 0.1])
    moved = scale * X @ ortho_group.rvs(5, random_state=seed) + 3
    for figure in (isotropy.iso_score, isotropy.effective_rank, isotropy.explained_variance):
        np.testing.assert_allclose(figure(isotropy.spectrum(moved)), figure(isotropy.spectrum(X)), rtol=1e-6)


def test_iso_score_is_the_published_one():
    for seed in range(3):
        X = normal(200, 12, seed) @ np.diag(np.logspace(0, -seed, 12))
        assert isotropy.iso_score(isotropy.spectrum(X)) == pytest.approx(published_iso_score(X))


def test_limits_of_iso_score_and_effective_rank():
    equal, one, half = np.ones(10), np.eye(10)[0], np.repeat([1.0, 0.0], 5)
    assert isotropy.iso_score(equal) == pytest.approx(1)
    assert isotropy.iso_score(one) == 0
    assert isotropy.iso_score(half) == pytest.approx((5 - 1) / (10 - 1))
    assert [isotropy.effective_rank(values) for values in (equal, one, half)] == pytest.approx([10, 1, 5])
    line = np.outer(normal(100, 1), [1.0, 2.0, 3.0])
    assert isotropy.iso_score(isotropy.spectrum(line)) == pytest.approx(0, abs=1e-12)
    assert isotropy.iso_score(isotropy.spectrum(normal(100_000, 3))) > 0.999


def test_effective_rank_is_the_entropy_of_singular_values():
    X = normal(30, 6)
    values = np.linalg.svd(X - X.mean(0), compute_uv=False)
    shares = values / values.sum()
    expected = np.exp(-(shares * np.log(shares)).sum())
    assert isotropy.effective_rank(isotropy.spectrum(X)) == pytest.approx(expected)


@pytest.mark.parametrize(("n", "d"), [(2000, 50), (300, 200), (60, 200)])
def test_a_finite_sample_of_an_isotropic_gaussian_scores_as_foretold(n, d):
    found = np.mean([isotropy.iso_score(isotropy.spectrum(normal(n, d, seed))) for seed in range(4)])
    assert isotropy.iso_score_of_isotropic(n, d) == pytest.approx(found, rel=0.01)


def test_explained_variance_agrees_with_scikit_learn():
    from sklearn.decomposition import PCA

    X = normal(80, 9) @ np.diag(np.arange(1.0, 10.0))
    found = isotropy.explained_variance(isotropy.spectrum(X), 4)
    np.testing.assert_allclose(found, PCA(4).fit(X).explained_variance_ratio_)
    assert isotropy.explained_variance(isotropy.spectrum(X)).sum() == pytest.approx(1)


def test_whitening_is_perfect_on_what_it_was_fitted_on_and_not_on_held_out_rows():
    X = normal(260, 40) @ np.diag(np.logspace(0, -1.5, 40)) + 2
    rest, held = isotropy.split(len(X), 100)
    fitted = ZCA(0.0, shrinkage=0.0).fit(X[rest])
    inside, outside = (isotropy.measure(fitted.transform(X[rows])) for rows in (rest, held))
    assert inside["iso_score"] == pytest.approx(1)
    assert outside["iso_score"] < outside["iso_score_of_isotropic"] < 0.8
    assert len(outside["explained_variance"]) == 40
    assert isotropy.measure(X[held])["iso_score"] < outside["iso_score"]


def test_what_has_no_figure():
    with pytest.raises(RefbiasError, match="at least 2 rows: got 1"):
        isotropy.pairwise_cosines(normal(1, 3))
    with pytest.raises(RefbiasError, match="at least 2 rows: got 1"):
        isotropy.spectrum(normal(1, 3))
    with pytest.raises(RefbiasError, match="zero vector"):
        isotropy.pairwise_cosines([[0.0, 0.0], [1.0, 0.0]])
    for n in (3, 30):
        with pytest.raises(RefbiasError, match=f"all {n} are the same"):
            isotropy.spectrum(np.full((n, 5), 0.1))
    with pytest.raises(RefbiasError, match="at least 2 dimensions"):
        isotropy.iso_score(np.ones(1))
