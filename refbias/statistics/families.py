"""Several tests at once: what each of them is worth among the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjustment of a family of p-values; None stays None and does not count.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = [(p, i) for i, p in enumerate(p_values) if p is not None]
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, i) in enumerate(sorted(known)):
        running = max(running, min(1.0, p * (len(known) - rank)))
        adjusted[i] = running
    return adjusted


def holm_family(family: str, p_values: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Holm's adjustment inside one family that has a name: a row a test, so that a table says what was counted.

    Examples
    --------
    >>> holm_family("methods", {"seat": 0.01, "cka": 0.2})[0]
    {'family': 'methods', 'tests': 2, 'test': 'seat', 'p_value': 0.01, 'p_adjusted': 0.02}
    """
    counted = sum(p is not None for p in p_values.values())
    adjusted = holm(list(p_values.values()))
    return [
        {"family": family, "tests": counted, "test": test, "p_value": p, "p_adjusted": q}
        for (test, p), q in zip(p_values.items(), adjusted, strict=True)
    ]
