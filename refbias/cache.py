"""What is kept between runs: vectors of sentences, digests of files, converted and built models, generated answers.

Vectors lie in one SQLite file for each encoder fingerprint (see `refbias.encoding`), each value with its shape and
a checksum. SQLite keeps the file whole under several processes, a kill and a full disk; values are raw bytes, so
nothing that is read can run code.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import tempfile
import uuid
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
from numpy.typing import NDArray

from refbias.errors import RefbiasError, UsageError

GIB = 2**30
KINDS = ("vectors", "folder", "anchors", "answers", "digests")  # what is kept, in the order in which it is given up
_CHECKED_ABOVE = 2**20  # bytes
_ALL = "all.lock"
_CHUNK = 500  # keys in one SELECT; SQLite allows 999 variables in its older builds


def open_cache(choice: bool | str | Path | Cache) -> Cache:
    """The cache that ``choice`` means: True the user's, False one in memory, a folder, or a `Cache` as it is."""
    if isinstance(choice, bool):
        return Cache(default_directory() if choice else None)
    return choice if isinstance(choice, Cache) else Cache(choice)


class CacheWarning(UserWarning):
    """The cache lost or cannot keep something; the run goes on."""


def default_directory() -> Path:
    """``REFBIAS_CACHE_DIR``, or the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("REFBIAS_CACHE_DIR") or platformdirs.user_cache_dir("refbias")).expanduser()


@dataclass(frozen=True)
class Usage:
    """One thing in the cache: vectors, a converted model, a built adapter, texts fetched from the hub, answers."""

    kind: str  # one of KINDS
    name: str
    path: Path
    size: int  # bytes
    used: float  # seconds since 1970


class Cache:
    """The cache in ``directory``; None keeps vectors and digests in memory, for this object's life.

    ``max_gib`` bounds the whole: what was used longest ago goes first, in the order of `KINDS`, and nothing that a
    live `Cache` of this or another process uses. The bound is looked at when a store is begun and as stores grow.
    Folders (`folder`) always lie on disk, for they are models.
    """

    def __init__(self, directory: str | Path | None, max_gib: float = 20.0) -> None:
        if not max_gib > 0:
            raise UsageError(f"cache.max_gib={max_gib}: expected a size above 0, in GiB.")
        self.directory = None if directory is None else Path(directory).expanduser()
        self.max_gib = max_gib
        self._stores: dict[str, Store] = {}
        self._in_memory: dict[str, Store] = {}
        self._memory: dict[str, str] = {}
        self._lease = _Lease(self._root)
        self._warned: set[str] = set()
        self._unchecked = 0  # bytes written since the bound was looked at
        weakref.finalize(self, self._lease.end)

    @property
    def _root(self) -> Path:
        return default_directory() if self.directory is None else self.directory

    def store(self, fingerprint: str) -> Store:
        """The vectors of one encoder."""
        if fingerprint not in self._stores:
            path = None if self.directory is None else self.directory / "vectors" / f"{_safe(fingerprint)}.sqlite"
            if path is not None:
                self._lease.add(path)
                if not path.exists():
                    self.prune()
            self._stores[fingerprint] = Store(path, self.warn_once, self._grown)
        return self._stores[fingerprint]

    def memory(self, fingerprint: str) -> Store:
        """Vectors of one encoder that nothing else may read: in memory, for this object's life."""
        return self._in_memory.setdefault(fingerprint, Store(None))

    def _grown(self, size: int) -> None:
        """Look at the bound after every fiftieth part of it that was written."""
        self._unchecked += size
        if self._unchecked < max(self.max_gib * GIB / 50, _CHECKED_ABOVE):
            return
        self._unchecked = 0
        self.prune()
        total = sum(item.size for item in self.usage())
        if total > self.max_gib * GIB:
            self._warn(
                "bound",
                f"The cache {self._root} holds {total / GIB:.1f} GiB, above cache.max_gib={self.max_gib:g}: all of it "
                f"is in use. It shrinks when the next run begins.",
            )

    def warn_once(self, why: str) -> None:
        """Say, the first time only, that results cannot be kept."""
        self._warn(
            "write",
            f"The cache {self._root} cannot be written ({why}). This run goes on, and what it encodes is not "
            f"kept; earlier results are whole. Free some space, or choose another place with cache.dir=…",
        )

    def _warn(self, about: str, message: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warnings.warn(message, CacheWarning, stacklevel=3)

    def remember(self, key: str, compute: Callable[[], str]) -> str:
        """The text that ``compute`` gave for ``key``, now or in an earlier run (digests of files, for instance)."""
        if key not in self._memory:
            self._memory[key] = compute() if self.directory is None else self._remembered(key, compute)
        return self._memory[key]

    def _remembered(self, key: str, compute: Callable[[], str]) -> str:
        store = self.store("digests")
        name = hashlib.sha256(key.encode()).hexdigest()
        found = store.get([name])
        if name in found:
            return found[name].tobytes().decode()
        value = compute()
        store.put({name: np.frombuffer(value.encode(), np.uint8)})
        return value

    def answers(self, key: str) -> Path | None:
        """The file of generated answers under ``key`` (`refbias.answers.store`); None for a cache in memory."""
        if self.directory is None:
            return None
        path = self.directory / "answers" / f"{_safe(key)}.jsonl"
        self._lease.add(path)
        if not path.exists():
            self.prune()
        _touch(path)
        return path

    def folder(self, name: str) -> Path:
        """Where the folder ``name`` lies or will lie (converted models, built adapters); see `build_folder`."""
        path = self._root / "folders" / _safe(name)
        self._lease.add(path)
        return path

    def build_folder(self, name: str, build: Callable[[Path], None]) -> Path:
        """The folder ``name``, made by ``build(empty folder)`` where it is not there yet.

        It appears whole or not at all: ``build`` works on a temporary folder, one process at a time.
        """
        path = self.folder(name)
        if not path.is_dir():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with filelock.FileLock(f"{path}.lock"):
                    if not path.is_dir():
                        _build(path, build)
            except OSError as error:
                raise RefbiasError(
                    f"The cache {self._root} cannot hold {name}: {error.strerror or error}. Free some space or "
                    f"mend the permissions, or choose another place with cache.dir=… or REFBIAS_CACHE_DIR."
                ) from error
        _touch(path)
        return path

    def usage(self) -> list[Usage]:
        """Everything that the cache holds, last used first."""
        kinds: list[tuple[str, Path]] = []
        for path in _children(self._root / "vectors"):
            if path.suffix == ".sqlite":
                kinds.append(("digests" if path.stem == "digests" else "vectors", path))
        for path in _children(self._root / "folders"):
            if path.is_dir() and not path.name.startswith(_TEMPORARY):
                kinds.append(("folder", path))
        kinds += [("anchors", path) for path in _children(self._root / "anchors") if path.suffix == ".json"]
        kinds += [("answers", path) for path in _children(self._root / "answers") if path.suffix == ".jsonl"]
        found = []
        for kind, path in kinds:
            with suppress(FileNotFoundError):  # another process has removed it meanwhile
                name = path.name if kind == "folder" else path.stem
                found.append(Usage(kind, name, path, _size(path), path.stat().st_mtime))
        return sorted(found, key=lambda item: -item.used)

    def prune(self, max_gib: float | None = None) -> list[Usage]:
        """Remove what was used longest ago until the cache is below ``max_gib`` (0: empty); returns what went."""
        limit = (self.max_gib if max_gib is None else max_gib) * GIB
        total = sum(item.size for item in self.usage())
        gone: list[Usage] = []
        if total <= limit:
            return gone
        with suppress(OSError), _leasing(self._root):
            in_use = self._lease.all()
            removable = [item for item in self.usage() if item.path not in in_use]
            for item in sorted(removable, key=lambda item: (KINDS.index(item.kind), item.used)):
                if total <= limit:
                    break
                if _remove(item):
                    total -= item.size
                    gone.append(item)
        return gone


class _Lease:
    """The entries of the cache in ``root`` that one `Cache` uses, as others see them.

    They are listed in a file beside a lock that is held meanwhile. The system releases the lock of a process that
    ends in whatever way, so a list whose lock is free is out of date.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._begin()

    def _begin(self, inherited: filelock.BaseFileLock | None = None) -> None:
        self._inherited = inherited  # kept: older releases of filelock would give the parent's lock back with it
        self._process = os.getpid()
        self._entries: set[Path] = set()
        self._lock: filelock.BaseFileLock | None = None
        self._list = self._root / "leases" / f"{self._process}-{uuid.uuid4().hex[:8]}.txt"

    def add(self, entry: Path) -> None:
        if self._process != os.getpid():  # after a fork the lease is the parent's
            self._begin(self._lock)
        if entry in self._entries:
            return
        self._entries.add(entry)
        with suppress(OSError), _leasing(self._root):  # where nothing can be written, nothing can be removed either
            if self._lock is None:
                self._lock = filelock.FileLock(self._list.with_suffix(".lock"), thread_local=False)
                self._lock.acquire()
            names = [path.relative_to(self._root).as_posix() for path in self._entries]
            self._list.write_text("\n".join(names), encoding="utf-8")

    def all(self) -> set[Path]:
        """What is in use by anyone; lists that are out of date are removed. Call it under `_leasing`."""
        found = set(self._entries)
        for file in (self._root / "leases").glob("*.lock"):
            entries = file.with_suffix(".txt")
            if entries == self._list or file.name == _ALL:
                continue
            try:
                with filelock.FileLock(file, timeout=0):
                    _unlink(entries)
                _unlink(file)
            except filelock.Timeout:
                with suppress(FileNotFoundError):
                    found.update(self._root / name for name in entries.read_text(encoding="utf-8").splitlines())
        return found

    def end(self) -> None:
        if self._lock is not None and self._process == os.getpid():
            _unlink(self._list)
            self._lock.release()
            _unlink(self._list.with_suffix(".lock"))


@contextmanager
def _leasing(root: Path) -> Iterator[None]:
    """While leases of the cache in ``root`` are read or written: an entry is either taken into use or removed."""
    (root / "leases").mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(root / "leases" / _ALL):
        yield


class Store:
    """Arrays by key, in one SQLite file or, where ``path`` is None or cannot be written, in memory.

    ``on_failure`` is told why the file cannot be written, ``on_growth`` how many bytes were.
    """

    def __init__(
        self,
        path: Path | None,
        on_failure: Callable[[str], None] = warnings.warn,
        on_growth: Callable[[int], None] = lambda size: None,
    ) -> None:
        self.path = path
        self.damaged = 0  # values and files found damaged
        self._on_failure = on_failure
        self._on_growth = on_growth
        self._memory: dict[str, NDArray[Any]] = {}
        self._database: sqlite3.Connection | None = None
        self._process = os.getpid()

    def get(self, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
        """What is there of ``keys``. A value that fails its checksum is dropped, reported and counts as missing."""
        found = {key: self._memory[key] for key in keys if key in self._memory}
        wanted = [key for key in keys if key not in found]
        if wanted and self.path is not None and self.path.exists():
            self._run(lambda database: _select(database, wanted, found, self._report))
        return found

    def put(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Keep ``values``, all or none of them. Where the file cannot be written, they stay in memory."""
        rows = [_encode(key, value) for key, value in values.items()]
        if self.path is None or not self._run(lambda database: _insert(database, rows)):
            self._memory.update(values)
            return
        self._on_growth(sum(value.nbytes for value in values.values()))

    @contextmanager
    def lock(self, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Keep other processes from doing the same work meanwhile; ``waiting`` is called where one is at it."""
        lock = None
        if self.path is not None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                lock = _acquire(self.path.with_suffix(".lock"), waiting)
            except OSError as error:
                self._give_up(error)
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def close(self) -> None:
        if self._database is not None and self._process == os.getpid():
            self._database.close()
        self._database = None

    def _run(self, action: Callable[[sqlite3.Connection], None]) -> bool:
        """Whether ``action`` was done. A damaged file is set aside first and a new one begun."""
        if self.path is None:
            return False
        for attempt in range(2):
            try:
                action(self._connect(self.path))
                return True
            except (sqlite3.Error, OSError) as error:
                self.close()
                if attempt or not _is_damage(error):
                    self._give_up(error)
                    return False
                self._begin_anew(self.path, error)
        return False

    def _connect(self, path: Path) -> sqlite3.Connection:
        if self._process != os.getpid():  # a connection must not cross a fork
            self._database, self._process = None, os.getpid()
        if self._database is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = _open(path)
            _touch(path)
        return self._database

    def _begin_anew(self, path: Path, error: Exception) -> None:
        for file in _database_files(path):
            file.unlink(missing_ok=True)
        self._report(f"The cache file {path} is damaged ({error}): it is begun anew.", 1)

    def _report(self, message: str, count: int) -> None:
        self.damaged += count
        warnings.warn(message, CacheWarning, stacklevel=2)

    def _give_up(self, error: Exception) -> None:
        self.close()
        self.path = None
        self._on_failure(str(error))


_TEMPORARY = ".making-"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, dtype TEXT, shape TEXT, data BLOB, crc INTEGER)
"""


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=60, check_same_thread=False)
    try:
        database.execute("PRAGMA page_size = 32768")  # a value of four poolings in 576 dimensions takes 9 KiB
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        with database:
            database.execute(_SCHEMA)
    except sqlite3.Error:
        database.close()
        raise
    return database


def _is_damage(error: Exception) -> bool:
    return isinstance(error, sqlite3.DatabaseError) and any(
        sign in str(error) for sign in ("malformed", "not a database", "no such column", "no such table")
    )


def _select(
    database: sqlite3.Connection,
    keys: Sequence[str],
    found: dict[str, NDArray[Any]],
    report: Callable[[str, int], None],
) -> None:
    bad = []
    for start in range(0, len(keys), _CHUNK):
        some = keys[start : start + _CHUNK]
        marks = ",".join("?" * len(some))
        for row in database.execute(f"SELECT * FROM vectors WHERE key IN ({marks})", some):
            value = _decode(*row)
            if value is None:
                bad.append(row[0])
            else:
                found[row[0]] = value
    if bad:
        with database:
            database.executemany("DELETE FROM vectors WHERE key = ?", [(key,) for key in bad])
        report(f"{len(bad)} damaged values in the cache: they are computed again.", len(bad))


def _insert(database: sqlite3.Connection, rows: Sequence[tuple[str, str, str, bytes, int]]) -> None:
    with database:
        database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?, ?)", rows)


def _encode(key: str, value: NDArray[Any]) -> tuple[str, str, str, bytes, int]:
    dtype, shape, data = value.dtype.str, ",".join(map(str, value.shape)), value.tobytes()
    return key, dtype, shape, data, _checksum(key, dtype, shape, data)


def _decode(key: str, dtype: str, shape: str, data: bytes, crc: int) -> NDArray[Any] | None:
    """The array of one row, or None where the row is not what was written."""
    try:
        if _checksum(key, dtype, shape, data) != crc:
            return None
        sizes = [int(size) for size in shape.split(",") if size]
        return np.frombuffer(data, np.dtype(dtype)).reshape(sizes)
    except (TypeError, ValueError, AttributeError):
        return None


def _checksum(key: str, dtype: str, shape: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{key} {dtype} {shape}".encode()))


def _acquire(path: Path, waiting: Callable[[], None]) -> filelock.BaseFileLock:
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0.2)
    except filelock.Timeout:
        waiting()
        lock.acquire()
    return lock


def _build(path: Path, build: Callable[[Path], None]) -> None:
    for left_over in path.parent.glob(f"{_TEMPORARY}{path.name}-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    making = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{path.name}-", dir=path.parent))
    try:
        build(making)
        os.replace(making, path)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _safe(name: str) -> str:
    """``name`` as a file name of A–Z a–z 0–9 . _ - only."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name).lstrip(".")
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _touch(path: Path) -> None:
    with suppress(OSError):
        os.utime(path)


def _unlink(path: Path) -> None:
    with suppress(OSError):  # on Windows a file that another process reads stays
        path.unlink()


def _children(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else []


def _database_files(path: Path) -> list[Path]:
    return [file for end in ("", "-wal", "-shm") if (file := path.with_name(path.name + end)).exists()]


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else _database_files(path)
    return sum(file.stat().st_size for file in files if file.is_file())


def _remove(item: Usage) -> bool:
    """Remove ``item``, unless another process holds its lock."""
    lock = f"{item.path}.lock" if item.kind == "folder" else item.path.with_suffix(".lock")
    try:
        with filelock.FileLock(lock, timeout=0):
            if item.kind == "folder":  # it goes at once: half a folder would be taken for a whole one
                gone = item.path.with_name(f"{_TEMPORARY}{item.path.name}-gone")
                os.replace(item.path, gone)
                shutil.rmtree(gone, ignore_errors=True)
            else:
                for file in _database_files(item.path):
                    file.unlink()
    except (filelock.Timeout, OSError):
        return False
    return True
