"""Samples of public data sets through the `datasets` library, without ever keeping a run waiting.

`datasets` tries an unreachable hub again and again for half a minute, so the attempt is made in a process of its own
that is ended after a few seconds. One failure is enough: it is remembered in this process and, where the
environment variable REFBIAS_SWEEP names a sweep, by a marker in the cache folder for the other jobs of that sweep.
What was fetched is kept in the cache folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.parse
from itertools import islice
from pathlib import Path

LIMIT_S = 5.0
POOL = 5000  # texts fetched, of which the seed draws a sample
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")

_failure: str | None = None


class UnreachableError(Exception):
    """Why there is no sample."""


def cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "refbias"


def sample(name: str, count: int = POOL, limit: float = LIMIT_S) -> list[str]:
    """Texts of the data set `name` of `refbias.stimuli.upstream`; raises `UnreachableError` within `limit` seconds."""
    global _failure
    kept = cache_dir() / "anchors" / f"{name}-{count}.json"
    try:
        return list(json.loads(kept.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # not there, or damaged
        pass
    switched_off = [f"{name}={os.environ[name]}" for name in OFFLINE if _is_set(name)]
    if switched_off:
        raise UnreachableError(f"{switched_off[0]} forbids to try the hub")
    if _failure is None:
        marker = _marker()
        if marker is None or _claim(marker):
            return _try(name, count, limit, kept, marker)
        _failure = _outcome(marker, limit)
        if _failure is None:  # another job of the sweep reached the hub
            return _try(name, count, limit, kept, None)
    raise UnreachableError(_failure)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").upper() in {"1", "ON", "YES", "TRUE"}


def _try(name: str, count: int, limit: float, kept: Path, marker: Path | None) -> list[str]:
    global _failure
    try:
        texts = _fetch(name, count, limit)
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
    return cache_dir() / "hub" / hashlib.sha256(sweep.encode()).hexdigest()[:16]


def _claim(marker: Path) -> bool:
    """True for the first job of the sweep; the others read what it finds out."""
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    except OSError:  # a cache folder that cannot be written: every job tries for itself
        return True
    return True


def _outcome(marker: Path, limit: float) -> str | None:
    """Why the first job of the sweep failed; None where it did not."""
    end = time.monotonic() + limit
    while True:
        try:
            why = marker.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        if why:
            return why
        if time.monotonic() >= end:
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


def _command(name: str, count: int) -> list[str]:
    return [sys.executable, "-m", "refbias.stimuli.hub", name, str(count)]


def _fetch(name: str, count: int, limit: float) -> list[str]:
    """The texts that a process of its own prints as JSON, which is ended after `limit` seconds."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    child = subprocess.Popen(
        _command(name, count),
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
        child.kill()
        child.communicate()
        raise UnreachableError(f"the hub gave no sample within {limit:g} s") from None
    if child.returncode:
        said = err.strip().splitlines()
        raise UnreachableError(f"the hub could not be read: {said[-1] if said else f'exit {child.returncode}'}")
    return list(json.loads(out))


def stream(dataset: str, count: int) -> list[dict[str, object]]:
    """About `count` rows of a data set's training split, taken evenly from the beginning of each of its files."""
    import datasets

    rows = datasets.load_dataset(dataset, split="train", streaming=True)
    shards = max(1, rows.num_shards)
    each = -(-count // shards)
    return [row for i in range(shards) for row in islice(rows.shard(num_shards=shards, index=i), each)]


def _greet() -> None:
    """Fail at once where the hub's host has no address or does not answer: `datasets` alone takes half a minute."""
    if any(os.environ.get(variable) for variable in PROXIES):
        return
    endpoint = urllib.parse.urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
    socket.create_connection((endpoint.hostname or "", port), timeout=LIMIT_S).close()


def main(name: str, count: int) -> None:
    from refbias.stimuli.upstream import UPSTREAM, unique

    source = UPSTREAM[name]
    try:
        _greet()
        texts = unique(source.text(row) for row in stream(source.hub_id, count))
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    json.dump(texts, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # threads of the download library may still run


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
