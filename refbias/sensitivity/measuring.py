"""Shifts of many edited models over one grid; each model's are kept as soon as they are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from refbias.context import Context
from refbias.encoders import Encoder
from refbias.models import Model
from refbias.models.base import combined
from refbias.pooling import Pooling
from refbias.sensitivity.grid import Grid, Way, encode
from refbias.sensitivity.plants import Garden, Plant
from refbias.subject import Cost
from refbias.types import Array, Stimuli

FORMAT = "1"  # raise it where a change here or in the grid changes shifts


def reduced(stimuli: Stimuli, targets: int, attributes: int, anchors: int, seed: int) -> Stimuli:
    """At most so many targets a group, attributes a side and anchors, drawn by ``seed`` and kept in their order.

    Rows are drawn, not sentences: groups of one template set keep the same templates, attribute pairs stay together.
    """
    rng = np.random.default_rng(seed)
    drawn: dict[tuple[str, int], list[int]] = {}

    def draw(kind: str, sentences: Sequence[str], most: int) -> list[str]:
        if (kind, len(sentences)) not in drawn:
            drawn[kind, len(sentences)] = sorted(rng.permutation(len(sentences))[:most].tolist())
        return [sentences[i] for i in drawn[kind, len(sentences)]]

    return replace(
        stimuli,
        targets={group: draw("targets", sentences, targets) for group, sentences in stimuli.targets.items()},
        positive=draw("attributes", stimuli.positive, attributes),
        negative=draw("attributes", stimuli.negative, attributes),
        anchors=draw("anchors", stimuli.anchors, anchors),
    )


@dataclass(frozen=True)
class Measuring:
    """What shifts are measured with.

    ``encoder`` makes the encoder of a model; ``sites`` are (layer, pooling) and ``ways`` the comparisons at each.
    """

    garden: Garden
    encoder: Callable[[Model], Encoder]
    stimuli: Stimuli
    sites: Sequence[tuple[int, Pooling]]
    ways: Sequence[Way]
    context: Context

    def shifts(self, plants: Sequence[Plant], cost: Cost) -> Array:
        """Shifts (plants, sites, ways, groups), audited − reference, from the cache or measured.

        One forward pass a sentence serves all sites and ways; of a model that was measured before nothing is encoded.
        """
        context, sentences = self.context, self.stimuli.sentences()
        reference = self.encoder(self.garden.reference)
        store = context.cache.store(self._name(reference))
        shape = (len(self.sites), len(self.ways), len(self.stimuli.groups))
        found = np.empty((len(plants), *shape))
        grid: Grid | None = None
        with context.watch.progress("planted edits", len(plants), "models") as advance:
            for row, plant in zip(found, plants, strict=True):
                model = self.garden.model(plant)
                keys = [f"{model.fingerprint}/{way.key}" for way in self.ways]
                kept = store.get(keys)
                if all(key in kept and kept[key].shape == (shape[0], shape[2]) for key in keys):
                    row[:] = np.stack([kept[key] for key in keys], axis=1)
                    cost.sentences_from_cache += len(sentences)
                else:
                    if grid is None:
                        grid = Grid(self.stimuli, self.sites, self.ways, self._encode(reference, cost))
                    vectors = self._encode(self.encoder(model), cost)
                    with cost.scoring():
                        row[:] = grid.shifts(vectors)
                    store.put({key: np.ascontiguousarray(row[:, i]) for i, key in enumerate(keys)})
                advance(1)
        return found

    def _encode(self, encoder: Encoder, cost: Cost) -> Mapping[tuple[int, str], np.ndarray]:
        before, began = replace(encoder.counts), time.perf_counter()
        vectors = encode(encoder, self.stimuli.sentences(), self.sites)
        loading = encoder.counts.load_seconds - before.load_seconds
        cost.load_s += loading
        cost.encode_s += time.perf_counter() - began - loading
        cost.sentences_encoded += encoder.counts.sentences - before.sentences
        cost.tokens += encoder.counts.tokens - before.tokens
        cost.truncated += encoder.counts.truncated - before.truncated
        return vectors

    def _name(self, reference: Encoder) -> str:
        """The store of shifts: everything that they depend on beside the edited model and the way."""
        sites = [f"{layer} {pooling.key}" for layer, pooling in self.sites]
        groups = [f"{group}\t{s}" for group, some in self.stimuli.targets.items() for s in some]
        attributes = ["\n".join(self.stimuli.positive), "\n".join(self.stimuli.negative)]
        named = [*sites, "", *groups, "", *attributes, "\n".join(self.stimuli.anchors)]
        return combined("sensitivity", FORMAT, reference.fingerprint, *named)
