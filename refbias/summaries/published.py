"""The figures that the paper prints, beside which measured ones are put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from refbias.summaries.base import Row


@cache
def published() -> Mapping[str, Any]:
    """The content of data/delta_b.yaml."""
    import yaml  # type: ignore[import-untyped]

    text = files("refbias.summaries").joinpath("data/delta_b.yaml").read_text(encoding="utf-8")
    content: Mapping[str, Any] = yaml.safe_load(text)
    return content


def family(model: str) -> str | None:
    """The paper's short name of a model; None for one that it has not."""
    return next((name for name, hub in published()["models"].items() if model.lower() == hub.lower()), None)


NAMES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "gemma": "Gemma",
    "wildguardmix": "WildGuardMix",
    "decodingtrust": "DecodingTrust",
    "toxigen": "ToxiGen",
    "lora": "LoRA",
    "full": "full",
}
# what a figure of another model, benchmark or regime is held against: the nearest first
NEAREST = {
    "benchmark": ("decodingtrust", "wildguardmix", "toxigen"),
    "model": ("llama", "mistral", "gemma"),
    "regime": ("lora", "full"),
}


def place(row: Mapping[str, Any]) -> str:
    """Where a published figure was measured, in words."""
    return ", ".join(NAMES[row[key]] for key in ("model", "regime", "benchmark"))


def difference(measured: float | None, printed: float | None) -> float | None:
    """Measured minus published, where there are both."""
    return None if measured is None or printed is None else measured - printed


def nearest(rows: Sequence[Row], subject: Mapping[str, str | None]) -> Row | None:
    """Of published ``rows``, the one of this model, regime and benchmark, else the one that comes nearest.

    A benchmark that scores single groups is held against DecodingTrust, another model against Llama.
    """

    def distance(row: Row) -> tuple[int, ...]:
        return tuple(
            0 if row[key] == subject[key] else 1 + NEAREST[key].index(row[key])
            for key in ("benchmark", "model", "regime")
        )

    return min(rows, key=distance, default=None)
