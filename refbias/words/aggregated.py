"""Word vectors of a contextual model from the sentences of a corpus that hold the word (Bommasani et al. 2020)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refbias.context import Context
from refbias.corpora import Corpus, wikipedia
from refbias.encoders import Encoder
from refbias.encoders.hf import Groups, HFEncoder, Pieces
from refbias.errors import UsageError
from refbias.words.alignment import Aligned, Case, Finder, Span, Why, align
from refbias.words.base import Lookup, Vectors, WordVectors
from refbias.words.drawing import drawn

FORMAT = "1"  # raise it where a change here changes vectors: cached ones are then made again
Place = tuple[str, Span]  # a sentence, and where in it a word stands

_WHY: Sequence[Why] = ("", "cut", "unknown")  # as numbers in cached rows
_LOST: Mapping[Why, str] = {
    "cut": "cut off in every sentence that was drawn for it: raise encoder.max_length",
    "unknown": "unknown to the tokenizer in every sentence that was drawn for it",
}


def aggregated(lookup: Lookup, *, sentences: int = 20, seed: int | None = None, case: Case = "exact") -> WordVectors:
    """Mean over up to ``sentences`` sentences of a corpus of the mean state of the word's tokens.

    The sentences are drawn by ``seed`` from all that hold the word, ``case`` exact as listed or fold in any case; see
    `refbias.words.drawing`. A word counts where it first stands in a sentence. Each sentence is encoded once for all
    the words in it. Raises `UsageError` for options out of range and for encoders without token states.
    """
    if sentences < 1:
        raise UsageError(f"words.sentences={sentences}: expected 1 or more.")
    context = lookup.context
    seed = context.seed if seed is None else seed
    encoder, layers = _encoder(lookup.encoder, lookup.layer, lookup.layers)
    corpus = lookup.corpus or _default_corpus(context)
    finder = Finder(lookup.words, case)
    texts = drawn(finder, corpus, sentences, seed, case, context)
    places = {
        word: [(text, span) for text in some if (span := finder.first(word, text))] for word, some in texts.items()
    }
    pairs = [place for some in places.values() for place in some]
    states, cost = _states(encoder, lookup.layer, layers, pairs, context)

    kept = {word: [place for place in some if not states[place].why] for word, some in places.items()}
    contexts = {word: np.stack([states[place].vector for place in some]) for word, some in kept.items() if some}
    used = [states[place] for place in pairs]
    report = {
        "corpus": corpus.name,
        "corpus_digest": corpus.digest,
        "corpus_notes": list(corpus.notes),
        "layer": lookup.layer,
        "sentences": sentences,
        "seed": seed,
        "case": case,
        "occurrence": "first",
        "causal": encoder.model.causal,  # then a state depends on nothing that stands after the word
        "words_with_fewer_sentences": sum(len(rows) < sentences for rows in contexts.values()),
        "pairs": len(used),
        **cost,
        "pairs_cut_off": sum(state.why == "cut" for state in used),
        "pairs_unknown": sum(state.why == "unknown" for state in used),
        "pairs_beyond_the_word": sum(state.beyond for state in used),
    }
    return WordVectors(
        form="aggregated",
        vectors={word: rows.mean(axis=0, dtype=np.float64).astype(np.float32) for word, rows in contexts.items()},
        lost={word: _lost([states[p].why for p in places[word]], corpus) for word in places if word not in contexts},
        contexts=contexts,
        sentences={word: [text for text, _ in kept[word]] for word in contexts},
        report=report,
    )


def _encoder(encoder: Encoder, layer: int, others: Sequence[int]) -> tuple[HFEncoder, list[int]]:
    """The encoder that gives token states at ``layer``, and which layers it gives besides.

    Below its first change a changed model leaves them to its base.
    """
    layers = [layer, *sorted({*others} - {layer})]
    shared = getattr(encoder, "shared", None)
    if shared is not None:
        below, base = shared
        encoder = base if layer <= below else encoder
        layers = [k for k in layers if (k <= below) == (layer <= below)]
    if not isinstance(encoder, HFEncoder):
        raise UsageError(
            f"words=aggregated needs the states of tokens, and {encoder.model.name} ({encoder.model.kind}) has none. "
            f"Use words=table for word vectors, words=isolated for vectors of sentences."
        )
    return encoder, layers


def _default_corpus(context: Context) -> Corpus:
    corpus = wikipedia(seed=context.seed)
    context.watch.say(f"no corpus is named: words in context come from corpus={corpus.name}")
    return corpus


def _lost(why: Sequence[Why], corpus: Corpus) -> str:
    return _LOST[Counter(why).most_common(1)[0][0]] if why else f"in no sentence of corpus {corpus.name}"


@dataclass(frozen=True)
class _State:
    """Mean state (d,) of the tokens of a word in one sentence; 0 where ``why`` says that there is none."""

    vector: Vectors
    why: Why
    beyond: bool  # one of its tokens stands for more than the word

    def row(self) -> Vectors:
        return np.append(self.vector, [_WHY.index(self.why), self.beyond]).astype(np.float32)

    @classmethod
    def of(cls, row: Vectors) -> _State:
        return cls(row[:-2], _WHY[int(row[-2])], bool(row[-1]))


def _states(
    encoder: HFEncoder, layer: int, layers: Sequence[int], places: Sequence[Place], context: Context
) -> tuple[dict[Place, _State], dict[str, int]]:
    """States at ``layer`` of the words at ``places``, through the cache, and what that cost.

    What is missing is encoded under the store's lock, each sentence once at all ``layers``, and each batch is kept as
    it comes.
    """
    store, watch, name = context.cache.store(encoder.fingerprint), context.watch, encoder.model.name
    keys = {place: _key(place, layer) for place in places}
    tokens = 0
    with store.lock(lambda: watch.say(f"waiting for another process that is encoding with {name}")):
        rows = store.get(list(keys.values()))
        found = {place: _State.of(rows[key]) for place, key in keys.items() if key in rows}
        spans: dict[str, list[Span]] = {}
        for text, span in keys:
            if (text, span) not in found:
                spans.setdefault(text, []).append(span)
        texts = list(spans)
        aligned: dict[int, list[Aligned]] = {}

        def group(i: int, pieces: Pieces) -> Groups:
            aligned[i] = [align(span, pieces) for span in spans[texts[i]]]
            return [word.tokens for word in aligned[i]]

        if texts:
            with watch.progress(f"encoding with {name}", len(texts), "sentences") as advance:
                for batch in encoder.encode_groups(texts, group, layers):
                    new = {
                        ((texts[i], span), k): _State(vector, word.why, word.beyond)
                        for i, by_layer in zip(batch.indices, batch.vectors, strict=True)
                        for k, vectors in zip(layers, by_layer, strict=True)
                        for span, word, vector in zip(spans[texts[i]], aligned[i], vectors, strict=True)
                    }
                    store.put({_key(place, k): state.row() for (place, k), state in new.items()})
                    found |= {place: state for (place, k), state in new.items() if k == layer}
                    tokens += sum(batch.tokens)
                    advance(len(batch.indices))
    distinct = len({text for text, _ in keys})
    cost: dict[str, Any] = {
        "distinct_sentences": distinct,
        "sentences_encoded": len(texts),
        "sentences_from_cache": distinct - len(texts),
        "tokens_encoded": tokens,
    }
    return found, cost


def _key(place: Place, layer: int) -> str:
    text, (start, end) = place
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{digest}/{layer}/word={start}-{end}/{FORMAT}"
