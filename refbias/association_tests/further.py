"""Further metrics of association: RND, RNSB, ECT (as in the package WEFE) and SAME."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from refbias import linalg
from refbias.association_tests.weat import SPREAD, rows, unusable
from refbias.errors import UsageError
from refbias.types import Array

Distance = Literal["norm", "cos"]


@dataclass(frozen=True)
class Score:
    """One figure, with those behind it in ``parts``; None with the ``reason`` where there is none."""

    value: float | None
    parts: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None


def _sets(least: int = 1, **sets: Any) -> tuple[dict[str, Array], str | None]:
    found = {name: rows(value, name) for name, value in sets.items()}
    few = [name for name, X in found.items() if len(X) < least]
    if few:
        return found, f"too few words: {few[0]} has {len(found[few[0]])}, at least {least} needed"
    return found, unusable({}, found)


def rnd(X: Any, Y: Any, A: Any, *, distance: Distance = "norm", normalise: bool = True) -> Score:
    """Relative Norm Distance (Garg et al. 2018): mean_a ‖a − x̄‖ − ‖a − ȳ‖; above 0 the attributes are nearer to Y.

    Parameters
    ----------
    X, Y, A : targets (n, d), (m, d) and attributes (k, d)
    distance : "norm", or "cos" for cos(a, x̄) − cos(a, ȳ) as WEFE computes it: a similarity, so the sign turns round
    normalise : scale every vector to length 1 first, as in the paper; WEFE's default does not

    Notes
    -----
    The paper sums over the attribute words, WEFE averages; this is the average. ``parts["by_word"]`` (k,) holds the
    differences.
    """
    if distance not in get_args(Distance):
        raise UsageError(f"distance is one of {', '.join(get_args(Distance))}: got {distance!r}.")
    sets, reason = _sets(X=X, Y=Y, A=A)
    if reason:
        return Score(None, reason=reason)
    if normalise:
        sets = {name: W / linalg.norms(W)[:, None] for name, W in sets.items()}
    means = np.stack([sets["X"].mean(axis=0), sets["Y"].mean(axis=0)])
    if distance == "cos" and not means.any(axis=1).all():
        return Score(None, reason="the vectors of a target set cancel: their mean has no direction")
    table = linalg.distances(sets["A"], means) if distance == "norm" else linalg.cosine(sets["A"], means)
    by_word = table[:, 0] - table[:, 1]
    return Score(float(by_word.mean()), {"by_word": by_word})


def ect(X: Any, Y: Any, A: Any, *, normalise: bool = False) -> Score:
    """Embedding Coherence Test (Dev and Phillips 2019): Spearman's ρ over attributes of cos(a, x̄) and cos(a, ȳ).

    1 says that the attribute words stand in one order for both target sets. ``normalise`` scales every vector to
    length 1 before averaging.
    """
    from scipy.stats import spearmanr

    sets, reason = _sets(X=X, Y=Y, A=A)
    if reason is None and len(sets["A"]) < 3:
        reason = f"too few words: A has {len(sets['A'])}, at least 3 needed for a rank correlation"
    if reason:
        return Score(None, reason=reason)
    if normalise:
        sets = {name: W / linalg.norms(W)[:, None] for name, W in sets.items()}
    means = np.stack([sets["X"].mean(axis=0), sets["Y"].mean(axis=0)])
    if not means.any(axis=1).all():
        return Score(None, reason="the vectors of a target set cancel: their mean has no direction")
    cosines = linalg.cosine(sets["A"], means)
    if (np.ptp(cosines, axis=0) <= SPREAD).any():
        return Score(None, reason="all attribute words are equally near to one target set")
    return Score(float(spearmanr(cosines[:, 0], cosines[:, 1]).statistic))


def rnsb(targets: Sequence[Any], A: Any, B: Any) -> Score:
    """Relative Negative Sentiment Bias (Sweeney and Najafian 2019).

    A logistic regression learns the attributes ``A`` (positive) from ``B`` (negative); its probabilities of
    "negative" for all target words, scaled to sum 1, are compared with equal ones by the Kullback-Leibler divergence.
    0 says that all are equally negative.

    Parameters
    ----------
    targets : two or more arrays (n_i, d)

    Notes
    -----
    The classifier is scikit-learn's with liblinear, trained on all attribute words. WEFE's default trains on a random
    80 % of them, so that its figure changes from run to run; with ``holdout=False`` it is this one.
    ``parts["negative"]`` holds the probabilities of each target set.
    """
    if len(targets) < 2:
        raise UsageError(f"RNSB compares two or more target sets: got {len(targets)}.")
    sets, reason = _sets(**{f"target {i}": W for i, W in enumerate(targets)}, A=A, B=B)
    if reason:
        return Score(None, reason=reason)
    from sklearn.linear_model import LogisticRegression

    positive, negative = sets.pop("A"), sets.pop("B")
    labels = np.repeat([1, -1], [len(positive), len(negative)])
    model = LogisticRegression(solver="liblinear", max_iter=10_000, random_state=0)
    model.fit(np.concatenate([positive, negative]), labels)
    found = [model.predict_proba(W)[:, list(model.classes_).index(-1)] for W in sets.values()]
    shares = np.concatenate(found)
    shares = shares / shares.sum()
    return Score(float((shares * np.log(shares * len(shares))).sum()), {"negative": found})


def same(W: Any, A: Any, B: Any) -> Score:
    """SAME score (Schröder et al. 2022, arXiv 2203.14603) of words ``W`` (n, d) for attributes ``A`` and ``B``.

    The bias of a word is its cosine with mean â − mean b̂, the difference of the mean unit vectors; the score is the
    mean of its absolute value. ``parts``: "skew", the mean, above 0 towards A; "stereotype", the standard deviation
    (ddof = 0); "by_word" (n,).
    """
    sets, reason = _sets(W=W, A=A, B=B)
    if reason:
        return Score(None, reason=reason)
    means = {name: (sets[name] / linalg.norms(sets[name])[:, None]).mean(axis=0) for name in "AB"}
    direction = means["A"] - means["B"]
    if np.linalg.norm(direction) <= SPREAD:
        return Score(None, reason="A and B have one mean direction: there is nothing to measure along")
    by_word = linalg.cosine(sets["W"], direction[None])[:, 0]
    parts = {"skew": float(by_word.mean()), "stereotype": float(by_word.std()), "by_word": by_word}
    return Score(float(np.abs(by_word).mean()), parts)
