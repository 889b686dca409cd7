"""A table of word vectors in a folder, opened at once: rows are mapped into memory, words are found by their hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from refbias.models.word_streams import Block, Rows, utf8_only

FORMAT = 1  # of the folder


class WordIndex(Mapping[str, int]):
    """Row of each word, without a dictionary of them all.

    ``hashes`` (n,) are sorted, ``rows`` (n,) are the rows they belong to, equal words in the order of the file, so
    that the first is found; ``text`` holds the words one after the other, ``ends`` (n,) where each ends.
    """

    def __init__(
        self, hashes: NDArray[np.uint64], rows: NDArray[np.int64], ends: NDArray[np.int64], text: NDArray[np.uint8]
    ) -> None:
        self._hashes, self._rows, self._ends, self._text = hashes, rows, ends, text

    def __getitem__(self, word: str) -> int:
        raw = word.encode("utf-8", "surrogatepass")
        key = np.frombuffer(digest(raw), "<u8")[0]
        at = int(np.searchsorted(self._hashes, key))
        while at < len(self._hashes) and self._hashes[at] == key:
            row = int(self._rows[at])
            if self._word(row) == raw:
                return row
            at += 1
        raise KeyError(word)

    def __iter__(self) -> Iterator[str]:
        repeated = set(self._repeated().tolist())
        for row in range(len(self._ends)):
            if row not in repeated:
                yield self._word(row).decode()

    def __len__(self) -> int:
        return len(self._ends) - len(self._repeated())

    def _word(self, row: int) -> bytes:
        return self._text[self._ends[row - 1] if row else 0 : self._ends[row]].tobytes()

    def _repeated(self) -> NDArray[np.int64]:
        return self._rows[1:][self._hashes[1:] == self._hashes[:-1]]


def digest(word: bytes) -> bytes:
    return hashlib.blake2b(word, digest_size=8).digest()


def write(folder: Path, blocks: Iterable[Block]) -> None:
    """Write a table into ``folder``, one block in memory at a time; the words' hashes stay (16 bytes a word)."""
    digests, lengths, dim, not_utf8 = [], [], 0, 0
    with (folder / "vectors.f32").open("wb") as numbers, (folder / "words").open("wb") as text:
        for block in blocks:
            (words, rows), odd = utf8_only(block)
            dim, not_utf8 = rows.shape[1], not_utf8 + odd
            numbers.write(np.ascontiguousarray(rows, "<f4").data)
            text.write(b"".join(words))
            lengths += [len(word) for word in words]
            digests.append(b"".join([digest(word) for word in words]))
        text.write(b"\n")  # an empty file cannot be mapped
    hashes = np.frombuffer(b"".join(digests), "<u8")
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    np.save(folder / "hashes.npy", ordered)
    np.save(folder / "rows.npy", order)
    np.save(folder / "ends.npy", np.cumsum(lengths, dtype=np.int64))
    about = {
        "words": len(hashes),
        "dim": dim,
        "duplicates": int((ordered[1:] == ordered[:-1]).sum()),
        "not_utf8": not_utf8,
    }
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


def opened(folder: Path) -> tuple[WordIndex, Rows, dict[str, int]]:
    """The table that `write` left in ``folder``: index, rows (n, d), and counts of duplicates and of odd words."""
    about: dict[str, int] = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    rows = np.memmap(folder / "vectors.f32", "<f4", "r", shape=(about["words"], about["dim"]))
    hashes, numbers, ends = (
        np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ("hashes", "rows", "ends")
    )
    return WordIndex(hashes, numbers, ends, np.memmap(folder / "words", np.uint8, "r")), rows, about
