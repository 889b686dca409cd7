"""Files in which words and their numbers take turns: GloVe, word2vec and fastText, as text or binary, also gzipped.

Words are bytes here: nothing is decoded that nobody asks for.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from refbias.errors import RefbiasError

Rows = NDArray[np.float32]
Block = tuple[list[bytes], Rows]  # b words and their vectors (b, d)

_BLOCK = 2**24  # bytes
_LONGEST_WORD = 2**16  # bytes
_LARGEST = 1e10  # no word vector holds larger numbers; bytes that are no numbers at all soon do
_HEADER = re.compile(rb"\s*(\d+)\s+(\d+)\s*")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_FASTTEXT = (793712314).to_bytes(4, "little")


class Stream(Protocol):
    """A file of word vectors that can only be read from its beginning."""

    @property
    def path(self) -> Path: ...

    @property
    def dim(self) -> int: ...

    def first_words(self, n: int) -> list[bytes]:
        """The first ``n`` words."""
        ...

    def blocks(self, size: int = _BLOCK) -> Iterator[Block]:
        """All words and vectors, ``size`` bytes of the file at a time. Raises `RefbiasError` with the bad line."""
        ...

    def only(self, wanted: Collection[bytes]) -> Iterator[tuple[bytes, Rows]]:
        """The vectors (d,) of ``wanted``, in one pass that turns nothing else into numbers."""
        ...


def recognised_stream(path: Path) -> Stream | None:
    """The file as text or binary, by its first lines; None where they hold no word and its numbers."""
    with unpacked(path) as file:
        first = file.readline(2**20)
        second = file.read(2**16)
    if first.startswith(_FASTTEXT):
        raise RefbiasError(
            f"{path} is a model in fastText's own format. Give its .vec file, or convert it once in Python: "
            f"gensim.models.fasttext.load_facebook_vectors({str(path)!r}).save_word2vec_format('vectors.vec')."
        )
    header = _HEADER.fullmatch(first)
    if header is None:
        return _headless(path, first)
    count, dim = int(header[1]), int(header[2])
    if not count or dim < 2:
        return None
    line = second.partition(b"\n")[0]
    if not _are_numbers(line.split()[-dim:]) and _CONTROL.search(second):
        return BinaryFile(path, dim, count)
    return TextFile(path, dim, _separator(line), count)


def utf8_only(block: Block) -> tuple[Block, int]:
    """The block without the words that are not UTF-8, which nobody can ask for, and how many those are."""
    words, rows = block
    odd = {i for i, word in enumerate(words) if not word.isascii() and not _is_utf8(word)}
    if not odd:
        return block, 0
    return ([word for i, word in enumerate(words) if i not in odd], np.delete(rows, sorted(odd), axis=0)), len(odd)


def _is_utf8(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True


def _headless(path: Path, first: bytes) -> Stream | None:
    separator = _separator(first)
    numbers = first.rstrip().split(separator)[1:]
    if len(numbers) < 2 or not _are_numbers(numbers[-2:]):
        return None
    return TextFile(path, len(numbers), separator, None)


def _separator(line: bytes) -> bytes:
    return b"\t" if b"\t" in line.strip() else b" "


def _are_numbers(words: Sequence[bytes]) -> bool:
    try:
        return bool(words) and all(np.isfinite([float(word) for word in words]))
    except ValueError:
        return False


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """The bytes of a file, unpacked where it is gzipped."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with path.open("rb", buffering=2**20) as file:
            yield gzip.GzipFile(fileobj=file) if packed else file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RefbiasError(f"{path} is damaged or cut short ({error}). Fetch it again.") from None


@dataclass(frozen=True)
class TextFile:
    """Lines of a word and ``dim`` numbers; ``count`` is the number of words where a first line says it."""

    path: Path
    dim: int
    separator: bytes
    count: int | None

    @contextmanager
    def _lines(self) -> Iterator[tuple[IO[bytes] | gzip.GzipFile, int]]:
        """The file at its first word, and the number of that line."""
        with unpacked(self.path) as file:
            if self.count is not None:
                file.readline()
            yield file, 1 if self.count is None else 2

    def first_words(self, n: int) -> list[bytes]:
        with self._lines() as (file, start):
            return [self._part(line, number)[0] for number, line in enumerate(itertools.islice(file, n), start)]

    def blocks(self, size: int = _BLOCK) -> Iterator[Block]:
        with self._lines() as (file, start):
            number = start
            while lines := file.readlines(size):
                yield self._block(lines, number)
                number += len(lines)
        self._check_count(number - start)

    def only(self, wanted: Collection[bytes]) -> Iterator[tuple[bytes, Rows]]:
        separator = self.separator
        begins = {word.partition(separator)[0] for word in wanted}
        with self._lines() as (file, start):
            number = start - 1
            for number, line in enumerate(file, start):
                if line[: line.find(separator)] in begins:
                    word, _, numbers = self._part(line, number)
                    if word in wanted:
                        yield word, self._row(numbers, number)
        self._check_count(number - start + 1)

    def _block(self, lines: list[bytes], first: int) -> Block:
        separator, between = self.separator, self.dim - 1
        parts = [line.rstrip().partition(separator) for line in lines]
        for i, part in enumerate(parts):
            if part[2].count(separator) != between:
                parts[i] = self._part(lines[i], first + i)
        words = [word for word, _, _ in parts]
        rows = self._table([numbers for _, _, numbers in parts])
        if rows is None:  # to name the line
            rows = np.stack([self._row(numbers, first + i) for i, (_, _, numbers) in enumerate(parts)])
        return words, rows

    def _part(self, line: bytes, number: int) -> tuple[bytes, bytes, bytes]:
        """Word, separator, numbers. The word may hold separators itself, and there may be several in a row."""
        part = line.rstrip().partition(self.separator)
        if part[2].count(self.separator) == self.dim - 1:
            return part
        word, *numbers = line.rsplit(None, self.dim) or [b""]
        if len(numbers) != self.dim:
            raise self._wrong(number)
        return word, self.separator, self.separator.join(numbers)

    def _table(self, numbers: list[bytes]) -> Rows | None:
        """All numbers of a block at once; None where one is none or not finite."""
        import pandas

        try:
            with np.errstate(over="ignore"):
                table = pandas.read_csv(
                    io.BytesIO(b"\n".join(numbers)),
                    sep=self.separator.decode(),
                    header=None,
                    dtype=np.float32,
                    na_filter=False,
                    quoting=csv.QUOTE_NONE,
                    lineterminator="\n",
                )
        except ValueError:
            return None
        rows: Rows = table.to_numpy()
        return rows if rows.shape == (len(numbers), self.dim) and np.isfinite(rows).all() else None

    def _row(self, numbers: bytes, number: int) -> Rows:
        try:
            with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and refused as such
                row = np.array([float(value) for value in numbers.split(self.separator)], np.float32)
        except ValueError:
            raise self._wrong(number) from None
        if not np.isfinite(row).all():
            raise self._wrong(number)
        return row

    def _wrong(self, number: int) -> RefbiasError:
        return RefbiasError(f"{self.path}, line {number}: expected a word and {self.dim} numbers, all of them finite.")

    def _check_count(self, found: int) -> None:
        if self.count not in (None, found):
            raise RefbiasError(
                f"{self.path}: its first line says {self.count} words, and {found} follow. Fetch it again."
            )


@dataclass(frozen=True)
class BinaryFile:
    """word2vec's binary form: ``count`` times a word, a space and ``dim`` numbers of four bytes."""

    path: Path
    dim: int
    count: int

    def first_words(self, n: int) -> list[bytes]:
        return [word for word, _ in itertools.islice(self._records(2**20), n)]

    def blocks(self, size: int = _BLOCK) -> Iterator[Block]:
        records, done = self._records(size), 0
        while some := list(itertools.islice(records, max(size // (4 * self.dim), 1))):
            yield [word for word, _ in some], self._numbers(b"".join([raw for _, raw in some]), done)
            done += len(some)

    def only(self, wanted: Collection[bytes]) -> Iterator[tuple[bytes, Rows]]:
        for row, (word, raw) in enumerate(self._records(_BLOCK)):
            if word in wanted:
                yield word, self._numbers(raw, row)[0]

    def _records(self, size: int) -> Iterator[tuple[bytes, bytes]]:
        width = 4 * self.dim
        with unpacked(self.path) as file:
            file.readline()
            data, at = b"", 0
            for row in range(self.count):
                while (space := data.find(b" ", at)) < 0 or len(data) < space + 1 + width:
                    more = file.read(size)
                    if not more or (space < 0 and len(data) - at > _LONGEST_WORD):
                        raise self._wrong(row, "the file ends there" if not more else "no word begins there")
                    data, at = data[at:] + more, 0
                yield data[at:space].lstrip(b"\n"), data[space + 1 : space + 1 + width]  # some writers end the line
                at = space + 1 + width
            if (data[at:] + file.read(2)).strip():
                raise RefbiasError(f"{self.path}: its first line says {self.count} words, and more bytes follow them.")

    def _numbers(self, raw: bytes, first: int) -> Rows:
        rows = np.frombuffer(raw, "<f4").reshape(-1, self.dim)
        sane = (np.abs(rows) < _LARGEST).all(axis=1)  # False for NaN as well
        if not sane.all():
            raise self._wrong(first + int(np.argmin(sane)), "there are none (a space in a word shifts them)")
        return rows

    def _wrong(self, row: int, why: str) -> RefbiasError:
        return RefbiasError(
            f"{self.path}, word {row + 1} of {self.count}: expected a word without spaces and {self.dim} numbers of "
            f"four bytes, and {why}. Fetch the file again, or give the vectors as text."
        )
