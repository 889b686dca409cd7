"""The block that stands in result.json."""

from __future__ import annotations

import numpy as np
import pytest

from refbias import statistics
from tests.statistics.simulations import merges, names


def test_a_drift_is_read_without_direction_and_with():
    rng = np.random.default_rng(0)
    y = rng.normal(size=40)
    x = -y + 0.1 * rng.normal(size=40)  # less drift where more bias
    found = statistics.agreement(x, y, 0.0, ["c"] * 40, list(range(40)), directed=False, seed=0)
    assert found["pearson"] > 0.9 and found["pearson_directed"] < -0.9
    assert found["auc"] > 0.9 and found["auc_directed"] < 0.1
    directed = statistics.agreement(x, y, 0.0, ["c"] * 40, list(range(40)), directed=True, seed=0)
    assert directed["pearson"] < -0.9 and directed["auc"] > 0.9


def test_figures_stand_beside_their_intervals():
    X, Y = merges(np.random.default_rng(1), 24, 0.8)
    found = statistics.agreement(X.ravel(), Y.ravel(), 0.0, *names(24), directed=True, seed=0)
    for block, name in ((found, "pearson"), (found, "auc"), (found["within"], "pearson"), (found["within"], "auc")):
        assert block[f"{name}_ci_low"] < block[name] < block[f"{name}_ci_high"]
    assert found["within_groups"]["pearson"] < 0


def test_a_drift_has_intervals_of_the_directed_figures_only():
    X, Y = merges(np.random.default_rng(1), 24, 0.8)
    found = statistics.agreement(X.ravel(), Y.ravel(), 0.0, *names(24), directed=False, seed=0)
    assert found["auc_directed_ci_low"] < found["auc_directed"] < found["auc_directed_ci_high"]
    assert "auc_ci_low" not in found


def test_one_checkpoint_of_two_groups_has_reasons_everywhere():
    found = statistics.agreement(np.arange(2.0), np.arange(2.0), 0.5, ["c", "c"], ["a", "b"], True, 0)
    assert found["auc"] == pytest.approx(0)
    assert found["auc_ci_low"] is None
    assert found["auc_ci_reason"] == "a bootstrap over groups needs at least 3 groups: there are 2"
