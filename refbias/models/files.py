"""Files of a model folder: digests, configuration, and whether the weights can be read at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refbias.cache import Cache
from refbias.errors import RefbiasError

_ENDINGS = (".safetensors", ".json", ".txt", ".model", ".jinja")
RECIPE = "refbias.json"  # how refbias made a folder
_NOT_THE_MODEL = ("generation_config.json", "trainer_state.json", "all_results.json", "train_results.json", RECIPE)
_REMEMBERED_ABOVE = 2**20


def file_digest(path: Path, cache: Cache) -> str:
    """SHA-256 of a file; of a big one remembered by path, size, time and inode."""
    path = path.resolve()
    about = path.stat()
    if about.st_size < _REMEMBERED_ABOVE:
        return _sha256(path)
    return cache.remember(f"{path}|{about.st_size}|{about.st_mtime_ns}|{about.st_ino}", lambda: _sha256(path))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**22):
            digest.update(block)
    return digest.hexdigest()


def folder_digest(folder: Path, cache: Cache) -> str:
    """Digest of the weights, configuration and tokenizer files in ``folder``; where it lies does not matter."""
    return files_digest(((path.relative_to(folder).as_posix(), path) for path in model_files(folder)), cache)


def files_digest(files: Iterable[tuple[str, Path]], cache: Cache) -> str:
    lines = [f"{name} {file_digest(path, cache)}" for name, path in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def model_files(folder: Path) -> list[Path]:
    found = [*folder.iterdir(), *(file for below in folder.iterdir() if below.is_dir() for file in below.iterdir())]
    return sorted(f for f in found if f.is_file() and f.suffix in _ENDINGS and f.name not in _NOT_THE_MODEL)


def file_states(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Size, time of change and inode of the files behind `folder_digest`, by name."""
    found = {path.relative_to(folder).as_posix(): path.stat() for path in model_files(folder)}
    return {name: (about.st_size, about.st_mtime_ns, about.st_ino) for name, about in found.items()}


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RefbiasError(f"{path} cannot be read as JSON: {error}. Fetch the model again.") from None
    if not isinstance(value, dict):
        raise RefbiasError(f"{path} should hold a JSON object and holds a {type(value).__name__}.")
    return value


def check_weights(folder: Path, stem: str = "model") -> None:
    """Raise `RefbiasError` unless ``folder`` holds whole safetensors files under the usual names."""
    stored_tensors(folder, stem)


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies: its bytes begin at ``offset`` of ``file``; ``dtype`` is the format's name for it."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


def stored_tensors(folder: Path, stem: str = "model") -> dict[str, Stored]:
    """Every tensor of the safetensors files of ``folder``, by name, in the order of the files and within them.

    Only the files' headers are read. Raises `RefbiasError` for files that are missing or damaged, or that disagree
    with the index.
    """
    index = folder / f"{stem}.safetensors.index.json"
    listed = read_json(index).get("weight_map", {}) if index.is_file() else None
    shards = sorted(set(listed.values())) if listed is not None else [f"{stem}.safetensors"]
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise RefbiasError(_no_weights(folder, missing, stem))
    found = {}
    for shard in shards:
        inside = _header(folder / shard)
        if listed is not None:
            _check_listed(index, shard, {name for name, file in listed.items() if file == shard}, set(inside))
        found.update(inside)
    return found


def _check_listed(index: Path, shard: str, listed: set[str], inside: set[str]) -> None:
    for names, problem in (
        (inside - listed, "does not list {name!r}, which {shard} holds"),
        (listed - inside, "lists {name!r} in {shard}, which lacks it"),
    ):
        if names:
            told = problem.format(name=min(names), shard=shard)
            raise RefbiasError(f"{index} {told}: index and weights do not belong together. Fetch the model again.")


def _no_weights(folder: Path, missing: list[str], stem: str) -> str:
    pickles = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".ckpt"))
    if not pickles:
        return f"{folder} lacks {', '.join(missing)}: expected weights as safetensors. Fetch the model again."
    advice = (
        f"peft.AutoPeftModel.from_pretrained({str(folder)!r}).save_pretrained(NEW_FOLDER)"
        if stem.startswith("adapter")
        else f"transformers.AutoModelForCausalLM.from_pretrained({str(folder)!r}).save_pretrained(NEW_FOLDER)"
    )
    return (
        f"{folder} holds its weights only as pickle ({', '.join(pickles)}), which can run code when it is read, so "
        f"refbias does not. If you trust the file, convert it once in Python, {advice}, copy the tokenizer files "
        f"there too, and give the new folder."
    )


def _header(path: Path) -> dict[str, Stored]:
    """The tensors of one file. Its header must be JSON, and the file as long as that says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(length)) if length <= size else {}
            found = {
                name: Stored(path, entry["dtype"], tuple(map(int, entry["shape"])), 8 + length + begin, end - begin)
                for name, entry in header.items()
                if name != "__metadata__"
                for begin, end in [map(int, entry["data_offsets"])]
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            found = {}
    if not found or size != max(tensor.offset + tensor.size for tensor in found.values()):
        raise RefbiasError(f"{path} is damaged or cut short ({size:,} bytes). Fetch it again.")
    return dict(sorted(found.items(), key=lambda item: item[1].offset))


def shape(config: dict[str, Any], folder: Path) -> tuple[int, int]:
    """Number of blocks and hidden width, from the configuration (of the text part, of the encoder side)."""
    text = config.get("text_config", config)
    layers = _first(text, "encoder_layers", "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    dim = _first(text, "hidden_size", "n_embd", "d_model", "dim")
    if layers is not None and dim is not None:
        return layers, dim
    from transformers import AutoConfig

    try:
        full = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        full = full.get_text_config(encoder=True)
        return int(full.num_hidden_layers), int(full.hidden_size)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise RefbiasError(f"{folder / 'config.json'} does not say how many layers the model has: {error}.") from None


def _first(config: dict[str, Any], *names: str) -> int | None:
    return next((int(config[name]) for name in names if isinstance(config.get(name), int)), None)
