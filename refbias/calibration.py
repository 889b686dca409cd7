"""Calibrations: fitted on a sample of one model's vectors, applied to all vectors of that model."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeGuard, TypeVar

import numpy as np

from refbias import linalg
from refbias.errors import RefbiasError, UsageError, described
from refbias.moments import Moments
from refbias.types import Array, Space, as_matrix

_FORMAT = "refbias calibration 1"
_Self = TypeVar("_Self", bound="Fitted")


class Calibration(Protocol):
    """Built-in ones can also ``describe()`` themselves and be saved: see `Fitted`."""

    def fit(self, X: Any) -> Any:
        """Fit on ``X`` (n, d) and return itself."""

    def transform(self, X: Any) -> Array:
        """Calibrated ``X`` (n, d)."""


class Fitted:
    """Base of the calibrations that are fitted from moments of a sample, in one pass over it.

    Attributes
    ----------
    mean_ : (d,), the origin of the calibrated space
    facts_ : what the fit found, as plain values; `describe` has them beside the options
    fitted_on_ : what the sample was, in words; set by whoever fits
    """

    name: str
    mean_: Array
    facts_: dict[str, Any]
    fitted_on_: str | None = None

    _options: tuple[str, ...] = ()
    _arrays: tuple[str, ...] = ("mean_",)
    _scatter = True

    def fit(self: _Self, X: Any) -> _Self:
        """Fit on ``X`` (n, d)."""
        return self.fit_blocks([X])

    def fit_blocks(self: _Self, blocks: Iterable[Any]) -> _Self:
        """Fit on the rows of all ``blocks`` (b, d), in one pass; the same result as `fit` on all of them together."""
        self._finish(_moments(blocks, self._scatter))
        return self

    def _finish(self, moments: Moments) -> None:
        self.mean_ = moments.mean
        self.facts_ = {"n": moments.n, "d": moments.width}

    def transform(self, X: Any) -> Array:
        """Calibrated ``X`` (n, d)."""
        return self._centered(X)

    def _centered(self, X: Any) -> Array:
        X = as_matrix(X, "X")
        self._check_fitted()
        if X.shape[1] != len(self.mean_):
            raise RefbiasError(f"Fitted on vectors of width {len(self.mean_)}: got {X.shape}.")
        return X - self.mean_

    def _check_fitted(self) -> None:
        if not hasattr(self, "mean_"):
            raise RefbiasError(f"{type(self).__name__} is not fitted yet: call fit(X) first.")

    @property
    def options(self) -> dict[str, Any]:
        """The options as plain values."""
        return {option: getattr(self, option) for option in self._options}

    def describe(self) -> dict[str, Any]:
        """Name, options and what the fit found, as plain values: to be recorded with every figure."""
        self._check_fitted()
        return {"calibration": self.name, **self.options, **self.facts_, "fitted_on": self.fitted_on_}

    def save(self, path: str | Path) -> None:
        """Write the fit as safetensors, whole or not at all; `load` reads it."""
        from safetensors.numpy import save

        from refbias.provenance import version
        from refbias.result import write_whole

        self._check_fitted()
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in self._arrays}
        about = {
            "calibration": self.name,
            "options": self.options,
            "facts": self.facts_,
            "fitted_on": self.fitted_on_,
            "refbias": version("refbias"),
        }
        text = json.dumps(about)
        metadata = {"format": _FORMAT, "about": text, "sha256": _digest(text, arrays)}
        write_whole(Path(path), save(arrays, metadata))


def load(path: str | Path) -> Fitted:
    """The calibration that `Fitted.save` wrote, equal to the bit. Raises `RefbiasError` where the file is damaged."""
    from safetensors import SafetensorError, safe_open

    path = Path(path).expanduser()
    if not path.is_file():
        raise RefbiasError(f"There is no saved calibration {path}. Fitted calibrations are written by save(path).")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise ValueError(f"expected {_FORMAT!r} in its metadata, found {metadata.get('format')!r}")
            about = json.loads(metadata["about"])
            made: Fitted = _SAVED[about["calibration"]](**about["options"])
            arrays = {name: file.get_tensor(name) for name in made._arrays}
        if metadata["sha256"] != _digest(metadata["about"], arrays):
            raise ValueError("its checksum does not fit")
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise RefbiasError(f"{path} is no whole saved calibration: {described(error)}. Fit it again.") from None
    for name, array in arrays.items():
        setattr(made, name, array)
    made.facts_, made.fitted_on_ = about["facts"], about["fitted_on"]
    return made


def _digest(text: str, arrays: Mapping[str, Array]) -> str:
    found = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _moments(blocks: Iterable[Any], scatter: bool) -> Moments:
    found = Moments(scatter)
    for block in blocks:
        found.add(block)
    if not found.n:
        raise RefbiasError("A calibration needs a sample of vectors: got no row.")
    return found


class Identity:
    """No calibration: vectors as the model gives them."""

    def fit(self, X: Any) -> Identity:
        return self

    def transform(self, X: Any) -> Array:
        return as_matrix(X, "X")

    def describe(self) -> dict[str, Any]:
        return {"calibration": "none"}


class Center(Fitted):
    """Centring: z = x − μ, which alone brings the mean cosine of the sample near 0."""

    name = "center"
    _scatter = False


class ABTT(Fitted):
    """All-but-the-top (Mu and Viswanath 2018): centre, then take out the k leading principal directions."""

    name = "abtt"
    directions_: Array
    _options = ("k",)
    _arrays = ("mean_", "directions_")

    def __init__(self, k: int | None = None) -> None:
        if k is not None and k < 0:
            raise UsageError(f"calibration.k is a number of directions, 0 or more: got {k}.")
        self.k = k

    def _count(self, d: int) -> int:
        """``k`` None takes d / 100 directions, at least one, as the authors advise."""
        return max(1, round(d / 100)) if self.k is None else self.k

    def fit(self, X: Any) -> ABTT:
        if not isinstance(X, np.ndarray) or X.ndim != 2:
            X = as_matrix(X, "X")
        if len(X) > X.shape[1]:
            return super().fit(X)
        # fewer rows than dimensions: their singular vectors are found much sooner than those of a covariance
        X = as_matrix(X, "X")
        self.directions_ = linalg.top_directions(X, self._count(X.shape[1]))
        self._keep(len(X), X.mean(axis=0))
        return self

    def _finish(self, moments: Moments) -> None:
        k, limit = self._count(moments.width), min(moments.n - 1, moments.width)
        if k > limit:
            raise RefbiasError(
                f"{moments.n} rows of width {moments.width} have {limit} principal directions: {k} were asked."
            )
        self.directions_ = linalg.leading_directions(moments.covariance(), k) if k else np.empty((0, moments.width))
        self._keep(moments.n, moments.mean)

    def _keep(self, n: int, mean: Array) -> None:
        self.mean_ = mean
        self.facts_ = {"n": n, "d": len(mean), "directions": len(self.directions_)}

    def transform(self, X: Any) -> Array:
        Z = self._centered(X)
        return Z - (Z @ self.directions_.T) @ self.directions_


class ZCA(Fitted):
    """Whitening z = W (x − μ) with W = U (Λ + εI)^(−1/2) Uᵀ (arXiv 2608.06908).

    Parameters
    ----------
    eps : float
        Absolute ridge ε on the eigenvalues, as published; what it means depends on the scale of the space, see
        ``eps_relative_`` (ε over the mean eigenvalue).
    shrinkage : float in [0, 1], optional
        Weight of the mean eigenvalue in the covariance, apart from ε. None takes Ledoit–Wolf's where the sample is
        small (n < 10 d; scikit-learn's estimate, which divides by n), else 0.

    Attributes
    ----------
    mean_ (d,), matrix_ (d, d), shrinkage_, eps_relative_

    Notes
    -----
    At ε = 0 all whitenings differ by a rotation only, so that every cosine is the same; see `linalg.whitening_matrix`.
    """

    name = "zca"
    matrix_: Array
    _kind: linalg.Whitening = "zca"
    _options = ("eps", "shrinkage")
    _arrays = ("mean_", "matrix_")

    def __init__(self, eps: float = 1e-3, shrinkage: float | None = None) -> None:
        if eps < 0:
            raise UsageError(f"calibration.eps is a ridge, 0 or more: got {eps}.")
        if shrinkage is not None and not 0 <= shrinkage <= 1:
            raise UsageError(f"calibration.shrinkage lies between 0 and 1: got {shrinkage}.")
        self.eps, self.shrinkage = eps, shrinkage

    @property
    def shrinkage_(self) -> float:
        return float(self.facts_["shrinkage_used"])

    @property
    def eps_relative_(self) -> float:
        return float(self.facts_["eps_relative"])

    def _finish(self, moments: Moments) -> None:
        n, d = moments.n, moments.width
        if self.shrinkage == 0 and n <= d:
            raise RefbiasError(
                f"Whitening without shrinkage needs more rows than dimensions: got {n} rows of width {d}. "
                "Leave calibration.shrinkage out (Ledoit–Wolf), or fit on a larger sample."
            )
        mean_eigenvalue = moments.total_variance / d
        if moments.is_constant:
            raise RefbiasError(f"Whitening needs vectors that differ: all {n} rows of the sample are the same.")
        shrinkage, estimator = self._estimate(moments)
        covariance, self.mean_ = moments.covariance(), moments.mean
        del moments  # its matrix is not needed any more; a large space has room for two at a time
        if shrinkage:
            covariance = linalg.shrink(covariance, shrinkage)
        self.matrix_, eigenvalues = linalg.whiten(covariance, self.eps, self._kind)
        self.facts_ = {
            "n": n,
            "d": d,
            "shrinkage_used": shrinkage,
            "estimator": estimator,
            "mean_eigenvalue": mean_eigenvalue,
            "eps_relative": self.eps / mean_eigenvalue,
            "condition": float(eigenvalues[-1] / eigenvalues[0]),
        }

    def _estimate(self, moments: Moments) -> tuple[float, str]:
        """Shrinkage, and the estimator of the covariance in words."""
        if self.shrinkage is not None:
            return float(self.shrinkage), "covariance / (n - 1), shrinkage as given"
        if moments.n >= 10 * moments.width:
            return 0.0, "covariance / (n - 1)"
        return moments.ledoit_wolf(), "covariance / (n - 1), shrinkage by Ledoit-Wolf (as scikit-learn: moments / n)"

    def transform(self, X: Any) -> Array:
        return self._centered(X) @ self.matrix_.T


class ZCACorr(ZCA):
    """ZCA of the correlations (Kessy et al. 2018): closest to the standardised vectors; cosines as `zca`."""

    name = "zca_corr"
    _kind = "zca_corr"


class PCA(ZCA):
    """PCA whitening z = (Λ + εI)^(−1/2) Uᵀ (x − μ): cosines as `zca`, each dimension one principal component."""

    name = "pca"
    _kind = "pca"


class Saved:
    """A calibration that was fitted before and saved; it is applied as it is and fitted on nothing here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calibration = load(path)

    def fit(self, X: Any) -> Saved:
        """Nothing is fitted; ``X`` (n, d) must have the width of the saved fit."""
        self.transform(as_matrix(X, "X")[:1])
        return self

    def transform(self, X: Any) -> Array:
        X = as_matrix(X, "X")
        if X.shape[1] != len(self.calibration.mean_):
            raise RefbiasError(
                f"{self.path} was fitted on vectors of width {len(self.calibration.mean_)}: got {X.shape}. "
                "A saved calibration serves models of one width."
            )
        return self.calibration.transform(X)

    def describe(self) -> dict[str, Any]:
        return {**self.calibration.describe(), "path": str(self.path)}


_SAVED: dict[str, Callable[..., Fitted]] = {kind.name: kind for kind in (Center, ABTT, ZCA, ZCACorr, PCA)}

CALIBRATIONS: dict[str, Callable[..., Calibration]] = {"none": Identity, **_SAVED, "file": Saved}


def is_built_in(calibration: Calibration) -> TypeGuard[Fitted]:
    """Whether ``calibration`` is one of the classes here, so that name, options and sample say what its fit will be."""
    return isinstance(calibration, Fitted) and _SAVED.get(calibration.name) is type(calibration)


def calibrate(space: Space, calibration: Calibration) -> Space:
    """The space after a copy of ``calibration`` was fitted: on its anchors, or by ``space.fit`` where it has one.

    A saved calibration is applied as it is.
    """
    if isinstance(calibration, Identity):
        return space
    if isinstance(calibration, Saved):
        return space.map(calibration.transform)
    if space.fit is not None:
        return space.map(space.fit(calibration).transform)
    fitted = copy.deepcopy(calibration).fit(space.require_anchors(f"Calibration {type(calibration).__name__}"))
    return space.map(fitted.transform)
