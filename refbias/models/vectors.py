"""Models that are tables: word vectors, and vectors of whole sentences computed elsewhere."""

from __future__ import annotations

import functools
import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.models.base import Loaded, Model, combined
from refbias.models.files import file_digest, files_digest
from refbias.models.word_formats import recognised
from refbias.models.word_index import FORMAT
from refbias.models.word_sources import ArraySource, Source, StreamSource
from refbias.watch import Quiet, Watch

Rows = NDArray[np.float32]
Case = Literal["auto", "exact", "lower"]

_CASE_WORDS = 10_000


class TableModel(Model):
    """A model without layers to open: vectors by key, in ``table``."""

    def _load(self, device: str, dtype: str) -> Loaded:
        raise RefbiasError(
            f"Model {self.name} is a table of vectors, not a language model: it cannot be opened as one. "
            f"Leave encoder=auto, and use benchmark=none."
        )

    def placement(self, device: str, dtype: str) -> tuple[str, str]:
        return "cpu", "float32"

    @property
    @abstractmethod
    def table(self) -> tuple[Mapping[str, int], Rows]:
        """Row of each key, and the rows."""


class VectorsModel(TableModel):
    """Word vectors: a file or folder that `recognised` knows, or gensim's KeyedVectors from memory."""

    kind = "vectors"
    layers = 0

    def __init__(self, name: str, source: Source, fingerprint: str, notes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.fingerprint = fingerprint
        self.dim = source.dim
        self._source = source
        self._own_notes = notes

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]  # what is read says more
        return (*self._own_notes, *self._source.notes)

    @property
    def table(self) -> tuple[Mapping[str, int], Rows]:
        """Row of each word, and all rows (n, d), read once and then opened from the cache."""
        return self._source.whole

    def select(self, words: Iterable[str]) -> tuple[Mapping[str, int], Rows]:
        """The table of those of ``words``, spelled just so, that there are; no more is read than they need."""
        return self._source.select(words)

    @functools.cached_property
    def lowercased(self) -> bool:
        """Whether the vocabulary is lower-cased: none of its first 10,000 words holds a capital letter."""
        some = self._source.first_words(_CASE_WORDS)
        return any(word.upper() != word for word in some) and all(word.lower() == word for word in some)

    def find(self, words: Sequence[str], case: Case = "auto") -> Found:
        """The entries of the vocabulary that ``words`` mean, after `spellings`, in one pass where nothing is open."""
        tried = {word: spellings(word, case, case == "auto" and self.lowercased) for word in words}
        index, rows = self.select(spelling for some in tried.values() for spelling in some)
        entries = {w: entry for w, some in tried.items() if (entry := next((s for s in some if s in index), None))}
        return Found(
            vectors={word: rows[index[entry]] for word, entry in entries.items()},
            lost={word: _why_lost(word, some) for word, some in tried.items() if word not in entries},
            entries=entries,
        )

    def lookup(self, words: Sequence[str], case: Case = "auto") -> tuple[dict[str, Rows], dict[str, str]]:
        """Vectors (d,) of ``words`` that are found, and why the others are not; see `spellings`."""
        found = self.find(words, case)
        return found.vectors, found.lost

    def vocabulary_sample(self, n: int, seed: int = 0) -> tuple[list[str], Rows]:
        """The first ``n`` different words and their vectors (n, d): the most frequent ones, as such files are ordered.

        No more is read than that. ``seed`` changes nothing: it is taken so that every form of sample is asked alike.
        """
        return self._source.head(n)


@dataclass(frozen=True)
class Found:
    """Vectors (d,) by word, why the other words have none, and the entry that each word stands for."""

    vectors: dict[str, Rows]
    lost: dict[str, str]
    entries: dict[str, str]


def spellings(word: str, case: Case, lowercased: bool) -> list[str]:
    """Entries that ``word`` may stand for, in the order in which they are tried.

    The word as it is, and joined by ``_`` where it is several words (``New_York``); then both in lower case, where
    ``lowercased`` says that the vocabulary is so. ``case="exact"`` leaves the last out, ``"lower"`` the first.
    Words of an item are never looked up one by one.

    >>> spellings("New York", "auto", lowercased=True)
    ['New York', 'New_York', 'new york', 'new_york']
    """
    plain = [word, "_".join(word.split())]
    lower = [spelling.lower() for spelling in plain]
    chosen = lower if case == "lower" else plain + (lower if case == "auto" and lowercased else [])
    return list(dict.fromkeys(chosen))


def _why_lost(word: str, tried: Sequence[str]) -> str:
    several = "; the words of an item are not averaged" if len(word.split()) > 1 else ""
    return f"not in the vocabulary (tried {', '.join(map(repr, tried))}{several})"


def word_vectors(
    name: str, path: Path, cache: Cache, notes: tuple[str, ...] = (), watch: Watch | None = None
) -> VectorsModel | None:
    """The word vectors in a file or folder; None where it holds something else."""
    found = recognised(path)
    if found is None:
        return None
    if isinstance(found, ArraySource):
        return VectorsModel(name, found, files_digest(((f.name, f) for f in found.files), cache), notes)
    fingerprint = files_digest([(path.name, path)], cache)
    source = StreamSource(found, f"words-{FORMAT}-{fingerprint[:32]}", cache, watch or Quiet())
    return VectorsModel(name, source, fingerprint, notes)


def keyed_vectors(vectors: Any) -> VectorsModel:
    """gensim's KeyedVectors as they are in memory; later changes to them are not seen."""
    words, rows = list(vectors.index_to_key), np.asarray(vectors.vectors)
    name = type(vectors).__name__
    digest = hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()
    fingerprint = combined("keyed_vectors", "\n".join(words), str(rows.dtype), digest)
    return VectorsModel(name, ArraySource(name, rows.shape[1], lambda: (words, rows)), fingerprint)


class ArraysModel(TableModel):
    """An npz file with ``sentences`` (n,) and ``vectors`` (n, d) or, for all layers, (n, L+1, d)."""

    kind = "arrays"

    def __init__(self, name: str, path: Path, cache: Cache, notes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.path = path
        self.notes = notes
        self.fingerprint = file_digest(path, cache)
        rows = self.table[1]
        self.layers, self.dim = (0 if rows.ndim == 2 else rows.shape[1] - 1), int(rows.shape[-1])

    @functools.cached_property
    def table(self) -> tuple[dict[str, int], NDArray[np.float32]]:
        expected = "expected an npz with sentences (n,), text, and vectors (n, d) or (n, L+1, d), numbers"
        try:
            with np.load(self.path, allow_pickle=False) as file:
                sentences, rows = file["sentences"], file["vectors"]
                numbers = rows.astype(np.float32)
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise RefbiasError(f"{self.path}: {expected}. Reading it failed: {error}.") from None
        if sentences.ndim != 1 or numbers.ndim not in (2, 3) or len(sentences) != len(numbers):
            raise RefbiasError(f"{self.path}: {expected}; got shapes {sentences.shape} and {numbers.shape}.")
        if not np.isfinite(numbers).all():
            raise RefbiasError(f"{self.path}: vectors holds NaN or infinity.")
        return {str(sentence): row for row, sentence in enumerate(sentences)}, numbers
