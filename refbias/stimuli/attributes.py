"""Attribute sentences: (positive, negative), about no group; row i of both sides differs in valence only."""

from __future__ import annotations

from refbias.errors import RefbiasError
from refbias.stimuli import files, packaged

VALENCES = ("positive", "negative")


def _packaged(name: str) -> tuple[list[str], list[str]]:
    sides = packaged.by_key(f"attributes/{name}.csv", "valence")
    return sides["positive"], sides["negative"]


def base() -> tuple[list[str], list[str]]:
    """100 positive and 100 negative sentences of general valence, matched in form and length."""
    return _packaged("base")


def subject_they() -> tuple[list[str], list[str]]:
    """The base sentences about "they" or with "their", row by row."""
    return _packaged("subject_they")


def subject_person() -> tuple[list[str], list[str]]:
    """The base sentences about "the person" or "the people", row by row."""
    return _packaged("subject_person")


def synonyms_1() -> tuple[list[str], list[str]]:
    """The base sentences with other words of valence, row by row."""
    return _packaged("synonyms_1")


def synonyms_2() -> tuple[list[str], list[str]]:
    """The base sentences with other verbs and settings, row by row."""
    return _packaged("synonyms_2")


def synonyms_3() -> tuple[list[str], list[str]]:
    """The base sentences with other words of valence, verbs and settings, row by row."""
    return _packaged("synonyms_3")


def file(*, path: str | None = None) -> tuple[list[str], list[str]]:
    """Sentences of your own: CSV with the columns valence,sentence, or JSON {"positive": [...], "negative": [...]}."""
    sides: dict[str, list[str]] = {valence: [] for valence in VALENCES}
    for entry in files.keyed(path, "attributes.path", "valence"):
        if entry.key not in sides:
            raise RefbiasError(f"{path}, {entry.where}: valence is {entry.key!r}. Use positive or negative.")
        sides[entry.key].append(entry.sentence)
    for valence, other in zip(VALENCES, reversed(VALENCES), strict=True):
        if not sides[valence]:
            raise RefbiasError(
                f"{path} has {len(sides[other])} {other} sentences and no {valence} one. Add {valence} sentences: "
                "bias is the difference between the two."
            )
    return sides["positive"], sides["negative"]
