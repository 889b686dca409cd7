"""What an adapter changes, from its factors: ΔW = L R with L (out, r) and R (r, in), never formed.

Pure functions of arrays, computed in float64. The rank r is small, so that everything is an SVD of an r × r core:
with QR factorisations L = Q₁ T₁ and Rᵀ = Q₂ T₂, ΔW = Q₁ (T₁ T₂ᵀ) Q₂ᵀ, and the singular values of the core are those of
ΔW (Golub and Van Loan, Matrix Computations, section 5.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refbias.errors import RefbiasError
from refbias.types import Array, as_matrix

_NEGLIGIBLE = 1e-10  # of the largest singular value: below it a direction is rounding


@dataclass(frozen=True)
class ThinSVD:
    """ΔW = ``left`` @ diag(``values``) @ ``right``: orthonormal columns (out, r), orthonormal rows (r, in).

    ``values`` (r,) fall and hold none that is negligible, so that r is the numerical rank (0 for no change).
    """

    left: Array
    values: Array
    right: Array

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def norm(self) -> float:
        """‖ΔW‖_F."""
        return float(np.sqrt(np.square(self.values).sum()))

    @property
    def stable_rank(self) -> float | None:
        """‖ΔW‖_F² / σ₁² (Rudelson and Vershynin 2007): between 1 and the rank; None where nothing changed."""
        return float(np.square(self.values / self.values[0]).sum()) if self.rank else None

    @property
    def transposed(self) -> ThinSVD:
        return ThinSVD(self.right.T, self.values, self.left.T)


def thin_svd(left: Any, right: Any) -> ThinSVD:
    """SVD of ``left`` (out, r) @ ``right`` (r, in) without forming the product.

    Examples
    --------
    >>> thin_svd([[3.0], [4.0], [0.0]], [[0.0, 2.0]]).values
    array([10.])
    """
    L, R = as_matrix(left, "left"), as_matrix(right, "right")
    if L.shape[1] != R.shape[0]:
        raise RefbiasError(f"The factors of a change need one rank: left has shape {L.shape}, right {R.shape}.")
    Q1, T1 = np.linalg.qr(L)
    Q2, T2 = np.linalg.qr(R.T)
    U, values, V = np.linalg.svd(T1 @ T2.T, full_matrices=False)
    kept = values > values[0] * _NEGLIGIBLE
    return ThinSVD(Q1 @ U[:, kept], values[kept], V[kept] @ Q2.T)


def principal_angles(first: Any, second: Any) -> Array:
    """Angles (min(r₁, r₂),) in radians, rising, between the spans of orthonormal columns (d, r₁) and (d, r₂).

    Björck and Golub (1973), with sines where an angle is small: accurate to rounding at both ends.
    """
    A, B = as_matrix(first, "first"), as_matrix(second, "second")
    if A.shape[0] != B.shape[0]:
        raise RefbiasError(f"Principal angles need columns of one length: got {A.shape} and {B.shape}.")
    from scipy.linalg import subspace_angles

    return np.asarray(subspace_angles(A, B)[::-1], dtype=np.float64)


def overlap(first: Any, second: Any) -> float:
    """‖AᵀB‖_F² / min(r₁, r₂) of orthonormal columns A (d, r₁), B (d, r₂): 1 where one span holds the other, 0 apart.

    The mean of cos² of the principal angles (Hu et al. 2021, section 7.2). Two random spans give max(r₁, r₂) / d.
    """
    A, B = as_matrix(first, "first"), as_matrix(second, "second")
    if A.shape[0] != B.shape[0]:
        raise RefbiasError(f"An overlap needs columns of one length: got {A.shape} and {B.shape}.")
    return float(np.square(A.T @ B).sum() / min(A.shape[1], B.shape[1]))


def output_directions(blocks: Sequence[Any]) -> Array:
    """Orthonormal directions (n, d) that several changes write into one space of width d, the strongest first.

    ``blocks`` are matrices (d, r_i) with the outputs of each change for inputs without preferred direction: ``left``
    times ``values`` of its `ThinSVD`, followed by whatever the output passes through on its way. The directions are
    the left singular vectors of all blocks side by side, so of Σ ΔW_i x_i most of the variance lies along the first.
    """
    matrices = [as_matrix(block, f"blocks[{i}]") for i, block in enumerate(blocks)]
    widths = sorted({len(matrix) for matrix in matrices})
    if len(widths) != 1:
        raise RefbiasError(f"Changes that write into one space have one width: got {widths or 'no change'}.")
    U, values, _ = np.linalg.svd(np.hstack(matrices), full_matrices=False)
    return np.ascontiguousarray(U[:, values > values[0] * _NEGLIGIBLE].T)
