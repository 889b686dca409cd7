"""Sentences to vectors through the cache: nothing is encoded twice, and what is done survives a kill."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refbias.cache import Cache, Store, open_cache
from refbias.context import Context
from refbias.devices import resolve_device, resolve_dtype
from refbias.encoders import Batch, Encoder, Key
from refbias.errors import RefbiasError, UsageError
from refbias.layers import Spec, parse_layers
from refbias.models import find_model
from refbias.pooling import POOLINGS, Pooling, built_in, pooling_from_choice
from refbias.registry import registry
from refbias.watch import Quiet, Watch

Vectors = NDArray[np.float32]
_ABOUT = 3  # numbers at the end of a cached row: tokens, truncated, norm share of position 0


@dataclass
class Embedded:
    """Vectors by (layer, ``Pooling.key``), each (n, d) in the order of the sentences, and what they cost.

    ``encoded`` and ``from_cache`` count distinct sentences, ``tokens_encoded`` the tokens of the first;
    ``load_seconds`` is the part of ``seconds`` in which weights were loaded. ``tokens`` and ``truncated`` cover all
    distinct sentences; ``sink_share`` is by layer the mean over them of ‖h_0‖² / Σ_t ‖h_t‖², h_t the state of token t.
    """

    vectors: dict[Key, Vectors]
    encoded: int = 0
    from_cache: int = 0
    tokens: int = 0
    tokens_encoded: int = 0
    truncated: int = 0
    missing_words: int = 0
    seconds: float = 0.0
    load_seconds: float = 0.0
    sink_share: dict[int, float] = field(default_factory=dict)


def embed(
    encoder: Encoder,
    sentences: Sequence[str],
    layers: Sequence[int],
    poolings: Sequence[Pooling],
    cache: Cache,
    watch: Watch | None = None,
) -> Embedded:
    """Vectors of ``sentences`` at every layer and pooling that is asked for, from the cache where they are there.

    Whatever is missing is encoded once, under the store's lock, together with all built-in poolings, so that a sweep
    over poolings encodes nothing twice; each batch is kept as it comes.
    """
    began = time.perf_counter()
    unique = list(dict.fromkeys(sentences))
    work = _Work(unique, _families(poolings, whole=_is_cached(encoder)), {pooling.key for pooling in poolings})
    parts = _parts(encoder, layers)
    before = [replace(part.counts) for part, _ in parts]
    for part, some in parts:
        work.fill(part, some, _stores(part, cache), watch or Quiet())
    position = {sentence: i for i, sentence in enumerate(unique)}
    order = [position[sentence] for sentence in sentences]
    in_order = order == list(range(len(unique)))
    return Embedded(
        {key: rows if in_order else rows[order] for key, rows in work.vectors.items()},
        encoded=len(work.encoded),
        from_cache=len(unique) - len(work.encoded),
        tokens=int(work.tokens.sum()),
        tokens_encoded=int(work.tokens[sorted(work.encoded)].sum()),
        truncated=int(work.truncated.sum()),
        missing_words=sum(p.counts.missing_words - b.missing_words for (p, _), b in zip(parts, before, strict=True)),
        seconds=time.perf_counter() - began,
        load_seconds=sum(p.counts.load_seconds - b.load_seconds for (p, _), b in zip(parts, before, strict=True)),
        sink_share={layer: float(s.mean()) for layer, s in work.sink_share.items() if len(s) and np.isfinite(s).all()},
    )


def _parts(encoder: Encoder, layers: Sequence[int]) -> list[tuple[Encoder, list[int]]]:
    """Which encoder gives which layers: a changed model leaves those below its first change to its base."""
    shared = getattr(encoder, "shared", None)
    if shared is None:
        return [(encoder, list(layers))]
    below, base = shared
    parts = [(base, [k for k in layers if k <= below]), (encoder, [k for k in layers if k > below])]
    return [(part, some) for part, some in parts if some]


def _is_cached(encoder: Encoder) -> bool:
    return getattr(encoder, "cached", True)  # encoders of others need not say


@dataclass(frozen=True)
class _Family:
    """Poolings whose vectors lie in one cached row; ``lasting`` where other processes may read it."""

    key: str
    poolings: tuple[Pooling, ...]
    lasting: bool = True


Stores = Mapping[bool, Store]  # where rows that last go (True), and those that do not


def _stores(encoder: Encoder, cache: Cache) -> Stores:
    if not _is_cached(encoder):
        return {True: Store(None), False: Store(None)}
    return {True: cache.store(encoder.fingerprint), False: cache.memory(encoder.fingerprint)}


def _families(poolings: Sequence[Pooling], whole: bool) -> list[_Family]:
    """One family for all built-in poolings with one ``skip`` (where ``whole``), one for every other pooling."""
    found = {}
    for pooling in poolings:
        if whole and pooling.parameter_free:
            family = _Family(f"skip={pooling.skip}", tuple(built_in(name, pooling.skip) for name in POOLINGS))
        else:
            family = _Family(pooling.key, (pooling,), pooling.lasting)
        found[family.key] = family
    return list(found.values())


class _Work:
    """Vectors of the distinct sentences of one call as they come in."""

    def __init__(self, sentences: list[str], families: list[_Family], asked: set[str]) -> None:
        self.sentences = sentences
        self.families = families
        self.asked = asked
        self.vectors: dict[Key, Vectors] = {}
        self.tokens = np.zeros(len(sentences), np.int64)
        self.truncated = np.zeros(len(sentences), bool)
        self.sink_share: dict[int, Vectors] = {}
        self.encoded: set[int] = set()
        self._texts = [
            hashlib.blake2b(s.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() for s in sentences
        ]

    def fill(self, encoder: Encoder, layers: Sequence[int], stores: Stores, watch: Watch) -> None:
        for layer in layers:
            self.sink_share[layer] = np.full(len(self.sentences), np.nan, np.float32)
            for key in self.asked:
                self.vectors[layer, key] = np.empty((len(self.sentences), encoder.dim), np.float32)
        name = encoder.model.name
        with stores[True].lock(lambda: watch.say(f"waiting for another process that is encoding with {name}")):
            missing: dict[int, set[int]] = {}
            for layer in layers:
                for family in self.families:
                    absent = self._read(layer, family, stores, encoder.dim)
                    if absent:
                        missing.setdefault(layer, set()).update(absent)
            if not missing:
                return
            indices = sorted(set().union(*missing.values()))
            poolings = [pooling for family in self.families for pooling in family.poolings]
            with watch.progress(f"encoding with {name}", len(indices), "sentences") as advance:
                for batch in encoder.encode([self.sentences[i] for i in indices], list(missing), poolings):
                    rows = np.array([indices[i] for i in batch.indices])
                    self._take(batch, rows, list(missing))
                    for lasting, values in self._packed(batch, rows, list(missing)).items():
                        stores[lasting].put(values)
                    self.encoded.update(rows.tolist())
                    advance(len(rows))

    def _read(self, layer: int, family: _Family, stores: Stores, dim: int) -> list[int]:
        """Take what the stores hold; returns the indices of the sentences that they lack."""
        found = stores[family.lasting].get([self._key(i, layer, family) for i in range(len(self.sentences))])
        absent = []
        for i in range(len(self.sentences)):
            row = found.get(self._key(i, layer, family))
            if row is None or row.shape != (len(family.poolings) * dim + _ABOUT,):
                absent.append(i)
                continue
            self.tokens[i], self.truncated[i], self.sink_share[layer][i] = row[-_ABOUT:]
            for pooling, vector in zip(family.poolings, row[:-_ABOUT].reshape(-1, dim), strict=True):
                if pooling.key in self.asked:
                    self.vectors[layer, pooling.key][i] = vector
        return absent

    def _take(self, batch: Batch, rows: NDArray[np.int64], layers: Sequence[int]) -> None:
        self.tokens[rows], self.truncated[rows] = batch.tokens, batch.truncated
        for layer in layers:
            if layer in batch.sink_share:
                self.sink_share[layer][rows] = batch.sink_share[layer]
            for key in self.asked:
                self.vectors[layer, key][rows] = batch.vectors[layer, key]

    def _packed(
        self, batch: Batch, rows: NDArray[np.int64], layers: Sequence[int]
    ) -> Mapping[bool, Mapping[str, Vectors]]:
        values: dict[bool, dict[str, Vectors]] = {}
        for layer in layers:
            about = np.stack([self.tokens[rows], self.truncated[rows], self.sink_share[layer][rows]], axis=1)
            for family in self.families:
                parts = [batch.vectors[layer, pooling.key] for pooling in family.poolings]
                packed = np.concatenate([*parts, about.astype(np.float32)], axis=1)
                some = values.setdefault(family.lasting, {})
                some.update({self._key(i, layer, family): row for i, row in zip(rows, packed, strict=True)})
        return values

    def _key(self, index: int, layer: int, family: _Family) -> str:
        return f"{self._texts[index]}/{layer}/{family.key}"


def encode(
    model: Any,
    sentences: Sequence[str],
    *,
    pooling: Any = "mean",
    layer: Spec = "last",
    encoder: Any = "auto",
    device: str | None = None,
    dtype: str | None = None,
    cache: bool | str | Path | Cache = False,
) -> Vectors:
    """Vectors of ``sentences``.

    Parameters
    ----------
    model : a registered name, a path, a hub id, or a pair (transformers model, tokenizer)
    pooling, encoder : a registered name, (name, {options}), or an object of one's own
    layer : "last", an integer (0 the embeddings, L or −1 the last), a list, or "all"
    device, dtype : None chooses by the hardware
    cache : True keeps vectors in the user's cache, False in memory; or a folder, or a `refbias.cache.Cache`

    Returns
    -------
    float32 array (n, d); for a list of k layers (n, k, d), for "all" (n, L+1, d)

    Raises
    ------
    RefbiasError
        For a model that cannot be read, an empty sentence, NaN or infinity in a layer.
    """
    if isinstance(sentences, str) or not all(isinstance(sentence, str) for sentence in sentences):
        raise UsageError(f"encode needs a list of sentences: got {type(sentences).__name__}.")
    if not len(sentences):
        raise RefbiasError("encode needs at least one sentence: got none.")
    place = resolve_device(device)
    context = Context(open_cache(cache), place, resolve_dtype(dtype, place))
    made = registry().resolve("encoder", encoder).object(find_model(model, cache=context.cache), context)
    chosen = pooling_from_choice(registry().resolve("pooling", pooling))
    layers = parse_layers(layer, made.layers)
    vectors = embed(made, list(sentences), layers, [chosen], context.cache).vectors
    if isinstance(layer, (str, int)) and layer != "all":
        return vectors[layers[0], chosen.key]
    return np.stack([vectors[k, chosen.key] for k in layers], axis=1)
