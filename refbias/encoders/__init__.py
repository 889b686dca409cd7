"""Encoders: how sentences become vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from refbias.context import Context
from refbias.encoders.base import Batch, Counts, Encoder, Key
from refbias.encoders.hf import HFEncoder, LayerSite, hf
from refbias.encoders.sentence_transformers import sentence_transformers
from refbias.encoders.tables import arrays, vectors
from refbias.models import Model


def auto(
    model: Model,
    context: Context,
    *,
    special_tokens: bool = True,
    chat_template: bool = False,
    layer_site: LayerSite = "post_norm",
    max_length: int | None = None,
    batch_tokens: int = 1024,
) -> Encoder:
    """Chosen by what the model is; the options are those of hf and apply to transformer models."""
    if model.kind == "vectors":
        return vectors(model, context)
    if model.kind == "arrays":
        return arrays(model, context)
    plain = special_tokens and not chat_template and layer_site == "post_norm"
    if model.kind == "sentence_transformers" and plain and not getattr(model, "unsupported", ()):
        return sentence_transformers(model, context, max_length=max_length, batch_tokens=batch_tokens)
    return hf(
        model,
        context,
        special_tokens=special_tokens,
        chat_template=chat_template,
        layer_site=layer_site,
        max_length=max_length,
        batch_tokens=batch_tokens,
    )


ENCODERS: Mapping[str, Callable[..., Encoder]] = {
    "auto": auto,
    "hf": hf,
    "sentence_transformers": sentence_transformers,
    "vectors": vectors,
    "arrays": arrays,
}

__all__ = ["ENCODERS", "Batch", "Counts", "Encoder", "HFEncoder", "Key", "auto"]
