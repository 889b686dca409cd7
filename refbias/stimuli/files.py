"""Sentence files of the user's own, with errors that say where.

Rows of a CSV file are counted as a spreadsheet shows them: the header is row 1.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from refbias.errors import RefbiasError, UsageError


class Entry(NamedTuple):
    where: str  # "row 5", "item 3 of 'Women'"
    key: str  # the group or the valence; empty where the file has none
    sentence: str


def existing(path: str | None, option: str, expected: str) -> Path:
    """The file that an option names, or an error that says what the option takes."""
    if not path:
        raise UsageError(f"{option} is not set. Use {option}=FILE: {expected}.")
    found = Path(path).expanduser()
    if found.is_dir():
        raise UsageError(f"{option}={path} is a folder. Use {option}=FILE: {expected}.")
    if not found.is_file():
        raise UsageError(f"{option}={path}: no such file in {Path.cwd()}. Use {option}=FILE: {expected}.")
    return found


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefbiasError(f"{path} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from None


def csv_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """("row 2", {column: value}) for each row that is not blank; every one of ``columns`` is there."""
    reader = csv.reader(read_text(path).splitlines(keepends=True))
    header = [name.strip() for name in next(reader, [])]
    missing = [name for name in columns if name not in header]
    if missing:
        raise RefbiasError(
            f"{path} has no column {' and no column '.join(map(repr, missing))}: its columns are "
            f"{', '.join(map(repr, header)) or 'none'}. Its first row must be {','.join(columns)}."
        )
    for number, row in enumerate(reader, start=2):
        if not any(field.strip() for field in row):
            continue
        if len(row) != len(header):
            raise RefbiasError(
                f"{path}, row {number}: {len(row)} fields where the first row has {len(header)}. "
                'Put "double quotes" around a sentence that has a comma in it.'
            )
        yield f"row {number}", dict(zip(header, row, strict=True))


def parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RefbiasError(f"{where} is not valid JSON: {error.msg} (line {error.lineno}). Mend it there.") from None


def _parse_yaml(path: Path) -> Any:
    import yaml  # type: ignore[import-untyped]

    try:
        return yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise RefbiasError(f"{path} is not valid YAML: {error}. Mend it there.") from None


def _keyed_csv(path: Path, key: str) -> Iterator[Entry]:
    for where, row in csv_rows(path, (key, "sentence")):
        yield Entry(where, row[key], row["sentence"])


def _keyed_mapping(path: Path, key: str, content: Any) -> Iterator[Entry]:
    if not isinstance(content, dict):
        raise RefbiasError(f"{path} holds a {type(content).__name__} at the top. Use {{{key}: [sentence, ...]}}.")
    for name, sentences in content.items():
        if not isinstance(sentences, list):
            raise RefbiasError(f"{path}: {name!r} holds a {type(sentences).__name__}. Use a list of sentences.")
        if not sentences:
            raise RefbiasError(f"{path}: {key} {name!r} has no sentences. Add some, or take it out.")
        for number, sentence in enumerate(sentences, start=1):
            where = f"item {number} of {name!r}"
            if not isinstance(sentence, str):
                raise RefbiasError(f"{path}, {where}: {sentence!r} is not text. Put it in quotes.")
            yield Entry(where, str(name), sentence)


KEYED: dict[str, Callable[[Path, str], Iterator[Entry]]] = {
    ".csv": _keyed_csv,
    ".json": lambda path, key: _keyed_mapping(path, key, parse_json(read_text(path), str(path))),
    ".yaml": lambda path, key: _keyed_mapping(path, key, _parse_yaml(path)),
    ".yml": lambda path, key: _keyed_mapping(path, key, _parse_yaml(path)),
}


def checked(path: Path, entries: Iterator[Entry], key: str | None = None) -> list[Entry]:
    """The entries, stripped; an empty sentence or key, a repeated sentence or an empty file raises."""
    first: dict[str, str] = {}
    found = []
    for where, name, sentence in entries:
        name, sentence = name.strip(), sentence.strip()
        if key and not name:
            raise RefbiasError(f"{path}, {where}: the {key} is empty. Fill it in, or take the row out.")
        if not sentence:
            raise RefbiasError(f"{path}, {where}: the sentence is empty. Fill it in, or take the row out.")
        if sentence in first:
            raise RefbiasError(
                f"{path}, {where}: {sentence!r} stands in {first[sentence]} already. Each sentence counts once: "
                "take one out."
            )
        first[sentence] = where
        found.append(Entry(where, name, sentence))
    if not found:
        raise RefbiasError(f"{path} has no sentences. Add some.")
    return found


def keyed(path: str | None, option: str, key: str) -> list[Entry]:
    """Sentences with a key each, from CSV, JSON or YAML."""
    found = existing(path, option, f"CSV with the columns {key},sentence, or JSON or YAML {{{key}: [sentence, ...]}}")
    reader = KEYED.get(found.suffix.lower())
    if reader is None:
        raise UsageError(f"{option}={path} ends in {found.suffix!r}. Use one of {', '.join(KEYED)}.")
    return checked(found, reader(found, key), key)


def plain(path: Path) -> list[str]:
    """Sentences without a key: text one a line, CSV with a column sentence, or a JSON list."""
    suffix = path.suffix.lower()
    entries: Iterator[Entry]
    if suffix == ".csv":
        entries = (Entry(where, "", row["sentence"]) for where, row in csv_rows(path, ("sentence",)))
    elif suffix == ".json":
        content = parse_json(read_text(path), str(path))
        if not isinstance(content, list):
            raise RefbiasError(f"{path} holds a {type(content).__name__} at the top. Use a list of sentences.")
        entries = _keyed_list(path, content)
    else:
        numbered = enumerate(read_text(path).splitlines(), start=1)
        entries = (Entry(f"row {number}", "", line) for number, line in numbered if line.strip())
    return [entry.sentence for entry in checked(path, entries)]


def _keyed_list(path: Path, content: list[Any]) -> Iterator[Entry]:
    for number, sentence in enumerate(content, start=1):
        if not isinstance(sentence, str):
            raise RefbiasError(f"{path}, item {number}: {sentence!r} is not text. Put it in quotes.")
        yield Entry(f"item {number}", "", sentence)
