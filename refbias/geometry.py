"""Geometries: what makes the spaces of two models comparable."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np

from refbias import linalg
from refbias.errors import RefbiasError, UsageError
from refbias.types import Array, Space


def relative(space: Space) -> Space:
    """Cosines to the model's own anchors (arXiv 2609.10060): coordinates that any two models share."""
    anchors = space.require_anchors("geometry=relative")
    parts = [*space.targets.values(), space.positive, space.negative]
    ends = np.cumsum([len(rows) for rows in parts])[:-1]
    *targets, positive, negative = np.split(linalg.relative(np.vstack(parts), anchors), ends)
    return Space(dict(zip(space.targets, targets, strict=True)), positive, negative)


def absolute(space: Space) -> Space:
    """Each model in its own space, as it is."""
    return space


def procrustes(
    reference: Space, audited: Space, *, fit_on: Literal["anchors", "all"] = "anchors", center: bool = False
) -> tuple[Space, Space]:
    """Audited targets rotated onto the reference, and scored against the reference's attributes.

    Inside one space a cosine does not change under a rotation: with its own attributes the map would do nothing.
    ``fit_on`` says which sentences tie the rotation, ``center`` whether both spaces are centred on them first.
    """
    X, Y = (_fitted_rows(space, fit_on) for space in (audited, reference))
    if center:
        shift_audited, shift_reference = X.mean(axis=0), Y.mean(axis=0)
        audited = audited.map(lambda rows: rows - shift_audited)
        reference = reference.map(lambda rows: rows - shift_reference)
        X, Y = X - shift_audited, Y - shift_reference
    rank, condition = linalg.rank_and_condition(X)
    if rank < X.shape[1]:
        warnings.warn(
            f"geometry=procrustes: {len(X)} sentences of rank {rank} (condition {condition:.1e}) tie a rotation in "
            f"{X.shape[1]} dimensions; the untied directions stay as they are.",
            stacklevel=2,
        )
    rotation = linalg.procrustes(X, Y)
    rotated = Space(
        targets={group: rows @ rotation for group, rows in audited.targets.items()},
        positive=reference.positive,
        negative=reference.negative,
        anchors=None if audited.anchors is None else audited.anchors @ rotation,
    )
    return reference, rotated


def _fitted_rows(space: Space, fit_on: str) -> np.ndarray:
    if fit_on == "anchors":
        return space.require_anchors("geometry=procrustes")
    if fit_on == "all":
        anchors = [] if space.anchors is None else [space.anchors]
        return np.vstack([*space.targets.values(), space.positive, space.negative, *anchors])
    raise RefbiasError(f"geometry.fit_on is 'anchors' or 'all': got {fit_on!r}.")


def cka(space: Space) -> Space:
    """Each space as it is, for metrics that compare two spaces sentence by sentence, such as CKA drift."""
    return space


def adapter(reference: Space, audited: Space, directions: Array | None = None, *, k: int = 16) -> tuple[Space, Space]:
    """Both models in the k strongest directions that the adapter writes, against the reference's attributes.

    Exploratory. ``directions`` (n, d) are orthonormal, the strongest first, as `refbias.adapters.output_directions`
    gives them; None is the whole space. The origin lies midway between the means of the reference's positive and
    negative attributes in these directions, and the unit of length is the distance between the two. So with
    ``metric=projection`` a target scores +½ at the positive mean and −½ at the negative one, and the shift of a group
    is the mean difference of its states, audited − reference, along the line from one to the other.
    """
    if k < 1:
        raise UsageError(f"geometry.k={k}: expected a number of directions, 1 or more.")
    basis = np.eye(reference.dim) if directions is None else directions[:k].T
    positive, negative = reference.positive @ basis, reference.negative @ basis
    ends = positive.mean(axis=0), negative.mean(axis=0)
    unit = float(np.linalg.norm(ends[0] - ends[1]))
    if not unit:
        raise RefbiasError(
            "geometry=adapter: positive and negative attributes have one mean in the adapter's directions. "
            "Use a larger geometry.k, or other attributes."
        )
    origin = (ends[0] + ends[1]) / 2

    def placed(space: Space) -> Space:
        targets = {group: (rows @ basis - origin) / unit for group, rows in space.targets.items()}
        return Space(targets, (positive - origin) / unit, (negative - origin) / unit)

    return placed(reference), placed(audited)


# name -> (part, traits)
GEOMETRIES = {
    "relative": (relative, {"metric": "delta_b", "needs_anchors": True}),
    "absolute": (absolute, {"metric": "seat", "same_width": True}),
    "procrustes": (procrustes, {"metric": "seat", "same_width": True, "needs_anchors": True}),
    "cka": (cka, {"metric": "cka_drift", "pairs_only": True}),
    "adapter": (
        adapter,
        {"metric": "projection", "same_width": True, "needs_adapter": True, "calibrations": ("none", "center")},
    ),
}
