"""How evenly vectors fill their space: pure functions of the rows of a matrix (n, d), in float64.

Measure them on rows that a calibration was not fitted on (`split`): on the fitted ones a whitening is perfect by
construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refbias import linalg
from refbias.errors import RefbiasError, UsageError
from refbias.moments import Moments
from refbias.types import Array, as_matrix


def split(n: int, held_out: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of n rows in two parts, each in ascending order: the rest, and ``held_out`` of them drawn at random."""
    if not 0 < held_out < n:
        raise UsageError(f"{held_out} of {n} rows cannot be held out: expected 1 to {n - 1}.")
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[held_out:]), np.sort(order[:held_out])


@dataclass(frozen=True)
class Cosines:
    """Mean and standard deviation over all ``pairs`` of distinct rows."""

    mean: float
    sd: float
    pairs: int


def pairwise_cosines(X: Any) -> Cosines:
    """Mean and SD of the cosines of all n (n − 1) / 2 pairs of rows of ``X`` (n, d).

    Notes
    -----
    Exact, without the cosines themselves. With unit rows u their sum is (‖Σ u‖² − n) / 2 and their sum of squares
    (‖U Uᵀ‖²_F − n) / 2, where ‖U Uᵀ‖_F = ‖Uᵀ U‖_F. The SD divides by the number of pairs; below about 1e-7 it is
    rounding.
    """
    X = as_matrix(X, "X")
    n = len(X)
    if n < 2:
        raise RefbiasError(f"Pairwise cosines need at least 2 rows: got {n}.")
    U = X / linalg.norms(X)[:, None]
    gram = U.T @ U if n >= X.shape[1] else U @ U.T
    total = U.sum(axis=0)
    mean = float((total @ total - n) / (n * (n - 1)))
    square = float((np.einsum("ij,ij->", gram, gram) - n) / (n * (n - 1)))
    return Cosines(mean, max(square - mean**2, 0.0) ** 0.5, n * (n - 1) // 2)


def spectrum(X: Any) -> Array:
    """Eigenvalues (d,) of the covariance of the rows of ``X`` (n, d), descending; at most n − 1 are above 0."""
    from scipy.linalg import eigvalsh

    X = as_matrix(X, "X")
    n, d = X.shape
    if n < 2:
        raise RefbiasError(f"A spectrum needs at least 2 rows: got {n}.")
    if n <= d:
        values = np.square(np.linalg.svd(X - X.mean(axis=0), compute_uv=False)) / (n - 1)
        values[-1] = 0.0  # centring takes one dimension
    else:
        moments = Moments()
        moments.add(X)
        values = np.maximum(eigvalsh(moments.covariance(), overwrite_a=True)[::-1], 0.0)
    if values[0] <= d * (np.finfo(float).eps * np.abs(X).max()) ** 2:  # rounding
        raise RefbiasError(f"A spectrum needs rows that differ: all {n} are the same.")
    return np.concatenate([values, np.zeros(d - len(values))])


def explained_variance(eigenvalues: Array, k: int = 50) -> Array:
    """Shares (k,) of the total variance that the ``k`` leading components explain, from a `spectrum` (d,)."""
    return np.asarray(eigenvalues[:k] / eigenvalues.sum())


def effective_rank(eigenvalues: Array) -> float:
    """Effective rank, between 1 and d: exp of the entropy of the singular values (Roy and Vetterli 2007).

    The singular values are those of the centred rows, the square roots of the ``eigenvalues`` (d,), divided by their
    sum. (Other authors take the entropy of the eigenvalues, which gives less.)
    """
    shares = np.sqrt(eigenvalues)
    shares = shares[shares > 0] / shares.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def iso_score(eigenvalues: Array) -> float:
    """IsoScore, from 0 (one direction) to 1 (equal variance in every direction) (Rudman et al. 2022, arXiv 2108.07344).

    Notes
    -----
    The paper normalises the variances along the principal components, λ̂ = √d λ / ‖λ‖, takes their distance to
    (1, …, 1), δ = ‖λ̂ − 1‖ / √(2 (d − √d)), the share of dimensions in use, φ = (d − δ² (d − √d))² / d², and
    scales it: (d φ − 1) / (d − 1). All this is (r − 1) / (d − 1) with the participation ratio r = (Σ λ)² / Σ λ².

    A finite sample scores lower than its distribution: see `iso_score_of_isotropic`.
    """
    d = len(eigenvalues)
    if d < 2:
        raise RefbiasError("IsoScore needs vectors of at least 2 dimensions.")
    ratio = eigenvalues.sum() ** 2 / np.square(eigenvalues).sum()
    return float((ratio - 1) / (d - 1))


def iso_score_of_isotropic(n: int, d: int) -> float:
    """What n rows of an isotropic Gaussian in d dimensions score, about: the ceiling to hold an IsoScore against.

    From E[tr S²] = d (1 + (d + 1) / (n − 1)) and E[(tr S)²] = d² + 2 d / (n − 1) of a Wishart matrix: d / (1 + d / n),
    roughly, of d dimensions seem to be in use.
    """
    ratio = (d + 2 / (n - 1)) / (1 + (d + 1) / (n - 1))
    return (ratio - 1) / (d - 1)


def measure(X: Any, k: int = 50) -> dict[str, Any]:
    """All figures of this module for the rows of ``X`` (n, d), as plain values; ``explained_variance`` has up to k."""
    X = as_matrix(X, "X")
    n, d = X.shape
    cosines, eigenvalues = pairwise_cosines(X), spectrum(X)
    return {
        "n": n,
        "d": d,
        "mean_cosine": cosines.mean,
        "sd_cosine": cosines.sd,
        "explained_variance": explained_variance(eigenvalues, k).tolist(),
        "effective_rank": effective_rank(eigenvalues),
        "iso_score": iso_score(eigenvalues),
        "iso_score_of_isotropic": iso_score_of_isotropic(n, d),
    }
