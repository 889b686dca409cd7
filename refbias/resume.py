"""Jobs of a sweep that are done already, for a sweep into the same folder after a kill."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from refbias.provenance import PACKAGES, version
from refbias.registry import HOOKS, registry
from refbias.tasks.run import OUTCOME

EARLIER = f".{OUTCOME}"  # how a job of an earlier sweep into the same folder ended
WITHOUT = ("tracking", "summary", "cache")  # settings on which no figure depends


def set_aside(folder: Path) -> None:
    """Take the outcomes of an earlier sweep out of the way; the jobs look at them once more."""
    for left_over in folder.rglob(OUTCOME):
        left_over.replace(left_over.with_name(EARLIER))


def done_before(folder: Path, overrides: Sequence[str], mark: str) -> dict[str, Any] | None:
    """The result of a job that an earlier sweep has done in ``folder``; None where it has to run.

    It is taken where it ended well, with the same overrides and the same ``mark``, and without a stand-in: what was
    out of reach then may be there now.
    """
    try:
        outcome = json.loads((folder / EARLIER).read_text(encoding="utf-8"))
        data: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = outcome.get("status") == 0 and outcome.get("overrides") == list(overrides) and outcome.get("mark") == mark
    return data if same and not data.get("stand_ins") else None


def forget(folder: Path) -> None:
    """The earlier outcome no longer belongs to what lies in ``folder``."""
    with suppress(OSError):
        (folder / EARLIER).unlink(missing_ok=True)


def mark_of(settings: Mapping[str, Any]) -> str:
    """Digest of what a result depends on: settings, files that they name, code of refbias and plug-ins, releases."""
    kept = {key: value for key, value in settings.items() if key not in WITHOUT}
    text = json.dumps(kept, sort_keys=True, default=str)
    return hashlib.sha256("\n".join([text, *_named(kept), _code()]).encode()).hexdigest()


def _named(value: Any) -> Iterator[str]:
    """Path, size and time of every file that a setting names, and of those in a folder that it names."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _named(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _named(inner)
    elif isinstance(value, str) and value:
        with suppress(OSError, RuntimeError):  # a text that is no path
            path = Path(value).expanduser()
            for file in sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []:
                about = file.stat()
                yield f"{file} {about.st_size} {about.st_mtime_ns}"


@functools.cache
def _code() -> str:
    """Digest of the files of refbias and of every module that holds a registered part, and the releases in use."""
    own = Path(__file__).resolve().parent
    files = {path for path in own.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    for part in (part for kind in HOOKS for part in registry().parts(kind).values()):
        with suppress(TypeError):  # what has no source of its own
            files.add(Path(inspect.getsourcefile(part.factory) or __file__))
    found = hashlib.sha256(" ".join(f"{name} {version(name)}" for name in PACKAGES).encode())
    for path in sorted(files):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
