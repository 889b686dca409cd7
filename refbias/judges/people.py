"""Verdicts by people: a table to fill in, blinded and in random order, and what several of them say together."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.answers import Pair, Verdict
from refbias.answers.judging import LABELS, distinct, pair_id
from refbias.errors import RefbiasError, UsageError
from refbias.result import write_whole
from refbias.stimuli.files import read_text

if TYPE_CHECKING:
    from refbias.context import Context

COLUMNS = ("id", "question", "text", "verdict", "annotator")
EXPECTED = "1, 0, -1, ? (cannot tell) or nothing (not judged)"

UNJUDGED = Verdict(None, "unjudged")
_VALUES: Mapping[str, int | None] = {"1": 1, "0": 0, "-1": -1, "?": None}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")  # a spreadsheet would read these as a formula, or drop them


def people(pairs: Sequence[Pair], context: Context | None = None, *, path: str) -> list[Verdict]:
    """Verdicts of people from a table that task=judge has exported (task.export=FILE): the majority of annotators.

    ``path`` is a CSV file, a folder or a pattern of several; columns id, verdict and, for more than one annotator,
    annotator (without it, each file is one). A verdict is 1, 0, -1, or ? for "cannot tell"; without one a row counts
    as not judged. A tie is no verdict. ``detail`` says how many agreed.
    """
    by_id = _votes(path).by_id
    return [_majority(by_id.get(pair_id(pair), {})) for pair in pairs]


def _majority(votes: Mapping[str, int | None]) -> Verdict:
    if not votes:
        return UNJUDGED
    (value, most), *others = Counter(votes.values()).most_common()
    detail = f"{most} of {len(votes)}"
    if others and others[0][1] == most:
        return Verdict(None, "tie", detail)
    return Verdict(value, LABELS[value], detail)


def export(pairs: Sequence[Pair], file: Path, seed: int) -> int:
    """Write the table to fill in, each distinct pair once, in an order that ``seed`` draws; returns how many.

    It tells neither model nor prompt id. Fields that a spreadsheet would read as a formula get an apostrophe.
    """
    found = distinct(pairs)
    order = np.random.default_rng(seed).permutation(len(found))
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(COLUMNS)
    for i in order:
        pair = found[i]
        writer.writerow([pair_id(pair), guarded(pair.question), guarded(pair.text), "", ""])
    # without the mark in front, spreadsheets take UTF-8 for something else
    write_whole(file, text.getvalue().encode("utf-8-sig", errors="replace"))
    return len(found)


def guarded(field: str) -> str:
    """``field`` so that no spreadsheet computes it."""
    return f"'{field}" if field.startswith(_FORMULA) else field


def unguarded(field: str) -> str:
    """What `guarded` was given."""
    return field[1:] if field.startswith("'") and field[1:].startswith(_FORMULA) else field


@dataclass(frozen=True)
class Votes:
    """What annotators say: id -> annotator -> value; rows without a verdict are left out, and counted."""

    by_id: Mapping[str, Mapping[str, int | None]]
    annotators: tuple[str, ...]
    blank: int


def _votes(path: str) -> Votes:
    found = files_of(path)
    states = tuple((file, about.st_size, about.st_mtime_ns) for file in found for about in [file.stat()])
    return _read(states)


@lru_cache(maxsize=4)
def _read(states: tuple[tuple[Path, int, int], ...]) -> Votes:
    by_id: dict[str, dict[str, int | None]] = defaultdict(dict)
    seen: dict[tuple[str, str], str] = {}
    blank = 0
    for file, _, _ in states:
        for where, row in _rows(file):
            place = f"{file}, {where}"
            name = row.get("annotator", "").strip() or file.stem
            key, given = row["id"].strip(), unguarded(row["verdict"].strip())
            if not key:
                raise RefbiasError(f"{place}: the id is empty. Keep the ids of the exported table.")
            if not given:
                blank += 1
                continue
            value = _value(given, place)
            if by_id[key].setdefault(name, value) != value:
                raise RefbiasError(
                    f"{place}: another verdict on id {key} than {seen[key, name]} holds. Give each annotator a name "
                    f"in the column annotator, or take one row out."
                )
            seen.setdefault((key, name), place)
    annotators = tuple(sorted({name for votes in by_id.values() for name in votes}))
    return Votes(by_id, annotators, blank)


def _value(given: str, place: str) -> int | None:
    text = given.replace("\u2212", "-").removesuffix(".0").removesuffix(",0")
    if text not in _VALUES:
        shown = repr(given) if len(given) <= 20 else f"of {len(given)} characters"
        raise RefbiasError(f"{place}: verdict {shown} is none. Expected {EXPECTED}.")
    return _VALUES[text]


def _rows(file: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """("row 2", {column: field}); rows are counted as a spreadsheet shows them. Semicolons may stand for commas."""
    content = read_text(file)
    header = content.partition("\n")[0]
    delimiter = ";" if header.count(";") > header.count(",") else ","
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter)
    try:
        columns = [name.strip().lower() for name in next(reader, [])]
        missing = [name for name in ("id", "verdict") if name not in columns]
        if missing:
            raise RefbiasError(
                f"{file} has no column {' and no column '.join(map(repr, missing))}. Fill in the table that "
                f"task=judge task.export=FILE writes: {','.join(COLUMNS)}."
            )
        for number, row in enumerate(reader, start=2):
            if not any(field.strip() for field in row):
                continue
            if len(row) != len(columns):
                raise RefbiasError(
                    f"{file}, row {number}: {len(row)} fields where the first row has {len(columns)}. Save the table "
                    f"as CSV from the spreadsheet program, with quotes around texts."
                )
            yield f"row {number}", dict(zip(columns, row, strict=True))
    except csv.Error as error:
        raise RefbiasError(f"{file} is no readable CSV: {error}. Save the table as CSV, UTF-8.") from None


def files_of(path: str) -> list[Path]:
    """The table or tables that ``path`` names: a file, a folder or a pattern."""
    place = Path(path).expanduser()
    if place.is_file():
        return [place]
    found = place.glob("*.csv") if place.is_dir() else Path(place.anchor or ".").glob(_relative(place))
    files = sorted(file for file in found if file.is_file())
    if not files:
        raise UsageError(f"judge.path={path}: no such file, folder with .csv files, or pattern of some.")
    return files


def _relative(place: Path) -> str:
    return str(place.relative_to(place.anchor)) if place.anchor else str(place)


def about(context: Context | None = None, *, path: str) -> dict[str, Any]:
    """Who judged how much, and how far annotators agree beyond chance."""
    votes = _votes(path)
    return {
        "annotators": [
            {"annotator": name, "judged": sum(name in given for given in votes.by_id.values())}
            for name in votes.annotators
        ],
        "rows_without_verdict": votes.blank,
        "agreement": agreement(votes),
    }


def agreement(votes: Votes) -> list[dict[str, Any]]:
    """Cohen's kappa of every two annotators, and Fleiss' of all where there are more; over what all of them judged."""
    from itertools import combinations

    names = votes.annotators
    rows = [{"measure": "cohen", **_kappa(votes, pair)} for pair in combinations(names, 2)]
    return [*rows, {"measure": "fleiss", **_kappa(votes, names)}] if len(names) > 2 else rows


def _kappa(votes: Votes, names: Sequence[str]) -> dict[str, Any]:
    shared = [[given[name] for name in names] for given in votes.by_id.values() if all(n in given for n in names)]
    value, reason = (cohen_kappa if len(names) == 2 else fleiss_kappa)(shared)
    row = {"annotators": " · ".join(names), "n": len(shared), "kappa": value}
    return row if value is not None else {**row, "kappa_reason": reason}


def cohen_kappa(ratings: Sequence[Sequence[Any]]) -> tuple[float | None, str]:
    """Cohen's kappa of two raters' categories (n, 2): (p_o − p_e) / (1 − p_e), chance by each rater's own shares."""
    if not ratings:
        return None, "nothing was judged by both"
    n = len(ratings)
    observed = sum(a == b for a, b in ratings) / n
    first, second = (Counter(row[side] for row in ratings) for side in (0, 1))
    return _beyond(observed, sum(first[k] * second[k] for k in first) / n**2)


def fleiss_kappa(ratings: Sequence[Sequence[Any]]) -> tuple[float | None, str]:
    """Fleiss' kappa of the categories of m raters (n, m): chance by the shares of all raters together."""
    if not ratings:
        return None, "nothing was judged by all"
    n, m = len(ratings), len(ratings[0])
    counts = [Counter(row) for row in ratings]
    observed = sum(c * (c - 1) for row in counts for c in row.values()) / (n * m * (m - 1))
    total = sum(counts, Counter())
    return _beyond(observed, sum((c / (n * m)) ** 2 for c in total.values()))


def _beyond(observed: float, chance: float) -> tuple[float | None, str]:
    if chance >= 1:
        return None, "all chose one category throughout: chance alone would agree"
    return (observed - chance) / (1 - chance), ""
