"""The folder that a fine-tune is written to: it appears whole or not at all, and is made beside its place."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from refbias.errors import RefbiasError, UsageError
from refbias.models.files import RECIPE

LOCK = ".lock"


def check_out(out: Path, overwrite: bool) -> None:
    """Raise `UsageError` where the folder ``out`` is taken."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / RECIPE).is_file():
        raise UsageError(f"task.out={out} exists, and refbias has not written it. Name another folder.")
    if not overwrite:
        raise UsageError(f"task.out={out} is finished. Name another folder, or replace it with task.overwrite=true.")


@contextlib.contextmanager
def workplace(out: Path) -> Iterator[Path]:
    """``out``.unfinished, for one process at a time; where nothing is in it at the end, it goes again."""
    import filelock

    work = out.with_name(f"{out.name}.unfinished")
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(work / LOCK)
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise RefbiasError(f"Another process is fine-tuning into {out}. Wait for it, or name another folder.") from None
    except OSError as error:
        raise RefbiasError(f"{work} cannot be written: {error.strerror or error}. Name another task.out.") from None
    try:
        yield work
    finally:
        empty = not any(file.name != LOCK for file in work.iterdir())
        lock.release()
        if empty:
            shutil.rmtree(work, ignore_errors=True)


def clear(work: Path) -> None:
    """Remove all that is in the workplace."""
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            path.unlink(missing_ok=True)


def publish(whole: Path, out: Path, work: Path) -> None:
    """Put the folder ``whole`` in the place of ``out``, and clear the workplace."""
    if out.exists():
        os.replace(out, work / "replaced")
    os.replace(whole, out)
    clear(work)
