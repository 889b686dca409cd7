"""Mean and covariance of any number of rows, in one pass over blocks of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from refbias.errors import RefbiasError
from refbias.types import Array, as_matrix

ROWS = 1024  # rows that are converted to float64 at a time


class Moments:
    """Moments about the mean of the rows that were added, in float64. No row is kept.

    Each block is taken relative to the mean of the rows before it (after Chan, Golub and LeVeque 1979), so that a mean
    far from 0 costs no digits. What is held is one matrix (d, d), two vectors, and 1,024 rows while they are added.

    Parameters
    ----------
    scatter : keep second moments too; without them only ``n`` and ``mean`` are there
    """

    def __init__(self, scatter: bool = True) -> None:
        self.n = 0
        self.mean: Array = np.empty(0)
        self._second = scatter
        # about the mean, y = x − mean: Σ‖y‖², Σ y yᵀ (upper triangle), Σ‖y‖² y and Σ‖y‖⁴
        self._trace = self._fourth = 0.0
        self._scatter: Array = np.empty((0, 0))
        self._third: Array = np.empty(0)

    @property
    def width(self) -> int:
        return len(self.mean)

    @property
    def total_variance(self) -> float:
        """Trace of the covariance."""
        return self._trace / max(self.n - 1, 1)

    @property
    def is_constant(self) -> bool:
        """Whether all rows are the same, up to rounding."""
        rounding = float(np.finfo(float).eps) * float(np.abs(self.mean).max())
        return self.total_variance <= self.width * rounding**2

    def add(self, rows: Any) -> None:
        """Add ``rows`` (b, d) of any numeric dtype. Raises `RefbiasError` for NaN, infinity and another width."""
        if not (isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind in "fiu" and rows.size):
            rows = as_matrix(rows, "X")
        if not self.n:
            self._begin(rows)
        if rows.shape[1] != self.width:
            raise RefbiasError(f"Blocks of one sample have one width: got {self.width}, then {rows.shape[1]}.")
        buffer = np.empty((min(ROWS, len(rows)), self.width))
        for start in range(0, len(rows), ROWS):
            self._add(rows[start : start + ROWS], buffer)

    def _begin(self, rows: Any) -> None:
        d = rows.shape[1]
        with np.errstate(invalid="ignore", over="ignore"):
            self.mean = rows[:ROWS].mean(axis=0, dtype=np.float64)
        if self._second:
            self._scatter, self._third = np.zeros((d, d), order="F"), np.zeros(d)

    def _add(self, rows: Any, buffer: Array) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            deviations = np.subtract(rows, self.mean, out=buffer[: len(rows)])
            step = np.ones(len(rows)) @ deviations / (self.n + len(rows))
        if not np.isfinite(step).all():
            as_matrix(rows, f"X from row {self.n} on" if self.n else "X")
            raise RefbiasError("The vectors are too large for float64: their mean overflows.")
        if self._second:
            self._add_second(deviations, step)
        self.mean += step
        self.n += len(rows)

    def _add_second(self, deviations: Array, step: Array) -> None:
        """Take in deviations (b, d) from the mean so far, then move all sums to the new mean, ``step`` further on."""
        from scipy.linalg import blas

        n, length = self.n + len(deviations), float(step @ step)
        squares = np.einsum("nd,nd->n", deviations, deviations)
        self._scatter = blas.dsyrk(1.0, deviations.T, beta=1.0, c=self._scatter, overwrite_c=1)
        self._trace += float(squares.sum())
        self._third += squares @ deviations
        self._fourth += float(squares @ squares)

        along = blas.dsymv(1.0, self._scatter, step)
        self._fourth += float(4 * step @ along - 4 * step @ self._third + 2 * length * self._trace - 3 * n * length**2)
        self._third += (2 * n * length - self._trace) * step - 2 * along
        self._trace -= n * length
        self._scatter = blas.dsyr(-n, step, a=self._scatter, overwrite_a=1)

    def covariance(self) -> Array:
        """Covariance (d, d) of the rows, divided by n − 1."""
        if self.n < 2:
            raise RefbiasError(f"A covariance needs at least 2 rows: got {self.n}.")
        covariance = self._scatter / (self.n - 1)
        for i in range(len(covariance)):
            covariance[i + 1 :, i] = covariance[i, i + 1 :]
        return covariance

    def ledoit_wolf(self) -> float:
        """Shrinkage of Ledoit and Wolf (2004), in [0, 1], as scikit-learn estimates it: moments divided by n.

        Notes
        -----
        Of the rows y about their mean it needs Σ‖y‖⁴ and ‖Σ y yᵀ‖²_F alone, hence one pass.
        """
        n, d = self.n, self.width
        if d == 1:
            return 0.0
        squared = (
            2 * np.einsum("ij,ij->", self._scatter, self._scatter) - np.square(np.diag(self._scatter)).sum()
        ) / n**2
        mean_eigenvalue = self._trace / n / d
        noise = (self._fourth / n - squared) / n
        spread = squared - d * mean_eigenvalue**2
        noise = min(noise, spread)
        return float(noise / spread) if noise > 0 else 0.0
