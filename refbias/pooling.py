"""From token states to one vector a sentence.

A pooling takes ``states`` (b, t, d) and ``mask`` (b, t), torch tensors, and returns (b, d) in float32. The mask holds
0 at padding, 1 at ordinary tokens and 2 at special tokens (beginning of sequence, separators …), so it also serves
as a plain mask. Padding may stand on either side: nothing here goes by position.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from refbias.errors import UsageError

if TYPE_CHECKING:
    import torch

    from refbias.registry import Choice

Skip = Literal["none", "special", "sink"]
PADDING, TOKEN, SPECIAL = 0, 1, 2


def kept(mask: torch.Tensor, skip: Skip = "none") -> torch.Tensor:
    """Which tokens take part, as booleans (b, t): all, all but the special ones, or all but each first one."""
    real = mask > PADDING
    if skip == "special":
        return mask == TOKEN
    if skip == "sink":
        return real & (real.cumsum(1) > 1)
    return real


def mean(states: torch.Tensor, mask: torch.Tensor, *, skip: Skip = "none") -> torch.Tensor:
    """Mean over the tokens of a sentence."""
    weights = kept(mask, skip).float()
    weights = weights / weights.sum(1, keepdim=True)
    return (weights.unsqueeze(1) @ states.float()).squeeze(1)


def max(states: torch.Tensor, mask: torch.Tensor, *, skip: Skip = "none") -> torch.Tensor:
    """Largest value over the tokens of a sentence, in each dimension."""
    return states.masked_fill(~kept(mask, skip).unsqueeze(2), float("-inf")).amax(1).float()


def last(states: torch.Tensor, mask: torch.Tensor, *, skip: Skip = "none") -> torch.Tensor:
    """State of the last token of a sentence."""
    taking_part = kept(mask, skip)
    position = taking_part.shape[1] - 1 - taking_part.flip(1).int().argmax(1)
    return _at(states, position)


def first(states: torch.Tensor, mask: torch.Tensor, *, skip: Skip = "none") -> torch.Tensor:
    """State of the first token of a sentence."""
    return _at(states, kept(mask, skip).int().argmax(1))


def _at(states: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    index = position.view(-1, 1, 1).expand(-1, 1, states.shape[2])
    return states.gather(1, index).squeeze(1).float()


POOLINGS: Mapping[str, Callable[..., torch.Tensor]] = {"mean": mean, "max": max, "last": last, "first": first}


@dataclass(frozen=True)
class Pooling:
    """A pooling with its options bound. ``key`` names it in caches and results."""

    name: str
    options: tuple[tuple[str, Any], ...]
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    @functools.cached_property
    def key(self) -> str:
        options = ",".join(f"{name}={value}" for name, value in self.options)
        return f"{self.name}({options})" + ("" if self.parameter_free else f"@{self._source()}")

    @property
    def skip(self) -> Skip:
        return dict(self.options).get("skip", "none")

    @property
    def parameter_free(self) -> bool:
        """Whether this is a built-in pooling: those come out of one forward pass together."""
        return POOLINGS.get(self.name) is getattr(self.function, "func", self.function)

    def _source(self) -> str:
        """Digest of the code of a pooling that others wrote: vectors of an older version are not taken for its own."""
        function = getattr(self.function, "func", self.function)
        try:
            text = inspect.getsource(function if inspect.isroutine(function) else type(function))
        except (OSError, TypeError):
            text = repr(getattr(function, "__qualname__", type(function).__qualname__))
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def built_in(name: str, skip: Skip = "none") -> Pooling:
    """The built-in pooling ``name``."""
    return Pooling(name, (("skip", skip),), functools.partial(POOLINGS[name], skip=skip))


def pooling_from_choice(choice: Choice) -> Pooling:
    """The pooling that the registry resolved."""
    skip = choice.params.get("skip", "none")
    if skip not in ("none", "special", "sink"):
        raise UsageError(f"pooling.skip={skip!r}: expected none, special or sink.")
    return Pooling(choice.name, tuple(sorted(choice.params.items())), choice.object)
