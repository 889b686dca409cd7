"""The benchmark's scores of one audit, model by model, and their agreement with the shifts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from refbias.answers.base import Score
from refbias.benchmarks.base import CannotScore
from refbias.checkpoints.base import Checkpoint
from refbias.context import Context
from refbias.models import Model
from refbias.registry import Choice
from refbias.statistics import agreement

Observation = tuple[str, str, float, float]  # checkpoint, unit of observation, shift, shift of the benchmark


class Signal:
    """Scores of the reference and of every checkpoint that was added.

    A checkpoint that is the reference itself (an edit of dose 0, say) is no observation.
    """

    def __init__(self, choice: Choice | None, reference: Model, groups: Sequence[str], context: Context) -> None:
        self.choice, self.groups, self.context = choice, groups, context
        self.reason = None if choice else "no benchmark was asked for"
        self.scores: dict[str, dict[str, Any]] = {}
        self.measured: dict[str, dict[str, Any]] = {}  # scores that come with an interval and counts
        self.seconds = 0.0
        self._model = reference
        self._reference = self._score(Checkpoint(reference.name, reference, untouched=True))

    def _score(self, checkpoint: Checkpoint) -> Mapping[str, float | None]:
        if self.choice is None or self.reason:
            return {}
        begun = time.perf_counter()
        try:
            scores = self.choice.object.score(checkpoint, self.groups, self.context)
        except CannotScore as error:
            self.reason = str(error)
            self.context.watch.say(f"benchmark={self.choice.name}: {error}")
            return {}
        finally:
            self.seconds += time.perf_counter() - begun
        told = {group: asdict(score) for group, score in scores.items() if isinstance(score, Score)}
        if told:
            self.measured[checkpoint.name] = told
        return {group: score.value if isinstance(score, Score) else score for group, score in scores.items()}

    def add(self, checkpoint: Checkpoint) -> None:
        """Score one checkpoint."""
        if self.choice is None or self.reason or checkpoint.model.fingerprint == self._model.fingerprint:
            return
        benchmark = self.choice.object
        scores = self._score(checkpoint)
        if self.reason:
            return
        rows = {g: _shift(scores.get(g), self._reference.get(g), benchmark.threshold) for g in self.groups}
        if hasattr(benchmark, "shifts"):
            for group, found in benchmark.shifts(self._model, checkpoint.model, self.groups).items():
                rows[group] |= {"delta_bias_ci_low": found.ci_low, "delta_bias_ci_high": found.ci_high}
        self.scores[checkpoint.name] = rows

    def head(self) -> dict[str, Any]:
        """What does not depend on the layer."""
        if self.choice is None or self.reason:
            return {"name": self.choice.name if self.choice else None, "reason": self.reason}
        benchmark = self.choice.object
        about = {"report": dict(benchmark.report)} if getattr(benchmark, "report", None) else {}
        return {
            "name": self.choice.name,
            "unit": benchmark.unit,
            "threshold": benchmark.threshold,
            "scores": self.scores,
            **({"measured": self.measured} if self.measured else {}),
            **about,
        }

    def agreement(self, entries: Sequence[Mapping[str, Any]], directed: bool) -> dict[str, Any]:
        """The block ``benchmark`` of result.json, for the checkpoints of one layer."""
        head = self.head()
        if "reason" in head:
            return head
        rows = self._observations(entries)
        x, y = (np.array([row[i] for row in rows], dtype=float) for i in (2, 3))
        names, units = ([row[i] for row in rows] for i in (0, 1))
        figures = agreement(x, y, head["threshold"], names, units, directed, self.context.seed)
        shared = getattr(self.choice.object, "units", None) if self.choice else None
        return {**head, **({"observed": dict(shared)} if shared else {}), **figures}

    def _observations(self, entries: Sequence[Mapping[str, Any]]) -> list[Observation]:
        """One a checkpoint × unit; the shift of a unit of several groups is the mean over them."""
        shared = (getattr(self.choice.object, "units", None) if self.choice else None) or {}
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for entry in entries:
            for row in entry["groups"] if entry["name"] in self.scores else ():
                group, theirs = row["group"], self.scores[entry["name"]][row["group"]]["delta_bias"]
                if row["delta_b"] is not None and np.isfinite(row["delta_b"]) and theirs is not None:
                    found.setdefault((entry["name"], shared.get(group, group)), []).append((row["delta_b"], theirs))
        means = {key: np.mean(values, axis=0) for key, values in found.items()}
        return [(name, unit, float(means[name, unit][0]), float(means[name, unit][1])) for name, unit in means]


def _shift(audited: float | None, reference: float | None, threshold: float) -> dict[str, Any]:
    shift = None if audited is None or reference is None else audited - reference
    return {
        "bias_score_ref": reference,
        "bias_score_aud": audited,
        "delta_bias": shift,
        "more_biased": None if shift is None else shift > threshold,
    }
