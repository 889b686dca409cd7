"""The table of word vectors in the cache's folder: a mapping like any other, without a dictionary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refbias.models import word_index
from refbias.models.word_index import opened, write


def blocks_of(words: list[str]) -> list[tuple[list[bytes], np.ndarray]]:
    rows = np.arange(2 * len(words), dtype=np.float32).reshape(-1, 2)
    raw = [word.encode() for word in words]
    half = len(words) // 2
    return [block for block in ((raw[:half], rows[:half]), (raw[half:], rows[half:])) if block[0]]


@given(st.lists(st.text(max_size=4), min_size=1, max_size=30), st.text(max_size=4))
def test_it_is_the_dictionary_of_the_first_rows(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], other: str
) -> None:
    words = [word.encode("utf-8", "ignore").decode() for word in words]  # no half surrogates
    folder = tmp_path_factory.mktemp("index")
    write(folder, blocks_of(words))
    index, rows, about = opened(folder)
    expected: dict[str, int] = {}
    for row, word in enumerate(words):
        expected.setdefault(word, row)
    assert dict(index) == expected and list(index) == list(expected) and len(index) == len(expected)
    assert (other in index) == (other in expected)
    assert about == {"words": len(words), "dim": 2, "duplicates": len(words) - len(expected), "not_utf8": 0}
    assert rows.shape == (len(words), 2) and rows[-1, 1] == 2 * len(words) - 1


def test_words_of_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_index, "digest", lambda word: bytes(8))
    write(tmp_path, blocks_of(["a", "b", "c"]))
    index, _, _ = opened(tmp_path)
    assert [index["a"], index["b"], index["c"]] == [0, 1, 2] and "d" not in index


def test_words_that_are_not_utf8_have_no_row(tmp_path: Path) -> None:
    write(tmp_path, [([b"a", b"\xff", b"c"], np.array([[0, 0], [1, 1], [2, 2]], np.float32))])
    index, rows, about = opened(tmp_path)
    assert dict(index) == {"a": 0, "c": 1} and about["not_utf8"] == 1
    np.testing.assert_array_equal(rows, [[0, 0], [2, 2]])
