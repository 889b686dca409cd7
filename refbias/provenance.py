"""Where a result comes from: versions, platform, code, command, and the digests of its data."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PACKAGES = ("refbias", "torch", "transformers", "peft", "numpy", "scipy", "scikit-learn")


_USER_INFO = re.compile(r"(\w+://)[^/@\s]+@")


def redacted(value: Any) -> Any:
    """``value`` with the user and password of every address in it replaced by ***.

    >>> redacted({"tracking.uri": "postgresql://me:secret@host/db"})
    {'tracking.uri': 'postgresql://***@host/db'}
    """
    if isinstance(value, Mapping):
        return {key: redacted(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(inner) for inner in value]
    return _USER_INFO.sub(r"\1***@", value) if isinstance(value, str) else value


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def digest(lines: Iterable[str]) -> str:
    """sha256 of sentences, each followed by a line feed."""
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode() + b"\n")
    return found.hexdigest()


def git_commit() -> str | None:
    """The commit of the checkout that refbias runs from, with "+changes"; None where it is installed."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        head = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()
        dirty = subprocess.run(
            ["git", "-C", str(root), "status", "--porcelain"], capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+changes" if dirty else "")


def provenance(data_digests: dict[str, str], command: str | None) -> dict[str, Any]:
    """The block ``provenance`` of result.json."""
    return {
        **{package.replace("-", "_"): version(package) for package in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git_commit": git_commit(),
        "command": command if command is not None else Path(sys.argv[0]).name,
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "data_digests": data_digests,
    }
