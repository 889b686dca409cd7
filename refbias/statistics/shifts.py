"""How sure a shift is: what another choice of sentences would have given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from refbias.errors import RefbiasError
from refbias.types import Array, Space

LEVEL = 0.95

Scores = Mapping[str, float]  # a figure for each group
Contrasts = Mapping[str, Scores]  # figure -> the weight of each group's shift in it


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval and its p-value; ``reason`` says why one of them is missing."""

    value: float | None
    ci_low: float | None
    ci_high: float | None
    p_value: float | None
    reason: str | None = None


class CrossedBootstrap:
    """Two-way bootstrap of shifts over target sentences and attribute sentences.

    Targets and attributes are drawn with replacement, each on their own (a "pigeonhole" bootstrap, Owen 2007). Where
    there are as many positive as negative attributes, row i of both is drawn as one: the packaged sets are matched
    pairs, a frame with a word of either valence, and most of what a frame does cancels in the pair. Rows that are no
    pairs lose nothing by it but degrees of freedom. The same draws serve both models, all groups and all checkpoints,
    so that every difference is paired: what enters are *differences* of associations, audited − reference.

    The standard error of a shift is the spread of its draws (in float32: six digits of it). Interval and p-value are
    both studentised with it, against Student's t with Satterthwaite's degrees of freedom over the samples, so
    that p < 0.05 says exactly that the 95 % interval leaves 0 out, and p is not bounded below by 1 / draws.

    Parameters
    ----------
    n_positive, n_negative : sizes of the attribute sets
    draws : number of resamples
    seed : of the draws
    paired : draw row i of both sides as one; None: where the sizes are equal
    """

    def __init__(
        self, n_positive: int, n_negative: int, draws: int = 10_000, seed: int = 0, paired: bool | None = None
    ) -> None:
        self.n_positive, self.n_negative, self.draws, self.seed = n_positive, n_negative, draws, seed
        self.paired = n_positive == n_negative if paired is None else paired
        if self.paired and n_positive != n_negative:
            raise RefbiasError(f"Pairs need equal numbers of attributes: got {n_positive} and {n_negative}.")
        rng = np.random.default_rng([seed, 0])
        positive = _resampling_weights(n_positive, draws, rng)
        negative = positive if self.paired else _resampling_weights(n_negative, draws, rng)
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
        self,
        differences: Mapping[str, Array],
        values: Mapping[str, float],
        contrasts: Contrasts | None = None,
    ) -> tuple[dict[str, Estimate], Estimate | None]:
        """Each figure in ``values`` and their mean, with interval and two-sided p of "the figure is 0".

        Parameters
        ----------
        differences : the groups' association differences (n, p + q), positive attributes first
        values : the figures, by name
        contrasts : {figure: {group: weight}}, for figures that are weighted sums of the groups' shifts: these are
            drawn together. None: each figure is a group's own shift

        Returns
        -------
        the estimates, and that of the mean over figures: None where their weights cancel, so that it is 0 always
        """
        groups = list(differences)
        chosen = contrasts or {group: {group: 1.0} for group in groups}
        weights = np.array([[sums.get(group, 0.0) for group in groups] for sums in chosen.values()])
        draws = np.array([self.shifts(rows) for rows in differences.values()])
        rows = list(differences.values())
        each = {name: self._judge(values[name], own, draws, rows) for name, own in zip(chosen, weights, strict=True)}
        average = weights.mean(axis=0)
        if np.abs(average).max() < 1e-12:
            return each, None
        return each, self._judge(float(np.mean([values[name] for name in chosen])), average, draws, rows)

    def _judge(self, value: float, weights: Array, draws: Array, differences: Sequence[Array]) -> Estimate:
        used = np.flatnonzero(weights).tolist()
        drawn = weights[used] @ draws[used]
        spread = float(drawn.std(ddof=1))
        if spread <= 1e-12 * float(np.abs(weights[used]) @ draws[used].std(axis=1)):
            return _without_spread(value)
        shares = self._variance_shares([differences[i] for i in used], weights[used])
        return _student(value, spread, _satterthwaite(shares))

    def _variance_shares(self, differences: Sequence[Array], weights: Array) -> list[tuple[float, int]]:
        """Variance that each sample of sentences brings to a weighted sum of shifts, with its degrees of freedom.

        Groups with one number of targets share their draws, so their targets are one sample.
        """
        p = self.n_positive
        attributes = np.sum([w * d.mean(axis=0) for w, d in zip(weights, differences, strict=True)], axis=0)
        samples = [attributes[:p] - attributes[p:]] if self.paired else [attributes[:p], attributes[p:]]
        targets: dict[int, Array] = {}
        for w, d in zip(weights, differences, strict=True):
            targets[len(d)] = targets.get(len(d), 0.0) + w * (d[:, :p].mean(axis=1) - d[:, p:].mean(axis=1))
        return [(float(s.var(ddof=1)) / len(s), len(s) - 1) for s in [*samples, *targets.values()] if len(s) > 1]


def _resampling_weights(n: int, draws: int, rng: np.random.Generator) -> Array:
    """Weights (draws, n) of the mean over n rows drawn with replacement."""
    return (rng.multinomial(n, np.full(n, 1 / n), size=draws) / n).astype(np.float32)


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


def left_out(measure: Callable[..., Scores], *spaces: Space, blocks: int = 20) -> list[list[Scores]]:
    """``measure(*spaces)`` without one block of sentences: of the targets, then of the attributes.

    Rows i, i + blocks, … form block i. Positive and negative attributes lose it together where there are as many of
    the one as of the other (see `CrossedBootstrap`), else one after the other. Each figure is given for the groups
    that lost something; a sample of one sentence cannot lose it.
    """
    first = spaces[0]
    found: list[list[Scores]] = []
    paired = len(first.positive) == len(first.negative)
    for part in ("targets", "pairs") if paired else ("targets", "positive", "negative"):
        attributes = first.negative if part == "negative" else first.positive
        samples = first.targets if part == "targets" else dict.fromkeys(first.groups, attributes)
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
    positive = kept(space.positive) if part in ("positive", "pairs") else space.positive
    negative = kept(space.negative) if part in ("negative", "pairs") else space.negative
    return Space(targets, positive, negative, space.anchors)


def jackknife_estimates(values: Scores, without: Sequence[Sequence[Scores]], directed: bool) -> dict[str, Estimate]:
    """Estimates of ``values`` from the same figures `left_out`, for a metric of any form.

    The variances over targets and attributes add up (their interaction is counted twice: slightly wide). A drift (not
    ``directed``) has no test of 0: it is never below it.
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
