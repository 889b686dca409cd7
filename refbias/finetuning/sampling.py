"""Samples of examples by seed, and the digest that stands for a list of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from refbias.errors import RefbiasError, UsageError
from refbias.finetuning.base import Example
from refbias.finetuning.statements import digest

T = TypeVar("T")


def sample(items: Sequence[T], n: int, seed: int, source: str) -> list[T]:
    """``n`` of ``items`` in an order that the seed draws: a smaller sample is the beginning of a larger one."""
    if n < 1:
        raise UsageError(f"data.n={n} is no number of examples: expected 1 or more.")
    if n > len(items):
        raise RefbiasError(f"{source} has {len(items)} examples, and {n} are asked for. Use a smaller data.n.")
    return [items[i] for i in np.random.default_rng(seed).permutation(len(items))[:n]]


def digest_of(examples: Sequence[Example]) -> str:
    """SHA-256 of the examples and their order."""
    return digest([[[dict(m) for m in e.messages], e.prompt, e.text] for e in examples])
