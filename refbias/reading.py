"""Reading the content of result.json: where its tables stand, whatever the number of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Data = Mapping[str, Any]


def layers_of(data: Data) -> Iterator[tuple[int, list[Any]]]:
    """Each layer with its checkpoints; one layer for most runs."""
    for block in data.get("layers", [data]):
        yield block["layer"], block["checkpoints"]


def several_layers(data: Data) -> bool:
    return "layers" in data


def benchmarks_of(data: Data) -> Iterator[tuple[int, Data]]:
    """Each layer with its block ``benchmark``."""
    for block in data.get("layers", [data]):
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
