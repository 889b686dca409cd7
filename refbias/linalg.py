"""The papers' formulas as pure functions of arrays, computed in float64.

Rows are sentences (or words), columns are dimensions: ``X`` (n, d). Equations are those of arXiv 2609.10060
(relative representations, ΔB) and arXiv 2608.06908 (whitening); other sources are named where they are used.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from refbias.errors import RefbiasError
from refbias.types import Array, as_matrix


def _same_width(X: Array, Y: Array, names: str) -> None:
    if X.shape[1] != Y.shape[1]:
        raise RefbiasError(f"{names} must have one width: got {X.shape} and {Y.shape}.")


def _same_rows(X: Array, Y: Array, what: str) -> None:
    if len(X) != len(Y):
        raise RefbiasError(f"{what} needs paired rows: got {len(X)} and {len(Y)}.")


def norms(X: Array, name: str = "X") -> Array:
    """Lengths (n,) of the rows of ``X`` (n, d). A zero row has no direction and raises."""
    lengths = np.sqrt(np.einsum("nd,nd->n", X, X))
    if not lengths.all():
        raise RefbiasError(
            f"{name} holds a zero vector (row {int(np.flatnonzero(lengths == 0)[0])}): no cosine with it."
        )
    return lengths


def cosine(X: Any, Y: Any) -> Array:
    """Cosines of the rows of ``X`` (n, d) with those of ``Y`` (m, d), as (n, m)."""
    X, Y = as_matrix(X, "X"), as_matrix(Y, "Y")
    _same_width(X, Y, "X and Y")
    cosines = X @ Y.T
    cosines /= norms(X, "X")[:, None]
    cosines /= norms(Y, "Y")[None, :]
    return np.clip(cosines, -1.0, 1.0, out=cosines)


def relative(X: Any, anchors: Any) -> Array:
    """Relative representation r(x) = [cos(e(x), e(a_i))]_i of ``X`` (n, d) with ``anchors`` (m, d), as (n, m).

    Invariant to a rotation and to a positive scaling of the space (Moschella et al. 2023; arXiv 2609.10060).

    Examples
    --------
    >>> relative([[3.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]])
    array([[0.6, 0.8]])
    """
    return cosine(X, anchors)


def distances(X: Any, Y: Any) -> Array:
    """Euclidean distances between the rows of ``X`` (n, d) and ``Y`` (m, d), as (n, m).

    Notes
    -----
    ‖x − y‖² = ‖x‖² + ‖y‖² − 2 x·y, after moving the origin to the mean of ``Y``, which changes no distance and
    keeps the terms small. Where the identity cancels all the same (nearly coincident points) the difference is
    taken directly.
    """
    X, Y = as_matrix(X, "X"), as_matrix(Y, "Y")
    _same_width(X, Y, "X and Y")
    origin = Y.mean(axis=0)
    near_y = Y - origin
    own_y = np.square(near_y).sum(axis=1)
    found = np.empty((len(X), len(Y)))
    for begin in range(0, len(X), 256):  # blocks that stay in the processor's cache
        some = X[begin : begin + 256]
        near_x = some - origin
        scale = np.square(near_x).sum(axis=1)[:, None] + own_y
        squared = scale - 2.0 * (near_x @ near_y.T)
        rows, columns = np.nonzero(squared < 1e-5 * scale)  # fewer than about ten digits would be left
        for start in range(0, len(rows), 4096):
            r, c = rows[start : start + 4096], columns[start : start + 4096]
            squared[r, c] = np.square(some[r] - Y[c]).sum(axis=1)
        np.sqrt(np.maximum(squared, 0.0, out=squared), out=found[begin : begin + 256])
    return found


def distance_association(X: Any, Y: Any) -> Array:
    """Association of ΔB: −‖x − y‖₂ for the rows of ``X`` (n, d) and ``Y`` (m, d), as (n, m)."""
    return -distances(X, Y)


def rms_distance_association(X: Any, Y: Any) -> Array:
    """−‖x − y‖₂ / √d for the rows of ``X`` (n, d) and ``Y`` (m, d), as (n, m): the root mean square over coordinates.

    In relative representations d is the number of anchors m, so this is the association of ΔB / √m.
    """
    found = distance_association(X, Y)
    return found / np.sqrt(np.shape(X)[1])


def pooled_spread(associations: Array, n_positive: int) -> float:
    """Pooled standard deviation of ``associations`` (n, p + q) around the means of their two sides.

    s² = ((np − 1) s₊² + (nq − 1) s₋²) / (np + nq − 2), s₊² and s₋² the variances over the first ``n_positive`` columns
    and over the others: B / s is Cohen's d (Cohen 1988, section 2.5). Raises where nothing varies.
    """
    squares = _squared_deviations(associations, n_positive)
    freedom = associations.size - 2
    spread = float(np.sqrt(squares.sum() / freedom)) if freedom > 0 else 0.0
    if spread <= 1e-12 * float(np.abs(associations).max()):
        raise RefbiasError(
            f"An effect size needs associations that vary: all of {associations.size} are equal on either side. "
            "Use metric.scale=none, or more sentences."
        )
    return spread


def _squared_deviations(associations: Array, n_positive: int) -> Array:
    sides = associations[:, :n_positive], associations[:, n_positive:]
    return np.hstack([np.square(side - side.mean()) for side in sides])


def effect_size_associations(associations: Array, n_positive: int) -> Array:
    """``associations`` A (n, p + q) with the spread s as their unit, so that their `bias_score` is d = B / s.

    The spread comes from the same sentences, so its uncertainty belongs to that of d. With D the squared deviations
    from the mean of a side and w the side's share of the columns, each entry is A / s ∓ (d / 2) w (D − mean D) / s²
    (− on the positive, + on the negative side): the mean difference is d, and over resampled rows and columns it moves
    as d does, to first order (delta method; the influence function of d, Hampel 1974).
    """
    s = pooled_spread(associations, n_positive)
    d = bias_score(associations[:, :n_positive], associations[:, n_positive:]) / s
    squares = _squared_deviations(associations, n_positive)
    found = associations / s
    for columns, sign in ((slice(None, n_positive), -1.0), (slice(n_positive, None), 1.0)):
        share = squares[:, columns].size / squares.size
        found[:, columns] += sign * d / 2 * share * (squares[:, columns] - squares[:, columns].mean()) / s**2
    return found


def cosine_association(X: Any, Y: Any) -> Array:
    """Association of SEAT (May et al. 2019): cos(x, y) for the rows of ``X`` (n, d) and ``Y`` (m, d), as (n, m)."""
    return cosine(X, Y)


def bias_score(positive: Array, negative: Array) -> float:
    """B = mean over targets of (S⁺ − S⁻), from associations (n, p) and (n, q).

    Every target has the same attributes, so the mean of the differences is the difference of the means.
    """
    return float(positive.mean() - negative.mean())


def procrustes(X: Any, Y: Any) -> Array:
    """Orthogonal R (d, d) that minimises ‖X R − Y‖_F, for paired rows ``X`` and ``Y`` (n, d).

    Where the rows do not determine R (n < d, or deficient rank) it is the solution nearest the identity.

    Notes
    -----
    The polar factor of XᵀY + λI, λ = 1e-6 ‖X‖²_F / d: the identity in every direction that no row ties, and
    exactly that for X = Y. (The plain factor U Vᵀ of an SVD is arbitrary there, so that a model against itself
    would be rotated.) Outside the span of the rows of X and Y nothing changes, so for 2 n < d the problem is
    solved inside that span.
    """
    X, Y = as_matrix(X, "X"), as_matrix(Y, "Y")
    _same_rows(X, Y, "Procrustes")
    _same_width(X, Y, "Procrustes: X and Y")
    n, d = X.shape
    ridge = 1e-6 * float(np.square(X).sum()) / d
    if 2 * n >= d:
        return _polar(X.T @ Y + ridge * np.eye(d))
    basis, _ = np.linalg.qr(np.vstack([X, Y]).T)  # (d, 2n)
    inner = (X @ basis).T @ (Y @ basis) + ridge * np.eye(2 * n)
    return np.eye(d) + basis @ (_polar(inner) - np.eye(2 * n)) @ basis.T


def _polar(M: Array) -> Array:
    left, _, right = np.linalg.svd(M)
    return left @ right


def rank_and_condition(X: Any) -> tuple[int, float]:
    """Numerical rank of ``X`` (n, d) and its largest over smallest non-negligible singular value."""
    values = np.linalg.svd(as_matrix(X, "X"), compute_uv=False)
    kept = values[values > values[0] * max(np.shape(X)) * np.finfo(float).eps]
    return len(kept), float(kept[0] / kept[-1]) if len(kept) else float("inf")


def cka(X: Any, Y: Any, kernel: Literal["linear", "rbf"] = "linear", debiased: bool = True) -> float:
    """Centred kernel alignment of paired rows ``X`` (n, d₁) and ``Y`` (n, d₂) (Kornblith et al. 2019).

    Parameters
    ----------
    kernel : "linear" or "rbf"; the width of "rbf" is the median distance between rows of the same space
    debiased : use the unbiased HSIC (Song et al. 2012), which needs n >= 4. The biased figure of *independent*
        data is far from 0 where n is small against d.

    Returns
    -------
    float, or NaN where a self-HSIC is not positive (constant rows, too few of them).
    """
    X, Y = as_matrix(X, "X"), as_matrix(Y, "Y")
    _same_rows(X, Y, "CKA")
    if debiased and len(X) < 4:
        raise RefbiasError(f"Debiased CKA needs at least 4 rows: got {len(X)}. Use debiased=false or more sentences.")
    K, L = _gram(X, kernel), _gram(Y, kernel)
    hsic = _hsic_unbiased if debiased else _hsic_biased
    own = hsic(K, K), hsic(L, L)
    floor = np.finfo(float).eps * len(X)
    if own[0] <= floor * np.abs(K).max() ** 2 or own[1] <= floor * np.abs(L).max() ** 2:
        return float("nan")
    return float(hsic(K, L) / np.sqrt(own[0] * own[1]))


def _gram(X: Array, kernel: str) -> Array:
    if kernel == "linear":
        X = X - X.mean(axis=0)  # HSIC does not see it; the numbers stay small
        return X @ X.T
    if kernel == "rbf":
        D = distances(X, X)
        width = float(np.median(D[np.triu_indices(len(X), k=1)])) if len(X) > 1 else 0.0
        return np.exp(-np.square(D) / (2 * width**2)) if width > 0 else np.ones_like(D)
    raise RefbiasError(f"CKA knows the kernels 'linear' and 'rbf': got {kernel!r}.")


def _hsic_biased(K: Array, L: Array) -> float:
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    L = L - L.mean(axis=0) - L.mean(axis=1)[:, None] + L.mean()
    return float((K * L).sum() / (len(K) - 1) ** 2) if len(K) > 1 else 0.0


def _hsic_unbiased(K: Array, L: Array) -> float:
    n = len(K)
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    value = (K * L).sum() + K.sum() * L.sum() / ((n - 1) * (n - 2)) - 2 * (K.sum(axis=0) @ L.sum(axis=0)) / (n - 2)
    return float(value / (n * (n - 3)))


def covariance(X: Any) -> Array:
    """Covariance (d, d) of the rows of ``X`` (n, d), divided by n − 1."""
    X = as_matrix(X, "X")
    if len(X) < 2:
        raise RefbiasError(f"A covariance needs at least 2 rows: got {len(X)}.")
    X = X - X.mean(axis=0)
    return X.T @ X / (len(X) - 1)


def shrink(cov: Array, shrinkage: float) -> Array:
    """(1 − s) Σ + s · mean eigenvalue · I for a covariance (d, d)."""
    return _on_diagonal((1 - shrinkage) * cov, shrinkage * float(np.trace(cov)) / len(cov))


def _on_diagonal(M: Array, value: float) -> Array:
    """M + value · I, in the memory of M."""
    M[np.diag_indices(len(M))] += value
    return M


Whitening = Literal["zca", "pca", "zca_corr", "cholesky"]


def whitening_matrix(cov: Array, eps: float = 1e-3, kind: Whitening = "zca") -> Array:
    """W (d, d) with W (Σ + εI) Wᵀ = I, for z = W (x − μ).

    ``zca`` is W = U (Λ + εI)^(−1/2) Uᵀ (arXiv 2608.06908), of all whitenings the one that moves vectors least.
    The others (Kessy et al. 2018) differ from it by a rotation from the left, so that every cosine is the same
    (for ``zca_corr`` and ``cholesky``: of the same Σ + εI).

    Parameters
    ----------
    cov : Σ (d, d)
    eps : ridge added to the eigenvalues, in the units of Σ
    """
    return whiten(np.array(cov, np.float64), eps, kind)[0]


def whiten(cov: Array, eps: float, kind: Whitening) -> tuple[Array, Array]:
    """`whitening_matrix`, and the eigenvalues (d,), ascending, of what it inverts.

    That is Σ + εI, for ``zca_corr`` its correlation. The memory of ``cov`` is used for the result: no more than two
    matrices (d, d) are there at once.
    """
    ridged = _on_diagonal(cov, eps)
    if kind == "cholesky":
        values, _ = _eigen(ridged.copy())
        return np.linalg.cholesky(np.linalg.inv(ridged)).T, values
    if kind == "zca_corr":
        variances = np.diag(ridged).copy()
        _check_invertible(float(variances.min()), float(variances.max()), 1)
        scale = np.sqrt(variances)
        ridged /= scale[:, None]
        ridged /= scale[None, :]
        W, values = _inverse_root(ridged)
        W /= scale[None, :]
        return W, values
    if kind == "pca":
        values, vectors = _eigen(ridged)
        # largest component first, each with its largest entry above 0: else the signs would be arbitrary
        vectors /= np.where(vectors.max(axis=0) >= -vectors.min(axis=0), 1.0, -1.0) * np.sqrt(values)
        ridged[:] = vectors[:, ::-1].T
        return ridged, values
    if kind == "zca":
        return _inverse_root(ridged)
    raise RefbiasError(f"Whitenings are zca, pca, zca_corr and cholesky: got {kind!r}.")


def _eigen(M: Array) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors of M, whose memory is lost."""
    from scipy.linalg import eigh

    # M is symmetric, so its transpose is M in the order in which LAPACK works without a copy
    values, vectors = eigh(M if M.flags.f_contiguous else M.T, driver="evr", overwrite_a=True, check_finite=False)
    _check_invertible(values[0], values[-1], len(M))
    return values, vectors


def _check_invertible(smallest: float, largest: float, d: int) -> None:
    if smallest <= largest * d * np.finfo(float).eps:
        raise RefbiasError(
            f"The covariance cannot be inverted: smallest eigenvalue {smallest:.3g}, largest {largest:.3g}. "
            "Use a ridge eps > 0, a shrinkage > 0, or more rows than dimensions."
        )


def _inverse_root(M: Array) -> tuple[Array, Array]:
    """M^(−1/2), in the memory of M, and the eigenvalues of M."""
    values, vectors = _eigen(M)
    vectors *= values**-0.25
    return np.matmul(vectors, vectors.T, out=M), values


def top_directions(X: Any, k: int) -> Array:
    """The ``k`` leading principal directions (k, d) of the rows of ``X`` (n, d)."""
    X = as_matrix(X, "X")
    limit = min(len(X) - 1, X.shape[1])
    if not 0 <= k <= limit:
        raise RefbiasError(f"{len(X)} rows of width {X.shape[1]} have {limit} principal directions: {k} were asked.")
    _, _, right = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return right[:k]


def leading_directions(cov: Array, k: int) -> Array:
    """The ``k`` leading eigenvectors (k, d) of a covariance (d, d)."""
    from scipy.linalg import eigh

    d = len(cov)
    if not 0 <= k <= d:
        raise RefbiasError(f"A space of {d} dimensions has {d} principal directions: {k} were asked.")
    if k == 0:
        return np.empty((0, d))
    _, vectors = eigh(cov, subset_by_index=(d - k, d - 1))
    return np.asarray(vectors[:, ::-1].T)
