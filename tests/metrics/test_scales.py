"""Units of ΔB: the published one to the bit, the same over √m, and the effect size that no stretching changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refbias
from refbias import compare_spaces, linalg
from refbias.comparison import Comparison
from refbias.errors import RefbiasError, UsageError
from refbias.metrics import delta_b
from refbias.statistics import CrossedBootstrap
from refbias.types import Space

SCALES = ("none", "sqrt_m", "spread")


def space(seed: int, shift: float = 0.0, width: int = 6) -> Space:
    rng = np.random.default_rng(seed)

    def rows(n: int) -> np.ndarray:
        return rng.normal(size=(n, width))

    return Space({"a": rows(7) - shift, "b": rows(5)}, rows(9) + 1, rows(11) - 1, rows(8))


def test_the_default_is_the_published_figure_to_the_bit():
    one = space(0)
    for metric in (delta_b(), delta_b(scale="none")):
        scores = metric(one)
        for group, rows in one.targets.items():
            every = -linalg.distances(np.vstack(list(one.targets.values())), np.vstack([one.positive, one.negative]))
            start = 0 if group == "a" else 7
            own = every[start : start + len(rows)]
            assert scores[group] == float(own[:, :9].mean() - own[:, 9:].mean())
    named = compare_spaces(one, space(1), metric=("delta_b", {"scale": "none"}))
    assert dict(named) == dict(compare_spaces(one, space(1)))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("geometry", ["relative", "absolute"])
def test_a_model_against_itself_has_no_shift(scale, geometry):
    found = compare_spaces(space(0), space(0), geometry=geometry, metric=delta_b(scale=scale))
    assert dict(found) == {"a": 0.0, "b": 0.0}


def test_sqrt_m_divides_by_the_root_of_the_number_of_anchors():
    plain, over = (compare_spaces(space(0), space(1), metric=delta_b(scale=s)) for s in ("none", "sqrt_m"))
    assert dict(over) == pytest.approx({group: value / 8**0.5 for group, value in plain.items()})
    # every anchor twice: the same representation with twice as many coordinates
    twice = [Space(s.targets, s.positive, s.negative, np.vstack([s.anchors] * 2)) for s in (space(0), space(1))]
    assert dict(compare_spaces(*twice, metric=delta_b(scale="sqrt_m"))) == pytest.approx(dict(over))
    assert compare_spaces(*twice)["a"] == pytest.approx(2**0.5 * plain["a"])


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 100), st.integers(0, 50))
def test_the_effect_size_does_not_change_with_the_size_of_a_space(stretch, seed):
    before, after = space(seed), space(seed + 100)
    stretched = after.map(lambda rows: stretch * rows)
    metric = delta_b(scale="spread")
    found = [compare_spaces(before, s, geometry="absolute", metric=metric)["a"] for s in (after, stretched)]
    assert found[1] == pytest.approx(found[0], rel=1e-9, abs=1e-12)


def test_the_spread_is_that_of_cohens_d():
    # 1, 3 and 0, 4: variances 2 and 8, one degree of freedom each
    assert linalg.pooled_spread(np.array([[1.0, 3.0, 0.0, 4.0]]), 2) == pytest.approx(5**0.5)
    one = space(3)
    every = -linalg.distances(one.targets["a"], np.vstack([one.positive, one.negative]))
    left, right = every[:, :9].ravel(), every[:, 9:].ravel()
    pooled = ((left.size - 1) * left.var(ddof=1) + (right.size - 1) * right.var(ddof=1)) / (every.size - 2)
    assert delta_b(scale="spread")(one)["a"] == pytest.approx((left.mean() - right.mean()) / pooled**0.5)


def test_the_associations_of_an_effect_size_move_as_it_does():
    one = space(3)
    every = -linalg.distances(one.targets["a"], np.vstack([one.positive, one.negative]))
    scaled = linalg.effect_size_associations(every, 9)

    def effect_size(rows: np.ndarray, weights: np.ndarray) -> float:
        """Cohen's d with weighted rows, divided by n as a resample is."""
        sides = rows[:, :9], rows[:, 9:]
        means = [float((weights @ side).mean()) for side in sides]
        squares = [float((weights @ (side - mean) ** 2).sum()) for side, mean in zip(sides, means, strict=True)]
        return (means[0] - means[1]) / (sum(squares) / rows.shape[1]) ** 0.5

    even = np.full(7, 1 / 7)
    base = linalg.bias_score(scaled[:, :9], scaled[:, 9:])
    for row in range(7):
        weights = (1 - 1e-4) * even + 1e-4 * np.eye(7)[row]
        exact = effect_size(every, weights) / effect_size(every, even) - 1
        linear = float((weights @ scaled[:, :9]).mean() - (weights @ scaled[:, 9:]).mean()) / base - 1
        assert linear == pytest.approx(exact, rel=0.02, abs=1e-8)


def test_what_does_not_vary_has_no_effect_size():
    for rows, p in ((np.full((3, 4), -2.0), 2), (np.array([[1.0, 5.0]]), 1)):
        with pytest.raises(RefbiasError, match="needs associations that vary"):
            linalg.pooled_spread(rows, p)


def test_an_unknown_unit_names_those_that_exist():
    with pytest.raises(UsageError, match="No scale 'sqrt'. Did you mean 'sqrt_m'"):
        delta_b(scale="sqrt")


@pytest.mark.parametrize("scale", SCALES)
def test_intervals_are_in_the_unit_of_the_figure(scale):
    reference, audited = space(0), space(0, shift=0.4)
    bootstrap = CrossedBootstrap(9, 11, 500)
    _, each, mean = Comparison(reference, "absolute", delta_b(scale=scale)).estimates(audited, bootstrap)
    assert mean is not None
    for estimate in (*each.values(), mean):
        assert estimate.ci_low <= estimate.value <= estimate.ci_high
    assert each["a"].ci_high - each["a"].ci_low > 0
    if scale == "sqrt_m":
        plain = Comparison(reference, "absolute", delta_b()).estimates(audited, bootstrap)[1]
        assert each["a"].ci_low == pytest.approx(plain["a"].ci_low / 6**0.5, rel=1e-5)
        assert each["a"].p_value == pytest.approx(plain["a"].p_value, rel=1e-4)


def test_an_audit_takes_the_unit_as_an_option(vector_models):
    reference, audited = (str(path) for path in vector_models)
    data = refbias.audit(
        reference, audited, metric=("delta_b", {"scale": "spread"}), groups=["Women", "Men"], cache=False, draws=100,
        encoder="arrays",
    ).data  # fmt: skip
    assert data["settings"]["metric.scale"] == "spread"
    assert all(row["ci_low"] < row["delta_b"] < row["ci_high"] for row in data["checkpoints"][0]["groups"])


@pytest.mark.slow
def test_the_interval_of_an_effect_size_covers():
    """Its spread is uncertain too: taken as given, intervals of this large a shift cover 84 %, else 95 %."""
    rng, width, truth = np.random.default_rng(0), 4, 0.5
    axis = np.eye(width)[0]

    def drawn(n_targets: int, n: int) -> tuple[Space, Space]:
        rows = rng.normal(size=(n_targets, width))
        frames = rng.normal(size=(n, width))
        sides = frames + 0.7 * axis, frames - 0.7 * axis + 0.3 * rng.normal(size=(n, width))
        noise = 0.05 * rng.normal(size=rows.shape)
        return Space({"a": rows}, *sides), Space({"a": rows - truth * axis + noise}, *sides)

    metric = delta_b(scale="spread")
    reference, audited = drawn(3000, 3000)
    expected = compare_spaces(reference, audited, geometry="absolute", metric=metric)["a"]
    covered = 0
    for _ in range(400):
        reference, audited = drawn(40, 60)
        estimate = Comparison(reference, "absolute", metric).estimates(audited, CrossedBootstrap(60, 60, 400))[1]["a"]
        covered += estimate.ci_low <= expected <= estimate.ci_high
    assert 0.92 <= covered / 400 <= 0.98, covered / 400
