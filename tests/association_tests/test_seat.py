"""SEAT with words as units: equality with WEAT, invariances, and its type I error."""

from __future__ import annotations

import numpy as np
import pytest

from refbias.association_tests import seat, weat


def sentences(rng, words, templates, noise=0.5, dim=30):
    return list(rng.normal(size=(words, 1, dim)) + noise * rng.normal(size=(words, templates, dim)))


def test_one_sentence_a_word_is_weat():
    rng = np.random.default_rng(0)
    sets = [sentences(rng, k, 1) for k in (5, 4, 3, 6)]
    found, plain = seat(*sets), weat(*(np.concatenate(words) for words in sets))
    assert found.test.effect_size == pytest.approx(plain.effect_size)
    assert found.test.p_value == plain.p_value
    assert found.effect_size_sentences == pytest.approx(plain.effect_size)
    assert (found.words, found.sentences) == ((5, 4), (5, 4))


def test_repeated_sentences_change_no_p():
    rng = np.random.default_rng(1)
    sets = [sentences(rng, k, 2) for k in (5, 4, 3, 6)]
    once, thrice = seat(*sets), seat(*([np.tile(W, (3, 1)) for W in words] for words in sets))
    assert thrice.test.p_value == once.test.p_value
    assert thrice.test.partitions == once.test.partitions == 126
    assert thrice.sentences == (30, 24)


def test_the_published_effect_size_counts_sentences():
    rng = np.random.default_rng(2)
    sets = [sentences(rng, 4, 3) for _ in range(4)]
    flat = weat(*(np.concatenate(words) for words in sets), method="normal")
    assert seat(*sets).effect_size_sentences == pytest.approx(flat.effect_size)


def test_type_i_error():
    rng = np.random.default_rng(0)
    by_words = by_sentences = 0
    runs = 400
    for _ in range(runs):
        sets = [sentences(rng, 8, 6) for _ in range(4)]
        by_words += seat(*sets, method="sampled", permutations=300).test.p_value < 0.05
        by_sentences += weat(*(np.concatenate(words) for words in sets), method="normal").p_value < 0.05
    assert 0.025 <= by_words / runs <= 0.08
    assert by_sentences / runs > 0.15  # what permuting sentences would give


def test_what_cannot_be_computed_is_none_with_the_reason():
    rng = np.random.default_rng(3)
    X, Y, A, B = (sentences(rng, 3, 2) for _ in range(4))
    assert seat(X[:1], Y, A, B).reason == "too few words: X has 1, at least 2 needed"
    assert seat(X, [*Y[:2], []], A, B).reason == "Y: word 2 has no sentences"
    assert seat(X, Y, A, [0 * B[0]]).reason.startswith("B holds a zero vector")
    assert seat(X, X, A, A).test.p_value is None
