"""Weighted sums of models, formed in float64 and rounded once; set in a loaded module in place."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from refbias.errors import RefbiasError
from refbias.models.layout import layout
from refbias.models.source import Piece, Source
from refbias.models.weights import keep_freed_memory, pieces, rounded

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class Blend:
    """Σ coefficient · source, with coefficients that add up to 1. A source with coefficient 0 is not read.

    Where all sources are low-rank changes of one and the same weight, W + Σ coefficient · ΔW is formed, W once.
    """

    def __init__(self, parts: Sequence[tuple[float, Source]]) -> None:
        keep_freed_memory()
        self.sources = [source for _, source in parts]
        self.parts = [(coefficient, source) for coefficient, source in parts if coefficient != 0]
        self.apart = frozenset(name for source in self.sources for name in source.apart)
        names = [name for source in self.sources for name in source.names]
        self.names = list(dict.fromkeys([*names, *sorted(self.apart)]))
        self._dtypes: dict[str, torch.dtype] = {}

    @property
    def structure(self) -> tuple[frozenset[str], int | None]:
        """As `Source.structure`."""
        return self.apart, self.sources[0].vocabulary

    def shape(self, name: str) -> tuple[int, ...]:
        return self.sources[0].shape(name)

    def dtype(self, name: str) -> torch.dtype:
        """The dtype that holds the numbers of every source."""
        import torch

        if name not in self._dtypes:
            self._dtypes[name] = functools.reduce(torch.promote_types, (s.dtype(name) for s in self.sources))
        return self._dtypes[name]

    def pieces(self, names: Iterable[str]) -> list[Piece]:
        return [Piece(name, start, stop) for name in names for start, stop in pieces(self.shape(name))]

    def form(self, piece: Piece, dtype: torch.dtype) -> torch.Tensor:
        """A piece of the sum in ``dtype``; of whole numbers, which are the same in all sources, as it is."""
        import torch

        if not self.dtype(piece.name).is_floating_point:
            return self.sources[0].read(piece.name, piece.start, piece.stop)
        formed = self._sum(piece)
        if not math.isfinite(formed.sum().item()):
            self._complain(piece)
        made = rounded(formed, dtype)
        if dtype is torch.float16 and not made.isfinite().all():
            raise RefbiasError(f"Weight {piece.name!r} becomes too large for float16. Choose another dtype.")
        return made

    def _sum(self, piece: Piece) -> torch.Tensor:
        import torch

        name, rows = piece.name, slice(piece.start, piece.stop)
        effects = [source.effect(name) for _, source in self.parts]
        (_, first), *others = self.parts
        if all(effect.linear for effect in effects) and all(s.stored(name) == first.stored(name) for _, s in others):
            weight = first.read(name, piece.start, piece.stop).double()
            changes = [(c, e.left, e.right) for (c, _), e in zip(self.parts, effects, strict=True)]
            left = [c * left[rows] for c, left, _ in changes if left is not None]
            right = [right for _, _, right in changes if right is not None]
            # one product of the stacked factors: rank 2r, as in a concatenated adapter
            return torch.addmm(weight, torch.cat(left, dim=1), torch.cat(right)) if left else weight
        total = first.form(piece).mul_(self.parts[0][0])
        for coefficient, source in others:
            # not with alpha=coefficient: a fused step rounds otherwise, and between lattice points that shows
            total += source.form(piece).mul_(coefficient)
        return total

    def _complain(self, piece: Piece) -> None:
        for _, source in self.parts:
            if not source.form(piece).isfinite().all():
                raise RefbiasError(
                    f"Weight {piece.name!r} of {source.name} holds NaN or infinity (rows {piece.start} to "
                    f"{piece.stop - 1}). Take an earlier checkpoint, or train again."
                )
        raise RefbiasError(f"Weight {piece.name!r} becomes too large to add up. Look at the ends' weights.")

    def set_in(self, module: torch.nn.Module, names: Iterable[str]) -> None:
        """Set weights of ``module`` in place, each rounded once to the dtype that it has there.

        Raises `RefbiasError` where a weight of the module cannot be told from the files, before anything is changed.
        """
        targets = self._targets(module)
        wanted = [name for name in names if name in targets]

        def work(piece: Piece) -> None:
            target = targets[piece.name]
            target[piece.start : piece.stop] = self.form(piece, target.dtype).view_as(target[piece.start : piece.stop])

        for _ in in_threads(work, self.pieces(wanted)):
            pass

    def _targets(self, module: torch.nn.Module) -> dict[str, torch.Tensor]:
        """The module's tensors by the names of this sum; a tensor without dimensions as one with one row."""
        known, state, source = layout(module), module.state_dict(), self.sources[0]
        found = {}
        left = set(state)
        for name in self.names:
            there = name if name in state else known.find(source.file_name(name, name in self.apart))
            if there is None:
                continue
            twins = known.twins.get(there, (there,))
            if name in self.apart and len(twins) > 1:
                raise RefbiasError(
                    f"{there!r} is tied in the loaded model, and not in what it is to become. {_IN_A_FOLDER}"
                )
            found[name] = state[there].view(-1) if not state[there].dim() else state[there]
            left -= set(twins)
            if found[name].shape != (self.shape(name) or (1,)):
                raise RefbiasError(
                    f"Weight {there!r} has shape {tuple(found[name].shape)} in the loaded model, and "
                    f"{self.shape(name)} in what it is to become. {_IN_A_FOLDER}"
                )
        if left:
            raise RefbiasError(
                f"The files of {source.name} have no weight of their own for {min(left)!r}: this architecture makes "
                f"its weights of several stored ones. {_IN_A_FOLDER}"
            )
        return found


def in_threads(work: Callable[[Piece], T], some: Sequence[Piece]) -> Iterator[T]:
    """``work(piece)`` of every piece, in order, several at a time."""
    from refbias.encoders.hf import side_by_side

    return side_by_side(work, some, workers=8)


_IN_A_FOLDER = "Write the merge with task=merge, and give its folder."


def fit(module: Any, source: Source) -> None:
    """Give a loaded base the vocabulary and the separate weights of ``source``; their values are set afterwards.

    Raises `RefbiasError` where the vocabulary has grown and the adapter lacks rows for it.
    """
    import torch

    rows = source.vocabulary
    if rows is not None:
        lacking = [name for name in source.layout.vocabulary if source.shape(name)[0] != rows]
        if lacking:
            raise RefbiasError(
                f"Adapter {source.name} has a vocabulary of {rows}, and saved no {lacking[0]!r} for it. "
                f"Save it again with save_embedding_layers=True."
            )
        module.resize_token_embeddings(rows, mean_resizing=False)
    for name in sorted(source.apart):
        parent, _, own = name.rpartition(".")
        tensor = module.get_parameter(name).detach().clone()
        setattr(module.get_submodule(parent), own, torch.nn.Parameter(tensor, requires_grad=False))
    if source.apart:
        for config in (module.config, module.config.get_text_config()):
            config.tie_word_embeddings = False
