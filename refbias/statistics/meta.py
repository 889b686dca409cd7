"""Several independent fine-tune pairs: the pair is the unit, and how much the pairs differ is part of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refbias.errors import RefbiasError
from refbias.statistics.measures import Figure
from refbias.statistics.shifts import LEVEL, Estimate
from refbias.types import Array


@dataclass(frozen=True)
class Meta:
    """A random-effects mean over k independent studies (fine-tune pairs).

    ``ci`` is the Hartung–Knapp interval of the mean; ``prediction`` where the next study's true value is expected;
    ``tau2`` the variance between studies, ``i2`` its share of the variance of the observed effects; ``q`` and
    ``q_p`` the test of no difference between studies.
    """

    k: int
    value: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None
    prediction_low: float | None = None
    prediction_high: float | None = None
    tau2: float | None = None
    i2: float | None = None
    q: float | None = None
    q_p: float | None = None
    reason: str | None = None


def random_effects(effects: Any, variances: Any) -> Meta:
    """Random-effects mean of ``effects`` (k,) with sampling ``variances`` (k,).

    τ² by restricted maximum likelihood (Viechtbauer 2005); the interval by Hartung and Knapp (2001), with k − 1
    degrees of freedom; the prediction interval with the same degrees of freedom, as metafor's.

    Examples
    --------
    >>> found = random_effects([0.1, 0.3, 0.8], [0.02, 0.02, 0.02])
    >>> round(found.value, 3), round(found.tau2, 3)
    (0.4, 0.11)
    """
    y, v = np.asarray(effects, dtype=float), np.asarray(variances, dtype=float)
    if y.shape != v.shape or y.ndim != 1:
        raise RefbiasError(f"Every effect needs its variance: got shapes {y.shape} and {v.shape}.")
    if not (np.isfinite(y).all() and np.isfinite(v).all() and (v > 0).all()):
        raise RefbiasError("Effects must be finite numbers and their variances above 0.")
    k = len(y)
    if k < 2:
        only = float(y[0]) if k else None
        return Meta(k, only, reason=f"a mean over fine-tune pairs needs at least two of them: there are {k}")
    from scipy.special import chdtrc, stdtr, stdtrit

    tau2 = _reml(y, v)
    weights = 1 / (v + tau2)
    mean = float(weights @ y / weights.sum())
    error = float(np.sqrt(weights @ (y - mean) ** 2 / (k - 1) / weights.sum()))
    fixed = 1 / v
    q = float(fixed @ (y - fixed @ y / fixed.sum()) ** 2)
    typical = (k - 1) * fixed.sum() / (fixed.sum() ** 2 - fixed @ fixed)  # a sampling variance for all studies
    between = Meta(k, mean, tau2=tau2, i2=float(tau2 / (tau2 + typical)), q=q, q_p=float(chdtrc(k - 1, q)))
    if error == 0.0:
        return replace(between, reason="all effects are equal")
    quantile = float(stdtrit(k - 1, (1 + LEVEL) / 2))
    wide = float(np.sqrt(tau2 + error**2))
    return replace(
        between,
        ci_low=mean - quantile * error,
        ci_high=mean + quantile * error,
        p_value=float(2 * stdtr(k - 1, -abs(mean) / error)),
        prediction_low=mean - quantile * wide,
        prediction_high=mean + quantile * wide,
    )


def _reml(y: Array, v: Array) -> float:
    """τ² ≥ 0 of the highest restricted likelihood: the best of a grid over all scales, then refined."""
    from scipy.optimize import minimize_scalar

    def loss(tau2: float) -> float:
        weights = 1 / (v + tau2)
        mean = weights @ y / weights.sum()
        return float(np.log(v + tau2).sum() + np.log(weights.sum()) + weights @ (y - mean) ** 2)

    largest = 10 * max(float(y.var(ddof=1)), float(v.max()))
    grid = np.concatenate([[0.0], np.geomspace(1e-6 * largest, largest, 120)])
    best = int(np.argmin([loss(tau2) for tau2 in grid]))
    if best == 0:
        low, high = 0.0, float(grid[1])
    else:
        low, high = float(grid[best - 1]), float(grid[min(best + 1, len(grid) - 1)])
    found = float(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-12 * largest}).x)
    return found if loss(found) < loss(0.0) - 1e-12 else 0.0


def meta_analysis(r: Sequence[float], n: Sequence[int]) -> Meta:
    """Random-effects mean of correlations on Fisher's z, returned as correlations; ``tau2`` stays on the z scale.

    Parameters
    ----------
    r : correlation of each independent fine-tune pair, between −1 and 1
    n : number of independent observations behind each: groups, not checkpoints × groups. Var z = 1 / (n − 3)
    """
    values, sizes = np.asarray(r, dtype=float), np.asarray(n, dtype=float)
    if values.shape != sizes.shape:
        raise RefbiasError(f"Every correlation needs its number of observations: got {len(values)} and {len(sizes)}.")
    if (sizes <= 3).any():
        return Meta(len(values), None, reason="Fisher's z has a variance from 4 observations a pair on")
    if (np.abs(values) >= 1).any():
        return Meta(len(values), None, reason="a correlation of exactly 1 or −1 has no Fisher's z")
    found = random_effects(np.arctanh(values), 1 / (sizes - 3))

    def back(z: float | None) -> float | None:
        return None if z is None else float(np.tanh(z))

    return replace(
        found,
        value=back(found.value),
        ci_low=back(found.ci_low),
        ci_high=back(found.ci_high),
        prediction_low=back(found.prediction_low),
        prediction_high=back(found.prediction_high),
    )


def mean_over_runs(figures: Sequence[Figure], within: tuple[float, float] | None = None) -> Estimate:
    """Mean of one figure over independent fine-tune pairs, with Student's t over the pairs.

    The interval is cut ``within`` what the figure can be: (0, 1) for an AUC.
    """
    values = np.array([figure.value for figure in figures if figure.value is not None])
    if not len(values):
        why = figures[0].reason if figures else "there is no fine-tune pair"
        return Estimate(None, None, None, None, why)
    mean, k = float(values.mean()), len(values)
    if k < 2:
        reason = f"a mean over fine-tune pairs needs at least two of them: there are {k}"
        return Estimate(mean, None, None, None, reason)
    error = float(values.std(ddof=1) / np.sqrt(k))
    if error == 0.0:
        return Estimate(mean, None, None, None, "the figure is the same for every fine-tune pair")
    from scipy.special import stdtrit

    half = float(stdtrit(k - 1, (1 + LEVEL) / 2)) * error
    low, high = within or (-np.inf, np.inf)
    return Estimate(mean, max(mean - half, low), min(mean + half, high), None)
