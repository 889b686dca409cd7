"""Words looked up in a table of word vectors."""

from __future__ import annotations

from refbias.errors import UsageError
from refbias.models.vectors import Case, VectorsModel
from refbias.words.base import Lookup, WordVectors


def table(lookup: Lookup, *, case: Case = "auto") -> WordVectors:
    """Entries of a word-vector model: case=auto tries lower case where the whole vocabulary is lower-cased."""
    model = lookup.encoder.model
    if not isinstance(model, VectorsModel):
        raise UsageError(f"words=table needs a word-vector model, and {model.name} is {model.kind}. Use words=auto.")
    found = model.find(lookup.words, case)
    joined = {word: "_".join(word.split()) for word in found.entries}
    return WordVectors(
        form="table",
        vectors=found.vectors,
        lost=found.lost,
        report={
            "case": case,
            "lowercased_vocabulary": model.lowercased,
            "exact": sum(word == entry for word, entry in found.entries.items()),
            "lower_cased": sum(entry not in (word, joined[word]) for word, entry in found.entries.items()),
            "joined": sum(word != joined[word] and " " not in entry for word, entry in found.entries.items()),
            "several_words": "one entry, as it is or joined by _; never averaged",
        },
    )
