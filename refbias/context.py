"""What every part of one run shares: where to compute, where to keep things, who watches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refbias.watch import Quiet, Watch

if TYPE_CHECKING:
    from refbias.cache import Cache


@dataclass(frozen=True)
class Context:
    """``device`` and ``dtype`` are resolved names: "cpu" or "cuda:0", "float32" or "bfloat16"."""

    cache: Cache
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0
    watch: Watch = field(default_factory=Quiet)
