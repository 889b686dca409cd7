"""The sample of the English Wikipedia that comes with gensim's test data: about 100 articles of 2016."""

from __future__ import annotations

import bz2
import hashlib
import importlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from refbias.corpora.base import Corpus
from refbias.corpora.sentences import Limits, split
from refbias.errors import RefbiasError

_FILE = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
_NO_PROSE = re.compile(r"\s*[=*#:;|!{}<]")  # headings, list items, tables, what is left of templates
_WHOLE = re.compile(r"[\"'“‘(]?[A-Z0-9À-ÖØ-Þ].*[.!?][\"'”’)]*")
_REST = re.compile(r" [,.;:)]|\( |\(\)|[\[\]{}|]|==|https?:")  # what markup leaves behind in a sentence


def wikipedia(
    *, min_tokens: int = 7, max_tokens: int = 75, most: int = 200_000, n: int = 6000, seed: int | None = None
) -> Corpus:
    """The small Wikipedia sample in gensim's test data (2.4 MB of prose, articles of 2016).

    Of it, paragraphs of running text in articles: no headings, lists, tables, captions or references. Options as those
    of corpus=file.
    """
    limits = Limits(min_tokens, max_tokens, most, n, seed or 0)
    path = _sample()
    version = importlib.metadata.version("gensim")
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    notes = (
        f"gensim {version}, {path.name}: articles of the English Wikipedia of 2016, CC BY-SA 3.0",
        limits.note,
    )
    read = limits.reader(lambda: _sentences(path, limits), str(path))
    return Corpus("wikipedia", limits.digest(content, version), read, limits.n, notes)


def _sample() -> Path:
    found = importlib.util.find_spec("gensim")
    places = list(found.submodule_search_locations or []) if found else []
    path = Path(places[0]) / _FILE if places else None
    if path is None or not path.is_file():
        why = "gensim is not installed" if path is None else f"this gensim has no {_FILE}"
        raise RefbiasError(
            f"corpus=wikipedia is the Wikipedia sample in gensim's test data, and {why}. Install it with "
            f"pip install 'gensim>=4.3', or name a text of your own: corpus=file corpus.path=FILE."
        )
    return path


def _sentences(path: Path, limits: Limits) -> Iterator[str]:
    wiki = importlib.import_module("gensim.corpora.wikicorpus")
    with bz2.open(path) as dump:
        for _, text, _ in wiki.extract_pages(dump, ("0",)):
            for sentence in split(_prose(wiki.filter_wiki(text)), "text", limits.min_tokens, limits.max_tokens):
                if _WHOLE.fullmatch(sentence) and not _REST.search(sentence):
                    yield sentence


def _prose(text: str) -> Iterator[str]:
    """Lines of running text of a page without its markup."""
    for line in text.split("\n"):
        if line and not _NO_PROSE.match(line):
            yield line.replace("'''", "").replace("''", "")
