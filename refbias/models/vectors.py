"""Models that are tables: word vectors, and vectors of whole sentences computed elsewhere."""

from __future__ import annotations

import functools
from abc import abstractmethod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.models.base import Loaded, Model
from refbias.models.files import file_digest, files_digest


class TableModel(Model):
    """A model without layers to open: vectors by key, in ``table``."""

    def _load(self, device: str, dtype: str) -> Loaded:
        raise RefbiasError(
            f"Model {self.name} is a table of vectors, not a language model: it cannot be opened as one. "
            f"Leave encoder=auto, and use benchmark=none."
        )

    def placement(self, device: str, dtype: str) -> tuple[str, str]:
        return "cpu", "float32"

    @functools.cached_property
    @abstractmethod
    def table(self) -> tuple[dict[str, int], NDArray[np.float32]]:
        """Row of each key, and the rows."""


class VectorsModel(TableModel):
    """Word vectors: GloVe or word2vec text, or a folder with ``*_emb.npy`` and ``*_index.parquet``."""

    kind = "vectors"
    layers = 0

    def __init__(self, name: str, path: Path, cache: Cache, notes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.path = path
        self.notes = notes
        self._files = self._folder_files() if path.is_dir() else [path]
        self.fingerprint = files_digest(((f.name, f) for f in self._files), cache)
        self.dim = self._read_dim()

    def _folder_files(self) -> list[Path]:
        found = sorted(self.path.glob("*_emb.npy")) + sorted(self.path.glob("*_index.parquet"))
        if len(found) != 2:
            raise RefbiasError(f"{self.path}: expected one *_emb.npy and one *_index.parquet file of word vectors.")
        return found

    def _read_dim(self) -> int:
        if self.path.is_dir():
            return int(np.load(self._files[0], mmap_mode="r", allow_pickle=False).shape[1])
        with self.path.open(encoding="utf-8", errors="replace") as file:
            head = file.readline().split()
            line = file.readline().rstrip().split(" ") if len(head) == 2 else head
        if len(line) < 3:
            raise RefbiasError(f"{self.path}: expected lines of a word and its numbers (GloVe or word2vec text).")
        return len(line) - 1

    @functools.cached_property
    def table(self) -> tuple[dict[str, int], NDArray[np.float32]]:
        words, rows = self._from_folder() if self.path.is_dir() else self._from_text()
        if len(words) != len(rows) or rows.shape[1:] != (self.dim,):
            raise RefbiasError(f"{self.path}: {len(words)} words and vectors of shape {rows.shape} do not fit.")
        index: dict[str, int] = {}
        for row, word in enumerate(words):
            index.setdefault(word, row)  # the first, most frequent spelling wins
        return index, rows

    def _from_folder(self) -> tuple[list[str], NDArray[np.float32]]:
        import pyarrow.parquet  # type: ignore[import-untyped]

        words = pyarrow.parquet.read_table(self._files[1]).column(0).to_pylist()
        return words, np.load(self._files[0], allow_pickle=False).astype(np.float32, copy=False)

    def _from_text(self) -> tuple[list[str], NDArray[np.float32]]:
        words, rows = [], []
        with self.path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if number == 1 and len(line.split()) == 2:
                    continue  # the header of word2vec text: count and width
                word, *numbers = line.rstrip().rsplit(" ", self.dim)
                row = _numbers(" ".join(numbers))
                if len(row) != self.dim or not np.isfinite(row).all():
                    raise RefbiasError(f"{self.path}, line {number}: expected a word and {self.dim} numbers.")
                words.append(word)
                rows.append(row)
        return words, np.stack(rows)


def _numbers(text: str) -> NDArray[np.float32]:
    """The numbers in ``text``; none where it holds anything else."""
    try:
        return np.fromstring(text, np.float32, sep=" ")
    except ValueError:
        return np.empty(0, np.float32)


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
