"""Reading the content of result.json: where its tables stand, whatever the number of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Data = Mapping[str, Any]


def is_audit(data: Data) -> bool:
    """Whether the result has checkpoints with a shift of each group, as an audit has."""
    return "checkpoints" in data or "layers" in data


def layers_of(data: Data) -> Iterator[tuple[int, list[Any]]]:
    """Each layer with its checkpoints; one layer for most runs, none for a task that audits nothing."""
    for block in data.get("layers", [data] if is_audit(data) else []):
        yield block["layer"], block["checkpoints"]


SYMBOLS = {
    "delta_b": "ΔB",
    "delta_b_contrast": "ΔB contrast",
    "delta_b_did": "ΔB DiD",
    "seat": "SEAT shift",
    "cka_drift": "CKA drift",
}


def symbol(metric: str | None) -> str:
    """What a reader calls the shift of a metric."""
    return SYMBOLS.get(str(metric), "shift" if metric is None else f"{metric} shift")


def several_layers(data: Data) -> bool:
    return "layers" in data


def benchmarks_of(data: Data) -> Iterator[tuple[int, Data]]:
    """Each layer with its block ``benchmark``."""
    for block in data.get("layers", [data] if is_audit(data) else []):
        yield block["layer"], block["benchmark"]


def groups_of(data: Data) -> list[str]:
    """Every group of the result, in order."""
    rows = (row for _, checkpoints in layers_of(data) for c in checkpoints for row in c["groups"])
    return list(dict.fromkeys(str(row["group"]) for row in rows))


def beyond_doubt(row: Data) -> bool:
    """Is this shift below zero beyond doubt? p_adjusted < 0.05 and ci_high < 0."""
    p, high = row.get("p_adjusted"), row.get("ci_high")
    return p is not None and high is not None and p < 0.05 and high < 0


def below_zero(checkpoint: Data) -> list[str]:
    """Groups of a checkpoint that are below zero beyond doubt."""
    return [str(row["group"]) for row in checkpoint["groups"] if beyond_doubt(row)]
