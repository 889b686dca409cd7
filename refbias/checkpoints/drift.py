"""Adapter-space drift: how much an adapter changes where, and how two adapters' spaces lie to each other."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from refbias.adapters import ThinSVD, overlap, principal_angles, thin_svd
from refbias.cache import Cache, open_cache
from refbias.checkpoints.base import Checkpoint, Series
from refbias.checkpoints.directions import base_of, factors_of, place
from refbias.context import Context
from refbias.devices import resolve_device, resolve_dtype
from refbias.errors import UsageError
from refbias.models import Model, find_model
from refbias.provenance import provenance
from refbias.registry import registry
from refbias.result import Tables, task_data
from refbias.tracking import slugs_of
from refbias.watch import Quiet, Watch

SHOWN = 4  # singular values in a row
TABLES = ("adapter_drift", "adapter_angles")


def adapter_drift(
    reference: Any,
    audited: Any = None,
    *,
    checkpoints: Any = None,
    device: str | None = None,
    dtype: str | None = None,
    cache: bool | str | Path | Cache = True,
    seed: int = 0,
    watch: Watch | None = None,
    command: str | None = None,
) -> Tables:
    """What adapters change, weight by weight, from their factors alone; exploratory.

    Parameters
    ----------
    reference : the model that the adapters are meant for
    audited : LoRA adapter folders, one or a list; or None, with ``checkpoints``
    checkpoints : a registered series, by name or (name, {options}), whose checkpoints are merges of LoRA adapters
    device, dtype, cache, seed : as of `refbias.audit`

    Returns
    -------
    Tables: ``adapter_drift``, a row a checkpoint and changed weight: its place, ‖ΔW‖_F and its share of ‖W‖_F, rank,
    stable rank, largest singular values; ``adapter_angles``, a row a weight that the first and the last checkpoint
    both change: principal angles in degrees between their output and their input spaces

    Raises
    ------
    UsageError where nothing is named, RefbiasError for a checkpoint that is no LoRA adapter nor a merge of some
    """
    check(audited, checkpoints)
    watch, store, where = watch or Quiet(), open_cache(cache), resolve_device(device)
    context = Context(store, where, resolve_dtype(dtype, where), seed, watch)
    model = find_model(reference, cache=store, watch=watch)
    series = _series(model, audited, checkpoints, context)
    begun = time.perf_counter()
    rows: list[dict[str, Any]] = []
    norms: dict[str, dict[str, float]] = {}
    kept: list[tuple[str, dict[str, ThinSVD]]] = []  # the first and the last
    notes = []
    with watch.progress("adapters", len(series.checkpoints)) as advance:
        for checkpoint in series.checkpoints:
            if checkpoint.model.fingerprint != model.fingerprint:  # else it changes nothing
                base = base_of(checkpoint.model)
                if base.fingerprint != model.fingerprint:
                    notes.append(
                        f"{checkpoint.name} belongs to {base.name}, which is not the reference {model.name}: "
                        f"its norms are relative to {base.name}."
                    )
                factors = factors_of(checkpoint.model, store)
                known = norms.setdefault(base.fingerprint, {})
                known |= weight_norms(base, factors.keys() - known.keys(), context)
                changes = {weight: thin_svd(*pair) for weight, pair in factors.items()}
                rows += drift_rows(checkpoint, changes, known)
                kept = [*kept[:1], (checkpoint.name, changes)]
            advance(1)
    angles = angle_rows(*kept) if len(kept) == 2 else []
    data = task_data(
        "adapter_drift",
        {"reference": model.name, "audited": audited, **_named(checkpoints), "device": where, "dtype": context.dtype},
        seed,
        reference={
            "name": model.name,
            "fingerprint": model.fingerprint,
            "layers": model.layers,
            "dim": model.dim,
            "dtype": context.dtype,
            "device": where,
        },
        adapter_drift=rows,
        adapter_angles=angles,
        notes=notes,
        figures=_figures(rows, angles),
        conventions={
            "block": "counted from 0; block k makes hidden state k + 1",
            "stable_rank": "squared Frobenius norm over squared largest singular value",
            "angles": "principal angles in degrees; output: column space of the change, input: row space",
            "overlap": "mean squared cosine of the principal angles; by chance max(rank) / width",
        },
        stand_ins=[],
        timings={"score_s": time.perf_counter() - begun},
        provenance=provenance({}, command),
    )
    for note in notes:
        watch.say(note)
    return Tables(data, TABLES, _draw)


def check(audited: Any, checkpoints: Any) -> None:
    """Raise `UsageError` unless exactly one of the two is given."""
    if (audited is None) == (checkpoints is None):
        raise UsageError("Adapter drift needs either audited adapters or a series of checkpoints: give exactly one.")


def _series(reference: Model, audited: Any, checkpoints: Any, context: Context) -> Series:
    if checkpoints is not None:
        made: Series = registry().resolve("checkpoints", checkpoints, context.seed).object(reference, context)
        return made
    models = [
        find_model(one, cache=context.cache, watch=context.watch)
        for one in (audited if isinstance(audited, list) else [audited])
    ]
    if not models:
        raise UsageError("audited=[] names no adapter. Give one adapter folder or a list of them.")
    return Series([Checkpoint(model.name, model) for model in models])


def _named(checkpoints: Any) -> dict[str, Any]:
    if checkpoints is None:
        return {}
    name, options = checkpoints if isinstance(checkpoints, tuple) else (checkpoints, {})
    return {"checkpoints": name, **{f"checkpoints.{key}": value for key, value in options.items()}}


def weight_norms(base: Model, weights: Collection[str], context: Context) -> dict[str, float]:
    """‖W‖_F of some weights of ``base``, in float64."""
    if not weights:
        return {}
    with base.open(context.device, context.dtype) as loaded:
        parameters = dict(loaded.whole.named_parameters(remove_duplicate=False))
        return {name: float(parameters[name].detach().double().norm()) for name in weights if name in parameters}


def drift_rows(
    checkpoint: Checkpoint, changes: Mapping[str, ThinSVD], norms: Mapping[str, float]
) -> list[dict[str, Any]]:
    """One row for each changed weight, in the order of blocks and modules."""
    rows = []
    for weight, change in changes.items():
        values = {f"sigma_{i + 1}": float(value) for i, value in enumerate(change.values[:SHOWN])}
        rows.append(
            {
                "checkpoint": checkpoint.name,
                "ratio": checkpoint.ratio,
                **_where(weight),
                "rank": change.rank,
                "norm": change.norm,
                "weight_norm": norms.get(weight),
                "relative_norm": change.norm / norms[weight] if norms.get(weight) else None,
                "stable_rank": change.stable_rank,
                **values,
            }
        )
    return sorted(rows, key=lambda row: (row["block"] is None, row["block"] or 0))


Named = tuple[str, Mapping[str, ThinSVD]]


def angle_rows(first: Named, second: Named) -> list[dict[str, Any]]:
    """One row for each weight that both change: angles and overlaps of the output and of the input spaces."""
    rows = []
    for weight, one in first[1].items():
        other = second[1].get(weight)
        if other is None or not one.rank or not other.rank:
            continue
        sides = {"output": (one.left, other.left), "input": (one.right.T, other.right.T)}
        row: dict[str, Any] = {"first": first[0], "second": second[0], **_where(weight)}
        for side, (A, B) in sides.items():
            angles = np.degrees(principal_angles(A, B))
            row |= {
                f"{side}_smallest": float(angles[0]),
                f"{side}_mean": float(angles.mean()),
                f"{side}_largest": float(angles[-1]),
                f"{side}_overlap": overlap(A, B),
                f"{side}_overlap_by_chance": max(one.rank, other.rank) / len(A),
            }
        rows.append(row)
    return sorted(rows, key=lambda row: (row["block"] is None, row["block"] or 0))


def _where(weight: str) -> dict[str, Any]:
    here = place(weight)
    return {"block": here.block if here else None, "module": here.module if here else weight.removesuffix(".weight")}


def _figures(rows: Sequence[Mapping[str, Any]], angles: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The change of all weights of a checkpoint together, and the mean overlaps."""
    figures: dict[str, float | None] = {}
    for name, slug in slugs_of(dict.fromkeys(row["checkpoint"] for row in rows)).items():
        own = [row for row in rows if row["checkpoint"] == name and row["weight_norm"]]
        whole = sum(row["weight_norm"] ** 2 for row in own)
        figures[f"relative_norm/{slug}"] = (sum(row["norm"] ** 2 for row in own) / whole) ** 0.5 if whole else None
    for side in ("output", "input") if angles else ():
        for key in (f"{side}_overlap", f"{side}_overlap_by_chance"):
            figures[key] = float(np.mean([row[key] for row in angles]))
    return figures


def _draw(data: Mapping[str, Any]) -> Mapping[str, Any]:
    from refbias.report.adapter_figures import adapter_figures

    return adapter_figures(data)
