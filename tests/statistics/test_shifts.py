"""Intervals of shifts, checked by simulation and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from refbias import statistics
from refbias.errors import RefbiasError
from refbias.statistics import CrossedBootstrap
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


def test_matched_pairs_cancel_what_a_frame_does_and_others_lose_nothing():
    rng = np.random.default_rng(0)
    frames = np.tile(3 * rng.normal(size=40), 2)
    rows = rng.normal(size=(20, 80)) + frames

    def width(difference: np.ndarray, paired: bool) -> float:
        value = float(difference[:, :40].mean() - difference[:, 40:].mean())
        each, _ = CrossedBootstrap(40, 40, 2000, paired=paired).estimates({"g": difference}, {"g": value})
        return each["g"].ci_high - each["g"].ci_low

    assert width(rows, True) < width(rows, False) / 4
    plain = rng.normal(size=(20, 80)) + rng.normal(size=80)
    assert width(plain, True) == pytest.approx(width(plain, False), rel=0.25)
    assert CrossedBootstrap(40, 40, 10).paired and not CrossedBootstrap(40, 41, 10).paired
    with pytest.raises(RefbiasError, match="got 40 and 41"):
        CrossedBootstrap(40, 41, 10, paired=True)


def test_a_paired_draw_takes_the_same_rows_on_both_sides():
    bootstrap = CrossedBootstrap(5, 5, 30)
    np.testing.assert_array_equal(bootstrap._attributes[:, :5], -bootstrap._attributes[:, 5:])


def test_the_standard_error_of_matched_pairs_by_hand():
    rng = np.random.default_rng(1)
    attributes = np.tile(rng.normal(size=60), 2) + 0.3 * rng.normal(size=120)
    rows = np.tile(attributes, (10, 1))  # all targets alike: only the attributes vary
    value = float(rows[:, :60].mean() - rows[:, 60:].mean())
    each, _ = CrossedBootstrap(60, 60, 10_000).estimates({"g": rows}, {"g": value})
    error = (attributes[:60] - attributes[60:]).std(ddof=0) / np.sqrt(60)
    half = t.ppf(0.975, 59) * error
    assert each["g"].ci_high - value == pytest.approx(half, rel=0.03)


def test_a_contrast_is_drawn_together():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(20, 60))
    rows = {g: shared + 0.1 * rng.normal(size=(20, 60)) for g in "abc"}
    values = {g: float(d[:, :30].mean() - d[:, 30:].mean()) for g, d in rows.items()}
    third = {"a": 2 / 3, "b": -1 / 3, "c": -1 / 3}
    contrast = {"a": sum(w * values[g] for g, w in third.items())}
    bootstrap = CrossedBootstrap(30, 30, 2000)
    alone = bootstrap.estimates(rows, values)[0]["a"]
    found, mean = bootstrap.estimates(rows, contrast, {"a": third})
    assert found["a"].ci_high - found["a"].ci_low < (alone.ci_high - alone.ci_low) / 5
    assert mean.value == pytest.approx(contrast["a"])
    # the same as the difference matrix of the contrast, where rows and columns correspond
    by_hand = {"a": sum(w * rows[g] for g, w in third.items())}
    direct = bootstrap.estimates(by_hand, contrast)[0]["a"]
    assert (found["a"].ci_low, found["a"].p_value) == pytest.approx((direct.ci_low, direct.p_value), rel=1e-3)


def test_contrasts_that_sum_to_0_have_no_mean():
    rng = np.random.default_rng(0)
    rows = {g: rng.normal(size=(6, 20)) for g in "ab"}
    halves = {"a": {"a": 0.5, "b": -0.5}, "b": {"a": -0.5, "b": 0.5}}
    values = {"a": 0.1, "b": -0.1}
    assert CrossedBootstrap(10, 10, 100).estimates(rows, values, halves)[1] is None


def test_groups_of_different_sizes_may_be_contrasted():
    rng = np.random.default_rng(0)
    rows = {"a": rng.normal(size=(6, 20)), "b": rng.normal(size=(9, 20)), "c": rng.normal(size=(9, 20))}
    weights = {"a": {"a": 1.0, "b": -0.5, "c": -0.5}}
    values = {"a": 0.0}
    found, _ = CrossedBootstrap(10, 10, 4000).estimates(rows, {"a": 0.2}, weights)
    variance = 0.0  # by hand: attributes once, targets of each size once
    columns = rows["a"].mean(axis=0) - 0.5 * (rows["b"].mean(axis=0) + rows["c"].mean(axis=0))
    variance += (columns[:10] - columns[10:]).var(ddof=1) / 10
    own = rows["a"][:, :10].mean(axis=1) - rows["a"][:, 10:].mean(axis=1)
    others = [d[:, :10].mean(axis=1) - d[:, 10:].mean(axis=1) for d in (rows["b"], rows["c"])]
    variance += own.var(ddof=1) / 6 + (0.5 * (others[0] + others[1])).var(ddof=1) / 9
    width = found["a"].ci_high - found["a"].ci_low
    assert width > 0 and width == pytest.approx(2 * t.ppf(0.975, 12) * np.sqrt(variance), rel=0.35)
    assert values["a"] == 0.0
