from __future__ import annotations

import numpy as np
import pytest

from refbias.errors import RefbiasError
from refbias.types import Space, Stimuli, as_matrix


@pytest.mark.parametrize(("value", "text"), [
    ([1.0, 2.0], r"must have shape \(n, d\) with n, d >= 1: got \(2,\)"),
    (np.empty((0, 3)), r"got \(0, 3\)"),
    ([["a"]], "must be numbers of shape"),
    ([[1.0], [np.nan]], "NaN or infinity, first in row 1"),
])  # fmt: skip
def test_what_is_no_matrix_is_refused(value, text):
    with pytest.raises(RefbiasError, match=text):
        as_matrix(value, "X")


def test_a_space_has_one_width_and_a_group():
    with pytest.raises(RefbiasError, match=r"targets\['g'\] has shape \(2, 3\), positive \(2, 4\)"):
        Space({"g": np.ones((2, 3))}, np.ones((2, 4)), np.ones((2, 4)))
    with pytest.raises(RefbiasError, match="at least one target group"):
        Space({}, np.ones((2, 4)), np.ones((2, 4)))


def test_stimuli_hold_each_sentence_once_and_can_be_narrowed():
    stimuli = Stimuli({"a": ["x", "y"], "b": ["z"]}, ["p"], ["n"], ["x", "q"])
    assert stimuli.sentences() == ["x", "y", "z", "p", "n", "q"]
    assert stimuli.only(["b"]).targets == {"b": ["z"]}
