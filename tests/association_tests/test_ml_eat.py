"""ML-EAT: its levels are the other tests, all nine outcomes occur, the map."""

from __future__ import annotations

import numpy as np
import pytest

from refbias.association_tests import ml_eat, sc_weat, weat
from refbias.association_tests.ml_eat import PATTERNS


def near(rng, towards, k=10):
    return np.asarray(towards, float) + 0.2 * rng.normal(size=(k, 4))


def make(x, y, seed=0):
    """Targets that lean to A = e₁, to B = e₂ or to neither (e₃)."""
    rng = np.random.default_rng(seed)
    axis = {"A": [1, 0, 0, 0], "B": [0, 1, 0, 0], "–": [0, 0, 1, 0]}
    A, B = near(rng, axis["A"]), near(rng, axis["B"])
    # The remainder towards neither set is taken out, so that "–" means just that.
    direction = np.mean(A / np.linalg.norm(A, axis=1)[:, None], 0) - np.mean(B / np.linalg.norm(B, axis=1)[:, None], 0)
    direction /= np.linalg.norm(direction)
    sets = []
    for lean in (x, y):
        W = near(rng, axis[lean])
        sets.append(W - np.outer(W @ direction, direction) if lean == "–" else W)
    return [*sets, A, B]


@pytest.mark.parametrize("leans", sorted(PATTERNS))
def test_all_nine_outcomes(leans):
    found = ml_eat(*make(*leans), method="normal")
    assert found.leans == leans
    assert found.pattern == PATTERNS[leans]


def test_levels_are_the_tests_that_they_name():
    X, Y, A, B = make("A", "–")
    found = ml_eat(X, Y, A, B)
    assert found.level_1 == weat(X, Y, A, B)
    assert found.level_2 == {"X": sc_weat(X, A, B), "Y": sc_weat(Y, A, B)}
    cosines = (X / np.linalg.norm(X, axis=1)[:, None]) @ (B / np.linalg.norm(B, axis=1)[:, None]).T
    assert found.level_3["X", "B"].mean == pytest.approx(cosines.mean())
    assert found.level_3["X", "B"].sd == pytest.approx(cosines.std(ddof=1))


def test_the_map_has_four_quadrants():
    rows = ml_eat(*make("A", "B"), method="normal").map()
    assert [(row["target"], row["attribute"]) for row in rows] == [("X", "A"), ("X", "B"), ("Y", "A"), ("Y", "B")]
    assert [row["leans"] for row in rows] == [True, False, False, True]
    assert [row["d"] > 0 for row in rows] == [True, False, False, True]
    assert rows[0]["d"] == -rows[1]["d"]


def test_what_cannot_be_computed_is_none_with_the_reason():
    X, Y, A, B = make("A", "B")
    found = ml_eat(X, Y, A[:1], B)
    assert found.reason == "too few words: A has 1, at least 2 needed"
    assert (found.leans, found.pattern, found.map()) == (None, None, [])
