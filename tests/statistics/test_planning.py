"""Numbers of sentences: variance components come back, and the widths they predict are met."""

from __future__ import annotations

import math

import numpy as np
import pytest

from refbias.errors import RefbiasError, UsageError
from refbias.statistics import CrossedBootstrap
from refbias.statistics.planning import Components, components, plan, subsample

KNOWN = Components(0.04, (0.25,), (0.09,), 50, 100)


def drawn(rng, targets, attributes, known=KNOWN, paired=True):
    """A table (n, 2 m) of which the pairs, or each side, have these components."""
    sides = []
    row = math.sqrt(known.targets) * rng.normal(size=(targets, 1))
    for a, ta in zip(known.attributes, known.interaction, strict=True):
        column, cell = rng.normal(size=(1, attributes)), rng.normal(size=(targets, attributes))
        sides.append(math.sqrt(a) * column + math.sqrt(ta) * cell)
    if paired:
        common = rng.normal(size=(targets, attributes))  # what a frame does to both sides cancels in its pair
        return np.hstack([sides[0] + row + common, common])
    return np.hstack([sides[0] + row, sides[1]])


def test_components_of_pairs_come_back():
    rng = np.random.default_rng(0)
    found = [components(drawn(rng, 50, 100)) for _ in range(200)]
    assert np.mean([c.targets for c in found]) == pytest.approx(0.04, rel=0.06)
    assert np.mean([c.attributes[0] for c in found]) == pytest.approx(0.25, rel=0.04)
    assert np.mean([c.interaction[0] for c in found]) == pytest.approx(0.09, rel=0.01)
    assert (found[0].n, found[0].m) == (50, 100)


def test_components_of_two_samples_come_back():
    rng, known = np.random.default_rng(1), Components(0.04, (0.25, 0.1), (0.09, 0.02), 40, 60)
    found = [components(drawn(rng, 40, 60, known, paired=False), paired=False) for _ in range(200)]
    assert np.mean([c.targets for c in found]) == pytest.approx(0.04, rel=0.06)
    assert np.mean([c.attributes for c in found], axis=0) == pytest.approx([0.25, 0.1], rel=0.06)
    assert np.mean([c.interaction for c in found], axis=0) == pytest.approx([0.09, 0.02], rel=0.02)


def test_the_standard_error_is_the_spread_over_draws():
    rng = np.random.default_rng(2)
    for targets, attributes in ((10, 20), (40, 10)):
        tables = [drawn(rng, targets, attributes) for _ in range(1500)]
        shifts = [float(t[:, :attributes].mean() - t[:, attributes:].mean()) for t in tables]
        assert np.std(shifts, ddof=1) == pytest.approx(KNOWN.standard_error(targets, attributes), rel=0.06)


def test_predicted_widths_are_those_of_the_interval():
    rng = np.random.default_rng(3)
    for targets, attributes in ((30, 60), (60, 20)):
        bootstrap, widths = CrossedBootstrap(attributes, attributes, draws=400), []
        for _ in range(60):
            table = drawn(rng, targets, attributes)
            shift = float(table[:, :attributes].mean() - table[:, attributes:].mean())
            found = bootstrap.estimates({"g": table}, {"g": shift})[0]["g"]
            widths.append((found.ci_high - found.ci_low) / 2)
        assert np.mean(widths) == pytest.approx(KNOWN.half_width(targets, attributes), rel=0.06)


def test_numbers_for_a_width_are_the_fewest():
    m = KNOWN.attributes_for(0.08, targets=50)
    assert KNOWN.half_width(50, m) <= 0.08 < KNOWN.half_width(50, m - 1)
    n = KNOWN.targets_for(0.105, attributes=100)
    assert KNOWN.half_width(n, 100) <= 0.105 < KNOWN.half_width(n - 1, 100)
    n, m = KNOWN.both_for(0.04)
    assert m == 2 * n and KNOWN.half_width(n, m) <= 0.04 < KNOWN.half_width(n - 1, 2 * (n - 1))


def test_what_the_other_sentences_carry_sets_a_floor():
    assert KNOWN.targets_for(0.09, attributes=100) is None  # 1.98 · √(0.25 / 100) = 0.099 is left
    assert KNOWN.attributes_for(0.05, targets=50) is None
    table = {"g": drawn(np.random.default_rng(4), 50, 100)}
    made = plan(table, 0.09)
    assert "no number of targets alone" in str(made) and "attribute pairs with" in str(made)
    assert "no number of either alone" in str(plan(table, 0.02)) and "or 3 targets a group" in str(plan(table, 1.0))
    assert "more than 1,000,000" in str(plan(table, 1e-6))
    assert made.shares["attributes"] == pytest.approx(0.25 / 100 / KNOWN.standard_error(50, 100) ** 2, abs=0.1)


def test_a_plan_has_a_row_for_every_group_and_their_mean():
    rng = np.random.default_rng(5)
    made = plan({f"g{i}": drawn(rng, 30 + i, 40) for i in range(3)}, 0.1)
    assert [row["group"] for row in made.rows()] == ["g0", "g1", "g2", "mean over groups"]
    for row in made.rows():
        assert row["share_targets"] + row["share_attributes"] + row["share_interaction"] == pytest.approx(1.0)
    assert made.pooled.attributes[0] == pytest.approx(np.mean([c.attributes[0] for c in made.groups.values()]))
    assert made.rows()[0]["half_width"] == made.groups["g0"].half_width(30, 40)


def test_a_table_that_does_not_vary_needs_two_sentences():
    made = plan({"g": np.ones((5, 8))}, 0.1)
    assert made.shares == {"targets": 0.0, "attributes": 0.0, "interaction": 0.0}
    assert made.rows()[0]["attributes_for"] == 2 and made.rows()[0]["share_targets"] is None


def test_what_cannot_be_planned_says_why():
    with pytest.raises(RefbiasError, match="two targets and two attributes"):
        components(np.ones((1, 8)))
    with pytest.raises(RefbiasError, match="equal numbers of attributes: got 3 and 5"):
        components(np.ones((4, 8)), n_positive=3, paired=True)
    with pytest.raises(RefbiasError, match="finite table"):
        components([[1.0, math.nan]])
    with pytest.raises(UsageError, match="above 0: got 0"):
        plan({"g": np.ones((5, 8))}, 0)
    with pytest.raises(RefbiasError, match="at least one group"):
        plan({}, 0.1)


def test_subsamples_keep_pairs_together():
    table = np.hstack([np.arange(12.0).reshape(3, 4), 100 + np.arange(12.0).reshape(3, 4)])
    some = subsample(table, 2, 3, np.random.default_rng(0))
    assert some.shape == (2, 6) and (some[:, 3:] - some[:, :3] == 100).all()
    with pytest.raises(RefbiasError, match="cannot be drawn"):
        subsample(table, 4, 3, np.random.default_rng(0))
