"""Which edits and settings a map covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from refbias.cache import Cache
from refbias.errors import UsageError
from refbias.models import find_model
from refbias.sensitivity import Design


def test_every_layer_above_the_edit_and_last_once(tiny_llama: Path, kept: Cache) -> None:
    model = find_model(tiny_llama, cache=kept)
    sites = [(layer, pooling.name, pooling.skip) for layer, pooling in Design().sites(model)]
    kinds = [("mean", "none"), ("mean", "sink"), ("max", "none"), ("max", "sink"), ("last", "none")]
    assert sites == [(layer, *kind) for layer in (3, 4) for kind in kinds]
    assert [(k, p.skip) for k, p in Design(layers=[-1], poolings=["last"], skips=["sink"]).sites(model)] == [
        (4, "sink")
    ]
    assert Design(block=0).block_of(model) == 0


def test_geometries_of_two_spaces_take_the_first_calibration_only() -> None:
    ways = [(way.geometry.name, way.metric.name, way.calibration.name) for way in Design().ways()]
    assert ways == [
        ("relative", "delta_b", "none"), ("relative", "delta_b", "center"), ("absolute", "seat", "none"),
        ("absolute", "seat", "center"), ("procrustes", "seat", "none"), ("cka", "cka_drift", "none"),
    ]  # fmt: skip


def test_what_comes_twice_counts_once_and_doses_ascend() -> None:
    design = Design(doses=[0.2, 0.1], families=["own", "own"], calibrations=["none", "none"])
    assert (design.doses, design.families, design.calibrations) == ((0.1, 0.2), ("own",), ("none",))
    assert design.settings()["task.doses"] == (0.1, 0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"doses": []}, r"task\.doses=\[\]"),
        ({"doses": [0.1, 0.1]}, "different numbers above 0"),
        ({"rate": 0.0}, r"task\.rate=0\.0: expected a share"),
        ({"seeds": 1}, "one half of the seeds chooses"),
        ({"random": 12}, r"task\.random=12: .*Use task\.random=14 or more"),
        ({"random": 6, "families": ["own"], "doses": [0.1, 0.2]}, r"Use task\.random=10 or more"),
        ({"rate": 0.5}, "expected a share between 0 and 0.5"),
        ({"families": ["valance"]}, "Did you mean 'valence'"),
        ({"families": []}, r"task\.families=\[\] leaves nothing"),
        ({"skips": ["sinks"]}, "Did you mean 'sink'"),
        ({"anchors": 1}, r"task\.anchors=1: expected 2"),
        ({"targets": 3}, "geometry=cka needs 4 or more"),
        ({"geometries": []}, r"task\.geometries=\[\] leaves nothing"),
    ],
)
def test_options_without_a_meaning_are_refused(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Design(**options)


def test_geometries_that_no_edit_fits_are_refused() -> None:
    with pytest.raises(UsageError, match="geometry=adapter needs a LoRA adapter"):
        Design(geometries=["relative", "adapter"]).ways()


def test_layers_below_the_edit_are_refused(tiny_llama: Path, kept: Cache) -> None:
    model = find_model(tiny_llama, cache=kept)
    with pytest.raises(UsageError, match=r"task\.layers holds 2: an edit of block 2 shows in layers 3 to 4"):
        Design(layers=[2, 4]).sites(model)
    with pytest.raises(UsageError, match=r"task\.block=4: .* has blocks 0 to 3"):
        Design(block=4).sites(model)
