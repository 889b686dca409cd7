"""P(more biased | ΔB): agreement with scikit-learn, runs left out, thresholds, what is saved and refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss

from refbias import statistics
from refbias.errors import RefbiasError, UsageError
from refbias.statistics import Calibrator, Figure, alarm_threshold, conformal_threshold, fit_calibrator
from refbias.statistics.calibrator import DOMAIN

DOMAIN_OF_A_TEST = dict.fromkeys(DOMAIN, "a") | {"layer": 30}


def runs_of(pairs: int = 4, n: int = 48, seed: int = 0) -> tuple:
    """Shifts and labels of ``pairs`` runs; more bias where the shift is below 0."""
    rng = np.random.default_rng(seed)
    x = 0.2 * rng.normal(size=pairs * n)
    labels = rng.random(len(x)) < 1 / (1 + np.exp(10 * x))
    return x, labels, np.repeat([f"run {i}" for i in range(pairs)], n), np.tile(np.arange(n), pairs)


def test_the_curve_is_that_of_a_logistic_regression():
    x, labels, runs, groups = runs_of()
    made = fit_calibrator(x, labels, runs, groups)
    standard = ((x - x.mean()) / x.std())[:, None]
    expected = LogisticRegression().fit(standard, labels).predict_proba(standard)[:, 1]
    np.testing.assert_allclose(made.probability(x), expected, atol=1e-9)
    assert made.curve["slope"] < 0
    assert made.probability(-99.0) > 0.999 and made.probability(99.0) < 0.001


@given(st.floats(0.001, 1000), st.floats(-5, 5))
@settings(max_examples=20, deadline=None)
def test_the_unit_of_the_shift_does_not_matter(scale, origin):
    x, labels, runs, groups = runs_of(2)
    one, other = (fit_calibrator(v, labels, runs, groups).probability(v) for v in (x, scale * x + origin))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_classes_that_are_apart_leave_the_curve_finite():
    x = np.linspace(-1, 1, 40)
    made = fit_calibrator(x, x < 0, ["r"] * 40, range(40))
    assert np.isfinite(made.curve["slope"])
    assert "at least two independent runs: there is 1" in made.checked["reason"]


def test_each_run_is_predicted_from_the_others_alone():
    x, labels, runs, _ = runs_of()
    chance, checked = statistics.leave_one_run_out(x, labels, runs)
    rest = runs != "run 2"
    made = fit_calibrator(x[rest], labels[rest], runs[rest], np.arange(rest.sum()))
    np.testing.assert_allclose(chance[~rest], made.probability(x[~rest]))
    assert checked["brier"] == pytest.approx(brier_score_loss(labels, chance))
    base = np.array([labels[runs != run].mean() for run in runs])
    assert checked["brier_base_rate"] == pytest.approx(brier_score_loss(labels, base))
    assert checked["brier_skill"] == pytest.approx(1 - checked["brier"] / checked["brier_base_rate"]) and (
        checked["brier_skill"] > 0.1
    )


def test_a_run_whose_others_have_one_class_gets_their_base_rate():
    x, labels = np.arange(6.0), np.array([1, 0, 1, 0, 0, 0], dtype=bool)
    chance, checked = statistics.leave_one_run_out(x, labels, ["a", "a", "a", "b", "b", "b"])
    assert chance[:3].tolist() == [0, 0, 0]
    assert checked["brier"] is not None


def test_isotonic_needs_a_thousand_independent_labels():
    x, labels, runs, groups = runs_of(4)
    with pytest.raises(UsageError, match=r"needs 1,000 independent labels \(runs x groups\): there are 192"):
        fit_calibrator(x, labels, runs, groups, "isotonic")
    many = runs_of(25, 48)
    made = fit_calibrator(*many, "isotonic")
    peer = IsotonicRegression(increasing=False, y_min=0, y_max=1, out_of_bounds="clip").fit(many[0], many[1])
    at = np.linspace(-1, 1, 50)
    np.testing.assert_allclose(made.probability(at), peer.predict(at), atol=1e-9)
    with pytest.raises(UsageError, match="No calibration method 'isotone'. Did you mean 'isotonic'"):
        fit_calibrator(*many, "isotone")


def test_nothing_to_fit_has_a_reason():
    x = np.arange(4.0)
    one_class = fit_calibrator(x, [1, 1, 1, 1], "abab", "abcd")
    assert isinstance(one_class, Figure) and "4 of 4" in one_class.reason
    assert fit_calibrator(np.ones(4), [1, 0, 1, 0], "abab", "abcd").reason == "all shifts are equal"


def test_reliability_counts_everything_once():
    x, labels, runs, _ = runs_of()
    chance, _ = statistics.leave_one_run_out(x, labels, runs)
    rows = statistics.reliability(chance, labels)
    assert sum(row["n"] for row in rows) == len(x) and len(rows) == 10
    assert sum(row["n"] * row["observed"] for row in rows) == pytest.approx(labels.sum())
    assert all(row["low"] <= row["predicted"] <= row["high"] for row in rows)
    assert statistics.reliability(np.full(3, 0.5), [1, 0, 1])[0]["n"] == 3


def test_the_threshold_is_an_order_statistic():
    assert conformal_threshold(np.arange(1, 20), 0.05).value == 19  # the largest of the fewest that will do
    assert conformal_threshold(np.arange(1, 40), 0.05).value == 38
    assert conformal_threshold(np.arange(1, 19), 0.05).reason.endswith("at least 19 harmless ones: there are 18")
    with pytest.raises(UsageError, match=r"between 0 and 1: got 5"):
        conformal_threshold([1.0], 5)


def test_an_alarm_says_what_lies_behind_it():
    x, labels, runs, _ = runs_of()
    found = alarm_threshold(x, labels, runs)
    harmless = x[~labels]
    assert (harmless < found["delta_b"]).mean() <= 0.05
    assert found["n_harmless"] == (~labels).sum() and found["n_runs"] == 4
    assert 0 <= found["false_alarm_rate"] < 0.2 < found["detection_rate"]
    drift = alarm_threshold(-x, labels, runs, alarm=1)
    assert drift["delta_b"] == -found["delta_b"] and drift["detection_rate"] == found["detection_rate"]
    few = alarm_threshold(x[:20], labels[:20], runs[:20])
    assert few["delta_b"] is None and "at least 19" in few["reason"]


def test_a_calibrator_is_saved_and_comes_back(tmp_path):
    x, labels, runs, groups = runs_of(25, 48)
    for method in ("logistic", "isotonic"):
        made = fit_calibrator(x, labels, runs, groups, method, domain=DOMAIN_OF_A_TEST, threshold=0.1)
        made.save(tmp_path / "c.json")
        found = Calibrator.load(tmp_path / "c.json")
        assert found == made
        np.testing.assert_array_equal(found.probability(x), made.probability(x))
        assert found.fitted_on["threshold"] == 0.1
        found.check(DOMAIN_OF_A_TEST)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layer": 24}, "its layer was 30, here it is 24"),
        ({"reference": "b"}, "its reference was a, here it is b"),
        ({"anchors": "words", "anchors_digest": "c"}, r"its anchors was a, here it is words \(and 1 more differ\)"),
    ],
)
def test_another_setting_is_refused_unless_told(change, said):
    x, labels, runs, groups = runs_of()
    made = fit_calibrator(x, labels, runs, groups, domain=DOMAIN_OF_A_TEST)
    with pytest.raises(UsageError, match=said):
        made.check(DOMAIN_OF_A_TEST | change)
    made.check(DOMAIN_OF_A_TEST | change, anyway=True)


def test_a_calibrator_of_unknown_origin_is_refused_unless_told():
    x, labels, runs, groups = runs_of()
    with pytest.raises(UsageError, match="its reference is not known, here it is a"):
        fit_calibrator(x, labels, runs, groups).check(DOMAIN_OF_A_TEST)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "other"}, "is no calibrator"),
        ({"schema_version": "9"}, "is no calibrator"),
        ({"curve": {"slope": 1.0}}, "damaged"),
        ({"curve": {"slope": "1", "intercept": 0.0}}, "damaged"),
        ({"method": "isotonic"}, "damaged"),
        ({"method": "isotonic", "curve": {"delta_b": [0.0, -1.0], "probability": [0.1, 0.2]}}, "damaged"),
        ({"method": "isotonic", "curve": {"delta_b": [0.0], "probability": [1.5]}}, "damaged"),
        ({"alarm": None}, "damaged"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, change, said):
    x, labels, runs, groups = runs_of()
    file = tmp_path / "c.json"
    data = json.loads(fit_calibrator(x, labels, runs, groups).to_json())
    file.write_text(json.dumps(data | change))
    with pytest.raises(RefbiasError, match=said):
        Calibrator.load(file)
    file.write_text("{")
    with pytest.raises(RefbiasError, match="no readable calibrator"):
        Calibrator.load(file)


def test_the_domain_is_read_from_a_result(audited):
    found = statistics.domain_of(audited)
    assert found["reference"] == "smollm2" and found["layer"] == 30 and found["anchors_digest"] == "abc"
    assert found["anchors.n"] == 1000 and set(found) == set(DOMAIN)
    assert statistics.domain_of(audited, layer=12)["layer"] == 12
