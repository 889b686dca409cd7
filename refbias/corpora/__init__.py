"""Running text, split into sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from refbias.corpora.base import Corpus
from refbias.corpora.files import file
from refbias.corpora.hub import hub
from refbias.corpora.wikipedia import wikipedia

CORPORA: Mapping[str, Callable[..., Corpus]] = {"wikipedia": wikipedia, "file": file, "hub": hub}

__all__ = ["CORPORA", "Corpus", "file", "hub", "wikipedia"]
