"""Which edits are planted: families over doses and seeds, and random directions of the same norm as the null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from refbias.checkpoints.editing import EDITABLE, EditBasis, NotEditableError, edit_basis, probe_direction
from refbias.checkpoints.merging import LowRank, merged
from refbias.context import Context
from refbias.errors import UsageError
from refbias.finetuning.statements import draw_signs
from refbias.models import Model
from refbias.stimuli import GROUPS as PACKAGED
from refbias.types import Array

# family -> the null that it is held against
FAMILIES = {
    "valence": "random",
    "own": "random",
    "probe": "random",
    "all_one_way": "random_one_way",
}
NULLS = ("random", "random_one_way")
ONE_WAY = ("all_one_way", "random_one_way")  # every group is moved the same way: scored by the mean over groups
FEWEST_GROUPS = 4
_STREAMS = (*FAMILIES, *NULLS)  # their order numbers the random streams


@dataclass(frozen=True)
class Plant:
    """One edited model: ``selects`` says whether it serves the choice of a setting or the report on it."""

    family: str
    dose: float
    number: int
    selects: bool

    @property
    def is_null(self) -> bool:
        return self.family in NULLS

    @property
    def one_way(self) -> bool:
        return self.family in ONE_WAY

    @property
    def name(self) -> str:
        return f"{self.family}-{self.dose:g}-{self.number}"


def plan(families: Sequence[str], doses: Sequence[float], seeds: int, random: int) -> list[Plant]:
    """Every edit: ``seeds`` a family and dose, ``random`` a null and dose; the first half of each selects.

    The same seed plants the same change at every dose; random directions differ from dose to dose, so that each
    counts once.
    """
    counts = dict.fromkeys(families, seeds) | dict.fromkeys(dict.fromkeys(FAMILIES[f] for f in families), random)
    return [
        Plant(family, dose, number, number < count // 2)
        for number in range(max(counts.values()))
        for family, count in counts.items()
        if number < count
        for dose in doses
    ]


@dataclass(frozen=True)
class Garden:
    """Makes the edited models of one reference, all in one block; ``groups`` are those that are moved."""

    reference: Model
    groups: Sequence[str]
    block: int
    seed: int
    basis: EditBasis
    probe: Array = field(repr=False)

    def signs(self, plant: Plant) -> Mapping[str, int]:
        """+1 for groups that are moved along the direction, −1 against it, 0 not at all; the truth of the edit."""
        moved = [group for group in self.basis.groups if group in self.groups]
        if plant.one_way:
            signs = dict.fromkeys(moved, 1)
        else:
            signs = draw_signs(moved, int(self._rng(plant, "signs").integers(2**31)))
        return dict.fromkeys(self.basis.groups, 0) | signs

    def model(self, plant: Plant) -> Model:
        name = f"{self.reference.name} {plant.name}"
        return merged(self.reference, name, [(plant.dose, self._change(plant))], self.block)

    def _change(self, plant: Plant) -> LowRank:
        signs, rng, basis = self.signs(plant), self._rng(plant, "direction"), self.basis
        if plant.family in ("own", "all_one_way"):
            own = {group: basis.orthogonal(rng) for group in signs}
            values = {g: (sign * basis.valence + abs(sign) * own[g]) / np.sqrt(2) for g, sign in signs.items()}
            return basis.change_by_group(values)
        direction = {"valence": basis.valence, "probe": self.probe}.get(plant.family)
        return basis.change(signs, basis.orthogonal(rng) if direction is None else direction)

    def _rng(self, plant: Plant, what: str) -> np.random.Generator:
        dose = round(plant.dose * 1e6) if plant.is_null else 0
        return np.random.default_rng([self.seed, _STREAMS.index(plant.family), plant.number, dose, len(what)])


def garden(reference: Model, groups: Sequence[str], context: Context, block: int) -> Garden:
    """What edits of one block are made of, from the cache or measured.

    Raises `UsageError` for groups that the package does not know and for a model whose edits have no closed form.
    """
    for group in groups:
        if group not in PACKAGED:
            raise UsageError(
                f"task=sensitivity plants its edits at the nouns of the packaged groups: {group!r} is none of them. "
                "Choose some of them with groups=[…] and a set of targets that has them."
            )
    if len(groups) < FEWEST_GROUPS:
        raise UsageError(f"task=sensitivity tells two halves of the groups apart: {len(groups)} groups are too few.")
    if not reference.causal:
        raise UsageError(f"task=sensitivity edits causal language models: {reference.name} ({reference.kind}) is none.")
    try:
        basis = edit_basis(reference, context, block)
    except NotEditableError as error:
        raise UsageError(f"task=sensitivity cannot edit {error.about}. Use {EDITABLE}.") from None
    return Garden(reference, groups, block, context.seed, basis, probe_direction(reference, context, block))
