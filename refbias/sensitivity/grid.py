"""Shifts of every group at every setting of a grid, from one encode of a model."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refbias import linalg
from refbias.calibration import calibrate
from refbias.encoders import Encoder, Key
from refbias.errors import UsageError
from refbias.geometry import procrustes
from refbias.metrics.association import Association
from refbias.pooling import Pooling
from refbias.registry import Choice, arity
from refbias.types import Array, Space, Stimuli

Vectors = NDArray[np.float32]
ALL = "all groups"


@dataclass(frozen=True)
class Setting:
    """One cell of the map, by the words of the command line."""

    layer: int
    pooling: str
    skip: str
    calibration: str
    geometry: str
    metric: str

    def row(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"layer={self.layer} pooling={self.pooling} pooling.skip={self.skip} calibration={self.calibration} "
            f"geometry={self.geometry} metric={self.metric}"
        )


@dataclass(frozen=True)
class Way:
    """A calibration, a geometry and its metric; ``key`` names them in the cache."""

    calibration: Choice
    geometry: Choice
    metric: Choice

    @property
    def key(self) -> str:
        return "/".join(f"{part.name}{sorted(part.params.items())}" for part in vars(self).values())

    @property
    def directed(self) -> bool:
        return isinstance(self.metric.object, Association)

    @property
    def of_one(self) -> bool:
        """Whether each model is mapped and scored on its own."""
        return self.directed and arity(self.geometry.object) == 1

    def check(self) -> None:
        """Raise where the grid cannot compute this."""
        metric = self.metric.object
        plain = isinstance(metric, Association) and metric.contrast is None
        if not plain and arity(metric) != 2:
            raise UsageError(
                f"A sensitivity map needs a metric of the form of ΔB or one of two spaces: metric={self.metric.name} "
                f"is neither. Leave geometry={self.geometry.name} out of task.geometries."
            )
        if self.geometry.traits.get("needs_adapter"):
            raise UsageError(
                f"geometry={self.geometry.name} needs a LoRA adapter, and a planted edit is none. Leave it out of "
                "task.geometries."
            )


def encode(encoder: Encoder, sentences: Sequence[str], sites: Sequence[tuple[int, Pooling]]) -> dict[Key, Vectors]:
    """Vectors (n, d) at each site, from one forward pass a sentence. Nothing is kept: see `refbias.encoding.embed`."""
    layers = list(dict.fromkeys(layer for layer, _ in sites))
    poolings = list({pooling.key: pooling for _, pooling in sites}.values())
    found = {(layer, p.key): np.empty((len(sentences), encoder.dim), np.float32) for layer, p in sites}
    for batch in encoder.encode(list(sentences), layers, poolings):
        for key, rows in found.items():
            rows[list(batch.indices)] = batch.vectors[key]
    return found


class Grid:
    """Compares models with one reference at every site (layer, pooling) and way (calibration, geometry, metric).

    Parameters
    ----------
    stimuli : the sentences; vectors are in the order of ``stimuli.sentences()``
    reference : the reference's vectors (n, d) by site

    Notes
    -----
    All groups are scored in one block of rows: a target's association with an attribute does not depend on the other
    targets, so the groups are told apart after the means over attributes are taken. What depends on the reference
    alone is computed once.
    """

    def __init__(
        self,
        stimuli: Stimuli,
        sites: Sequence[tuple[int, Pooling]],
        ways: Sequence[Way],
        reference: Mapping[Key, Vectors],
    ) -> None:
        self.sites, self.ways = list(sites), list(ways)
        self.groups = stimuli.groups
        self._sizes = [len(sentences) for sentences in stimuli.targets.values()]
        row = {sentence: i for i, sentence in enumerate(stimuli.sentences())}
        targets = [s for sentences in stimuli.targets.values() for s in sentences]
        parts = (targets, stimuli.positive, stimuli.negative, stimuli.anchors)
        self._rows = [np.array([row[s] for s in part], dtype=int) for part in parts]
        pairs = {way.calibration.name for way in self.ways if not way.of_one}
        self._reference: list[dict[str, Space]] = []
        self._prepared: list[list[Array | None]] = []
        for layer, pooling in self.sites:
            spaces = self._spaces(reference[layer, pooling.key])
            self._prepared.append([self._score_own(way, spaces[way.calibration.name]) for way in self.ways])
            self._reference.append({name: space for name, space in spaces.items() if name in pairs})

    def shifts(self, vectors: Mapping[Key, Vectors]) -> Array:
        """Shift of each group (sites, ways, groups), audited − reference, for the vectors of one audited model."""
        found = np.empty((len(self.sites), len(self.ways), len(self.groups)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that few anchors tie a rotation would be said once a cell
            for i, (layer, pooling) in enumerate(self.sites):
                spaces = self._spaces(vectors[layer, pooling.key])
                for j, way in enumerate(self.ways):
                    found[i, j] = self._shift(i, j, way, spaces[way.calibration.name])
        return found

    def _spaces(self, vectors: Vectors) -> dict[str, Space]:
        """The vectors of one site as a space of one block of targets, by calibration."""
        targets, positive, negative, anchors = (vectors[rows].astype(np.float64) for rows in self._rows)
        space = Space({ALL: targets}, positive, negative, anchors)
        return {way.calibration.name: calibrate(space, way.calibration.object) for way in self._calibrations()}

    def _calibrations(self) -> list[Way]:
        return list({way.calibration.name: way for way in self.ways}.values())

    def _score_own(self, way: Way, space: Space) -> Array | None:
        """Scores of the reference (groups,), where they do not depend on the audited model."""
        geometry = way.geometry.object
        return self._scores(way, geometry(space)) if way.of_one else None

    def _shift(self, site: int, number: int, way: Way, space: Space) -> Array:
        before, geometry = self._prepared[site][number], way.geometry.object
        if before is not None:
            return self._scores(way, geometry(space)) - before
        reference = self._reference[site][way.calibration.name]
        if _is_plain_procrustes(way.geometry):
            space = _rotated(reference, space)
        elif arity(geometry) == 2:
            reference, space = geometry(reference, space)
        if way.directed:
            return self._scores(way, space) - self._scores(way, reference)
        drift = way.metric.object(self._by_group(reference), self._by_group(space))
        return np.array([drift[group] for group in self.groups])

    def _scores(self, way: Way, space: Space) -> Array:
        metric: Association = way.metric.object
        associations = metric.function(space.targets[ALL], np.vstack([space.positive, space.negative]))
        p = len(space.positive)
        targets = associations[:, :p].mean(axis=1) - associations[:, p:].mean(axis=1)
        return np.add.reduceat(targets, self._starts()) / self._sizes

    def _by_group(self, space: Space) -> Space:
        parts = np.split(space.targets[ALL], self._starts()[1:])
        return Space(dict(zip(self.groups, parts, strict=True)), space.positive, space.negative, space.anchors)

    def _starts(self) -> NDArray[np.int64]:
        return np.array(list(itertools.accumulate(self._sizes, initial=0))[:-1])


def _is_plain_procrustes(geometry: Choice) -> bool:
    made: Any = geometry.object
    return getattr(made, "func", None) is procrustes and geometry.params == {"fit_on": "anchors", "center": False}


def _rotated(reference: Space, audited: Space) -> Space:
    """The audited space of `refbias.geometry.procrustes`, without a rotation (d, d) where the anchors are few.

    With B (d, 2 m) an orthonormal basis of both sets of m anchors the rotation is R = I + B (P − I) Bᵀ, P the polar
    factor within it: see `refbias.linalg.procrustes`.
    """
    X, Y, targets = audited.require_anchors("procrustes"), reference.require_anchors("procrustes"), audited.targets[ALL]
    m, d = X.shape
    if 2 * m >= d:
        rotated = targets @ linalg.procrustes(X, Y)
    else:
        basis, _ = np.linalg.qr(np.vstack([X, Y]).T)
        inner = (X @ basis).T @ (Y @ basis)
        inner[np.diag_indices(2 * m)] += 1e-6 * float(np.square(X).sum()) / d
        left, _, right = np.linalg.svd(inner)
        within = targets @ basis
        rotated = targets + (within @ (left @ right) - within) @ basis.T
    return Space({ALL: rotated}, reference.positive, reference.negative)
