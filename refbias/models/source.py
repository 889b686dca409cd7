"""The weights of a model folder, or of an adapter on one, formed piece by piece where they are needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from refbias.errors import RefbiasError
from refbias.models.adapters import Effect
from refbias.models.files import Stored
from refbias.models.layout import Layout
from refbias.models.weights import Files, dtype_of, pieces

if TYPE_CHECKING:
    import torch

_NOTHING = Effect()


@dataclass(frozen=True)
class Piece:
    """Rows ``start`` to ``stop`` of a weight."""

    name: str
    start: int
    stop: int


class Source:
    """The weights of a model folder, or of an adapter on it, by the names of its module.

    What the module has no name for goes by the name of the files. A tensor with several names goes by the first of
    them, unless the files or the adapter tell them apart: then each of ``apart`` is a weight of its own.

    Parameters
    ----------
    name : of the model, for messages
    files, layout : the base's
    effects : what the adapter changes
    """

    def __init__(self, name: str, files: Files, layout: Layout, effects: Mapping[str, Effect] | None = None) -> None:
        self.name = name
        self.files = files
        self.layout = layout
        self._called = _called(files, layout)
        self._places = {twin: name for key, name in self._called.items() for twin in layout.twins.get(key, ())}
        self._places |= self._called
        self.apart: frozenset[str] = frozenset()
        effects = dict(self._needed(effects or {}))
        self.apart = frozenset(n for group in {*layout.twins.values()} if self._differ(group, effects) for n in group)
        self.effects = {self._first(key): effect for key, effect in effects.items()}
        self.names = list(dict.fromkeys([*map(self._first, self._called), *sorted(self.apart)]))
        self._lock = threading.Lock()
        self._factors: dict[str, torch.Tensor] = {}

    def _first(self, name: str) -> str:
        return name if name in self.apart else self.layout.twins.get(name, (name,))[0]

    def _needed(self, effects: Mapping[str, Effect]) -> Iterator[tuple[str, Effect]]:
        """The effects without values that are the base's own: peft saves embeddings beside some adapters."""
        for name, effect in effects.items():
            if effect.value is not None and self._holds(name, effect.value):
                effect = replace(effect, value=None)
            if not effect.nothing:
                yield name, effect

    def _holds(self, name: str, value: torch.Tensor) -> bool:
        import torch

        if value.shape != self.stored(name).shape:
            return False
        ranges = pieces(tuple(value.shape))
        return all(torch.equal(self.read(name, a, b).double(), value[a:b].double()) for a, b in ranges)

    def _differ(self, group: tuple[str, ...], effects: Mapping[str, Effect]) -> bool:
        """Whether the names of one tensor stand for several."""
        import torch

        named = [self._called[name] for name in group if name in self._called]
        ranges = list(pieces(self.files.tensors[named[0]].shape)) if len(named) > 1 else []
        if any(
            not torch.equal(self.files.read(named[0], a, b), self.files.read(other, a, b))
            for other in named[1:]
            for a, b in ranges
        ):
            return True
        changed = [effects[name] for name in group if name in effects]
        if len(changed) < len(group):
            # a vocabulary that has grown keeps its tie, though the adapter may hold one of both only
            return not all(self._grown(group[0], effect) for effect in changed)
        values = [effect.value for effect in changed if effect.value is not None and effect.left is None]
        return len(values) < len(group) or any(not torch.equal(values[0], value) for value in values)

    def _grown(self, name: str, effect: Effect) -> bool:
        return effect.value is not None and tuple(effect.value.shape) != self.stored(name).shape

    def has(self, name: str) -> bool:
        return name in self._places

    def file_name(self, name: str, apart: bool = False) -> str:
        """What the files call a weight; for one that is ``apart`` and not in the files by itself, the module's name."""
        return self._called.get(name, name) if apart else self._places[name]

    def stored(self, name: str) -> Stored:
        """The base's tensor."""
        if name not in self._places:
            raise RefbiasError(f"{self.files.folder} lacks {name!r}. Fetch the model again.")
        return self.files.tensors[self._places[name]]

    def read(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Rows of the base's tensor."""
        return self.files.read(self._places[name], start, stop)

    def effect(self, name: str) -> Effect:
        return self.effects.get(self._first(name), _NOTHING) if self.effects else _NOTHING

    def shape(self, name: str) -> tuple[int, ...]:
        value = self.effect(name).value
        return self.stored(name).shape if value is None else tuple(value.shape)

    def dtype(self, name: str) -> torch.dtype:
        return dtype_of(self.stored(name))

    @property
    def vocabulary(self) -> int | None:
        """Rows of the embedding where an adapter has changed their number."""
        for name in self.layout.vocabulary:
            if self._grown(name, self.effect(name)):
                return self.shape(name)[0]
        return None

    @property
    def structure(self) -> tuple[frozenset[str], int | None]:
        """In what a module with these weights differs from that of its configuration."""
        return self.apart, self.vocabulary

    def form(self, piece: Piece) -> torch.Tensor:
        """A piece of the weight, in float64."""
        effect = self.effect(piece.name)
        found = self._sum(piece, effect)
        for factor in (effect.scale, self._factor(piece.name, effect)):
            if factor is not None:
                found *= factor[piece.start : piece.stop] if len(factor) > 1 else factor
        return found

    def _sum(self, piece: Piece, effect: Effect) -> torch.Tensor:
        """W + L R."""
        import torch

        rows = slice(piece.start, piece.stop)
        found = effect.value[rows] if effect.value is not None else self.read(piece.name, piece.start, piece.stop)
        if effect.left is None or effect.right is None:
            return found.to(torch.float64, copy=True)
        return torch.addmm(found.double(), effect.left[rows], effect.right)

    def _factor(self, name: str, effect: Effect) -> torch.Tensor | None:
        """DoRA's magnitude / ‖W + L R‖, the norm being that of each row or column."""
        import torch

        if effect.magnitude is None:
            return None
        with self._lock:
            if name not in self._factors:
                by_row = effect.magnitude.shape[1] == 1
                squares = [self._sum(p, effect).square().sum(dim=int(by_row)) for p in self.pieces(name)]
                total = torch.cat(squares)[:, None] if by_row else torch.stack(squares).sum(dim=0)[None]
                self._factors[name] = effect.magnitude / total.sqrt()
        return self._factors[name]

    def pieces(self, name: str) -> Iterator[Piece]:
        return (Piece(name, start, stop) for start, stop in pieces(self.shape(name)))


def _called(files: Files, layout: Layout) -> dict[str, str]:
    """Name of a tensor -> what the files call it."""
    found: dict[str, str] = {}
    for name in files.tensors:
        key = layout.find(name) or name
        if key in found:
            raise RefbiasError(f"{files.folder} holds {key!r} twice, as {found[key]!r} and {name!r}.")
        found[key] = name
    return found
