"""Where a fine-tune goes on after a kill: weights, optimizer and random numbers as safetensors, the rest as JSON.

`transformers.Trainer` pickles its optimizer and its random numbers, and reading a pickle can run code. So it is told to
save nothing; these folders hold what it needs to resume (weights, trainer_state.json), and what it does not find in
them is put back by `restore` and `restore_random_numbers`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refbias.errors import RefbiasError, described
from refbias.models.files import read_json

_BEGUN = "checkpoint.part"  # being written: worth nothing
_LOOP, _OPTIMIZER, _RANDOM = "loop.json", "optimizer.safetensors", "random.safetensors"
_ENDINGS = (".safetensors", ".json")


@dataclass(frozen=True)
class Training:
    """What a checkpoint is taken of, and what it is put back into."""

    model: Any
    optimizer: Any
    scheduler: Any


def save(work: Path, training: Training, state: Any, plan: Mapping[str, Any], seconds: float) -> None:
    """Write the checkpoint of step ``state.global_step`` into ``work``; it replaces the one before once it is whole."""
    from safetensors.torch import save_file

    folder = work / _BEGUN
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        save_weights(training.model, folder)
        save_file(_flat(training.optimizer.state_dict()["state"]), folder / _OPTIMIZER)
        save_file(_random_numbers(), folder / _RANDOM)
        state.save_to_json(str(folder / "trainer_state.json"))
        schedule = {k: v for k, v in training.scheduler.state_dict().items() if k != "lr_lambdas"}
        loop = {"plan": plan, "scheduler": schedule, "seconds": seconds}
        (folder / _LOOP).write_text(json.dumps(loop), encoding="utf-8")
        os.replace(folder, work / f"checkpoint-{state.global_step}")
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise RefbiasError(
            f"The checkpoint of step {state.global_step} cannot be written to {work}: {described(error)}. Free some "
            f"space and run the same command again: it goes on from the checkpoint before."
        ) from error
    for older in work.glob("checkpoint-*"):
        if older.name != f"checkpoint-{state.global_step}":
            shutil.rmtree(older, ignore_errors=True)


def save_weights(model: Any, folder: Path) -> None:
    """The model, or its adapter, as its library lays it out; equal weights give equal files."""
    if not hasattr(model, "peft_config"):
        model.save_pretrained(folder)
        return
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # a form to fill in
    path = folder / "adapter_config.json"
    config = read_json(path)
    config["target_modules"] = sorted(config["target_modules"])  # peft writes a set in any order
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def latest(work: Path) -> Path | None:
    """The newest whole checkpoint in ``work``; raises `RefbiasError` where it holds files that are not ours."""
    found = [path for path in work.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    if not found:
        return None
    folder = max(found, key=lambda path: int(path.name.removeprefix("checkpoint-")))
    foreign = sorted(path.name for path in folder.iterdir() if path.suffix not in _ENDINGS)
    if foreign:
        raise RefbiasError(
            f"{folder} holds {', '.join(foreign)}, which refbias has not written and does not read: a pickle can run "
            f"code. Take {foreign[0]} out, or remove {work} to begin anew."
        )
    return folder


def plan_of(folder: Path) -> dict[str, Any]:
    """The plan that a checkpoint was written under."""
    return dict(read_json(folder / _LOOP)["plan"])


def step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("checkpoint-"))


def restore(folder: Path, training: Training) -> float:
    """Put optimizer and learning rate back; returns the seconds of training so far."""
    from safetensors.torch import load_file

    loop = read_json(folder / _LOOP)
    state: dict[int, dict[str, Any]] = {}
    for key, value in load_file(folder / _OPTIMIZER).items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    groups = training.optimizer.state_dict()["param_groups"]
    training.optimizer.load_state_dict({"state": state, "param_groups": groups})
    training.scheduler.load_state_dict({**training.scheduler.state_dict(), **loop["scheduler"]})
    for group, rate in zip(training.optimizer.param_groups, training.scheduler.get_last_lr(), strict=True):
        group["lr"] = rate
    return float(loop["seconds"])


def restore_random_numbers(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file

    states = load_file(folder / _RANDOM)
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def _random_numbers() -> dict[str, Any]:
    import torch

    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _flat(state: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """The optimizer's tensors by number of the weight and name."""
    return {f"{index}.{name}": value for index, values in state.items() for name, value in values.items()}
