"""Topics from a table of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from refbias.errors import RefbiasError, did_you_mean
from refbias.stimuli.files import csv_rows, existing
from refbias.topics.base import Assigned, Topics

if TYPE_CHECKING:
    from refbias.context import Context

EXPECTED = "CSV with the columns prompt,topic; an empty topic is none"


def csv(texts: Sequence[str], topics: Topics, context: Context | None = None, *, path: str) -> Assigned:
    """Topics from a CSV file with the columns prompt and topic; a prompt that is not in it has none."""
    file = existing(path, "topics.path", EXPECTED)
    by_name = {topic.casefold(): topic for topic in topics}
    known: dict[str, str | None] = {}
    for where, row in csv_rows(file, ("prompt", "topic")):
        prompt, topic = _same(row["prompt"]), row["topic"].strip()
        if topic and topic.casefold() not in by_name:
            raise RefbiasError(
                f"{file}, {where}: no topic {topic!r}.{did_you_mean(topic, topics)} There are: {', '.join(topics)}."
            )
        found = by_name.get(topic.casefold())
        if known.setdefault(prompt, found) != found:
            raise RefbiasError(f"{file}, {where}: this prompt has another topic above. Take one of the two rows out.")
    keys = [_same(text) for text in texts]
    return Assigned.of(
        (known.get(key), "" if known.get(key) else "no topic" if key in known else "not in the file") for key in keys
    )


def _same(prompt: str) -> str:
    """Line breaks and runs of blanks are lost where tables are edited."""
    return " ".join(prompt.split())
