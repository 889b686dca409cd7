"""Stand-ins: what a run used in place of what it was asked for.

A part that cannot reach its real data calls `stand_in`, says so, and goes on with something else. The run that
is under way collects the notes for its result; a strict run refuses instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field

from refbias.errors import RefbiasError


@dataclass(frozen=True)
class StandIn:
    wanted: str
    used: str
    why: str

    def sentence(self) -> str:
        return f"stand-in: {self.used} is used in place of {self.wanted}: {self.why}"


@dataclass
class Notes:
    """The stand-ins of one run, without repetition, in the order in which they came."""

    strict: bool = False
    items: list[StandIn] = field(default_factory=list)

    def rows(self) -> list[dict[str, str]]:
        return [asdict(item) for item in self.items]


_current: ContextVar[Notes | None] = ContextVar("refbias_stand_ins", default=None)


class StandInWarning(UserWarning):
    """Given where a stand-in is used outside a run that collects them."""


@contextmanager
def collecting(strict: bool = False) -> Iterator[Notes]:
    """Collect the stand-ins of the block; with ``strict``, refuse the first one."""
    notes = Notes(strict)
    token = _current.set(notes)
    try:
        yield notes
    finally:
        _current.reset(token)


def stand_in(wanted: str, used: str, why: str) -> None:
    """Announce that ``used`` takes the place of ``wanted``. Raises `RefbiasError` in a strict run."""
    note = StandIn(wanted, used, why)
    notes = _current.get()
    if notes is None:
        warnings.warn(note.sentence(), StandInWarning, stacklevel=2)
    elif notes.strict:
        raise RefbiasError(
            f"strict=true refuses a stand-in: {wanted} is not available ({why}). "
            f"Supply it, or run with strict=false to use {used}."
        )
    elif note not in notes.items:
        notes.items.append(note)
