"""Which two checkpoints can be merged, and what is said of those that cannot."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from refbias.checkpoints.ends import Ends, find_ends, shared_below
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from tests.tiny_adapters import write_adapter
from tests.tiny_models import write_tiny

Change = Callable[[dict[str, torch.Tensor]], Any]


@pytest.fixture
def other(tiny: dict[str, Path], tmp_path: Path) -> Path:
    """A second Llama of one's own to spoil."""
    return Path(shutil.copytree(tiny["llama"], tmp_path / "other"))


def changed(folder: Path, change: Change) -> Path:
    weights = load_file(folder / "model.safetensors")
    save_file(change(weights) or weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def set_config(folder: Path, **settings: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))


def refused(start: Path, end: Path, context: Context, message: str) -> None:
    with pytest.raises(RefbiasError, match=message):
        find_ends(str(start), str(end), context)


def test_models_of_different_shapes(tiny: dict[str, Path], other: Path, context: Context) -> None:
    refused(tiny["llama"], tiny["gpt2"], context, "are models of different shapes: .*model_type 'llama' and 'gpt2'")
    set_config(other, rms_norm_eps=0.5)
    refused(tiny["llama"], other, context, "different shapes: rms_norm_eps 1e-06 and 0.5")


def test_an_architecture_that_is_not_known(tiny: dict[str, Path], other: Path, context: Context) -> None:
    set_config(other, model_type="own")
    refused(tiny["llama"], other, context, "other: transformers does not understand its configuration")


def test_settings_on_which_nothing_depends_may_differ(tiny: dict[str, Path], other: Path, context: Context) -> None:
    set_config(other, transformers_version="4.50.0", use_cache=False, attention_dropout=0.3, eos_token_id=3)
    assert find_ends(str(tiny["llama"]), str(other), context).notes == ()


def test_different_tokenizers(tiny: dict[str, Path], other: Path, context: Context) -> None:
    table = json.loads((other / "tokenizer.json").read_text())
    vocabulary = table["model"]["vocab"]
    token = next(t for t, number in vocabulary.items() if number == 100)
    second = next(t for t, number in vocabulary.items() if number == 101)
    vocabulary[token], vocabulary[second] = 101, 100
    (other / "tokenizer.json").write_text(json.dumps(table))
    refused(
        tiny["llama"],
        other,
        context,
        "different tokenizers: vocabularies of .* is number 100 in the first and number 101",
    )


def test_tokenizers_that_add_other_tokens(tiny: dict[str, Path], other: Path, context: Context) -> None:
    shutil.copy(tiny["bert"] / "tokenizer.json", other)
    refused(tiny["llama"], other, context, r"different tokenizers: post processor of tokenizer\.json")


def test_what_an_earlier_call_left_in_a_tokenizer_is_no_difference(
    tiny: dict[str, Path], other: Path, context: Context
) -> None:
    table = json.loads((other / "tokenizer.json").read_text())
    table["truncation"] = {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
    (other / "tokenizer.json").write_text(json.dumps(table))
    find_ends(str(tiny["llama"]), str(other), context)


def test_weights_that_one_of_both_lacks(tiny: dict[str, Path], other: Path, context: Context) -> None:
    changed(other, lambda weights: weights.update({"model.layers.0.mlp.extra": torch.zeros(3)}))
    refused(tiny["llama"], other, context, r"other has a weight 'model\.layers\.0\.mlp\.extra', and .*llama has none")
    refused(other, tiny["llama"], context, r"other has a weight 'model\.layers\.0\.mlp\.extra', and .*llama has none")


def test_weights_of_another_shape(tiny: dict[str, Path], other: Path, context: Context) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    changed(other, lambda weights: weights.update({name: weights[name][:-1].contiguous()}))
    refused(tiny["llama"], other, context, rf"'{name}' has shape \(48, 32\) in .*llama and \(47, 32\) in .*other")


def test_whole_numbers_must_be_equal(tiny: dict[str, Path], other: Path, tmp_path: Path, context: Context) -> None:
    one = Path(shutil.copytree(other, tmp_path / "one"))
    changed(one, lambda weights: weights.update({"steps": torch.tensor([3, 4])}))
    changed(other, lambda weights: weights.update({"steps": torch.tensor([3, 4])}))
    assert "steps" in find_ends(str(one), str(other), context).names
    changed(other, lambda weights: weights.update({"steps": torch.tensor([3, 5])}))
    refused(one, other, context, "'steps' holds whole numbers that differ between")


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"])
def test_buffers_that_every_release_computes_are_left_out(
    name: str, tiny: dict[str, Path], other: Path, context: Context
) -> None:
    changed(other, lambda weights: weights.update({name: torch.rand(4)}))
    for start, end in ((tiny["llama"], other), (other, tiny["llama"])):
        assert name not in find_ends(str(start), str(end), context).names


def test_a_mask_of_older_gpt2_files_is_no_bias(tiny: dict[str, Path], tmp_path: Path, context: Context) -> None:
    folder = Path(shutil.copytree(tiny["gpt2"], tmp_path / "other"))
    changed(folder, lambda weights: weights.update({"transformer.h.0.attn.bias": torch.ones(1, 1, 4, 4).bool()}))
    names = find_ends(str(tiny["gpt2"]), str(folder), context).names
    assert "transformer.h.0.attn.c_attn.bias" in names and "transformer.h.0.attn.bias" not in names


def test_files_that_leave_out_the_prefix(tiny: dict[str, Path], tmp_path: Path, context: Context) -> None:
    """As the hub's gpt2 does, and a model saved from it does not."""
    folder = Path(shutil.copytree(tiny["gpt2"], tmp_path / "other"))
    changed(folder, lambda weights: {name.removeprefix("transformer."): tensor for name, tensor in weights.items()})
    for start, end in ((tiny["gpt2"], folder), (folder, tiny["gpt2"])):
        assert len(find_ends(str(start), str(end), context).names) == 52


def test_a_head_that_is_saved_beside_the_embeddings_it_is_tied_to(
    tiny: dict[str, Path], other: Path, context: Context
) -> None:
    embeddings = "model.embed_tokens.weight"
    changed(other, lambda weights: weights.update({"lm_head.weight": weights[embeddings].clone()}))
    for start, end in ((tiny["llama"], other), (other, tiny["llama"])):
        assert "lm_head.weight" not in find_ends(str(start), str(end), context).names
    changed(other, lambda weights: weights.update({"lm_head.weight": 2 * weights[embeddings]}))
    for start, end in ((tiny["llama"], other), (other, tiny["llama"])):
        assert {"lm_head.weight", embeddings} <= {*find_ends(str(start), str(end), context).names}


def test_quantised_models(tiny: dict[str, Path], other: Path, context: Context) -> None:
    set_config(other, quantization_config={"quant_method": "gptq", "bits": 4})
    refused(tiny["llama"], other, context, "other is quantised .*save_pretrained")


def test_pickles(tiny: dict[str, Path], other: Path, context: Context) -> None:
    (other / "model.safetensors").rename(other / "pytorch_model.bin")
    refused(tiny["llama"], other, context, r"only as pickle \(pytorch_model\.bin\).*from_pretrained.*save_pretrained")


def test_what_is_no_model_folder(tiny: dict[str, Path], vector_models: tuple[Path, Path], context: Context) -> None:
    with pytest.raises(UsageError, match=r"The end of a merge is a model folder or .*: .*audited\.npz is arrays"):
        find_ends(str(tiny["llama"]), str(vector_models[1]), context)


def test_adapters_of_different_bases(tiny: dict[str, Path], other: Path, tmp_path: Path, context: Context) -> None:
    one = write_adapter(tiny["llama"], tmp_path / "one")
    two = write_adapter(write_tiny("llama", tmp_path / "base", seed=8), tmp_path / "two")
    refused(one, two, context, "one is an adapter of .*, and .*two is an adapter of .*of the same base")
    set_config(other, rms_norm_eps=0.5)
    refused(one, other, context, r"other is a full model: an adapter is merged .* task\.ratio=1")


def test_an_adapter_and_its_base_by_another_path(
    tiny: dict[str, Path], other: Path, tmp_path: Path, context: Context
) -> None:
    ends = find_ends(str(other), str(write_adapter(tiny["llama"], tmp_path / "one")), context)
    assert ends.linear and ends.base is not None
    assert [(c, len(change.read())) for c, change in ends.changes(0.3) or ()] == [(0.3, 12)]


@pytest.mark.parametrize(
    ("method", "options", "linear"),
    [
        ("LORA", {}, True),
        ("LORA", {"use_rslora": True}, True),
        ("LORA", {"use_dora": True}, False),
        ("LORA", {"modules_to_save": ["norm"]}, False),
        ("IA3", {}, False),
        ("HRA", {"r": 2, "target_modules": ["q_proj"]}, False),
    ],
)
def test_what_is_linear_in_the_change_of_weights(
    method: str, options: dict[str, Any], linear: bool, tiny: dict[str, Path], tmp_path: Path, context: Context
) -> None:
    one = write_adapter(tiny["llama"], tmp_path / "one", 1, method, **options)
    two = write_adapter(tiny["llama"], tmp_path / "two", 2)
    ends: Ends = find_ends(str(one), str(two), context)
    assert ends.linear == linear and (ends.changes(0.5) is not None) == linear
    assert any("is not linear in ΔW" in note for note in ends.notes) != linear
    assert any(note.startswith("peft merged") for note in ends.notes) == (method == "HRA")


NAMES = [
    "model.embed_tokens.weight", *(f"model.layers.{k}.mlp.up_proj.weight" for k in range(4)), "model.norm.weight",
    "lm_head.weight",
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "below"),
    [
        (["model.layers.2.mlp.up_proj.weight", "model.layers.3.mlp.up_proj.weight"], 2),
        (["model.layers.0.mlp.up_proj.weight"], 0),
        (["model.embed_tokens.weight"], None),
        (["model.layers.2.mlp.up_proj.weight", "model.rotary.weight"], None),
        (["model.norm.weight", "lm_head.weight"], 3),
        ([], 3),
    ],
)
def test_the_first_layer_that_a_change_reaches(changes: list[str], below: int | None) -> None:
    assert shared_below(changes, NAMES, 4) == below


def test_blocks_that_are_not_told_from_the_names() -> None:
    assert shared_below(["model.layers.3.w"], ["model.layers.3.w", "model.layers.4.w"], 4) is None
    assert shared_below([], ["encoder.albert_layers.0.w"], 1) is None
