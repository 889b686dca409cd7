"""Correlation, AUC and the error of a line, by hand and against scipy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr
from sklearn.metrics import roc_auc_score

from refbias import statistics


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


def test_what_rounding_leaves_of_a_constant_is_no_correlation():
    x = np.repeat([0.1, 0.3], 5)  # the same at every group of a checkpoint; 0.1 and 0.3 are no binary fractions
    y = np.random.default_rng(0).normal(size=10)
    assert statistics.within(x, y, y > 0, np.repeat([0, 1], 5))["pearson"].reason == "all shifts are equal"


def test_within_groups_names_groups():
    found = statistics.within(np.arange(2.0), np.arange(2.0), [True, False], ["a", "b"], of="group")
    assert found["auc"].reason == "no group has two observations"
