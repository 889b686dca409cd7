"""``task=merge``: the merge of two checkpoints, written as a folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from refbias.errors import UsageError

if TYPE_CHECKING:
    from refbias.result import Tables
    from refbias.tasks.run import Run

PARTS = ()
VALUES = ("device", "dtype", "seed")


def merge(
    run: Run,
    *,
    start: str,
    end: str,
    ratio: float,
    out: Path,
    form: Literal["dense", "adapter"] = "dense",
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
) -> Tables:
    """Write (1 − ratio) · start + ratio · end to the folder out.

    ``start`` and ``end`` are folders of full models or of adapters of one base, or names of such. ``form=dense`` writes
    a model that transformers loads as it is; ``form=adapter``, for two plain LoRA adapters, one adapter of the rank of
    both together. ``dtype`` of what is written: auto is that of the ends (of the base, for adapters).
    """
    from refbias.checkpoints.audited import say_notes
    from refbias.checkpoints.ends import find_ends
    from refbias.checkpoints.writing import write
    from refbias.context import Context
    from refbias.devices import resolve_device, resolve_dtype
    from refbias.provenance import provenance
    from refbias.result import Tables, task_data

    out = Path(out).expanduser()
    _check_ratio(ratio)
    device = resolve_device(run.settings["device"])
    context = Context(run.cache(), device, resolve_dtype(run.settings["dtype"], device), watch=run.watch)
    begun = time.perf_counter()
    ends = find_ends(start, end, context)
    say_notes(ends.notes, context)
    read = time.perf_counter()
    written = write(ends, ratio, out, form, dtype, run.watch)
    seconds = time.perf_counter() - read
    gib = written.size / 2**30
    row = {
        "start": ends.start.name,
        "end": ends.end.name,
        "ratio": ratio,
        "form": form,
        "dtype": dtype,
        "merged": "changes of the base added up" if ends.linear else "weights interpolated",
        "tensors": written.tensors,
        "gib": gib,
        "seconds": seconds if written.fresh else None,
        "fresh": written.fresh,
        "start_fingerprint": ends.start.fingerprint,
        "end_fingerprint": ends.end.fingerprint,
        "base_fingerprint": ends.base.fingerprint if ends.base else None,
        "out": str(out.resolve()),
    }
    size = f"{written.size / 2**20:,.0f} MiB in {written.tensors} tensors"
    run.watch.say(f"Written to {out}: {size}." if written.fresh else f"{out} holds this merge already: {size}.")
    return Tables(
        task_data(
            "merge",
            run.flat(("task",), VALUES),
            run.settings["seed"],
            merges=[row],
            notes=list(ends.notes),
            figures={"ratio": ratio, "gib": gib, "seconds": seconds if written.fresh else None},
            conventions={"formed": "in float64, each weight rounded once"},
            stand_ins=[],
            timings={"load_s": read - begun, "merge_s": seconds},
            provenance=provenance({"start": ends.start.fingerprint, "end": ends.end.fingerprint}, run.command),
        ),
        ("merges",),
    )


def check(run: Run) -> None:
    """Raise `UsageError` for a ratio outside of [0, 1], before anything is loaded."""
    _, options = run.part("task") or ("", {})
    _check_ratio(options["ratio"])


def _check_ratio(ratio: float) -> None:
    if not 0 <= ratio <= 1:
        raise UsageError(f"task.ratio={ratio}: expected a number from 0 (the start) to 1 (the end).")
