"""The form of word vectors that fits a model."""

from __future__ import annotations

from refbias.words.aggregated import aggregated
from refbias.words.base import Lookup, WordVectors
from refbias.words.isolated import isolated
from refbias.words.table import table


def auto(lookup: Lookup) -> WordVectors:
    """table for word vectors, isolated for sentence-transformers models and arrays, aggregated for other models."""
    kind = lookup.encoder.model.kind
    if kind == "vectors":
        return table(lookup)
    return isolated(lookup) if kind in ("sentence_transformers", "arrays") else aggregated(lookup)
