"""Anchor sentences: what relative representations measure against; never scored.

A sample of n is the beginning of an order that the seed alone decides, so that a smaller sample is part of a larger.
The order is that of a hash of seed and text: the same on every machine and for every version of Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from refbias import standins
from refbias.errors import RefbiasError, UsageError
from refbias.stimuli import files, hub, packaged, upstream


def _shuffled(items: Iterable[str], *key: object) -> list[str]:
    """The items in the order that the key decides."""
    prefix = "|".join(map(str, key))
    return sorted(items, key=lambda item: hashlib.sha256(f"{prefix}|{item}".encode()).digest())


def _first(items: Sequence[str], n: int, source: str) -> list[str]:
    """The first n items; an error where n is not a size that the source has."""
    if n < 1:
        raise UsageError(f"anchors.n={n} is no number of anchors. Use anchors.n=1 to {len(items)}.")
    if n > len(items):
        raise RefbiasError(
            f"anchors.n={n} but {source} has {len(items)} sentences. Use anchors.n={len(items)} or fewer."
        )
    return list(items[:n])


def _balanced(by_group: dict[str, list[str]], seed: int) -> list[str]:
    """One sentence of each group, then a second of each, and so on: every beginning is balanced to one sentence."""
    queues = {group: _shuffled(sentences, seed, group) for group, sentences in by_group.items()}
    rounds = max(map(len, queues.values()))
    return [
        queues[group][turn]
        for turn in range(rounds)
        for group in _shuffled(queues, seed, turn)
        if turn < len(queues[group])
    ]


def neutral(*, n: int = 1000, seed: int | None = None) -> list[str]:
    """Neutral sentences of the targets' own kind, which name the 24 groups evenly."""
    ordered = _balanced(packaged.by_key("anchors/neutral.csv", "group"), seed or 0)
    return _first(ordered, n, "the neutral set")


def words(*, n: int = 1000, seed: int | None = None) -> list[str]:
    """Single everyday words, the anchors of the literature on relative representations."""
    return _first(_shuffled(packaged.lines("words.txt"), seed or 0), n, "the word list")


def _instructions(name: str, n: int, seed: int | None, path: str | None) -> list[str]:
    if path:
        texts, source = upstream.from_file(name, path), str(path)
    else:
        source = upstream.UPSTREAM[name].hub_id
        try:
            texts = hub.sample(name, max(n, hub.POOL))
        except hub.UnreachableError as why:
            texts = list(packaged.lines(f"anchors/{name}_stand_in.txt"))
            used = f"a packaged set of {len(texts):,} instruction-like sentences"
            standins.stand_in(wanted=source, used=used, why=f"{why}; anchors.path=FILE takes a local copy")
            source = "the packaged stand-in"
    return _first(_shuffled(texts, seed or 0), n, source)


def alpaca(*, n: int = 1000, seed: int | None = None, path: str | None = None) -> list[str]:
    """Instructions sampled from tatsu-lab/alpaca, or from a local copy of it."""
    return _instructions("alpaca", n, seed, path)


def tulu(*, n: int = 1000, seed: int | None = None, path: str | None = None) -> list[str]:
    """First user messages sampled from allenai/tulu-3-sft-mixture, or from a local copy of it."""
    return _instructions("tulu", n, seed, path)


def file(*, path: str | None = None, n: int | None = None, seed: int | None = None) -> list[str]:
    """Anchors of your own: text one a line, CSV with a column sentence, or a JSON list; all of them, or n by seed."""
    found = files.existing(path, "anchors.path", "text one a line, CSV with a column sentence, or a JSON list")
    sentences = files.plain(found)
    return sentences if n is None else _first(_shuffled(sentences, seed or 0), n, str(path))
