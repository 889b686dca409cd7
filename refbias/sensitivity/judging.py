"""From shifts to power: scores of edited models, thresholds by random directions, and the setting that is recommended.

The unit is the edited model throughout. One half of the edits chooses (thresholds, and which setting is recommended),
the other half is what is reported: nothing of it is looked at before.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refbias.errors import UsageError
from refbias.sensitivity.plants import FAMILIES, NULLS, ONE_WAY, Plant
from refbias.statistics import LEVEL, conformal_threshold
from refbias.types import Array

Mask = NDArray[np.bool_]


def score(shifts: Array, signs: Array, one_way: bool, dose: float, alarm: Array) -> Array:
    """Score of one edited model at every setting (s,), higher for "found", from shifts (s, groups).

    Parameters
    ----------
    signs : (groups,), the planted truth: +1 towards the negative, −1 towards the positive
    one_way : all groups were moved the same way. Then the score is the mean alarm · shift per unit of dose; else it is
        the AUC of alarm · shift for the groups that were moved towards the negative
    alarm : (s,), −1 where a shift below zero means "towards the negative", +1 for a drift without a direction
    """
    values = alarm[:, None] * shifts
    if one_way:
        mean: Array = values.mean(axis=1) / dose
        return mean
    from scipy.stats import rankdata

    positive = signs > 0
    n, m = int(positive.sum()), int((~positive).sum())
    ranks = rankdata(values, axis=1)
    areas: Array = (ranks[:, positive].sum(axis=1) - n * (n + 1) / 2) / (n * m)
    areas[~np.isfinite(values).all(axis=1)] = np.nan
    return areas


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores (plants, settings) with what was planted."""

    plants: Sequence[Plant]
    values: Array

    def which(self, selects: bool, **wanted: Any) -> Mask:
        """The plants (plants,) of one half with these attributes: family, dose."""

        def fits(plant: Plant) -> bool:
            return plant.selects == selects and all(getattr(plant, key) == value for key, value in wanted.items())

        return np.array([fits(plant) for plant in self.plants])

    @property
    def nulls(self) -> list[str]:
        return [null for null in NULLS if any(p.family == null for p in self.plants)]

    @property
    def families(self) -> list[str]:
        return [family for family in FAMILIES if any(p.family == family for p in self.plants)]

    @property
    def doses(self) -> list[float]:
        return sorted({plant.dose for plant in self.plants})

    def defined(self) -> Mask:
        """Settings (settings,) at which every edited model has a score."""
        return np.asarray(np.isfinite(self.values).all(axis=0), dtype=bool)

    def thresholds(self, rate: float) -> dict[str, Array]:
        """Threshold (settings,) of each null, from its random directions of the half that selects, all doses together.

        The conformal quantile at ``rate``. Which way along a random direction is "found" is arbitrary: the other way
        round the same edited model has 1 − AUC. So the AUCs are taken with their mirror images, and no AUC below one
        half counts as found. An AUC has no unit and the mean of a one-way edit is taken per unit of dose, so that the
        doses share one threshold; false alarms are counted for each dose.
        """
        made = {}
        for null in self.nulls:
            rows = self.values[self.which(True, family=null)]
            mirrored = null not in ONE_WAY
            if mirrored:
                limits = [conformal_threshold(np.abs(column - 0.5), 2 * rate) for column in rows.T]
            else:
                limits = [conformal_threshold(column, rate) for column in rows.T]
            if limits[0].value is None:
                raise UsageError(
                    f"task.rate={rate:g}: {limits[0].reason}. Use more task.random, or a higher task.rate."
                )
            made[null] = np.array([limit.value for limit in limits], dtype=float) + (0.5 if mirrored else 0.0)
        return made

    def above(self, thresholds: Mapping[str, Array]) -> Mask:
        """Which edits are found (plants, settings): score above the threshold of the family's null."""
        limits = np.stack([thresholds[FAMILIES.get(plant.family, plant.family)] for plant in self.plants])
        found: Mask = self.values > limits
        return found


def share(found: Any) -> dict[str, Any]:
    """``found`` of ``n`` edits, their share and its 95 % interval (Wilson)."""
    flags = np.asarray(found, dtype=bool)
    return share_of(int(flags.sum()), len(flags))


def share_of(found: int, n: int) -> dict[str, Any]:
    """As `share`, from the counts.

    >>> {key: round(value, 3) for key, value in share_of(8, 10).items()}
    {'found': 8, 'n': 10, 'share': 0.8, 'ci_low': 0.49, 'ci_high': 0.943}
    """
    if not n:
        return {"found": 0, "n": 0, "share": None, "ci_low": None, "ci_high": None}
    from scipy.stats import binomtest

    interval = binomtest(found, n).proportion_ci(LEVEL, method="wilson")
    return {"found": found, "n": n, "share": found / n, "ci_low": float(interval.low), "ci_high": float(interval.high)}


def powers(scores: Scores, above: Mask, selects: bool) -> Array:
    """Share of planted edits that are found, by dose: (doses, settings). Families count as many as they have edits."""
    planted = [
        np.array([not p.is_null and p.selects == selects and p.dose == dose for p in scores.plants])
        for dose in scores.doses
    ]
    return np.stack([above[mask].mean(axis=0) for mask in planted])


def smallest_dose(doses: Sequence[float], found: Sequence[float], wanted: float) -> tuple[float | None, str | None]:
    """The smallest of ascending ``doses`` from which on all have power ``wanted`` or more, or why there is none."""
    enough = list(
        itertools.takewhile(lambda pair: pair[1] >= wanted, zip(reversed(doses), reversed(found), strict=True))
    )
    if enough:
        return enough[-1][0], None
    shares = ", ".join(f"{power:.2f}" for power in found)
    return None, f"power {wanted:g} is not reached at the largest dose; by dose it is {shares}"


def recommend(power: Array, usable: Mask, departures: Sequence[Sequence[float]]) -> int | None:
    """The setting of the highest mean ``power`` (settings,); of equal ones the first by ``departures``.

    ``departures`` says of each setting how far it is from the default; None where no setting is usable.
    """
    candidates: list[int] = np.flatnonzero(usable).tolist()
    return min(candidates, key=lambda i: (-round(float(power[i]), 12), tuple(departures[i]), i), default=None)
