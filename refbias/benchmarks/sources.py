"""Files of published benchmarks: a local copy, or one file of a data set of the hub."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refbias.answers import Prompt
from refbias.errors import RefbiasError, UsageError, described

_TIMEOUT = 5.0  # seconds to learn whether the hub answers
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
PARQUET = "refs/convert/parquet"  # the branch in which the hub keeps every public data set as parquet, split by split


@dataclass(frozen=True)
class HubFile:
    """One file of a data set of the hub; ``revision`` None is its main branch."""

    repository: str
    file: str
    revision: str | None = PARQUET


def local_or_hub(path: str | None, option: str, expected: str, default: str) -> Path | str:
    """What an option like ``benchmark.path`` means: an existing file or folder, or a hub id; None is ``default``.

    Raises `UsageError` for what is neither.
    """
    if path is None:
        return default
    found = Path(path).expanduser()
    if found.exists():
        return found
    if not _HUB_ID.fullmatch(path):
        raise UsageError(
            f"{option}={path}: no such file in {Path.cwd()}, and no hub id. Use {option}=PATH: {expected}."
        )
    return path


def fetched(wanted: HubFile, option: str) -> Path:
    """The file's copy on this machine, fetched if there is none. Raises `RefbiasError` where it cannot be had."""
    import huggingface_hub
    from huggingface_hub import errors

    fetch = functools.partial(
        huggingface_hub.hf_hub_download,
        wanted.repository,
        wanted.file,
        repo_type="dataset",
        revision=wanted.revision,
    )
    try:
        return Path(fetch(local_files_only=True))
    except errors.LocalEntryNotFoundError:
        pass
    try:
        huggingface_hub.HfApi().dataset_info(wanted.repository, timeout=_TIMEOUT)  # fetching alone tries for minutes
        return Path(fetch())
    except Exception as error:
        raise RefbiasError(
            f"The data set {wanted.repository} ({wanted.file}) is not on this machine and cannot be fetched from the "
            f"hub ({described(error)}). Give a local copy in the upstream format: {option}=PATH."
        ) from None


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
