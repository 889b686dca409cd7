"""Running text as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Corpus:
    """Sentences, each without line breaks, in a fixed order, read anew whenever they are asked for.

    ``digest`` stands for the content and how it was split; ``n`` is how many sentences a calibration's sample takes
    at most; ``notes`` are recorded with every figure (source, licence, what was left out).
    """

    name: str
    digest: str
    read: Callable[[], Iterator[str]]
    n: int = 6000
    notes: tuple[str, ...] = field(default=())

    def sentences(self) -> Iterator[str]:
        return self.read()
