"""The sentence sets: targets (by group), attributes (positive, negative) and anchors. Standard library only.

``TARGETS``, ``ATTRIBUTES`` and ``ANCHORS`` say which sets there are: name -> function, whose keyword-only
parameters are the options. ``GROUPS`` are the 24 group names in the order of every result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from refbias.stimuli import anchors, attributes, targets
from refbias.stimuli.packaged import digests, groups, slug, topic_of

__all__ = ["ANCHORS", "ATTRIBUTES", "GROUPS", "TARGETS", "digests", "slug", "topic_of"]

GROUPS: tuple[str, ...]

TARGETS: Mapping[str, Callable[..., dict[str, list[str]]]] = {
    "base": targets.base,
    "passive": targets.passive,
    "passive_rephrased": targets.passive_rephrased,
    "synonyms_1": targets.synonyms_1,
    "synonyms_2": targets.synonyms_2,
    "synonyms_3": targets.synonyms_3,
    "control": targets.control,
    "file": targets.file,
}

ATTRIBUTES: Mapping[str, Callable[..., tuple[list[str], list[str]]]] = {
    "base": attributes.base,
    "subject_they": attributes.subject_they,
    "subject_person": attributes.subject_person,
    "synonyms_1": attributes.synonyms_1,
    "synonyms_2": attributes.synonyms_2,
    "synonyms_3": attributes.synonyms_3,
    "file": attributes.file,
}

ANCHORS: Mapping[str, Callable[..., list[str]]] = {
    "neutral": anchors.neutral,
    "words": anchors.words,
    "alpaca": anchors.alpaca,
    "tulu": anchors.tulu,
    "file": anchors.file,
}


def __getattr__(name: str) -> Any:
    if name == "GROUPS":  # read from the packaged table, and only when asked for
        return groups()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
