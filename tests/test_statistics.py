"""Uncertainty checked by simulation and by hand, agreement with scipy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, t
from sklearn.metrics import roc_auc_score
from statsmodels.stats import multitest

from refbias import statistics
from refbias.statistics import CrossedBootstrap, holm
from refbias.types import Space


def crossed(rng: np.random.Generator, n: int, p: int, q: int, target_sd: float, attribute_sd: float) -> np.ndarray:
    """Differences of associations (n, p + q) with a true shift of 0, from crossed effects of both samples."""
    noise = rng.normal(size=(n, p + q))
    return (
        noise
        + target_sd * np.hstack([rng.normal(size=(n, 1)) * np.ones(p), np.zeros((n, q))])
        + (attribute_sd * rng.normal(size=p + q))
    )


@pytest.mark.parametrize(("n", "p", "target_sd", "attribute_sd"), [
    (50, 100, 0.5, 2.0),  # the package's sizes: attributes carry most of the variance
    (50, 100, 2.0, 0.5),
    (16, 40, 1.0, 1.0),
])  # fmt: skip
def test_a_nominal_5_percent_rejects_3_to_7(n, p, target_sd, attribute_sd):
    rng = np.random.default_rng(1)
    bootstrap = CrossedBootstrap(p, p, draws=600)
    runs = 800
    rejected = covered = 0
    for _ in range(runs):
        difference = crossed(rng, n, p, p, target_sd, attribute_sd)
        value = difference[:, :p].mean() - difference[:, p:].mean()
        each, _ = bootstrap.estimates({"g": difference}, {"g": value})
        rejected += each["g"].p_value < 0.05
        covered += each["g"].ci_low <= 0 <= each["g"].ci_high
    assert 0.03 <= rejected / runs <= 0.07
    assert rejected + covered == runs  # test and interval say the same


def test_the_mean_over_groups_keeps_its_level():
    rng = np.random.default_rng(2)
    bootstrap = CrossedBootstrap(30, 30, draws=400)
    rejected = 0
    for _ in range(500):
        shared = 2 * rng.normal(size=60)  # all groups meet the same attributes
        rows = {f"g{i}": crossed(rng, 20, 30, 30, 0.5, 0.0) + shared for i in range(6)}
        _, mean = bootstrap.estimates(rows, {g: r[:, :30].mean() - r[:, 30:].mean() for g, r in rows.items()})
        rejected += mean.p_value < 0.05
    assert 0.03 <= rejected / 500 <= 0.07


def test_draws_are_shared_and_reproducible():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(10, 25))
    one, other = CrossedBootstrap(12, 13, 200, seed=4), CrossedBootstrap(12, 13, 200, seed=4)
    np.testing.assert_array_equal(one.shifts(rows), other.shifts(rows))
    np.testing.assert_allclose(one.shifts(rows) + one.shifts(2 * rows), one.shifts(3 * rows), atol=1e-5)
    assert not np.array_equal(one.shifts(rows), CrossedBootstrap(12, 13, 200, seed=5).shifts(rows))


def test_a_draw_is_the_shift_of_resampled_sentences():
    rows = np.random.default_rng(0).normal(size=(4, 5))
    bootstrap = CrossedBootstrap(3, 2, 50)
    attributes, targets = bootstrap._attributes.astype(float), bootstrap._target_weights(4).astype(float)
    i = 17
    picked_p = np.repeat(np.arange(3), np.rint(attributes[i, :3] * 3).astype(int))
    picked_n = np.repeat(np.arange(3, 5), np.rint(-attributes[i, 3:] * 2).astype(int))
    picked_t = np.repeat(np.arange(4), np.rint(targets[i] * 4).astype(int))
    expected = rows[np.ix_(picked_t, picked_p)].mean() - rows[np.ix_(picked_t, picked_n)].mean()
    assert bootstrap.shifts(rows)[i] == pytest.approx(expected, abs=1e-6)


def test_p_can_fall_below_one_over_the_draws():
    rows = np.random.default_rng(0).normal(size=(50, 200)) + np.repeat([1.0, -1.0], 100)
    each, _ = CrossedBootstrap(100, 100, 200).estimates({"g": rows}, {"g": 2.0})
    assert 0 < each["g"].p_value < 1e-6


def test_no_difference_is_exactly_0_and_a_constant_one_has_no_interval():
    bootstrap = CrossedBootstrap(3, 3, 100)
    each, mean = bootstrap.estimates({"g": np.zeros((4, 6))}, {"g": 0.0})
    assert (each["g"].ci_low, each["g"].ci_high, each["g"].p_value, mean.value) == (0, 0, 1, 0)


def test_the_jackknife_agrees_with_the_standard_error_of_a_mean():
    rng = np.random.default_rng(0)
    space = Space({"g": rng.normal(size=(20, 1))}, np.ones((3, 1)), np.ones((3, 1)))

    def height(s: Space) -> dict[str, float]:
        return {"g": float(s.targets["g"].mean())}

    found = statistics.jackknife_estimates(height(space), statistics.left_out(height, space), directed=True)["g"]
    half = t.ppf(0.975, 19) * space.targets["g"].std(ddof=1) / np.sqrt(20)
    assert (found.ci_low, found.ci_high) == pytest.approx((found.value - half, found.value + half))


def test_a_small_group_leaves_the_others_their_jackknife():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 1))
    attributes = np.ones((3, 1))

    def estimate(targets: dict) -> dict:
        space = Space(targets, attributes, attributes)

        def height(s: Space) -> dict[str, float]:
            return {g: float(r.mean()) for g, r in s.targets.items()}

        return statistics.jackknife_estimates(height(space), statistics.left_out(height, space), directed=True)

    alone, beside = estimate({"g": rows}), estimate({"g": rows, "one": rows[:1], "two": rows[:2]})
    assert beside["g"] == alone["g"]
    assert beside["one"].reason == "the metric does not vary with the sentences: no uncertainty is known"
    assert beside["two"].ci_high > beside["two"].value


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == [0.03, 0.06, 0.06]
    assert holm([0.5, None, 0.9]) == [1.0, None, 1.0]
    assert holm([]) == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_agrees_with_statsmodels(p_values):
    np.testing.assert_allclose(holm(p_values), multitest.multipletests(p_values, method="holm")[1], atol=1e-12)


@given(st.integers(0, 1000), st.integers(3, 40))
def test_pearson_and_auc_agree_with_scipy_and_scikit_learn(seed, n):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 5, n).astype(float), rng.normal(size=n)
    x[0], x[1] = 0, 4
    r, p = statistics.pearson(x, y)
    assert (r.value, p.value) == pytest.approx(tuple(pearsonr(x, y)))
    labels = y > np.median(y)
    assert statistics.auc(x, labels).value == pytest.approx(roc_auc_score(labels, x))


def test_what_cannot_be_computed_is_none_with_the_reason():
    assert statistics.pearson(np.ones(2), np.ones(2))[0].reason.endswith("at least 3 observations: there are 2")
    assert statistics.pearson(np.ones(4), np.arange(4.0))[0].reason == "all shifts are equal"
    assert statistics.auc(np.arange(3.0), [True] * 3).reason.startswith("a ROC curve needs both classes: 3 of 3")
    assert statistics.linear_fit_error(np.ones(4), np.arange(4.0))["in_bag"].value is None
    found = statistics.agreement(np.ones(2), np.ones(2), 0.0, ["c", "c"], ["a", "b"], True, 0)
    assert found["pearson"] is None and found["pearson_reason"] and found["within"]["auc_reason"]
    empty = statistics.agreement(np.empty(0), np.empty(0), 0.0, [], [], True, 0)
    assert empty["n_observations"] == 0 and empty["auc"] is None


def test_the_error_of_a_line():
    x = np.linspace(0, 1, 40)
    assert statistics.linear_fit_error(x, 2 * x + 1)["out_of_bag"].value == pytest.approx(0, abs=1e-12)
    rng = np.random.default_rng(0)
    errors = statistics.linear_fit_error(x, 2 * x + 0.1 * rng.normal(size=40))
    assert errors["in_bag"].value < errors["out_of_bag"].value < errors["of_mean"].value
    assert errors["out_of_bag"].value == pytest.approx(0.1 * np.sqrt(2 / np.pi), rel=0.25)


def test_the_error_of_a_line_resample_by_resample():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 12))
    weights = np.random.default_rng(7).multinomial(12, np.full(12, 1 / 12), size=30)
    inside, outside = [], []
    for row in weights:
        rows = np.repeat(np.arange(12), row)
        slope, level = np.polyfit(x[rows], y[rows], 1)
        inside.append(np.abs(y[rows] - level - slope * x[rows]).mean())
        left = row == 0
        outside.append(np.abs(y[left] - level - slope * x[left]).mean())
    found = statistics.linear_fit_error(x, y, draws=30, seed=7)
    assert found["in_bag"].value == pytest.approx(np.mean(inside))
    assert found["out_of_bag"].value == pytest.approx(np.mean(outside))


def test_within_checkpoints_by_hand():
    x = np.array([1.0, 2.0, 11.0, 12.0])  # falls with bias inside each checkpoint, rises between them
    y = np.array([1.0, 0.0, 5.0, 4.0])
    found = statistics.within(x, y, y > 0.5, ["a", "a", "b", "b"])
    assert found["pearson"].value == pytest.approx(-1)
    assert found["auc"].value == 1  # only checkpoint a has both classes, and it ranks them
    assert statistics.pearson(x, y)[0].value > 0


def test_the_common_permutation_of_groups_keeps_its_level_where_a_pooled_p_does_not():
    rng = np.random.default_rng(3)
    dose = np.linspace(-1, 1, 7)
    runs, common, pooled = 400, 0, 0
    checkpoints, groups = np.repeat(np.arange(7), 24), np.tile(np.arange(24), 7)
    for i in range(runs):
        slopes = rng.normal(size=(2, 24))  # independent slopes of ΔB and ΔBias, both linear in the ratio
        x, y = (np.outer(dose, s) + 0.05 * rng.normal(size=(7, 24)) for s in slopes)
        p = statistics.common_group_permutation(x.ravel(), y.ravel(), checkpoints, groups, draws=300, seed=i)
        common += p.value < 0.05
        pooled += statistics.pearson(x.ravel(), y.ravel())[1].value < 0.05
    assert 0.03 <= common / runs <= 0.075
    assert pooled / runs > 0.3


def test_a_common_permutation_needs_every_group_everywhere():
    found = statistics.common_group_permutation(np.arange(3.0), np.arange(3.0), ["a", "a", "b"], ["x", "y", "x"])
    assert found.reason == "a common permutation of groups needs every group at every checkpoint"


def test_a_drift_is_read_without_direction_and_with():
    rng = np.random.default_rng(0)
    y = rng.normal(size=40)
    x = -y + 0.1 * rng.normal(size=40)  # less drift where more bias
    found = statistics.agreement(x, y, 0.0, ["c"] * 40, list(range(40)), directed=False, seed=0)
    assert found["pearson"] > 0.9 and found["pearson_directed"] < -0.9
    assert found["auc"] > 0.9 and found["auc_directed"] < 0.1
    directed = statistics.agreement(x, y, 0.0, ["c"] * 40, list(range(40)), directed=True, seed=0)
    assert directed["pearson"] < -0.9 and directed["auc"] > 0.9
