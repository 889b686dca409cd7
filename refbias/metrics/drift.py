"""Metrics of two spaces: how far a group moved, without a direction."""

from __future__ import annotations

from typing import Literal

from refbias import linalg
from refbias.types import Space


def cka_drift(
    reference: Space, audited: Space, *, kernel: Literal["linear", "rbf"] = "linear", debiased: bool = True
) -> dict[str, float]:
    """1 − CKA between the reference's and the audited model's targets, for each group: 0 no drift, undirected."""
    return {
        group: 1.0 - linalg.cka(rows, audited.targets[group], kernel, debiased)
        for group, rows in reference.targets.items()
    }
