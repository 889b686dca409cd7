"""The benchmark's scores of one audit, model by model, and their agreement with the shifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refbias.benchmarks.base import CannotScore
from refbias.checkpoints.base import Checkpoint
from refbias.context import Context
from refbias.models import Model
from refbias.registry import Choice
from refbias.statistics import agreement


class Signal:
    """Scores of the reference and of every checkpoint that was added.

    A checkpoint that is the reference itself (an edit of dose 0, say) is no observation.
    """

    def __init__(self, choice: Choice | None, reference: Model, groups: Sequence[str], context: Context) -> None:
        self.choice, self.groups, self.context = choice, groups, context
        self.reason = None if choice else "no benchmark was asked for"
        self.scores: dict[str, dict[str, Any]] = {}
        self._fingerprint = reference.fingerprint
        self._reference = self._score(Checkpoint(reference.name, reference, untouched=True))

    def _score(self, checkpoint: Checkpoint) -> Mapping[str, float | None]:
        if self.choice is None or self.reason:
            return {}
        try:
            scores: Mapping[str, float | None] = self.choice.object.score(checkpoint, self.groups, self.context)
        except CannotScore as error:
            self.reason = str(error)
            self.context.watch.say(f"benchmark={self.choice.name}: {error}")
            return {}
        return scores

    def add(self, checkpoint: Checkpoint) -> None:
        """Score one checkpoint."""
        if self.choice is None or self.reason or checkpoint.model.fingerprint == self._fingerprint:
            return
        scores, threshold = self._score(checkpoint), self.choice.object.threshold
        self.scores[checkpoint.name] = {
            group: _shift(scores.get(group), self._reference.get(group), threshold) for group in self.groups
        }

    def head(self) -> dict[str, Any]:
        """What does not depend on the layer."""
        if self.choice is None or self.reason:
            return {"name": self.choice.name if self.choice else None, "reason": self.reason}
        benchmark = self.choice.object
        return {
            "name": self.choice.name,
            "unit": benchmark.unit,
            "threshold": benchmark.threshold,
            "scores": self.scores,
        }

    def agreement(self, entries: Sequence[Mapping[str, Any]], directed: bool) -> dict[str, Any]:
        """The block ``benchmark`` of result.json, for the checkpoints of one layer."""
        head = self.head()
        if "reason" in head:
            return head
        rows = [
            (row["delta_b"], self.scores[entry["name"]][row["group"]]["delta_bias"], entry["name"], row["group"])
            for entry in entries
            if entry["name"] in self.scores
            for row in entry["groups"]
        ]
        rows = [row for row in rows if row[0] is not None and np.isfinite(row[0]) and row[1] is not None]
        x, y = (np.array([row[i] for row in rows], dtype=float) for i in (0, 1))
        names, groups = ([row[i] for row in rows] for i in (2, 3))
        return {**head, **agreement(x, y, head["threshold"], names, groups, directed, self.context.seed)}


def _shift(audited: float | None, reference: float | None, threshold: float) -> dict[str, Any]:
    shift = None if audited is None or reference is None else audited - reference
    return {
        "bias_score_ref": reference,
        "bias_score_aud": audited,
        "delta_bias": shift,
        "more_biased": None if shift is None else shift > threshold,
    }
