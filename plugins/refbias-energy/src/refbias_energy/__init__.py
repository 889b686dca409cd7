"""Metric ``energy``: how far a group's cloud of sentences lies from the negative and from the positive attributes'.

ΔB looks at mean distances only. The energy distance (Székely and Rizzo 2013) also takes the spread inside each cloud
into account: it is zero exactly where two clouds have the same distribution (for 0 < power < 2).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from refbias import RefbiasError, Space
from refbias.hookspecs import Register, hookimpl
from refbias.linalg import distance_association
from refbias.types import Array


def mean_distance(X: Array, Y: Array, power: float) -> float:
    """Mean of ‖x − y‖^power over all pairs of rows of ``X`` (n, d) and ``Y`` (m, d)."""
    return float(np.mean((-distance_association(X, Y)) ** power))


def energy(space: Space, *, power: float = 1.0) -> dict[str, float]:
    """Energy distance of a group to the negative minus to the positive attributes; lower: closer to the negative.

    With D(X, Y) = 2 E‖x − y‖^p − E‖x − x'‖^p − E‖y − y'‖^p the group's own spread drops out of the difference, and
    the spread of the two attribute sets stays. ``power`` p lies in (0, 2]; with 2 only the clouds' means count.
    """
    if not 0 < power <= 2:
        raise RefbiasError(f"metric.power={power}: an energy distance needs a power above 0 and up to 2.")
    spread = mean_distance(space.positive, space.positive, power) - mean_distance(space.negative, space.negative, power)
    return {
        group: 2 * (mean_distance(rows, space.negative, power) - mean_distance(rows, space.positive, power)) + spread
        for group, rows in space.targets.items()
    }


@hookimpl
def refbias_metrics(register: Register) -> None:
    register("energy", energy)


@hookimpl
def refbias_config_paths() -> Iterable[Path]:
    return [Path(__file__).parent / "conf"]
