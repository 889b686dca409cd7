"""What a run is about to do and how long that takes here, said before the long steps of a first run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from refbias.report.console import duration

if TYPE_CHECKING:
    from refbias.cache import Cache

TOKENS = 12  # of a seven-word sentence
STATEMENTS = 24 * 24  # of the likelihood benchmark
LESSONS = 24 * 80  # statements of both fine-tunes, whose lower blocks run once
VOCABULARY = 49_152
ENCODING, TRAINING = 0.6, 0.5  # shares of the rate of a large matrix product that encoding and training reach
UPPER = 0.5  # share of the blocks that a planted checkpoint does not share with its reference
SHORTEST = 45.0  # seconds below which nobody needs a warning


def gemm_rate(device: str = "cpu", size: int = 1536) -> float:
    """Rate of an fp32 matrix product of this size, in GFLOP/s, the best of a few."""
    import torch

    a, b = (torch.rand(size, size, device=device) for _ in range(2))
    best = float("inf")
    for _ in range(4):
        begun = time.perf_counter()
        (a @ b).sum().item()
        best = min(best, time.perf_counter() - begun)
    return 2 * size**3 / best / 1e9


@dataclass(frozen=True)
class Work:
    """A long step, in floating point operations at the rate that such a step reaches."""

    label: str
    operations: float
    share: float

    def seconds(self, rate: float) -> float:
        return self.operations / (rate * 1e9 * self.share)


def planned(
    layers: int, dim: int, sentences: int, series: tuple[str, Mapping[str, Any]] | None, models: int, scored: bool
) -> list[Work]:
    """The long steps of a cold audit.

    ``layers`` and ``dim`` are the reference's, whose blocks have about 12 d² weights each; ``series`` is the choice
    of checkpoints, ``models`` the number of audited models, ``scored`` whether the likelihood is measured too.
    """
    blocks, head = 12 * dim**2 * layers, VOCABULARY * dim
    name, options = series or ("", {})
    planted = name == "planted"
    work = []
    if planted:
        tokens = 2 * options["steps"] * options["batch"] * TOKENS
        operations = 6 * tokens * (UPPER * blocks + head / 2) + 2 * TOKENS * LESSONS * (1 - UPPER) * blocks
        work.append(Work("two small fine-tunes, kept for later runs", operations, TRAINING))
    every = 1 + models * (1.0 if name in ("", "merge") else UPPER)
    work.append(
        Work(f"{sentences:,} sentences with {models + 1} models", 2 * TOKENS * sentences * blocks * every, ENCODING)
    )
    if scored:
        operations = 2 * TOKENS * STATEMENTS * (blocks + head) * (models + 1)
        work.append(Work(f"likelihood of {STATEMENTS} statements with each", operations, ENCODING))
    return work


def outlook(work: Sequence[Work], rate: float) -> list[str]:
    """The plan in a few lines; none where it takes no time worth mentioning."""
    total = sum(step.seconds(rate) for step in work)
    if total < SHORTEST:
        return []
    lines = [f"Nothing of this is in the cache yet. It takes about {_rounded(total)} here ({rate:.0f} GFLOP/s):"]
    lines += [f"  {step.label}: about {_rounded(step.seconds(rate))}" for step in work]
    return [*lines, "Each checkpoint is shown as soon as it is measured. A second run takes seconds."]


def _rounded(seconds: float) -> str:
    return duration(seconds) if seconds < 50 else f"{round(seconds / 60) or 1} min"


def is_cold(cache: Cache, series: tuple[str, Mapping[str, Any]] | None) -> bool:
    """Whether the long steps are still to be done, as far as the cache's entries tell without opening a model."""
    entries = [item.name for item in cache.usage()]
    if series and series[0] == "planted":
        return not any(name.startswith(f"planted-{series[1]['kind']}-") for name in entries)
    return not any(item.kind == "vectors" for item in cache.usage())
