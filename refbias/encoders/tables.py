"""Encoders that look vectors up: word vectors, and vectors of sentences computed elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refbias.context import Context
from refbias.encoders.base import Batch, Counts
from refbias.encoders.hf import batches
from refbias.errors import RefbiasError, UsageError
from refbias.models import Model
from refbias.models.base import combined
from refbias.models.vectors import ArraysModel, TableModel, VectorsModel
from refbias.pooling import TOKEN, Pooling, built_in

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def vectors(model: Model, context: Context, *, lowercase: bool = True) -> VectorsEncoder:
    """Word vectors: the words of a sentence are its tokens, at layer 0; words without a vector are counted."""
    if not isinstance(model, VectorsModel):
        raise UsageError(f"encoder=vectors needs word vectors, and {model.name} is {model.kind}. Use encoder=auto.")
    return VectorsEncoder(model, lowercase=lowercase)


def arrays(model: Model, context: Context) -> ArraysEncoder:
    """Vectors from an npz file: sentences (n,) and vectors (n, d) or (n, L+1, d); they are pooled already."""
    if not isinstance(model, ArraysModel):
        raise UsageError(f"encoder=arrays needs an .npz file, and {model.name} is {model.kind}. Use encoder=auto.")
    return ArraysEncoder(model)


@dataclass
class _TableEncoder:
    model: TableModel
    counts: Counts = field(default_factory=Counts)
    device: str = "cpu"
    dtype: str = "float32"
    cached: bool = False

    @property
    def layers(self) -> int:
        return self.model.layers

    @property
    def dim(self) -> int:
        return self.model.dim

    @property
    def fingerprint(self) -> str:
        return combined(self.model.kind, self.model.fingerprint, str(dict(self.conventions)))

    @property
    def conventions(self) -> Mapping[str, Any]:
        return {}


@dataclass
class VectorsEncoder(_TableEncoder):
    model: VectorsModel
    lowercase: bool = True

    @property
    def conventions(self) -> Mapping[str, Any]:
        return {"lowercase": self.lowercase}

    def encode(self, sentences: Sequence[str], layers: Sequence[int], poolings: Sequence[Pooling]) -> Iterator[Batch]:
        """Yield batches of sentences with equally many known words."""
        import torch

        found = [_WORD.findall(sentence.lower() if self.lowercase else sentence) for sentence in sentences]
        index, table = self.model.select(word for words in found for word in words)
        rows = [self._rows_of(sentence, words, index) for sentence, words in zip(sentences, found, strict=True)]
        for indices in batches([len(row) for row in rows], 100_000):
            states = torch.from_numpy(table[np.array([rows[i] for i in indices])])
            mask = torch.full(states.shape[:2], TOKEN)
            pooled = {(0, pooling.key): pooling.function(states, mask).numpy() for pooling in poolings}
            tokens = [len(rows[i]) for i in indices]
            self.counts.sentences += len(indices)
            self.counts.tokens += sum(tokens)
            yield Batch(indices, pooled, tokens, [False] * len(indices))

    def _rows_of(self, sentence: str, words: Sequence[str], index: Mapping[str, int]) -> list[int]:
        found = [index[word] for word in words if word in index]
        self.counts.missing_words += len(words) - len(found)
        if not found:
            raise RefbiasError(f"Model {self.model.name} has a vector for no word of {sentence!r}. Leave it out.")
        return found


@dataclass
class ArraysEncoder(_TableEncoder):
    def encode(self, sentences: Sequence[str], layers: Sequence[int], poolings: Sequence[Pooling]) -> Iterator[Batch]:
        """Yield one batch. Raises `RefbiasError` for a sentence that the file lacks."""
        odd = [pooling.key for pooling in poolings if pooling.key != built_in("mean").key]
        if odd:
            raise UsageError(f"The vectors in {self.model.name} are pooled already: leave pooling=mean, not {odd[0]}.")
        index, rows = self.model.table
        missing = [sentence for sentence in sentences if sentence not in index]
        if missing:
            raise RefbiasError(
                f"{self.model.name} lacks {len(missing)} of {len(sentences)} sentences, first {missing[0]!r}. "
                f"Compute their vectors too, or give the sentences it holds."
            )
        if not sentences:
            return
        found = rows[[index[sentence] for sentence in sentences]]
        by_layer = {layer: found if found.ndim == 2 else found[:, layer] for layer in layers}
        self.counts.sentences += len(sentences)
        pooled = {(layer, pooling.key): by_layer[layer] for layer in layers for pooling in poolings}
        yield Batch(range(len(sentences)), pooled, [0] * len(sentences), [False] * len(sentences))
