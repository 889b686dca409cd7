"""GGUF files: expanded once to a plain fp32 safetensors folder, tokenizer and chat template included."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

from refbias.cache import Cache
from refbias.errors import RefbiasError, described
from refbias.models.files import file_digest
from refbias.models.hf import quiet
from refbias.watch import Watch


def converted(path: Path, cache: Cache, watch: Watch) -> Path:
    """The folder that ``path`` was converted to, now or earlier. Loading a GGUF file itself takes 30 s each time."""

    def convert(folder: Path) -> None:
        watch.say(f"expanding {path.name} to fp32, once; this takes about half a minute")
        _convert(path, folder)

    return cache.build_folder(f"gguf-{file_digest(path, cache)[:16]}", convert)


def _convert(path: Path, folder: Path) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise RefbiasError(f"Reading {path.name} needs the package gguf: pip install --no-deps gguf")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with quiet(), _no_bars():
            tokenizer = AutoTokenizer.from_pretrained(
                path.parent, gguf_file=path.name, local_files_only=True, trust_remote_code=False
            )
            model = AutoModelForCausalLM.from_pretrained(
                path.parent,
                gguf_file=path.name,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
            )
    except Exception as error:
        raise RefbiasError(f"{path} cannot be read as GGUF: {described(error)}.") from error
    # transformers refuses to save a model that it has marked as quantised, so the weights move to a plain one.
    config = type(model.config).from_dict(
        {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    )
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    with quiet():
        plain.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def _no_bars() -> Iterator[None]:
    """The bar of the conversion is one of tqdm's own, which transformers cannot switch off."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
        yield
