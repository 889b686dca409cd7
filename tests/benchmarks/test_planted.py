from pathlib import Path

import pytest

from refbias.benchmarks import CannotScore, planted
from refbias.checkpoints import Checkpoint
from refbias.context import Context
from refbias.models import find_model

TRUTH = {"Women": 0.3, "Men": -0.3, "Jews": 0.0}


def test_the_score_is_the_signed_dose(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    score = planted().score(Checkpoint("one", model, 1.0, TRUTH), ["Women", "Men", "Jews", "Owls"], context)
    assert score == {"Women": 0.3, "Men": -0.3, "Jews": None, "Owls": None}


def test_the_reference_has_dose_nought(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    assert planted().score(Checkpoint("reference", model, untouched=True), ["Women"], context) == {"Women": 0.0}


def test_a_model_of_which_no_change_is_known(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    with pytest.raises(CannotScore, match=r"needs checkpoints whose change is known.*checkpoints=edited"):
        planted().score(Checkpoint("somebody's", model), ["Women"], context)
