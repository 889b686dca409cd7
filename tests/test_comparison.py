"""Laws of the shifts, for every geometry and metric, through the public function."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import ortho_group

from refbias.comparison import Comparison, compare_spaces
from refbias.errors import RefbiasError, UsageError
from refbias.metrics import Association
from refbias.statistics import CrossedBootstrap
from refbias.types import Space

seeds = st.integers(0, 2**31)


def space(seed: int, d: int = 6, anchors: int = 20, offset: float = 1.0, targets: int = 5) -> Space:
    rng = np.random.default_rng(seed)

    def rows(n: int) -> np.ndarray:
        return rng.normal(size=(n, d)) + offset

    return Space({"Women": rows(targets), "Men": rows(targets - 1)}, rows(7), rows(6), rows(anchors))


def moved(given_space: Space, Q: np.ndarray, scale: float) -> Space:
    return given_space.map(lambda rows: scale * rows @ Q)


def swapped(given_space: Space) -> Space:
    return Space(given_space.targets, given_space.negative, given_space.positive, given_space.anchors)


@settings(max_examples=20, deadline=None)
@given(seeds, st.sampled_from(["relative", "absolute"]), st.sampled_from(["delta_b", "seat"]),
       st.sampled_from(["none", "center", "abtt", "zca"]))  # fmt: skip
def test_a_model_against_itself_shifts_exactly_nothing(seed, geometry, metric, calibration):
    shifts = compare_spaces(space(seed), space(seed), geometry, metric, calibration)
    assert dict(shifts) == {"Women": 0.0, "Men": 0.0}


@settings(deadline=None)
@given(seeds, st.integers(3, 30))
def test_procrustes_against_itself(seed, anchors):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shifts = compare_spaces(space(seed, anchors=anchors), space(seed, anchors=anchors), "procrustes")
    assert max(map(abs, shifts.values())) <= 1e-10


def test_cka_drift_against_itself_is_0():
    assert max(map(abs, compare_spaces(space(0), space(0), "cka").values())) < 1e-12


@settings(max_examples=30, deadline=None)
@given(seeds, st.floats(0.01, 100))
def test_delta_b_sees_neither_rotation_nor_scale_of_a_model(seed, scale):
    reference, audited = space(seed), space(seed + 1)
    Q = ortho_group.rvs(6, random_state=seed)
    before = compare_spaces(reference, audited)
    after = compare_spaces(reference, moved(audited, Q, scale))
    np.testing.assert_allclose(list(before.values()), list(after.values()), atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_seat_does_not_see_a_rotation(seed):
    reference, audited = space(seed), space(seed + 1)
    turned = moved(audited, ortho_group.rvs(6, random_state=seed), 1.0)
    before, after = (compare_spaces(reference, a, "absolute", "seat") for a in (audited, turned))
    np.testing.assert_allclose(list(before.values()), list(after.values()), atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from([("relative", "delta_b"), ("relative", "seat"), ("absolute", "seat")]))
def test_shifts_are_antisymmetric(seed, choice):
    one, other = space(seed), space(seed + 1)
    shift = np.array(list(compare_spaces(one, other, *choice).values()))
    back = np.array(list(compare_spaces(other, one, *choice).values()))
    mirrored = np.array(list(compare_spaces(swapped(one), swapped(other), *choice).values()))
    np.testing.assert_array_equal(shift, -back)
    np.testing.assert_allclose(shift, -mirrored, atol=1e-14)


def test_delta_b_is_the_published_formula():
    reference, audited = space(0), space(1)

    def by_hand(s: Space, group: str) -> float:
        unit = lambda rows: rows / np.linalg.norm(rows, axis=1, keepdims=True)  # noqa: E731
        r = lambda rows: unit(rows) @ unit(s.anchors).T  # noqa: E731
        scores = [-cdist([t], r(s.positive)).mean() + cdist([t], r(s.negative)).mean() for t in r(s.targets[group])]
        return float(np.mean(scores))

    shifts = compare_spaces(reference, audited)
    for group in ("Women", "Men"):
        assert shifts.reference[group] == pytest.approx(by_hand(reference, group))
        assert shifts.audited[group] == pytest.approx(by_hand(audited, group))
        assert shifts[group] == shifts.audited[group] - shifts.reference[group]


def test_procrustes_scores_rotated_targets_against_the_references_attributes():
    reference = space(0, anchors=40)
    Q = ortho_group.rvs(6, random_state=3)
    audited = moved(reference, Q, 1.0)
    attributes_elsewhere = Space(audited.targets, audited.positive + 9, audited.negative - 9, audited.anchors)
    shifts = compare_spaces(reference, attributes_elsewhere, "procrustes")
    assert max(map(abs, shifts.values())) < 1e-5


def test_procrustes_warns_where_the_rotation_is_not_tied():
    with pytest.warns(UserWarning, match=r"4 sentences of rank 4 \(condition .*\) tie a rotation in 6 dimensions"):
        compare_spaces(space(0, anchors=4), space(1, anchors=4), "procrustes")


@pytest.mark.parametrize("options", [{"center": True}, {"fit_on": "all"}])
def test_procrustes_options_change_the_map(options):
    plain = compare_spaces(space(0), space(1), "procrustes")
    assert plain["Women"] != compare_spaces(space(0), space(1), ("procrustes", options))["Women"]


def test_a_procrustes_reference_serves_several_audited_spaces():
    comparison = Comparison(space(0), ("procrustes", {"center": True}))
    once = dict(comparison.shifts(space(1)))
    comparison.shifts(space(2))
    assert dict(comparison.shifts(space(1))) == once


def test_cka_drift_has_no_scores_of_one_space():
    shifts = compare_spaces(space(0, d=6), space(1, d=9), "cka")
    assert shifts.reference == shifts.audited == {}
    assert all(v > 0 for v in shifts.values())


@pytest.mark.parametrize("geometry", ["relative", "cka"])
def test_widths_may_differ(geometry):
    assert len(compare_spaces(space(0, d=6), space(1, d=11), geometry)) == 2


@pytest.mark.parametrize("geometry", ["absolute", "procrustes"])
def test_widths_that_differ_are_refused_with_the_way_out(geometry):
    with pytest.raises(RefbiasError, match="has 6 dimensions, the audited model 11. Use geometry=relative or"):
        compare_spaces(space(0, d=6), space(1, d=11), geometry)


def test_combinations_without_a_meaning():
    with pytest.raises(UsageError, match="metric=seat scores one space.*geometry=relative.*cka_drift"):
        compare_spaces(space(0), space(1), "cka", "seat")
    with pytest.raises(UsageError, match="No metric 'delta'. Did you mean 'delta_b'"):
        compare_spaces(space(0), space(1), metric="delta")
    with pytest.raises(UsageError, match="option of geometry=procrustes 'centre'. Did you mean 'center'"):
        compare_spaces(space(0), space(1), ("procrustes", {"centre": True}))


def test_spaces_of_other_sentences_are_refused():
    odd = space(1)
    fewer = Space({"Women": odd.targets["Women"][:3], "Men": odd.targets["Men"]}, odd.positive, odd.negative,
                  odd.anchors)  # fmt: skip
    with pytest.raises(RefbiasError, match=r"targets\['Women'\] has 5 rows in the reference and 3"):
        compare_spaces(space(0), fewer)
    other = Space({"Women": odd.targets["Women"]}, odd.positive, odd.negative, odd.anchors)
    with pytest.raises(RefbiasError, match="only one of them has Men"):
        compare_spaces(space(0), other)
    with pytest.raises(RefbiasError, match="geometry=relative needs anchors"):
        bare = Space(odd.targets, odd.positive, odd.negative)
        compare_spaces(bare, bare)


def test_parts_of_ones_own_are_taken():
    def height(s: Space, *, column: int = 0) -> dict[str, float]:
        return {group: float(rows[:, column].mean()) for group, rows in s.targets.items()}

    reference, audited = space(0), space(1)
    shifts = compare_spaces(reference, audited, "absolute", height)
    assert shifts["Men"] == pytest.approx(audited.targets["Men"][:, 0].mean() - reference.targets["Men"][:, 0].mean())
    own = Association("dot", lambda X, Y: np.asarray(X) @ np.asarray(Y).T)
    assert compare_spaces(reference, audited, lambda s: s, own)["Men"] != 0


@pytest.mark.parametrize(("geometry", "metric"), [
    ("relative", "delta_b"), ("absolute", "seat"), ("procrustes", None), ("cka", None),
])  # fmt: skip
def test_estimates_surround_the_reported_shift(geometry, metric):
    reference, audited = space(0, anchors=40, targets=9), space(1, anchors=40, targets=9)
    comparison = Comparison(reference, geometry, metric)
    shifts, estimates, mean = comparison.estimates(audited, CrossedBootstrap(7, 6, draws=500))
    assert dict(shifts) == dict(comparison.shifts(audited))
    for group, estimate in estimates.items():
        assert estimate.value == shifts[group]
        assert estimate.ci_low < estimate.value < estimate.ci_high
        assert (estimate.p_value is None) == (geometry == "cka")
    assert (mean is None) == (geometry == "cka")
    if mean is not None:
        assert mean.value == pytest.approx(np.mean(list(shifts.values())))


def test_too_few_sentences_for_an_interval_leave_the_shift_with_the_reason():
    _, estimates, _ = Comparison(space(0), "cka").estimates(space(1), CrossedBootstrap(7, 6, draws=200))
    assert estimates["Men"].ci_low is None and estimates["Men"].value > 0
    assert estimates["Men"].reason.startswith("too few sentences for an interval: Debiased CKA needs at least 4")
