"""Groups as what varies: permutations and bootstraps that move whole groups, through all checkpoints alike.

Merges of two fine-tunes are a fixed design, and the observations of one group at several of them are no independent
ones. What can be exchanged or drawn again are the groups. Every function here needs only sums by group, so that ten
thousand draws take milliseconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from refbias.errors import RefbiasError
from refbias.statistics.measures import Figure, auc, pearson, why_no_correlation, within, without_means
from refbias.statistics.shifts import LEVEL, Estimate
from refbias.types import Array

DRAWS = 10_000
FEWEST_GROUPS = 3
UNDEFINED = 0.1  # an interval is refused where more of the draws than this lack a class

Codes = NDArray[np.intp]


def _codes(labels: Sequence[Any]) -> tuple[Codes, int]:
    """Labels as 0, 1, …, and how many different ones there are."""
    names, codes = np.unique(np.asarray([str(label) for label in labels], dtype=object), return_inverse=True)
    return codes, len(names)


# Permutations ---------------------------------------------------------------------------------------------------


def _orders(groups: int, draws: int, seed: int) -> tuple[NDArray[np.intp], bool]:
    """Permutations (draws, groups), and whether they are all there are."""
    if math.factorial(groups) <= draws:
        return np.array(list(itertools.permutations(range(groups)))), True
    rng = np.random.default_rng(seed)
    return rng.permuted(np.tile(np.arange(groups), (draws, 1)), axis=1), False


def _p_value(as_large: int, draws: int, every: bool) -> float:
    """Of all permutations, the one seen among them; of sampled ones (b + 1) / (draws + 1)."""
    return as_large / draws if every else (as_large + 1) / (draws + 1)


class _Design:
    """Where each observation stands in the table of checkpoints × groups, for a common permutation of the groups."""

    def __init__(self, checkpoints: Sequence[Any], groups: Sequence[Any]) -> None:
        self._at, n = _codes(checkpoints), len(checkpoints)
        self._of = _codes(groups)
        (b, blocks), (g, count) = self._at, self._of
        self.groups = count
        self.reason: str | None = None
        if n != blocks * count or len(set(zip(b.tolist(), g.tolist(), strict=True))) != n:
            self.reason = "a common permutation of groups needs every group at every checkpoint"
        elif count < FEWEST_GROUPS:
            self.reason = f"a permutation of groups needs at least {FEWEST_GROUPS} groups: there are {count}"

    def table(self, values: Array) -> Array:
        """Values (n,) as (checkpoints, groups)."""
        (b, blocks), (g, count) = self._at, self._of
        made = np.empty((blocks, count))
        made[b, g] = values
        return made

    def centred(self, values: Array) -> Array:
        """The table without each checkpoint's mean."""
        return self.table(without_means(values, self._at[0]))

    def ranks(self, values: Array, pooled: bool) -> Array:
        """Ranks among all observations, or within each checkpoint, without each checkpoint's mean rank."""
        from scipy.stats import rankdata

        made = self.table(values)
        ranked = rankdata(made).reshape(made.shape) if pooled else rankdata(made, axis=1)
        return ranked - ranked.mean(axis=1, keepdims=True)


def _under_permutation(links: Array, orders: NDArray[np.intp], block: int = 1000) -> Array:
    """Σ_g links[k, g, π(g)] of each permutation π, as (draws, k), for ``links`` (k, groups, groups)."""
    found = np.empty((len(orders), len(links)))
    by_pair = np.ascontiguousarray(links.transpose(1, 2, 0))  # (groups, groups, k)
    for start in range(0, len(orders), block):
        chosen = orders[start : start + block]
        found[start : start + block] = sum(by_pair[g, chosen[:, g]] for g in range(by_pair.shape[0]))
    return found


def _two_sided(links: Array, draws: int, seed: int) -> list[float]:
    """p of each of ``links`` (k, groups, groups), whose sums over a permutation have a mean of 0."""
    orders, every = _orders(links.shape[1], draws, seed)
    permuted = np.abs(_under_permutation(links, orders))
    seen = np.abs(np.trace(links, axis1=1, axis2=2))
    as_large = (permuted >= seen * (1 - 1e-12)).sum(axis=0)
    return [_p_value(int(count), len(orders), every) for count in as_large]


def common_group_permutation(
    x: Array, y: Array, blocks: Sequence[Any], groups: Sequence[Any], draws: int = DRAWS, seed: int = 0
) -> Figure:
    """Two-sided p of the within-checkpoint correlation, under one permutation of groups for all checkpoints alike.

    Merges of two fine-tunes are not independent observations; groups can be exchanged, if all checkpoints exchange
    them in the same way. (b + 1) / (draws + 1), b the permuted |r| at least as large; exact where there are no more
    permutations than draws. Needs every group at every checkpoint. The pooled r has the same p: what such a
    permutation moves is the part within checkpoints alone.
    """
    design = _Design(blocks, groups)
    reason = design.reason or why_no_correlation(design.centred(x).ravel(), design.centred(y).ravel())
    if reason:
        return Figure(None, reason)
    # r is proportional to Σ_g links[g, π(g)]: its denominator does not change
    return Figure(_two_sided((design.centred(x).T @ design.centred(y))[None], draws, seed)[0])


def auc_permutation(
    x: Array,
    positive: Any,
    checkpoints: Sequence[Any],
    groups: Sequence[Any],
    alarm: int = -1,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Figure]:
    """Two-sided p of the AUC, ``pooled`` and ``within`` checkpoints, under a common permutation of groups.

    Labels move with their groups, ranks of the scores stay: an AUC is a sum of ranks. The pooled p asks how far the
    AUC lies from its mean over the permutations, which is not one half where checkpoints differ as a whole.
    """
    labels = np.asarray(positive, dtype=bool)
    design = _Design(checkpoints, groups)
    reason = design.reason or auc(alarm * x, labels).reason
    if reason:
        return dict.fromkeys(("pooled", "within"), Figure(None, reason))
    marks = design.table(labels.astype(float))
    links = np.array([design.ranks(alarm * x, pooled).T @ marks for pooled in (True, False)])
    p_values = _two_sided(links, draws, seed)
    inner = within(x, labels.astype(float), labels, checkpoints, alarm)["auc"].reason
    return {"pooled": Figure(p_values[0]), "within": Figure(None, inner) if inner else Figure(p_values[1])}


@dataclass(frozen=True)
class Alternative:
    """One of several figures that could have been shown: alone, and after the choice is counted."""

    value: float | None
    p_value: float | None
    p_adjusted: float | None
    reason: str | None = None


def max_statistic(
    alternatives: Mapping[str, Array],
    y: Array,
    positive: Any,
    checkpoints: Sequence[Any],
    groups: Sequence[Any],
    figure: Literal["pearson", "auc"] = "pearson",
    alarm: int = -1,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[dict[str, Alternative], int]:
    """Each alternative's figure within checkpoints, with p adjusted for the choice among all of them.

    Single-step maximum of Westfall and Young (1993): p_adjusted is the share of common permutations of groups whose
    *largest* |r| (or |AUC − ½|) over the whole grid is at least as large as this alternative's, each in units of its
    own spread over the permutations, so that none rules the maximum for its coarseness alone. It controls the chance
    of any false claim, whatever the dependence between alternatives (layers, poolings, methods).

    Parameters
    ----------
    alternatives : name -> shifts (n,), all of the same observations
    y, positive : the benchmark's shifts (n,) and labels (n,)
    figure : "pearson" (with ``y``) or "auc" (with ``positive``)

    Returns
    -------
    name -> Alternative, and how many alternatives were counted: one that cannot be computed is not
    """
    labels = np.asarray(positive, dtype=bool)
    design = _Design(checkpoints, groups)
    measured: dict[str, tuple[float, Array]] = {}
    found: dict[str, Alternative] = {}
    pairs = 0.0
    if not design.reason:
        marks = design.table(labels.astype(float))
        pairs = float((marks.sum(axis=1) * (1 - marks).sum(axis=1)).sum())
    for name, x in alternatives.items():
        inner = within(x, y, labels, checkpoints, alarm)[figure]
        value, reason = inner.value, design.reason or inner.reason
        if value is None or reason:
            found[name] = Alternative(value, None, None, reason)
        elif figure == "pearson":
            X, Y = design.centred(x), design.centred(y)
            measured[name] = value, X.T @ Y / np.sqrt(np.square(X).sum() * np.square(Y).sum())
        else:
            measured[name] = value, design.ranks(alarm * x, pooled=False).T @ marks / pairs
    if measured:
        links = np.array([link for _, link in measured.values()])
        orders, every = _orders(design.groups, draws, seed)
        permuted = np.abs(_under_permutation(links, orders))
        scale = np.sqrt(np.square(permuted).mean(axis=0))
        largest = (permuted / scale).max(axis=1)
        for i, (name, (value, link)) in enumerate(measured.items()):
            seen = abs(float(np.trace(link))) * (1 - 1e-12)
            as_large = int((permuted[:, i] >= seen).sum()), int((largest >= seen / scale[i]).sum())
            alone, counted = (_p_value(count, len(orders), every) for count in as_large)
            found[name] = Alternative(value, alone, counted)
    return {name: found[name] for name in alternatives}, len(measured)


# Bootstrap ------------------------------------------------------------------------------------------------------


class GroupDraws:
    """Figures of the observations when whole groups are drawn with replacement.

    Parameters
    ----------
    groups : the group of each observation (n,)
    draws, seed : number of resamples, and their seed; the same for every figure, so that differences are paired
    """

    def __init__(self, groups: Sequence[Any], draws: int = DRAWS, seed: int = 0) -> None:
        self._group, self.count = _codes(groups)
        rng = np.random.default_rng(seed)
        self._weights = rng.multinomial(self.count, np.full(self.count, 1 / self.count), size=draws).astype(float)
        few = f"a bootstrap over groups needs at least {FEWEST_GROUPS} groups: there are {self.count}"
        self.reason = few if self.count < FEWEST_GROUPS else None

    def sums(self, values: Array) -> Array:
        """Sum of ``values`` (n,) in each resample, (draws,)."""
        return self._weights @ np.bincount(self._group, values, minlength=self.count)

    def pearson(self, x: Array, y: Array, blocks: Sequence[Any] | None = None) -> Array:
        """Pearson's r (draws,), NaN where undefined; after each block's mean is taken out where there are blocks."""
        x, y = x - x.mean(), y - y.mean()
        moments = [self.sums(product) for product in (x * y, x * x, y * y)]
        block, _ = _codes(blocks if blocks is not None else ["all"] * len(x))
        for b in np.unique(block):
            n, of_x, of_y = (self.sums(np.where(block == b, values, 0.0)) for values in (np.ones(len(x)), x, y))
            share = np.divide(1.0, n, out=np.zeros_like(n), where=n > 0)
            for i, product in enumerate((of_x * of_y, of_x**2, of_y**2)):
                moments[i] = moments[i] - product * share
        cross, of_x, of_y = moments
        scale = (x @ x) * (y @ y) * 1e-20
        both = of_x * of_y
        return np.divide(cross, np.sqrt(np.maximum(both, 0)), out=np.full(len(both), np.nan), where=both > scale)

    def auc(self, score: Array, positive: Any, blocks: Sequence[Any] | None = None) -> Array:
        """AUC (draws,), NaN where a class is missing; over the pairs of one block where there are blocks."""
        labels = np.asarray(positive, dtype=bool)
        block, _ = _codes(blocks if blocks is not None else ["all"] * len(score))
        won, pairs = np.zeros((2, self.count, self.count))
        for b in np.unique(block):
            rows = block == b
            more, all_pairs = _wins(score[rows], labels[rows], self._group[rows], self.count)
            won, pairs = won + more, pairs + all_pairs
        w = self._weights
        total, of = np.einsum("dg,dg->d", w @ won, w), np.einsum("dg,dg->d", w @ pairs, w)
        return np.divide(total, of, out=np.full(len(of), np.nan), where=of > 0)

    def interval(self, value: Figure, drawn: Array, scale: Scale | None) -> Estimate:
        """``value`` ± t · (spread of the draws) on ``scale``, Student's t with groups − 1 degrees of freedom.

        A percentile interval of 24 groups covers 90 % where 95 % is wanted; this one comes closer (docs/statistics.md).
        """
        from scipy.special import stdtrit

        reason = value.reason or self.reason
        defined = drawn[np.isfinite(drawn)]
        if value.value is not None and not reason:
            if len(defined) < (1 - UNDEFINED) * len(drawn):
                missing = 1 - len(defined) / len(drawn)
                reason = f"the figure is undefined in {missing:.0%} of the resamples of groups"
            elif scale is not None and scale.at_edge(value.value):
                reason = f"at {value.value:g} a resample of groups cannot say how far it may lie from there"
        if value.value is None or reason:
            return Estimate(value.value, None, None, None, reason)
        there, back = (scale.there, scale.back) if scale else (_same, _same)
        centre, spread = float(there(np.array(value.value))), float(there(defined).std(ddof=1))
        if spread <= 1e-12 * max(1.0, abs(centre)):
            return Estimate(value.value, None, None, None, "every resample of groups gives the same figure")
        half = float(stdtrit(self.count - 1, (1 + LEVEL) / 2)) * spread
        low, high = (float(back(np.array(centre + side * half))) for side in (-1, 1))
        return Estimate(value.value, low, high, None)


def _same(values: Array) -> Array:
    return values


@dataclass(frozen=True)
class Scale:
    """Where a bounded figure is about normal: there and back, and the ends that have no place on it."""

    there: Callable[[Array], Array]
    back: Callable[[Array], Array]
    ends: tuple[float, float]

    def at_edge(self, value: float) -> bool:
        return not self.ends[0] + 1e-9 < value < self.ends[1] - 1e-9


def _fisher(r: Array) -> Array:
    return np.arctanh(np.clip(r, -1 + 1e-6, 1 - 1e-6))


def _logit(area: Array) -> Array:
    clipped = np.clip(area, 1e-3, 1 - 1e-3)
    return np.log(clipped / (1 - clipped))


def _expit(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


FISHER, LOGIT = Scale(_fisher, np.tanh, (-1.0, 1.0)), Scale(_logit, _expit, (0.0, 1.0))


def _wins(score: Array, positive: NDArray[np.bool_], group: Codes, groups: int) -> tuple[Array, Array]:
    """Pairs of a more biased observation of group g and a less biased one of group h, (g, h): won, and all."""
    high, of = score[positive], group[positive]
    won = np.zeros((groups, groups))
    for h in np.unique(group[~positive]):
        low = np.sort(score[~positive & (group == h)])
        beaten = (np.searchsorted(low, high, "left") + np.searchsorted(low, high, "right")) / 2
        won[:, h] = np.bincount(of, beaten, minlength=groups)
    counts = [np.bincount(group[which], minlength=groups).astype(float) for which in (positive, ~positive)]
    return won, np.outer(*counts)


def group_bootstrap(
    x: Array,
    y: Array,
    positive: Any,
    checkpoints: Sequence[Any],
    groups: Sequence[Any],
    alarm: int = -1,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Estimate]:
    """r and AUC, ``pearson`` and ``auc`` pooled, ``within_pearson`` and ``within_auc``, with 95 % intervals.

    The intervals say what other groups of the same kind would have given, at these checkpoints. They have no p-value:
    see `common_group_permutation`.
    """
    labels = np.asarray(positive, dtype=bool)
    inner = within(x, y, labels, checkpoints, alarm)
    values = {
        "pearson": pearson(x, y)[0],
        "auc": auc(alarm * x, labels),
        "within_pearson": inner["pearson"],
        "within_auc": inner["auc"],
    }
    if not len(x):
        return {name: Estimate(None, None, None, None, figure.reason) for name, figure in values.items()}
    drawn = GroupDraws(groups, draws, seed)
    found = {}
    for name, figure in values.items():
        blocks = checkpoints if name.startswith("within") else None
        if figure.value is None:
            found[name] = Estimate(None, None, None, None, figure.reason)
        elif name.endswith("pearson"):
            found[name] = drawn.interval(figure, drawn.pearson(x, y, blocks), FISHER)
        else:
            found[name] = drawn.interval(figure, drawn.auc(alarm * x, labels, blocks), LOGIT)
    return found


def fit_band(
    x: Array, y: Array, groups: Sequence[Any], points: int = 41, draws: int = DRAWS, seed: int = 0
) -> list[dict[str, float | None]]:
    """The line y = a + b x at ``points`` places, with its 95 % band by the bootstrap over groups; a row a place.

    No rows where there is no line; no band where there are too few groups.
    """
    if why_no_correlation(x, y):
        return []
    from scipy.special import stdtrit

    at = np.linspace(x.min(), x.max(), points)
    slope, level = np.polyfit(x, y, 1)
    line = level + slope * at
    drawn = GroupDraws(groups, draws, seed)
    near = x - x.mean()
    n, of_x, of_y, of_xx, of_xy = (drawn.sums(v) for v in (np.ones(len(x)), near, y, near**2, near * y))
    spread_x = of_xx - of_x**2 / n
    usable = spread_x > 1e-12 * (near @ near)
    if drawn.reason or not usable.all():
        return [{"x": float(a), "y": float(v), "low": None, "high": None} for a, v in zip(at, line, strict=True)]
    slopes = (of_xy - of_x * of_y / n) / spread_x
    lines = (of_y / n)[:, None] + slopes[:, None] * ((at - x.mean())[None] - (of_x / n)[:, None])
    half = float(stdtrit(drawn.count - 1, (1 + LEVEL) / 2)) * lines.std(axis=0, ddof=1)
    return [
        {"x": float(a), "y": float(v), "low": float(v - h), "high": float(v + h)}
        for a, v, h in zip(at, line, half, strict=True)
    ]


def auc_difference(
    score: Array,
    other: Array,
    positive: Any,
    groups: Sequence[Any],
    blocks: Sequence[Any] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Estimate:
    """AUC of ``score`` (n,) minus AUC of ``other`` (n,), paired, by the bootstrap over groups; p of "no difference".

    Both are detector scores: the higher, the more biased. With ``blocks`` (checkpoints), over the pairs of one block.
    """
    if len(score) != len(other):
        raise RefbiasError(f"A paired difference needs the same observations: got {len(score)} and {len(other)}.")
    from scipy.special import stdtr

    labels = np.asarray(positive, dtype=bool)
    areas = [auc(s, labels) if blocks is None else within(s, s, labels, blocks, 1)["auc"] for s in (score, other)]
    if areas[0].value is None or areas[1].value is None:
        return Estimate(None, None, None, None, areas[0].reason or areas[1].reason)
    drawn = GroupDraws(groups, draws, seed)
    spread = drawn.auc(score, labels, blocks) - drawn.auc(other, labels, blocks)
    difference = areas[0].value - areas[1].value
    found = drawn.interval(Figure(difference), spread, None)
    if found.ci_high is None:
        return found
    error = float(spread[np.isfinite(spread)].std(ddof=1))
    p = float(2 * stdtr(drawn.count - 1, -abs(difference) / error))
    return Estimate(found.value, found.ci_low, found.ci_high, p)
