"""CEAT: an effect size over many draws of contexts, combined by a random-effects model (Guo and Caliskan 2021)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from refbias.association_tests.intervals import LEAST_WORDS, Indices, Statistic, bootstrap_limits, draw
from refbias.association_tests.seat import sentence_sets, unit
from refbias.association_tests.weat import SPREAD
from refbias.errors import RefbiasError, UsageError
from refbias.types import Array

Variance = Literal["scores", "effect"]

CAVEAT = (
    "The samples are drawn from one pool of contexts and share all their words, so they are no independent studies: "
    "se falls and p falls with the number of samples. The interval, by bootstrap over words, does not."
)


@dataclass(frozen=True)
class RandomEffects:
    """Effects combined: ``ces`` = Σ w* e / Σ w* with w* = 1 / (v + τ²), its ``se``, Q, c, τ² and p against 0."""

    ces: float
    se: float
    q: float
    c: float
    tau2: float
    p_one_sided: float
    p_two_sided: float


@dataclass(frozen=True)
class ContextTest:
    """``effects`` (samples,) are the d of the samples that have one; ``caveat`` says how to read se and p."""

    combined: RandomEffects | None
    effects: Array
    variance: str
    samples: int
    ci_low: float | None
    ci_high: float | None
    interval_reason: str | None
    caveat: str = CAVEAT
    reason: str | None = None


def random_effects(effects: Any, variances: Any) -> RandomEffects:
    """DerSimonian and Laird's combination of ``effects`` (k,) with ``variances`` (k,) > 0.

    Notes
    -----
    w = 1 / v, Q = Σ w e² − (Σ w e)² / Σ w, c = Σ w − Σ w² / Σ w, τ² = max(0, (Q − (k − 1)) / c), SE = (Σ w*)^(−1/2).
    ``p_one_sided`` is that of an effect above 0.

    Examples
    --------
    >>> found = random_effects([0.0, 1.0, 2.0], [0.1, 0.1, 0.1])
    >>> round(found.ces, 3), round(found.tau2, 3), round(found.se, 3)
    (1.0, 0.9, 0.577)
    """
    e, v = np.asarray(effects, np.float64), np.asarray(variances, np.float64)
    if e.ndim != 1 or e.shape != v.shape or not len(e):
        raise RefbiasError(f"Random effects need as many variances as effects: got {e.shape} and {v.shape}.")
    if not (np.isfinite(e).all() and np.isfinite(v).all() and (v > 0).all()):
        raise RefbiasError("Random effects need finite effects and variances above 0.")
    ces, se, q, c, tau2 = (float(value[0]) for value in _combined(e[None], v[None]))
    z = ces / se
    return RandomEffects(ces, se, q, c, tau2, 0.5 * math.erfc(z / math.sqrt(2)), math.erfc(abs(z) / math.sqrt(2)))


def _combined(e: Array, v: Array) -> tuple[Array, Array, Array, Array, Array]:
    """CES, SE, Q, c, τ² (b,) of each row of effects and variances (b, k); NaN marks an effect to leave out."""
    there = np.isfinite(e) & np.isfinite(v)
    w = np.where(there, 1 / np.where(there, v, 1.0), 0.0)
    e, v, k = np.where(there, e, 0.0), np.where(there, v, 0.0), there.sum(axis=1)
    total = w.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):  # a row without any effect comes out as NaN
        q = np.maximum(0.0, (w * e**2).sum(axis=1) - (w * e).sum(axis=1) ** 2 / total)
        c = total - (w**2).sum(axis=1) / total
        tau2 = np.where(c > 0, np.maximum(0.0, (q - (k - 1)) / np.where(c > 0, c, 1.0)), 0.0)
        star = np.where(there, 1 / np.where(there, v + tau2[:, None], 1.0), 0.0)
        weight = star.sum(axis=1)
        return (star * e).sum(axis=1) / weight, 1 / np.sqrt(weight), q, c, tau2


def ceat(
    X: Sequence[Any],
    Y: Sequence[Any],
    A: Sequence[Any],
    B: Sequence[Any],
    *,
    samples: int = 1000,
    variance: Variance = "scores",
    ddof: int = 1,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> ContextTest:
    """Contextualised Embedding Association Test.

    Parameters
    ----------
    X, Y, A, B : one array (contexts of the word, d) for each word
    samples : how often one context of every word is drawn; the paper draws 10,000
    variance : of the effect of one sample. "scores", the published method, is the variance of the scores s in that
        sample, which is not the variance of d; "effect" is (n + m) / (n m) + d² / (2 (n + m)), the usual one
    draws, level : of the interval, BCa by bootstrap over the target words; 0 draws for none

    Notes
    -----
    See ``CAVEAT``: the published standard error treats draws from one pool of contexts as independent studies.
    """
    if variance not in get_args(Variance):
        raise UsageError(f"variance is one of {', '.join(get_args(Variance))}: got {variance!r}.")
    if samples < 1:
        raise UsageError(f"samples is at least 1: got {samples}.")
    sets, reason = sentence_sets(X, Y, A, B)
    scores = None if reason else _sampled_scores(sets, samples, np.random.default_rng(seed))
    n, m = len(X), len(Y)
    if scores is not None:
        effects, variances = _effects(scores[:, :n], scores[:, n:], variance, ddof)
        if not np.isfinite(effects).any():
            reason = "the scores of all words are equal"
    if reason or scores is None:
        return ContextTest(None, np.empty(0), variance, 0, None, None, reason, reason=reason)
    usable = np.isfinite(effects)
    combined = random_effects(effects[usable], variances[usable])
    low, high, why = _interval(scores, n, m, variance, ddof, draws, level, seed)
    return ContextTest(combined, effects[usable], variance, int(usable.sum()), low, high, why)


def _sampled_scores(sets: dict[str, list[Array]], samples: int, rng: np.random.Generator) -> Array:
    """s of every target word in each sample (samples, n + m), one context of every word drawn at random."""
    units = {name: [unit(W) for W in words] for name, words in sets.items()}
    direction = np.zeros((samples, units["A"][0].shape[1]))
    for name, sign in (("A", 1.0), ("B", -1.0)):
        for W in units[name]:
            direction += sign / len(units[name]) * W[rng.integers(0, len(W), samples)]
    drawn = [np.einsum("sd,sd->s", W[rng.integers(0, len(W), samples)], direction) for W in units["X"] + units["Y"]]
    return np.stack(drawn, axis=1)


def _effects(x: Array, y: Array, variance: str, ddof: int) -> tuple[Array, Array]:
    """d and its variance by the last axis of scores ``x`` (…, n) and ``y`` (…, m); NaN without spread."""
    n, m = x.shape[-1], y.shape[-1]
    spread = np.concatenate([x, y], axis=-1).std(axis=-1, ddof=ddof)
    spread = np.where(spread > SPREAD, spread, np.nan)
    d = (x.mean(axis=-1) - y.mean(axis=-1)) / spread
    return d, spread**2 if variance == "scores" else (n + m) / (n * m) + d**2 / (2 * (n + m))


def ceat_change(
    before: Sequence[Sequence[Any]],
    after: Sequence[Sequence[Any]],
    *,
    samples: int = 1000,
    variance: Variance = "scores",
    ddof: int = 1,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float | None, float | None, str | None]:
    """Interval of CES after − CES before, and why there is none; parameters as in `ceat`.

    ``before`` and ``after`` are X, Y, A and B with the same contexts of the same words in one order. Both are computed
    from the same samples of contexts and the same draws of words, so what they have in common cancels.
    """
    scores = []
    for X, Y, A, B in (before, after):
        sets, reason = sentence_sets(X, Y, A, B)
        if reason:
            return None, None, reason
        scores.append(_sampled_scores(sets, samples, np.random.default_rng(seed)))
    n, m = len(before[0]), len(before[1])
    first, second = (_resampled(found, n, variance, ddof) for found in scores)
    return _limits(lambda i, j: second(i, j) - first(i, j), n, m, draws, level, seed)


def _interval(
    scores: Array, n: int, m: int, variance: str, ddof: int, draws: int, level: float, seed: int
) -> tuple[float | None, float | None, str | None]:
    return _limits(_resampled(scores, n, variance, ddof), n, m, draws, level, seed)


def _limits(
    statistic: Statistic, n: int, m: int, draws: int, level: float, seed: int
) -> tuple[float | None, float | None, str | None]:
    if not draws:
        return None, None, "no draws were asked for"
    if min(n, m) < LEAST_WORDS:
        return None, None, f"too few words for an interval: {n} and {m}, at least {LEAST_WORDS} needed"
    low, high = bootstrap_limits(statistic, n, m, draw(n, m, draws, seed), "bca", level)
    return low, high, None


def _resampled(scores: Array, n: int, variance: str, ddof: int) -> Statistic:
    """CES by rows of word indices."""
    thin = scores[:200]  # CES varies little with the number of samples; words are what is drawn here

    def statistic(i: Indices, j: Indices) -> Array:
        found = np.empty(len(i))
        for start in range(0, len(i), 50):  # blocks, to keep memory small
            block = slice(start, start + 50)
            x, y = thin[:, i[block]].transpose(1, 0, 2), thin[:, n + j[block]].transpose(1, 0, 2)
            found[block] = _combined(*_effects(x, y, variance, ddof))[0]
        return found

    return statistic
