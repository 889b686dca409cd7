"""A series of audited models, with what is known about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from refbias.errors import RefbiasError

if TYPE_CHECKING:
    from refbias.models import Model


@dataclass(frozen=True)
class Checkpoint:
    """One audited model.

    ``truth`` is known for planted changes only: group -> signed dose, > 0 where the group was moved towards the
    negative attributes, 0 where it was not moved. ``untouched`` marks the reference itself.
    """

    name: str
    model: Model
    ratio: float | None = None
    truth: Mapping[str, float] | None = None
    untouched: bool = False


@dataclass(frozen=True)
class Series:
    """Checkpoints in order; ``report`` is recorded in the result (recipe, how well a fine-tune was learnt …)."""

    checkpoints: Sequence[Checkpoint]
    report: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [checkpoint.name for checkpoint in self.checkpoints]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise RefbiasError(f"Two checkpoints of one series are called {twice!r}: give each a name of its own.")
