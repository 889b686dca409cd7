"""Target sentences: group -> sentences that name the group and say something neutral."""

from __future__ import annotations

from refbias.stimuli import files, packaged


def _packaged(name: str) -> dict[str, list[str]]:
    return packaged.by_key(f"targets/{name}.csv", "group")


def base() -> dict[str, list[str]]:
    """50 neutral sentences for each of 24 groups; row i is the same template in every group."""
    return _packaged("base")


def passive() -> dict[str, list[str]]:
    """The base sentences in the passive voice, row by row."""
    return _packaged("passive")


def passive_rephrased() -> dict[str, list[str]]:
    """The passive sentences in other words, row by row."""
    return _packaged("passive_rephrased")


def synonyms_1() -> dict[str, list[str]]:
    """The base sentences with synonyms (first set), row by row."""
    return _packaged("synonyms_1")


def synonyms_2() -> dict[str, list[str]]:
    """The base sentences with synonyms (second set), row by row."""
    return _packaged("synonyms_2")


def synonyms_3() -> dict[str, list[str]]:
    """The base sentences with synonyms (third set), row by row."""
    return _packaged("synonyms_3")


def control() -> dict[str, list[str]]:
    """The base templates about 24 names with nothing social in them (gardeners, tea drinkers)."""
    return _packaged("control")


def file(*, path: str | None = None) -> dict[str, list[str]]:
    """Sentences of your own: CSV with the columns group,sentence, or JSON or YAML {group: [sentence, ...]}."""
    entries = files.keyed(path, "targets.path", "group")
    found: dict[str, list[str]] = {}
    for entry in entries:
        found.setdefault(entry.key, []).append(entry.sentence)
    return found
