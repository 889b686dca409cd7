"""Where word vectors come from: streams, read in part or once for all, and tables whose rows can be picked."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from refbias.cache import Cache
from refbias.errors import RefbiasError, described
from refbias.models import word_index
from refbias.models.word_streams import Rows, Stream, utf8_only
from refbias.watch import Watch

Table = tuple[Mapping[str, int], Rows]  # row of each word, and the rows

_HEAD_BYTES = 2**20


class Source(Protocol):
    """Word vectors, however they are kept. ``notes`` grow with what is met on the way."""

    @property
    def dim(self) -> int: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def first_words(self, n: int) -> list[str]:
        """The first ``n`` words, fewer where there are fewer."""
        ...

    def head(self, n: int) -> tuple[list[str], Rows]:
        """The first ``n`` different words and their vectors (n, d)."""
        ...

    def select(self, words: Iterable[str]) -> Table:
        """The table of those of ``words`` that there are."""
        ...

    @property
    def whole(self) -> Table: ...


@dataclass
class ArraySource:
    """A list of words and a table of numbers (n, d); ``load`` gives both when they are needed.

    ``place`` is what messages call it, ``files`` what it depends on.
    """

    place: str
    dim: int
    load: Callable[[], tuple[Sequence[str], NDArray[Any]]]
    files: Sequence[Path] = ()
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def _loaded(self) -> tuple[Sequence[str], dict[str, int], NDArray[Any]]:
        words, rows = self.load()
        if rows.ndim != 2 or len(words) != len(rows) or rows.shape[1] != self.dim:
            raise RefbiasError(f"{self.place}: {len(words)} words and vectors of shape {rows.shape} do not fit.")
        index = _indexed(words)
        self.notes += _notes(len(words) - len(index), 0)
        return words, index, rows

    def first_words(self, n: int) -> list[str]:
        return list(self._loaded[0][:n])

    def head(self, n: int) -> tuple[list[str], Rows]:
        words = list(itertools.islice(self._loaded[1], n))
        return words, self.select(words)[1]

    def select(self, words: Iterable[str]) -> Table:
        _, index, rows = self._loaded
        found = {word: index[word] for word in words if word in index}
        numbers = list(found.values())
        return _numbered(found), self._checked(rows[numbers], numbers)

    @functools.cached_property
    def whole(self) -> Table:
        _, index, rows = self._loaded
        return index, self._checked(rows, range(len(rows)))

    def _checked(self, rows: NDArray[Any], numbers: Sequence[int]) -> Rows:
        taken = np.asarray(rows, np.float32)
        finite = np.isfinite(taken).all(axis=1)
        if not finite.all():
            row = numbers[int(np.argmin(finite))]
            raise RefbiasError(f"{self.place}, row {row + 1} ({self._loaded[0][row]!r}): expected finite numbers.")
        return taken


class StreamSource:
    """A stream: the words that are needed first are taken in one pass; whoever needs more has all of it read.

    All of it is read once, into the folder ``name`` of the cache, and opened from there in this and later runs. A
    cache in memory keeps it in memory.
    """

    def __init__(self, stream: Stream, name: str, cache: Cache, watch: Watch) -> None:
        self.dim = stream.dim
        self._stream, self._name, self._cache, self._watch = stream, name, cache, watch
        self._passed: dict[str, Rows | None] = {}
        self._duplicates = self._not_utf8 = 0

    @property
    def notes(self) -> tuple[str, ...]:
        return _notes(self._duplicates, self._not_utf8)

    def first_words(self, n: int) -> list[str]:
        return [word.decode("utf-8", "replace") for word in self._stream.first_words(n)]

    def head(self, n: int) -> tuple[list[str], Rows]:
        found: dict[str, Rows] = {}
        for block in self._stream.blocks(_HEAD_BYTES):
            (words, rows), _ = utf8_only(block)
            for word, row in zip(words, rows, strict=True):
                found.setdefault(word.decode(), row)
            if len(found) >= n:
                break
        words_found = list(found)[:n]
        return words_found, _stacked([found[word] for word in words_found], self.dim)

    def select(self, words: Iterable[str]) -> Table:
        wanted = list(dict.fromkeys(words))
        again = bool(self._passed) and any(word not in self._passed for word in wanted)
        if again or self._is_whole():  # another pass would cost about as much as all
            index, table = self.whole
            found = {word: index[word] for word in wanted if word in index}
            return _numbered(found), np.asarray(table[list(found.values())])
        if wanted and not self._passed:
            self._pass(wanted)
        rows = {word: row for word in wanted if (row := self._passed[word]) is not None}
        return _numbered(rows), _stacked(list(rows.values()), self.dim)

    def _is_whole(self) -> bool:
        return "whole" in vars(self) or (self._cache.directory is not None and self._cache.folder(self._name).is_dir())

    def _pass(self, wanted: Sequence[str]) -> None:
        self._passed = dict.fromkeys(wanted)
        for word, row in self._stream.only({word.encode("utf-8", "surrogatepass") for word in wanted}):
            if self._passed[word.decode("utf-8", "surrogatepass")] is None:
                self._passed[word.decode("utf-8", "surrogatepass")] = row
            else:
                self._duplicates += 1

    @functools.cached_property
    def whole(self) -> Table:
        if self._cache.directory is None:
            return self._in_memory()
        if not self._is_whole():
            self._watch.say(f"reading all word vectors of {self._stream.path}, once")
        folder = self._cache.build_folder(self._name, lambda folder: word_index.write(folder, self._stream.blocks()))
        try:
            index, rows, about = word_index.opened(folder)
        except (OSError, ValueError, KeyError) as error:
            raise RefbiasError(f"{folder} is damaged ({described(error)}). Remove it; it is made again.") from None
        self._duplicates, self._not_utf8 = about["duplicates"], about["not_utf8"]
        return index, rows

    def _in_memory(self) -> Table:
        words: list[str] = []
        parts = []
        self._not_utf8 = 0
        for block in self._stream.blocks():
            (some, rows), odd = utf8_only(block)
            words += [word.decode() for word in some]
            parts.append(rows)
            self._not_utf8 += odd
        index = _indexed(words)
        self._duplicates = len(words) - len(index)
        return index, np.concatenate(parts)


def _indexed(words: Sequence[str]) -> dict[str, int]:
    index: dict[str, int] = {}
    for row, word in enumerate(words):
        index.setdefault(word, row)  # the first, most frequent spelling wins
    return index


def _numbered(words: Iterable[str]) -> dict[str, int]:
    return {word: i for i, word in enumerate(words)}


def _stacked(rows: Sequence[Rows], dim: int) -> Rows:
    return np.stack(rows) if rows else np.empty((0, dim), np.float32)


def _notes(duplicates: int, not_utf8: int) -> tuple[str, ...]:
    notes = []
    if duplicates:
        notes.append(f"{duplicates} words stand in the word vectors more than once: the first of each is taken")
    if not_utf8:
        notes.append(f"{not_utf8} words in the word vectors are not UTF-8: they are left out")
    return tuple(notes)
