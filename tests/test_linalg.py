"""Laws, numbers worked by hand, and agreement with other implementations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import cdist
from scipy.stats import ortho_group
from sklearn.metrics.pairwise import cosine_similarity

from refbias import linalg
from refbias.errors import RefbiasError

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 12)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def rotation(seed: int, d: int) -> np.ndarray:
    return ortho_group.rvs(d, random_state=seed) if d > 1 else np.eye(1)


# Cosines and relative representations


@given(seeds, sizes, sizes, st.integers(2, 8))
def test_cosines_agree_with_scikit_learn(seed, n, m, d):
    X, Y = normal(seed, n, d), normal(seed + 1, m, d)
    np.testing.assert_allclose(linalg.cosine(X, Y), cosine_similarity(X, Y), atol=1e-12)


@given(seeds, st.integers(2, 8), st.floats(1e-3, 1e3))
def test_a_relative_representation_sees_neither_rotation_nor_scale(seed, d, scale):
    X, anchors, Q = normal(seed, 5, d), normal(seed + 1, 7, d), rotation(seed, d)
    np.testing.assert_allclose(
        linalg.relative(X, anchors), linalg.relative(scale * X @ Q, scale * anchors @ Q), atol=1e-12
    )


def test_a_zero_vector_has_no_cosine():
    with pytest.raises(RefbiasError, match=r"Y holds a zero vector \(row 1\)"):
        linalg.cosine([[1.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]])


def test_widths_that_differ_are_named():
    with pytest.raises(RefbiasError, match=r"one width: got \(2, 3\) and \(2, 4\)"):
        linalg.cosine(normal(0, 2, 3), normal(0, 2, 4))


def test_any_numeric_type_is_taken():
    torch = pytest.importorskip("torch")
    X = normal(0, 4, 3)
    expected = linalg.cosine(X.astype(np.float32), X)
    np.testing.assert_allclose(linalg.cosine(torch.tensor(X, dtype=torch.float32), X.tolist()), expected)
    half = torch.tensor(X, dtype=torch.bfloat16)
    np.testing.assert_allclose(linalg.cosine(half, X), linalg.cosine(half.float().numpy(), X))
    assert linalg.cosine(np.eye(2, dtype=int), np.eye(2)).dtype == np.float64


# Distances


@given(seeds, sizes, sizes, st.integers(1, 8), st.floats(0, 1e4))
def test_distances_agree_with_scipy(seed, n, m, d, far):
    X, Y = normal(seed, n, d) + far, normal(seed + 1, m, d) + far
    np.testing.assert_allclose(linalg.distances(X, Y), cdist(X, Y), rtol=1e-9)


def test_distances_of_near_duplicates_keep_their_digits():
    X = normal(0, 20, 300) + 50
    Y = np.vstack([X + 1e-9 * normal(1, 20, 300), -X])
    np.testing.assert_allclose(linalg.distances(X, Y), cdist(X, Y), rtol=1e-9)
    assert (np.diag(linalg.distances(X, X)) == 0).all()


# Bias scores


def test_bias_scores_worked_by_hand():
    # distances of (0, 0) and (0, 2) to (0, 1): 1, 1; to (3, 4): 5, √13
    target, positive, negative = [[0.0, 0.0], [0.0, 2.0]], [[0.0, 1.0]], [[3.0, 4.0]]
    score = linalg.bias_score(
        linalg.distance_association(target, positive), linalg.distance_association(target, negative)
    )
    assert score == pytest.approx(-1 + (5 + np.sqrt(13)) / 2)
    # cosines of (1, 0) and (1, 1) with (1, 0): 1, √½; with (0, 1): 0, √½
    target = [[1.0, 0.0], [1.0, 1.0]]
    score = linalg.bias_score(
        linalg.cosine_association(target, [[2.0, 0.0]]), linalg.cosine_association(target, [[0.0, 3.0]])
    )
    assert score == pytest.approx(0.5)


# Procrustes


@given(seeds, st.integers(2, 7))
def test_procrustes_recovers_a_rotation(seed, d):
    X, Q = normal(seed, 3 * d, d), rotation(seed, d)
    np.testing.assert_allclose(linalg.procrustes(X, X @ Q), Q, atol=1e-4)  # the ridge costs about 1e-6


@given(seeds, sizes, st.integers(2, 9))
def test_a_procrustes_map_is_orthogonal(seed, n, d):
    R = linalg.procrustes(normal(seed, n, d), normal(seed + 1, n, d))
    np.testing.assert_allclose(R @ R.T, np.eye(d), atol=1e-10)


def test_procrustes_agrees_with_scipy():
    X, Y = normal(0, 60, 12), normal(1, 60, 12)
    np.testing.assert_allclose(linalg.procrustes(X, Y), orthogonal_procrustes(X, Y)[0], atol=1e-4)


@pytest.mark.parametrize("n", [3, 6, 11])  # inside the span, and on both sides of 2 n = d
def test_procrustes_leaves_a_space_against_itself_alone(n):
    X = normal(0, n, 12)
    np.testing.assert_allclose(linalg.procrustes(X, X), np.eye(12), atol=1e-8)


def test_procrustes_moves_no_direction_that_no_row_ties():
    X = np.zeros((4, 30))
    X[:, :5] = normal(0, 4, 5)
    Y = np.zeros((4, 30))
    Y[:, :5] = X[:, :5] @ rotation(0, 5)
    R = linalg.procrustes(X, Y)
    np.testing.assert_allclose(R[5:, 5:], np.eye(25), atol=1e-10)
    np.testing.assert_allclose(X @ R, Y, atol=1e-4)


def test_the_reduced_and_the_full_solution_are_the_same():
    X, Y = normal(0, 10, 21), normal(1, 10, 21)  # 2 n < d: solved in the span
    ridge = 1e-6 * (X**2).sum() / 21
    left, _, right = np.linalg.svd(X.T @ Y + ridge * np.eye(21))
    np.testing.assert_allclose(linalg.procrustes(X, Y), left @ right, atol=1e-8)


def test_procrustes_needs_paired_rows():
    with pytest.raises(RefbiasError, match="paired rows: got 40 and 38"):
        linalg.procrustes(normal(0, 40, 3), normal(0, 38, 3))


def test_rank_and_condition():
    X = np.diag([4.0, 2.0, 0.0])
    assert linalg.rank_and_condition(X) == (2, 2.0)


# CKA


@given(seeds, st.sampled_from(["linear", "rbf"]), st.booleans())
def test_cka_laws(seed, kernel, debiased):
    X, Y, Q = normal(seed, 12, 4), normal(seed + 1, 12, 6), rotation(seed, 4)
    value = linalg.cka(X, Y, kernel, debiased)
    assert linalg.cka(Y, X, kernel, debiased) == pytest.approx(value, abs=1e-10)
    assert linalg.cka(3 * X @ Q + 1, Y, kernel, debiased) == pytest.approx(value, abs=1e-8)
    assert linalg.cka(X, X, kernel, debiased) == pytest.approx(1)


def test_biased_linear_cka_is_the_ratio_of_norms():
    X, Y = normal(0, 30, 5), normal(1, 30, 7)
    X, Y = X - X.mean(0), Y - Y.mean(0)
    expected = np.linalg.norm(X.T @ Y) ** 2 / (np.linalg.norm(X.T @ X) * np.linalg.norm(Y.T @ Y))
    assert linalg.cka(X, Y, debiased=False) == pytest.approx(expected)


def test_debiased_cka_of_independent_data_is_near_0_where_the_biased_is_near_1():
    values = [linalg.cka(normal(i, 50, 576), normal(i + 100, 50, 576)) for i in range(20)]
    assert abs(np.mean(values)) < 0.02
    assert linalg.cka(normal(0, 50, 576), normal(1, 50, 576), debiased=False) == pytest.approx(0.92, abs=0.01)


def test_unbiased_hsic_equals_its_definition():
    K, L = (linalg._gram(normal(i, 6, 3), "linear") for i in range(2))
    n = 6
    total, count = 0.0, 0  # Song et al. 2012: the U-statistic over four distinct rows
    for i in range(n):
        for j in range(n):
            for q in range(n):
                for r in range(n):
                    if len({i, j, q, r}) == 4:
                        total += K[i, j] * (L[i, j] + L[q, r] - 2 * L[i, q])
                        count += 1
    assert linalg._hsic_unbiased(K, L) == pytest.approx(total / count)


def test_cka_without_an_answer():
    assert np.isnan(linalg.cka(np.ones((6, 3)), normal(0, 6, 3)))
    with pytest.raises(RefbiasError, match="at least 4 rows: got 3"):
        linalg.cka(normal(0, 3, 3), normal(1, 3, 3))
    with pytest.raises(RefbiasError, match="got 'poly'"):
        linalg.cka(normal(0, 5, 3), normal(1, 5, 3), kernel="poly")


# Whitening


@settings(max_examples=30)
@given(seeds, st.sampled_from(["zca", "pca", "zca_corr", "cholesky"]), st.floats(0, 1))
def test_every_whitening_whitens(seed, kind, eps):
    cov = linalg.covariance(normal(seed, 40, 6) @ normal(seed + 1, 6, 6))
    W = linalg.whitening_matrix(cov, eps, kind)
    np.testing.assert_allclose(W @ (cov + eps * np.eye(6)) @ W.T, np.eye(6), atol=1e-6)


def test_covariance_after_zca_is_lambda_over_lambda_plus_eps():
    X = normal(0, 200, 8) @ np.diag(np.arange(1.0, 9.0))
    cov = linalg.covariance(X)
    values, vectors = np.linalg.eigh(cov)
    Z = (X - X.mean(0)) @ linalg.whitening_matrix(cov, 0.5).T
    np.testing.assert_allclose(linalg.covariance(Z), vectors * (values / (values + 0.5)) @ vectors.T, atol=1e-10)


def test_all_whitenings_give_the_same_cosines():
    X = normal(0, 80, 7) @ normal(1, 7, 7)
    cov = linalg.covariance(X)
    centred = X - X.mean(0)
    seen = [centred @ linalg.whitening_matrix(cov, 0.0, k).T for k in ("zca", "pca", "zca_corr", "cholesky")]
    for Z in seen[1:]:
        np.testing.assert_allclose(linalg.cosine(Z, Z), linalg.cosine(seen[0], seen[0]), atol=1e-8)


def test_zca_moves_vectors_least():
    X = normal(0, 80, 7) @ normal(1, 7, 7)
    cov, X = linalg.covariance(X), X - X.mean(0)
    moved = {k: ((X @ linalg.whitening_matrix(cov, 0.0, k).T - X) ** 2).sum() for k in ("zca", "pca", "cholesky")}
    assert moved["zca"] < moved["pca"] and moved["zca"] < moved["cholesky"]
    W = linalg.whitening_matrix(cov, 0.0)
    np.testing.assert_allclose(W, W.T, atol=1e-10)


def test_covariance_agrees_with_numpy():
    X = normal(0, 9, 4)
    np.testing.assert_allclose(linalg.covariance(X), np.cov(X.T))


def test_a_covariance_that_cannot_be_inverted_says_the_way_out():
    cov = linalg.covariance(normal(0, 4, 9))
    with pytest.raises(RefbiasError, match="ridge eps > 0, a shrinkage > 0"):
        linalg.whitening_matrix(cov, 0.0)
    assert np.isfinite(linalg.whitening_matrix(cov, 1e-3)).all()


def test_top_directions_are_those_of_scikit_learn():
    from sklearn.decomposition import PCA

    X = normal(0, 50, 6) @ np.diag([5.0, 3, 2, 1, 1, 1])
    ours, theirs = linalg.top_directions(X, 2), PCA(2).fit(X).components_
    np.testing.assert_allclose(np.abs((ours * theirs).sum(1)), 1)
    with pytest.raises(RefbiasError, match="5 principal directions: 6 were asked"):
        linalg.top_directions(normal(0, 6, 9), 6)


def test_leading_directions_of_a_covariance_are_the_top_directions_of_its_rows():
    X = normal(0, 50, 6) @ np.diag([5.0, 3, 2, 1, 1, 1])
    ours = linalg.leading_directions(linalg.covariance(X), 3)
    np.testing.assert_allclose(np.abs((ours * linalg.top_directions(X, 3)).sum(1)), 1)
    assert linalg.leading_directions(np.eye(4), 0).shape == (0, 4)
    with pytest.raises(RefbiasError, match="4 principal directions: 5 were asked"):
        linalg.leading_directions(np.eye(4), 5)


def test_pca_whitening_begins_with_the_largest_component_and_has_fixed_signs():
    cov = linalg.covariance(normal(0, 90, 6) @ np.diag([5.0, 3, 2, 1, 0.5, 0.2]))
    W, values = linalg.whiten(cov.copy(), 0.1, "pca")
    np.testing.assert_allclose(np.linalg.norm(W, axis=1) ** -2, values[::-1])
    np.testing.assert_allclose(values, np.linalg.eigvalsh(cov) + 0.1)
    assert (W[np.arange(6), np.abs(W).argmax(1)] > 0).all()


@pytest.mark.parametrize("bad", [[[1.0, np.nan]], [[1.0, np.inf]]])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(RefbiasError, match="NaN or infinity, first in row 0"):
        linalg.relative(bad, [[1.0, 2.0]])
