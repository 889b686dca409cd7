"""Topics by plain rules: which topic's terms stand in a text most often."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from refbias.errors import RefbiasError
from refbias.stimuli.files import csv_rows
from refbias.topics.base import Assigned, Topics

if TYPE_CHECKING:
    from refbias.context import Context


def keywords(
    texts: Sequence[str], topics: Topics, context: Context | None = None, *, path: str | None = None
) -> Assigned:
    """The topic whose terms stand in a prompt most often, as whole words; none where two topics are level.

    The terms are the names of a topic's groups and a list of names and plain terms; ``path`` is a list of one's own,
    CSV with the columns topic,term. Of terms that overlap the longest counts: "African American" is not "American".
    """
    terms = {topic: [*groups, *_terms(path).get(topic, ())] for topic, groups in topics.items()}
    owners = {_key(term): topic for topic, own in terms.items() for term in own}
    pattern = _pattern(owners)
    return Assigned.of(_decided(Counter(owners[_key(m.group())] for m in pattern.finditer(text))) for text in texts)


def _decided(hits: Counter[str]) -> tuple[str | None, str]:
    ranked = hits.most_common(2)
    if not ranked:
        return None, "no match"
    if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
        return None, "ambiguous"
    return ranked[0][0], ""


def _key(term: str) -> str:
    """A term as it is looked up: hyphens and line breaks in a text are spaces in the rules."""
    return re.sub(r"[\s\-‐]+", " ", term.strip().casefold())


def _pattern(keys: Mapping[str, str]) -> re.Pattern[str]:
    """Whole words, the longest term first."""
    longest_first = sorted(keys, key=len, reverse=True)
    within = "|".join(re.escape(key).replace(r"\ ", r"[\s\-‐]+") for key in longest_first)
    return re.compile(rf"(?<!\w)(?:{within})(?!\w)", re.IGNORECASE)


@cache
def _terms(path: str | None) -> Mapping[str, Sequence[str]]:
    packaged = Path(str(files("refbias.topics").joinpath("data/keywords.csv")))
    file = Path(path).expanduser() if path else packaged
    if not file.is_file():
        raise RefbiasError(f"topics.path={path}: no such file. Use topics.path=FILE: CSV with the columns topic,term.")
    found: dict[str, list[str]] = {}
    for where, row in csv_rows(file, ("topic", "term")):
        if not row["term"].strip():
            raise RefbiasError(f"{file}, {where}: the term is empty. Fill it in, or take the row out.")
        found.setdefault(row["topic"].strip(), []).append(row["term"])
    return found
