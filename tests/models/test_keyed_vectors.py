"""gensim's own files, read without running what they name."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.models import find_model
from refbias.models.keyed_vectors import read_keyed_vectors
from refbias.models.vectors import VectorsModel

WORDS = ["the", "sea", "New_York", "été"]


def saved(path: Path, dtype: str = "f4", **options: Any) -> Any:
    models = pytest.importorskip("gensim.models")
    vectors = models.KeyedVectors(5, dtype=np.dtype(dtype))
    vectors.add_vectors(WORDS, np.random.default_rng(0).normal(size=(4, 5)).astype(dtype))
    vectors.save(str(path), **options)
    return vectors


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("options", [{}, {"sep_limit": 0}], ids=["one file", "arrays beside"])
def test_what_gensim_saved_is_read_as_gensim_reads_it(dtype: str, options: dict[str, int], tmp_path: Path) -> None:
    vectors = saved(tmp_path / "v.kv", dtype, **options)
    assert (tmp_path / "v.kv.vectors.npy").is_file() == bool(options)
    words, rows = read_keyed_vectors(tmp_path / "v.kv")
    assert words == WORDS and rows.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(rows, vectors.vectors)
    found, _ = find_model(tmp_path / "v.kv", cache=Cache(None)).lookup(["sea"])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(found["sea"], vectors["sea"].astype(np.float32))


@pytest.mark.parametrize("options", [{}, {"sep_limit": 0}], ids=["one file", "arrays beside"])
def test_whole_models_and_the_vectors_in_them(options: dict[str, int], tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    model = models.Word2Vec([["sea", "calm", "sky"]] * 3, vector_size=4, min_count=1, seed=1, workers=1)
    model.save(str(tmp_path / "all.model"), **options)
    model.wv.save(str(tmp_path / "v.kv"), **options)
    for name in ("all.model", "v.kv"):
        words, rows = read_keyed_vectors(tmp_path / name)
        assert words == model.wv.index_to_key
        np.testing.assert_array_equal(rows, model.wv.vectors)


@pytest.mark.parametrize("name", ["all.model", "v.kv"])
def test_fasttext_is_converted_as_the_message_says(name: str, tmp_path: Path) -> None:
    """gensim makes these vectors from parts of words when it loads them."""
    gensim = pytest.importorskip("gensim")
    model = gensim.models.FastText([["sea", "calm"]] * 3, vector_size=4, min_count=1, bucket=10, seed=1, workers=1)
    model.save(str(tmp_path / "all.model"))
    model.wv.save(str(tmp_path / "v.kv"))
    with pytest.raises(RefbiasError, match="only gensim makes the vectors of its FastText") as caught:
        read_keyed_vectors(tmp_path / name)
    advice = str(caught.value).partition("in Python: ")[2].partition(";")[0]
    exec(advice.replace("'vectors.bin'", f"{str(tmp_path / 'vectors.bin')!r}"), {"gensim": gensim})  # noqa: S102
    found, _ = find_model(tmp_path / "vectors.bin", cache=Cache(None)).lookup(["sea"])  # type: ignore[attr-defined]
    np.testing.assert_allclose(found["sea"], model.wv["sea"])


def test_the_keyed_vectors_that_wefe_ships() -> None:
    wefe = pytest.importorskip("wefe.datasets")
    models = pytest.importorskip("gensim.models")
    path = Path(wefe.__file__).parent / "data" / "test_model.kv"
    words, rows = read_keyed_vectors(path)
    theirs = models.KeyedVectors.load(str(path))
    assert words == theirs.index_to_key and all(type(word) is str for word in words)
    np.testing.assert_array_equal(rows, theirs.vectors)


class Harmful:
    """A pickle that would write a file and import a module."""

    def __init__(self, how: tuple[Any, ...]) -> None:
        self.how = how

    def __reduce__(self) -> tuple[Any, ...]:
        return self.how


def test_nothing_of_a_harmful_pickle_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "refbias_test_trap.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    calls: list[bytes] = [
        pickle.dumps(Harmful((os.system, (f"touch {mark}",)))),
        pickle.dumps(Harmful((exec, (f"open({str(mark)!r}, 'w')",)))),
        pickle.dumps(Harmful((open, (str(mark), "w")))),
        b"crefbias_test_trap\nanything\n.",  # imports a module
        b"\x80\x04(S'touch " + str(mark).encode() + b"'\nios\nsystem\n.",  # INST
        b"\x80\x02cbuiltins\nopen\n(X" + len(str(mark)).to_bytes(4, "little") + str(mark).encode() + b"X\x01\0\0\0wtR.",
    ]
    path = tmp_path / "bad.kv"
    for content in calls:
        path.write_bytes(content)
        with pytest.raises(RefbiasError, match=r"runs nothing of it.*save_word2vec_format"):
            read_keyed_vectors(path)
    assert not mark.exists() and "refbias_test_trap" not in sys.modules
    pickle.loads(calls[2]).close()  # noqa: S301  # the trap does spring where a pickle is trusted
    assert mark.exists()


def test_harm_beside_good_vectors_does_not_run_either(tmp_path: Path) -> None:
    vectors = saved(tmp_path / "v.kv")
    mark = tmp_path / "ran"
    vectors.trap = Harmful((open, (str(mark), "w")))
    vectors.save(str(tmp_path / "v.kv"))
    words, rows = read_keyed_vectors(tmp_path / "v.kv")
    assert words == WORDS and not mark.exists()
    np.testing.assert_array_equal(rows, vectors.vectors)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"the": [1.0, 2.0]}, "AttributeError"),
        (["the"], "AttributeError"),
        (np.ones((2, 2)), "AttributeError"),
    ],
)
def test_other_pickles_say_how_to_convert(content: Any, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.kv").write_bytes(pickle.dumps(content))
    with pytest.raises(RefbiasError, match=rf"finds no vectors.*{why}.*SaveLoad\.load\('.*x\.kv'\)"):
        find_model(tmp_path / "x.kv", cache=Cache(None))


def test_a_lost_array_is_said(tmp_path: Path) -> None:
    saved(tmp_path / "v.kv", sep_limit=0)
    (tmp_path / "v.kv.vectors.npy").unlink()
    with pytest.raises(RefbiasError, match=r"finds no vectors .*FileNotFoundError"):
        read_keyed_vectors(tmp_path / "v.kv")


def test_keyed_vectors_from_memory(tmp_path: Path) -> None:
    vectors = saved(tmp_path / "v.kv")
    model = find_model(vectors, cache=Cache(None))
    assert isinstance(model, VectorsModel)
    assert (model.name, model.kind, model.dim) == ("KeyedVectors", "vectors", 5)
    np.testing.assert_array_equal(model.lookup(["New York"])[0]["New York"], vectors["New_York"])
    other = saved(tmp_path / "w.kv")
    assert find_model(other, cache=Cache(None)).fingerprint == model.fingerprint
    other.vectors[0, 0] += 1
    assert find_model(other, cache=Cache(None)).fingerprint != model.fingerprint
