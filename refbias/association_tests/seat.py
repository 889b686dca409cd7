"""SEAT: the association test on sentences made from words (May et al. 2019), with words as the units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refbias import linalg
from refbias.association_tests.permutation import Alternative, Method, Ties
from refbias.association_tests.weat import AssociationTest, effect_size, rows, score_test, unusable
from refbias.errors import RefbiasError
from refbias.types import Array


@dataclass(frozen=True)
class SentenceTest:
    """``test`` is that of the words; ``effect_size_sentences`` is d with every sentence as one unit, as published."""

    test: AssociationTest
    effect_size_sentences: float | None
    words: tuple[int, int]
    sentences: tuple[int, int]
    reason: str | None = None


def seat(
    X: Sequence[Any],
    Y: Sequence[Any],
    A: Sequence[Any],
    B: Sequence[Any],
    *,
    ddof: int = 1,
    alternative: Alternative = "greater",
    ties: Ties = "inclusive",
    permutations: int = 100_000,
    seed: int = 0,
    method: Method = "auto",
) -> SentenceTest:
    """Association test of sentences, for instance "This is a {word}." in several templates.

    Parameters
    ----------
    X, Y, A, B : one array (sentences of the word, d) for each word
    ddof, alternative, ties, permutations, seed, method : as in `weat`

    Notes
    -----
    A word's score is the mean over its sentences of s; an attribute word counts once, however many sentences it has.
    What is permuted are words: sentences of one word share most of their vector, and permuting them as if they were
    independent, as published, gives p < 0.05 in about a quarter of the cases where there is nothing to find
    (8 + 8 words, 6 templates). The published effect size, over sentences, is given beside.
    """
    sets, reason = sentence_sets(X, Y, A, B)
    n_words = (len(X), len(Y))
    n_sentences = (sum(map(len, sets["X"])), sum(map(len, sets["Y"])))
    if reason:
        return SentenceTest(AssociationTest.without(reason), None, n_words, n_sentences, reason)
    scores = _sentence_scores(sets)
    x, y = (np.array([s.mean() for s in scores[name]]) for name in "XY")
    test = score_test(
        x, y, ddof=ddof, alternative=alternative, ties=ties, permutations=permutations, seed=seed, method=method
    )
    over_sentences = effect_size(np.concatenate(scores["X"]), np.concatenate(scores["Y"]), ddof)
    return SentenceTest(test, over_sentences, n_words, n_sentences, test.reason)


def word_scores(X: Sequence[Any], Y: Sequence[Any], A: Sequence[Any], B: Sequence[Any]) -> tuple[Array, Array]:
    """The score of each target word of ``X`` (n,) and ``Y`` (m,), the mean over its sentences, as `seat` takes it."""
    sets, reason = sentence_sets(X, Y, A, B)
    if reason:
        raise RefbiasError(f"No scores can be made: {reason}.")
    scores = _sentence_scores(sets)
    return np.array([s.mean() for s in scores["X"]]), np.array([s.mean() for s in scores["Y"]])


def _sentence_scores(sets: dict[str, list[Array]]) -> dict[str, list[Array]]:
    """s of every sentence of each target word."""
    direction = _mean_direction(sets["A"]) - _mean_direction(sets["B"])
    return {name: [unit(W) @ direction for W in sets[name]] for name in "XY"}


def sentence_sets(X: Any, Y: Any, A: Any, B: Any) -> tuple[dict[str, list[Array]], str | None]:
    """The vectors of each word's sentences by set, and why no test can be made of them (None where it can)."""
    sets = {name: [rows(W, name) for W in words] for name, words in zip("XYAB", (X, Y, A, B), strict=True)}
    for name, words in sets.items():
        least = 2 if name in "XY" else 1
        if len(words) < least:
            return sets, f"too few words: {name} has {len(words)}, at least {least} needed"
        for i, W in enumerate(words):
            if not len(W):
                return sets, f"{name}: word {i} has no sentences"
    return sets, unusable({}, {name: np.concatenate(words) for name, words in sets.items()})


def unit(W: Array) -> Array:
    """The rows of ``W`` scaled to length 1."""
    return W / linalg.norms(W)[:, None]


def _mean_direction(words: list[Array]) -> Array:
    """Mean over words of the mean unit vector (d,): its product with a unit vector is a mean of cosines."""
    return np.mean([unit(W).mean(axis=0) for W in words], axis=0)
