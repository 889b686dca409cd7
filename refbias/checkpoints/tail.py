"""Causal language models with logits at chosen positions only, and from a chosen block on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from refbias.encoders.hf import batches, find_blocks
from refbias.models.base import Loaded

if TYPE_CHECKING:
    import torch

Ids = tuple[int, ...]


class Enough(Exception):  # noqa: N818
    """Raised by a hook once what was wanted is there."""


class Tail:
    """The loaded causal model from block ``start`` on; a context manager.

    Called with ids (b, t), padded on the right or not at all, and a mask ``keep`` (b, t), it gives the logits (n, v)
    at the n kept positions: the head, which costs as much as several blocks, is not run elsewhere. With ``start`` > 0
    it needs ``states`` (b, t, d), the input of block ``start``, and runs no block below.
    """

    def __init__(self, loaded: Loaded, start: int = 0) -> None:
        self.causal = loaded.causal
        self.blocks = find_blocks(loaded.model, _depth(loaded))
        self.start = start
        self._states: torch.Tensor | None = None
        self._keep: torch.Tensor | None = None
        self._captured: torch.Tensor | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Tail:
        head = self.causal.get_output_embeddings()
        self._stack.callback(head.register_forward_pre_hook(self._select).remove)
        if self.start:
            hook = self.blocks[self.start].register_forward_pre_hook(self._inject, with_kwargs=True)
            self._stack.callback(hook.remove)
            self._tuples = _gives_tuples(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __call__(self, ids: torch.Tensor, keep: torch.Tensor, states: torch.Tensor | None = None) -> torch.Tensor:
        self._states, self._keep = states, keep
        try:
            with self._skipping() if states is not None else ExitStack():
                return self.causal(input_ids=ids, use_cache=False).logits
        finally:
            self._states = self._keep = None

    def states(self) -> torch.Tensor:
        """Input of block ``start`` (b, t, d) in the last call."""
        if self._captured is None:
            raise RuntimeError("no call has passed block `start` yet")
        return self._captured

    def _select(self, head: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args if self._keep is None else (args[0][self._keep], *args[1:])

    def _inject(
        self, block: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._captured = args[0] if self._states is None else self._states
        return (self._captured, *args[1:]), kwargs

    @contextmanager
    def _skipping(self) -> Iterator[None]:
        """Within the block, the lower blocks give back what they are given."""

        def passed_on(states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return (states,) if self._tuples else states

        lower = self.blocks[: self.start]
        for block in lower:
            block.forward = passed_on
        try:
            yield
        finally:
            for block in lower:
                del block.forward


def states_at(
    loaded: Loaded, block: int, rows: Sequence[Ids], advance: Callable[[int], None]
) -> dict[Ids, torch.Tensor]:
    """Input (t, d) of one block for each of ``rows``; blocks from there on are not run."""
    import torch

    blocks = find_blocks(loaded.model, _depth(loaded))
    found: dict[Ids, torch.Tensor] = {}
    with torch.inference_mode():
        for indices in batches([len(row) for row in rows], 1024):
            some = [rows[i] for i in indices]
            states = _run_to(loaded, blocks[block], some)
            found.update(zip(some, states, strict=True))
            advance(len(some))
    # clones made outside of inference mode take part in autograd
    return {row: states.clone() for row, states in found.items()}


def _run_to(loaded: Loaded, block: torch.nn.Module, rows: Sequence[Ids]) -> torch.Tensor:
    import torch

    got: list[torch.Tensor] = []

    def stop(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        got.append(args[0])
        raise Enough

    hook = block.register_forward_pre_hook(stop)
    try:
        loaded.model(input_ids=torch.tensor(rows, device=loaded.model.device))
    except Enough:
        pass
    finally:
        hook.remove()
    return got[0]


def _gives_tuples(tail: Tail) -> bool:
    """Whether blocks return (states, …), as in older releases of transformers, or states."""
    import torch

    seen: list[Any] = []

    def stop(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        seen.append(output)
        raise Enough

    hook = tail.blocks[0].register_forward_hook(stop)
    try:
        with torch.inference_mode():
            tail.causal(input_ids=torch.zeros(1, 1, dtype=torch.long, device=tail.causal.device), use_cache=False)
    except Enough:
        pass
    finally:
        hook.remove()
    return isinstance(seen[0], tuple)


def _depth(loaded: Loaded) -> int:
    config = loaded.model.config
    return int(getattr(config, "get_text_config", lambda: config)().num_hidden_layers)
