"""The cache keeps what it is given, survives damage, a full disk and other processes, and stays below its bound."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sqlite3
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from refbias.cache import GIB, Cache, CacheWarning, Store
from refbias.errors import RefbiasError, UsageError


def rows(n: int, dim: int = 8, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {f"k{seed}-{i}": rng.normal(size=dim).astype(np.float32) for i in range(n)}


def check(store: Store, values: dict[str, np.ndarray]) -> None:
    found = store.get(list(values))
    assert found.keys() == values.keys()
    for key, value in values.items():
        np.testing.assert_array_equal(found[key], value)
        assert found[key].dtype == value.dtype


def file_of(cache: Cache, fingerprint: str) -> Path:
    path = cache.store(fingerprint).path
    assert path is not None
    return path


def test_values_come_back_in_a_later_run(tmp_path: Path) -> None:
    values = {**rows(1200), "ints": np.arange(6).reshape(2, 3), "empty": np.zeros((0, 4))}
    Cache(tmp_path).store("a").put(values)
    again = Cache(tmp_path)
    check(again.store("a"), values)
    assert again.store("a").get(["unknown"]) == {} and again.store("b").get(list(values)) == {}


def test_in_memory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "none"))
    cache = Cache(None)
    with cache.store("a").lock():
        cache.store("a").put(rows(3))
    check(cache.store("a"), rows(3))
    assert cache.remember("k", lambda: "v") == "v" and not (tmp_path / "none").exists()


def test_a_damaged_value_is_reported_and_dropped_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store("a").put(rows(5))
    cache.store("a").close()
    with sqlite3.connect(file_of(cache, "a")) as database:
        (data,) = database.execute("SELECT data FROM vectors WHERE key = 'k0-2'").fetchone()
        database.execute("UPDATE vectors SET data = ? WHERE key = 'k0-2'", (data[:-1] + b"\x00",))
    store = Cache(tmp_path).store("a")
    with pytest.warns(CacheWarning, match="1 damaged value"):
        found = store.get(list(rows(5)))
    assert set(found) == set(rows(5)) - {"k0-2"} and store.damaged == 1
    store.put({"k0-2": rows(5)["k0-2"]})
    check(store, rows(5))


@pytest.mark.parametrize("damage", [b"not a database at all" * 400, b""])
def test_a_damaged_file_is_reported_and_begun_anew(tmp_path: Path, damage: bytes) -> None:
    cache = Cache(tmp_path)
    cache.store("a").put(rows(50))
    cache.store("a").close()
    path = file_of(cache, "a")
    path.write_bytes(damage)
    store = Cache(tmp_path).store("a")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert store.get(list(rows(50))) == {}
    assert any("is damaged" in str(w.message) for w in seen) == bool(damage)  # an empty file is a new database
    store.put(rows(50))
    check(Cache(tmp_path).store("a"), rows(50))


def test_a_file_damaged_in_the_middle(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store("a").put(rows(400, 600))
    cache.store("a").close()
    path = file_of(cache, "a")
    content = bytearray(path.read_bytes())
    for start in range(32768, len(content), 32768):
        content[start : start + 4000] = b"\xff" * 4000
    path.write_bytes(content)
    store = Cache(tmp_path).store("a")
    with pytest.warns(CacheWarning, match="damaged"):
        found = store.get(list(rows(400, 600)))
    for key, value in found.items():
        np.testing.assert_array_equal(value, rows(400, 600)[key])
    store.put(rows(400, 600))
    check(Cache(tmp_path).store("a"), rows(400, 600))


@pytest.mark.filterwarnings("error::refbias.cache.CacheWarning")
def test_no_disk_space_is_said_once_and_earlier_results_stay(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    store = cache.store("a")
    store.put(rows(20))
    assert store._database is not None
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own "disk is full"
    big = rows(400, 4000, seed=1)
    with pytest.warns(CacheWarning, match=r"cannot be written \(database or disk is full\).*cache\.dir="):
        store.put(big)
    store.put(rows(3, seed=2))  # a second warning would be an error here
    cache.warn_once("again")
    check(store, {**big, **rows(3, seed=2)})  # this run goes on
    check(Cache(tmp_path).store("a"), rows(20))


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "cache")
    store = cache.store("a")
    with pytest.warns(CacheWarning, match="cannot be written"), store.lock():
        store.put(rows(3))
    check(store, rows(3))
    with pytest.raises(RefbiasError, match=r"cannot hold model.*REFBIAS_CACHE_DIR"):
        cache.build_folder("model", lambda folder: None)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_place_without_write_permission(tmp_path: Path) -> None:
    Cache(tmp_path).store("a").put(rows(3))
    (tmp_path / "vectors").chmod(0o500)
    try:
        with pytest.warns(CacheWarning, match="cannot be written"):
            Cache(tmp_path).store("b").put(rows(3))
    finally:
        (tmp_path / "vectors").chmod(0o700)
    check(Cache(tmp_path).store("a"), rows(3))


def _worker(directory: Path, seed: int) -> None:
    store = Cache(directory).store("a")
    for start in range(3):
        with store.lock():
            store.put(rows(50, seed=100 * seed + start))


def test_several_processes_write_one_store(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_worker, args=(tmp_path, seed)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    store = Cache(tmp_path).store("a")
    for seed in range(3):
        for start in range(3):
            check(store, rows(50, seed=100 * seed + start))


def _holder(directory: Path, ready: multiprocessing.synchronize.Event) -> None:
    with Cache(directory).store("a").lock():
        ready.set()
        time.sleep(1.5)


def test_the_lock_waits_and_says_so(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    holder = spawn.Process(target=_holder, args=(tmp_path, ready))
    holder.start()
    assert ready.wait(30)
    said: list[str] = []
    with Cache(tmp_path).store("a").lock(lambda: said.append("waiting")):
        assert said == ["waiting"]
    holder.join(30)


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def half(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.build_folder("model", half)
    assert not cache.folder("model").exists()
    left_over = cache.folder("model").parent / ".making-model-abc"
    left_over.mkdir()
    path = cache.build_folder("model", lambda folder: (folder / "weights").write_text("whole") and None)
    assert (path / "weights").read_text() == "whole" and not left_over.exists()
    assert cache.build_folder("model", half) == path  # it is there: not built again


def test_what_is_remembered_comes_from_the_earlier_run(tmp_path: Path) -> None:
    assert Cache(tmp_path).remember("file|1|2", lambda: "digest") == "digest"
    assert Cache(tmp_path).remember("file|1|2", lambda: "other") == "digest"
    assert Cache(tmp_path).remember("file|1|3", lambda: "other") == "other"


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    writer = Cache(tmp_path)
    writer.build_folder("model", lambda folder: (folder / "weights").write_bytes(b"0" * 100_000) and None)
    writer.remember("k", lambda: "v")
    for age, name in enumerate(("old", "middle", "new")):
        store = writer.store(name)
        store.put(rows(100, 250))
        store.close()
        os.utime(file_of(writer, name), (1000.0 + age, 1000.0 + age))
    del writer, store
    gc.collect()
    cache = Cache(tmp_path)
    sizes = {item.name: item.size for item in cache.usage()}
    assert set(sizes) == {"old", "middle", "new", "model", "digests"}
    total = sum(sizes.values())
    cache.store("old")  # in use: it stays
    assert [item.name for item in cache.prune((total - 1) / GIB)] == ["middle"]
    assert [item.name for item in cache.prune(1 / GIB)] == ["new", "model", "digests"]
    assert {item.name for item in cache.usage()} == {"old"}
    check(cache.store("old"), rows(100, 250))


def fill(directory: Path, *names: str) -> None:
    """Stores that nothing uses."""
    for name in names:
        store = Cache(directory).store(name)
        store.put(rows(50, 2000))
        store.close()
    del store
    gc.collect()


def test_a_new_store_makes_room(tmp_path: Path) -> None:
    fill(tmp_path, "a", "b")
    Cache(tmp_path, max_gib=1 / GIB).store("c").put(rows(3))
    assert [item.name for item in Cache(tmp_path).usage()] == ["c"]


def test_a_store_that_grows_makes_room_and_says_where_there_is_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_gib=3 * 2**20 / GIB)
    store = cache.store("c")
    fill(tmp_path, "a", "b")
    store.put(rows(100, 600))
    assert {item.name for item in cache.usage()} == {"a", "b", "c"}
    store.put(rows(900, 600, seed=1))
    assert {item.name for item in cache.usage()} == {"c"}
    with pytest.warns(CacheWarning, match=r"above cache\.max_gib=0\.00292969: all of it is in use"):
        store.put(rows(900, 600, seed=2))
    check(store, rows(900, 600, seed=2))


def test_nothing_that_another_cache_uses_is_removed(tmp_path: Path) -> None:
    user = Cache(tmp_path)
    user.store("a").put(rows(3))
    folder = user.build_folder("model", lambda folder: (folder / "weights").write_text("w") and None)
    assert Cache(tmp_path).prune(0) == [] and Cache(tmp_path, max_gib=1 / GIB).prune() == []
    assert folder.is_dir()
    del user
    gc.collect()
    assert {item.name for item in Cache(tmp_path).prune(0)} == {"a", "model"}


def _user(directory: Path, ready: multiprocessing.synchronize.Event) -> None:
    cache = Cache(directory)
    cache.store("a").put(rows(3))
    cache.build_folder("model", lambda folder: (folder / "weights").write_text("w") and None)
    ready.set()
    time.sleep(60)


def test_nothing_that_another_process_uses_is_removed_until_it_ends(tmp_path: Path) -> None:
    (tmp_path / "anchors").mkdir()
    (tmp_path / "anchors" / "alpaca-5000.json").write_text("[]")
    Cache(tmp_path).remember("k", lambda: "v")
    gc.collect()
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    user = spawn.Process(target=_user, args=(tmp_path, ready))
    user.start()
    try:
        assert ready.wait(30)
        assert {item.name for item in Cache(tmp_path).prune(0)} == {"alpaca-5000", "digests"}
    finally:
        user.kill()
        user.join(30)
    assert {item.name for item in Cache(tmp_path).prune(0)} == {"a", "model"}
    assert Cache(tmp_path).usage() == [] and not list((tmp_path / "leases").glob("*.txt"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_leaves_its_parents_entries_in_use(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store("a").put(rows(3))
    child = multiprocessing.get_context("fork").Process(target=lambda: cache.store("b").put(rows(3)))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert {item.name for item in Cache(tmp_path).prune(0)} == {"b"}


def test_half_a_folder_is_never_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(tmp_path).build_folder("model", lambda folder: (folder / "weights").write_text("w") and None)
    monkeypatch.setattr("shutil.rmtree", lambda path, **options: None)  # as where a file is held open
    assert [item.name for item in Cache(tmp_path).prune(0)] == ["model"]
    assert not Cache(tmp_path).folder("model").exists()


@pytest.mark.parametrize("bound", [0, -1.0, float("nan")])
def test_the_bound_must_be_positive(tmp_path: Path, bound: float) -> None:
    with pytest.raises(UsageError, match=r"cache\.max_gib="):
        Cache(tmp_path, max_gib=bound)


def test_names_become_plain_file_names(tmp_path: Path) -> None:
    path = Cache(tmp_path).folder("../a b/ü")
    assert path.parent == tmp_path / "folders" and path.name.isascii() and "/" not in path.name
    assert Cache(tmp_path).folder("../a b/ü") != Cache(tmp_path).folder("../a b/ä")
