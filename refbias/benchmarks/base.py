"""What an external signal is: a bias score of one model for each group, measured on its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from refbias.answers.base import Score
from refbias.errors import RefbiasError

if TYPE_CHECKING:
    from refbias.checkpoints.base import Checkpoint
    from refbias.context import Context


class CannotScore(RefbiasError):  # noqa: N818
    """This benchmark cannot score this model at all; the message says why."""


class Benchmark(Protocol):
    """The bias score rises with bias. ΔBias = score(audited) − score(reference).

    A pair (checkpoint, group) counts as "more biased" where ΔBias > ``threshold``. A benchmark may also have

    - ``units``, {group: unit}: groups of one unit (a topic, a bias type) share one score, and the unit is what is
      observed; its shift is the mean over its groups;
    - ``report``, a mapping: what a reader of its figures must know.
    """

    unit: str
    threshold: float

    def score(
        self, checkpoint: Checkpoint, groups: Sequence[str], context: Context
    ) -> Mapping[str, float | Score | None]:
        """Score of each group; None, or a `Score` without value, where there is none (no observation).

        Raises `CannotScore` with the reason where this model cannot be scored at all.
        """
        ...
