"""The models that ``audited=`` names, as a series, and what must be said of adapters among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refbias.checkpoints.base import Checkpoint, Series
from refbias.context import Context
from refbias.errors import UsageError
from refbias.models import Model, find_model
from refbias.models.hf import AdapterModel


def audited_series(reference: Model, specs: Sequence[Any], context: Context) -> Series:
    """Each of ``specs`` as `refbias.models.find_model` takes it; an adapter is loaded on its own base.

    Where that is not the reference, the report and the console say so.
    """
    if not specs:
        raise UsageError("audited=[] names no model. Give one model or a list of them.")
    models = [find_model(spec, cache=context.cache, watch=context.watch) for spec in specs]
    notes = [
        note
        for model in models
        if isinstance(model, AdapterModel)
        for note in base_notes(f"{model.name} is an adapter", model.base, reference)
    ]
    say_notes(notes, context)
    names = distinct([model.name for model in models])
    checkpoints = [Checkpoint(name, model) for name, model in zip(names, models, strict=True)]
    return Series(checkpoints, {"notes": notes} if notes else {})


def base_notes(adapter: str, base: Model, reference: Model) -> list[str]:
    """What must be said where the base is not the reference; nothing where it is, whatever its path."""
    if base.fingerprint == reference.fingerprint:
        return []
    return [
        f"{adapter} of {base.name}, which is not the reference {reference.name}: shifts also hold what differs between "
        f"the two"
    ]


def say_notes(notes: Sequence[str], context: Context) -> None:
    for note in notes:
        context.watch.say(f"{note[0].upper()}{note[1:]}.")


def distinct(names: Sequence[str]) -> list[str]:
    """The names, numbered where one comes twice.

    >>> distinct(["a", "b", "a"])
    ['a (1)', 'b', 'a (2)']
    """
    return [n if names.count(n) == 1 else f"{n} ({names[: i + 1].count(n)})" for i, n in enumerate(names)]
