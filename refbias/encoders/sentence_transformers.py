"""Models of the sentence-transformers library: as `hf`, with what their modules.json says about their own pooling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refbias.context import Context
from refbias.encoders.base import Batch
from refbias.encoders.hf import HFEncoder, hf
from refbias.errors import RefbiasError, UsageError
from refbias.models.base import combined
from refbias.models.hf import SentenceTransformersModel
from refbias.pooling import Pooling


def sentence_transformers(
    model: Any, context: Context, *, max_length: int | None = None, batch_tokens: int = 1024
) -> SentenceTransformersEncoder:
    """What the model's own modules.json implies: at the last layer its own pooling is normalised as it says.

    Other layers and poolings are those of `hf`, without normalisation.
    """
    if not isinstance(model, SentenceTransformersModel):
        raise UsageError(
            f"encoder=sentence_transformers needs a folder with modules.json, and {model.name} is {model.kind}. "
            f"Use encoder=auto."
        )
    if model.unsupported:
        raise RefbiasError(
            f"Model {model.name}: modules.json names {', '.join(model.unsupported)}, which refbias does not apply. "
            f"Use encoder=hf for the hidden states without it."
        )
    inner = hf(model, context, max_length=max_length or model.max_length, batch_tokens=batch_tokens)
    return SentenceTransformersEncoder(**vars(inner))


@dataclass
class SentenceTransformersEncoder(HFEncoder):
    """The encoder `sentence_transformers` made; ``model`` is a `SentenceTransformersModel`."""

    @property
    def conventions(self) -> Mapping[str, Any]:
        own = {"own_pooling": self._own.pooling, "normalize": self._own.normalize}
        return {**super().conventions, **own}

    @property
    def fingerprint(self) -> str:
        return combined("sentence_transformers", super().fingerprint)

    @property
    def _own(self) -> SentenceTransformersModel:
        if not isinstance(self.model, SentenceTransformersModel):
            raise TypeError(f"{self.model} is no sentence-transformers model")
        return self.model

    def encode(self, sentences: Sequence[str], layers: Sequence[int], poolings: Sequence[Pooling]) -> Iterator[Batch]:
        own = {(self.layers, p.key) for p in poolings if p.name == self._own.pooling and p.skip == "none"}
        for batch in super().encode(sentences, layers, poolings):
            vectors = dict(batch.vectors)
            for key in own & set(vectors) if self._own.normalize else ():
                vectors[key] = vectors[key] / np.linalg.norm(vectors[key], axis=1, keepdims=True)
            yield replace(batch, vectors=vectors)
