"""The shift of one model against a fixed reference, again and again, from few sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refbias.cache import Cache
from refbias.comparison import Comparison, choose
from refbias.context import Context
from refbias.encoding import embed
from refbias.errors import UsageError
from refbias.layers import parse_layers
from refbias.models import Model
from refbias.pipeline import load_stimuli, with_controls
from refbias.pooling import pooling_from_choice
from refbias.registry import registry
from refbias.statistics import CrossedBootstrap, Estimate
from refbias.types import Space, Stimuli


@dataclass(frozen=True)
class Measured:
    """The shift of each group, their mean, and their standard deviation over groups (None for a single group)."""

    mean: Estimate
    spread: float | None
    groups: Mapping[str, Estimate]


class Monitor:
    """Compares models with a reference in one setting of an audit.

    Parameters
    ----------
    targets_n, attributes_n : sentences for each group and for each side of the attributes, drawn by ``seed``; the
        same rows for all groups and for both sides. None takes all.
    encoder, pooling, layer, targets, attributes, anchors, calibration, geometry, metric, groups, strict, seed, draws :
        as of `refbias.audit`; one layer
    needs_interval : refuse a metric whose mean over groups has no interval
    """

    def __init__(
        self,
        *,
        targets_n: int | None,
        attributes_n: int | None,
        encoder: Any,
        pooling: Any,
        layer: Any,
        targets: Any,
        attributes: Any,
        anchors: Any,
        calibration: Any,
        geometry: Any,
        metric: Any,
        groups: Sequence[str] | None,
        strict: bool,
        seed: int,
        draws: int,
        needs_interval: bool,
    ) -> None:
        if layer == "all" or not isinstance(layer, (int, str)):
            raise UsageError(f"The shift in training is measured at one layer: got layer={layer!r}.")
        parse_layers(layer, 10**6 - 1)  # that it is well formed; whether the model has it shows later
        self._layer = layer
        self._choices = choose(geometry, metric, calibration, seed)
        by_geometry, by_metric, _ = self._choices
        if by_geometry.traits.get("needs_adapter"):
            raise UsageError(
                f"geometry={by_geometry.name} reads a saved adapter: use geometry=relative or absolute in training."
            )
        self._needs_interval = needs_interval
        self._encoder = registry().resolve("encoder", encoder, seed).object
        self._pooling = pooling_from_choice(registry().resolve("pooling", pooling, seed))
        every = load_stimuli(targets, attributes, anchors, groups=groups, strict=strict, seed=seed)
        every, self.scored = with_controls(every, by_metric)
        self.stimuli = thinned(every, targets_n, attributes_n, seed)
        self._bootstrap = CrossedBootstrap(len(self.stimuli.positive), len(self.stimuli.negative), draws, seed)
        self._comparison: Comparison | None = None

    def set_reference(self, model: Model, context: Context) -> None:
        """Encode the reference; every later `measure` compares with it.

        Raises `UsageError` where an interval of the mean is needed and the metric has none.
        """
        by_geometry, by_metric, by_calibration = self._choices
        space = self._space(model, context)
        self._comparison = Comparison(space, by_geometry, by_metric, by_calibration)
        if self._needs_interval and self._comparison.estimates(space, self._bootstrap)[2] is None:
            raise UsageError(
                f"stop_below looks at the interval of the mean over groups, and metric={by_metric.name} has none. "
                f"Use metric=delta_b or seat, or leave stop_below out."
            )

    def measure(self, model: Model) -> Measured:
        """The shift of ``model`` as it is now. Nothing of it is kept, in memory or on the disk."""
        if self._comparison is None:
            raise RuntimeError("no reference has been set")
        space = self._space(model, Context(Cache(None), *model.placement("cpu", "float32")))
        shifts, groups, mean = self._comparison.estimates(space, self._bootstrap)
        values = [value for value in shifts.values() if np.isfinite(value)]
        if mean is None:
            mean = Estimate(float(np.mean(values)) if values else float("nan"), None, None, None)
        return Measured(mean, float(np.std(values, ddof=1)) if len(values) > 1 else None, groups)

    def _space(self, model: Model, context: Context) -> Space:
        encoder = self._encoder(model, context)
        (layer,) = parse_layers(self._layer, encoder.layers)
        sentences = self.stimuli.sentences()
        found = embed(encoder, sentences, [layer], [self._pooling], context.cache, context.watch)
        vectors = dict(zip(sentences, found.vectors[layer, self._pooling.key].astype(np.float64), strict=True))

        def rows(some: Sequence[str]) -> Any:
            return np.stack([vectors[sentence] for sentence in some])

        stimuli = self.stimuli
        targets = {group: rows(some) for group, some in stimuli.targets.items()}
        anchors = rows(stimuli.anchors) if stimuli.anchors else None
        return Space(targets, rows(stimuli.positive), rows(stimuli.negative), anchors)


def thinned(stimuli: Stimuli, targets_n: int | None, attributes_n: int | None, seed: int) -> Stimuli:
    """``stimuli`` with at most so many targets a group and attributes a side, drawn by ``seed``; anchors stay.

    Row i of every group is one template, and row i of both sides of the attributes differs in valence only: the same
    rows are drawn from lists of one length.
    """
    for name, n in (("targets_n", targets_n), ("attributes_n", attributes_n)):
        if n is not None and n < 1:
            raise UsageError(f"{name}={n}: expected 1 or more, or None for all.")

    def drawn(sentences: list[str], n: int | None) -> list[str]:
        if n is None or n >= len(sentences):
            return sentences
        rows = np.random.default_rng([seed, len(sentences)]).permutation(len(sentences))[:n]
        return [sentences[i] for i in sorted(rows)]

    return replace(
        stimuli,
        targets={group: drawn(sentences, targets_n) for group, sentences in stimuli.targets.items()},
        positive=drawn(stimuli.positive, attributes_n),
        negative=drawn(stimuli.negative, attributes_n),
    )
