"""The public instruction data sets that serve as anchors: what a row of theirs says, from a file or from the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from refbias.errors import RefbiasError
from refbias.stimuli import files


def alpaca_text(row: Mapping[str, Any]) -> str:
    """The instruction and, where there is one, its input."""
    return "\n".join(part for part in (row["instruction"], row.get("input") or "") if part)


def tulu_text(row: Mapping[str, Any]) -> str:
    """The first message of the user."""
    return next((message["content"] for message in row["messages"] if message["role"] == "user"), "")


class Upstream(NamedTuple):
    hub_id: str
    columns: tuple[str, ...]
    text: Callable[[Mapping[str, Any]], str]


UPSTREAM = {
    "alpaca": Upstream("tatsu-lab/alpaca", ("instruction",), alpaca_text),
    "tulu": Upstream("allenai/tulu-3-sft-mixture", ("messages",), tulu_text),
}


def unique(texts: Iterator[str]) -> list[str]:
    """The texts without blanks and repetitions: the real sets have both."""
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


def from_file(name: str, path: str) -> list[str]:
    """The texts of a local copy: JSON, JSONL, parquet or CSV in the upstream columns, or plain text one a line."""
    source = UPSTREAM[name]
    columns = ",".join(source.columns)
    found = files.existing(path, "anchors.path", f"JSON, JSONL, parquet or CSV with {columns}, or text one a line")
    rows = ROWS.get(found.suffix.lower())
    if rows is None:
        return unique(iter(files.read_text(found).splitlines()))

    def texts() -> Iterator[str]:
        for number, row in enumerate(rows(found), start=1):
            try:
                yield source.text(row)
            except (KeyError, TypeError, AttributeError):
                raise RefbiasError(
                    f"{found}, row {number}: not a row of {source.hub_id}, which has {columns}. "
                    "Use anchors=file for sentences in another form."
                ) from None

    return unique(texts())


def _json_rows(path: Path) -> Iterator[Any]:
    content = files.parse_json(files.read_text(path), str(path))
    if not isinstance(content, list):
        raise RefbiasError(
            f"{path} holds a {type(content).__name__} at the top. Use a list of rows, or name it .jsonl."
        )
    yield from content


def _jsonl_rows(path: Path) -> Iterator[Any]:
    for number, line in enumerate(files.read_text(path).splitlines(), start=1):
        if line.strip():
            yield files.parse_json(line, f"{path}, row {number},")


def _csv_rows(path: Path) -> Iterator[Any]:
    for _, row in files.csv_rows(path, ()):
        messages = row.get("messages")
        yield row | {"messages": files.parse_json(messages, str(path))} if messages else row


def _parquet_rows(path: Path) -> Iterator[Any]:
    import pyarrow.parquet  # type: ignore[import-untyped]

    for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
        yield from batch.to_pylist()


ROWS: dict[str, Callable[[Path], Iterator[Any]]] = {
    ".json": _json_rows,
    ".jsonl": _jsonl_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}
