"""Words from a table of word vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refbias.context import Context
from refbias.encoders import ENCODERS
from refbias.errors import UsageError
from refbias.models import find_model
from refbias.pooling import built_in
from refbias.words import WORDS, Lookup


def lookup(path: Path, words: list[str], context: Context) -> Lookup:
    encoder = ENCODERS["auto"](find_model(path, cache=context.cache), context)
    return Lookup(encoder, words, 0, built_in("mean"), None, context)


def test_vectors_what_is_lost_and_how_words_were_spelled(tmp_path: Path, context: Context) -> None:
    (tmp_path / "v.txt").write_text("the 1 0 0\nnew_york 0 2 0\nadam 0 0 4\n")
    found = WORDS["table"](lookup(tmp_path / "v.txt", ["the", "Adam", "New York", "sky"], context))
    np.testing.assert_array_equal(found.matrix(["Adam", "the", "New York"]), [[0, 0, 4], [1, 0, 0], [0, 2, 0]])
    assert list(found.lost) == ["sky"] and not found.contexts
    assert found.form == "table" and found.report == {
        "case": "auto",
        "lowercased_vocabulary": True,
        "exact": 1,
        "lower_cased": 2,
        "joined": 1,
        "several_words": "one entry, as it is or joined by _; never averaged",
    }
    exact = WORDS["table"](lookup(tmp_path / "v.txt", ["the", "Adam"], context), case="exact")
    assert list(exact.vectors) == ["the"] and exact.report["case"] == "exact"


def test_it_needs_word_vectors(tmp_path: Path, context: Context) -> None:
    np.savez(tmp_path / "a.npz", sentences=np.array(["one"]), vectors=np.ones((1, 3)))
    with pytest.raises(UsageError, match=r"words=table needs a word-vector model, and .*a\.npz is arrays"):
        WORDS["table"](lookup(tmp_path / "a.npz", ["one"], context))
