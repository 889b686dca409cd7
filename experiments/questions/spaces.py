"""Planted fine-tunes as spaces: every layer and pooling of a model from one encode, beside what is known of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import refbias
from refbias.benchmarks.likelihood import Likelihood
from refbias.cache import open_cache
from refbias.checkpoints import Checkpoint, planted
from refbias.context import Context
from refbias.devices import resolve_device, resolve_dtype
from refbias.encoding import embed
from refbias.models import find_model
from refbias.pooling import Pooling, built_in
from refbias.registry import registry
from refbias.report.console import ConsoleWatch
from refbias.types import Space

View = tuple[int, str, str]  # layer, pooling, pooling.skip


class Steps(ConsoleWatch):
    """Progress without a table for each checkpoint."""

    def checkpoint(self, result: dict[str, Any]) -> None:
        return None


@dataclass(frozen=True)
class Audited:
    """One fine-tune: its spaces by view, and per group the taught sign and the likelihood shift.

    ``taught`` is > 0 where the group was taught the negative, 0 for harmless fine-tunes; ``likelihood`` rises where
    negative statements became more probable.
    """

    seed: int
    kind: str
    ratio: float
    model: Any
    spaces: Mapping[View, Space]
    taught: Mapping[str, float]
    likelihood: Mapping[str, float]
    loss: float | None = None


class Lab:
    """The reference with its sentences; fine-tunes of it are trained and encoded once, and kept in the cache."""

    def __init__(
        self,
        model: str = "smollm2",
        anchors: int = 1000,
        groups: Sequence[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        cache = open_cache(True)
        device = resolve_device(None)
        self.context = Context(cache, device, resolve_dtype(None, device), watch=Steps())
        self.reference = find_model(model, cache=cache, watch=self.context.watch)
        self.options = dict(options or {})
        self.stimuli = refbias.load_stimuli(anchors=("neutral", {"n": anchors}), groups=groups)
        self._before: Mapping[str, float] | None = None

    def rows(self, model: Any, views: Sequence[View], sentences: Sequence[str]) -> dict[View, np.ndarray]:
        """Vectors (n, d) of ``sentences`` at each view, from one pass over what the cache lacks."""
        poolings: dict[tuple[str, str], Pooling] = {(p, s): built_in(p, s) for _, p, s in views}  # type: ignore[arg-type]
        encoder = registry().resolve("encoder", "auto").object(model, self.context)
        layers = sorted({layer for layer, _, _ in views})
        found = embed(encoder, sentences, layers, list(poolings.values()), self.context.cache, self.context.watch)
        return {view: found.vectors[view[0], poolings[view[1:]].key] for view in views}

    def spaces(self, model: Any, views: Sequence[View]) -> dict[View, Space]:
        """The model's space at each view."""
        s, sentences = self.stimuli, self.stimuli.sentences()
        row = {sentence: i for i, sentence in enumerate(sentences)}

        def space(vectors: np.ndarray) -> Space:
            def take(some: Sequence[str]) -> np.ndarray:
                return vectors[[row[sentence] for sentence in some]].astype(np.float64)

            named = {group: take(some) for group, some in s.targets.items()}
            return Space(named, take(s.positive), take(s.negative), take(s.anchors))

        return {view: space(vectors) for view, vectors in self.rows(model, views, sentences).items()}

    def _score(self, checkpoint: Checkpoint) -> Mapping[str, float]:
        return Likelihood().score(checkpoint, self.stimuli.groups, self.context)

    def audited(
        self, kind: str, seed: int, ratios: Sequence[float], views: Sequence[View], **options: Any
    ) -> Iterator[Audited]:
        """Fine-tunes of one seed, one after the other."""
        if self._before is None:
            self._before = self._score(Checkpoint(self.reference.name, self.reference, untouched=True))
        chosen: dict[str, Any] = {**self.options, **options, "kind": kind, "seed": seed, "ratios": list(ratios)}
        series = planted(self.reference, self.context, **chosen)
        losses = {end["at_ratio"]: end["loss_last"] for end in series.report["learnt"]}
        for checkpoint in series.checkpoints:
            after, groups = self._score(checkpoint), self.stimuli.groups
            yield Audited(
                seed,
                kind,
                float(checkpoint.ratio or 0.0),
                checkpoint.model,
                self.spaces(checkpoint.model, views),
                {group: (checkpoint.truth or {}).get(group, 0.0) for group in groups},
                {group: after[group] - self._before[group] for group in groups},
                losses.get(checkpoint.ratio),
            )
