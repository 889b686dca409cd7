"""Merges as folders: what lies in them, and that they appear whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from refbias.checkpoints import writing
from refbias.checkpoints.ends import find_ends
from refbias.checkpoints.writing import Written, write
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from refbias.models import find_model, weights
from refbias.models.weights import Files
from tests.tiny_adapters import write_adapter
from tests.tiny_models import write_tiny

IDS = torch.tensor([[1, 5, 9, 30, 41, 7]])


@pytest.fixture
def second(tiny: dict[str, Path], tmp_path: Path) -> Path:
    """A second Llama."""
    return write_tiny("llama", tmp_path / "second", seed=8)


def merged(start: Path, end: Path, out: Path, context: Context, ratio: float = 0.3, **options: Any) -> Written:
    return write(find_ends(str(start), str(end), context), ratio, out, **options)


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return set(one) == set(two) and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "gpt2", "sharded"])
def test_transformers_loads_the_folder_as_it_is(
    family: str, tiny: dict[str, Path], tmp_path: Path, context: Context
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    end, out = write_tiny(family, tmp_path / "end", seed=8), tmp_path / "deep" / "out"
    made = merged(tiny[family], end, out, context)
    model, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    ends = [AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (tiny[family], end)]
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, (0.7 * ends[0][name].double() + 0.3 * ends[1][name].double()).float())
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == (family in ("llama", "gemma3", "gpt2"))
    chat = [{"role": "user", "content": "Tea."}]
    ids = AutoTokenizer.from_pretrained(out).apply_chat_template(chat, return_dict=False)
    assert ids == AutoTokenizer.from_pretrained(tiny[family]).apply_chat_template(chat, return_dict=False)
    assert GenerationConfig.from_pretrained(out).to_dict() == GenerationConfig.from_pretrained(tiny[family]).to_dict()
    assert {p.name for p in out.glob("*.safetensors*")} == {p.name for p in tiny[family].glob("*.safetensors*")}
    tensors = stored(out)
    assert made == Written(len(tensors), sum(tensor.nbytes for tensor in tensors.values()), fresh=True)
    assert [p.name for p in out.parent.iterdir()] == ["out"]


def test_a_folder_tells_what_it_was_made_of(
    tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context
) -> None:
    merged(tiny["llama"], second, tmp_path / "out", context)
    recipe = json.loads((tmp_path / "out" / "refbias.json").read_text())
    assert (recipe["task"], recipe["ratio"], recipe["form"], recipe["dtype"]) == ("merge", 0.3, "dense", "auto")
    for role, folder in (("start", tiny["llama"]), ("end", second)):
        digest = find_model(folder, cache=context.cache).fingerprint
        assert recipe[role] == {"name": str(folder), "kind": "hf", "digest": digest}
    fingerprint = find_model(tmp_path / "out", cache=context.cache).fingerprint
    (tmp_path / "out" / "refbias.json").unlink()
    assert find_model(tmp_path / "out", cache=context.cache).fingerprint == fingerprint


def test_files_of_different_division(tiny: dict[str, Path], tmp_path: Path, context: Context) -> None:
    """The start's division is kept, whatever the end's is."""
    from transformers import AutoModelForCausalLM

    one = Path(shutil.copytree(tiny["sharded"], tmp_path / "one"))
    for file in one.glob("*.safetensors*"):
        file.unlink()
    AutoModelForCausalLM.from_pretrained(tiny["sharded"]).save_pretrained(one)
    two = write_tiny("sharded", tmp_path / "two", seed=8)
    merged(one, two, tmp_path / "whole", context)
    merged(tiny["sharded"], two, tmp_path / "divided", context)
    assert [p.name for p in (tmp_path / "whole").glob("*.safetensors*")] == ["model.safetensors"]
    assert len(list((tmp_path / "divided").glob("*.safetensors"))) == 22
    assert same(stored(tmp_path / "whole"), stored(tmp_path / "divided"))


def test_one_file_with_an_index(tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context) -> None:
    from transformers import AutoModelForCausalLM

    start = Path(shutil.copytree(tiny["llama"], tmp_path / "start"))
    only = "model-00001-of-00001.safetensors"
    (start / "model.safetensors").rename(start / only)
    listed = {"metadata": {}, "weight_map": dict.fromkeys(stored(start), only)}
    (start / "model.safetensors.index.json").write_text(json.dumps(listed))
    merged(start, second, tmp_path / "out", context)
    _, info = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]


def test_different_dtypes_give_the_wider_one(
    tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context
) -> None:
    for dtype, wider in (("bfloat16", "float32"), ("float16", "float32")):
        end = Path(shutil.copytree(second, tmp_path / dtype))
        tensors = {name: t.to(getattr(torch, dtype)) for name, t in load_file(second / "model.safetensors").items()}
        save_file(tensors, end / "model.safetensors", {"format": "pt"})
        for start, other, ratio in ((tiny["llama"], end, 1.0), (end, tiny["llama"], 0.0)):
            out = tmp_path / f"{dtype}-{ratio}"
            merged(start, other, out, context, ratio)
            assert same(stored(out), {name: tensor.to(getattr(torch, wider)) for name, tensor in tensors.items()})
            assert json.loads((out / "config.json").read_text())["dtype"] == wider
    half = [tmp_path / "bfloat16", tmp_path / "float16"]
    merged(*half, tmp_path / "both", context)
    assert {tensor.dtype for tensor in stored(tmp_path / "both").values()} == {torch.float32}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_dtype_that_is_asked_for(
    dtype: str, tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context
) -> None:
    merged(tiny["llama"], second, tmp_path / "out", context, dtype=dtype)
    one, two = stored(tiny["llama"]), stored(second)
    for name, tensor in stored(tmp_path / "out").items():
        wanted = weights.rounded(0.7 * one[name].double() + 0.3 * two[name].double(), getattr(torch, dtype))
        assert torch.equal(tensor, wanted)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == dtype


def test_numbers_that_float16_does_not_hold(
    tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context
) -> None:
    tensors = load_file(second / "model.safetensors")
    tensors["model.norm.weight"][3] = 1e6
    save_file(tensors, second / "model.safetensors", {"format": "pt"})
    with pytest.raises(RefbiasError, match=r"'model\.norm\.weight' becomes too large for float16"):
        merged(tiny["llama"], second, tmp_path / "out", context, dtype="float16")
    assert not (tmp_path / "out").exists()


def test_whole_numbers_are_carried_over(tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context) -> None:
    one = Path(shutil.copytree(tiny["llama"], tmp_path / "one"))
    more = {"steps": torch.tensor([3, 4]), "mask": torch.tensor([True, False, True]), "count": torch.tensor(7)}
    for folder in (one, second):
        save_file(load_file(folder / "model.safetensors") | more, folder / "model.safetensors", {"format": "pt"})
    merged(one, second, tmp_path / "out", context)
    found = stored(tmp_path / "out")
    assert all(torch.equal(found[name], tensor) for name, tensor in more.items())
    with find_model(tmp_path / "out", cache=context.cache).open():
        pass


@pytest.mark.parametrize(("value", "message"), [(float("nan"), "NaN or infinity"), (float("inf"), "NaN or infinity")])
def test_a_weight_that_is_no_number(
    value: float, message: str, tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context
) -> None:
    tensors = load_file(second / "model.safetensors")
    tensors["model.layers.3.mlp.up_proj.weight"][7, 2] = value
    save_file(tensors, second / "model.safetensors", {"format": "pt"})
    with pytest.raises(RefbiasError, match=rf"'model\.layers\.3\.mlp\.up_proj\.weight' of .*second holds {message}"):
        merged(tiny["llama"], second, tmp_path / "out", context)
    assert [p.name for p in tmp_path.iterdir()] == ["second"]
    merged(tiny["llama"], second, tmp_path / "out", context, ratio=0.0)  # it is not read where its share is 0
    assert same(stored(tmp_path / "out"), stored(tiny["llama"]))


def test_no_more_than_a_piece_is_read_at_once(
    tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = Files.read
    ends = find_ends(
        str(tiny["llama"]), str(write_adapter(tiny["llama"], tmp_path / "adapter", use_dora=True)), context
    )

    def read(self: Files, *given: Any) -> torch.Tensor:
        sizes.append(real(self, *given).numel())
        return real(self, *given)

    monkeypatch.setattr(weights, "PIECE", 100)
    monkeypatch.setattr(Files, "read", read)
    merged(tiny["llama"], second, tmp_path / "out", context)
    write(ends, 0.3, tmp_path / "adapted")
    assert max(sizes) == 100 - 100 % 32
    assert len(sizes) > 2 * sum(tensor.numel() for tensor in stored(tmp_path / "out").values()) / 100


# Adapters


def test_two_adapters_become_one_of_both_ranks(tiny: dict[str, Path], tmp_path: Path, context: Context) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    one = write_adapter(tiny["llama"], tmp_path / "one", 1, use_rslora=True)
    two = write_adapter(tiny["llama"], tmp_path / "two", 2, r=3, target_modules=["q_proj", "o_proj"])
    made = merged(one, two, tmp_path / "adapter", context, form="adapter")
    merged(one, two, tmp_path / "dense", context, form="dense")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], set(config["rank_pattern"].values())) == (2, {5, 3})
    assert made.tensors == len(stored(tmp_path / "adapter")) == 2 * 4 * 4
    by_peft = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tiny["llama"]), tmp_path / "adapter"
    ).eval()
    with find_model(tmp_path / "dense", cache=context.cache).open_causal() as loaded, torch.inference_mode():
        wanted = loaded.causal(IDS).logits
        torch.testing.assert_close(by_peft(IDS).logits, wanted, rtol=2e-4, atol=2e-4)
        dense = {name: tensor.clone() for name, tensor in loaded.whole.state_dict().items()}
    with find_model(tmp_path / "adapter", cache=context.cache).open_causal() as loaded:
        for name, tensor in loaded.whole.state_dict().items():
            # B, which holds the coefficients, is rounded to float32
            torch.testing.assert_close(tensor, dense[name], rtol=1e-6, atol=1e-7)


def test_an_adapter_of_transposed_weights_with_its_base(
    tiny: dict[str, Path], tmp_path: Path, context: Context
) -> None:
    adapter = write_adapter(tiny["gpt2"], tmp_path / "one", 1, family="gpt2")
    merged(tiny["gpt2"], adapter, tmp_path / "adapter", context, form="adapter")
    merged(tiny["gpt2"], adapter, tmp_path / "dense", context)
    found = []
    for folder in ("adapter", "dense"):
        with find_model(tmp_path / folder, cache=context.cache).open_causal() as loaded, torch.inference_mode():
            found.append(loaded.causal(IDS).logits)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_a_base_beside_the_adapter_is_found_from_elsewhere(
    tiny: dict[str, Path], tmp_path: Path, context: Context
) -> None:
    base = Path(shutil.copytree(tiny["llama"], tmp_path / "base"))
    folders = [write_adapter(base, tmp_path / name, seed) for seed, name in ((1, "one"), (2, "two"))]
    for folder in folders:
        config = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "../base"}))
    merged(folders[0], folders[1], tmp_path / "far" / "away" / "adapter", context, form="adapter")
    model = find_model(tmp_path / "far" / "away" / "adapter", cache=context.cache)
    assert model.base.folder == base.resolve()


@pytest.mark.parametrize(
    ("options", "ratio", "message"),
    [
        (None, 0.5, r"task\.form=adapter writes merges of plain LoRA adapters: .* Use task\.form=dense"),
        ({"use_dora": True}, 0.5, r"task\.form=adapter writes merges of plain LoRA adapters"),
        ({"target_modules": ["q_proj", "lm_head"]}, 0.5, r"writes no adapter of the embeddings \('lm_head\.weight'\)"),
        ({}, 0.0, r"task\.ratio=0 gives the base itself"),
    ],
)
def test_what_is_no_adapter(
    options: dict[str, Any] | None,
    ratio: float,
    message: str,
    tiny: dict[str, Path],
    second: Path,
    tmp_path: Path,
    context: Context,
) -> None:
    end = second if options is None else write_adapter(tiny["llama"], tmp_path / "end", **options)
    with pytest.raises(UsageError, match=message):
        merged(tiny["llama"], end, tmp_path / "out", context, ratio, form="adapter")
    assert not (tmp_path / "out").exists()


# Whole or not at all


def test_a_merge_that_is_there_is_not_written_again(
    tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context
) -> None:
    out = tmp_path / "out"
    out.mkdir()  # an empty folder is as good as none
    first = merged(tiny["llama"], second, out, context)
    before = {file.name: file.stat().st_mtime_ns for file in out.iterdir()}
    again = merged(tiny["llama"], second, out, context)
    assert again == Written(first.tensors, first.size, fresh=False)
    assert before == {file.name: file.stat().st_mtime_ns for file in out.iterdir()}
    with pytest.raises(UsageError, match=r"out holds something else already"):
        merged(tiny["llama"], second, out, context, ratio=0.4)
    with pytest.raises(UsageError, match=r"second holds something else already"):
        merged(tiny["llama"], second, second, context)


SLOWLY = """
import sys, time
from refbias.cache import Cache
from refbias.checkpoints.ends import find_ends
from refbias.checkpoints.writing import write
from refbias.context import Context
from refbias.models.blend import Blend
start, end, out, cache, seconds = sys.argv[1:]
real = Blend.form
Blend.form = lambda self, *given: (time.sleep(float(seconds)), real(self, *given))[1]
write(find_ends(start, end, Context(Cache(cache))), 0.3, __import__("pathlib").Path(out))
"""


@pytest.fixture
def slow(tiny: dict[str, Path], tmp_path: Path) -> Iterator[Any]:
    """Starts a process that writes a merge of two models in several files, one piece in a while."""
    started: list[subprocess.Popen[bytes]] = []
    end = write_tiny("sharded", tmp_path / "end", seed=8)

    def start(seconds: float) -> tuple[subprocess.Popen[bytes], Path, tuple[Path, Path]]:
        out = tmp_path / "made" / "out"
        words = [tiny["sharded"], end, out, tmp_path / "cache", seconds]
        started.append(subprocess.Popen([sys.executable, "-c", SLOWLY, *map(str, words)]))
        unfinished = out.with_name(".out.unfinished")
        until = time.monotonic() + 60
        while not list(unfinished.glob("model-00003-*")):
            assert started[-1].poll() is None and time.monotonic() < until
            time.sleep(0.01)
        return started[-1], out, (tiny["sharded"], end)

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_kill_leaves_nothing_that_looks_whole(slow: Any, tmp_path: Path, context: Context) -> None:
    process, out, ends = slow(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists() and out.with_name(".out.unfinished").is_dir()
    with pytest.raises(RefbiasError, match="there is no such file or folder"):
        find_model(out, cache=context.cache)
    merged(*ends, out, context)
    assert [file.name for file in out.parent.iterdir()] == ["out"]  # what was left over is gone
    merged(*ends, tmp_path / "at once", context)
    assert same(stored(out), stored(tmp_path / "at once"))
    assert {f.name for f in out.iterdir()} == {f.name for f in (tmp_path / "at once").iterdir()}


def test_two_processes_do_not_write_one_folder(slow: Any, context: Context) -> None:
    process, out, ends = slow(0.2)
    with pytest.raises(RefbiasError, match="Another process is writing"):
        merged(*ends, out, context)
    assert process.poll() is None and out.with_name(".out.unfinished").is_dir()


@pytest.mark.parametrize("where", ["reserving", "writing", "before"])
def test_a_full_disk_is_said_once_and_leaves_nothing(
    where: str, tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    ends = find_ends(str(tiny["llama"]), str(second), context)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    message = r"out cannot be written: (No space left on device|File too large)\. Nothing of it was kept"
    if where == "before":
        monkeypatch.setattr(writing.shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(100, 90, 10))
        message = r"has 0 MiB of free space, and the merge takes 0"
    elif where == "reserving":
        monkeypatch.setattr(writing.os, "posix_fallocate", full)
    else:
        monkeypatch.delattr(writing.os, "posix_fallocate")
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))
    try:
        with pytest.raises(RefbiasError, match=message):
            write(ends, 0.3, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert [p.name for p in tmp_path.iterdir()] == ["second"]


def test_a_place_that_cannot_be_written(tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RefbiasError, match=r"out cannot be written: .*(exists|Not a directory)"):
        merged(tiny["llama"], second, tmp_path / "file" / "out", context)


def test_ends_that_change_while_they_are_merged(
    tiny: dict[str, Path], second: Path, tmp_path: Path, context: Context
) -> None:
    ends = find_ends(str(tiny["llama"]), str(second), context)
    os.utime(second / "model.safetensors", ns=(1, 1))
    with pytest.raises(RefbiasError, match=r"second changed while it was read"):
        write(ends, 0.3, tmp_path / "out")
    assert not (tmp_path / "out").exists()
