"""Samples of public data sets through the `datasets` library, without ever keeping a run waiting for nothing.

`datasets` tries an unreachable hub again and again for half a minute, so the hub is asked first, in a process of its
own that is ended after a few seconds; only where it answers may fetching take longer, in a second process. One failure
is enough: it is remembered in this process and, where the environment variable REFBIAS_SWEEP names a sweep, by a
marker in the cache folder for the other jobs of that sweep. What was fetched is kept in the cache folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

CONNECT_S = 5.0  # until the hub has answered
FETCH_S = 120.0  # until all is here, once it has
POOL = 5000  # texts fetched, of which the seed draws a sample
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")

_FETCHING = "fetching"  # in a marker: the hub has answered
_SLACK_S = 0.5
_DAY_S = 86_400

_failure: str | None = None


class UnreachableError(Exception):
    """Why there is no sample."""


def _folder() -> Path:
    from refbias.cache import default_directory

    return default_directory()


def sample(name: str, count: int = POOL, connect: float = CONNECT_S, fetch: float = FETCH_S) -> list[str]:
    """Texts of the data set `name` of `refbias.stimuli.upstream`.

    Raises `UnreachableError` where the hub has not answered after `connect` seconds, or where fetching fails or has
    not ended after `fetch` more.
    """
    global _failure
    kept = _folder() / "anchors" / f"{name}-{count}.json"
    marker = _marker()
    while True:
        texts = _read(kept)
        if texts is not None:
            return texts
        switched_off = [f"{variable}={os.environ[variable]}" for variable in OFFLINE if is_set(variable)]
        if switched_off:
            raise UnreachableError(f"{switched_off[0]} forbids to try the hub")
        if _failure is not None:
            raise UnreachableError(_failure)
        if marker is None or _claim(marker):
            return _try(name, count, connect, fetch, kept, marker)
        _failure = _outcome(marker, connect, fetch)  # None: another job of the sweep has fetched something


def _read(kept: Path) -> list[str] | None:
    try:
        return list(json.loads(kept.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # not there, or damaged
        return None


def is_set(variable: str) -> bool:
    return os.environ.get(variable, "").upper() in {"1", "ON", "YES", "TRUE"}


def _try(name: str, count: int, connect: float, fetch: float, kept: Path, marker: Path | None) -> list[str]:
    global _failure
    try:
        ask(_command("greet", name, count), connect, "the hub did not answer")
        if marker:
            _write(marker, _FETCHING)
        print(f"fetching {name} from the hub, for {fetch:g} s at most", file=sys.stderr)
        texts = list(json.loads(ask(_command("fetch", name, count), fetch, "the hub answered but gave no sample")))
    except UnreachableError as error:
        _failure = str(error)
        if marker:
            _write(marker, _failure)
        raise
    _write(kept, json.dumps(texts))
    if marker:
        marker.unlink(missing_ok=True)
    return texts


def _marker() -> Path | None:
    sweep = os.environ.get("REFBIAS_SWEEP")
    if not sweep:
        return None
    return _folder() / "hub" / hashlib.sha256(sweep.encode()).hexdigest()[:16]


def _claim(marker: Path) -> bool:
    """True for the first job of the sweep; the others read what it finds out."""
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        for old in marker.parent.iterdir():
            if time.time() - old.stat().st_mtime > _DAY_S:
                old.unlink(missing_ok=True)
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    except FileNotFoundError:  # another job has removed an old marker first
        return _claim(marker)
    except OSError:  # a cache folder that cannot be written: every job tries for itself
        return True
    return True


def _outcome(marker: Path, connect: float, fetch: float) -> str | None:
    """Why the first job of the sweep failed; None where it did not."""
    began = time.monotonic()
    while True:
        try:
            why = marker.read_text(encoding="utf-8")
            age = time.time() - marker.stat().st_mtime
        except FileNotFoundError:
            return None
        if why not in ("", _FETCHING):
            return why
        limit = fetch if why == _FETCHING else connect
        waited = time.monotonic() - began  # where the clock of a shared folder is another one
        if age >= limit + _SLACK_S or waited >= connect + fetch + _SLACK_S:
            return f"another job of the sweep still tried it after {limit:g} s"
        time.sleep(0.05)


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError:  # only a convenience for the next job
        partial.unlink(missing_ok=True)


def _command(step: str, name: str, count: int) -> list[str]:
    return [sys.executable, "-m", "refbias.stimuli.hub", step, name, str(count)]


def ask(command: list[str], limit: float, late: str) -> str:
    """What a process of its own prints, which is ended after `limit` seconds."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
    )
    try:
        out, err = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"{late} within {limit:g} s") from None
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    if child.returncode:
        said = err.strip().splitlines()
        raise UnreachableError(f"the hub could not be read: {said[-1] if said else f'exit {child.returncode}'}")
    return out


def stream(dataset: str, count: int) -> list[dict[str, object]]:
    """About `count` rows of a data set's training split, taken evenly from the beginning of each of its files."""
    import datasets

    rows = datasets.load_dataset(dataset, split="train", streaming=True)
    shards = max(1, rows.num_shards)
    each = -(-count // shards)
    return [row for i in range(shards) for row in islice(rows.shard(num_shards=shards, index=i), each)]


def _greet(dataset: str) -> None:
    """Raise where the hub does not answer at once: `datasets` alone takes half a minute to find out."""
    import huggingface_hub

    huggingface_hub.HfApi().dataset_info(dataset, timeout=CONNECT_S)


def main(step: str, name: str, count: int) -> None:
    from refbias.stimuli.upstream import UPSTREAM, unique

    source = UPSTREAM[name]
    try:
        if step == "greet":
            _greet(source.hub_id)
        else:
            json.dump(unique(source.text(row) for row in stream(source.hub_id, count)), sys.stdout)
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    sys.stdout.flush()
    os._exit(0)  # threads of the download library may still run


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
