"""One model under test: its word and sentence vectors at each layer, raw and calibrated, and what they cost.

What the tasks weat, isotropy and similarity share. Parts are resolved here; nothing knows Hydra or MLflow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from refbias.cache import Cache, open_cache
from refbias.calibration import Identity, Saved
from refbias.context import Context
from refbias.devices import resolve_device, resolve_dtype
from refbias.encoding import Embedded, embed
from refbias.errors import UsageError
from refbias.layers import parse_layers
from refbias.models import find_model
from refbias.models.base import combined
from refbias.models.vectors import ArraysModel, VectorsModel
from refbias.pooling import pooling_from_choice
from refbias.registry import Choice, registry
from refbias.types import Array
from refbias.watch import Quiet, Watch
from refbias.words import Lookup, WordVectors

if TYPE_CHECKING:
    from refbias.corpora import Corpus
    from refbias.encoders import Encoder
    from refbias.pooling import Pooling
    from refbias.sample import Sample

Vocabulary = Literal["frequent", "random"]


@dataclass
class Cost:
    """Seconds and sentences so far, as ``timings`` of a result wants them."""

    load_s: float = 0.0
    encode_s: float = 0.0
    score_s: float = 0.0
    sentences_encoded: int = 0
    sentences_from_cache: int = 0
    tokens: int = 0
    truncated: int = 0

    def add(self, found: Embedded) -> None:
        self.load_s += found.load_seconds
        self.encode_s += found.seconds - found.load_seconds
        self.sentences_encoded += found.encoded
        self.sentences_from_cache += found.from_cache
        self.tokens += found.tokens_encoded
        self.truncated += found.truncated

    @contextmanager
    def scoring(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.score_s += time.perf_counter() - began

    def timings(self) -> dict[str, float]:
        return dict(vars(self))


@dataclass(frozen=True)
class Reference:
    """How the reference sample of a calibration is drawn.

    Parameters
    ----------
    most : words of a vocabulary, or sentences where the corpus gives as many (``corpus.n``)
    vocabulary : of word vectors, the most "frequent" words (the first of the file), or "random" ones of all of it.
        The two have different means and covariances, and so do the calibrations.
    """

    most: int = 100_000
    vocabulary: Vocabulary = "frequent"

    def __post_init__(self) -> None:
        if self.most < 2:
            raise UsageError(f"sample={self.most}: a calibration needs at least 2 vectors; 100000 is the default.")
        if self.vocabulary not in get_args(Vocabulary):
            raise UsageError(f"vocabulary is one of {', '.join(get_args(Vocabulary))}: got {self.vocabulary!r}.")


@dataclass
class Subject:
    """A model that was opened with its choices; `open_subject` makes one."""

    encoder: Encoder
    layers: list[int]
    pooling: Pooling
    chosen: Mapping[str, Choice | None]
    context: Context
    reference: Reference = field(default_factory=Reference)
    cost: Cost = field(default_factory=Cost)
    _samples: dict[int, Sample] = field(default_factory=dict)

    @property
    def is_table(self) -> bool:
        """Whether these are word vectors: no layers, no sentences."""
        return isinstance(self.encoder.model, VectorsModel)

    @property
    def calibration(self) -> Choice | None:
        """The calibration that stands beside raw; None where there is none."""
        choice = self.chosen["calibration"]
        return None if choice is None or isinstance(choice.object, Identity) else choice

    @property
    def corpus(self) -> Corpus | None:
        choice = self.chosen["corpus"]
        return None if choice is None else choice.object

    def about(self) -> dict[str, Any]:
        """The block ``reference`` of result.json."""
        encoder, model = self.encoder, self.encoder.model
        return {
            "name": model.name,
            "kind": model.kind,
            "fingerprint": model.fingerprint,
            "layers": encoder.layers,
            "dim": encoder.dim,
            "dtype": encoder.dtype,
            "device": encoder.device,
            "notes": list(model.notes),
        }

    def settings(self) -> dict[str, Any]:
        """The choices by the words of the command line: ``words``, ``words.sentences`` …"""
        flat: dict[str, Any] = {"reference": self.encoder.model.name}
        for kind, choice in self.chosen.items():
            flat[kind] = choice.name if choice else None
            flat.update({f"{kind}.{name}": value for name, value in (choice.params if choice else {}).items()})
        flat |= {"task.sample": self.reference.most, "task.vocabulary": self.reference.vocabulary}
        return flat

    def words(self, words: Sequence[str], layer: int) -> WordVectors:
        """Vectors of words by the form that was chosen."""
        form: Any = self.chosen["words"]
        before, began = replace(self.encoder.counts), time.perf_counter()
        lookup = Lookup(self.encoder, list(words), layer, self.pooling, self.corpus, self.context, self.layers)
        found: WordVectors = form.object(lookup)
        seconds, loading = time.perf_counter() - began, self.encoder.counts.load_seconds - before.load_seconds
        self.cost.load_s += loading
        self.cost.encode_s += seconds - loading
        for key in ("sentences_encoded", "words_encoded"):
            self.cost.sentences_encoded += int(found.report.get(key) or 0)
        for key in ("sentences_from_cache", "words_from_cache"):
            self.cost.sentences_from_cache += int(found.report.get(key) or 0)
        self.cost.tokens += int(found.report.get("tokens_encoded") or 0)
        return found

    def sentences(self, sentences: Sequence[str]) -> dict[int, Array]:
        """Vectors of sentences (n, d) by layer, all layers in one pass."""
        context = self.context
        found = embed(self.encoder, list(sentences), self.layers, [self.pooling], context.cache, context.watch)
        self.cost.add(found)
        return {layer: found.vectors[layer, self.pooling.key].astype(np.float64) for layer in self.layers}

    def sample(self, layer: int) -> Sample:
        """The reference sample of the model at ``layer``; all layers are encoded in one pass."""
        if not self._samples:
            self._samples = self._drawn()
        return self._samples[layer]

    def _drawn(self) -> dict[int, Sample]:
        from refbias.sample import reference_sample, sentence_samples

        model, context, most = self.encoder.model, self.context, self.reference.most
        if isinstance(model, VectorsModel) and self.reference.vocabulary == "random":
            return dict.fromkeys(self.layers, random_vocabulary(model, most, context.seed))
        if isinstance(model, VectorsModel) or (isinstance(model, ArraysModel) and self.corpus is None):
            return {k: reference_sample(self.encoder, k, self.pooling, self.corpus, context, most) for k in self.layers}
        corpus = self.corpus or default_corpus(context)
        return sentence_samples(self.encoder, self.layers, self.pooling, corpus, context, most, self.cost.add)

    def fitted(self, layer: int, sample: Sample | None = None) -> Any:
        """The chosen calibration, fitted on ``sample``, by default the whole reference sample of the layer."""
        from refbias.sample import fitted

        choice = self.calibration
        if choice is None:
            raise ValueError("no calibration was chosen")
        if isinstance(choice.object, Saved):  # it needs no sample, and so no corpus
            return choice.object
        return fitted(choice.object, sample or self.sample(layer), self.context.cache)


def random_vocabulary(model: VectorsModel, most: int, seed: int) -> Sample:
    """Up to ``most`` words of the whole vocabulary, drawn at random."""
    from refbias.sample import Sample

    index, rows = model.table
    words = list(index)
    drawn = np.sort(np.random.default_rng(seed).permutation(len(words))[:most])
    items = [words[i] for i in drawn]
    places = np.array([index[word] for word in items])
    note = f"{len(items):,} words drawn at random from the vocabulary of {model.name}, seed {seed}"
    named = combined("random vocabulary", model.fingerprint, str(most), str(seed))
    return Sample("vocabulary", items, lambda some: np.asarray(rows[places[some]]), named, note)


def default_corpus(context: Context) -> Corpus:
    """The small Wikipedia sample: what a calibration is fitted on where no corpus is named."""
    from refbias.corpora.wikipedia import wikipedia

    corpus = wikipedia(seed=context.seed)
    context.watch.say(f"the calibration is fitted on corpus={corpus.name}, as no corpus is named")
    return corpus


def open_subject(
    model: Any,
    *,
    encoder: Any = "auto",
    pooling: Any = "mean",
    layer: Any = "last",
    words: Any = "auto",
    corpus: Any = None,
    calibration: Any = "none",
    device: str | None = None,
    dtype: str | None = None,
    cache: bool | str | Path | Cache = True,
    seed: int = 0,
    sample: int = 100_000,
    vocabulary: Vocabulary = "frequent",
    watch: Watch | None = None,
) -> Subject:
    """Find ``model`` and resolve what is to be done with it; its weights are loaded when they are needed.

    Parameters as in `refbias.pipeline.audit`. ``words`` is the form of word vectors, ``corpus`` running text or None;
    ``sample`` and ``vocabulary`` are those of `Reference`.
    """
    reference = Reference(sample, vocabulary)
    parts = registry()
    named = {"encoder": encoder, "pooling": pooling, "words": words, "corpus": corpus, "calibration": calibration}
    chosen = {kind: None if choice is None else parts.resolve(kind, choice, seed) for kind, choice in named.items()}
    where, store = resolve_device(device), open_cache(cache)
    context = Context(store, where, resolve_dtype(dtype, where), seed, watch or Quiet())
    made: Any = chosen["encoder"]
    opened: Encoder = made.object(find_model(model, cache=store, watch=context.watch), context)
    by_pooling: Any = chosen["pooling"]
    layers = parse_layers(layer, opened.layers)
    return Subject(opened, layers, pooling_from_choice(by_pooling), chosen, context, reference)


def described(fit: Any) -> dict[str, Any]:
    """What a fitted calibration says of itself; nothing for one of the user's own that says nothing."""
    says = getattr(fit, "describe", None)
    return dict(says()) if says else {"calibration": type(fit).__name__}
