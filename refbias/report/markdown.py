"""Figures with their intervals as cells of a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def number(value: Any, form: str = ".2f") -> str:
    """A figure with a true minus sign; a dash where there is none.

    >>> number(-0.126), number(None), number(12), number("–")
    ('−0.13', '–', '12', '–')
    """
    if value is None or isinstance(value, str):
        return value or "–"
    return format(value, form).replace("-", "−") if isinstance(value, float) else str(value)


def ranged(row: Row, name: str, form: str = ".2f", bounds: tuple[float, float] | None = None) -> str:
    """A figure with its interval, ``NAME_low`` and ``NAME_high``, which is cut where the figure ends.

    >>> ranged({"auc": 0.9, "auc_low": 0.7, "auc_high": 1.1}, "auc", bounds=(0.0, 1.0))
    '0.90 [0.70, 1.00]'
    """
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    text = number(row.get(name), form)
    if low is None or high is None:
        return text
    if bounds:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return f"{text} [{number(low, form)}, {number(high, form)}]"


def ranged_share(row: Row, name: str) -> str:
    return ranged(row, name, bounds=(0.0, 1.0))


def ranged_correlation(row: Row, name: str) -> str:
    return ranged(row, name, "+.2f", (-1.0, 1.0))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return ["| " + " | ".join(header) + " |", "|---" * len(header) + "|", *("| " + " | ".join(r) + " |" for r in rows)]
