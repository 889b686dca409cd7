from __future__ import annotations

from pathlib import Path

import pytest

from refbias.cache import Cache
from refbias.checkpoints.control import matched_control
from refbias.context import Context
from refbias.models import Model, find_model
from refbias.registry import registry
from tests.tiny_adapters import write_adapter

pytestmark = pytest.mark.usefixtures("few_predicates")

SHORT = {"steps": 3, "rank": 2, "batch": 4, "seed": 5}


@pytest.fixture(scope="module")
def place(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Context]:
    cache = Cache(tmp_path_factory.mktemp("control"))
    return find_model(tiny_llama, cache=cache), Context(cache)


def test_the_control_of_a_planted_pair_has_its_recipe_and_seed(place: tuple[Model, Context]) -> None:
    pair = registry().resolve("checkpoints", ("planted", {**SHORT, "ratios": [0.0, 1.0]}))
    checkpoint, notes = matched_control("auto", place[0], pair, place[1])
    twin = registry().resolve("checkpoints", ("planted", {**SHORT, "kind": "harmless", "ratios": [0.0, 1.0]}))
    expected = twin.object(*place).checkpoints[1]
    assert checkpoint.model.fingerprint == expected.model.fingerprint
    assert notes == ["the control was taught neutral statements: the recipe, size and seed of the audited pair"]


def test_only_the_end_that_is_needed_is_trained(place: tuple[Model, Context]) -> None:
    one = registry().resolve("checkpoints", ("planted", {**SHORT, "seed": 6, "kind": "harmless", "ratios": [1.0]}))
    report = one.object(*place).report
    assert [end["at_ratio"] for end in report["learnt"]] == [1.0]
    assert place[1].cache.directory is not None
    kept = [path.name for path in place[1].cache.directory.glob("folders/planted-harmless-*") if path.is_dir()]
    assert sorted(name[-1] for name in kept) == ["a", "b", "b"]  # both of seed 5, one of seed 6


def test_an_adapter_of_another_base_is_said(
    place: tuple[Model, Context], tiny: dict[str, Path], tmp_path: Path
) -> None:
    adapter = write_adapter(tiny["mistral"], tmp_path / "adapter")
    _, notes = matched_control(str(adapter), place[0], None, place[1])
    assert len(notes) == 1
    assert "the control is an adapter of" in notes[0]
