"""What an encoder is: sentences in, pooled hidden states out, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from refbias.models import Model
    from refbias.pooling import Pooling

Key = tuple[int, str]  # (layer 0..L, Pooling.key)


@dataclass(frozen=True)
class Batch:
    """Vectors of a few sentences, b = len(indices).

    ``vectors[layer, pooling.key]`` is (b, d), float32. ``tokens`` and ``truncated`` say how many tokens each sentence
    has and whether it was cut; ``sink_share[layer]`` is ‖h_0‖² / Σ_t ‖h_t‖² of each sentence, where it is measured.
    """

    indices: Sequence[int]
    vectors: Mapping[Key, NDArray[np.float32]]
    tokens: Sequence[int]
    truncated: Sequence[bool]
    sink_share: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)


@dataclass
class Counts:
    """What was met on the way, in the sentences that were encoded and in those that came from the cache."""

    sentences: int = 0
    tokens: int = 0
    truncated: int = 0
    load_seconds: float = 0.0
    missing_words: int = 0  # words without a vector; word-vector models only
    sink_share: dict[int, float] = field(default_factory=dict)  # layer -> mean over sentences of ‖h_0‖² / Σ_t ‖h_t‖²


class Encoder(Protocol):
    """Turns sentences into one vector a sentence, layer and pooling.

    ``fingerprint`` names everything that a vector depends on beside the sentence, the layer and the pooling;
    it is known without loading the weights. Layer k is Hugging Face's ``hidden_states[k]``: 0 the embeddings,
    ``layers`` the last one, after the final norm. Encoders without layers say ``layers = 0``.

    Two attributes may be left out: ``cached``, False where looking a vector up costs no more than the cache would;
    and ``shared``, for a changed model (k, encoder of its base): layers 0..k are the base's, row for row.
    """

    counts: Counts

    @property
    def model(self) -> Model: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def layers(self) -> int: ...

    @property
    def dim(self) -> int: ...

    @property
    def dtype(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def conventions(self) -> Mapping[str, Any]: ...

    def encode(self, sentences: Sequence[str], layers: Sequence[int], poolings: Sequence[Pooling]) -> Iterator[Batch]:
        """Yield batches that cover every sentence once, in any order."""
        ...
