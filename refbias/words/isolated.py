"""Words encoded alone, as sentences of one word."""

from __future__ import annotations

from refbias.encoding import embed
from refbias.errors import UsageError
from refbias.words.base import Lookup, WordVectors


def isolated(lookup: Lookup) -> WordVectors:
    """Each word encoded alone as a sentence, with the pooling of the run.

    The form of sentence-transformers models. For other models a lone word is unlike anything they were trained on.
    """
    encoder, pooling = lookup.encoder, lookup.pooling
    if encoder.model.kind == "vectors":
        raise UsageError(f"words=isolated encodes words, and {encoder.model.name} holds word vectors. Use words=table.")
    words = list(dict.fromkeys(lookup.words))
    layers = [lookup.layer, *sorted({*lookup.layers} - {lookup.layer})]
    found = embed(encoder, words, layers, [pooling], lookup.context.cache, lookup.context.watch)
    report = {
        "layer": lookup.layer,
        "pooling": pooling.key,
        "words_encoded": found.encoded,
        "words_from_cache": found.from_cache,
        "tokens_encoded": found.tokens_encoded,
        "truncated": found.truncated,
    }
    vectors = dict(zip(words, found.vectors[lookup.layer, pooling.key], strict=True))
    return WordVectors("isolated", vectors, report=report)
