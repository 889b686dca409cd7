"""From token states to one vector a sentence.

A pooling takes ``states`` (b, t, d) and ``mask`` (b, t), torch tensors, and returns (b, d) in float32. The mask holds
0 at padding, 1 at ordinary tokens and 2 at special tokens (beginning of sequence, separators …), so it also serves
as a plain mask. Padding may stand on either side: nothing here goes by position.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
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
    """A pooling with its options bound. ``key`` names it in caches and results.

    ``version`` tells poolings that others wrote apart: a digest of the file that a registered one comes from, or for
    any other object a number of its own. ``lasting`` is whether the key means the same in another process.
    """

    name: str
    options: tuple[tuple[str, Any], ...]
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    version: str = ""
    lasting: bool = True

    @functools.cached_property
    def key(self) -> str:
        options = ",".join(f"{name}={value}" for name, value in self.options)
        return f"{self.name}({options})" + (f"@{self.version}" if self.version else "")

    @property
    def skip(self) -> Skip:
        return dict(self.options).get("skip", "none")

    @property
    def parameter_free(self) -> bool:
        """Whether this is a built-in pooling: those come out of one forward pass together."""
        return POOLINGS.get(self.name) is getattr(self.function, "func", self.function)


def built_in(name: str, skip: Skip = "none") -> Pooling:
    """The built-in pooling ``name``."""
    return Pooling(name, (("skip", skip),), functools.partial(POOLINGS[name], skip=skip))


_numbers = itertools.count(1)


def pooling_from_choice(choice: Choice) -> Pooling:
    """The pooling that the registry resolved.

    What an object of one's own computes may depend on values that it captured, so its vectors are never kept: its key
    holds for this call only.
    """
    skip = choice.params.get("skip", "none")
    if skip not in ("none", "special", "sink"):
        raise UsageError(f"pooling.skip={skip!r}: expected none, special or sink.")
    if POOLINGS.get(choice.name) is getattr(choice.object, "func", choice.object):
        return built_in(choice.name, skip)
    options = tuple(sorted(choice.params.items()))
    version = _file_digest(choice)
    if version is None:
        return Pooling(choice.name, options, choice.object, str(next(_numbers)), lasting=False)
    return Pooling(choice.name, options, choice.object, version)


def _file_digest(choice: Choice) -> str | None:
    """Digest of the file that a registered pooling comes from; None for any other object.

    What the registry built is a part's function with plain options, or an object of a part's class made from them.
    """
    from refbias.registry import registry

    part = registry().parts("pooling").get(choice.name)
    if part is None or not all(_is_plain(value) for value in choice.params.values()):
        return None
    made, code = choice.object, getattr(part.factory, "func", part.factory)
    if inspect.isclass(code):
        as_built = type(made) is code and part.options and part.options.keys() == choice.params.keys()
    else:
        defaults = {option.name: option.default for option in part.options.values()}
        as_built = (
            isinstance(made, functools.partial)
            and made.func is code
            and not made.args
            and {**defaults, **made.keywords} == choice.params
            and not getattr(code, "__closure__", None)  # captured values are not in the file
        )
    file = getattr(sys.modules.get(code.__module__), "__file__", None)
    if not as_built or not file:
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:8]


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))
