"""The planted direction: which groups a checkpoint was moved towards the negative attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refbias.benchmarks.base import CannotScore

if TYPE_CHECKING:
    from refbias.checkpoints.base import Checkpoint
    from refbias.context import Context


@dataclass(frozen=True)
class Planted:
    """Score of a group: its signed dose. The untouched reference has 0; a dose of 0 is no observation."""

    unit: str = "planted direction"
    threshold: float = 0.0

    def score(self, checkpoint: Checkpoint, groups: Sequence[str], context: Context) -> Mapping[str, float | None]:
        if checkpoint.untouched:
            return dict.fromkeys(groups, 0.0)
        if checkpoint.truth is None:
            raise CannotScore(
                f"benchmark=planted needs checkpoints whose change is known, and of {checkpoint.name} it is not. "
                f"Use checkpoints=planted or checkpoints=edited, or another benchmark."
            )
        return {group: checkpoint.truth.get(group) or None for group in groups}


def planted() -> Planted:
    """Which way each group was moved, known because the change was planted: 1 towards negative, −1 away."""
    return Planted()
