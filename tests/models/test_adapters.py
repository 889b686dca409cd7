"""What adapters do to weights, against peft's own forward pass with the adapter not merged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from refbias.cache import Cache
from refbias.checkpoints.merging import lora_change, merged
from refbias.errors import RefbiasError
from refbias.models import Model, find_model
from refbias.models.weights import rounded
from tests.tiny_adapters import adapter_on, write_adapter

IDS = torch.tensor([[1, 5, 9, 30, 41, 7]])

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("LORA", {}),
    "rank-stabilised": ("LORA", {"r": 4, "use_rslora": True}),
    "dora": ("LORA", {"use_dora": True}),
    "ia3": ("IA3", {}),
    "patterns": ("LORA", {"rank_pattern": {"1.mlp.down_proj": 3}, "alpha_pattern": {"q_proj": 7}}),
    "modules to save": ("LORA", {"modules_to_save": ["norm"]}),
    "own head": ("LORA", {"modules_to_save": ["lm_head"]}),
    "own embeddings": ("LORA", {"modules_to_save": ["embed_tokens"]}),
    "lora on the head": ("LORA", {"target_modules": ["q_proj", "lm_head"]}),
    "lora on the embeddings": ("LORA", {"target_modules": ["q_proj", "embed_tokens"]}),
}


def states(model: Model, ids: torch.Tensor = IDS) -> tuple[torch.Tensor, ...]:
    with model.open_causal() as loaded, torch.inference_mode():
        output = loaded.causal(input_ids=ids, output_hidden_states=True)
    return (*output.hidden_states, output.logits)


def of_peft(adapted: Any, ids: torch.Tensor = IDS) -> tuple[torch.Tensor, ...]:
    with torch.inference_mode():
        output = adapted(input_ids=ids, output_hidden_states=True)
    return (*output.hidden_states, output.logits)


def compare(found: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...], base: tuple[torch.Tensor, ...]) -> None:
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=2e-4, atol=2e-4)
    assert not torch.allclose(found[-1], base[-1], atol=1e-2)  # the adapter does something


@pytest.mark.parametrize("case", METHODS)
@pytest.mark.parametrize("family", ["llama", "sharded"])  # tied and not
def test_an_adapter_is_what_peft_makes_of_it(
    case: str, family: str, tiny: dict[str, Path], tmp_path: Path, cache: Cache
) -> None:
    method, options = METHODS[case]
    folder = write_adapter(tiny[family], tmp_path / "adapter", 1, method, **options)
    adapted = adapter_on(tiny[family], 1, method, **options)
    compare(states(find_model(folder, cache=cache)), of_peft(adapted), states(find_model(tiny[family], cache=cache)))


@pytest.mark.parametrize("case", ["lora", "rank-stabilised", "dora", "ia3"])
def test_weights_that_are_stored_transposed(case: str, tiny: dict[str, Path], tmp_path: Path, cache: Cache) -> None:
    method, options = METHODS[case]
    folder = write_adapter(tiny["gpt2"], tmp_path / "adapter", 1, method, "gpt2", **options)
    adapted = adapter_on(tiny["gpt2"], 1, method, "gpt2", **options)
    compare(states(find_model(folder, cache=cache)), of_peft(adapted), states(find_model(tiny["gpt2"], cache=cache)))


def test_no_weight_of_an_adapter_is_formed_by_peft(
    tiny: dict[str, Path], tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    import peft

    monkeypatch.setattr(peft.PeftModel, "from_pretrained", None)
    for case in ("lora", "dora", "ia3", "own head"):
        method, options = METHODS[case]
        states(find_model(write_adapter(tiny["llama"], tmp_path / case, 1, method, **options), cache=cache))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_adapter_is_the_exact_sum_bit_for_bit(
    family: str, dtype: str, tiny: dict[str, Path], tmp_path: Path, cache: Cache
) -> None:
    """What `refbias.checkpoints.merging` makes of a plain LoRA, and one rounding of the dense sum."""
    adapter = write_adapter(tiny[family], tmp_path / "adapter", family=family)
    base = find_model(tiny[family], cache=cache)
    with base.open(dtype="float32") as loaded:
        before = {name: weight.double() for name, weight in loaded.whole.state_dict().items()}
    change = lora_change(adapter, cache)
    with find_model(adapter, cache=cache).open(dtype=dtype) as loaded:
        found = {name: weight.clone() for name, weight in loaded.whole.state_dict().items()}
    if dtype == "float32":
        with merged(base, "sum", [(1.0, change)], 0).open(dtype=dtype) as loaded:
            assert all(torch.equal(found[name], weight) for name, weight in loaded.whole.state_dict().items())
    for name, (left, right) in change.read().items():
        assert torch.equal(found[name], rounded(before[name] + left @ right, getattr(torch, dtype)))


def grown(tokens: int) -> Any:
    return lambda model: model.resize_token_embeddings(tokens, mean_resizing=False)


@pytest.mark.filterwarnings("ignore:Unsupported layer type")
@pytest.mark.parametrize("family", ["llama", "sharded"])
@pytest.mark.parametrize("method", ["LORA", "IA3", "LN_TUNING"])
def test_a_vocabulary_that_has_grown(
    family: str, method: str, tiny: dict[str, Path], tmp_path: Path, cache: Cache
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny[family])
    size = len(tokenizer)
    tokenizer.add_tokens(["<new>", "<other>"])
    prepare = grown(size + 2)
    options = {} if method != "LN_TUNING" else {"target_modules": ["input_layernorm"]}
    torch.manual_seed(5)  # of the new rows
    folder = write_adapter(tiny[family], tmp_path / "adapter", 1, method, prepare=prepare, **options)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(5)
    adapted = adapter_on(tiny[family], 1, method, prepare=prepare, **options)
    model = find_model(folder, cache=cache)
    ids = torch.tensor([[5, size, size + 1, 7]])
    for one, two in zip(states(model, ids), of_peft(adapted, ids), strict=True):
        torch.testing.assert_close(one, two, rtol=2e-4, atol=2e-4)
    with model.open() as loaded:
        assert loaded.tokenizer("<new>", add_special_tokens=False)["input_ids"] == [size]
        head, embeddings = loaded.whole.lm_head.weight, loaded.whole.get_input_embeddings().weight
        assert (head is embeddings) == (family == "llama")


def test_new_tokens_without_embeddings(tiny: dict[str, Path], tmp_path: Path, cache: Cache) -> None:
    from transformers import AutoTokenizer

    folder = write_adapter(tiny["llama"], tmp_path / "adapter")
    tokenizer = AutoTokenizer.from_pretrained(tiny["llama"])
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(folder)
    message = r"tokenizer of \d+ tokens, and its base .* \d+ embeddings.*save_embedding_layers=True"
    with pytest.raises(RefbiasError, match=message), find_model(folder, cache=cache).open():
        pass


def test_a_vocabulary_that_has_grown_on_one_side(tiny: dict[str, Path], tmp_path: Path, cache: Cache) -> None:
    from safetensors.torch import load_file, save_file

    folder = write_adapter(tiny["sharded"], tmp_path / "adapter", prepare=grown(300))
    file = folder / "adapter_model.safetensors"
    tensors = {name: tensor for name, tensor in load_file(file).items() if "lm_head" not in name}
    save_file(tensors, file)
    message = r"has a vocabulary of 300, and saved no 'lm_head\.weight' for it"
    with pytest.raises(RefbiasError, match=message), find_model(folder, cache=cache).open():
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("lora_B", r"is damaged: of its change of 'model\.layers\.\d\..*' a part is missing"),
        ("shape", r"does not fit its base: it changes 'model\.layers\.\d\.mlp\.down_proj\.weight' as if it had shape"),
        ("name", r"does not fit its base: it changes 'model\.layers\.9\..*', which the base does not have"),
    ],
)
def test_adapters_that_do_not_fit(
    change: str, message: str, tiny: dict[str, Path], tmp_path: Path, cache: Cache
) -> None:
    from safetensors.torch import load_file, save_file

    folder = write_adapter(tiny["llama"], tmp_path / "adapter")
    tensors = load_file(folder / "adapter_model.safetensors")
    if change == "lora_B":
        del tensors[next(name for name in tensors if "lora_B" in name)]
    if change == "shape":
        name = next(name for name in tensors if "down_proj.lora_A" in name)
        tensors[name] = tensors[name][:, :-1].contiguous()
    if change == "name":
        tensors = {name.replace("layers.3.", "layers.9."): tensor for name, tensor in tensors.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    with pytest.raises(RefbiasError, match=message), find_model(folder, cache=cache).open():
        pass


@pytest.mark.parametrize("start", ["pissa", "olora"])
def test_adapters_that_change_their_base_are_left_to_peft(
    start: str, tiny: dict[str, Path], tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a start subtracts from the base's weights what the factors begin with."""
    import peft

    folder = write_adapter(tiny["llama"], tmp_path / "adapter")
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "init_lora_weights": start}))
    asked: list[Path] = []
    real = peft.PeftModel.from_pretrained
    monkeypatch.setattr(
        peft.PeftModel,
        "from_pretrained",
        lambda model, path, **options: (asked.append(path), real(model, path, **options))[1],
    )
    with find_model(folder, cache=cache).open():
        pass
    assert asked == [folder]
    with pytest.raises(RefbiasError, match="is no plain LoRA"):
        lora_change(folder, cache)


def test_an_adapter_of_a_base_at_another_path(tiny: dict[str, Path], tmp_path: Path, cache: Cache) -> None:
    base = Path(shutil.copytree(tiny["llama"], tmp_path / "base"))
    folder = write_adapter(tiny["llama"], tmp_path / "adapter")
    config = json.loads((folder / "adapter_config.json").read_text())
    first = find_model(folder, cache=cache).fingerprint
    (folder / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "../base"}))
    model = find_model(folder, cache=cache)
    assert (
        model.base.folder.resolve() == base.resolve()
        and model.base.fingerprint == find_model(base, cache=cache).fingerprint
    )
    assert model.fingerprint != first  # its own file says another thing
