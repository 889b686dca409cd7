"""Which sentences of a corpus stand for a word."""

from __future__ import annotations

import hashlib
import json
from bisect import insort
from collections.abc import Iterable

import numpy as np

from refbias.context import Context
from refbias.corpora import Corpus
from refbias.models.base import combined
from refbias.words.alignment import Case, Finder

FORMAT = "1"  # raise it where a change here changes draws: kept ones are then made again


def draw(finder: Finder, texts: Iterable[str], most: int, seed: int) -> dict[str, list[str]]:
    """Up to ``most`` of the distinct ``texts`` that hold each word, drawn without replacement, in one pass.

    Those with the smallest hash of ``seed`` and text are taken: the draw of one word does not depend on the others nor
    on the order of the texts, and a smaller draw is the beginning of a larger one.
    """
    salt = hashlib.blake2b(str(seed).encode(), digest_size=16).digest()
    chosen: dict[str, list[tuple[bytes, str]]] = {word: [] for word in finder.words}
    limits = dict.fromkeys(chosen, b"\xff" * 9)  # hash of the last text that is in, once there are enough
    text, rank = "", b""
    for sentence, word in finder.candidates(texts):
        if sentence is not text:
            text, rank = sentence, hashlib.blake2b(sentence.encode(), digest_size=8, salt=salt).digest()
        if rank >= limits[word]:
            continue
        some = chosen[word]
        if (rank, text) not in some and finder.first(word, text):
            insort(some, (rank, text))
            if len(some) >= most:
                del some[most:]
                limits[word] = some[-1][0]
    return {word: [text for _, text in some] for word, some in chosen.items()}


def drawn(finder: Finder, corpus: Corpus, most: int, seed: int, case: Case, context: Context) -> dict[str, list[str]]:
    """`draw` from a corpus, which is read only where a word's draw is not in the cache yet."""
    store = context.cache.store(f"corpus-{combined(FORMAT, corpus.digest)[:40]}")
    keys = {word: combined(word, str(most), str(seed), case) for word in finder.words}
    with store.lock(lambda: context.watch.say("waiting for another process that reads the corpus")):
        kept = store.get(list(keys.values()))
        found = {word: json.loads(kept[key].tobytes()) for word, key in keys.items() if key in kept}
        missing = [word for word in keys if word not in found]
        if missing:
            context.watch.say(f"looking {len(missing)} words up in corpus={corpus.name}")
            found |= draw(Finder(missing, case), corpus.sentences(), most, seed)
            store.put({keys[word]: np.frombuffer(json.dumps(found[word]).encode(), np.uint8) for word in missing})
    return {word: found[word] for word in keys}
