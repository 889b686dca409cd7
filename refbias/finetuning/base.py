"""What is taught, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from refbias.errors import UsageError

Message = Mapping[str, str]  # role ("system", "user", "assistant") and content
Schedule = Literal["linear", "cosine", "constant"]
Precision = Literal["auto", "bf16", "fp32"]

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Example:
    """One conversation, or, without ``messages``, a plain statement whose ``text`` after ``prompt`` is taught."""

    messages: Sequence[Message] = ()
    prompt: str = ""
    text: str = ""


@dataclass(frozen=True)
class Lessons:
    """Examples in a fixed order; ``digest`` stands for all of them, ``report`` is recorded with the result."""

    name: str
    examples: Sequence[Example]
    digest: str
    report: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Regime:
    """A recipe: AdamW, gradients clipped at norm 1, a warm-up, then a schedule down to 0.

    ``batch`` examples go through the model at once, ``accumulation`` such batches make a step. ``warmup`` is a share of
    all steps. ``max_steps`` None trains for ``epochs``. ``precision`` auto is bf16 on accelerators that compute in it,
    else fp32. Blocks below ``first_block`` stay as they are; where it is above 0, so do embeddings, last norm and head.
    ``rank``, ``alpha``, ``dropout`` and ``modules`` are those of LoRA. Raises `UsageError` for values out of range.
    """

    kind: Literal["lora", "full"]
    learning_rate: float
    epochs: float = 3.0
    batch: int = 4
    accumulation: int = 8
    warmup: float = 0.03
    schedule: Schedule = "linear"
    weight_decay: float = 0.0
    max_length: int = 1024
    max_steps: int | None = None
    gradient_checkpointing: bool = False
    precision: Precision = "auto"
    rank: int = 16
    alpha: int = 32
    dropout: float = 0.05
    modules: tuple[str, ...] = PROJECTIONS
    first_block: int = 0

    def __post_init__(self) -> None:
        for name in ("batch", "accumulation", "rank", "alpha", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"regime.{name}={value}: expected 1 or more.")
        for name in ("learning_rate", "epochs"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"regime.{name}={getattr(self, name)}: expected a number above 0.")
        for name in ("warmup", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"regime.{name}={getattr(self, name)}: expected a share from 0 to below 1.")
        if not 0 <= self.weight_decay < float("inf"):
            raise UsageError(f"regime.weight_decay={self.weight_decay}: expected 0 or more.")
        if self.max_length < 2:
            raise UsageError(f"regime.max_length={self.max_length}: expected 2 tokens or more.")
        if self.first_block < 0:
            raise UsageError(f"regime.first_block={self.first_block}: expected the number of a block, from 0.")
        if not self.modules:
            raise UsageError("regime.modules is empty: expected names of linear modules, such as [q_proj,v_proj].")

    def as_dict(self) -> dict[str, Any]:
        """The recipe as plain values; what is LoRA's own is left out of a full fine-tune."""
        unused = () if self.kind == "lora" else ("rank", "alpha", "dropout", "modules")
        return {key: value for key, value in asdict(self).items() if key not in unused}
