import numpy as np
import pytest
import refbias_energy
from refbias_energy import energy

from refbias import RefbiasError, Space
from refbias.registry import Registry


def space(seed: int = 0) -> Space:
    rng = np.random.default_rng(seed)
    return Space(
        {"near negative": rng.normal(size=(20, 4)) - 1, "near positive": rng.normal(size=(20, 4)) + 1},
        positive=rng.normal(size=(30, 4)) + 1,
        negative=rng.normal(size=(25, 4)) - 1,
    )


def test_worked_example():
    one = Space({"a": [[0.0]]}, positive=[[3.0]], negative=[[1.0]])
    assert energy(one) == {"a": pytest.approx(2 * 1 - 2 * 3)}
    assert energy(one, power=2.0) == {"a": pytest.approx(2 * 1 - 2 * 9)}


def test_lower_is_closer_to_the_negative_attributes():
    scores = energy(space())
    assert scores["near positive"] > 0
    assert scores["near negative"] < scores["near positive"]


def test_turns_when_the_attributes_are_swapped():
    given = space()
    swapped = Space(given.targets, given.negative, given.positive)
    assert energy(swapped)["near positive"] == pytest.approx(-energy(given)["near positive"])


def test_equals_the_definition():
    given = space()
    X, N, P = given.targets["near negative"], given.negative, given.positive

    def expected(A, B):
        def mean(C, D):
            return np.mean([np.linalg.norm(c - d) for c in C for d in D])

        return 2 * mean(A, B) - mean(A, A) - mean(B, B)

    assert energy(given)["near negative"] == pytest.approx(expected(X, N) - expected(X, P), abs=1e-8)


def test_power_out_of_range_is_refused():
    with pytest.raises(RefbiasError, match=r"metric.power=3.0"):
        energy(space(), power=3.0)


def test_it_registers_with_its_option_and_preset():
    parts = Registry()
    parts.add_plugin(refbias_energy, "refbias-energy")
    part = parts.get("metric", "energy")
    assert part.build({"power": 0.5})(space()) == energy(space(), power=0.5)
    (folder,) = refbias_energy.refbias_config_paths()
    assert (folder / "metric" / "energy_sqrt.yaml").is_file()
