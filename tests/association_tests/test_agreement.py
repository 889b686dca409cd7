"""Agreement with WEFE 1.0.1 on the same vectors. Expected figures: python tests/association_tests/wefe_reference.py"""

from __future__ import annotations

import pytest

from refbias.association_tests import ect, rnd, rnsb, weat

WEFE = {
    "W6": {
        "statistic": 2.3171433124225587,
        "effect_size": 1.7637851135361726,
        "rnd": -0.6707311272621155,
        "rnd_normalised": -0.1753748282790184,
        "rnd_cos": 0.22818050347268581,
        "ect": 0.8571428571428572,
        "rnsb": 0.11540553023976671,
    },
    "W7": {
        "statistic": 0.4682887918315828,
        "effect_size": 1.5441682235538026,
        "rnd": 0.7885668873786926,
        "rnd_normalised": 0.1297677904367447,
        "rnd_cos": -0.22301874123513699,
        "ect": 0.5952380952380953,
        "rnsb": 0.18638364187564635,
    },
    "W9": {
        "statistic": 0.5851961263854589,
        "effect_size": 1.167817601461057,
        "rnd": -1.2706862858363561,
        "rnd_normalised": -0.1382588062967573,
        "rnd_cos": 0.10983154603413173,
        "ect": 0.42857142857142866,
        "rnsb": 0.049787406452529596,
    },
}


@pytest.mark.parametrize("test", sorted(WEFE))
def test_each_shared_metric(glove, test):
    X, Y, A, B = glove.sets(test, "wefe")
    expected = WEFE[test]
    found = weat(X, Y, A, B, ddof=0)  # WEFE: ddof 0; its p draws words with replacement and has no counterpart here
    assert found.effect_size == pytest.approx(expected["effect_size"], abs=1e-6)
    assert found.statistic == pytest.approx(expected["statistic"], abs=1e-6)
    assert rnd(X, Y, A, normalise=False).value == pytest.approx(expected["rnd"], abs=1e-6)
    assert rnd(X, Y, A).value == pytest.approx(expected["rnd_normalised"], abs=1e-6)
    assert rnd(X, Y, A, distance="cos", normalise=False).value == pytest.approx(expected["rnd_cos"], abs=1e-6)
    assert ect(X, Y, A).value == pytest.approx(expected["ect"], abs=1e-12)
    assert rnsb([X, Y], A, B).value == pytest.approx(expected["rnsb"], rel=1e-3)  # WEFE trains in float32
