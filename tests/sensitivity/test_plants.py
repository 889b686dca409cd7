"""Edits: what is planted, in which half, and that the edits of before stay as they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refbias.cache import Cache
from refbias.checkpoints import edited
from refbias.checkpoints.editing import edit_basis, probe_direction
from refbias.context import Context
from refbias.errors import UsageError
from refbias.finetuning.statements import digest
from refbias.models import Model, find_model
from refbias.sensitivity.plants import FAMILIES, Garden, Plant, garden, plan
from refbias.stimuli import GROUPS


@pytest.fixture(scope="module")
def reference(tiny_llama: Path, kept: Cache) -> tuple[Model, Context]:
    return find_model(tiny_llama, cache=kept), Context(kept)


@pytest.fixture(scope="module")
def grown(reference: tuple[Model, Context]) -> Garden:
    model, context = reference
    return garden(model, GROUPS, context, 2)


def written(garden: Garden, plant: Plant) -> np.ndarray:
    """ΔW of the edit, from the model's weight."""
    rows = []
    for model in (garden.reference, garden.model(plant)):
        with model.open() as loaded:
            rows.append(dict(loaded.whole.named_parameters())[garden.basis.weight].detach().double().numpy().copy())
    return rows[1] - rows[0]


def test_single_directions_have_the_digest_that_they_always_had(grown: Garden) -> None:
    """A changed digest would be another model in every cache."""
    basis = grown.basis
    signs = {group: (-1) ** i for i, group in enumerate(basis.groups)}
    left = basis.rho * basis.valence[:, None]
    right = (np.array([signs[group] for group in basis.groups]) @ basis.keys)[None, :]
    assert basis.change(signs, basis.valence).digest == digest([basis.weight, left.tolist(), right.tolist()])
    same = basis.change_by_group({group: sign * basis.valence for group, sign in signs.items()})
    (factors,), (whole,) = same.read().values(), basis.change(signs, basis.valence).read().values()
    assert np.allclose(factors[0] @ factors[1], whole[0] @ whole[1], atol=1e-12)


def test_a_valence_plant_is_the_edit_of_checkpoints_edited(reference: tuple[Model, Context], grown: Garden) -> None:
    plant = Plant("valence", 0.2, 3, False)
    signs = grown.signs(plant)
    change = grown.basis.change(signs, grown.basis.valence)
    assert grown.model(plant).fingerprint == edited_with(reference, change.digest)
    assert sorted(signs.values()) == [-1] * 12 + [1] * 12
    series = edited(*reference, dose=0.2, layer=2, seed=5, ratios=[1.0])
    truth = series.checkpoints[0].truth
    assert truth is not None
    basis = edit_basis(*reference, 2)
    assert series.checkpoints[0].model.fingerprint == edited_with(
        reference, basis.change({g: int(np.sign(t)) for g, t in truth.items()}, basis.valence).digest
    )


def edited_with(reference: tuple[Model, Context], change: str) -> str:
    from refbias.models.base import combined

    return combined("merge", reference[0].fingerprint, f"0.2 {change}")


def test_own_parts_are_unit_values_of_one_size(grown: Garden) -> None:
    basis, rng = grown.basis, np.random.default_rng(0)
    for family, along in (("own", None), ("all_one_way", 1 / np.sqrt(2))):
        plant = Plant(family, 0.1, 0, True)
        (factors,) = grown._change(plant).read().values()
        values = factors[0].numpy() / basis.rho  # (d, groups)
        assert np.allclose(np.linalg.norm(values, axis=0), 1)
        if along is not None:
            assert np.allclose(basis.valence @ values, along)
        own = values - np.outer(basis.valence, basis.valence @ values)
        assert np.linalg.matrix_rank(own) > 10
    assert abs(basis.orthogonal(rng) @ basis.valence) < 1e-12


def test_the_same_seed_plants_the_same_change_at_every_dose_and_nulls_do_not(grown: Garden) -> None:
    for family in ("own", "probe"):
        small, large = (written(grown, Plant(family, dose, 1, True)) for dose in (0.1, 0.2))
        assert np.abs(2 * small - large).max() < 1e-5 * np.abs(large).max() + 1e-7
    signs = [grown.signs(Plant("random", dose, 1, True)) for dose in (0.1, 0.2)]
    assert signs[0] != signs[1]
    assert set(grown.signs(Plant("random_one_way", 0.1, 0, True)).values()) == {1}


def test_groups_that_are_not_scored_are_not_moved(reference: tuple[Model, Context]) -> None:
    model, context = reference
    some = garden(model, GROUPS[:6], context, 2)
    signs = some.signs(Plant("own", 0.1, 0, True))
    assert sorted(signs[group] for group in GROUPS[:6]) == [-1, -1, -1, 1, 1, 1]
    assert {signs[group] for group in GROUPS[6:]} == {0}
    (factors,) = some._change(Plant("own", 0.1, 0, True)).read().values()
    assert not factors[0].numpy()[:, 6:].any()


def test_a_probe_tells_predicates_apart_and_is_trained_once(reference: tuple[Model, Context]) -> None:
    model, context = reference
    first = probe_direction(model, context, 2)
    assert np.linalg.norm(first) == pytest.approx(1)
    assert np.array_equal(probe_direction(model, context, 2), first)
    assert abs(first @ edit_basis(model, context, 2).valence) < 0.999


def test_the_plan_has_halves_of_everything() -> None:
    plants = plan(list(FAMILIES), [0.1, 0.2], 4, 6)
    assert len(plants) == len(set(plants)) == 4 * 2 * 4 + 2 * 2 * 6
    for family, count in {**dict.fromkeys(FAMILIES, 4), "random": 6, "random_one_way": 6}.items():
        for dose in (0.1, 0.2):
            mine = [p for p in plants if (p.family, p.dose) == (family, dose)]
            assert [p.selects for p in mine] == [True] * (count // 2) + [False] * (count // 2)
    assert {p.family for p in plan(["valence"], [0.1], 2, 2)} == {"valence", "random"}


def test_a_model_that_cannot_be_edited_is_refused_with_one_message(tiny: dict[str, Path], context: Context) -> None:
    with pytest.raises(UsageError, match=r"^task=sensitivity cannot edit .*gemma2.*normalised or scaled.*Use a model"):
        garden(find_model(tiny["gemma2"], cache=context.cache), GROUPS, context, 2)
    with pytest.raises(UsageError, match="edits causal language models"):
        garden(find_model(tiny["bert"], cache=context.cache), GROUPS, context, 2)


def test_groups_of_one_s_own_are_refused(reference: tuple[Model, Context]) -> None:
    with pytest.raises(UsageError, match=r"'Gardeners' is none of them.*groups="):
        garden(reference[0], [*GROUPS[:5], "Gardeners"], reference[1], 2)
    with pytest.raises(UsageError, match="3 groups are too few"):
        garden(reference[0], GROUPS[:3], reference[1], 2)
