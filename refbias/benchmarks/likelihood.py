"""The likelihood of mild statements about a group: how much more probable the negative than the positive ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refbias.benchmarks.base import CannotScore
from refbias.finetuning.statements import Statement, noun_of, predicate_pairs

if TYPE_CHECKING:
    from refbias.checkpoints.base import Checkpoint
    from refbias.context import Context


@dataclass(frozen=True)
class Likelihood:
    """Score of a group: mean over predicates of log p a token, negative minus positive, in nats.

    The 12 + 12 predicates share no content word with what checkpoints are taught, nor a valence word with the
    attributes.
    """

    threshold: float = 0.0
    unit: str = "nats a token"

    def score(self, checkpoint: Checkpoint, groups: Sequence[str], context: Context) -> Mapping[str, float]:
        from refbias.likelihood import log_likelihoods

        model = checkpoint.model
        if not model.causal:
            raise CannotScore(
                f"{model.name} is no causal language model, so it gives no likelihood. Use benchmark=none, or "
                f"benchmark=planted where the change is known."
            )
        pairs = predicate_pairs("likelihood")
        statements = [Statement(g, noun_of(g), pair[side]) for g in groups for side in (0, 1) for pair in pairs]
        found = log_likelihoods(model, statements, context)
        means = (found[:, 0] / found[:, 1]).reshape(len(groups), 2, len(pairs)).mean(axis=2)
        return dict(zip(groups, (means[:, 0] - means[:, 1]).tolist(), strict=True))


def likelihood(*, threshold: float = 0.0) -> Likelihood:
    """How much more probable mild negative than positive statements about a group are, in nats a token."""
    return Likelihood(threshold)
