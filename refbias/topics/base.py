"""What a part of the kind ``topics`` is given and returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from refbias.context import Context

Topics = Mapping[str, Sequence[str]]  # topic -> names of its groups


class Assigned(list["str | None"]):
    """One topic or None a text; ``reasons`` counts why texts have none. A plain list does as well."""

    def __init__(self, topics: Iterable[str | None], reasons: Mapping[str, int]) -> None:
        super().__init__(topics)
        self.reasons = dict(reasons)

    @classmethod
    def of(cls, found: Iterable[tuple[str | None, str]]) -> Assigned:
        """From (topic, "") or (None, reason) a text."""
        pairs = list(found)
        return cls([topic for topic, _ in pairs], Counter(why for topic, why in pairs if topic is None))


class Mapper(Protocol):
    """A part of the kind ``topics``."""

    def __call__(self, texts: Sequence[str], topics: Topics, context: Context) -> Sequence[str | None]: ...
