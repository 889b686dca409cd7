"""What a run tells the person who waits for it. The parts talk to a `Watch`; the command line shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

Advance = Callable[[int], None]


class Watch(Protocol):
    def say(self, text: str) -> None:
        """One plain sentence."""

    def progress(self, label: str, total: int, unit: str = "") -> AbstractContextManager[Advance]:
        """A long step of ``total`` units: the block is given a function that advances it."""

    def checkpoint(self, result: dict[str, Any]) -> None:
        """One checkpoint is measured: its entry of result.json."""


class Quiet:
    """Says nothing: the default in Python."""

    def say(self, text: str) -> None:
        return None

    @contextmanager
    def progress(self, label: str, total: int, unit: str = "") -> Iterator[Advance]:
        yield lambda n: None

    def checkpoint(self, result: dict[str, Any]) -> None:
        return None
