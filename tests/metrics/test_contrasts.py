"""Contrasts of ΔB: what they cannot see, what they add up to, and how the controls are held against each other."""

from __future__ import annotations

import jsonschema
import numpy as np
import pytest

import refbias
from refbias import compare_spaces, pipeline
from refbias.comparison import Comparison
from refbias.errors import RefbiasError, UsageError
from refbias.metrics import delta_b, delta_b_contrast, delta_b_did
from refbias.schema import result_schema
from refbias.statistics import CrossedBootstrap
from refbias.types import Space

CONTROLS = [f"control {i}" for i in range(6)]
GROUPS = ["a", "b", "c"]


def spaces(seed: int = 0, common: float = 0.0, own: float = 0.0) -> tuple[Space, Space]:
    """A reference and an audited space in which every target moved by ``common`` and group a by ``own`` beside."""
    rng = np.random.default_rng(seed)
    axis = np.eye(8)[0]
    positive, negative = rng.normal(size=(30, 8)) + 3 * axis, rng.normal(size=(30, 8)) - 3 * axis
    rows = {g: rng.normal(size=(12, 8)) for g in [*GROUPS, *CONTROLS]}
    moved = {
        g: r + 0.02 * rng.normal(size=r.shape) - (common + own * (g == "a")) * axis for g, r in rows.items()
    }  # fmt: skip
    return Space(rows, positive, negative), Space(moved, positive, negative)


def compared(metric, pair) -> dict[str, float]:
    return dict(compare_spaces(*pair, geometry="absolute", metric=metric))


def test_the_contrast_is_the_shift_less_its_mean():
    pair = spaces(own=0.5)
    raw, contrast = (compared(metric, pair) for metric in (delta_b(), delta_b_contrast()))
    mean = np.mean(list(raw.values()))
    assert contrast == pytest.approx({g: v - mean for g, v in raw.items()})
    assert sum(contrast.values()) == pytest.approx(0, abs=1e-12)


def test_the_contrast_cannot_see_a_shift_that_all_share():
    still, moved = (compared("delta_b_contrast", spaces(common=c)) for c in (0.0, 1.0))
    assert max(abs(moved[g] - still[g]) for g in still) < 0.1
    assert compared("delta_b", spaces(common=1.0))["a"] < -0.8
    assert compared("delta_b_contrast", spaces(own=1.0))["a"] < -0.5


def test_the_difference_in_differences_is_the_shift_less_that_of_the_controls():
    pair = spaces(common=0.4, own=0.5)
    raw = compared(delta_b(), pair)
    found = compared(delta_b_did(controls=CONTROLS), pair)
    assert list(found) == GROUPS
    controls = np.mean([raw[c] for c in CONTROLS])
    assert found == pytest.approx({g: raw[g] - controls for g in GROUPS})
    assert found["a"] < -0.3 and abs(found["b"]) < 0.1


def test_scores_before_and_after_differ_by_the_shift():
    reference, audited = spaces(own=0.5)
    shifts = compare_spaces(reference, audited, geometry="absolute", metric=delta_b_did(controls=CONTROLS))
    assert set(shifts.reference) == set(GROUPS)
    assert shifts["a"] == pytest.approx(shifts.audited["a"] - shifts.reference["a"])


def test_intervals_of_a_contrast_are_those_of_sums_drawn_together():
    reference, audited = spaces(common=0.5, own=0.3)
    bootstrap = CrossedBootstrap(30, 30, 2000)
    plain = Comparison(reference, "absolute", delta_b()).estimates(audited, bootstrap)
    shifts, each, mean = Comparison(reference, "absolute", delta_b_contrast()).estimates(audited, bootstrap)
    assert mean is None and list(each) == [*GROUPS, *CONTROLS]
    for group, estimate in each.items():
        assert estimate.value == pytest.approx(shifts[group])
    width, raw = (e["a"].ci_high - e["a"].ci_low for e in (each, plain[1]))
    assert 0 < width < raw
    did = Comparison(reference, "absolute", delta_b_did(controls=CONTROLS)).estimates(audited, bootstrap)
    assert list(did[1]) == GROUPS and did[2].value == pytest.approx(np.mean(list(did[0].values())))


def test_a_model_against_itself_has_no_shift_and_no_doubt():
    reference, _ = spaces()
    for metric in (delta_b_contrast(), delta_b_did(controls=CONTROLS)):
        _, each, _ = Comparison(reference, "absolute", metric).estimates(reference, CrossedBootstrap(30, 30, 100))
        assert all((e.value, e.ci_low, e.ci_high, e.p_value) == (0, 0, 0, 1) for e in each.values())


def test_the_placebo_is_one_half_of_the_controls_against_the_other():
    reference, audited = spaces(common=0.5)
    comparison = Comparison(reference, "absolute", delta_b_did(controls=CONTROLS))
    halves, each = comparison.placebo(audited, CrossedBootstrap(30, 30, 500))
    raw = compared(delta_b(), (reference, audited))
    own = [raw[c] for c in CONTROLS]
    assert halves.value == pytest.approx(np.mean(own[::2]) - np.mean(own[1::2]))
    assert halves.ci_low < 0 < halves.ci_high
    assert list(each) == CONTROLS
    assert each[CONTROLS[0]].value == pytest.approx(own[0] - np.mean(own[1:]))
    assert Comparison(reference, "absolute", delta_b()).placebo(audited, CrossedBootstrap(30, 30, 100)) is None


def test_a_placebo_that_fails_is_seen():
    reference, audited = spaces(common=0.2)
    moved = dict(audited.targets)
    for name in CONTROLS[::2]:
        moved[name] = moved[name] - 0.3 * np.eye(8)[0]
    broken = Space(moved, audited.positive, audited.negative)
    comparison = Comparison(reference, "absolute", delta_b_did(controls=CONTROLS))
    halves, _ = comparison.placebo(broken, CrossedBootstrap(30, 30, 500))
    assert halves.ci_high < 0 and halves.p_value < 0.05


def test_what_has_no_meaning_is_refused():
    reference, _ = spaces()
    alone = Space({"a": reference.targets["a"]}, reference.positive, reference.negative)
    with pytest.raises(UsageError, match="needs at least two groups: got a"):
        compare_spaces(alone, alone, geometry="absolute", metric="delta_b_contrast")
    with pytest.raises(RefbiasError, match=r"the space has no 'Gardeners' \(nor 23 more\)"):
        compare_spaces(alone, alone, geometry="absolute", metric="delta_b_did")
    with pytest.raises(UsageError, match="at least two different names: got a"):
        delta_b_did(controls=["a"])
    with pytest.raises(UsageError, match="at least two different names"):
        delta_b_did(controls=["a", "a"])
    with pytest.raises(UsageError, match="nothing is left to score"):
        compare_spaces(reference, reference, geometry="absolute", metric=delta_b_did(controls=[*GROUPS, *CONTROLS]))


def test_an_audit_scores_groups_and_reports_on_its_controls(vector_models):
    reference, audited = (str(path) for path in vector_models)
    named = ["Canadians", "Europeans", "Americans"]
    result = refbias.audit(
        reference, audited, metric=("delta_b_did", {"controls": named}), cache=False, draws=200, encoder="arrays"
    )
    (checkpoint,) = result.data["checkpoints"]
    scored = [row["group"] for row in checkpoint["groups"]]
    assert len(scored) == 21 and not set(scored) & set(named)
    controls = checkpoint["controls"]
    assert [row["target"] for row in controls["targets"]] == named and controls["n"] == 3
    assert controls["sd"] > 0 and controls["halves"]["ci_low"] < controls["halves"]["ci_high"]
    assert "3 control targets" in result.data["conventions"]["contrast"]
    assert "pairs of attribute sentences" in result.data["conventions"]["interval"]
    jsonschema.validate(result.data, result_schema())


def test_an_audit_adds_the_control_targets_by_itself(tiny_llama):
    result = refbias.audit(
        str(tiny_llama), str(tiny_llama), metric="delta_b_did", groups=["Women", "Men"], cache=False, draws=200,
        anchors=("neutral", {"n": 48}),
    )  # fmt: skip
    (checkpoint,) = result.data["checkpoints"]
    assert [row["group"] for row in checkpoint["groups"]] == ["Women", "Men"]
    assert checkpoint["controls"]["n"] == 24 and checkpoint["controls"]["below_zero"] == 0


def test_a_contrast_of_one_group_is_refused_before_a_model_is_loaded():
    for options in (
        {"metric": "delta_b_contrast", "groups": ["Women"]},
        {"metric": "delta_b_did", "targets": "control"},
    ):
        with pytest.raises(UsageError):
            pipeline.check("none", "none", **options)
    with pytest.raises(UsageError, match="No control target 'Gardener'. Did you mean 'Gardeners'"):
        pipeline.check("none", "none", metric=("delta_b_did", {"controls": ["Gardener", "Commuters"]}))
