"""Agreement of shifts with an external signal: correlation, ROC curve, error of a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refbias.types import Array


@dataclass(frozen=True)
class Figure:
    """One figure, or None with the reason."""

    value: float | None
    reason: str | None = None


def pearson(x: Array, y: Array) -> tuple[Figure, Figure]:
    """Pearson's r and its two-tailed p (Student's t, n − 2 degrees of freedom, for independent observations)."""
    reason = why_no_correlation(x, y)
    if reason:
        return Figure(None, reason), Figure(None, reason)
    from scipy.stats import pearsonr

    found = pearsonr(x, y)
    return Figure(float(found.statistic)), Figure(float(found.pvalue))


def why_no_correlation(x: Array, y: Array) -> str | None:
    """Why `pearson` has no value; None where it has one."""
    if len(x) < 3:
        return f"a correlation needs at least 3 observations: there are {len(x)}"
    for name, values in (("shifts", x), ("benchmark shifts", y)):
        if np.ptp(values) <= 1e-12 * np.abs(values).max():
            return f"all {name} are equal"
    return None


def auc(score: Array, positive: Any) -> Figure:
    """Area under the ROC curve of ``score`` for the boolean labels ``positive``; ties count one half."""
    labels = np.asarray(positive, dtype=bool)
    n, m = int(labels.sum()), int((~labels).sum())
    if not n or not m:
        return Figure(None, f"a ROC curve needs both classes: {n} of {n + m} observations are more biased")
    from scipy.stats import rankdata

    ranks = rankdata(score)
    return Figure(float((ranks[labels].sum() - n * (n + 1) / 2) / (n * m)))


def linear_fit_error(x: Array, y: Array, draws: int = 1000, seed: int = 0) -> dict[str, Figure]:
    """Mean absolute error of the line y = a + b x, as the mean over bootstrap resamples.

    ``in_bag`` is measured on the resample that the line was fitted on, ``out_of_bag`` on the rows that it left out,
    ``of_mean`` is the out-of-bag error of predicting the resample's mean. The paper does not say which it prints.
    """
    reason = why_no_correlation(x, y)
    if reason:
        return dict.fromkeys(("in_bag", "out_of_bag", "of_mean"), Figure(None, reason))
    rng = np.random.default_rng(seed)
    n = len(x)
    weights = rng.multinomial(n, np.full(n, 1 / n), size=draws).astype(float)  # (draws, n)
    mean_x, mean_y = weights @ x / n, weights @ y / n
    dx, dy = x - mean_x[:, None], y - mean_y[:, None]
    variance = (weights * dx**2).sum(axis=1)
    usable = variance > 1e-12 * np.ptp(x) ** 2
    slope = np.divide((weights * dx * dy).sum(axis=1), variance, out=np.zeros(draws), where=usable)
    error = np.abs(dy - slope[:, None] * dx)
    left_out = weights == 0
    counted = usable & left_out.any(axis=1)
    out = np.divide((error * left_out).sum(axis=1), left_out.sum(axis=1), out=np.zeros(draws), where=counted)
    mean = np.divide((np.abs(dy) * left_out).sum(axis=1), left_out.sum(axis=1), out=np.zeros(draws), where=counted)
    return {
        "in_bag": Figure(float(((weights * error).sum(axis=1) / n)[usable].mean())),
        "out_of_bag": Figure(float(out[counted].mean())),
        "of_mean": Figure(float(mean[counted].mean())),
    }


def without_means(values: Array, blocks: NDArray[np.intp]) -> Array:
    """``values`` (n,) less the mean of their block; what is left by rounding alone is 0."""
    means = np.bincount(blocks, values) / np.maximum(np.bincount(blocks), 1)
    left = values - means[blocks]
    return np.where(np.abs(left) <= 1e-13 * np.abs(values).max(initial=0.0), 0.0, left)


def within(
    x: Array, y: Array, positive: Any, blocks: Sequence[Any], alarm: int = -1, of: str = "checkpoint"
) -> dict[str, Figure]:
    """Correlation and AUC among observations of the same block (checkpoint, or whatever ``of`` calls it).

    Pearson's r after the mean of each block was taken from ``x`` and from ``y``; AUC over the pairs of a more and a
    less biased observation of one block, ranked by ``alarm`` · x: −1 where x falls with bias.
    """
    labels = np.asarray(positive, dtype=bool)
    _, block = np.unique(np.asarray([str(b) for b in blocks]), return_inverse=True)
    counts = np.bincount(block)
    if len(x) == 0 or counts.max() < 2:
        nothing = Figure(None, f"no {of} has two observations")
        return {"pearson": nothing, "auc": nothing}
    r, _ = pearson(without_means(x, block), without_means(y, block))
    wins = pairs = 0.0
    for b in range(len(counts)):
        scores, which = alarm * x[block == b], labels[block == b]
        both = int(which.sum()) * int((~which).sum())
        if both:
            wins += both * (auc(scores, which).value or 0.0)
            pairs += both
    area = Figure(wins / pairs) if pairs else Figure(None, f"no {of} has both classes")
    return {"pearson": r, "auc": area}
