"""WEAT and its single-target form: effect sizes, statistics, p-values (Caliskan et al. 2017; arXiv 2608.06908)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from refbias import linalg
from refbias.association_tests.permutation import Alternative, Method, Ties, partition_test
from refbias.errors import RefbiasError
from refbias.types import Array, as_matrix

SPREAD = 1e-10  # scores that vary less than this hold nothing but the rounding of the vectors


@dataclass(frozen=True)
class AssociationTest:
    """Result of one test; a figure that cannot be computed is None, and ``reason`` says why."""

    effect_size: float | None
    statistic: float | None
    p_value: float | None
    method: str | None
    partitions: int | None
    standard_error: float | None = None
    reason: str | None = None
    p_low: float | None = None
    p_high: float | None = None

    @classmethod
    def without(cls, reason: str, statistic: float | None = None) -> AssociationTest:
        return cls(None, statistic, None, None, None, reason=reason)


def rows(value: Any, name: str) -> Array:
    """``value`` as a matrix; no rows at all make an array of shape (0, 0)."""
    return np.empty((0, 0)) if np.shape(value)[:1] == (0,) else as_matrix(value, name)


def unusable(targets: Mapping[str, Array], attributes: Mapping[str, Array]) -> str | None:
    """Why no test can be made of these sets of vectors; None where it can."""
    for sets, least in ((targets, 2), (attributes, 1)):
        for name, X in sets.items():
            if len(X) < least:
                return f"too few words: {name} has {len(X)}, at least {least} needed"
            if not X.any(axis=1).all():
                return f"{name} holds a zero vector (row {int(np.flatnonzero(~X.any(axis=1))[0])}): no cosine with it"
    return None


def association_scores(W: Any, A: Any, B: Any) -> Array:
    """s(w, A, B) = mean_a cos(w, a) − mean_b cos(w, b) for each row of ``W`` (n, d), as (n,)."""
    return linalg.cosine(W, A).mean(axis=1) - linalg.cosine(W, B).mean(axis=1)


def effect_size(x: Array, y: Array, ddof: int = 1) -> float | None:
    """d = (mean x − mean y) / std(x ∪ y) of scores ``x`` (n,) and ``y`` (m,); None where they do not vary."""
    spread = float(np.concatenate([x, y]).std(ddof=ddof))
    return float((x.mean() - y.mean()) / spread) if spread > SPREAD else None


def score_test(
    x: Array,
    y: Array,
    *,
    ddof: int = 1,
    alternative: Alternative = "greater",
    ties: Ties = "inclusive",
    permutations: int = 100_000,
    seed: int = 0,
    method: Method = "auto",
) -> AssociationTest:
    """The test of scores ``x`` (n,) against ``y`` (m,), whatever they come from; parameters as in `weat`."""
    if ddof not in (0, 1):
        raise RefbiasError(f"ddof is 0 or 1: got {ddof!r}.")
    statistic, d = float(x.sum() - y.sum()), effect_size(x, y, ddof)
    if d is None:
        return AssociationTest.without("the scores of all words are equal", statistic=statistic)
    found = partition_test(np.concatenate([x, y]), len(x), alternative, ties, permutations, seed, method)
    return AssociationTest(
        effect_size=d,
        statistic=statistic,
        p_value=found.p_value,
        method=found.method,
        partitions=found.partitions,
        standard_error=found.standard_error,
        p_low=found.p_low,
        p_high=found.p_high,
    )


def weat(
    X: Any,
    Y: Any,
    A: Any,
    B: Any,
    *,
    ddof: int = 1,
    alternative: Alternative = "greater",
    ties: Ties = "inclusive",
    permutations: int = 100_000,
    seed: int = 0,
    method: Method = "auto",
) -> AssociationTest:
    """Word Embedding Association Test of targets ``X`` (n, d), ``Y`` (m, d) with attributes ``A``, ``B``.

    Parameters
    ----------
    X, Y, A, B : arrays of one width d
    ddof : of the standard deviation in d; published code uses 1 and 0
    alternative, ties, permutations, seed, method : of the permutation test, see `partition_test`

    Returns
    -------
    AssociationTest: ``effect_size`` d, ``statistic`` S = Σ_X s − Σ_Y s, ``p_value``, ``method`` ("exact", "bounded",
    "sampled" or "normal"), ``partitions``, ``standard_error`` of a sampled p, ``p_low`` and ``p_high`` of a bounded
    one. With too few words, a zero vector or equal scores d and p are None and ``reason`` says so.

    Examples
    --------
    >>> import numpy as np
    >>> test = weat(np.eye(2)[[0, 0]] + 0.1, np.eye(2)[[1, 1]] + [[0.1], [0.2]], [[1.0, 0.0]], [[0.0, 1.0]])
    >>> round(test.effect_size, 3), test.p_value, test.method, test.partitions
    (1.731, 0.16666666666666666, 'exact', 6)
    >>> weat(np.eye(2), np.zeros((2, 2)), [[1.0, 0.0]], [[0.0, 1.0]]).reason
    'Y holds a zero vector (row 0): no cosine with it'
    """
    targets, attributes = {"X": rows(X, "X"), "Y": rows(Y, "Y")}, {"A": rows(A, "A"), "B": rows(B, "B")}
    reason = unusable(targets, attributes)
    if reason:
        return AssociationTest.without(reason)
    x, y = (association_scores(W, attributes["A"], attributes["B"]) for W in targets.values())
    return score_test(
        x, y, ddof=ddof, alternative=alternative, ties=ties, permutations=permutations, seed=seed, method=method
    )


def sc_weat(
    W: Any,
    A: Any,
    B: Any,
    *,
    ddof: int = 1,
    alternative: Alternative = "greater",
    ties: Ties = "inclusive",
    permutations: int = 100_000,
    seed: int = 0,
    method: Method = "auto",
) -> AssociationTest:
    """Single-target test: is ``W``, one vector (d,) or a set (n, d), nearer to ``A`` than to ``B``?

    d = (mean_a c(a) − mean_b c(b)) / std_{A∪B} c, with c(a) the mean over ``W`` of cos(w, a). The attribute words are
    what is permuted. Parameters and result as in `weat`.

    References
    ----------
    One vector: the WEFAT of Caliskan et al. 2017, with its p-value; a set: level 2 of ML-EAT (Wolfe et al. 2024),
    whose code takes a normal approximation over random permutations and reports the smaller tail.

    Examples
    --------
    >>> test = sc_weat([1.0, 0.0], [[1.0, 0.1], [1.0, 0.2]], [[0.1, 1.0], [0.2, 1.0]])
    >>> round(test.effect_size, 3), test.partitions
    (1.726, 6)
    """
    W = [W] if np.ndim(W) == 1 and len(W) else W
    target, attributes = rows(W, "W"), {"A": rows(A, "A"), "B": rows(B, "B")}
    reason = unusable(attributes, {"W": target})  # the attributes are the units here: at least two of each
    if reason:
        return AssociationTest.without(reason)
    a, b = (linalg.cosine(target, words).mean(axis=0) for words in attributes.values())
    return score_test(
        a, b, ddof=ddof, alternative=alternative, ties=ties, permutations=permutations, seed=seed, method=method
    )
