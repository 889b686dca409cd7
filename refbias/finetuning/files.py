"""Conversations from a file of the user's own, with errors that name the row.

Rows of a CSV file are counted as a spreadsheet shows them: the header is row 1. Rows of JSONL are its lines, those of
JSON and parquet are counted from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from refbias.errors import RefbiasError, UsageError, described
from refbias.finetuning.base import Example, Lessons, Message
from refbias.finetuning.sampling import digest_of, sample
from refbias.stimuli.files import csv_rows, existing, parse_json, read_text

ROLES = ("system", "user", "assistant")
FORM = 'messages (a list of {"role", "content"}), or prompt and response'

Rows = Iterator[tuple[str, Any]]


def file(*, path: str | None = None, n: int | None = None, seed: int | None = None) -> Lessons:
    """Conversations of your own: JSONL, JSON, CSV or parquet with messages, or with prompt and response.

    ``n`` takes a sample that the seed draws; without it every row is taught.
    """
    found = existing(path, "data.path", f"JSONL, JSON, CSV or parquet with {FORM}")
    every = conversations(found, "data.path")
    examples = every if n is None else sample(every, n, seed or 0, str(path))
    return Lessons("file", examples, digest_of(examples), {"file": found.name, "rows": len(every)})


def conversations(path: Path, option: str) -> list[Example]:
    """Every row of ``path`` as an example; raises `RefbiasError` with the row for what is none."""
    examples = [Example(_messages(row, f"{path}, {where}")) for where, row in rows_of(path, option)]
    if not examples:
        raise RefbiasError(f"{path} has no rows. Expected {FORM} in each.")
    return examples


def rows_of(path: Path, option: str) -> Rows:
    """("row 2", row) of every row of a JSONL, JSON, CSV or parquet file."""
    read = READERS.get(path.suffix.lower())
    if read is None:
        raise UsageError(f"{option}={path} ends in {path.suffix!r}. Use one of {', '.join(READERS)}.")
    return read(path)


def _jsonl(path: Path) -> Rows:
    for number, line in enumerate(read_text(path).split("\n"), start=1):  # \u2028 may stand within a text
        if line.strip():
            yield f"row {number}", parse_json(line, f"{path}, row {number}")


def _json(path: Path) -> Rows:
    content = parse_json(read_text(path), str(path))
    if not isinstance(content, list):
        raise RefbiasError(f"{path} holds a {type(content).__name__} at the top. Use a list, or name it .jsonl.")
    yield from ((f"row {number}", row) for number, row in enumerate(content, start=1))


def _csv(path: Path) -> Rows:
    for where, row in csv_rows(path, ()):
        messages = row.get("messages")
        yield where, {**row, "messages": parse_json(messages, f"{path}, {where}, messages,")} if messages else row


def _parquet(path: Path) -> Rows:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError:
        raise RefbiasError(f"{path} is read with the package pyarrow. Run: pip install 'refbias[data]'") from None

    number = 0
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise RefbiasError(f"{path} cannot be read as parquet after row {number}: {described(error)}.") from None


READERS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}


def _messages(row: Any, where: str) -> list[Message]:
    if not isinstance(row, Mapping):
        raise RefbiasError(f"{where}: a {type(row).__name__} is no row. Expected {FORM}.")
    if row.get("messages") is not None:
        return checked(row["messages"], where)
    if "prompt" in row and "response" in row:
        return checked(turns(row["prompt"], row["response"]), where)
    raise RefbiasError(f"{where} has {', '.join(map(str, row)) or 'nothing'}. Expected {FORM}.")


def turns(prompt: Any, response: Any) -> list[Any]:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


def checked(messages: Any, where: str) -> list[Message]:
    """The messages, where user and assistant take turns, the assistant comes last, and nobody says nothing."""
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
        raise RefbiasError(f'{where}: messages is no list of {{"role", "content"}}.')
    for number, message in enumerate(messages, start=1):
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise RefbiasError(f"{where}: message {number} has the role {role!r}. Expected {', '.join(ROLES)}.")
        if not isinstance(content, str) or not content.strip():
            shown = (
                "is empty" if isinstance(content, str) or content is None else f"is of type {type(content).__name__}"
            )
            raise RefbiasError(f"{where}: the text of message {number} ({role}) {shown}. Fill it in, or drop the row.")
    roles = [message["role"] for message in messages]
    begin = 1 if roles[:1] == ["system"] else 0
    expected = [("user", "assistant")[i % 2] for i in range(len(roles) - begin)]
    if roles[begin:] != expected or len(expected) % 2 or not expected:
        raise RefbiasError(
            f"{where}: the roles are {', '.join(roles) or 'none'}. Expected user and assistant in turn, the assistant "
            f"last; a system message may stand first."
        )
    return [{"role": message["role"], "content": message["content"]} for message in messages]
