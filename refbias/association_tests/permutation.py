"""Permutation p-values over partitions of scores into two sets of fixed sizes, exact wherever that can be had.

Under the null hypothesis every choice of n of the N = n + m scores is equally likely to be the first set. The
statistic is a sum of scores, so the distribution of subset sums is all that is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from refbias.errors import RefbiasError, UsageError
from refbias.types import Array

Alternative = Literal["greater", "less", "two-sided"]
Ties = Literal["inclusive", "strict"]
Method = Literal["auto", "exact", "bounded", "sampled", "normal"]
Integers = NDArray[np.int64]

SCALE = 2**40  # scores are rounded once to multiples of 2⁻⁴⁰: sums that are equal by rights then are equal
NEAR = 1e-13  # scores nearer than this differ by floating-point noise alone
MEET = 26  # subsets of half the scores that are listed, as a power of two: 2²⁶ sums of each half are 1 GiB
GRID_WORK, GRID_CELLS = 1.5e9, 2**20  # additions of the dynamic programme, some 0.2 s, and its longest row


@dataclass(frozen=True)
class PartitionTest:
    """``method`` is "exact", "bounded", "sampled" or "normal"; ``partitions`` how many there are.

    ``standard_error`` belongs to a sampled p; ``p_low`` and ``p_high`` are the certified bounds of a bounded one, whose
    ``p_value`` is the upper bound.
    """

    p_value: float
    method: str
    partitions: int
    standard_error: float | None = None
    p_low: float | None = None
    p_high: float | None = None


def partition_test(
    scores: Array,
    n: int,
    alternative: Alternative = "greater",
    ties: Ties = "inclusive",
    permutations: int = 100_000,
    seed: int = 0,
    method: Method = "auto",
) -> PartitionTest:
    """p of the difference of means between the first ``n`` scores and the rest, over all partitions of that size.

    Parameters
    ----------
    scores : (N,)
    n : size of the first set, 0 < n < N
    alternative : "greater" counts partitions whose difference is at least the observed one, "less" at most,
        "two-sided" those at least as far from 0
    ties : "inclusive" counts partitions that equal the observed one; "strict" does not, can give p = 0, and is no
        valid test: it is there to reproduce published figures
    permutations : draws of "sampled"; p is then (b + 1) / (draws + 1), or b / draws with "strict"
    method : "auto" is the first that is possible of "exact" (up to 52 scores), "bounded" and "sampled"; "normal" is
        an approximation and only taken when asked for

    Notes
    -----
    "exact" lists the subset sums of both halves of the scores and counts pairs of them. "bounded" is a dynamic
    programme over sizes and sums on a grid; what rounding to the grid can do to any sum is known, so the p-value
    lies between its bounds for certain. Differences of means rank partitions as sums do, N Σ_X s − n Σ s; unlike a
    difference of sums they are centred for unequal sizes, which "two-sided" needs.
    """
    scores = np.asarray(scores, dtype=np.float64)
    total = len(scores)
    if not 0 < n < total:
        raise RefbiasError(f"A permutation test needs two sets that are not empty: got {n} and {total - n} scores.")
    for name, value, known in (
        ("alternative", alternative, get_args(Alternative)),
        ("ties", ties, get_args(Ties)),
        ("method", method, get_args(Method)),
    ):
        if value not in known:
            raise UsageError(f"{name} is one of {', '.join(known)}: got {value!r}.")
    if permutations < 1:
        raise UsageError(f"permutations is at least 1: got {permutations}.")
    partitions = math.comb(total, n)
    units = _integers(scores)
    if method == "normal":
        return PartitionTest(_normal(units, n, alternative), "normal", partitions)
    if method == "auto":
        exact = (total + 1) // 2 <= MEET
        method = "exact" if exact else "bounded" if _grid_is_fine(total, n) else "sampled"
    upper, lower = _limits(units, n, alternative, ties)
    if method == "exact":
        if (total + 1) // 2 > MEET:
            raise UsageError(f"method=exact goes up to {2 * MEET} scores: got {total}. Use bounded or sampled.")
        return PartitionTest(_count(units, n, upper, lower) / partitions, "exact", partitions)
    if method == "bounded":
        low, high = _bounds(units, n, upper, lower)
        low = max(low, 1 / partitions) if ties == "inclusive" else low  # the observed partition counts
        return PartitionTest(high, "bounded", partitions, p_low=low, p_high=high)
    hits = _sampled_hits(units, n, upper, lower, permutations, seed)
    own = int(ties == "inclusive")  # the observed partition is one of those that count
    p = (hits + own) / (permutations + own)
    return PartitionTest(p, "sampled", partitions, math.sqrt(p * (1 - p) / permutations))


def _integers(scores: Array) -> Integers:
    """Scores as integers of 2⁻⁴⁰ (of the largest, where that exceeds 1); near-equal scores get one integer."""
    scale = max(1.0, float(np.abs(scores).max()))
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    starts = np.concatenate([[True], np.diff(ordered) > NEAR * scale])
    first = ordered[starts][np.cumsum(starts) - 1]
    units = np.empty(len(scores), np.int64)
    units[order] = np.rint(first * (SCALE / scale)).astype(np.int64)
    return units


def _limits(units: Integers, n: int, alternative: Alternative, ties: Ties) -> tuple[int | None, int | None]:
    """Subset sums Σ_X of the partitions that count: at least the first, at most the second."""
    total, everything, seen = len(units), int(units.sum()), int(units[:n].sum())
    strict = int(ties == "strict")
    if alternative == "greater":
        return seen + strict, None
    if alternative == "less":
        return None, seen - strict
    far = abs(total * seen - n * everything) + strict  # |N Σ_X − n Σ|, in exact integers
    return -((-(n * everything + far)) // total), (n * everything - far) // total


def _count(units: Integers, n: int, upper: int | None, lower: int | None) -> int:
    """How many subsets of size ``n`` have a sum of at least ``upper`` or at most ``lower``."""
    if upper is not None and lower is not None and upper <= lower:
        return math.comb(len(units), n)
    half = len(units) // 2
    left, right = _subset_sums(units[:half]), _subset_sums(units[half:])
    counted = 0
    for size, sums in enumerate(left):
        rest = n - size
        if not 0 <= rest < len(right):
            continue
        others = right[rest]
        if upper is not None:
            counted += int((len(others) - np.searchsorted(others, upper - sums, side="left")).sum())
        if lower is not None:
            counted += int(np.searchsorted(others, lower - sums, side="right").sum())
    return counted


def _subset_sums(units: Integers) -> list[Integers]:
    """Sorted sums of all subsets of ``units`` by their size; 2^len sums in all."""
    sums: list[Integers] = [np.zeros(1, np.int64)]
    for unit in units:
        grown = [sums[0]]
        for size in range(1, len(sums)):
            grown.append(_merged(sums[size], sums[size - 1] + unit))
        grown.append(sums[-1] + unit)
        sums = grown
    return sums


def _merged(one: Integers, other: Integers) -> Integers:
    both = np.concatenate([one, other])
    both.sort(kind="stable")  # two sorted runs: the stable sort of numpy merges them
    return both


def _cells(total: int, n: int) -> int:
    return min(GRID_CELLS, int(GRID_WORK / (total * min(n, total - n))))


def _grid_is_fine(total: int, n: int) -> bool:
    """Whether bounds near p = 0.05 are narrower than the standard error of 100,000 draws: up to some 190 scores."""
    return _cells(total, n) >= 30 * total**1.5


def _bounds(units: Integers, n: int, upper: int | None, lower: int | None) -> tuple[float, float]:
    """Certified bounds of the share of subsets of size ``n`` with a sum of at least ``upper`` or at most ``lower``."""
    total, everything = len(units), int(units.sum())
    if upper is not None and lower is not None and upper <= lower:
        return 1.0, 1.0
    if n > total - n:  # the complement is smaller: Σ_X ≥ u says Σ_Y ≤ Σ − u
        n = total - n
        upper, lower = (None if lower is None else everything - lower), (None if upper is None else everything - upper)
    base = int(units.min())
    shifted = np.sort(units - base)
    cell = max(1, math.ceil(int(shifted[-n:].sum()) / _cells(total, n)))
    coarse = (shifted + cell // 2) // cell
    rounding = np.sort(shifted - coarse * cell)
    least, most = (
        int(rounding[:n].sum()),
        int(rounding[-n:].sum()),
    )  # true sum − cell · coarse sum, at most and at least
    counts = _grid_counts(coarse, n)

    def at_least(limit: int, slack: int) -> float:
        return float(counts[max(0, -((slack + n * base - limit) // cell)) :].sum())

    def at_most(limit: int, slack: int) -> float:
        return float(counts[: max(0, (limit - n * base - slack) // cell + 1)].sum())

    low = high = 0.0
    if upper is not None:
        low, high = low + at_least(upper, least), high + at_least(upper, most)
    if lower is not None:
        low, high = low + at_most(lower, most), high + at_most(lower, least)
    partitions = math.comb(total, n)
    noise = 1e-12  # far more than a few hundred sums of positive float64 can lose
    return low / partitions * (1 - noise), min(1.0, high / partitions * (1 + noise))


def _grid_counts(coarse: Integers, n: int) -> Array:
    """Number of subsets of ``n`` of the ascending integers ``coarse`` >= 0 by their sum."""
    total = len(coarse)
    tops = np.concatenate([[0], np.cumsum(coarse)])
    counts = np.zeros((n + 1, int(coarse[-n:].sum()) + 1))
    counts[0, 0] = 1.0
    for item, value in enumerate(coarse.tolist()):
        # From large sizes to small, so that each row still lacks this item; sizes that cannot become n are left out.
        for size in range(min(item + 1, n), max(1, n - (total - item - 1)) - 1, -1):
            reach = int(tops[item] - tops[item - size + 1]) + 1  # the largest sum of size − 1 of the items before
            counts[size, value : value + reach] += counts[size - 1, :reach]
    return counts[n]


def _normal(units: Integers, n: int, alternative: Alternative) -> float:
    """The statistic over its exact standard deviation under permutation, against the normal distribution."""
    total = len(units)
    centred = units - units.mean()
    variance = float((centred**2).sum()) / (total - 1) * n * (total - n) / total
    if variance == 0.0:
        return 1.0
    z = float(centred[:n].sum()) / math.sqrt(variance)
    z = {"greater": z, "less": -z, "two-sided": abs(z)}[alternative]
    tail = 0.5 * math.erfc(z / math.sqrt(2))
    return 2 * tail if alternative == "two-sided" else tail


def _sampled_hits(units: Integers, n: int, upper: int | None, lower: int | None, permutations: int, seed: int) -> int:
    """How many of so many random subsets of size ``n`` have a sum of at least ``upper`` or at most ``lower``."""
    rng = np.random.default_rng(seed)
    total, everything = len(units), int(units.sum())
    small = min(n, total - n)
    bits = max(1, (total - 1).bit_length())
    names = np.arange(total, dtype=np.uint64)
    low = np.uint64(2**bits - 1)
    hits = 0
    block = max(1, 400_000 // total)
    for start in range(0, permutations, block):
        # Random keys that end in the index of their score: the first ones of a partition are a random subset.
        keys = rng.integers(0, 2**64, (min(block, permutations - start), total), np.uint64)
        keys = (keys & ~low) | names
        keys.partition(small - 1, axis=1)
        sums = units[(keys[:, :small] & low).astype(np.intp)].sum(axis=1)
        sums = sums if small == n else everything - sums
        counted = np.zeros(len(sums), bool)
        if upper is not None:
            counted |= sums >= upper
        if lower is not None:
            counted |= sums <= lower
        hits += int(counted.sum())
    return hits
