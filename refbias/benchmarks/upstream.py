"""What benchmarks on generated answers read: published files, in a folder or from the hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from refbias.answers import Prompt
from refbias.benchmarks.sources import HubFile, fetched
from refbias.errors import RefbiasError, UsageError


def from_hub(hub_id: str, files: Sequence[str], hint: str) -> list[Path]:
    """The files of a data set of the hub; where they cannot be had, the error ends with ``hint``."""
    try:
        return [fetched(HubFile(hub_id, file, revision=None), "benchmark.path") for file in files]
    except RefbiasError as error:
        raise RefbiasError(f"{error} {hint}") from None


def folder(path: str, expected: str) -> Path:
    """The folder that ``benchmark.path`` names."""
    found = Path(path).expanduser()
    if not found.is_dir():
        what = "is a file" if found.exists() else f"no such folder in {Path.cwd()}"
        raise UsageError(f"benchmark.path={path}: {what}. Use benchmark.path=FOLDER: {expected}.")
    return found


def digest_of(prompts: Sequence[Prompt]) -> str:
    """Digest of prompts as they were read."""
    rows = [[prompt.id, *map(list, prompt.messages)] for prompt in prompts]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()
