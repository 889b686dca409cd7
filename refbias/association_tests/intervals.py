"""How sure an effect size is: intervals by bootstrap over words, and what a change of significance says.

The words of each target set are drawn with replacement; the attribute words are held fixed. What is estimated is the
d of the populations that the target words stand for, with the set sizes' shares n / N and m / N.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from refbias.association_tests.weat import SPREAD, effect_size
from refbias.errors import RefbiasError, UsageError
from refbias.types import Array

Kind = Literal["studentised", "bca", "percentile"]
Status = Literal["Stable", "Disappearing", "Emerging"]
Indices = NDArray[np.intp]
Statistic = Callable[[Indices, Indices], Array]  # rows of word indices (b, k) and (b, l) -> one value a row (b,)

LEAST_WORDS = 4  # in each target set; with fewer the draws are mostly copies of one another


@dataclass(frozen=True)
class Interval:
    """Limits of an interval; None with the ``reason`` where there is none."""

    low: float | None
    high: float | None
    kind: str
    level: float
    draws: int
    reason: str | None = None


@dataclass(frozen=True)
class PairedChange:
    """An effect size in two spaces, for the same words.

    ``change`` is d after − d before, with its interval. ``status`` compares the two p-values with alpha;
    ``flip_chance`` is how often two equally good readings of one truth would get different verdicts.
    """

    before: float | None
    after: float | None
    change: float | None
    interval: Interval
    status: Status | None
    flip_chance: float | None
    reason: str | None = None


def draw(n: int, m: int, draws: int, seed: int) -> tuple[Indices, Indices]:
    """Indices of words drawn with replacement, (draws, n) and (draws, m)."""
    if draws < 100:
        raise UsageError(f"A bootstrap interval needs at least 100 draws: got {draws}.")
    rng = np.random.default_rng(seed)
    return rng.integers(0, n, (draws, n)), rng.integers(0, m, (draws, m))


def effect_sizes(x: Array, y: Array, ddof: int = 1) -> tuple[Array, Array]:
    """d of each row of scores ``x`` (b, n) and ``y`` (b, m), and its standard error, (b,) each; NaN without spread.

    Notes
    -----
    The standard error is the infinitesimal jackknife: with δ = mean x − mean y, s² = p v_x + q v_y + p q δ² and
    p = n / N = 1 − q, a word with score x_i moves d by (x_i − x̄) / s − δ / (2 s³) · (p (x_i − x̄)² − p v_x +
    2 p q δ (x_i − x̄)), and alike for y.
    """
    influence_x, influence_y, d = _influences(x, y, ddof)
    return d, np.sqrt((influence_x**2).mean(axis=1) / x.shape[1] + (influence_y**2).mean(axis=1) / y.shape[1])


def _influences(x: Array, y: Array, ddof: int) -> tuple[Array, Array, Array]:
    n, m = x.shape[1], y.shape[1]
    p, q = n / (n + m), m / (n + m)
    mean_x, mean_y = x.mean(axis=1, keepdims=True), y.mean(axis=1, keepdims=True)
    x, y, delta = x - mean_x, y - mean_y, mean_x - mean_y
    x2, y2 = x**2, y**2
    vx, vy = x2.mean(axis=1, keepdims=True), y2.mean(axis=1, keepdims=True)
    s = np.sqrt(p * vx + q * vy + p * q * delta**2)
    s = np.where(s > SPREAD, s, np.nan)
    slope = delta / (2 * s**3)
    influence_x = x / s - slope * (p * (x2 - vx) + 2 * p * q * delta * x)
    influence_y = -y / s - slope * (q * (y2 - vy) - 2 * p * q * delta * y)
    factor = math.sqrt((n + m - ddof) / (n + m))
    return influence_x * factor, influence_y * factor, (delta / s)[:, 0] * factor


def largest(n: int, m: int, ddof: int = 1) -> float:
    """The bound of |d|: N / √(n m), times √((N − 1) / N) for ddof = 1."""
    return (n + m) / math.sqrt(n * m) * math.sqrt((n + m - ddof) / (n + m))


def interval(
    x: Array,
    y: Array,
    *,
    kind: Kind = "studentised",
    level: float = 0.95,
    ddof: int = 1,
    draws: int = 5_000,
    seed: int = 0,
) -> Interval:
    """Interval of d from the scores ``x`` (n,) and ``y`` (m,) of the target words.

    Parameters
    ----------
    kind : "studentised" bootstraps arctanh(d / bound of d), which is Fisher's z of the correlation of score and set,
        over its own standard error; "bca" corrects percentiles for bias and acceleration (Efron 1987); "percentile"
        is there to compare with, and covers too seldom
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    _check(kind, level)
    refused = _refusal(x, y, kind, level, draws)
    if refused:
        return refused
    chosen_x, chosen_y = draw(len(x), len(y), draws, seed)
    if kind != "studentised":
        limits = bootstrap_limits(
            lambda i, j: effect_sizes(x[i], y[j], ddof)[0], len(x), len(y), (chosen_x, chosen_y), kind, level
        )
        return Interval(*limits, kind, level, draws)
    bound = largest(len(x), len(y), ddof)
    z, error = _fisher(*effect_sizes(x[None], y[None], ddof), bound)
    low, high = _studentised(z[0], error[0], *_fisher(*effect_sizes(x[chosen_x], y[chosen_y], ddof), bound), level)
    return Interval(bound * math.tanh(low), bound * math.tanh(high), kind, level, draws)


def _check(kind: str, level: float) -> None:
    if kind not in get_args(Kind):
        raise UsageError(f"The kind of interval is one of {', '.join(get_args(Kind))}: got {kind!r}.")
    if not 0 < level < 1:
        raise UsageError(f"The level of an interval lies between 0 and 1: got {level}.")


def _refusal(x: Array, y: Array, kind: str, level: float, draws: int) -> Interval | None:
    if min(len(x), len(y)) < LEAST_WORDS:
        reason = f"too few words for an interval: {len(x)} and {len(y)}, at least {LEAST_WORDS} needed"
    elif effect_size(x, y) is None:
        reason = "the scores of all words are equal"
    elif max(x.std(), y.std()) <= SPREAD:
        reason = "the scores of each set are equal: they give no uncertainty"
    else:
        return None
    return Interval(None, None, kind, level, draws, reason)


def _fisher(d: Array, error: Array, bound: float) -> tuple[Array, Array]:
    r = np.clip(d / bound, -1 + 1e-9, 1 - 1e-9)
    return np.arctanh(r), error / bound / (1 - r**2)


def _studentised(value: float, error: float, values: Array, errors: Array, level: float) -> tuple[float, float]:
    usable = np.isfinite(values) & (errors > 0)
    ratios = (values[usable] - value) / errors[usable]
    low, high = np.quantile(ratios, [(1 + level) / 2, (1 - level) / 2])
    return float(value - low * error), float(value - high * error)


def bootstrap_limits(
    statistic: Statistic, n: int, m: int, chosen: tuple[Indices, Indices], kind: Kind, level: float
) -> tuple[float, float]:
    """Limits of any statistic of two samples of ``n`` and ``m`` words by "bca" or "percentile".

    ``statistic`` maps rows of word indices to values; draws without a value (NaN) are left out.
    """
    values = statistic(*chosen)
    values = values[np.isfinite(values)]
    shares = np.array([(1 - level) / 2, (1 + level) / 2])
    if kind == "bca":
        from scipy.special import ndtr, ndtri

        everything = np.arange(n)[None], np.arange(m)[None]
        value = float(statistic(*everything)[0])
        below = ((values < value).mean() + (values <= value).mean()) / 2
        bias = ndtri(np.clip(below, 1 / (2 * len(values)), 1 - 1 / (2 * len(values))))
        z = bias + ndtri(shares)
        shares = ndtr(bias + z / np.maximum(1 - _acceleration(statistic, n, m) * z, 1e-3))
    low, high = np.quantile(values, shares)
    return float(low), float(high)


def _acceleration(statistic: Statistic, n: int, m: int) -> float:
    """Skewness of the jackknife influences over six, for two samples."""
    without = [np.array([[j for j in range(k) if j != i] for i in range(k)], dtype=np.intp) for k in (n, m)]
    every = np.arange(n), np.arange(m)
    left = statistic(without[0], np.broadcast_to(every[1], (n, m)))
    right = statistic(np.broadcast_to(every[0], (m, n)), without[1])
    cubes = squares = 0.0
    for values, size in ((left, n), (right, m)):
        influence = (size - 1) * (values.mean() - values) / size
        cubes, squares = cubes + float((influence**3).sum()), squares + float((influence**2).sum())
    return cubes / (6 * squares**1.5) if squares > 0 else 0.0


def paired_change(
    before: tuple[Array, Array],
    after: tuple[Array, Array],
    p_before: float | None,
    p_after: float | None,
    *,
    kind: Kind = "studentised",
    level: float = 0.95,
    alpha: float = 0.05,
    alternative: Literal["greater", "less", "two-sided"] = "greater",
    ddof: int = 1,
    draws: int = 5_000,
    seed: int = 0,
) -> PairedChange:
    """How d changes from the scores ``before`` (x (n,), y (m,)) to those ``after``, of the same words in one order.

    Both are computed from the same draws of words, so what the words have in common cancels. ``p_before`` and
    ``p_after`` are those of `weat`; ``alternative`` is the one they were computed with.
    """
    (x, y), (u, v) = ((np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in (before, after))
    if len(x) != len(u) or len(y) != len(v):
        raise RefbiasError(
            f"A paired change needs the same words on both sides: got {len(x)} + {len(y)} and {len(u)} + {len(v)}."
        )
    _check(kind, level)
    d_before, d_after = effect_size(x, y, ddof), effect_size(u, v, ddof)
    verdict = status(p_before, p_after, alpha)
    refused = _refusal(x, y, kind, level, draws) or _refusal(u, v, kind, level, draws)
    change = None if d_before is None or d_after is None else d_after - d_before
    if refused:
        return PairedChange(d_before, d_after, change, refused, verdict, None, refused.reason)
    chosen = draw(len(x), len(y), draws, seed)
    i, j = chosen
    influences_before, influences_after = _influences(x[i], y[j], ddof), _influences(u[i], v[j], ddof)
    if kind == "studentised":
        own = _difference(_influences(x[None], y[None], ddof), _influences(u[None], v[None], ddof))
        drawn = _difference(influences_before, influences_after)
        limits = _studentised(own[0][0], own[1][0], *drawn, level) if own[1][0] > 0 else (0.0, 0.0)
    else:
        limits = bootstrap_limits(
            lambda i, j: _influences(u[i], v[j], ddof)[2] - _influences(x[i], y[j], ddof)[2],
            len(x), len(y), chosen, kind, level,
        )  # fmt: skip
    bound = largest(len(x), len(y), ddof)
    pair = np.stack([influences_before[2], influences_after[2]]) / bound
    observed = np.array([d_before, d_after], np.float64) / bound
    flips = flip_chance(observed, pair, len(x) + len(y), alpha, alternative)
    return PairedChange(d_before, d_after, change, Interval(*limits, kind, level, draws), verdict, flips)


def _difference(before: tuple[Array, Array, Array], after: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """d after − d before of each row, and its standard error, from paired influences."""
    x, y = after[0] - before[0], after[1] - before[1]
    return after[2] - before[2], np.sqrt((x**2).mean(axis=1) / x.shape[1] + (y**2).mean(axis=1) / y.shape[1])


def status(p_before: float | None, p_after: float | None, alpha: float = 0.05) -> Status | None:
    """Stable, Disappearing (significant → not) or Emerging (not → significant) at p < ``alpha`` (arXiv 2608.06908).

    >>> status(0.01, 0.2), status(0.2, 0.01), status(0.2, 0.3), status(None, 0.1)
    ('Disappearing', 'Emerging', 'Stable', None)
    """
    if p_before is None or p_after is None:
        return None
    if (p_before < alpha) == (p_after < alpha):
        return "Stable"
    return "Disappearing" if p_before < alpha else "Emerging"


def flip_chance(observed: Array, draws: Array, total: int, alpha: float = 0.05, alternative: str = "greater") -> float:
    """How often two readings of one truth would fall on different sides of p = ``alpha``.

    Parameters
    ----------
    observed : (2,), d over its bound in both readings, which is the correlation r of score and set
    draws : (2, b), the same in paired bootstrap draws of the words
    total : N, the number of target words

    Notes
    -----
    The one truth is the mean of both readings on Fisher's scale; the draws of each are moved to it, which keeps their
    spread and how far they move together. A draw is significant where r √((N − 2) / (1 − r²)) exceeds Student's
    quantile, which is nearly what the permutation test says. As the truth itself is only estimated, the figure is
    somewhat too low where significance is in the balance (docs/weat.md has measurements).
    """
    from scipy.stats import t

    draws = draws[:, np.isfinite(draws).all(axis=0)]
    z, drawn = (np.arctanh(np.clip(r, -1 + 1e-9, 1 - 1e-9)) for r in (observed, draws))
    wider = math.sqrt(total / (total - 2))  # a bootstrap of n words spreads by (n − 1) / n too little
    r = np.tanh(wider * (drawn - z[:, None]) + z.mean())
    ratio = r * np.sqrt((total - 2) / np.maximum(1 - r**2, 1e-12))
    ratio = {"greater": ratio, "less": -ratio, "two-sided": np.abs(ratio)}[alternative]
    significant = ratio > t.ppf(1 - alpha / (2 if alternative == "two-sided" else 1), total - 2)
    return float((significant[0] != significant[1]).mean())
