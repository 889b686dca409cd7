"""GGUF files: expanded once to a plain fp32 safetensors folder, tokenizer and chat template included."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.models.files import file_digest
from refbias.models.hf import first_line, quiet


def converted(path: Path, cache: Cache) -> Path:
    """The folder that ``path`` was converted to, now or earlier. Loading a GGUF file itself takes 30 s each time."""
    return cache.build_folder(f"gguf-{file_digest(path, cache)[:16]}", lambda folder: _convert(path, folder))


def _convert(path: Path, folder: Path) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise RefbiasError(f"Reading {path.name} needs the package gguf: pip install --no-deps gguf")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
            model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    except Exception as error:
        raise RefbiasError(f"{path} cannot be read as GGUF: {first_line(error)}.") from error
    # transformers refuses to save a model that it has marked as quantised, so the weights move to a plain one.
    config = type(model.config).from_dict(
        {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    )
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
