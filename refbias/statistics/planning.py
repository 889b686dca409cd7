"""How many sentences are enough: the interval of a shift as a function of the numbers of targets and attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from refbias.errors import RefbiasError, UsageError
from refbias.statistics.shifts import LEVEL
from refbias.types import Array

MOST = 1_000_000  # sentences of a kind: beyond this an interval is out of reach


@dataclass(frozen=True)
class Components:
    """Where the variance of one group's shift comes from.

    The differences of associations, audited − reference, of n targets and m attributes form a crossed design without
    repetition, d_ta = μ + t + a + ta, so that with other sentences the shift varies by

        σ²(n, m) = σ²_t / n + σ²_a / m + σ²_ta / (n m)

    Attributes are matched pairs (row i of the positive minus row i of the negative ones) or two samples of their own,
    whose variances add up.

    Attributes
    ----------
    targets : σ²_t
    attributes : σ²_a of the pairs, or of the positive and of the negative side
    interaction : σ²_ta, likewise
    n, m : numbers of targets and of attributes (pairs, or the mean number a side) behind the estimates

    References
    ----------
    Brennan (2001), Generalizability Theory, sections 2 and 3 (the design p × i); Cornfield and Tukey (1956).
    """

    targets: float
    attributes: tuple[float, ...]
    interaction: tuple[float, ...]
    n: int
    m: int

    def parts(self, targets: float, attributes: float) -> dict[str, float]:
        """σ²_t / n, σ²_a / m and σ²_ta / (n m) for these numbers of sentences."""
        return {
            "targets": self.targets / targets,
            "attributes": sum(self.attributes) / attributes,
            "interaction": sum(self.interaction) / (targets * attributes),
        }

    def standard_error(self, targets: float, attributes: float) -> float:
        return math.sqrt(sum(self.parts(targets, attributes).values()))

    def freedom(self, targets: int, attributes: int) -> float:
        """Satterthwaite's degrees of freedom over the samples of sentences, as the interval of a shift uses them."""
        rows = (self.targets + sum(self.interaction) / attributes) / targets
        columns = [(a + ta / targets) / attributes for a, ta in zip(self.attributes, self.interaction, strict=True)]
        samples = [(rows, targets - 1), *((share, attributes - 1) for share in columns)]
        below = sum(share**2 / freedom for share, freedom in samples if freedom > 0)
        total = sum(share for share, freedom in samples if freedom > 0)
        return total**2 / below if below > 0 else math.inf

    def half_width(self, targets: int, attributes: int) -> float:
        """Expected half-width of the 95 % interval of a shift with so many sentences."""
        from scipy.special import stdtrit

        freedom = min(self.freedom(targets, attributes), 1e9)
        return float(stdtrit(freedom, (1 + LEVEL) / 2)) * self.standard_error(targets, attributes)

    def attributes_for(self, half_width: float, targets: int) -> int | None:
        """Fewest attributes (pairs, or sentences a side) that give it with so many targets; None where none do."""
        return _fewest(lambda m: self.half_width(targets, m), half_width)

    def targets_for(self, half_width: float, attributes: int) -> int | None:
        """Fewest targets a group that give it with so many attributes; None where none do."""
        return _fewest(lambda n: self.half_width(n, attributes), half_width)

    def both_for(self, half_width: float) -> tuple[int, int] | None:
        """Targets and attributes where both grow in the proportion that there is now."""
        per_target = self.m / self.n
        found = _fewest(lambda n: self.half_width(n, _scaled(n, per_target)), half_width)
        return None if found is None else (found, _scaled(found, per_target))


def _scaled(n: int, per_target: float) -> int:
    return max(2, math.ceil(n * per_target - 1e-9))


def _fewest(width: Callable[[int], float], wanted: float) -> int | None:
    """The smallest number from 2 on whose ``width``, falling in it, is at most ``wanted``."""
    if width(MOST) > wanted:
        return None
    low, high = 1, MOST  # width(high) suffices, width(low) is taken not to
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if width(middle) <= wanted else (middle, high)
    return high


def components(difference: Any, n_positive: int | None = None, paired: bool | None = None) -> Components:
    """Variance components of one group's association differences (n, p + q), positive attributes first.

    From the mean squares of the two-way table (Brennan 2001, section 3.2); an estimate below 0 is taken as 0.

    Parameters
    ----------
    n_positive : p; None: half of the columns
    paired : row i of both sides is one pair; None: where there are as many positive as negative attributes
    """
    table = np.asarray(difference, dtype=float)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise RefbiasError(f"Association differences are a finite table (n, p + q): got shape {table.shape}.")
    p = table.shape[1] // 2 if n_positive is None else n_positive
    q = table.shape[1] - p
    matched = p == q if paired is None else paired
    if matched and p != q:
        raise RefbiasError(f"Pairs need equal numbers of attributes: got {p} and {q}.")
    if min(len(table), p, q) < 2:
        raise RefbiasError(
            f"Variance components need two targets and two attributes a side: got {len(table)} targets, {p} positive "
            f"and {q} negative attributes."
        )
    sides = [table[:, :p] - table[:, p:]] if matched else [table[:, :p], table[:, p:]]
    n, interaction, attributes = len(table), [], []
    for side in sides:
        rest = side - side.mean(axis=0) - side.mean(axis=1)[:, None] + side.mean()
        residual = float(np.square(rest).sum()) / ((n - 1) * (side.shape[1] - 1))
        interaction.append(residual)
        attributes.append(max(float(side.mean(axis=0).var(ddof=1)) - residual / n, 0.0))
    rows = table[:, :p].mean(axis=1) - table[:, p:].mean(axis=1)
    noise = sum(residual / side.shape[1] for residual, side in zip(interaction, sides, strict=True))
    targets = max(float(rows.var(ddof=1)) - noise, 0.0)
    return Components(targets, tuple(attributes), tuple(interaction), n, round((p + q) / 2))


@dataclass(frozen=True)
class Plan:
    """What it takes to know every group's shift to ± ``half_width``.

    ``groups`` holds each group's components, ``pooled`` their mean over groups, in which the numbers are given;
    ``paired`` says whether attributes are counted in pairs or in sentences a side.
    """

    half_width: float
    groups: dict[str, Components]
    pooled: Components
    paired: bool

    @property
    def shares(self) -> dict[str, float]:
        """Share of targets, attributes and their interaction in a shift's variance, with the sentences of now."""
        parts = self.pooled.parts(self.pooled.n, self.pooled.m)
        total = sum(parts.values())
        return {name: value / total if total else 0.0 for name, value in parts.items()}

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a group, and one for their mean."""
        return [self._row(group, found) for group, found in [*self.groups.items(), ("mean over groups", self.pooled)]]

    def _row(self, group: str, found: Components) -> dict[str, Any]:
        parts = found.parts(found.n, found.m)
        total = sum(parts.values())
        both = found.both_for(self.half_width)
        return {
            "group": group,
            "targets": found.n,
            "attributes": found.m,
            "half_width": found.half_width(found.n, found.m),
            **{f"share_{name}": value / total if total else None for name, value in parts.items()},
            "wanted_half_width": self.half_width,
            "attributes_for": found.attributes_for(self.half_width, found.n),
            "targets_for": found.targets_for(self.half_width, found.m),
            "both_targets": both[0] if both else None,
            "both_attributes": both[1] if both else None,
        }

    def __str__(self) -> str:
        found, shares = self.pooled, self.shares
        unit = "attribute pairs" if self.paired else "attribute sentences a side"
        text = (
            f"Attribute sentences carry {shares['attributes']:.0%} of a group's variance, targets "
            f"{shares['targets']:.0%}: ± {found.half_width(found.n, found.m):.3f} with {found.m} {unit} and {found.n} "
            f"targets. For ± {self.half_width:g} it takes "
        )
        together = found.both_for(self.half_width)
        if together is None:
            return f"{text}more than {MOST:,} sentences of a kind."
        both = f"{together[1]:,} {unit} with {together[0]:,} targets a group"
        alone = {
            unit: found.attributes_for(self.half_width, found.n),
            "targets a group": found.targets_for(self.half_width, found.m),
        }
        ways = [f"{count:,} {name}" for name, count in alone.items() if count is not None]
        hopeless = ["attributes" if name == unit else "targets" for name, count in alone.items() if count is None]
        if not ways:
            return f"{text}{both}: no number of either alone does it."
        aside = f" (no number of {hopeless[0]} alone does it)" if hopeless else ""
        return f"{text}{' or '.join(ways)}{aside}, or {both}."


def plan(
    differences: Mapping[str, Any], half_width: float, n_positive: int | None = None, paired: bool | None = None
) -> Plan:
    """How many sentences it takes to know the shift of a group to ± ``half_width``, from an audit's own sentences.

    Parameters
    ----------
    differences : for each group the differences of associations (n, p + q), audited − reference, positive attributes
        first, as `refbias.comparison.Comparison.differences` gives them
    half_width : of the wanted 95 % interval, in the unit of the shift
    n_positive, paired : see `components`

    Returns
    -------
    Plan; ``str(plan)`` says it in two sentences, ``plan.rows()`` is a table

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> pairs = 0.1 * rng.normal(size=40) + 0.02 * rng.normal(size=(30, 40))  # what a pair of attributes adds
    >>> made = plan({"Women": np.hstack([pairs, 0 * pairs])}, 0.01)
    >>> made.shares["attributes"] > 0.9, made.pooled.targets_for(0.01, 40) is None
    (True, True)
    """
    if not half_width > 0:
        raise UsageError(f"A wanted half-width is above 0: got {half_width}.")
    if not differences:
        raise RefbiasError("A plan needs at least one group: got none.")
    groups = {group: components(rows, n_positive, paired) for group, rows in differences.items()}
    every = list(groups.values())

    def mean(values: list[tuple[float, ...]]) -> tuple[float, ...]:
        return tuple(np.mean(values, axis=0).tolist())

    pooled = Components(
        float(np.mean([c.targets for c in every])),
        mean([c.attributes for c in every]),
        mean([c.interaction for c in every]),
        round(float(np.mean([c.n for c in every]))),
        every[0].m,
    )
    return Plan(half_width, groups, pooled, len(pooled.attributes) == 1)


def subsample(difference: Array, targets: int, attributes: int, rng: np.random.Generator) -> Array:
    """``targets`` rows and ``attributes`` matched pairs of columns of a table (n, 2 p), drawn without replacement."""
    p = difference.shape[1] // 2
    if targets > len(difference) or attributes > p:
        raise RefbiasError(f"{targets} targets and {attributes} pairs cannot be drawn from {len(difference)} and {p}.")
    rows, columns = rng.choice(len(difference), targets, replace=False), rng.choice(p, attributes, replace=False)
    return difference[np.ix_(rows, np.concatenate([columns, columns + p]))]
