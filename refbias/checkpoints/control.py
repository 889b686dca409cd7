"""A matched control: a harmless fine-tune that is audited beside the suspect, for what any fine-tune does."""

from __future__ import annotations

from typing import Any

from refbias.checkpoints.audited import base_notes
from refbias.checkpoints.base import Checkpoint
from refbias.context import Context
from refbias.errors import UsageError
from refbias.models import Model, find_model
from refbias.models.hf import AdapterModel
from refbias.registry import Choice, registry

AUTO = "auto"
_SIZE = ("steps", "learning_rate", "batch", "rank", "first_block", "seed")


def matched_control(
    control: Any, reference: Model, series: Choice | None, context: Context
) -> tuple[Checkpoint, list[str]]:
    """The control model, and what a reader must know about how well it matches.

    ``control`` is a model as `refbias.models.find_model` takes it, or "auto": a harmless LoRA fine-tune of the
    reference made on this machine, with the size of ``series`` where that is ``checkpoints=planted``.
    """
    if control != AUTO:
        model = find_model(control, cache=context.cache, watch=context.watch)
        notes = (
            base_notes("the control is an adapter", model.base, reference) if isinstance(model, AdapterModel) else []
        )
        return Checkpoint(model.name, model), notes
    if not reference.causal:
        raise UsageError(
            f"control=auto fine-tunes a causal language model, and {reference.name} is none. Name a model that was "
            "fine-tuned on harmless data: control=MODEL."
        )
    planted = series is not None and series.name == "planted"
    size = {key: series.params[key] for key in _SIZE if key in series.params} if series and planted else {}
    choice = registry().resolve("checkpoints", ("planted", {**size, "kind": "harmless", "ratios": [1.0]}), context.seed)
    (checkpoint,) = choice.object(reference, context).checkpoints
    match = "the recipe, size and seed of the audited pair" if planted else (
        f"{choice.params['steps']} steps of LoRA of rank {choice.params['rank']} on the upper blocks, which is not "
        "matched to the audited model: name a control of the same size and format where there is one"
    )  # fmt: skip
    return Checkpoint("harmless", checkpoint.model), [f"the control was taught neutral statements: {match}"]
