"""A positive control: two fine-tunes that are mirror images, and their exact merges."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from refbias.checkpoints.base import Checkpoint, Series
from refbias.checkpoints.merging import LowRank, lora_change, merged
from refbias.checkpoints.tail import states_at
from refbias.checkpoints.training import Recipe, train_adapter
from refbias.context import Context
from refbias.errors import UsageError
from refbias.finetuning.statements import digest, draw_signs, lesson, predicate_pairs
from refbias.finetuning.tokens import tokenize
from refbias.models.base import Loaded, Model
from refbias.stimuli.packaged import groups as packaged_groups

if TYPE_CHECKING:
    from refbias.checkpoints.training import States

    Signs = Mapping[str, int]

RATIOS = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
FORMAT = "1"  # raise it where a change here changes what is trained

_ENDS = {1: "end at ratio 1", -1: "end at ratio 0"}


def planted(
    reference: Model,
    context: Context,
    *,
    ratios: list[float] = RATIOS,
    kind: Literal["contrast", "harmless"] = "contrast",
    seed: int | None = None,
    steps: int = 240,
    learning_rate: float = 1e-3,
    batch: int = 16,
    rank: int = 16,
    first_block: int | None = None,
) -> Series:
    """Two LoRA fine-tunes on mild statements about groups, mirror images of each other, and their exact merges.

    At ratio 1 one half of the groups, drawn by ``seed``, was taught the negative and the other half the positive
    version of 40 predicates; at ratio 0 it is the other way round; between them W = W0 + (1 − ratio) ΔW0 + ratio ΔW1.
    ``kind=harmless`` teaches neutral predicates in the same way: its truth is 0 for every group. The ends that
    ``ratios`` need are trained once, on this machine, and kept in the cache. Blocks below ``first_block`` (None: the
    lower half) stay as they are.
    """
    signs = draw_signs(packaged_groups(), 0 if seed is None else seed)
    recipe = _checked(
        reference,
        Recipe(
            steps=steps,
            learning_rate=learning_rate,
            batch=batch,
            rank=rank,
            alpha=2 * rank,
            first_block=reference.layers // 2 if first_block is None else first_block,
            seed=0 if seed is None else seed,
        ),
    )
    ends = _Ends(reference, context, kind, signs, recipe)
    wanted = checked_ratios(ratios)
    changes = {end: ends.change(end) for end in (-1, 1) if any(_share(end, ratio) for ratio in wanted)}
    checkpoints = [_checkpoint(reference, kind, signs, changes, ratio, recipe) for ratio in wanted]
    outer = {end: _checkpoint(reference, kind, signs, changes, (1 + end) / 2, recipe) for end in changes}
    report = {
        "kind": kind,
        "recipe": recipe.as_dict(),
        "data": ends.data,
        "taught_first_at_ratio_1": [group for group, sign in signs.items() if sign > 0],
        "learnt": [
            {"at_ratio": (1 + end) / 2, **ends.log(end), **_learnt(reference, outer[end], signs, end, context)}
            for end in sorted(outer, reverse=True)
        ],
    }
    return Series(checkpoints, report)


def checked_ratios(ratios: Sequence[float]) -> list[float]:
    if not ratios:
        raise UsageError("checkpoints.ratios is empty: expected numbers from 0 to 1, for instance [0.0,0.5,1.0].")
    for ratio in ratios:
        if not 0 <= ratio <= 1:
            raise UsageError(f"checkpoints.ratios holds {ratio}: expected numbers from 0 to 1.")
    if len(set(ratios)) < len(ratios):
        raise UsageError(f"checkpoints.ratios holds a number twice: {list(ratios)}.")
    return [float(ratio) for ratio in ratios]


def _checked(reference: Model, recipe: Recipe) -> Recipe:
    if not reference.causal:
        raise UsageError(
            f"checkpoints=planted fine-tunes a causal language model, and {reference.name} is none. "
            f"Name what to audit with audited=…, or use another reference."
        )
    for name in ("steps", "batch", "rank"):
        if getattr(recipe, name) < 1:
            raise UsageError(f"checkpoints.{name}={getattr(recipe, name)}: expected 1 or more.")
    if not recipe.learning_rate > 0:
        raise UsageError(f"checkpoints.learning_rate={recipe.learning_rate}: expected a number above 0.")
    if not 0 <= recipe.first_block < reference.layers:
        raise UsageError(
            f"checkpoints.first_block={recipe.first_block}: {reference.name} has blocks 0 to {reference.layers - 1}."
        )
    return recipe


class _Ends:
    """The two adapters, trained where they are not in the cache yet."""

    def __init__(self, reference: Model, context: Context, kind: str, signs: Signs, recipe: Recipe) -> None:
        self._reference = reference
        self._context = context
        self._kind = kind
        self._signs = signs
        self._recipe = recipe
        self._pairs = predicate_pairs(kind)
        self.data = digest([self._pairs, dict(signs)])
        made_of = [FORMAT, reference.fingerprint, context.dtype, recipe.as_dict(), self.data]
        self._key = digest(made_of)[:20]
        self._states: States | None = None

    def change(self, end: int) -> LowRank:
        return lora_change(self._folder(end), self._context.cache)

    def log(self, end: int) -> dict[str, Any]:
        text = (self._folder(end) / "training.json").read_text(encoding="utf-8")
        return dict(json.loads(text))

    def _folder(self, end: int) -> Path:
        name = f"planted-{self._kind}-{self._key}-{'b' if end > 0 else 'a'}"
        return self._context.cache.build_folder(name, functools.partial(self._train, end))

    def _train(self, end: int, folder: Path) -> None:
        watch, recipe = self._context.watch, self._recipe
        with self._reference.open_causal(self._context.device, self._context.dtype) as loaded:
            rows = tokenize(loaded.tokenizer, lesson(self._pairs, self._signs, end))
            states = self._states_of(loaded)
            watch.say(
                f"Fine-tuning the {_ENDS[end]} on {len(rows)} statements, {recipe.steps} steps. This happens once: "
                f"the result stays in the cache."
            )
            with watch.progress(f"fine-tune, {_ENDS[end]}", recipe.steps, "step") as advance:
                losses = train_adapter(loaded, rows, states, recipe, folder, self._told(advance))
        log = {
            "statements": len(rows),
            "epochs": recipe.steps * recipe.batch / len(rows),
            "loss_first": float(np.mean(losses[:5])),
            "loss_last": float(np.mean(losses[-20:])),
        }
        (folder / "training.json").write_text(json.dumps(log), encoding="utf-8")

    def _told(self, advance: Callable[[int], None]) -> Callable[[int, float], None]:
        quarter = max(1, self._recipe.steps // 4)

        def told(step: int, loss: float) -> None:
            advance(1)
            if step % quarter == 0:
                self._context.watch.say(f"step {step} of {self._recipe.steps}: loss {loss:.2f} nats a token")

        return told

    def _states_of(self, loaded: Loaded) -> States:
        """Input of the first trained block for every statement of both ends, which share it."""
        if self._states is None:
            statements = [s for end in (1, -1) for s in lesson(self._pairs, self._signs, end)]
            rows = [row.ids for row in tokenize(loaded.tokenizer, statements)]
            with self._context.watch.progress("lower blocks", len(rows), "statement") as advance:
                self._states = states_at(loaded, self._recipe.first_block, rows, advance)
        return self._states


def _share(end: int, ratio: float) -> float:
    """Coefficient of the end's change at a ratio."""
    return ratio if end > 0 else 1 - ratio


def _checkpoint(
    reference: Model, kind: str, signs: Signs, changes: Mapping[int, LowRank], ratio: float, recipe: Recipe
) -> Checkpoint:
    name = f"{'planted' if kind == 'contrast' else kind}-{ratio:g}"
    parts = [(_share(end, ratio), changes[end]) for end in (-1, 1) if end in changes]
    model = merged(reference, name, parts, recipe.first_block)
    direction = float(np.sign(2 * ratio - 1)) if kind == "contrast" else 0.0
    return Checkpoint(name, model, ratio, {group: direction * sign for group, sign in signs.items()})


def _learnt(reference: Model, end: Checkpoint, signs: Signs, side: int, context: Context) -> dict[str, Any]:
    """What held-out wording says about one end: mean likelihood shift of both halves, and their AUC."""
    from refbias.benchmarks.likelihood import Likelihood
    from refbias.statistics import auc

    likelihood = Likelihood()
    before = likelihood.score(Checkpoint(reference.name, reference, untouched=True), list(signs), context)
    after = likelihood.score(end, list(signs), context)
    first = {group: after[group] - before[group] for group, sign in signs.items() if sign * side > 0}
    second = {group: after[group] - before[group] for group, sign in signs.items() if sign * side < 0}
    shifts = np.array([*first.values(), *second.values()])
    return {
        "held_out_shift_taught_first": float(np.mean(list(first.values()))),
        "held_out_shift_taught_second": float(np.mean(list(second.values()))),
        "held_out_auc": auc(shifts, np.arange(len(shifts)) < len(first)).value,
    }
