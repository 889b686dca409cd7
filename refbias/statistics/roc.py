"""What an AUC is made of, how high label noise lets it be, and how two of them compare."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refbias.errors import RefbiasError, UsageError
from refbias.statistics.measures import Figure, auc, within
from refbias.statistics.shifts import LEVEL, Estimate
from refbias.types import Array


@dataclass(frozen=True)
class Part:
    """Pairs of one kind: how many, their share of all pairs, and their own AUC."""

    name: str
    pairs: int
    share: float | None
    auc: float | None
    reason: str | None = None


def auc_parts(score: Array, positive: Any, checkpoints: Sequence[Hashable], groups: Sequence[Hashable]) -> list[Part]:
    """An AUC by kinds of pairs: of one checkpoint, of one group, and neither. Σ share · AUC is the whole AUC.

    A pair holds one more and one less biased observation. Those of one checkpoint ask which groups a model moved;
    those of one group ask which checkpoint moved it further, where merges of two fine-tunes have almost one degree
    of freedom.

    Parameters
    ----------
    score : detector scores (n,), high for "more biased"
    positive : labels (n,)
    checkpoints, groups : of each observation; no pair of them twice
    """
    cells = list(zip(checkpoints, groups, strict=True))
    if len(set(cells)) < len(cells):
        twice = next(cell for i, cell in enumerate(cells) if cell in cells[:i])
        raise RefbiasError(f"Checkpoint {twice[0]!r} and group {twice[1]!r} come together twice: keep one of them.")
    labels = np.asarray(positive, dtype=bool)
    total = int(labels.sum()) * int((~labels).sum())
    whole = auc(score, labels)
    parts: list[tuple[str, int, float, str | None]] = []
    for name, blocks in (("checkpoint", checkpoints), ("group", groups)):
        inner = within(score, score, labels, blocks, 1, of=name)["auc"]
        pairs = _pairs_within(labels, blocks)
        parts.append((f"same {name}", pairs, pairs * (inner.value or 0.0), inner.reason))
    rest = total - sum(pairs for _, pairs, _, _ in parts)
    won = total * (whole.value or 0.0) - sum(won for _, _, won, _ in parts)
    parts.append(("neither", rest, won, None if rest else "no pair differs in both"))
    return [
        Part(
            name,
            pairs,
            pairs / total if total else None,
            min(1.0, max(0.0, won / pairs)) if pairs else None,
            whole.reason or (None if pairs else reason),
        )
        for name, pairs, won, reason in parts
    ]


def _pairs_within(labels: Any, blocks: Sequence[Hashable]) -> int:
    counts: dict[Hashable, list[int]] = {}
    for label, block in zip(labels, blocks, strict=True):
        counts.setdefault(block, [0, 0])[int(label)] += 1
    return sum(less * more for less, more in counts.values())


def noise_ceiling(y: Array, threshold: float, standard_error: float | Array) -> Figure:
    """AUC that a detector would have if it knew the true benchmark shifts, against labels of the measured ones.

    Labels "measured shift > threshold" flip by noise near the threshold, and no detector can foresee that. With the
    true shift t_i and noise of standard error s_i, p_i = Φ((t_i − threshold) / s_i) is the chance of the label, and
    the expected AUC of ranking by p is Σ p_i (1 − p_j) [p_i > p_j] / Σ p_i (1 − p_j) over pairs i ≠ j.

    Parameters
    ----------
    y : measured benchmark shifts (n,)
    threshold : of the label
    standard_error : of one benchmark shift, a number or (n,); for a rate over m answers about √(2 p (1 − p) / m)

    Notes
    -----
    The true shifts are not known. They are taken as the measured ones shrunk towards their mean until their variance
    is that of y less that of the noise ("constrained" empirical Bayes, Louis 1984); shrinking to the posterior means
    would make them too narrow, leaving them as they are too wide. Assumed: noise is normal, independent between
    observations and of the true shift. A reference measured once and taken from every checkpoint's score breaks the
    independence; the ceiling is then too low for pairs of one group.
    """
    error = np.broadcast_to(np.asarray(standard_error, dtype=float), y.shape)
    if not np.isfinite(error).all() or (error < 0).any():
        return Figure(None, "a standard error is a number, 0 or above")
    if len(y) < 3:
        return Figure(None, f"a ceiling needs at least 3 observations: there are {len(y)}")
    labelled = auc(y, y > threshold)
    if labelled.value is None:
        return labelled
    if not error.any():
        return Figure(1.0)
    from scipy.special import ndtr

    spread = float(y.var(ddof=1))
    true = max(0.0, spread - float(np.square(error).mean()))
    if true == 0.0:
        return Figure(None, "the benchmark shifts vary no more than their noise")
    centre = float(y.mean())
    shrunk = centre + np.sqrt(true / spread) * (y - centre)
    far = np.where(shrunk > threshold, np.inf, -np.inf)
    chance = ndtr(np.divide(shrunk - threshold, error, out=far, where=error > 0))
    return Figure(_expected_auc(chance))


def _expected_auc(chance: Array) -> float:
    """AUC of ranking by the chance p (n,) of the label, expected over the labels."""
    values, where = np.unique(chance, return_inverse=True)
    more = np.bincount(where, chance, minlength=len(values))
    less = np.bincount(where, 1 - chance, minlength=len(values))
    below = np.concatenate([[0.0], np.cumsum(less)[:-1]])
    itself = float((chance * (1 - chance)).sum())  # an observation is no pair with itself
    won = float((more * (below + less / 2)).sum()) - itself / 2
    return won / (float(more.sum() * less.sum()) - itself)


@dataclass(frozen=True, eq=False)
class DeLong:
    """AUCs (k,) of k detectors on the same observations, with their covariance (k, k)."""

    areas: Array
    covariance: Array

    def estimate(self, detector: int = 0) -> Estimate:
        """One AUC with its normal interval, cut at 0 and 1."""
        return _normal(float(self.areas[detector]), float(self.covariance[detector, detector]), (0.0, 1.0), None)

    def difference(self, one: int = 0, other: int = 1) -> Estimate:
        """AUC of ``one`` minus AUC of ``other``, with interval and p of "no difference"."""
        c = self.covariance
        variance = float(c[one, one] + c[other, other] - 2 * c[one, other])
        return _normal(float(self.areas[one] - self.areas[other]), variance, (-1.0, 1.0), 0.0)


def delong(scores: Any, positive: Any, units: Sequence[Hashable]) -> DeLong:
    """AUCs and their covariance after DeLong, DeLong and Clarke-Pearson (1988), for independent observations.

    Parameters
    ----------
    scores : (n,) or (k, n), high for "more biased"
    positive : labels (n,)
    units : what each observation is about (its group); a unit that comes twice is no independent observation

    Raises
    ------
    UsageError where a unit comes twice; RefbiasError where a class has fewer than two observations
    """
    stacked, labels = np.atleast_2d(np.asarray(scores, dtype=float)), np.asarray(positive, dtype=bool)
    if len(set(units)) < len(units):
        twice = max(units, key=list(units).count)
        raise UsageError(
            f"DeLong's variance takes the observations as independent: {twice!r} comes {list(units).count(twice)} "
            "times. Use auc_difference or group_bootstrap, which draw whole groups, or one checkpoint alone."
        )
    n, m = int(labels.sum()), int((~labels).sum())
    if min(n, m) < 2:
        raise RefbiasError(f"DeLong's variance needs two observations of each class: got {n} more and {m} less biased.")
    from scipy.stats import rankdata

    ranks = rankdata(stacked, axis=1)
    won = (ranks[:, labels] - rankdata(stacked[:, labels], axis=1)) / m  # share of the other class that each beats
    lost = 1 - (ranks[:, ~labels] - rankdata(stacked[:, ~labels], axis=1)) / n
    covariance = np.atleast_2d(np.cov(won)) / n + np.atleast_2d(np.cov(lost)) / m
    return DeLong(won.mean(axis=1), covariance)


def _normal(value: float, variance: float, ends: tuple[float, float], null: float | None) -> Estimate:
    from scipy.special import ndtr, ndtri

    if variance <= 1e-15:
        return Estimate(value, None, None, None, "the estimated variance is 0")
    error = float(np.sqrt(variance))
    half = float(ndtri((1 + LEVEL) / 2)) * error
    p = None if null is None else float(2 * ndtr(-abs(value - null) / error))
    return Estimate(value, max(ends[0], value - half), min(ends[1], value + half), p)


def threshold_sweep(
    x: Array, y: Array, thresholds: Sequence[float], checkpoints: Sequence[Any], alarm: int = -1
) -> list[dict[str, Any]]:
    """AUC, pooled and within checkpoints, for each threshold of the label "more biased"; a row a threshold."""
    rows = []
    for threshold in thresholds:
        labels = y > threshold
        area, inner = auc(alarm * x, labels), within(x, y, labels, checkpoints, alarm)["auc"]
        row: dict[str, Any] = {"threshold": float(threshold), "n_positive": int(labels.sum()), "auc": area.value}
        row |= {"within_auc": inner.value, "reason": area.reason or inner.reason}
        rows.append(row)
    return rows
