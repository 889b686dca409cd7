"""Fine-tuning of a causal language model, LoRA or full: from names to a folder that an audit can read."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
import os
import random
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from refbias.cache import Cache, open_cache
from refbias.devices import resolve_device, resolve_dtype
from refbias.errors import RefbiasError, UsageError, described
from refbias.finetuning import checkpoint
from refbias.finetuning.base import Lessons, Regime
from refbias.finetuning.batches import schedule
from refbias.finetuning.masks import Encoded, encode
from refbias.finetuning.modules import chosen_modules, depth, shortest_names
from refbias.finetuning.trainer import CLIP, Row, Session, train
from refbias.finetuning.workplace import check_out, clear, publish, workplace
from refbias.models.base import Loaded, Model
from refbias.models.files import RECIPE
from refbias.models.find import find_model
from refbias.models.hf import quiet
from refbias.provenance import version
from refbias.registry import registry
from refbias.watch import Quiet, Watch

FORMAT = 1  # of a checkpoint and its plan

_FIRST, _LAST = 5, 20  # steps over which the first and the last loss are averaged


@dataclass(frozen=True)
class Finetuned:
    """A finished fine-tune.

    Attributes
    ----------
    folder : an adapter folder (LoRA) or a model folder (full)
    losses : a row a step: step, epoch, loss in nats a token, learning_rate, grad_norm
    figures : loss_first and loss_last (means over 5 and 20 steps), steps, examples, tokens, seconds …
    about : what stands in its refbias.json
    """

    folder: Path
    losses: list[Row]
    figures: dict[str, float]
    about: dict[str, Any]


def finetune(
    reference: Any,
    lessons: Any,
    regime: Any,
    out: str | Path,
    *,
    seed: int = 0,
    device: str | None = None,
    overwrite: bool = False,
    save_every: float = 60.0,
    callbacks: Sequence[Any] = (),
    cache: bool | str | Path | Cache = True,
    watch: Watch | None = None,
) -> Finetuned:
    """Fine-tune ``reference`` on ``lessons`` and write the result to the folder ``out``.

    A fine-tune that was stopped goes on from its last checkpoint when it is called again in the same way: on a CPU to
    the very weights that it would have reached. Until the end all is kept in the folder ``out``.unfinished.

    Parameters
    ----------
    reference : a causal language model: registered name, hub id, folder, GGUF file; for a full fine-tune an adapter too
    lessons, regime : a registered name, (name, {options}), or a `Lessons` and a `Regime`
    out : the folder to write; one that is there is refused, unless ``overwrite`` is true and refbias has written it
    seed : of the adapter's first weights, of dropout and of the order of the examples
    device : None chooses by the hardware
    save_every : seconds between two checkpoints
    callbacks : `transformers.TrainerCallback` objects for the Trainer; what they remember is not kept over a kill
    cache : as in `refbias.audit`
    watch : told about progress

    Raises
    ------
    UsageError for values that have no meaning, RefbiasError for models and data that do not fit
    """
    store, watch = open_cache(cache), watch or Quiet()
    out = Path(out).expanduser().absolute()
    check_out(out, overwrite)
    check_machine(device)
    recipe: Regime = registry().resolve("regime", regime).object
    model = find_model(reference, cache=store, watch=watch)
    check_model(model, recipe)
    taught: Lessons = registry().resolve("data", lessons, seed).object
    place = resolve_device(device)
    recipe = replace(recipe, precision=_precision(recipe, place))
    run = _Run(model, taught, recipe, seed, place, save_every, callbacks, watch)
    with workplace(out) as work:
        return run.go(work, out, overwrite)


def check_machine(device: str | None) -> None:
    """Raise `UsageError` for what one process on one device cannot do."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("A fine-tune runs in one process on one device: start it without torchrun or accelerate.")
    if device is not None and re.fullmatch(r"cuda:[1-9]\d*", device):
        number = device.removeprefix("cuda:")
        raise UsageError(
            f"device={device}: a fine-tune takes the first GPU. Set CUDA_VISIBLE_DEVICES={number} instead."
        )


def check_model(model: Model, regime: Regime) -> None:
    """Raise `UsageError` where the model cannot be fine-tuned in this way."""
    if not model.causal:
        raise UsageError(f"A fine-tune needs a causal language model, and {model.name} is none.")
    if model.kind == "adapter" and regime.kind == "lora":
        raise UsageError(
            f"{model.name} is an adapter, and a second adapter would have no folder as its base. Merge it into a model "
            f"folder first, or use regime=full."
        )
    if model.kind not in ("hf", "adapter"):
        raise UsageError(f"A fine-tune reads its model from files, and {model.name} is {model.kind}. Save it first.")
    if regime.first_block >= model.layers:
        raise UsageError(f"regime.first_block={regime.first_block}: {model.name} has blocks 0 to {model.layers - 1}.")


def base_name(model: Model) -> str:
    """What an adapter's configuration calls its base: a registered name, a hub id, or the full path of a folder.

    With a name or an id the adapter is found on every machine that has the model, with a path on this one only.
    """
    path = Path(model.name).expanduser()
    return str(path.resolve()) if path.exists() and model.name not in registry().parts("model") else model.name


def _precision(regime: Regime, device: str) -> Literal["bf16", "fp32"]:
    if regime.precision != "auto":
        return regime.precision
    return "bf16" if resolve_dtype(None, device) == "bfloat16" else "fp32"


@dataclass(frozen=True)
class _Run:
    """One fine-tune with everything that was decided about it."""

    model: Model
    lessons: Lessons
    regime: Regime
    seed: int
    device: str
    save_every: float
    callbacks: Sequence[Any]
    watch: Watch

    def go(self, work: Path, out: Path, overwrite: bool) -> Finetuned:
        plan = self._plan()
        begun = _begun(work, plan, overwrite)
        with _own_random_numbers(self.seed), _calm():
            loaded = self.model._load(self.device, self._dtype())
            encoded = encode(loaded.tokenizer, self.lessons, self._longest(loaded))
            for sentence in _remarks(encoded, len(self.lessons.examples)):
                self.watch.say(sentence)
            batches = self._batches(encoded)
            modules = self._choose(loaded)
            names = list(dict.fromkeys(name.rpartition(".")[2] for name in modules))
            if modules and set(names) != set(self.regime.modules):
                self.watch.say(f"Adapters stand on every linear module of a block: {', '.join(names)}.")
            trained = self._adapted(loaded, modules) if modules else loaded.causal
            losses, seconds = self._train(loaded, trained, encoded, batches, work, begun, plan)
            figures = self._figures(encoded, batches, losses, trained)
            about = self._about(encoded, names, figures)
            _write(work / "whole", loaded, trained, about)
        publish(work / "whole", out, work)
        return Finetuned(out, losses, {**figures, "seconds": seconds}, about)

    def _plan(self) -> dict[str, Any]:
        """What a run must have in common with the one that it continues."""
        plan = {
            "format": FORMAT,
            "model": self.model.fingerprint,
            "data": {"name": self.lessons.name, "digest": self.lessons.digest},
            "regime": self.regime.as_dict(),
            "seed": self.seed,
        }
        return dict(json.loads(json.dumps(plan)))

    def _dtype(self) -> str:
        """Weights that are trained stay in float32; those below adapters need not."""
        return "bfloat16" if self.regime.kind == "lora" and self.regime.precision == "bf16" else "float32"

    def _longest(self, loaded: Loaded) -> int:
        own = getattr(loaded.model.config, "max_position_embeddings", None)
        return min(self.regime.max_length, own) if isinstance(own, int) else self.regime.max_length

    def _batches(self, encoded: Encoded) -> list[list[int]]:
        """Those of all steps in one list: an epoch may end within a step."""
        regime = self.regime
        order = schedule([len(row.ids) for row in encoded.rows], regime.batch, np.random.default_rng(self.seed))
        if regime.max_steps is not None:
            return list(itertools.islice(order, regime.max_steps * regime.accumulation))
        return list(itertools.islice(order, math.ceil(regime.epochs * math.ceil(len(encoded.rows) / regime.batch))))

    def _choose(self, loaded: Loaded) -> dict[str, bool]:
        """Mark what is trained in full; or the linear modules that get an adapter."""
        from refbias.encoders.hf import find_blocks

        if self.regime.gradient_checkpointing:
            newer = getattr(loaded.causal, "activation_checkpointing_enable", None)
            (newer or loaded.causal.gradient_checkpointing_enable)({"use_reentrant": False})
        if self.regime.kind == "lora":
            return chosen_modules(loaded, self.regime.modules, self.regime.first_block)
        parts = [loaded.model, loaded.causal.get_output_embeddings()]
        if self.regime.first_block:
            parts = find_blocks(loaded.model, depth(loaded))[self.regime.first_block :]
        for part in parts:
            part.requires_grad_(True)
        return {}

    def _adapted(self, loaded: Loaded, modules: Mapping[str, bool]) -> Any:
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(
            r=self.regime.rank,
            lora_alpha=self.regime.alpha,
            lora_dropout=self.regime.dropout,
            target_modules=shortest_names(loaded, modules),
            fan_in_fan_out=any(modules.values()),
            task_type="CAUSAL_LM",
        )
        adapted = get_peft_model(loaded.causal, config)
        adapted.peft_config["default"].base_model_name_or_path = base_name(self.model)
        return adapted

    def _train(
        self,
        loaded: Loaded,
        trained: Any,
        encoded: Encoded,
        batches: Sequence[list[int]],
        work: Path,
        begun: Path | None,
        plan: Mapping[str, Any],
    ) -> tuple[list[Row], float]:
        steps = math.ceil(len(batches) / self.regime.accumulation)
        done = checkpoint.step_of(begun) if begun else 0
        if begun:
            self.watch.say(f"Going on from step {done} of {steps}, which {work} holds.")
        recent: list[float] = []
        with self.watch.progress(f"fine-tune {self.model.name}", steps - done, "step") as advance:

            def told(step: int, loss: float) -> None:
                advance(1)
                recent.append(loss)
                if step % max(1, steps // 10) == 0:
                    self.watch.say(f"step {step} of {steps}: loss {np.mean(recent):.3f} nats a token")
                    recent.clear()

            session = Session(
                work, plan, begun, self.seed, self.device, self.save_every, loaded.tokenizer, self.callbacks, told
            )
            kept = copy.deepcopy((loaded.causal.config, loaded.causal.generation_config))  # the Trainer changes both
            found = train(trained, encoded.rows, batches, self.regime, session)
            loaded.causal.config, loaded.causal.generation_config = kept
        return found

    def _figures(
        self, encoded: Encoded, batches: Sequence[list[int]], losses: Sequence[Row], trained: Any
    ) -> dict[str, float]:
        seen = [encoded.rows[i] for batch in batches[: len(losses) * self.regime.accumulation] for i in batch]
        curve = [row["loss"] for row in losses]
        return {
            "loss_first": float(np.mean(curve[:_FIRST])),
            "loss_last": float(np.mean(curve[-_LAST:])),
            "steps": len(losses),
            "epochs": len(seen) / len(encoded.rows),
            "examples": len(encoded.rows),
            "tokens": sum(len(row.ids) for row in seen),
            "tokens_taught": sum(sum(row.mask[1:]) for row in seen),
            "weights_trained": sum(p.numel() for p in trained.parameters() if p.requires_grad),
        }

    def _about(self, encoded: Encoded, modules: Sequence[str], figures: Mapping[str, float]) -> dict[str, Any]:
        """The content of refbias.json: the same for the same fine-tune, so no times."""
        recipe = self.regime.as_dict() | ({"modules": list(modules)} if modules else {})
        model, lessons = self.model, self.lessons
        return {
            "task": "finetune",
            "form": "adapter" if modules else "model",
            "parent": {
                "name": model.name,
                "kind": model.kind,
                "digest": model.fingerprint,
                "notes": list(model.notes),
            },
            "recipe": {**recipe, "optimizer": "AdamW", "gradient_clipping": CLIP},
            "seed": self.seed,
            "data": {
                "name": lessons.name,
                "digest": lessons.digest,
                "cut": encoded.cut,
                "left_out": encoded.left_out,
                "report": dict(lessons.report),
            },
            "figures": dict(figures),
            **{package: version(package) for package in ("refbias", "torch", "transformers", "peft")},
        }


def _begun(work: Path, plan: Mapping[str, Any], overwrite: bool) -> Path | None:
    """The checkpoint to go on from; None to begin."""
    found = checkpoint.latest(work)
    differing = list(_differences(checkpoint.plan_of(found), plan)) if found else []
    if differing and not overwrite:
        raise UsageError(
            f"{work} holds a fine-tune that was begun differently: {'; '.join(differing)}. Finish it with the settings "
            f"that it has, name another task.out, or begin anew with task.overwrite=true."
        )
    if differing or not found:
        clear(work)
        return None
    return found


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every value in which two plans differ, as in: regime.rank was 8 and is 16."""
    for key in {**before, **now}:
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            shown = [
                f"{value[:12]}…" if isinstance(value, str) and len(value) > 40 else str(value) for value in (old, new)
            ]
            yield f"{prefix}{key} was {shown[0]} and is {shown[1]}"


def _remarks(encoded: Encoded, given: int) -> Iterator[str]:
    if encoded.cut:
        yield (
            f"{encoded.cut} of {given} examples are too long and are cut; {encoded.left_out} of them have nothing left "
            f"to teach and are left out."
        )


def _write(folder: Path, loaded: Loaded, trained: Any, about: Mapping[str, Any]) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        checkpoint.save_weights(trained, folder)
        if about["form"] == "model":
            loaded.tokenizer.save_pretrained(folder)
        text = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
        (folder / RECIPE).write_text(text, encoding="utf-8")
    except Exception as error:
        raise RefbiasError(
            f"The result cannot be written to {folder}: {described(error)}. Free some space and run the same command "
            f"again: it goes on from the last checkpoint."
        ) from error


@contextlib.contextmanager
def _own_random_numbers(seed: int) -> Iterator[None]:
    """Meanwhile all generators begin at ``seed``; afterwards they are where they were."""
    import torch

    plain, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002 (the Trainer seeds them)
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(arrays)  # noqa: NPY002


@contextlib.contextmanager
def _calm() -> Iterator[None]:
    """No notes and warnings of transformers and peft."""
    with quiet(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(accelerate|peft|torch|transformers)\b")
        yield
