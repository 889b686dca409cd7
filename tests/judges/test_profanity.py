from __future__ import annotations

import sys

import pytest

from refbias.answers import Pair
from refbias.errors import RefbiasError, UsageError
from refbias.judges.profanity import about, alt_profanity

PAIRS = [Pair("", text) for text in ("The train leaves at noon.", "Damn, the train is late.", " ", "Tea is served.")]


@pytest.fixture
def package():
    return pytest.importorskip("profanity_check", reason="needs the package alt-profanity-check")


def test_verdicts_follow_the_package(package):
    theirs = package.predict_prob([pair.text for pair in PAIRS if pair.text.strip()])
    found = alt_profanity(PAIRS)
    assert [v.value for v in found] == [0, 1, None, 0]
    assert [v.label for v in found] == ["not_profane", "profane", "empty", "not_profane"]
    assert [float(v.detail) for v in found if v.detail] == pytest.approx(list(theirs), abs=1e-6)


def test_the_threshold_decides(package):
    probabilities = [float(v.detail) for v in alt_profanity(PAIRS) if v.detail]
    for threshold in (0.0, 0.3, 0.7, 1.0):
        found = [v.value for v in alt_profanity(PAIRS, threshold=threshold) if v.detail]
        assert found == [int(p >= threshold) for p in probabilities]
    assert alt_profanity([]) == []
    assert alt_profanity([Pair("", "")])[0].value is None
    assert about()["version"]


def test_a_threshold_is_a_probability():
    with pytest.raises(UsageError, match=r"judge.threshold=1.5"):
        alt_profanity([], threshold=1.5)


def test_without_the_package_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "profanity_check", None)
    with pytest.raises(RefbiasError, match=r"pip install 'refbias\[profanity\]'"):
        alt_profanity(PAIRS)
