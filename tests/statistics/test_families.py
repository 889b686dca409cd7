"""Holm's adjustment, by hand and against statsmodels."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats import multitest

from refbias.statistics import holm, holm_family


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == [0.03, 0.06, 0.06]
    assert holm([0.5, None, 0.9]) == [1.0, None, 1.0]
    assert holm([]) == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_agrees_with_statsmodels(p_values):
    np.testing.assert_allclose(holm(p_values), multitest.multipletests(p_values, method="holm")[1], atol=1e-12)


def test_a_family_says_its_name_and_what_it_counted():
    rows = holm_family("methods", {"seat": 0.01, "cka": None, "procrustes": 0.04})
    assert [row["p_adjusted"] for row in rows] == [0.02, None, 0.04]
    assert {(row["family"], row["tests"]) for row in rows} == {("methods", 2)}
