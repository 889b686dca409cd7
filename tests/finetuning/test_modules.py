from pathlib import Path

import pytest

from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.finetuning.base import PROJECTIONS
from refbias.finetuning.modules import chosen_modules, linear_modules, shortest_names
from refbias.models import find_model


def test_adapters_stand_on_every_linear_module_of_the_upper_blocks(tiny: dict[str, Path], cache: Cache) -> None:
    with find_model(tiny["llama"], cache=cache).open_causal() as loaded:
        names = linear_modules(loaded, 2)
        assert len(names) == 2 * 7
        assert all(name.startswith(("model.layers.2.", "model.layers.3.")) for name in names)
    with find_model(tiny["gpt2"], cache=cache).open_causal() as loaded:
        assert set(linear_modules(loaded, 3).values()) == {True}


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_the_papers_projections_are_every_linear_module_of_a_block(
    family: str, tiny: dict[str, Path], cache: Cache
) -> None:
    with find_model(tiny[family], cache=cache).open_causal() as loaded:
        assert chosen_modules(loaded, PROJECTIONS, 0) == linear_modules(loaded, 0)
        assert shortest_names(loaded, linear_modules(loaded, 0)) == sorted(PROJECTIONS)


def test_names_are_whole_where_a_part_of_them_means_more(tiny: dict[str, Path], cache: Cache) -> None:
    with find_model(tiny["llama"], cache=cache).open_causal() as loaded:
        chosen = chosen_modules(loaded, ["q_proj"], 3)
        assert shortest_names(loaded, chosen) == ["model.layers.3.self_attn.q_proj"]


def test_a_model_without_linear_modules_gets_no_adapter(tiny: dict[str, Path], cache: Cache) -> None:
    with (
        find_model(tiny["llama"], cache=cache).open_causal() as loaded,
        pytest.raises(RefbiasError, match="No linear module is found in the blocks of Llama"),
    ):
        chosen_modules(loaded, PROJECTIONS, 4)
