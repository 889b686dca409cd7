"""How words become vectors: from a table, from their sentences in a corpus, or alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from refbias.words.aggregated import aggregated
from refbias.words.auto import auto
from refbias.words.base import Lookup, WordVectors
from refbias.words.isolated import isolated
from refbias.words.table import table

WORDS: Mapping[str, Callable[..., WordVectors]] = {
    "auto": auto,
    "aggregated": aggregated,
    "isolated": isolated,
    "table": table,
}

__all__ = ["WORDS", "Lookup", "WordVectors", "aggregated", "auto", "isolated", "table"]
