"""Opening GloVe text of 400,000 words, against gensim's loader.

    python benchmarks/load_vectors.py

The file is written first from the package behind reference=glove50. Prints seconds, each the median of three, and what
they are to gensim's, which is timed once: the whole file read into memory; read, and kept in the cache as well; opened
from the cache; and, without a cache, the words of WEAT 1-10 alone.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas  # noqa: F401  # both sides read with their libraries loaded
from gensim.models import KeyedVectors

from refbias.cache import Cache
from refbias.models import find_model
from refbias.models.vectors import VectorsModel
from refbias.suites import SUITES

WORDS = [word for test in SUITES["caliskan2017"]() for word in (*test.X, *test.Y, *test.A, *test.B)]


def write(path: Path) -> None:
    model = find_model("glove50", cache=Cache(None))
    assert isinstance(model, VectorsModel)
    index, rows = model.table
    with path.open("w", encoding="utf-8") as file:
        for word, row in zip(index, rows.tolist(), strict=True):
            file.write(f"{word} {' '.join(f'{number:.5g}' for number in row)}\n")


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def opened(path: Path, cache: Cache) -> VectorsModel:
    model = find_model(path, cache=cache)
    assert isinstance(model, VectorsModel)
    return model


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "glove.6B.50d.txt"
        write(path)
        kept = Cache(Path(folder) / "kept")

        def whole(cache: Cache) -> None:
            index, rows = opened(path, cache).table
            assert rows.shape == (400_000, 50) and len(index) == 400_000

        def again() -> None:
            index, rows = opened(path, Cache(kept.directory)).table
            assert np.isfinite(rows[index["zebra"]]).all()

        def some(cache: Cache) -> None:
            assert len(opened(path, cache).lookup(WORDS)[0]) > 300

        whole(kept)

        theirs = seconds(lambda: KeyedVectors.load_word2vec_format(str(path), no_header=True))
        print(f"{path.stat().st_size / 1e6:.0f} MB, numpy {np.__version__}")
        print(f"{'':42s} {'s':>7s} {'gensim / it':>12s}")
        print(f"{'gensim, load_word2vec_format':42s} {theirs:7.2f}")
        for label, run in {
            "read into memory, with its digest": lambda: whole(Cache(None)),
            "read, and kept in the cache": lambda: whole(Cache(tempfile.mkdtemp(dir=folder))),
            "opened from the cache, one word looked up": again,
            f"opened from the cache, {len(set(WORDS))} words": lambda: some(Cache(kept.directory)),
            f"without a cache, {len(set(WORDS))} words": lambda: some(Cache(None)),
        }.items():
            taken = statistics.median(seconds(run) for _ in range(3))
            print(f"{label:42s} {taken:7.3f} {theirs / taken:12.0f}")


if __name__ == "__main__":
    main()
