"""What flows between the parts: stimuli, spaces, shifts. Numpy only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refbias.errors import RefbiasError

Array = NDArray[np.float64]


def as_matrix(value: Any, name: str) -> Array:
    """``value`` as a finite float64 matrix (n, d). Lists, arrays of any numeric dtype and torch tensors are taken."""
    if hasattr(value, "detach"):  # a torch tensor, without importing torch; float() also covers bfloat16
        value = value.detach().cpu()
        value = value.float().numpy() if value.is_floating_point() else value.numpy()
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise RefbiasError(f"{name} must be numbers of shape (n, d): {error}.") from None
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise RefbiasError(f"{name} must have shape (n, d) with n, d >= 1: got {matrix.shape}.")
    if not np.isfinite(matrix).all():
        row = int(np.flatnonzero(~np.isfinite(matrix).all(axis=1))[0])
        raise RefbiasError(f"{name} holds NaN or infinity, first in row {row}. Look at the model's layer or dtype.")
    return matrix


@dataclass(frozen=True)
class Stimuli:
    """The sentences of an audit: targets by group, positive and negative attributes, anchors."""

    targets: Mapping[str, list[str]]
    positive: list[str]
    negative: list[str]
    anchors: list[str]

    @property
    def groups(self) -> list[str]:
        return list(self.targets)

    def sentences(self) -> list[str]:
        """Every sentence once, in a fixed order."""
        every = [s for sentences in self.targets.values() for s in sentences]
        return list(dict.fromkeys([*every, *self.positive, *self.negative, *self.anchors]))

    def only(self, groups: Iterable[str]) -> Stimuli:
        """The same stimuli with these target groups alone, in the order given."""
        return replace(self, targets={group: self.targets[group] for group in groups})


@dataclass(frozen=True, eq=False)
class Space:
    """One model's view of the stimuli, as float64 matrices with one column count d.

    Parameters
    ----------
    targets : mapping of group name to array (n_g, d)
    positive, negative : arrays (p, d) and (q, d), the attribute sentences
    anchors : array (m, d), optional
        Needed by the geometries and calibrations that are fitted on them.
    fit : function of a calibration that returns it fitted, optional
        Fits on another sample of the same model than the anchors, see `refbias.sample`.
    """

    targets: Mapping[str, Array]
    positive: Array
    negative: Array
    anchors: Array | None = None
    fit: Callable[[Any], Any] | None = None
    dim: int = field(init=False)

    def __post_init__(self) -> None:
        if not self.targets:
            raise RefbiasError("A space needs at least one target group: got none.")
        targets = {group: as_matrix(rows, f"targets[{group!r}]") for group, rows in self.targets.items()}
        named = {f"targets[{group!r}]": rows for group, rows in targets.items()}
        named["positive"] = as_matrix(self.positive, "positive")
        named["negative"] = as_matrix(self.negative, "negative")
        if self.anchors is not None:
            named["anchors"] = as_matrix(self.anchors, "anchors")
        dim = named["positive"].shape[1]
        for name, rows in named.items():
            if rows.shape[1] != dim:
                raise RefbiasError(
                    f"One space has one width: {name} has shape {rows.shape}, positive {named['positive'].shape}."
                )
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "positive", named["positive"])
        object.__setattr__(self, "negative", named["negative"])
        object.__setattr__(self, "anchors", named.get("anchors"))
        object.__setattr__(self, "dim", dim)

    @property
    def groups(self) -> list[str]:
        return list(self.targets)

    def map(self, transform: Any) -> Space:
        """The space with ``transform`` (array (n, d) -> array (n, k)) applied to every part of it, without ``fit``."""
        return Space(
            targets={group: transform(rows) for group, rows in self.targets.items()},
            positive=transform(self.positive),
            negative=transform(self.negative),
            anchors=None if self.anchors is None else transform(self.anchors),
        )

    def require_anchors(self, wanted_by: str) -> Array:
        if self.anchors is None:
            raise RefbiasError(f"{wanted_by} needs anchors, and this space has none. Pass Space(..., anchors=...).")
        return self.anchors

    def check_paired(self, other: Space) -> None:
        """Raise unless ``other`` holds the same groups with the same number of rows everywhere."""
        if set(self.groups) != set(other.groups):
            odd = sorted(set(self.groups) ^ set(other.groups))
            raise RefbiasError(f"Two spaces must hold the same groups: only one of them has {', '.join(odd)}.")
        pairs = [(f"targets[{g!r}]", self.targets[g], other.targets[g]) for g in self.groups]
        pairs += [("positive", self.positive, other.positive), ("negative", self.negative, other.negative)]
        if self.anchors is not None and other.anchors is not None:
            pairs.append(("anchors", self.anchors, other.anchors))
        for name, mine, theirs in pairs:
            if len(mine) != len(theirs):
                raise RefbiasError(
                    f"Two spaces must hold the same sentences: {name} has {len(mine)} rows in the reference "
                    f"and {len(theirs)} in the audited space."
                )


class Shifts(Mapping[str, float]):
    """Shift of each group, audited − reference; ``.reference`` and ``.audited`` hold the two scores.

    For a metric of two spaces (CKA drift) there is one score only: ``.reference`` and ``.audited`` are empty.
    """

    def __init__(
        self, shifts: Mapping[str, float], reference: Mapping[str, float], audited: Mapping[str, float]
    ) -> None:
        self._shifts = dict(shifts)
        self.reference = dict(reference)
        self.audited = dict(audited)

    def __getitem__(self, group: str) -> float:
        return self._shifts[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shifts)

    def __len__(self) -> int:
        return len(self._shifts)

    def __repr__(self) -> str:
        return f"Shifts({self._shifts!r})"
