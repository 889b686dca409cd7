"""One token of each row from its logits, with randomness of its own, and how clear the choice is.

The token of a row is the winner of two Gumbel races, one between blocks of the vocabulary and one within the block
that won: the same distribution as softmax(logits / T), from a few hundred random numbers. A race is insensitive to
rounding, except where its first two are nearly equal: `draw` says so, for the caller to compute such a row exactly.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

BLOCK = 256  # tokens in a block
_HEAD = 1024  # tokens among which the nucleus is sought first: sorting a whole vocabulary takes long


def noise(rng: np.random.Generator, vocabulary: int) -> NDArray[np.float32]:
    """The random numbers of one draw from ``vocabulary`` tokens."""
    return rng.gumbel(size=math.ceil(vocabulary / BLOCK) + BLOCK).astype(np.float32)


def draw(
    logits: torch.Tensor, noise: torch.Tensor | None, temperature: float, top_p: float, slack: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (b,) drawn from logits (b, v), and whether (b,) each is clear.

    Parameters
    ----------
    noise : (b, ceil(v / 256) + 256), see `noise`; None where ``temperature`` is 0
    top_p : mass of the nucleus, the most probable tokens that are drawn from
    slack : (b, 1), how much two logits must differ to be told apart; None takes the logits as exact
    """
    if noise is None:
        best = logits.topk(2).values
        gap = best[:, 0] - best[:, 1]
        tokens = logits.argmax(1)
        return tokens, _clear(gap, slack)
    scaled = logits / temperature
    narrow = slack / temperature if slack is not None else None
    if top_p >= 1:
        tokens, gap = _two_races(scaled, noise)
        return tokens, _clear(gap, narrow)
    tokens, gap = _two_races(_nucleus(scaled, top_p), noise)
    clear = _clear(gap, narrow)
    if narrow is not None:
        for sign in (-1, 1):
            other, _ = _two_races(_nucleus(scaled, top_p, sign * narrow), noise)
            clear &= other == tokens
    return tokens, clear


def _clear(gap: torch.Tensor, slack: torch.Tensor | None) -> torch.Tensor:
    return gap >= (0 if slack is None else slack[:, 0])


def _two_races(scores: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The winning tokens (b,) and by how much the closer of the two races was won (b,)."""
    import torch

    rows = torch.arange(len(scores), device=scores.device)
    short = -scores.shape[1] % BLOCK
    blocks = torch.nn.functional.pad(scores, (0, short), value=-math.inf).view(len(scores), -1, BLOCK)
    first, gap = _race(blocks.logsumexp(2) + noise[:, :-BLOCK])
    second, inner = _race(blocks[rows, first] + noise[:, -BLOCK:])
    return first * BLOCK + second, torch.minimum(gap, inner)


def _race(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    if values.shape[1] == 1:
        return values.argmax(1), torch.full_like(values[:, 0], math.inf)
    best = values.topk(2)
    return best.indices[:, 0], best.values[:, 0] - best.values[:, 1]


def _nucleus(scaled: torch.Tensor, top_p: float, slack: torch.Tensor | float = 0.0) -> torch.Tensor:
    """``scaled`` with −∞ for tokens outside the nucleus: the fewest, the most probable, with mass ``top_p`` or more.

    ``slack`` (b, 1) widens it by tokens that rounding may have left out, a negative one narrows it.
    """
    total = scaled.logsumexp(1, keepdim=True)
    wanted = top_p + slack
    head = min(_HEAD, scaled.shape[1])
    best = scaled.topk(head).values
    mass = (best - total).exp().cumsum(1)
    if head < scaled.shape[1] and bool((mass[:, -1:] < wanted).any()):
        best = scaled.sort(1, descending=True).values
        mass = (best - total).exp().cumsum(1)
    kept = ((mass - (best - total).exp()) < wanted).sum(1, keepdim=True).clamp(min=1)
    floor = best.gather(1, kept - 1) - slack
    return scaled.masked_fill((scaled < floor) & (scaled < best[:, :1]), -math.inf)
