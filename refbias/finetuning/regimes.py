"""Recipes. The defaults are the paper's, value by value; every one can be set."""

from __future__ import annotations

from refbias.finetuning.base import PROJECTIONS, Precision, Regime, Schedule


def lora(
    *,
    learning_rate: float = 1e-4,
    epochs: float = 3.0,
    max_steps: int | None = None,
    batch: int = 4,
    accumulation: int = 8,
    warmup: float = 0.03,
    schedule: Schedule = "linear",
    weight_decay: float = 0.0,
    max_length: int = 1024,
    rank: int = 16,
    alpha: int = 32,
    dropout: float = 0.05,
    modules: list[str] = list(PROJECTIONS),  # noqa: B006 (read only)
    first_block: int = 0,
    precision: Precision = "auto",
    gradient_checkpointing: bool = False,
) -> Regime:
    """Adapters of low rank beside the linear modules of every block; the model's own weights stay as they are.

    A step takes ``batch`` × ``accumulation`` examples; ``warmup`` is a share of all steps; ``max_steps`` beats
    ``epochs``; longer examples are cut at ``max_length`` tokens. Blocks below ``first_block`` get no adapter.
    """
    return Regime(
        "lora",
        learning_rate,
        epochs=epochs,
        max_steps=max_steps,
        batch=batch,
        accumulation=accumulation,
        warmup=warmup,
        schedule=schedule,
        weight_decay=weight_decay,
        max_length=max_length,
        rank=rank,
        alpha=alpha,
        dropout=dropout,
        modules=tuple(modules),
        first_block=first_block,
        precision=precision,
        gradient_checkpointing=gradient_checkpointing,
    )


def full(
    *,
    learning_rate: float = 2e-5,
    epochs: float = 3.0,
    max_steps: int | None = None,
    batch: int = 4,
    accumulation: int = 8,
    warmup: float = 0.03,
    schedule: Schedule = "linear",
    weight_decay: float = 0.0,
    max_length: int = 1024,
    first_block: int = 0,
    precision: Precision = "auto",
    gradient_checkpointing: bool = False,
) -> Regime:
    """Every weight is trained; with ``first_block`` above 0 the blocks from there on only.

    A step takes ``batch`` × ``accumulation`` examples; ``warmup`` is a share of all steps; ``max_steps`` beats
    ``epochs``; longer examples are cut at ``max_length`` tokens.
    """
    return Regime(
        "full",
        learning_rate,
        epochs=epochs,
        max_steps=max_steps,
        batch=batch,
        accumulation=accumulation,
        warmup=warmup,
        schedule=schedule,
        weight_decay=weight_decay,
        max_length=max_length,
        first_block=first_block,
        precision=precision,
        gradient_checkpointing=gradient_checkpointing,
    )
