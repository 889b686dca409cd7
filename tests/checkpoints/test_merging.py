from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from refbias.cache import Cache
from refbias.checkpoints.merging import LowRank, lora_change, merged, summed
from refbias.errors import RefbiasError
from refbias.models import Model, find_model

IDS = torch.tensor([[5, 9, 30, 41, 7]])


def write_adapter(reference: Model, folder: Path, seed: int) -> Path:
    """A LoRA adapter with random weights on the upper half of the blocks, saved by peft."""
    from peft import LoraConfig, get_peft_model

    from refbias.checkpoints.training import linear_modules

    with reference.open_causal() as loaded:
        names = linear_modules(loaded, 2)
        config = LoraConfig(r=3, lora_alpha=6, target_modules=list(names), fan_in_fan_out=any(names.values()))
        adapted = get_peft_model(loaded.causal, config)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_" in name:
                    parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
        adapted.save_pretrained(folder, save_embedding_layers=False)
        adapted.unload()
    return folder


def peft_logits(model_folder: Path, adapter: Path) -> torch.Tensor:
    """What peft itself makes of the adapter."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    whole = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_folder), adapter).merge_and_unload()
    with torch.inference_mode():
        return whole.eval()(input_ids=IDS).logits


def logits(model: Model) -> torch.Tensor:
    with model.open_causal() as loaded, torch.inference_mode():
        return loaded.causal(input_ids=IDS).logits


@pytest.fixture
def changes(request: pytest.FixtureRequest, tiny: dict[str, Path], cache: Cache, tmp_path: Path) -> Sequence[LowRank]:
    reference = find_model(tiny[request.param], cache=cache)
    return [lora_change(write_adapter(reference, tmp_path / f"{seed}", seed), cache) for seed in (1, 2)]


@pytest.mark.parametrize(("family", "changes"), [("llama", "llama"), ("gpt2", "gpt2")], indirect=["changes"])
def test_the_ends_equal_the_adapters_merged_by_peft(
    family: str, changes: Sequence[LowRank], tiny: dict[str, Path], cache: Cache, tmp_path: Path
) -> None:
    reference = find_model(tiny[family], cache=cache)
    for ratio, folder in ((0.0, "1"), (1.0, "2")):
        model = merged(reference, "end", [(1 - ratio, changes[0]), (ratio, changes[1])], 2)
        expected = peft_logits(tiny[family], tmp_path / folder)
        assert torch.allclose(logits(model), expected, atol=1e-4)
        assert not torch.allclose(logits(model), logits(reference), atol=1e-2)


@pytest.mark.parametrize(("family", "changes"), [("llama", "llama"), ("gpt2", "gpt2")], indirect=["changes"])
def test_a_merge_is_the_dense_sum_rounded_once(
    family: str, changes: Sequence[LowRank], tiny: dict[str, Path], cache: Cache
) -> None:
    with find_model(tiny[family], cache=cache).open_causal() as loaded:
        parameters = {name: p.detach().numpy() for name, p in loaded.whole.named_parameters()}
        found = summed(loaded.whole, [(0.3, changes[0]), (0.7, changes[1])])
    one, other = (change.read() for change in changes)
    assert set(found) == set(one) == set(other)
    for name, weight in found.items():
        dense = parameters[name].astype(np.float64)
        for share, change in ((0.3, one), (0.7, other)):
            left, right = (factor.numpy() for factor in change[name])
            dense = dense + share * (left @ right)
        assert np.abs(weight.numpy() - dense).max() <= np.abs(dense).max() * 2**-23


@pytest.mark.parametrize("changes", ["llama"], indirect=True)
def test_leaving_a_merge_restores_every_bit(changes: Sequence[LowRank], tiny_llama: Path, cache: Cache) -> None:
    reference = find_model(tiny_llama, cache=cache)
    before = logits(reference)
    model = merged(reference, "half", [(0.5, changes[0]), (0.5, changes[1])], 2)
    assert not torch.equal(logits(model), before)
    assert torch.equal(logits(reference), before)


@pytest.mark.parametrize("changes", ["llama"], indirect=True)
def test_layers_below_the_first_changed_block_are_the_base_s(
    changes: Sequence[LowRank], tiny_llama: Path, cache: Cache
) -> None:
    reference = find_model(tiny_llama, cache=cache)
    model = merged(reference, "half", [(0.5, changes[0]), (0.5, changes[1])], 2)
    states = []
    for one in (reference, model):
        with one.open() as loaded, torch.inference_mode():
            states.append(loaded.model(input_ids=IDS, output_hidden_states=True).hidden_states)
    assert model.shared_below == 2
    assert [torch.equal(a, b) for a, b in zip(*states, strict=True)] == [True, True, True, False, False]


@pytest.mark.parametrize("changes", ["llama"], indirect=True)
def test_fingerprints_name_the_weights(changes: Sequence[LowRank], tiny_llama: Path, cache: Cache) -> None:
    reference = find_model(tiny_llama, cache=cache)
    assert merged(reference, "none", [(0.0, changes[0]), (0.0, changes[1])], 2) is reference

    def fingerprint(a: float, b: float) -> str:
        return merged(reference, "any", [(a, changes[0]), (b, changes[1])], 2).fingerprint

    assert fingerprint(0.3, 0.7) == fingerprint(0.3, 0.7)
    assert fingerprint(0.0, 1.0) == merged(reference, "other name", [(1.0, changes[1])], 2).fingerprint
    assert len({fingerprint(0.3, 0.7), fingerprint(0.7, 0.3), fingerprint(0, 1), fingerprint(1, 0)}) == 4


def test_a_change_of_weights_that_are_not_there(tiny_llama: Path, cache: Cache) -> None:
    change = LowRank("digest", lambda: {"model.layers.9.weight": (torch.zeros(2, 1), torch.zeros(1, 2))})
    model = merged(find_model(tiny_llama, cache=cache), "odd", [(1.0, change)], 0)
    with pytest.raises(RefbiasError, match=r"no weight 'model\.layers\.9\.weight'"), model.open():
        pass
