"""Models in Hugging Face's layout: folders, adapters, sentence-transformers folders, and live ones from Python."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from refbias.cache import Cache
from refbias.errors import RefbiasError, described
from refbias.models.adapters import effects, saved_vocabulary
from refbias.models.base import Loaded, Model, State, combined
from refbias.models.blend import Blend, fit
from refbias.models.files import check_weights, file_states, folder_digest, read_json, shape
from refbias.models.layout import Layout, layout
from refbias.models.source import Source
from refbias.models.weights import Files

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "tokenizer_config.json",
)
# Methods of peft that change weights, so that they can be merged, and whose loading compiles and imports nothing.
_ADAPTERS = ("LORA", "ADALORA", "IA3", "LOHA", "LOKR", "OFT", "HRA", "FOURIERFT", "LN_TUNING")


class _Files:
    """The files of a folder as they were when their digest was made."""

    def __init__(self, folder: Path, cache: Cache) -> None:
        self._folder = folder
        self._cache = cache  # held for as long as the model is: the folder may lie in it, and is then not pruned
        self._states = file_states(folder)
        self.digest = folder_digest(folder, cache)

    def check(self, name: str) -> None:
        """Raise `RefbiasError` where they have changed since: the weights would not be those of the fingerprint."""
        now = file_states(self._folder)
        changed = sorted(file for file in {*now, *self._states} if now.get(file) != self._states.get(file))
        if changed:
            raise RefbiasError(
                f"Model {name}: the folder {self._folder} changed while it was read ({', '.join(changed[:3])}). "
                f"Run again once it is written."
            )


class FolderModel(Model):
    """A local folder with config.json, safetensors weights and a tokenizer."""

    kind = "hf"

    def __init__(self, name: str, folder: Path, cache: Cache, notes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.folder = folder
        self.notes = notes
        config = read_json(folder / "config.json")
        check_weights(folder)
        self.layers, self.dim = shape(config, folder)
        self.causal = _is_causal(config)
        self._files = _Files(folder, cache)
        self.fingerprint = self._files.digest

    def check_files(self) -> None:
        """Raise `RefbiasError` where the files are no longer those of the fingerprint."""
        self._files.check(self.name)

    def _load(self, device: str, dtype: str) -> Loaded:
        loaded = load_folder(self.name, self.folder, self.causal, device, dtype)
        self.check_files()
        return loaded


class SentenceTransformersModel(FolderModel):
    """A folder of the sentence-transformers library: a model, and what modules.json says to do with its states.

    ``pooling`` is the name of its own pooling, ``normalize`` whether vectors get length 1, ``max_length`` in tokens.
    """

    kind = "sentence_transformers"

    def __init__(self, name: str, folder: Path, cache: Cache, notes: tuple[str, ...] = ()) -> None:
        modules = modules_of(folder)
        inner = folder / modules.get("Transformer", "")
        super().__init__(name, inner, cache, notes)
        if "Pooling" not in modules:
            raise RefbiasError(f"{folder / 'modules.json'} names no Pooling module. Use encoder=hf on {inner}.")
        self.fingerprint = combined(self.fingerprint, folder_digest(folder, cache))
        pooling = read_json(folder / modules["Pooling"] / "config.json")
        self.pooling = _own_pooling(pooling)
        self.normalize = "Normalize" in modules
        self.unsupported = sorted(set(modules) - {"Transformer", "Pooling", "Normalize"})
        limits = inner / "sentence_bert_config.json"
        limit = read_json(limits).get("max_seq_length") if limits.is_file() else None
        self.max_length = int(limit) if limit else None


class AdapterModel(Model):
    """A PEFT adapter folder: the base model with the adapter merged into its weights.

    The changes of LoRA, rsLoRA, DoRA and IA³ are formed in float64 from the files and rounded once; other methods are
    merged by peft.
    """

    kind = "adapter"

    def __init__(self, name: str, folder: Path, base: FolderModel, cache: Cache) -> None:
        check_weights(folder, "adapter_model")
        _check_adapter(name, read_json(folder / "adapter_config.json"))
        self.name = name
        self.folder = folder
        self.base = base
        self.notes = base.notes
        self.layers, self.dim, self.causal = base.layers, base.dim, base.causal
        self._files = _Files(folder, cache)
        self.fingerprint = combined("adapter 2", base.fingerprint, self._files.digest)

    def check_files(self) -> None:
        """Raise `RefbiasError` where the files are no longer those of the fingerprint."""
        self._files.check(self.name)
        self.base.check_files()

    def source(self, files: Files, layout: Layout) -> Source | None:
        """The weights of the base, in ``files``, with the adapter in them; None for a method that only peft merges."""
        found = effects(self.folder, layout)
        return None if found is None else Source(self.name, files, layout, found)

    def _load(self, device: str, dtype: str) -> Loaded:
        loaded = self.base._load("cpu" if device == "mps" else device, dtype)
        whole = loaded.whole
        found = layout(whole)
        source = self.source(Files(self.base.folder), found)
        if source is None:
            whole = self._merged_by_peft(whole, found)
        else:
            fit(whole, source)
            Blend([(1.0, source)]).set_in(whole, source.effects)
        self.check_files()
        whole = whole.eval().to(device)
        tokenizer = load_tokenizer(self.name, self.folder) if self.has_tokenizer else loaded.tokenizer
        rows = whole.get_input_embeddings().weight.shape[0]
        if self.has_tokenizer and len(tokenizer) > rows:
            raise RefbiasError(
                f"Adapter {self.name} has a tokenizer of {len(tokenizer):,} tokens, and its base {self.base.name} "
                f"{rows:,} embeddings. Save the adapter again with save_embedding_layers=True."
            )
        return Loaded(headless(whole), tokenizer, whole, whole if self.causal else None)

    @property
    def has_tokenizer(self) -> bool:
        return any((self.folder / file).is_file() for file in TOKENIZER_FILES)

    def _merged_by_peft(self, whole: Any, layout: Layout) -> Any:
        from peft import PeftModel

        rows = saved_vocabulary(self.folder, layout)
        if rows is not None:
            whole.resize_token_embeddings(rows, mean_resizing=False)
        try:
            with quiet(), warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*[Mm]issing adapter keys.*")
                adapted = PeftModel.from_pretrained(whole, self.folder, is_trainable=False, local_files_only=True)
                return adapted.merge_and_unload(safe_merge=True)
        except Exception as error:
            raise RefbiasError(
                f"Adapter {self.name} does not fit its base {self.base.name}: {described(error)}."
            ) from error


def _check_adapter(name: str, config: dict[str, Any]) -> None:
    """Raise `RefbiasError` for a method that is not merged into weights, or that runs code when it is loaded."""
    method = config.get("peft_type")
    if method not in _ADAPTERS:
        raise RefbiasError(
            f"Adapter {name} is of peft_type {method!r}, which refbias does not load: expected a method that changes "
            f"weights, one of {', '.join(_ADAPTERS)}. Merge it into its base yourself and give the merged folder."
        )
    if config.get("megatron_config"):
        raise RefbiasError(
            f"Adapter {name}: its adapter_config.json has a megatron_config, which imports a module by name. "
            f"Merge it into its base yourself and give the merged folder."
        )


class LiveModel(Model):
    """A transformers model and its tokenizer, as they are in memory: on their own device, in their own dtype."""

    kind = "live"

    def __init__(self, model: Any, tokenizer: Any, name: str | None = None) -> None:
        if hasattr(model, "peft_config") and hasattr(model, "get_base_model"):
            model = model.get_base_model()  # the adapters that are active stay so
        self._model, self._tokenizer = model, tokenizer
        self.name = name or getattr(model, "name_or_path", "") or type(model).__name__
        text = headless(model).config
        self.layers, self.dim = int(text.num_hidden_layers), int(text.hidden_size)
        self.causal = _is_causal({"architectures": [type(model).__name__], "model_type": model.config.model_type})
        self.fingerprint = combined("live", _weights_digest(model), tokenizer_digest(tokenizer))

    def placement(self, device: str, dtype: str) -> tuple[str, str]:
        return str(self._model.device), str(self._model.dtype).removeprefix("torch.")

    @contextmanager
    def _open(self, device: str, dtype: str, change: State | None = None) -> Iterator[Loaded]:
        training = [module for module in self._model.modules() if module.training]
        self._model.eval()
        try:
            with super()._open(device, dtype, change) as loaded:
                yield loaded
        finally:
            for module in training:
                module.training = True

    def _load(self, device: str, dtype: str) -> Loaded:
        return Loaded(headless(self._model), self._tokenizer, self._model, self._model if self.causal else None)


def load_folder(name: str, folder: Path, causal: bool, device: str, dtype: str) -> Loaded:
    """Load ``folder`` from safetensors; no code of the folder runs."""
    import transformers

    loader = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    whole, lacking = load_weights(loader, folder, device, dtype, f"Model {name} cannot be loaded from {folder}")
    # no hidden state depends on BERT's pooler, nor on the decoder of an encoder–decoder
    two_sided = getattr(whole.config, "is_encoder_decoder", False)
    unused = () if causal else ("pooler.", "decoder.") if two_sided else ("pooler.",)
    missing = [key for key in lacking if not key.startswith(unused)]
    if missing:
        raise RefbiasError(
            f"Model {name}: the files in {folder} lack {len(missing)} weights, first {missing[0]!r}. "
            f"The configuration and the weights do not belong together; fetch the model again."
        )
    tokenizer = load_tokenizer(name, folder)
    return Loaded(headless(whole), tokenizer, whole, whole if causal else None)


def load_weights(loader: Any, folder: Path, device: str, dtype: str, failure: str) -> tuple[Any, list[str]]:
    """A model by one of transformers' Auto classes, from safetensors; no code of the folder runs.

    Returns it, ready to be read, and the weights that the files lack, which transformers fills with random ones: the
    caller says which of them may be missing. `RefbiasError` begins with ``failure``.
    """
    import torch

    try:
        with quiet():
            whole, info = loader.from_pretrained(
                folder,
                dtype=getattr(torch, dtype),
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except Exception as error:
        raise RefbiasError(f"{failure}: {described(error)}.") from error
    return whole.eval().requires_grad_(False).to(device), sorted(info["missing_keys"])


def load_tokenizer(name: str, folder: Path) -> Any:
    import transformers

    try:
        with quiet():
            return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise RefbiasError(
            f"Model {name}: no tokenizer can be loaded from {folder}: {described(error)}. "
            f"Copy the tokenizer files of the model there (tokenizer.json, tokenizer_config.json)."
        ) from error


def headless(whole: Any) -> Any:
    """The part that makes hidden states of text."""
    if getattr(whole.config, "is_encoder_decoder", False):
        return whole.get_encoder()
    inner = whole.base_model
    return getattr(inner, "language_model", inner)


def _is_causal(config: dict[str, Any]) -> bool:
    """Whether the files hold a causal language model with its head, judged by the architecture they name."""
    named = (config.get("architectures") or [""])[0]
    return named.endswith(("ForCausalLM", "LMHeadModel")) or named in (
        "Gemma3ForConditionalGeneration",
        "Mistral3ForConditionalGeneration",
    )


def modules_of(folder: Path) -> dict[str, str]:
    """Type of each module -> its folder, in the order of modules.json."""
    try:
        entries = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        return {entry["type"].rpartition(".")[2]: entry["path"] for entry in entries}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RefbiasError(f"{folder / 'modules.json'} cannot be read: {error}.") from None


def _own_pooling(config: dict[str, Any]) -> str:
    """Its name in refbias; joined by "+" where it concatenates several, for which refbias has no name."""
    names = {"mean_tokens": "mean", "max_tokens": "max", "cls_token": "first", "lasttoken": "last"}
    chosen = [
        names.get(key.removeprefix("pooling_mode_"), key)
        for key, on in config.items()
        if on is True and key.startswith("pooling_mode_")
    ]
    mode = config.get("pooling_mode")
    if mode is not None:
        chosen = [{"mean": "mean", "max": "max", "cls": "first", "lasttoken": "last"}.get(str(mode), str(mode))]
    return "+".join(chosen) or "mean"


def _weights_digest(model: Any) -> str:
    import torch

    digest = hashlib.sha256(model.config.to_json_string().encode())
    for name, value in model.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def tokenizer_digest(tokenizer: Any) -> str:
    """Digest of what a tokenizer makes of texts, and of its chat template."""
    settings = [getattr(tokenizer, name, None) for name in ("chat_template", "model_max_length", "truncation_side")]
    table = json.dumps(tokenizer_table(tokenizer), sort_keys=True)
    return combined(table, str(tokenizer.special_tokens_map), *map(str, settings))


def tokenizer_table(tokenizer: Any) -> dict[str, Any]:
    """How a tokenizer makes token ids of text, part by part; of a slow one only the vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return {"vocabulary": tokenizer.get_vocab()}
    table: dict[str, Any] = json.loads(backend.to_str())
    # left there by an earlier call, and set by each call anew
    return {part: value for part, value in table.items() if part not in ("truncation", "padding", "version")}


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and notes of transformers: refbias says itself what it loads."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
