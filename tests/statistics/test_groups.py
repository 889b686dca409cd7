"""Permutations and bootstraps of groups, against draws made one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from statsmodels.stats import multitest

from refbias import statistics
from refbias.errors import RefbiasError
from refbias.statistics import GroupDraws
from refbias.statistics.groups import _Design, _orders
from tests.statistics.simulations import merges, names


def sample(groups: int = 6, seed: int = 0, link: float = 0.5) -> tuple:
    X, Y = merges(np.random.default_rng(seed), groups, link, noise=0.2)
    return X.ravel(), Y.ravel(), *names(groups)


def resampled(of: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rows of a resample in which group g comes weights[g] times."""
    return np.concatenate([np.flatnonzero(of == g) for g, times in enumerate(weights) for _ in range(int(times))])


def test_a_common_permutation_needs_every_group_everywhere():
    found = statistics.common_group_permutation(np.arange(3.0), np.arange(3.0), ["a", "a", "b"], ["x", "y", "x"])
    assert found.reason == "a common permutation of groups needs every group at every checkpoint"
    twice = statistics.auc_permutation(np.arange(4.0), [1, 0, 1, 0], ["a", "a", "b", "b"], ["x", "x", "y", "y"])
    assert twice["pooled"].reason == found.reason


def test_few_groups_are_permuted_exactly():
    x, y, checkpoints, of = sample(groups=5)
    X, Y = (v.reshape(7, 5) - v.reshape(7, 5).mean(axis=1, keepdims=True) for v in (x, y))
    r = [abs(np.corrcoef(X.ravel(), Y[:, order].ravel())[0, 1]) for order in itertools.permutations(range(5))]
    expected = np.mean(np.array(r) >= r[0] - 1e-12)
    found = statistics.common_group_permutation(x, y, checkpoints, of)
    assert found.value == pytest.approx(expected)
    # the pooled r has the same p: its part between checkpoints does not move
    pooled = [np.corrcoef(x, y.reshape(7, 5)[:, order].ravel())[0, 1] for order in itertools.permutations(range(5))]
    away = np.abs(np.array(pooled) - np.mean(pooled))
    assert np.mean(away >= away[0] - 1e-12) == pytest.approx(expected)


def test_the_auc_is_permuted_exactly_too():
    x, y, checkpoints, of = sample(groups=5, seed=3)
    labels = y > 0.2
    found = statistics.auc_permutation(x, labels, checkpoints, of)
    pooled, inner = [], []
    for order in itertools.permutations(range(5)):
        moved = labels.reshape(7, 5)[:, order].ravel()
        pooled.append(roc_auc_score(moved, -x))
        inner.append(statistics.within(x, y, moved, checkpoints)["auc"].value)
    for name, areas in (("pooled", pooled), ("within", inner)):
        away = np.abs(np.array(areas) - np.mean(areas))
        assert found[name].value == pytest.approx(np.mean(away >= away[0] - 1e-12))
    assert np.mean(inner) == pytest.approx(0.5)


def test_many_groups_are_sampled_and_p_is_never_0():
    x, y, checkpoints, of = sample(groups=12, link=1.0)
    found = statistics.common_group_permutation(x, y, checkpoints, of, draws=200)
    assert found.value == pytest.approx(1 / 201)
    assert _orders(12, 200, 0)[1] is False


def test_a_resample_of_groups_is_what_it_says():
    x, y, checkpoints, of = sample(groups=6)
    labels = y > 0
    draws = GroupDraws(of, draws=20, seed=4)
    found = (
        draws.pearson(x, y),
        draws.pearson(x, y, checkpoints),
        draws.auc(-x, labels),
        draws.auc(-x, labels, checkpoints),
    )
    for i in range(20):
        rows = resampled(of, draws._weights[i])
        inner = statistics.within(x[rows], y[rows], labels[rows], checkpoints[rows])
        expected = (
            statistics.pearson(x[rows], y[rows])[0].value,
            inner["pearson"].value,
            statistics.auc(-x[rows], labels[rows]).value,
            inner["auc"].value,
        )
        assert [f[i] for f in found] == pytest.approx([np.nan if e is None else e for e in expected], nan_ok=True)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 100), st.booleans())
def test_missing_pairs_and_ties_leave_the_bootstrap_right(seed, ties):
    rng = np.random.default_rng(seed)
    x, y, checkpoints, of = sample(groups=5, seed=seed)
    if ties:
        x = np.round(x)
    kept = rng.random(len(x)) < 0.8
    x, y, checkpoints, of = x[kept], y[kept], checkpoints[kept], of[kept]
    draws = GroupDraws(of, draws=3, seed=seed)
    found = draws.auc(-x, y > 0)
    for i in range(3):
        rows = resampled(np.unique(of, return_inverse=True)[1], draws._weights[i])
        expected = statistics.auc(-x[rows], y[rows] > 0).value
        assert found[i] == pytest.approx(np.nan if expected is None else expected, nan_ok=True)


def test_intervals_hold_the_figure_and_repeat():
    x, y, checkpoints, of = sample(groups=24)
    found = statistics.group_bootstrap(x, y, y > 0, checkpoints, of, draws=300)
    assert found == statistics.group_bootstrap(x, y, y > 0, checkpoints, of, draws=300)
    for estimate in found.values():
        assert -1 <= estimate.ci_low < estimate.value < estimate.ci_high <= 1
    assert found["auc"].ci_high <= 1
    assert found["pearson"].value == pytest.approx(np.corrcoef(x, y)[0, 1])


def test_an_interval_that_cannot_be_given_has_a_reason():
    x, y, checkpoints, of = sample(groups=24)

    def reasons(x, y, positive, checkpoints, of):
        found = statistics.group_bootstrap(x, y, positive, checkpoints, of, draws=100)
        return {name: estimate.reason for name, estimate in found.items() if estimate.ci_low is None}

    assert reasons(x, y, y > 99, checkpoints, of)["auc"].startswith("a ROC curve needs both classes: 0 of 168")
    assert reasons(-y, y, y > 0, checkpoints, of)["auc"].startswith("at 1 a resample of groups cannot say")
    assert reasons(x, y, of == 3, checkpoints, of)["auc"].startswith("the figure is undefined in 3")
    assert reasons(np.ones(168), y, y > 0, checkpoints, of)["pearson"] == "all shifts are equal"
    two = of < 2
    few = reasons(x[two], y[two], y[two] > 0, checkpoints[two], of[two])
    assert few["pearson"] == "a bootstrap over groups needs at least 3 groups: there are 2"
    assert set(reasons(x[:0], y[:0], [], [], [])) == {"pearson", "auc", "within_pearson", "within_auc"}


def test_a_detector_against_itself_differs_by_nothing():
    x, y, _, of = sample(groups=24)
    found = statistics.auc_difference(-x, -x, y > 0, of, draws=100)
    assert (found.value, found.ci_low) == (0, None)
    assert found.reason == "every resample of groups gives the same figure"
    with pytest.raises(RefbiasError, match="same observations: got 168 and 3"):
        statistics.auc_difference(-x, -x[:3], y > 0, of)


def test_the_difference_of_two_detectors_turns_with_their_order():
    x, y, checkpoints, of = sample(groups=24, link=0.9)
    noisy = x + np.random.default_rng(1).normal(size=len(x))
    one = statistics.auc_difference(-x, -noisy, y > 0, of, draws=500)
    other = statistics.auc_difference(-noisy, -x, y > 0, of, draws=500)
    assert one.value == pytest.approx(-other.value) and one.ci_low == pytest.approx(-other.ci_high)
    assert one.p_value == pytest.approx(other.p_value) and one.p_value < 0.05
    assert (one.p_value < 0.05) == (one.ci_low > 0)
    inside = statistics.auc_difference(-x, -noisy, y > 0, of, checkpoints, draws=500)
    assert inside.value == pytest.approx(
        statistics.within(x, y, y > 0, checkpoints)["auc"].value
        - statistics.within(noisy, y, y > 0, checkpoints)["auc"].value
    )


def test_one_alternative_needs_no_correction():
    x, y, checkpoints, of = sample(groups=9)
    found, counted = statistics.max_statistic({"only": x}, y, y > 0, checkpoints, of, draws=999)
    alone = statistics.common_group_permutation(x, y, checkpoints, of, draws=999)
    assert counted == 1
    assert found["only"].p_value == found["only"].p_adjusted == alone.value


def test_copies_of_one_alternative_cost_nothing_and_others_do():
    x, y, checkpoints, of = sample(groups=9, link=0.8)
    rng = np.random.default_rng(1)
    copies = {f"copy {i}": 3 * x for i in range(5)}
    others = {f"other {i}": rng.normal(size=len(x)) for i in range(20)}
    arguments = (y, y > 0, checkpoints, of)
    alone = statistics.max_statistic({"x": x}, *arguments, draws=999)[0]["x"].p_adjusted
    assert statistics.max_statistic({"x": x, **copies}, *arguments, draws=999)[0]["x"].p_adjusted == alone
    many, counted = statistics.max_statistic({"x": x, **others}, *arguments, draws=999)
    assert counted == 21
    bonferroni = multitest.multipletests([a.p_value for a in many.values()], method="bonferroni")[1]
    for found, bound in zip(many.values(), bonferroni, strict=True):
        assert found.p_value <= found.p_adjusted <= 1.1 * bound + 0.01


def test_the_maximum_is_taken_draw_by_draw():
    x, y, checkpoints, of = sample(groups=5)
    z = np.random.default_rng(2).normal(size=len(x))
    labels = y > 0
    design = _Design(checkpoints, of)
    permuted = []
    for order in itertools.permutations(range(5)):
        moved = design.table(y)[:, order].ravel()
        permuted.append([abs(statistics.within(v, moved, labels, checkpoints)["pearson"].value) for v in (x, z)])
    scaled = np.array(permuted) / np.sqrt(np.square(permuted).mean(axis=0))
    found, _ = statistics.max_statistic({"x": x, "z": z}, y, labels, checkpoints, of)
    for name, seen in zip("xz", scaled[0], strict=True):  # the first permutation leaves all in place
        assert found[name].p_adjusted == pytest.approx(np.mean(scaled.max(axis=1) >= seen - 1e-9))
    areas, _ = statistics.max_statistic({"x": x, "z": z}, y, labels, checkpoints, of, figure="auc")
    assert areas["x"].value == pytest.approx(statistics.within(x, y, labels, checkpoints)["auc"].value)
    assert areas["x"].p_value == statistics.auc_permutation(x, labels, checkpoints, of)["within"].value


def test_an_alternative_that_cannot_be_computed_is_not_counted():
    x, y, checkpoints, of = sample(groups=9)
    found, counted = statistics.max_statistic({"x": x, "flat": np.ones(len(x))}, y, y > 0, checkpoints, of, draws=99)
    assert counted == 1
    assert found["flat"].reason == "all shifts are equal" and found["flat"].p_adjusted is None


def test_the_band_holds_the_line_and_widens_outwards():
    x, y, _, of = sample(groups=24)
    rows = statistics.fit_band(x, y, of, points=5, draws=300)
    slope, level = np.polyfit(x, y, 1)
    assert [row["y"] for row in rows] == pytest.approx([level + slope * row["x"] for row in rows])
    widths = [row["high"] - row["low"] for row in rows]
    assert min(widths) > 0 and widths[2] < widths[0] and widths[2] < widths[4]
    assert statistics.fit_band(np.ones(5), np.arange(5.0), list("abcde")) == []
    assert statistics.fit_band(np.arange(4.0), np.arange(4.0), list("aabb"))[0]["low"] is None


def test_names_of_any_kind_serve():
    x, y, checkpoints, of = sample(groups=5)
    named = [f"group {g}" for g in of]
    assert statistics.common_group_permutation(x, y, checkpoints, named) == statistics.common_group_permutation(
        x, y, checkpoints, of
    )
