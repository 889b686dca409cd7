"""A text file as a corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from refbias.corpora.base import Corpus
from refbias.corpora.sentences import SPLITTERS, Form, Limits, detokenized, form_of, split
from refbias.errors import RefbiasError, UsageError
from refbias.stimuli.files import existing

_BEGINNING = 500  # lines that decide the form


def file(
    *,
    path: str | None = None,
    form: Form = "auto",
    min_tokens: int = 7,
    max_tokens: int = 75,
    most: int = 200_000,
    n: int = 6000,
    seed: int | None = None,
) -> Corpus:
    """A text file of your own, ``corpus.path=FILE``: running text, one sentence a line, or WikiText.

    ``form`` says which: text (a line is a paragraph), sentences, wikitext (spaced tokens, headings left out); auto
    tells the last from the first. Sentences of ``min_tokens`` to ``max_tokens`` tokens are kept, as white space
    separates them in the file, and of these up to ``most``, drawn by ``seed``. ``n``: sample of a calibration.
    """
    found = existing(path, "corpus.path", "UTF-8 text")
    return text_corpus(f"file:{found.name}", found, form, Limits(min_tokens, max_tokens, most, n, seed or 0))


def text_corpus(name: str, path: Path, form: str, limits: Limits, notes: tuple[str, ...] = ()) -> Corpus:
    """The corpus ``name`` from the text file ``path``."""
    if form == "auto":
        form = form_of("".join(islice(_lines(path), _BEGINNING)))
    if form not in SPLITTERS:
        raise UsageError(f"corpus.form={form!r}: expected auto, {', '.join(SPLITTERS)}.")
    read = limits.reader(
        lambda: split(_lines(path), form, limits.min_tokens, limits.max_tokens),
        f"{path} ({form})",
        detokenized if form == "wikitext" else None,
    )
    left_out = ("sentences with <unk> are left out",) if form == "wikitext" else ()
    notes = (*notes, f"{form}: {limits.note}", *left_out)
    return Corpus(name, limits.digest(_digest(path), form), read, limits.n, notes)


def _lines(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 file. Decoded one by one: Python handles lines of ASCII, which most are, much faster."""
    with path.open("rb") as content:
        for number, line in enumerate(content, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise RefbiasError(f"{path}, line {number} is not UTF-8 text ({error.reason}). Save it so.") from None


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(2**22):
            digest.update(block)
    return digest.hexdigest()
