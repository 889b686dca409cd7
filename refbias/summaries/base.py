"""The jobs of one sweep, and how what is made of them is saved."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refbias.result import Tables, write_whole
from refbias.tasks.run import OUTCOME

FOLDER = "summary"  # in the sweep folder
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One job of a sweep: what it was told, and the content of its result.json or the reason why there is none.

    ``settings`` is the composed configuration as plain values, each part as a mapping with its ``name``.
    """

    number: int
    overrides: list[str]
    settings: Mapping[str, Any]
    folder: Path
    data: dict[str, Any] | None
    reason: str | None = None

    def chosen(self, kind: str) -> str | None:
        """The name of the part that was chosen."""
        return (self.settings.get(kind) or {}).get("name")

    def option(self, kind: str, name: str) -> Any:
        """The value of one of its options; None where it has none of this name."""
        return (self.settings.get(kind) or {}).get(name)


def read_jobs(folder: Path) -> list[Job]:
    """The jobs of the sweep in ``folder`` that have ended, in their order."""
    return sorted((_job(file) for file in folder.rglob(OUTCOME)), key=lambda job: job.number)


def _job(file: Path) -> Job:
    record = json.loads(file.read_text(encoding="utf-8"))
    data, reason = None, record.get("message")
    result = file.parent / "result.json"
    if record["status"] in (0, 3) and result.is_file():  # 3: a gate says no, the result is there
        data, reason = json.loads(result.read_text(encoding="utf-8")), None
    settings = record.get("settings") or {}
    return Job(record["job"], record["overrides"], settings, file.parent, data, reason or _silence(data))


def _silence(data: Any) -> str | None:
    return "it left no result" if data is None else None


# Saving ---------------------------------------------------------------------------------------------------------


def save(made: Tables, name: str, folder: Path) -> str:
    """Write result.json, tables, pictures and ``NAME.md`` into ``folder``; returns the last without published rows."""
    made.save(folder)
    write_whole(folder / f"{name}.md", markdown(made))
    return markdown(made, brief=True)


def markdown(made: Tables, brief: bool = False) -> str:
    """Title, what was used, tables and notes.

    Of ``data``: ``title``, ``about`` and ``notes`` (lists of sentences), and ``shown``: of each table that stands in
    the text, its columns by heading, each a key or the two keys of an interval. All optional. ``brief`` leaves out
    rows that are ``only_published``, and says how many.
    """
    data = made.data
    lines = [f"# {data.get('title', data.get('task', 'Summary'))}", "", *data.get("about", [])]
    for table in made.tables:
        whole = made.rows(table)
        rows = [row for row in whole if not (brief and row.get("only_published"))]
        every = {column: column for row in rows for column in row}
        columns = data["shown"].get(table) if "shown" in data else every
        if columns and rows:
            lines += ["", *aligned([list(columns), *([_cell(row, key) for key in columns.values()] for row in rows)])]
        if columns and len(rows) < len(whole):
            lines += ["", f"{len(whole) - len(rows)} published figures for which no job ran stand in the files."]
    notes = data.get("notes", [])
    return "\n".join([*lines, *(["", *(f"- {note}" for note in notes)] if notes else [])]) + "\n"


def _cell(row: Mapping[str, Any], key: Any) -> str:
    if isinstance(key, str):
        return shown(row.get(key))
    low, high = (row.get(end) for end in key)
    return "" if low is None or high is None else f"[{shown(low)}, {shown(high)}]"


def shown(value: Any) -> str:
    """One value as it stands in a table.

    >>> shown(0.12345), shown(0.00004), shown(-0.5), shown(None)
    ('0.123', '4e-05', '−0.500', '')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        if not math.isfinite(value):
            return ""
        small = 0 < abs(value) < 0.0005
        text = f"{value:.0e}" if small else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3f}"
        return text.replace("-", "−") if value < 0 and not small else text
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(str(value).replace("|", "/").split())


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table, padded so that it can be read as it is; columns without any entry are left out."""
    head, *body = table
    kept = [i for i in range(len(head)) if any(line[i] for line in body)]
    widths = [max(len(line[i]) for line in table) for i in kept]

    def written(line: Sequence[str]) -> str:
        return "| " + " | ".join(line[i].ljust(width) for i, width in zip(kept, widths, strict=True)) + " |"

    return [written(head), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(written, body)]
