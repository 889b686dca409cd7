"""Word-vector models: how a word is looked up, and how little is read for it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.models import find_model, vectors, word_sources
from refbias.models.vectors import VectorsModel, spellings
from refbias.models.word_index import WordIndex

LOWER = "the 1 0 0\nsea 0 2 0\nnew_york 0 0 4\nadam 5 5 5\nsea 9 9 9\n"
CASED = "the 1 0 0\nThe 2 0 0\nNew_York 0 0 4\nadam 5 5 5\nNew 7 7 7\nYork 8 8 8\n"


def model_of(path: Path, content: str, cache: Cache | None = None) -> VectorsModel:
    path.write_text(content, encoding="utf-8")
    return opened(path, cache)


def opened(path: Path, cache: Cache | None = None) -> VectorsModel:
    model = find_model(path, cache=cache or Cache(None))
    assert isinstance(model, VectorsModel)
    return model


def kept(cache: Cache) -> list[str]:
    return [item.name for item in cache.usage() if item.kind == "folder"]


@pytest.mark.parametrize(
    ("word", "case", "lowercased", "expected"),
    [
        ("sea", "auto", True, ["sea"]),
        ("Adam", "auto", True, ["Adam", "adam"]),
        ("Adam", "auto", False, ["Adam"]),
        ("Adam", "exact", True, ["Adam"]),
        ("Adam", "lower", False, ["adam"]),
        ("New York", "auto", False, ["New York", "New_York"]),
    ],
)
def test_spellings(word: str, case: vectors.Case, lowercased: bool, expected: list[str]) -> None:
    assert spellings(word, case, lowercased) == expected


def test_lower_case_is_tried_where_the_vocabulary_is_lower_cased(tmp_path: Path) -> None:
    lower, cased = model_of(tmp_path / "l.txt", LOWER), model_of(tmp_path / "c.txt", CASED)
    assert (lower.lowercased, cased.lowercased) == (True, False)
    assert lower.lookup(["Adam"])[0]["Adam"].tolist() == [5, 5, 5]
    assert cased.lookup(["Adam"])[1] == {"Adam": "not in the vocabulary (tried 'Adam')"}
    assert cased.lookup(["Adam"], case="lower")[0]["Adam"].tolist() == [5, 5, 5]
    assert lower.lookup(["Adam"], case="exact")[1] == {"Adam": "not in the vocabulary (tried 'Adam')"}
    assert cased.lookup(["The"])[0]["The"].tolist() == [2, 0, 0], "what is there as it is wins"
    assert not model_of(tmp_path / "n.txt", "1 1 2 3\n2 1 2 3\n").lowercased, "digits say nothing"


def test_several_words_are_one_entry_or_none(tmp_path: Path) -> None:
    found, lost = model_of(tmp_path / "c.txt", CASED).lookup(["New York", "York New"])
    assert found["New York"].tolist() == [0, 0, 4]
    assert lost["York New"].endswith("(tried 'York New', 'York_New'; the words of an item are not averaged)")
    model = model_of(tmp_path / "l.txt", LOWER)
    assert model.find(["New York", "sea"]).entries == {"New York": "new_york", "sea": "sea"}


def test_only_the_words_that_are_needed_are_read(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    model = model_of(tmp_path / "v.txt", LOWER.replace("0 0 4", "0 0 x"), cache)
    assert model.lookup(["Sea", "sky"])[0]["Sea"].tolist() == [0, 2, 0]
    assert model.lookup(["sea"])[0]["sea"].tolist() == [0, 2, 0], "these are known"
    assert kept(cache) == []
    assert model.notes == ("1 words stand in the word vectors more than once: the first of each is taken",)
    with pytest.raises(RefbiasError, match=r"line 3: expected a word and 3 numbers"):
        model.lookup(["adam"])  # a second pass reads all, and keeps it


def test_a_second_pass_reads_all_and_keeps_it_for_later_runs(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    model = model_of(tmp_path / "v.txt", LOWER, cache)
    first, second = model.lookup(["sea"])[0]["sea"], model.lookup(["the"])[0]["the"]
    assert (first.tolist(), second.tolist()) == ([0, 2, 0], [1, 0, 0])
    assert kept(cache) == [f"words-1-{model.fingerprint[:32]}"]
    later = opened(tmp_path / "v.txt", Cache(tmp_path / "cache"))
    index, rows = later.table
    assert isinstance(index, WordIndex) and isinstance(rows, np.memmap)
    assert later.notes == ("1 words stand in the word vectors more than once: the first of each is taken",)
    assert later.lookup(["Sea", "sky"])[0]["Sea"].tolist() == [0, 2, 0]
    assert later.vocabulary_sample(9)[0] == ["the", "sea", "new_york", "adam"]


def test_what_is_in_the_cache_is_used_without_reading_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "cache")
    assert len(model_of(tmp_path / "v.txt", LOWER, cache).table[0]) == 4
    later = opened(tmp_path / "v.txt", cache)
    monkeypatch.setattr(type(later._source._stream), "only", None)  # type: ignore[attr-defined]
    monkeypatch.setattr(type(later._source._stream), "blocks", None)  # type: ignore[attr-defined]
    assert list(later.lookup(["sea", "adam"])[0]) == ["sea", "adam"]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert model_of(tmp_path / "v.txt", LOWER, cache).table[1][0, 0] == 1
    assert model_of(tmp_path / "v.txt", LOWER.replace("the 1", "the 3"), cache).table[1][0, 0] == 3


def test_a_bad_line_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    model = model_of(tmp_path / "v.txt", LOWER + "sky 1 2\n", cache)
    with pytest.raises(RefbiasError, match="line 6"):
        model.table  # noqa: B018
    assert kept(cache) == []


def test_a_damaged_copy_is_said(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    model_of(tmp_path / "v.txt", LOWER, cache).table  # noqa: B018
    (copy,) = (tmp_path / "cache").rglob("vectors.f32")
    os.truncate(copy, 8)
    with pytest.raises(RefbiasError, match=r"words-1-.* is damaged .* Remove it"):
        opened(tmp_path / "v.txt", cache).table  # noqa: B018


def test_a_sample_is_the_beginning_and_no_more_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_sources, "_HEAD_BYTES", 20)
    model = model_of(tmp_path / "v.txt", "a 1 2 3\na 4 5 6\nb 7 8 9\nc 1 1 1\nd 1 1 x\n")
    words, rows = model.vocabulary_sample(2, seed=3)
    assert words == ["a", "b"] and rows.tolist() == [[1, 2, 3], [7, 8, 9]]
    with pytest.raises(RefbiasError, match="line 5"):
        model.vocabulary_sample(5)


def test_glove_as_text_and_from_its_package(tmp_path: Path) -> None:
    try:
        whole = find_model("glove50", cache=Cache(None))
    except RefbiasError as error:
        pytest.skip(str(error))
    assert isinstance(whole, VectorsModel) and whole.lowercased
    words, rows = whole.vocabulary_sample(5_000)
    assert words[:5] == ["the", ",", ".", "of", "to"]
    lines = [f"{word} {' '.join(map(str, row.tolist()))}" for word, row in zip(words, rows, strict=True)]
    text = model_of(tmp_path / "glove.txt", "\n".join(lines), Cache(tmp_path / "cache"))
    assert text.lowercased
    asked = ["Adam", "Paris", "rose", "qqqzzq", "New York"]
    ours, theirs = text.lookup(asked), whole.lookup(asked)
    assert ours[1] == theirs[1] and list(ours[1]) == ["qqqzzq", "New York"]
    for word in ours[0]:
        np.testing.assert_array_equal(ours[0][word], theirs[0][word])
    np.testing.assert_array_equal(text.table[1], rows)
    np.testing.assert_array_equal(text.lookup(asked)[0]["Paris"], theirs[0]["Paris"])
