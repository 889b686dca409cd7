"""geometry=adapter: laws and numbers on arrays, then audits of real adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refbias import Space, UsageError, audit, compare_spaces
from refbias.cache import Cache
from refbias.comparison import choose
from refbias.errors import RefbiasError
from refbias.geometry import adapter
from refbias.models import find_model
from tests.checkpoints.test_merging import write_adapter

SMALL: dict[str, Any] = {"anchors": ("neutral", {"n": 24}), "groups": ["Women", "Men", "Asians"], "draws": 200}


def space(seed: int, dim: int = 6) -> Space:
    rng = np.random.default_rng(seed)
    targets = {"one": rng.normal(size=(5, dim)), "two": rng.normal(size=(4, dim))}
    return Space(targets, rng.normal(size=(7, dim)), rng.normal(size=(8, dim)), rng.normal(size=(9, dim)))


def orthonormal(n: int, dim: int = 6, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, n)))[0].T


def shift(reference: Space, audited: Space, directions: np.ndarray | None, k: int = 16, **choices: Any) -> Any:
    return compare_spaces(reference, audited, geometry=("adapter", {"k": k}), directions=directions, **choices)


def test_the_shift_is_the_difference_of_states_along_the_attributes_in_the_directions() -> None:
    reference, audited, Q = space(0), space(1), orthonormal(3)
    found = shift(reference, audited, Q)
    v = Q @ (reference.positive.mean(axis=0) - reference.negative.mean(axis=0))
    for group, rows in reference.targets.items():
        moved = Q @ (audited.targets[group] - rows).mean(axis=0)
        assert found[group] == pytest.approx(moved @ v / (v @ v))


def test_a_model_against_itself_has_not_moved() -> None:
    assert set(shift(space(0), space(0), orthonormal(3)).values()) == {0.0}


def test_swapping_positive_and_negative_turns_the_sign() -> None:
    def swapped(one: Space) -> Space:
        return Space(one.targets, one.negative, one.positive, one.anchors)

    found, turned = (shift(f(space(0)), f(space(1)), orthonormal(3)) for f in (lambda s: s, swapped))
    assert {g: -v for g, v in turned.items()} == pytest.approx(dict(found))


def test_only_the_span_counts_and_a_movement_outside_of_it_is_not_seen() -> None:
    reference, audited, Q = space(0), space(1), orthonormal(3)
    turned = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0] @ Q
    assert dict(shift(reference, audited, turned)) == pytest.approx(dict(shift(reference, audited, Q)))
    beside = np.ones(6) - np.ones(6) @ Q.T @ Q
    moved = reference.map(lambda rows: rows + 3 * beside)
    assert dict(shift(reference, moved, Q)) == pytest.approx({"one": 0.0, "two": 0.0}, abs=1e-12)


def test_scores_are_plus_and_minus_one_half_at_the_attributes() -> None:
    one = space(0)
    ends = Space({"plus": one.positive, "minus": one.negative}, one.positive, one.negative, one.anchors)
    found = shift(ends, ends, orthonormal(3))
    assert found.reference == pytest.approx({"plus": 0.5, "minus": -0.5})


def test_k_takes_the_strongest_directions() -> None:
    reference, audited, Q = space(0), space(1), orthonormal(4)
    assert dict(shift(reference, audited, Q, k=2)) == pytest.approx(dict(shift(reference, audited, Q[:2])))
    assert dict(shift(reference, audited, Q, k=2)) != pytest.approx(dict(shift(reference, audited, Q)))
    with pytest.raises(UsageError, match="geometry.k=0"):
        adapter(reference, audited, Q, k=0)


def test_without_directions_the_function_takes_the_whole_space_and_a_comparison_refuses() -> None:
    reference, audited = space(0), space(1)
    for found, expected in zip(adapter(reference, audited), adapter(reference, audited, np.eye(6), k=6), strict=True):
        np.testing.assert_allclose(found.targets["one"], expected.targets["one"])
    with pytest.raises(UsageError, match="needs the directions"):
        compare_spaces(reference, audited, geometry="adapter")


def test_attributes_with_one_mean_are_refused() -> None:
    one = space(0)
    alike = Space(one.targets, one.positive, one.positive, one.anchors)
    with pytest.raises(RefbiasError, match="one mean in the adapter's directions"):
        adapter(alike, alike, orthonormal(2))


@pytest.mark.parametrize("calibration", ["zca", "abtt"])
def test_calibrations_that_leave_the_model_s_coordinates_are_refused(calibration: str) -> None:
    with pytest.raises(UsageError, match="calibration=none or center"):
        choose("adapter", None, calibration)


def test_the_projection_goes_with_this_geometry_alone() -> None:
    assert choose("adapter")[1].name == "projection"
    assert choose("adapter", "seat")[1].name == "seat"
    with pytest.raises(UsageError, match="geometry=adapter: got absolute"):
        choose("absolute", "projection")


def test_a_common_movement_is_taken_out_by_centring() -> None:
    reference = space(0)
    audited = reference.map(lambda rows: rows + np.arange(6.0))
    Q = orthonormal(3)
    assert max(map(abs, shift(reference, audited, Q).values())) > 0.1
    assert dict(shift(reference, audited, Q, calibration="center")) == pytest.approx({"one": 0.0, "two": 0.0})


# Audits ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def adapters(tiny_llama: Path, cache: Cache, tmp_path: Path) -> list[Path]:
    reference = find_model(tiny_llama, cache=cache)
    return [write_adapter(reference, tmp_path / f"adapter{seed}", seed) for seed in (1, 2)]


def test_adapter_folders_are_audited(adapters: list[Path], tiny_llama: Path, cache: Cache) -> None:
    found = audit(tiny_llama, [str(f) for f in adapters], geometry="adapter", cache=cache, **SMALL).data
    assert found["settings"]["metric"] == "projection" and found["settings"]["geometry.k"] == 16
    for checkpoint in found["checkpoints"]:
        for row in checkpoint["groups"]:
            assert row["delta_b"] == pytest.approx(row["b_aud"] - row["b_ref"])
            assert row["ci_low"] < row["delta_b"] < row["ci_high"]
            assert row["second_opinion"]["calibration"] == "center"
    one, other = found["checkpoints"]
    assert one["mean_delta_b"] != other["mean_delta_b"]


def test_planted_ends_and_merges_are_audited(tiny_llama: Path, cache: Cache) -> None:
    planted = {"ratios": [0.0, 0.5, 1.0], "steps": 4, "batch": 4, "rank": 2}
    found = audit(
        tiny_llama, checkpoints=("planted", planted), geometry=("adapter", {"k": 3}), layer=-2, cache=cache, **SMALL
    ).data
    assert [c["ratio"] for c in found["checkpoints"]] == [0.0, 0.5, 1.0]
    assert all(row["delta_b"] for c in found["checkpoints"] for row in c["groups"])


def test_merges_of_adapters_are_audited_and_their_ends_are_the_adapters(
    adapters: list[Path], tiny_llama: Path, cache: Cache
) -> None:
    ends = {"start": str(adapters[0]), "end": str(adapters[1]), "ratios": [0.0, 0.5, 1.0]}
    choices = {"geometry": "adapter", "cache": cache, **SMALL}
    merges = audit(tiny_llama, checkpoints=("merge", ends), **choices).data["checkpoints"]
    alone = audit(tiny_llama, [str(folder) for folder in adapters], **choices).data["checkpoints"]
    for merge, own in zip((merges[0], merges[2]), alone, strict=True):
        assert [row["delta_b"] for row in merge["groups"]] == pytest.approx([row["delta_b"] for row in own["groups"]])
    assert merges[1]["mean_delta_b"] not in (merges[0]["mean_delta_b"], merges[2]["mean_delta_b"])


def test_a_merge_with_the_base_begins_at_nothing(adapters: list[Path], tiny_llama: Path, cache: Cache) -> None:
    ends = {"start": str(tiny_llama), "end": str(adapters[0]), "ratios": [0.0, 1.0]}
    found = audit(tiny_llama, checkpoints=("merge", ends), geometry="adapter", cache=cache, **SMALL).data["checkpoints"]
    assert [row["delta_b"] for row in found[0]["groups"]] == [0.0] * 3
    assert all(row["delta_b"] for row in found[1]["groups"])


def test_the_reference_itself_has_not_moved(tiny_llama: Path, cache: Cache) -> None:
    found = audit(tiny_llama, tiny_llama, geometry="adapter", cache=cache, **SMALL).data
    assert [row["delta_b"] for row in found["checkpoints"][0]["groups"]] == [0.0] * 3


def test_a_full_checkpoint_is_refused_before_anything_is_encoded(tiny: dict[str, Path], cache: Cache) -> None:
    with pytest.raises(RefbiasError, match="neither a LoRA adapter"):
        audit(tiny["llama"], tiny["sharded"], geometry="adapter", cache=cache, **SMALL)
    assert not [item for item in cache.usage() if item.kind == "vectors"]
