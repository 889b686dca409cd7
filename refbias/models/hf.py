"""Models in Hugging Face's layout: folders, adapters, sentence-transformers folders, and live ones from Python."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.models.base import Loaded, Model, combined
from refbias.models.files import check_weights, files_digest, folder_digest, model_files, read_json, shape

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "tokenizer_config.json",
)
# Weights that hidden states do not depend on may be missing: they are set at random and never read.
_NEVER_READ = ("pooler", "lm_head", "decoder.")


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
        self.fingerprint = folder_digest(folder, cache)

    def _load(self, device: str, dtype: str) -> Loaded:
        return load_folder(self.name, self.folder, self.causal, device, dtype)


class SentenceTransformersModel(FolderModel):
    """A folder of the sentence-transformers library: a model, and what modules.json says to do with its states.

    ``pooling`` is the name of its own pooling, ``normalize`` whether vectors get length 1, ``max_length`` in tokens.
    """

    kind = "sentence_transformers"

    def __init__(self, name: str, folder: Path, cache: Cache, notes: tuple[str, ...] = ()) -> None:
        modules = _modules(folder)
        inner = folder / modules.get("Transformer", "")
        super().__init__(name, inner, cache, notes)
        if "Pooling" not in modules:
            raise RefbiasError(f"{folder / 'modules.json'} names no Pooling module. Use encoder=hf on {inner}.")
        self.fingerprint = combined(self.fingerprint, folder_digest(folder, cache))
        pooling = read_json(folder / modules["Pooling"] / "config.json")
        self.pooling = _own_pooling(pooling)
        self.includes_prompt = bool(pooling.get("include_prompt", True))
        self.normalize = "Normalize" in modules
        self.unsupported = sorted(set(modules) - {"Transformer", "Pooling", "Normalize"})
        limits = folder / "sentence_bert_config.json"
        limit = read_json(limits).get("max_seq_length") if limits.is_file() else None
        self.max_length = int(limit) if limit else None


class AdapterModel(Model):
    """A PEFT adapter folder: the base model with the adapter merged into its weights."""

    kind = "adapter"

    def __init__(self, name: str, folder: Path, base: FolderModel, cache: Cache) -> None:
        check_weights(folder, "adapter_model")
        self.name = name
        self.folder = folder
        self.base = base
        self.notes = base.notes
        self.layers, self.dim, self.causal = base.layers, base.dim, base.causal
        adapter = files_digest(((p.name, p) for p in model_files(folder)), cache)
        self.fingerprint = combined("adapter", base.fingerprint, adapter)

    def _load(self, device: str, dtype: str) -> Loaded:
        from peft import PeftModel

        loaded = self.base._load("cpu" if device == "mps" else device, dtype)
        try:
            with quiet(), warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*[Mm]issing adapter keys.*")
                adapted = PeftModel.from_pretrained(loaded.whole, self.folder, is_trainable=False)
                whole = adapted.merge_and_unload(safe_merge=True)
        except AttributeError:
            raise RefbiasError(
                f"Adapter {self.name} cannot be merged into the weights of {self.base.name}: expected LoRA, IA3 or "
                f"another method that changes weights, not prompts."
            ) from None
        except Exception as error:
            raise RefbiasError(
                f"Adapter {self.name} does not fit its base {self.base.name}: {first_line(error)}."
            ) from error
        whole = whole.eval().to(device)
        own_tokenizer = any((self.folder / file).is_file() for file in _TOKENIZER_FILES)
        tokenizer = load_tokenizer(self.name, self.folder) if own_tokenizer else loaded.tokenizer
        return Loaded(headless(whole), tokenizer, whole, whole if self.causal else None)


class LiveModel(Model):
    """A transformers model and its tokenizer, as they are in memory: on their own device, in their own dtype."""

    kind = "live"

    def __init__(self, model: Any, tokenizer: Any, name: str | None = None) -> None:
        self._model, self._tokenizer = model, tokenizer
        self.name = name or getattr(model, "name_or_path", "") or type(model).__name__
        text = headless(model).config
        self.layers, self.dim = int(text.num_hidden_layers), int(text.hidden_size)
        self.causal = _is_causal({"architectures": [type(model).__name__], "model_type": model.config.model_type})
        self.fingerprint = combined("live", _weights_digest(model), _tokenizer_digest(tokenizer))

    def placement(self, device: str, dtype: str) -> tuple[str, str]:
        return str(self._model.device), str(self._model.dtype).removeprefix("torch.")

    def _load(self, device: str, dtype: str) -> Loaded:
        return Loaded(headless(self._model), self._tokenizer, self._model, self._model if self.causal else None)


def load_folder(name: str, folder: Path, causal: bool, device: str, dtype: str) -> Loaded:
    """Load ``folder`` from safetensors; no code of the folder runs."""
    import torch
    import transformers

    loader = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
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
        raise RefbiasError(f"Model {name} cannot be loaded from {folder}: {first_line(error)}.") from error
    missing = sorted(key for key in info["missing_keys"] if not any(part in key for part in _NEVER_READ))
    if missing:
        raise RefbiasError(
            f"Model {name}: the files in {folder} lack {len(missing)} weights, first {missing[0]!r}. "
            f"The configuration and the weights do not belong together; fetch the model again."
        )
    whole = whole.eval().requires_grad_(False).to(device)
    tokenizer = load_tokenizer(name, folder)
    return Loaded(headless(whole), tokenizer, whole, whole if causal else None)


def load_tokenizer(name: str, folder: Path) -> Any:
    import transformers

    try:
        with quiet():
            return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise RefbiasError(
            f"Model {name}: no tokenizer can be loaded from {folder}: {first_line(error)}. "
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


def _modules(folder: Path) -> dict[str, str]:
    """Type of each module -> its folder, in the order of modules.json."""
    import json

    try:
        entries = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        return {entry["type"].rpartition(".")[2]: entry["path"] for entry in entries}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RefbiasError(f"{folder / 'modules.json'} cannot be read: {error}.") from None


def _own_pooling(config: dict[str, Any]) -> str:
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
    digest = hashlib.sha256(model.config.to_json_string().encode())
    for name, value in model.state_dict().items():
        import torch

        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _tokenizer_digest(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    table = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    return combined(table, str(tokenizer.special_tokens_map), str(getattr(tokenizer, "chat_template", None)))


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


def first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].rstrip('.') if text else 'no message'}"
