"""Draws of sentences: without replacement, even, and of one word independent of everything else."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refbias.cache import Cache
from refbias.context import Context
from refbias.corpora import Corpus
from refbias.words.alignment import Finder
from refbias.words.drawing import draw, drawn

WORDS = ["peace", "Adam", "New York", "drum"]
TEXTS = [f"{word} stands in sentence {i} of {filler}." for word in WORDS for i, filler in enumerate("abcdefghij" * 3)]


def by_hand(word: str, texts: list[str], most: int, seed: int) -> list[str]:
    salt = hashlib.blake2b(str(seed).encode(), digest_size=16).digest()
    holding = {text for text in texts if Finder([word]).first(word, text)}
    return sorted(holding, key=lambda t: hashlib.blake2b(t.encode(), digest_size=8, salt=salt).digest())[:most]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(TEXTS), max_size=60), st.integers(1, 9), st.integers(-3, 3))
def test_a_draw_is_the_beginning_of_one_order_of_all_sentences_with_the_word(
    texts: list[str], most: int, seed: int
) -> None:
    found = draw(Finder(WORDS), texts, most, seed)
    for word in WORDS:
        assert found[word] == by_hand(word, texts, most, seed)
        assert draw(Finder([word]), texts[::-1], most + 1, seed)[word][:most] == found[word]


def test_every_sentence_is_drawn_equally_often() -> None:
    texts = [text for text in TEXTS if "peace" in text][:10]
    counts = dict.fromkeys(texts, 0)
    for seed in range(600):
        for text in draw(Finder(["peace"]), texts, 3, seed)["peace"]:
            counts[text] += 1
    spread = (600 * 0.3 * 0.7) ** 0.5
    assert sum(counts.values()) == 1800
    assert max(abs(count - 180) for count in counts.values()) < 4 * spread


def test_a_kept_draw_is_read_and_the_corpus_is_not(context: Context) -> None:
    reads = []

    def read():  # type: ignore[no-untyped-def]
        reads.append(1)
        return iter(random.Random(len(reads)).sample(TEXTS, len(TEXTS)))

    corpus = Corpus("own", "digest", read)
    first = drawn(Finder(["peace", "nowhere"]), corpus, 4, 0, "exact", context)
    assert len(first["peace"]) == 4 and first["nowhere"] == []
    again = Context(Cache(context.cache.directory))
    assert drawn(Finder(["nowhere", "peace"]), corpus, 4, 0, "exact", again) == first
    assert len(reads) == 1
    more = drawn(Finder(["peace", "Adam"]), corpus, 4, 0, "exact", again)
    assert more["peace"] == first["peace"] and len(more["Adam"]) == 4
    for most, seed, case in [(5, 0, "exact"), (4, 1, "exact"), (4, 0, "fold")]:
        reads.clear()
        drawn(Finder(["peace"], case), corpus, most, seed, case, again)  # type: ignore[arg-type]
        assert reads
    other = Corpus("own", "other digest", lambda: iter(["peace is here"]))
    assert drawn(Finder(["peace"]), other, 4, 0, "exact", again) == {"peace": ["peace is here"]}


@pytest.mark.parametrize("chunks", [1, 2500])
def test_long_corpora_are_searched_in_chunks(chunks: int) -> None:
    texts = [f"line {i} has {'a drum' if i % 7 == 0 else 'nothing'}" for i in range(chunks)]
    found = draw(Finder(["drum"]), texts, 10**6, 0)["drum"]
    assert sorted(found) == sorted(text for text in texts if "drum" in text)
    assert len(found) == len(np.arange(0, chunks, 7))
