"""How sure a figure is: intervals, p-values, and agreement with an external signal.

Everything takes plain arrays. What cannot be computed is None beside the reason, never NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refbias.types import Array, Space

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A shift with its interval and its p-value; ``reason`` says why one of them is missing."""

    value: float
    ci_low: float | None
    ci_high: float | None
    p_value: float | None
    reason: str | None = None


# Uncertainty of a shift -----------------------------------------------------------------------------------------


class CrossedBootstrap:
    """Two-way bootstrap of shifts over target sentences and attribute sentences.

    Targets, positive and negative attributes are drawn with replacement, each on its own (a "pigeonhole" bootstrap,
    Owen 2007). The same draws serve both models, all groups and all checkpoints, so that every difference is
    paired: what enters are *differences* of associations, audited − reference.

    The standard error of a shift is the spread of its draws (in float32: six digits of it). Interval and p-value are
    both studentised with it, against Student's t with Satterthwaite's degrees of freedom over the three samples, so
    that p < 0.05 says exactly that the 95 % interval leaves 0 out, and p is not bounded below by 1 / draws.

    Parameters
    ----------
    n_positive, n_negative : sizes of the attribute sets
    draws : number of resamples
    seed : of the draws
    """

    def __init__(self, n_positive: int, n_negative: int, draws: int = 10_000, seed: int = 0) -> None:
        self.n_positive, self.n_negative, self.draws, self.seed = n_positive, n_negative, draws, seed
        rng = np.random.default_rng([seed, 0])
        positive = _resampling_weights(n_positive, draws, rng)
        negative = _resampling_weights(n_negative, draws, rng)
        self._attributes = np.hstack([positive, -negative])
        self._targets: dict[int, Array] = {}

    def _target_weights(self, n: int) -> Array:
        if n not in self._targets:
            self._targets[n] = _resampling_weights(n, self.draws, np.random.default_rng([self.seed, 1, n]))
        return self._targets[n]

    def shifts(self, difference: Array) -> Array:
        """Resampled shifts (draws,) of one group from its association differences (n, p + q)."""
        weights = self._target_weights(len(difference))
        difference = difference.astype(np.float32)
        drawn = np.empty(self.draws)
        for start in range(0, self.draws, 1000):  # blocks that stay in the processor's cache
            block = slice(start, start + 1000)
            drawn[block] = np.einsum("bt,bt->b", self._attributes[block] @ difference.T, weights[block])
        return drawn

    def estimates(
        self, differences: Mapping[str, Array], values: Mapping[str, float]
    ) -> tuple[dict[str, Estimate], Estimate]:
        """Each group's shift in ``values`` and their mean, with interval and two-sided p of "the shift is 0".

        ``differences`` are the groups' association differences (n, p + q), positive attributes first.
        """
        draws = {group: self.shifts(rows) for group, rows in differences.items()}
        each = {group: self._judge(values[group], draws[group], [rows]) for group, rows in differences.items()}
        mean = float(np.mean([values[group] for group in differences]))
        return each, self._judge(mean, np.mean(list(draws.values()), axis=0), list(differences.values()))

    def _judge(self, value: float, drawn: Array, differences: Sequence[Array]) -> Estimate:
        spread = float(drawn.std(ddof=1))
        if spread == 0.0:
            return _without_spread(value)
        return _student(value, spread, _satterthwaite(_variance_shares(differences, self.n_positive)))


def _resampling_weights(n: int, draws: int, rng: np.random.Generator) -> Array:
    """Weights (draws, n) of the mean over n rows drawn with replacement."""
    return (rng.multinomial(n, np.full(n, 1 / n), size=draws) / n).astype(np.float32)


def _variance_shares(differences: Sequence[Array], p: int) -> list[tuple[float, int]]:
    """Variance of the mean shift that each sample of sentences brings, with that sample's degrees of freedom."""
    same = all(len(d) == len(differences[0]) for d in differences)
    groups = len(differences)
    attributes = np.mean([d.mean(axis=0) for d in differences], axis=0)
    samples = [attributes[:p], attributes[p:]]
    targets = [d[:, :p].mean(axis=1) - d[:, p:].mean(axis=1) for d in differences]
    shares = [(float(s.var(ddof=1)) / len(s), len(s) - 1) for s in samples if len(s) > 1]
    if same:
        targets = [np.mean(targets, axis=0)]
        groups = 1
    shares += [(float(t.var(ddof=1)) / len(t) / groups**2, len(t) - 1) for t in targets if len(t) > 1]
    return shares


def _satterthwaite(shares: Sequence[tuple[float, int]]) -> float:
    total = sum(v for v, _ in shares)
    return total**2 / sum(v**2 / freedom for v, freedom in shares) if total > 0 else float("inf")


def _without_spread(value: float) -> Estimate:
    """A shift that no choice of sentences changes: exactly nothing, or a figure without uncertainty."""
    if value == 0.0:
        return Estimate(0.0, 0.0, 0.0, 1.0)
    return Estimate(value, None, None, None, "the metric does not vary with the sentences: no uncertainty is known")


def _student(value: float, spread: float, freedom: float) -> Estimate:
    from scipy.special import stdtr, stdtrit

    if not np.isfinite(freedom):
        freedom = 1e9
    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * spread
    return Estimate(value, value - half, value + half, float(2 * stdtr(freedom, -abs(value) / spread)))


Scores = Mapping[str, float]  # a figure for each group


def left_out(measure: Callable[..., Scores], *spaces: Space, blocks: int = 20) -> list[list[Scores]]:
    """``measure(*spaces)`` without one block of sentences: of the targets, the positive, the negative attributes.

    Rows i, i + blocks, … form block i. Each figure is given for the groups that lost something; a sample of one
    sentence cannot lose it.
    """
    first = spaces[0]
    found: list[list[Scores]] = []
    for part in ("targets", "positive", "negative"):
        samples = first.targets if part == "targets" else dict.fromkeys(first.groups, getattr(first, part))
        counts = {group: min(blocks, len(rows)) if len(rows) > 1 else 0 for group, rows in samples.items()}
        series: list[Scores] = []
        for block in range(max(counts.values())):
            figures = measure(*(_without(space, part, block, blocks) for space in spaces))
            series.append({group: figures[group] for group, count in counts.items() if block < count})
        found.append(series)
    return found


def _without(space: Space, part: str, block: int, blocks: int) -> Space:
    def kept(rows: Array) -> Array:
        return rows if len(rows) == 1 else rows[np.arange(len(rows)) % blocks != block]

    targets = {g: kept(r) for g, r in space.targets.items()} if part == "targets" else space.targets
    positive = kept(space.positive) if part == "positive" else space.positive
    negative = kept(space.negative) if part == "negative" else space.negative
    return Space(targets, positive, negative, space.anchors)


def jackknife_estimates(values: Scores, without: Sequence[Sequence[Scores]], directed: bool) -> dict[str, Estimate]:
    """Estimates of ``values`` from the same figures `left_out`, for a metric of any form.

    The variances over targets, positive and negative attributes add up (their interaction is counted twice: slightly
    wide). A drift (not ``directed``) has no test of 0: it is never below it.
    """
    return {group: _jackknifed(value, group, without, directed) for group, value in values.items()}


def _jackknifed(value: float, group: str, without: Sequence[Sequence[Scores]], directed: bool) -> Estimate:
    shares = []
    for figures in without:
        series = np.array([figure[group] for figure in figures if group in figure])
        if len(series):
            shares.append((float((len(series) - 1) * series.var(ddof=0)), len(series) - 1))
    spread = float(np.sqrt(sum(variance for variance, _ in shares)))
    if not np.isfinite(value):
        return Estimate(value, None, None, None, "the metric is undefined for this group")
    if not np.isfinite(spread):
        return Estimate(value, None, None, None, "the metric is undefined without some of the sentences")
    if spread == 0.0:
        return _without_spread(value)
    found = _student(value, spread, _satterthwaite(shares))
    if directed:
        return found
    return Estimate(value, found.ci_low, found.ci_high, None, "a drift has no direction: no test of 0")


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjustment of a family of p-values; None stays None and does not count.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = [(p, i) for i, p in enumerate(p_values) if p is not None]
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, i) in enumerate(sorted(known)):
        running = max(running, min(1.0, p * (len(known) - rank)))
        adjusted[i] = running
    return adjusted


# Agreement with an external signal ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """One figure, or None with the reason."""

    value: float | None
    reason: str | None = None


def pearson(x: Array, y: Array) -> tuple[Figure, Figure]:
    """Pearson's r and its two-tailed p (Student's t, n − 2 degrees of freedom, for independent observations)."""
    reason = _why_no_correlation(x, y)
    if reason:
        return Figure(None, reason), Figure(None, reason)
    from scipy.stats import pearsonr

    found = pearsonr(x, y)
    return Figure(float(found.statistic)), Figure(float(found.pvalue))


def _why_no_correlation(x: Array, y: Array) -> str | None:
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
    reason = _why_no_correlation(x, y)
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


def within(x: Array, y: Array, positive: Any, blocks: Sequence[Any], alarm: int = -1) -> dict[str, Figure]:
    """Correlation and AUC among observations of the same block (checkpoint).

    Pearson's r after the mean of each block was taken from ``x`` and from ``y``; AUC over the pairs of a more and a
    less biased observation of one block, ranked by ``alarm`` · x: −1 where x falls with bias.
    """
    labels = np.asarray(positive, dtype=bool)
    _, block = np.unique(np.asarray([str(b) for b in blocks]), return_inverse=True)
    counts = np.bincount(block)
    if len(x) == 0 or counts.max() < 2:
        nothing = Figure(None, "no checkpoint has two observations")
        return {"pearson": nothing, "auc": nothing}
    r, _ = pearson(*(v - (np.bincount(block, v) / counts)[block] for v in (x, y)))
    wins = pairs = 0.0
    for b in range(len(counts)):
        scores, which = alarm * x[block == b], labels[block == b]
        both = int(which.sum()) * int((~which).sum())
        if both:
            wins += both * (auc(scores, which).value or 0.0)
            pairs += both
    area = Figure(wins / pairs) if pairs else Figure(None, "no checkpoint has both classes")
    return {"pearson": r, "auc": area}


def common_group_permutation(
    x: Array, y: Array, blocks: Sequence[Any], groups: Sequence[Any], draws: int = 10_000, seed: int = 0
) -> Figure:
    """Two-sided p of the within-checkpoint correlation, under one permutation of groups for all checkpoints alike.

    Merges of two fine-tunes are not independent observations; groups can be exchanged, if all checkpoints exchange
    them in the same way. (b + 1) / (draws + 1), b the permuted |r| at least as large. Needs every group at every
    checkpoint.
    """
    block_names, b = np.unique(np.asarray([str(v) for v in blocks]), return_inverse=True)
    group_names, g = np.unique(np.asarray([str(v) for v in groups]), return_inverse=True)
    if len(x) != len(block_names) * len(group_names) or len(set(zip(b, g, strict=True))) != len(x):
        return Figure(None, "a common permutation of groups needs every group at every checkpoint")
    if len(group_names) < 3:
        return Figure(None, f"a permutation of groups needs at least 3 groups: there are {len(group_names)}")
    X, Y = np.empty((2, len(block_names), len(group_names)))
    X[b, g], Y[b, g] = x, y
    X, Y = X - X.mean(axis=1, keepdims=True), Y - Y.mean(axis=1, keepdims=True)
    reason = _why_no_correlation(X.ravel(), Y.ravel())
    if reason:
        return Figure(None, reason)
    cross = X.T @ Y  # r is proportional to Σ_g cross[g, π(g)], its denominator does not change
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(np.arange(len(group_names)), (draws, 1)), axis=1)
    permuted = np.abs(cross[np.arange(len(group_names)), orders].sum(axis=1))
    seen = abs(float(np.trace(cross)))
    return Figure((float((permuted >= seen * (1 - 1e-12)).sum()) + 1) / (draws + 1))


def agreement(
    x: Array, y: Array, threshold: float, checkpoints: Sequence[Any], groups: Sequence[Any], directed: bool, seed: int
) -> dict[str, Any]:
    """All figures of shifts ``x`` (n,) against benchmark shifts ``y`` (n,), as they stand in result.json.

    A directed metric falls with bias: its detector score is −x. An undirected one (a drift) is read as published,
    |r| and max(AUC, 1 − AUC), with the figure "more drift = alarm" beside it, since the maximum of pure chance lies
    well above one half.
    """
    positive = y > threshold
    alarm = -1 if directed else 1
    r, p = pearson(x, y)
    area = auc(alarm * x, positive)
    inside = within(x, y, positive, checkpoints, alarm)
    errors = linear_fit_error(x, y, seed=seed)
    figures: dict[str, Figure] = {
        "pearson": r,
        "pearson_p": p,
        "auc": area,
        "mae": errors["in_bag"],
        "mae_out_of_bag": errors["out_of_bag"],
        "mae_of_mean": errors["of_mean"],
    }
    inner = {
        "pearson": inside["pearson"],
        "pearson_p": common_group_permutation(x, y, checkpoints, groups, seed=seed),
        "auc": inside["auc"],
    }
    if not directed:
        figures["auc_directed"] = area
        figures["auc"] = Figure(None if area.value is None else max(area.value, 1 - area.value), area.reason)
        figures["pearson_directed"] = r
        figures["pearson"] = Figure(None if r.value is None else abs(r.value), r.reason)
    return {
        "n_observations": len(x),
        "n_positive": int(positive.sum()),
        **_flat(figures),
        "within": _flat(inner),
    }


def _flat(figures: Mapping[str, Figure]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, figure in figures.items():
        flat[name] = figure.value
        if figure.value is None:
            flat[f"{name}_reason"] = figure.reason
    return flat
