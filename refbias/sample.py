"""The reference sample of a model: the vectors that its calibration is fitted on, and the fit that is kept."""

from __future__ import annotations

import contextlib
import copy
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from refbias.cache import CacheWarning
from refbias.calibration import Calibration, Fitted, Identity, Saved, is_built_in, load
from refbias.encoding import Embedded, embed
from refbias.errors import RefbiasError, UsageError
from refbias.models.base import combined

if TYPE_CHECKING:
    from refbias.cache import Cache
    from refbias.context import Context
    from refbias.corpora import Corpus
    from refbias.encoders import Encoder
    from refbias.models.vectors import ArraysModel, VectorsModel
    from refbias.pooling import Pooling

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]
Fit = Callable[[Calibration], Calibration]  # a calibration that was chosen to a copy that is fitted
BLOCK = 8192  # rows that are read at a time
_FILE = "calibration.safetensors"


@dataclass(frozen=True, eq=False)
class Sample:
    """Vectors of one model, read anew whenever they are asked for.

    Parameters
    ----------
    kind : what its items are
    items : n words or sentences
    read : rows of the vectors (b, d) of the items with the given numbers
    digest : stands for the vectors: model, layer, pooling, items
    note : what it is, in words, for the record
    lasting : whether ``digest`` means the same in another process
    """

    kind: Literal["vocabulary", "sentences"]
    items: Sequence[str]
    read: Callable[[Rows], Vectors]
    digest: str
    note: str
    lasting: bool = True

    @property
    def n(self) -> int:
        return len(self.items)

    def blocks(self) -> Iterator[Vectors]:
        """All vectors in blocks (b, d) of at most 8,192."""
        for start in range(0, self.n, BLOCK):
            yield self.read(np.arange(start, min(start + BLOCK, self.n)))

    def vectors(self) -> Vectors:
        """All vectors (n, d)."""
        return np.concatenate(list(self.blocks()))

    def split(self, held_out: int, seed: int = 0) -> tuple[Sample, Sample]:
        """Two samples that share no item: the rest, to fit on, and ``held_out`` items drawn by ``seed``."""
        from refbias.isotropy import split

        rest, held = split(self.n, held_out, seed)
        named = f"{held_out} held out of {self.n} by seed {seed}"
        return self._only(rest, f"all but {named}"), self._only(held, named)

    def _only(self, rows: Rows, what: str) -> Sample:
        return replace(
            self,
            items=[self.items[i] for i in rows],
            read=lambda some: self.read(rows[some]),
            digest=combined(self.digest, what),
            note=f"{self.note}; {what}",
        )


def reference_sample(
    encoder: Encoder, layer: int, pooling: Pooling, corpus: Corpus | None, context: Context, most: int = 100_000
) -> Sample:
    """What a calibration of ``encoder``'s model is fitted on.

    Word vectors: the first ``most`` items of the vocabulary, whatever the corpus. A table of sentences: its own, where
    no corpus is given. Any other model: up to ``corpus.n`` sentences of the corpus, and ``most``, at ``layer`` by
    ``pooling``.
    """
    from refbias.models.vectors import ArraysModel, VectorsModel

    model = encoder.model
    if isinstance(model, VectorsModel):
        return vocabulary_sample(model, most)
    if isinstance(model, ArraysModel) and corpus is None:
        return _own_sentences(model, layer, most, context.seed)
    if corpus is None:
        raise UsageError(f"A calibration of {model.name} is fitted on sentences: name them with corpus=….")
    return sentence_samples(encoder, [layer], pooling, corpus, context, most)[layer]


def vocabulary_sample(model: VectorsModel, most: int) -> Sample:
    """The first ``most`` items of a vocabulary, which are its most frequent ones."""
    words, rows = model.vocabulary_sample(most)
    note = f"the first {len(words):,} items of the vocabulary of {model.name}"
    digest = combined("vocabulary", model.fingerprint, str(most))
    return Sample("vocabulary", words, lambda some: np.asarray(rows[some]), digest, note)


def _own_sentences(model: ArraysModel, layer: int, most: int, seed: int) -> Sample:
    """Up to ``most`` sentences of a table of sentence vectors."""
    index, rows = model.table
    vectors = rows if rows.ndim == 2 else rows[:, layer]
    sentences = list(index)
    if len(sentences) > most:
        drawn = np.sort(np.random.default_rng(seed).permutation(len(sentences))[:most])
        sentences = [sentences[i] for i in drawn]
    places = np.array([index[sentence] for sentence in sentences])
    note = f"{len(sentences):,} sentences of {model.name}, seed {seed}"
    digest = combined("own sentences", model.fingerprint, str(layer), str(most), str(seed))
    return Sample("sentences", sentences, lambda some: vectors[places[some]], digest, note)


def sentence_samples(
    encoder: Encoder,
    layers: Sequence[int],
    pooling: Pooling,
    corpus: Corpus,
    context: Context,
    most: int | None = None,
    met: Callable[[Embedded], None] = lambda found: None,
) -> dict[int, Sample]:
    """Up to ``corpus.n`` sentences of a corpus, drawn by the seed, as samples by layer.

    They are encoded when the first vector is asked for, at all ``layers`` together; ``met`` is told what that cost.
    """
    from refbias.corpora.sentences import sample

    count = corpus.n if most is None else min(corpus.n, most)
    sentences = list(dict.fromkeys(sample(corpus.sentences(), count, context.seed)))
    waiting = [list(layers)]

    def read(layer: int, rows: Rows) -> Vectors:
        if waiting:
            every = waiting.pop()
            for start in range(0, len(sentences), BLOCK):
                some = sentences[start : start + BLOCK]
                met(embed(encoder, some, every, [pooling], context.cache, context.watch))
        found = embed(encoder, [sentences[i] for i in rows], [layer], [pooling], context.cache, context.watch)
        return found.vectors[layer, pooling.key]

    def at(layer: int) -> Sample:
        where = f"layer {layer}, pooling {pooling.key}"
        note = f"{len(sentences):,} sentences of corpus {corpus.name}, seed {context.seed}, {where}"
        drawn = combined(corpus.digest, str(count), str(context.seed))
        digest = combined("sentences", encoder.fingerprint, drawn, str(layer), pooling.key)
        return Sample("sentences", sentences, lambda rows: read(layer, rows), digest, note, pooling.lasting)

    return {layer: at(layer) for layer in layers}


def fitted(chosen: Calibration, sample: Sample, cache: Cache) -> Calibration:
    """A copy of the calibration that was ``chosen``, fitted on ``sample``; a saved one is what it is.

    The fit of a built-in calibration is kept in the cache, so that one model is fitted once.
    """
    if isinstance(chosen, (Identity, Saved)):
        return chosen
    if not is_built_in(chosen):
        other: Calibration = copy.deepcopy(chosen).fit(sample.vectors())
        return other
    if cache.directory is None or not sample.lasting:
        return _fit(chosen, sample)
    key = combined("calibration 1", chosen.name, json.dumps(chosen.options, sort_keys=True), sample.digest)
    return _kept(chosen, sample, cache, f"calibration-{chosen.name}-{key[:16]}")


def _kept(chosen: Fitted, sample: Sample, cache: Cache, name: str) -> Fitted:
    """The fit in the folder ``name`` of the cache, made where it is not there or damaged."""
    made = None if cache.folder(name).is_dir() else _fit(chosen, sample)
    try:
        file = cache.build_folder(name, lambda folder: (made or _fit(chosen, sample)).save(folder / _FILE)) / _FILE
    except RefbiasError as error:  # a full disk, for instance: what was fitted is used all the same
        cache.warn_once(str(error))
        return made or _fit(chosen, sample)
    if made is None:
        try:
            return load(file)
        except RefbiasError as error:
            warnings.warn(f"{error} That is done now.", CacheWarning, stacklevel=2)
            made = _fit(chosen, sample)
            with contextlib.suppress(RefbiasError):  # else the next run does it again
                made.save(file)
    return made


def fitting(sample: Sample, cache: Cache, tell: Callable[[Calibration], None] = lambda made: None) -> Fit:
    """`fitted` on one sample, as `refbias.types.Space` takes it; each calibration is fitted, and told, once."""
    made: dict[int, tuple[Calibration, Calibration]] = {}

    def fit(chosen: Calibration) -> Calibration:
        if id(chosen) not in made:
            made[id(chosen)] = chosen, fitted(chosen, sample, cache)
            tell(made[id(chosen)][1])
        return made[id(chosen)][1]

    return fit


def _fit(chosen: Fitted, sample: Sample) -> Fitted:
    made = copy.deepcopy(chosen).fit_blocks(sample.blocks())
    made.fitted_on_ = sample.note
    return made
