"""What is asked of a form of word vectors, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from refbias.context import Context
    from refbias.corpora import Corpus
    from refbias.encoders import Encoder
    from refbias.pooling import Pooling

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Lookup:
    """Words whose vectors at ``layer`` are wanted.

    ``pooling`` is for forms that encode a word as a sentence; ``corpus`` for those that look it up in running text,
    None where the user named none. ``layers`` are all that will be asked for, one lookup each: a form that encodes does
    so once for all of them.
    """

    encoder: Encoder
    words: Sequence[str]
    layer: int
    pooling: Pooling
    corpus: Corpus | None
    context: Context
    layers: Sequence[int] = ()


@dataclass(frozen=True)
class WordVectors:
    """Vectors of the words that were found.

    Parameters
    ----------
    form : name of the form that made them, for the record
    vectors : word -> (d,)
    lost : word -> why it has no vector
    contexts : word -> (k, d), one row a sentence that holds the word, for forms that know them; else empty
    sentences : word -> the k sentences of ``contexts``
    report : what to record with every figure: sentences read and encoded, tokens, alignment, digest of the corpus …
    """

    form: str
    vectors: Mapping[str, Vectors]
    lost: Mapping[str, str] = field(default_factory=dict)
    contexts: Mapping[str, Vectors] = field(default_factory=dict)
    sentences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)

    def matrix(self, words: Sequence[str]) -> Vectors:
        """Vectors of ``words``, all of which were found, as (n, d)."""
        return np.stack([self.vectors[word] for word in words])
