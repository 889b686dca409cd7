"""Calibrations: fitted on a sample of one model's vectors, applied to all vectors of that model."""

from __future__ import annotations

import copy
from typing import Any, Literal, Protocol

import numpy as np

from refbias import linalg
from refbias.errors import RefbiasError, UsageError
from refbias.types import Array, Space, as_matrix


class Calibration(Protocol):
    def fit(self, X: Any) -> Any:
        """Fit on ``X`` (n, d) and return itself."""

    def transform(self, X: Any) -> Array:
        """Calibrated ``X`` (n, d)."""


class _Fitted:
    """Shared by the calibrations that start by moving the origin to the sample's mean."""

    mean_: Array

    def _centered(self, X: Any) -> Array:
        X = as_matrix(X, "X")
        if not hasattr(self, "mean_"):
            raise RefbiasError(f"{type(self).__name__} is not fitted yet: call fit(X) first.")
        if X.shape[1] != len(self.mean_):
            raise RefbiasError(f"Fitted on vectors of width {len(self.mean_)}: got {X.shape}.")
        return X - self.mean_


class Identity:
    """No calibration: vectors as the model gives them."""

    def fit(self, X: Any) -> Identity:
        return self

    def transform(self, X: Any) -> Array:
        return as_matrix(X, "X")


class Center(_Fitted):
    """Centring: z = x − μ, which alone brings the mean cosine of the sample near 0."""

    def fit(self, X: Any) -> Center:
        self.mean_ = as_matrix(X, "X").mean(axis=0)
        return self

    def transform(self, X: Any) -> Array:
        return self._centered(X)


class ABTT(_Fitted):
    """All-but-the-top (Mu and Viswanath 2018): centre, then take out the k leading principal directions."""

    def __init__(self, k: int | None = None) -> None:
        if k is not None and k < 0:
            raise UsageError(f"calibration.k is a number of directions, 0 or more: got {k}.")
        self.k = k

    def fit(self, X: Any) -> ABTT:
        """``k`` None takes d / 100 directions, at least one, as its authors advise."""
        X = as_matrix(X, "X")
        k = max(1, round(X.shape[1] / 100)) if self.k is None else self.k
        self.mean_ = X.mean(axis=0)
        self.directions_ = linalg.top_directions(X, k)
        return self

    def transform(self, X: Any) -> Array:
        Z = self._centered(X)
        return Z - (Z @ self.directions_.T) @ self.directions_


class ZCA(_Fitted):
    """Whitening z = W (x − μ) with W = U (Λ + εI)^(−1/2) Uᵀ (arXiv 2608.06908).

    Parameters
    ----------
    eps : float
        Absolute ridge ε on the eigenvalues, as published; what it means depends on the scale of the space, see
        ``eps_relative_`` (ε over the mean eigenvalue).
    shrinkage : float in [0, 1], optional
        Weight of the mean eigenvalue in the covariance. None takes Ledoit–Wolf's where the sample is small
        (n < 10 d; scikit-learn's estimate, which divides by n), else 0.
    kind : "zca", "pca", "zca_corr" or "cholesky"
        They differ by a rotation: cosines are the same.

    Attributes
    ----------
    mean_ (d,), matrix_ (d, d), shrinkage_, eps_relative_
    """

    def __init__(
        self,
        eps: float = 1e-3,
        shrinkage: float | None = None,
        kind: Literal["zca", "pca", "zca_corr", "cholesky"] = "zca",
    ) -> None:
        if eps < 0:
            raise UsageError(f"calibration.eps is a ridge, 0 or more: got {eps}.")
        if shrinkage is not None and not 0 <= shrinkage <= 1:
            raise UsageError(f"calibration.shrinkage lies between 0 and 1: got {shrinkage}.")
        self.eps, self.shrinkage, self.kind = eps, shrinkage, kind

    def fit(self, X: Any) -> ZCA:
        X = as_matrix(X, "X")
        n, d = X.shape
        if self.shrinkage == 0 and n <= d:
            raise RefbiasError(
                f"Whitening without shrinkage needs more rows than dimensions: got {n} rows of width {d}. "
                "Leave calibration.shrinkage out (Ledoit–Wolf), or fit on a larger sample."
            )
        self.mean_ = X.mean(axis=0)
        self.shrinkage_ = self._shrinkage(X) if self.shrinkage is None else float(self.shrinkage)
        cov = linalg.shrink(linalg.covariance(X), self.shrinkage_)
        self.eps_relative_ = float(self.eps / (np.trace(cov) / d))
        self.matrix_ = linalg.whitening_matrix(cov, self.eps, self.kind)
        return self

    @staticmethod
    def _shrinkage(X: Array) -> float:
        if len(X) >= 10 * X.shape[1]:
            return 0.0
        from sklearn.covariance import ledoit_wolf_shrinkage

        return float(ledoit_wolf_shrinkage(X))

    def transform(self, X: Any) -> Array:
        return self._centered(X) @ self.matrix_.T


CALIBRATIONS = {"none": Identity, "center": Center, "abtt": ABTT, "zca": ZCA}


def calibrate(space: Space, calibration: Calibration) -> Space:
    """The space after a copy of ``calibration`` was fitted on its anchors."""
    if isinstance(calibration, Identity):
        return space
    fitted = copy.deepcopy(calibration).fit(space.require_anchors(f"Calibration {type(calibration).__name__}"))
    return space.map(fitted.transform)
