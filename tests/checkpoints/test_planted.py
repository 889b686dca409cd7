import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from refbias.cache import Cache
from refbias.checkpoints import Series, planted
from refbias.context import Context
from refbias.errors import UsageError
from refbias.models import Model, find_model
from refbias.stimuli import GROUPS

pytestmark = pytest.mark.usefixtures("few_predicates")

SHORT: dict[str, Any] = {"steps": 6, "rank": 2, "batch": 4}


@pytest.fixture(scope="module")
def place(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Context]:
    cache = Cache(tmp_path_factory.mktemp("planted"))
    return find_model(tiny_llama, cache=cache), Context(cache)


@pytest.fixture(scope="module")
def series(place: tuple[Model, Context]) -> Series:
    return planted(*place, **SHORT)


def weights(model: Model) -> dict[str, torch.Tensor]:
    with model.open() as loaded:
        return {name: p.detach().clone() for name, p in loaded.whole.named_parameters()}


def test_seven_checkpoints_with_their_truth(series: Series) -> None:
    assert [c.ratio for c in series.checkpoints] == [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
    assert [c.name for c in series.checkpoints][:2] == ["planted-0", "planted-0.1"]
    truths = [c.truth for c in series.checkpoints]
    taught = {group for group in GROUPS if group in series.report["taught_first_at_ratio_1"]}
    assert len(taught) == 12
    assert truths[6] == {group: 1.0 if group in taught else -1.0 for group in GROUPS}
    assert truths[4] == truths[6]
    assert truths[0] == truths[2] == {group: -dose for group, dose in truths[6].items()}
    assert truths[3] == dict.fromkeys(GROUPS, 0.0)


def test_half_way_is_the_mean_of_the_ends(series: Series) -> None:
    low, half, high = (weights(series.checkpoints[i].model) for i in (0, 3, 6))
    changed = [name for name in half if not torch.equal(low[name], high[name])]
    assert {name.split(".")[2] for name in changed} == {"2", "3"}
    for name in changed:
        assert torch.allclose(half[name], (low[name] + high[name]) / 2, atol=1e-6)


def test_the_report_says_how_well_it_was_learnt(series: Series) -> None:
    assert series.report["recipe"]["steps"] == 6
    for end in series.report["learnt"]:
        assert end["statements"] == 4 * 24
        assert end["loss_last"] > 0
        assert 0 <= end["held_out_auc"] <= 1


def test_it_is_trained_once(series: Series, place: tuple[Model, Context], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("trained again")

    module = sys.modules["refbias.checkpoints.planted"]
    monkeypatch.setattr(module, "train_adapter", refuse)
    again = planted(*place, **SHORT, ratios=[0.3])
    assert again.checkpoints[0].model.fingerprint == series.checkpoints[2].model.fingerprint
    assert again.report["learnt"] == series.report["learnt"]
    with pytest.raises(AssertionError, match="trained again"):
        planted(*place, **SHORT, learning_rate=2e-3)


def test_the_harmless_twin_has_no_direction(place: tuple[Model, Context]) -> None:
    twin = planted(*place, **SHORT, kind="harmless", ratios=[0.0, 1.0])
    assert [c.name for c in twin.checkpoints] == ["harmless-0", "harmless-1"]
    assert [c.truth for c in twin.checkpoints] == [dict.fromkeys(GROUPS, 0.0)] * 2
    assert twin.checkpoints[0].model.fingerprint != twin.checkpoints[1].model.fingerprint


def test_a_model_that_scores_no_text_is_refused(tiny: dict[str, Path], context: Context) -> None:
    reference = find_model(tiny["bert"], cache=context.cache)
    with pytest.raises(UsageError, match=r"fine-tunes a causal language model, and .*bert is none"):
        planted(reference, context)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, r"checkpoints\.steps=0: expected 1 or more"),
        ({"rank": -1}, r"checkpoints\.rank=-1"),
        ({"learning_rate": 0.0}, r"checkpoints\.learning_rate=0\.0"),
        ({"first_block": 4}, r"checkpoints\.first_block=4: .* has blocks 0 to 3"),
        ({"ratios": [2.0]}, r"checkpoints\.ratios holds 2\.0"),
    ],
)
def test_wrong_options_are_found_before_training(
    options: dict[str, Any], message: str, place: tuple[Model, Context]
) -> None:
    with pytest.raises(UsageError, match=message):
        planted(*place, **{**SHORT, **options})


BUILD = """
import sys, torch
torch.set_num_threads(1)
import refbias.benchmarks.likelihood
from refbias.cache import Cache
from refbias.checkpoints import planted
from refbias.finetuning.statements import predicate_pairs
from refbias.finetuning.statements import predicate_pairs
from refbias.context import Context
from refbias.models import find_model
from refbias.watch import Quiet

class Loud(Quiet):
    def say(self, text):
        print(text, flush=True)

for module in ("refbias.checkpoints.planted", "refbias.benchmarks.likelihood"):
    sys.modules[module].predicate_pairs = lambda name: predicate_pairs(name)[:4]
cache = Cache(sys.argv[2])
reference = find_model(sys.argv[1], cache=cache)
series = planted(reference, Context(cache, watch=Loud()), rank=2, batch=4, steps=200)
print("built", series.checkpoints[-1].model.fingerprint, flush=True)
"""


def build(model: Path, cache: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", BUILD, str(model), str(cache)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.slow
def test_a_killed_build_begins_anew_and_two_at_once_train_once(tiny_llama: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    killed = build(tiny_llama, cache)
    assert killed.stdout is not None
    for line in killed.stdout:
        if line.startswith("step 50 of 200"):
            break
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    folders = [path.name for path in (cache / "folders").iterdir() if path.is_dir()]
    assert folders
    assert all(name.startswith(".making-") for name in folders)

    both = [build(tiny_llama, cache) for _ in range(2)]
    said = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(text.count("Fine-tuning") for text in said) == 2
    built = {text.splitlines()[-1] for text in said}
    assert len(built) == 1
    assert not [path for path in (cache / "folders").iterdir() if path.name.startswith(".making-")]
