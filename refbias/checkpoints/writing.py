"""A merge as a folder that transformers, or peft, loads as it is: written piece by piece, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import filelock

from refbias.checkpoints.ends import End, Ends, base_of
from refbias.errors import RefbiasError, UsageError
from refbias.models.adapters import PREFIX
from refbias.models.blend import Blend, in_threads
from refbias.models.files import RECIPE, read_json
from refbias.models.hf import TOKENIZER_FILES, AdapterModel
from refbias.models.source import Piece
from refbias.models.weights import CODES
from refbias.provenance import version
from refbias.watch import Advance, Quiet, Watch

if TYPE_CHECKING:
    import torch

Form = Literal["dense", "adapter"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]

# what stands beside weights and configuration, and is taken from the start as it is
_BESIDE = (
    *TOKENIZER_FILES, "special_tokens_map.json", "added_tokens.json", "merges.txt", "chat_template.jinja",
    "chat_template.json", "generation_config.json", "preprocessor_config.json", "processor_config.json",
)  # fmt: skip
_MIB = 2**20


@dataclass(frozen=True)
class Written:
    """What lies in a folder: number of weights and bytes of them; ``fresh`` unless it lay there before."""

    tensors: int
    size: int
    fresh: bool


def recipe(ends: Ends, ratio: float, form: Form, dtype: Precision) -> dict[str, Any]:
    """The content of refbias.json: what a merge was made of."""
    base = ends.base
    return {
        "task": "merge",
        "ratio": ratio,
        "form": form,
        "dtype": dtype,
        "formula": "(1 - ratio) * start + ratio * end, formed in float64, each weight rounded once",
        "start": _parent(ends.start),
        "end": _parent(ends.end),
        "base": _parent(base) if base else None,
        "notes": list(ends.notes),
        "refbias": version("refbias"),
    }


def _parent(model: End) -> dict[str, str]:
    return {"name": model.name, "kind": model.kind, "digest": model.fingerprint}


def write(
    ends: Ends, ratio: float, out: Path, form: Form = "dense", dtype: Precision = "auto", watch: Watch | None = None
) -> Written:
    """Write the merge at ``ratio`` to the new folder ``out``; where it lies there already, nothing is done.

    ``form`` dense is a full model; adapter, for two LoRA adapters of one base, is one of the rank of both together,
    whose B holds the coefficients and is rounded once. ``dtype`` auto keeps that of the ends, the wider of two.
    Memory holds a few pieces of weights, whatever the size of the model. Raises `RefbiasError` for NaN, a full disk,
    and an ``out`` that holds something else.
    """
    told = recipe(ends, ratio, form, dtype)
    there = _there(out, told)
    if there is not None:
        return there
    with new_folder(out) as folder:
        make = _write_adapter if form == "adapter" else _write_dense
        written = make(ends, ratio, folder, dtype, watch or Quiet())
        ends.check_files()
        text = json.dumps({**told, "tensors": written.tensors, "bytes": written.size}, indent=1, ensure_ascii=False)
        (folder / RECIPE).write_text(text + "\n", encoding="utf-8")
    return written


def _there(out: Path, told: Mapping[str, Any]) -> Written | None:
    """The merge ``told`` where it lies in ``out``. Raises `UsageError` where something else does."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if (out / RECIPE).is_file():
        found = read_json(out / RECIPE)
        if all(found.get(key) == value for key, value in told.items() if key != "refbias"):
            return Written(found["tensors"], found["bytes"], fresh=False)
    raise UsageError(f"task.out={out} holds something else already. Remove it, or name another folder.")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which becomes ``out`` at the end of the block: whole, or not at all.

    It is a hidden one beside ``out`` meanwhile; what a killed process left of it is removed. Raises `RefbiasError`
    where it cannot be written, and where another process is at it.
    """
    making = out.with_name(f".{out.name}.unfinished")
    lock = filelock.FileLock(making.with_name(f"{making.name}.lock"))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise RefbiasError(f"Another process is writing {out}. Wait for it, or name another folder.") from None
    except OSError as error:
        raise _unwritable(out, error) from error
    try:
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        yield making
        with suppress(FileNotFoundError):
            out.rmdir()
        os.replace(making, out)
    except OSError as error:
        raise _unwritable(out, error) from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
        lock.release()
        with suppress(OSError):
            os.unlink(lock.lock_file)


def _unwritable(out: Path, error: OSError) -> RefbiasError:
    return RefbiasError(
        f"{out} cannot be written: {error.strerror or error}. Nothing of it was kept. Free some space, or name another "
        f"folder with task.out=DIR."
    )


# Full models ------------------------------------------------------------------------------------------------------


def _write_dense(ends: Ends, ratio: float, folder: Path, dtype: Precision, watch: Watch) -> Written:
    blend = ends.blend(ratio)
    shards = _shards(ends, blend, dtype)
    total = sum(tensor.size for shard in shards.values() for tensor in shard)
    _check_room(folder, total)
    with watch.progress("merging", max(1, total // _MIB), "MiB") as advance:
        for file, tensors in shards.items():
            write_shard(folder / file, tensors, blend, _by_mib(advance))
    if list(shards) != ["model.safetensors"]:
        listed = {tensor.called: file for file, tensors in shards.items() for tensor in tensors}
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(listed.items()))}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    _copy_beside(ends.start, folder)
    _write_config(ends, blend, shards, folder)
    return Written(sum(map(len, shards.values())), total, fresh=True)


@dataclass(frozen=True)
class Planned:
    """A tensor to be written: its name in the merge, what the file calls it, dtype and shape."""

    name: str
    called: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        count = 1
        for n in self.shape:
            count *= n
        return count * self.dtype.itemsize


def _shards(ends: Ends, blend: Blend, dtype: Precision) -> dict[str, list[Planned]]:
    """What is written to each file: the start's own division into files, by its own names."""
    import torch

    source = ends.sources[0]
    found: dict[str, list[Planned]] = {}
    for name in ends.names:
        own = blend.dtype(name)
        kept = dtype == "auto" or not own.is_floating_point
        called = source.file_name(name, name in blend.apart)
        planned = Planned(name, called, own if kept else getattr(torch, dtype), blend.shape(name))
        found.setdefault(source.stored(name).file.name, []).append(planned)
    # the widest numbers first, as safetensors does it: each then lies where its width divides the offset
    return {file: sorted(some, key=lambda tensor: -tensor.dtype.itemsize) for file, some in sorted(found.items())}


def write_shard(path: Path, tensors: Sequence[Planned], blend: Blend, done: Advance) -> None:
    """Write one safetensors file, piece by piece; ``done`` is told the bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        code = CODES[str(tensor.dtype).removeprefix("torch.")]
        header[tensor.called] = {"dtype": code, "shape": tensor.shape, "data_offsets": [end, end + tensor.size]}
        end += tensor.size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    dtypes = {tensor.name: tensor.dtype for tensor in tensors}

    def work(piece: Piece) -> torch.Tensor:
        return blend.form(piece, dtypes[piece.name])

    with path.open("wb") as file:
        _reserve(file, 8 + len(text) + end)
        file.write(len(text).to_bytes(8, "little") + text)
        for made in in_threads(work, blend.pieces(dtypes)):
            done(file.write(as_bytes(made)))


def as_bytes(tensor: torch.Tensor) -> memoryview:
    import torch

    return tensor.contiguous().view(-1).view(torch.uint8).numpy().data


def _reserve(file: BinaryIO, size: int) -> None:
    """Take the room on the disk at once, where the system can: a full disk shows before any work is done."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        import errno

        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise RefbiasError(
            f"{folder.parent} has {free / _MIB:,.0f} MiB of free space, and the merge takes {size / _MIB:,.0f}. Free "
            f"some, or name another folder with task.out=DIR."
        )


def _by_mib(advance: Advance) -> Advance:
    """Tells ``advance`` of whole MiB as bytes are done."""
    rest = 0

    def done(size: int) -> None:
        nonlocal rest
        whole, rest = divmod(rest + size, _MIB)
        if whole:
            advance(whole)

    return done


def _copy_beside(model: End, folder: Path) -> None:
    """Tokenizer, chat template and the like: the base's, and over them those that the adapter has of its own."""
    for place in (base_of(model).folder, model.folder):
        for name in _BESIDE:
            if (place / name).is_file():
                shutil.copyfile(place / name, folder / name)
        templates = place / "additional_chat_templates"
        if templates.is_dir():
            shutil.copytree(templates, folder / templates.name, dirs_exist_ok=True)


def _write_config(ends: Ends, blend: Blend, shards: Mapping[str, Sequence[Planned]], folder: Path) -> None:
    """The start's configuration with the dtype, the ties and the vocabulary of what was written."""
    config = read_json(base_of(ends.start).folder / "config.json")
    counts: Counter[str] = Counter()
    for tensor in (tensor for shard in shards.values() for tensor in shard if tensor.dtype.is_floating_point):
        counts[str(tensor.dtype).removeprefix("torch.")] += tensor.size
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        for key in ("dtype", "torch_dtype"):
            if key in part or (part is config and key == "torch_dtype" and "dtype" not in part):
                part[key] = counts.most_common(1)[0][0]
        if ends.sources[0].vocabulary is not None and "vocab_size" in part:
            part["vocab_size"] = ends.sources[0].vocabulary
        if ends.layout.tied and (part is config or "tie_word_embeddings" in part):
            part["tie_word_embeddings"] = not blend.apart
    (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# Adapters ---------------------------------------------------------------------------------------------------------


def _write_adapter(ends: Ends, ratio: float, folder: Path, dtype: Precision, watch: Watch) -> Written:
    """One adapter with the factors of both: A₁ over A₂, and B₁ beside B₂ times scaling and coefficient."""
    import torch
    from safetensors.torch import save_file

    adapter = next((end for end in (ends.start, ends.end) if isinstance(end, AdapterModel)), None)
    if adapter is None or not ends.linear:
        raise UsageError(
            f"task.form=adapter writes merges of plain LoRA adapters: {ends.start.name} and {ends.end.name} are not "
            f"both such. Use task.form=dense."
        )
    kept = torch.float32 if dtype == "auto" else getattr(torch, dtype)
    tensors: dict[str, torch.Tensor] = {}
    ranks = {}
    for name, (left, right) in _stacked(ends, ratio).items():
        a, b = (left.T, right.T) if name in ends.layout.transposed else (right, left)
        module = name.removesuffix(".weight")
        tensors[f"{PREFIX}{module}.lora_A.weight"] = a.to(kept).contiguous()
        tensors[f"{PREFIX}{module}.lora_B.weight"] = b.to(kept).contiguous()
        ranks[module] = len(a)
    if not tensors:
        raise UsageError(f"task.ratio={ratio:g} gives the base itself, which is no adapter. Use task.form=dense.")
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise RefbiasError(f"The adapters hold NaN or infinity, or numbers too large for {kept}. Train them again.")
    size = sum(tensor.nbytes for tensor in tensors.values())
    _check_room(folder, size)
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    config = _adapter_config(adapter, ranks, bool(ends.layout.transposed))
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if adapter.has_tokenizer:
        _copy_beside(adapter, folder)
    return Written(len(tensors), size, fresh=True)


def _stacked(ends: Ends, ratio: float) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Left and right factors of the whole change of each weight, with the ranks of both ends added up."""
    import torch

    changes = [(coefficient, change.read()) for coefficient, change in ends.changes(ratio) or ()]
    found = {}
    for name in dict.fromkeys(name for _, change in changes for name in change):
        if name in ends.layout.vocabulary:
            raise UsageError(f"task.form=adapter writes no adapter of the embeddings ({name!r}). Use task.form=dense.")
        some = [(coefficient * change[name][0], change[name][1]) for coefficient, change in changes if name in change]
        found[name] = torch.cat([left for left, _ in some], dim=1), torch.cat([right for _, right in some])
    return found


def _adapter_config(adapter: AdapterModel, ranks: Mapping[str, int], transposed: bool) -> dict[str, Any]:
    """The configuration of an adapter with these ranks and a scaling of 1."""
    own = read_json(adapter.folder / "adapter_config.json")
    wanted = Path(own["base_model_name_or_path"])
    beside = adapter.folder / wanted
    rank = Counter(ranks.values()).most_common(1)[0][0]
    others = {module: other for module, other in ranks.items() if other != rank}
    return {
        "peft_type": "LORA",
        "task_type": own.get("task_type"),
        "base_model_name_or_path": str((beside if beside.is_dir() else wanted).resolve())
        if wanted.is_dir() or beside.is_dir()
        else own["base_model_name_or_path"],
        "inference_mode": True,
        "r": rank,
        "lora_alpha": rank,
        "rank_pattern": others,
        "alpha_pattern": others,
        "target_modules": sorted(ranks),
        "fan_in_fan_out": transposed,
        "lora_dropout": 0.0,
        "bias": "none",
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
    }
