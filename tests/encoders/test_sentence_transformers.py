"""MiniLM through refbias and through the sentence-transformers library."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from refbias.cache import Cache
from refbias.encoding import encode
from refbias.errors import RefbiasError, UsageError
from refbias.models import find_model
from tests.tiny_models import SENTENCES


@pytest.fixture(scope="module")
def minilm() -> Any:
    try:
        return find_model("minilm", cache=Cache(None))
    except RefbiasError as error:
        pytest.skip(str(error))


LONG = "the river and the hill " * 80  # 400 words: cut at the 256 tokens of its own settings


def test_minilm_equals_the_library(minilm: Any) -> None:
    library = pytest.importorskip("sentence_transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = library.SentenceTransformer(str(minilm.folder), device="cpu").encode([*SENTENCES, LONG])
    found = encode(minilm, [*SENTENCES, LONG])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-5)


def test_other_layers_and_poolings_are_those_of_hf(minilm: Any) -> None:
    for options in ({"layer": 3}, {"pooling": "max"}, {"pooling": ("mean", {"skip": "special"})}):
        own = encode(minilm, SENTENCES, encoder="sentence_transformers", **options)
        np.testing.assert_allclose(own, encode(minilm, SENTENCES, encoder=("hf", {"max_length": 256}), **options))
    normed, plain = encode(minilm, SENTENCES), encode(minilm, SENTENCES, encoder="hf")
    np.testing.assert_allclose(normed, plain / np.linalg.norm(plain, axis=1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_other_models_are_refused(tiny_llama: Any) -> None:
    with pytest.raises(UsageError, match=r"needs a folder with modules\.json"):
        encode(str(tiny_llama), SENTENCES, encoder="sentence_transformers")
