"""Words in sentences, and the tokens that a word is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np

from refbias.errors import RefbiasError, UsageError

if TYPE_CHECKING:
    from refbias.encoders.hf import Pieces

Case = Literal["exact", "fold"]
Span = tuple[int, int]  # characters start..end of a sentence, end not included
Why = Literal["", "cut", "unknown"]

# A hyphen or apostrophe inside a word belongs to it, but 's and the like are words of their own.
_LEFT = r"(?<!\w)(?<!\w[-‐‑'’])"
_RIGHT = r"(?!\w)(?![-‐‑]\w)(?!['’]t\b)"

_RUNS = bytes(c if c == ord("\n") or re.match(rb"[A-Za-z0-9_]", bytes([c])) else ord(" ") for c in range(256))
_CHUNK = 1000  # sentences that are searched at a time
_LONGEST = 31  # runs of letters from here on are alike to the first look at them


class Finder:
    """Finds ``words`` in sentences, as listed (``case="exact"``) or in any case (``"fold"``).

    A word stands between characters that are no letters or digits; "mother" is not in "mother-in-law" nor "don" in
    "don't", but "women" is in "women's". Words may hold spaces, hyphens and anything else.
    """

    def __init__(self, words: Iterable[str], case: Case = "exact") -> None:
        if case not in ("exact", "fold"):
            raise UsageError(f"words.case={case!r}: expected exact or fold.")
        self.words = list(dict.fromkeys(words))
        self._fold = case == "fold"
        self._table = _RUNS.lower() if self._fold else _RUNS
        self._patterns = {word: _pattern(word, self._fold) for word in self.words}
        self._by_run: dict[bytes, list[str]] = {}  # the longest run of ASCII letters in a word -> words
        self._without_run: list[str] = []
        for word in self.words:
            runs = word.encode().translate(self._table).split()
            if runs:
                self._by_run.setdefault(max(runs, key=len), []).append(word)
            else:
                self._without_run.append(word)
        self._shapes = np.zeros((256, 256, _LONGEST + 1), bool)
        for run in self._by_run:
            self._shapes[run[0], run[-1], min(len(run), _LONGEST)] = True

    def first(self, word: str, sentence: str) -> Span | None:
        """Where ``word`` stands first in ``sentence``."""
        found = self._patterns[word].search(sentence)
        return found.span() if found else None

    def candidates(self, sentences: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Pairs of a sentence and a word that it may hold; `first` says whether it does. No pair is left out."""
        rest = iter(sentences)
        while chunk := list(islice(rest, _CHUNK)):
            yield from self._by_runs(chunk)
            for word in self._without_run:
                for sentence in chunk:
                    if (word.lower() in sentence.lower()) if self._fold else (word in sentence):
                        yield sentence, word

    def _by_runs(self, chunk: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Pairs for the words with ASCII letters, many sentences at a time.

        Of all runs of letters only those are looked up whose first and last letter and length are those of a word.
        """
        text = "\n".join(chunk).encode().translate(self._table)
        letters = np.frombuffer(text, np.uint8)
        inside = np.concatenate([[False], letters > ord(" "), [False]])
        edges = np.flatnonzero(inside[1:] != inside[:-1])
        starts, ends = edges[0::2], edges[1::2]
        alike = self._shapes[letters[starts], letters[ends - 1], np.minimum(ends - starts, _LONGEST)]
        starts, ends = starts[alike], ends[alike]
        breaks = np.flatnonzero(letters == ord("\n"))
        if len(breaks) != len(chunk) - 1:
            raise RefbiasError("A sentence of the corpus holds a line break: expected one line a sentence.")
        by_run = self._by_run
        rows = np.searchsorted(breaks, starts)
        for start, end, row in zip(starts.tolist(), ends.tolist(), rows.tolist(), strict=True):
            for word in by_run.get(text[start:end], ()):
                yield chunk[row], word


def _pattern(word: str, fold: bool) -> re.Pattern[str]:
    if not word.strip():
        raise UsageError(f"A word to look up is empty: {word!r}. Take it out of the list.")
    left = _LEFT if re.match(r"\w", word[0]) else ""
    right = _RIGHT if re.match(r"\w", word[-1]) else ""
    return re.compile(left + re.escape(word) + right, re.IGNORECASE if fold else 0)


@dataclass(frozen=True)
class Aligned:
    """Positions of a word's tokens; none where ``why`` says so: the word was cut off, or a token is unknown.

    ``beyond`` says that a token stands for more than the word ("love," in one piece).
    """

    tokens: Sequence[int]
    beyond: bool = False
    why: Why = ""


def align(span: Span, pieces: Pieces) -> Aligned:
    """The tokens that stand for a character of ``span``."""
    start, end = span
    spans = pieces.spans
    tokens = [i for i, (left, right) in enumerate(spans) if left < end and right > start and right > left]
    if pieces.truncated:
        kept = [s for s in spans if s[1] > s[0]]
        if not kept or start < min(left for left, _ in kept) or end > max(right for _, right in kept):
            return Aligned((), why="cut")
    if not tokens or any(pieces.unknown[i] for i in tokens):
        return Aligned((), why="unknown")
    beyond = min(spans[i][0] for i in tokens) < start or max(spans[i][1] for i in tokens) > end
    return Aligned(tokens, beyond)
