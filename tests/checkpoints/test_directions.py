"""What an adapter writes, against the change of the hidden states that it makes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from refbias.checkpoints.directions import Directions, factors_of, place, through_norm
from refbias.checkpoints.merging import LowRank, merged
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from refbias.models import Model, find_model
from refbias.types import Array
from tests.checkpoints.test_merging import write_adapter

IDS = torch.tensor([[5, 9, 30, 41, 7]])
WRITING = {
    "llama": ("model.layers.2.self_attn.o_proj.weight", "model.layers.3.mlp.down_proj.weight"),
    "gpt2": ("transformer.h.2.attn.c_proj.weight", "transformer.h.3.mlp.c_proj.weight"),
    "gemma3": ("model.layers.2.self_attn.o_proj.weight", "model.layers.3.mlp.down_proj.weight"),
}


def small_change(model: Model, weights: tuple[str, ...], seed: int = 0, scale: float = 3e-4) -> LowRank:
    """A change of rank 2 of each weight, so small that states change about in proportion to it."""
    generator = torch.Generator().manual_seed(seed)
    with model.open() as loaded:
        sizes = {name: tuple(dict(loaded.whole.named_parameters())[name].shape) for name in weights}
    change = {
        name: (
            scale * torch.randn(rows, 2, generator=generator, dtype=torch.float64),
            torch.randn(2, columns, generator=generator, dtype=torch.float64),
        )
        for name, (rows, columns) in sizes.items()
    }
    return LowRank(f"{weights} {seed} {scale}", lambda: change)


def last_states(model: Model) -> tuple[Array, Array, Array]:
    """States (t, d) behind the last block, behind the final norm, and what the last block's own output norm gives."""
    seen: dict[str, torch.Tensor] = {}
    with model.open("cpu", "float64") as loaded, torch.inference_mode():
        block = next(m for m in loaded.model.modules() if isinstance(m, torch.nn.ModuleList))[-1]
        hooks = [
            module.register_forward_hook(lambda module, args, output, key=key: seen.__setitem__(key, output))
            for key, module in (("block", block), ("added", getattr(block, "post_feedforward_layernorm", block)))
        ]
        after = loaded.model(input_ids=IDS).last_hidden_state
        for hook in hooks:
            hook.remove()
    before, added = (v[0] if isinstance(v, tuple) else v for v in (seen["block"], seen["added"]))
    return before[0].numpy(), after[0].numpy(), added[0].numpy()


def outside(changes: Array, *spans: Array) -> float:
    """Largest part of a row of ``changes`` (t, d) that is no combination of ``spans``, arrays (n, d) or (t, 1, d)."""
    found = []
    for i, change in enumerate(changes):
        span = np.vstack([s if s.ndim == 2 else s[i] for s in spans]).T
        left = change - span @ np.linalg.lstsq(span, change, rcond=None)[0]
        found.append(np.linalg.norm(left) / np.linalg.norm(change))
    return max(found)


@pytest.mark.parametrize("family", WRITING)
def test_what_a_block_adds_lies_in_the_directions(family: str, tiny: dict[str, Path], context: Context) -> None:
    reference = find_model(tiny[family], cache=context.cache)
    model = merged(reference, "small", [(1.0, small_change(reference, WRITING[family][1:]))], 3)
    directions = Directions(reference, "pre_norm", Context(context.cache, "cpu", "float64")).of(model, 4)
    assert directions.shape == (2, 32)
    np.testing.assert_allclose(directions @ directions.T, np.eye(2), atol=1e-12)
    (before, _, added), (after, _, _) = last_states(reference), last_states(model)
    # Gemma norms what a block adds, which also shortens it along itself
    own = [added[:, None]] if family == "gemma3" else []
    assert outside(after - before, directions, *own) < 5e-3
    assert outside(after - before, np.eye(32)[:2], *own) > 0.5


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_behind_the_final_norm_they_are_what_it_makes_of_them(
    family: str, tiny: dict[str, Path], context: Context
) -> None:
    reference = find_model(tiny[family], cache=context.cache)
    model = merged(reference, "small", [(1.0, small_change(reference, WRITING[family][1:]))], 3)
    of = {
        site: Directions(reference, site, Context(context.cache, "cpu", "float64")).of(model, 4)
        for site in ("post_norm", "pre_norm")
    }
    (_, before, _), (_, after, _) = last_states(reference), last_states(model)
    with reference.open("cpu", "float64") as loaded:
        bias = loaded.model.ln_f.bias.detach().numpy() if family == "gpt2" else np.zeros(32)
    own = (before - bias)[:, None]  # the norm shortens the state itself
    assert outside(after - before, of["post_norm"], own) < 5e-3
    assert outside(after - before, of["pre_norm"], own) > 0.1


@pytest.mark.parametrize("kind", ["rms", "layer", "gemma"])
def test_through_a_norm_is_its_derivative_but_for_the_input_itself(kind: str) -> None:
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    norm = {"rms": LlamaRMSNorm, "layer": torch.nn.LayerNorm, "gemma": Gemma3RMSNorm}[kind](12).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(12, generator=generator))
    x, u = (torch.randn(1, 1, 12, generator=generator, dtype=torch.float64) for _ in range(2))
    derivative = torch.func.jvp(norm, (x,), (u,))[1].view(12).detach().numpy()
    with torch.no_grad():
        own = (norm(x) - (norm.bias if kind == "layer" else 0)).view(12).numpy()
    mapped = through_norm(norm, 12)(u.view(12, 1).numpy())[:, 0]
    assert outside(derivative[None], np.stack([mapped, own])) < 1e-6
    assert outside(derivative[None], np.stack([u.view(12).numpy(), own])) > 0.05


def test_lower_blocks_are_taken_together_and_higher_ones_left_out(tiny_llama: Path, context: Context) -> None:
    reference = find_model(tiny_llama, cache=context.cache)
    change = small_change(reference, WRITING["llama"])
    model = merged(reference, "two", [(1.0, change)], 2)
    directions = Directions(reference, "post_norm", context)
    assert directions.of(model, 3).shape == (2, 32)
    assert directions.of(model, 4).shape == (4, 32)
    left, _ = change.read()["model.layers.2.self_attn.o_proj.weight"]
    assert outside(left.numpy().T, directions.of(model, 3)) < 1e-9


def test_a_merge_writes_what_both_adapters_write(tiny_llama: Path, context: Context) -> None:
    reference = find_model(tiny_llama, cache=context.cache)
    one, other = (small_change(reference, WRITING["llama"][i : i + 1], seed=i) for i in (0, 1))
    model = merged(reference, "both", [(0.5, one), (-2.0, other)], 2)
    directions = Directions(reference, "pre_norm", context)
    assert directions.of(model, 4).shape == (4, 32)
    # the stronger one comes first
    written = other.read()["model.layers.3.mlp.down_proj.weight"][0].numpy().T
    assert outside(directions.of(model, 4)[:2], written) < outside(directions.of(model, 4)[2:], written)


def test_an_untouched_model_has_every_direction_and_no_change(tiny_llama: Path, context: Context) -> None:
    reference = find_model(tiny_llama, cache=context.cache)
    directions = Directions(reference, "post_norm", context)
    directions.check(reference, 1)
    np.testing.assert_array_equal(directions.of(reference, 4), np.eye(32))


def test_a_model_without_an_adapter_is_refused(tiny: dict[str, Path], context: Context) -> None:
    reference, other = (find_model(tiny[family], cache=context.cache) for family in ("llama", "mistral"))
    for refused in (
        lambda: factors_of(other, context.cache),
        lambda: Directions(reference, "post_norm", context).check(other, 4),
    ):
        with pytest.raises(UsageError, match=r"neither a LoRA adapter nor a merge.*geometry=relative"):
            refused()


def test_an_adapter_that_is_more_than_lora_is_refused(tiny_llama: Path, context: Context, tmp_path: Path) -> None:
    folder = write_adapter(find_model(tiny_llama, cache=context.cache), tmp_path / "adapter", 1)
    model = find_model(folder, cache=context.cache)
    assert "model.layers.2.mlp.down_proj.weight" in factors_of(model, context.cache)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "use_dora": True}))
    with pytest.raises(UsageError, match=r"needs plain LoRA, and .* is more"):
        factors_of(find_model(folder, cache=context.cache), context.cache)


def test_a_layer_into_which_nothing_writes_is_refused(tiny_llama: Path, context: Context) -> None:
    reference = find_model(tiny_llama, cache=context.cache)
    model = merged(reference, "top", [(1.0, small_change(reference, WRITING["llama"][1:]))], 3)
    directions = Directions(reference, "post_norm", context)
    directions.check(model, 4)
    with pytest.raises(RefbiasError, match="no module that writes into layer 3"):
        directions.check(model, 3)


@pytest.mark.parametrize(
    ("weight", "block", "module", "writes"),
    [
        ("model.layers.14.mlp.down_proj.weight", 14, "mlp.down_proj", True),
        ("transformer.h.3.attn.c_proj.weight", 3, "attn.c_proj", True),
        ("gpt_neox.layers.2.mlp.dense_4h_to_h.weight", 2, "mlp.dense_4h_to_h", True),
        ("model.layers.0.self_attn.q_proj.weight", 0, "self_attn.q_proj", False),
    ],
)
def test_places(weight: str, block: int, module: str, writes: bool) -> None:
    found = place(weight)
    assert found is not None
    assert (found.block, found.module, found.writes) == (block, module, writes)
    assert place("lm_head.weight") is None
