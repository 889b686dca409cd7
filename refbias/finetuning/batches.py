"""The order of examples: batches of similar length, every example once an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

_WINDOW = 8  # batches that are sorted by length together: little padding, and every batch mixes groups


def schedule(lengths: Sequence[int], batch: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """Batches of indices without end: every epoch takes each row once, in batches of similar length."""
    while True:
        order = rng.permutation(len(lengths)).tolist()
        windows = [order[i : i + _WINDOW * batch] for i in range(0, len(order), _WINDOW * batch)]
        in_order = [sorted(window, key=lambda i: lengths[i]) for window in windows]
        found = [window[i : i + batch] for window in in_order for i in range(0, len(window), batch)]
        for index in rng.permutation(len(found)):
            yield found[index]
