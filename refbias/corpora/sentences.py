"""Text to sentences: running text, one sentence a line, and the spaced tokens of WikiText."""

from __future__ import annotations

import functools
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal

import numpy as np

from refbias.errors import RefbiasError, UsageError
from refbias.models.base import combined

FORMAT = "1"  # raise it where a change here changes sentences: digests of corpora change with it
Form = Literal["auto", "text", "sentences", "wikitext"]

# Where a sentence may end: a space before something that begins one, and behind a mark or a mark and a closing quote;
# not behind an initial nor behind a usual abbreviation.
_ABBREVIATIONS = (
    *("c", "al", "ca", "cf", "Co", "Dr", "ed", "fl", "Ft", "Jr", "Lt", "Mr", "Ms", "Mt", "No", "op", "pp", "Sr", "St"),
    *("vs", "e.g", "i.e", "eds", "Fig", "fig", "Gen", "Gov", "Hon", "Inc", "Ltd", "Mrs", "Nos", "Rep", "Rev", "Sen"),
    *("Sgt", "Vol", "vol", "Bros", "Brig", "Capt", "Col", "Corp", "Prof", "approx"),
)
_OF_LENGTH = [[short for short in _ABBREVIATIONS if len(short) == k] for k in range(1, 7)]
_END = re.compile(
    r" (?=[\"'“‘(\[A-Z0-9À-ÖØ-Þ])(?:(?<=[.!?] )|(?<=[.!?][\"'”’)\]] ))(?=[\"'“‘(\[]?[A-Z0-9À-ÖØ-Þ])"
    r"(?<!\b[A-ZÀ-ÖØ-Þ]\. )"
    + "".join(rf"(?<!\b(?:{'|'.join(map(re.escape, some))})\. )" for some in _OF_LENGTH if some)
)


def paragraph(text: str) -> list[str]:
    """Sentences of one paragraph of running text, whose words are one space apart."""
    return _END.split(text)


def wikitext(line: str) -> list[str]:
    """Sentences of one line of WikiText, in its spaced tokens; nothing of a heading or of text with unknown words."""
    if line.startswith("= "):
        return []
    marks = cycle("“”")  # which quotation marks open and which close shows in the whole paragraph only
    line = re.sub('"', lambda _: next(marks), line)
    found: list[str] = []
    for piece in re.split(r"(?<= [.!?]) ", line):
        if found and piece.startswith("”"):
            found[-1], piece = f"{found[-1]} ”", piece[1:].lstrip()
        if found and (not piece or piece[0].islower() or piece[0] in ",;)"):
            found[-1] = f"{found[-1]} {piece}".rstrip()
        else:
            found.append(piece)
    return [sentence for sentence in found if "<unk>" not in sentence]


_SPACED = (
    (re.compile(r" @([-,.])@ "), r"\1"),
    (re.compile(r"“ ?"), '"'),
    (re.compile(r" ?”"), '"'),
    (re.compile(r"([(\[$£€]) "), r"\1"),
    (re.compile(r" (?=[.,;:!?%)\]]+(?:[ \"]|$))"), ""),
    (re.compile(r" (?=['’](?:s|t|re|ll|ve|d|m)\b)|(?<=s) (?=['’] )"), ""),
)


def detokenized(sentence: str) -> str:
    """A sentence of WikiText as it is written: "red @-@ tipped , 2 @.@ 7 kg ( 6 lb ) ." becomes "red-tipped, …"."""
    for pattern, plain in _SPACED:
        sentence = pattern.sub(plain, sentence)
    return sentence


SPLITTERS: Mapping[str, Callable[[str], list[str]]] = {
    "text": paragraph,
    "sentences": lambda line: [line],
    "wikitext": wikitext,
}


def form_of(beginning: str) -> str:
    """wikitext where the text shows its marks, else text."""
    return "wikitext" if re.search(r" @[-,.]@ |^ ?= .+ = ?$", beginning, re.MULTILINE) else "text"


def split(lines: Iterable[str], form: str, min_tokens: int, max_tokens: int) -> Iterator[str]:
    """Sentences of ``min_tokens`` to ``max_tokens`` tokens, as white space separates them in the text.

    A line is a paragraph. WikiText's sentences are still in its spaced tokens: see `detokenized`.
    """
    splitter, fewest = SPLITTERS[form], min_tokens - 1
    for line in lines:
        line = line.strip()
        if not line:
            continue
        if "  " in line or "\t" in line:
            line = " ".join(line.split())
        for sentence in splitter(line):
            if fewest <= sentence.count(" ") < max_tokens:
                yield sentence


def evenly(sentences: Iterable[str], most: int, rng: random.Random) -> list[str]:
    """Up to ``most`` of ``sentences``, drawn evenly from all of them (Li 1994, algorithm L); all in their order."""
    rest = iter(sentences)
    kept = list(islice(rest, most))
    weight = 1.0
    while len(kept) == most:
        weight *= math.exp(math.log(1 - rng.random()) / most)
        skipped = int(math.log(1 - rng.random()) / math.log1p(-min(weight, 1 - 2**-53)))
        entering = next(islice(rest, skipped, None), None)
        if entering is None:
            break
        kept[int(rng.random() * most)] = entering
    return kept


def sample(sentences: Iterable[str], most: int, seed: int) -> list[str]:
    """Up to ``most`` of ``sentences``, drawn evenly from all of them, in a random order."""
    rng = random.Random(seed)  # of its methods only `random` gives the same numbers in every version of Python
    kept = evenly(sentences, most, rng)
    order = np.argsort([rng.random() for _ in kept])
    return [kept[i] for i in order.tolist()]


@dataclass(frozen=True)
class Limits:
    """Which sentences of a text a corpus takes: the options that all corpora share."""

    min_tokens: int
    max_tokens: int
    most: int
    n: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.min_tokens <= self.max_tokens:
            raise UsageError(
                f"corpus.min_tokens={self.min_tokens}, corpus.max_tokens={self.max_tokens}: expected 1 or more, and "
                f"the first not above the second."
            )
        for name, value in (("most", self.most), ("n", self.n)):
            if value < 1:
                raise UsageError(f"corpus.{name}={value}: expected 1 or more.")

    @property
    def note(self) -> str:
        return f"sentences of {self.min_tokens} to {self.max_tokens} tokens, {self.most:,} at most, seed {self.seed}"

    def digest(self, *content: str) -> str:
        """Stands for a text and the sentences that are taken of it."""
        return combined(FORMAT, *content, *map(str, (self.min_tokens, self.max_tokens, self.most, self.seed)))

    def reader(
        self, sentences: Callable[[], Iterable[str]], source: str, plain: Callable[[str], str] | None = None
    ) -> Callable[[], Iterator[str]]:
        """Reads those of ``sentences()`` that are taken, each as ``plain`` writes it; they stay in memory."""

        @functools.cache
        def read() -> list[str]:
            taken = evenly(sentences(), self.most, random.Random(self.seed))
            if not taken:
                raise RefbiasError(
                    f"{source} holds no sentence of {self.min_tokens} to {self.max_tokens} tokens. Look at the text, "
                    f"corpus.min_tokens and corpus.max_tokens."
                )
            return [plain(sentence) for sentence in taken] if plain else taken

        return lambda: iter(read())
