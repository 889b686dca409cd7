"""Transformer models: sentences to token states to pooled vectors, layer by layer as the layers are produced."""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from refbias.context import Context
from refbias.encoders.base import Batch, Counts, Key
from refbias.errors import RefbiasError, UsageError
from refbias.models import DerivedModel, Loaded, Model
from refbias.models.base import combined
from refbias.pooling import SPECIAL, TOKEN, Pooling, Skip

if TYPE_CHECKING:
    import torch

FORMAT = "1"  # raise it where a change here changes vectors: cached ones are then encoded again
LayerSite = Literal["post_norm", "pre_norm"]
T = TypeVar("T")
R = TypeVar("R")
Receive = Callable[[int, "torch.Tensor"], None]
Groups = Sequence[Sequence[int]]  # positions of tokens in one sentence, a few groups of them
_WORD_START = "\u2581\u0120 "  # how SentencePiece and byte-level BPE write the space before a word


def hf(
    model: Model,
    context: Context,
    *,
    special_tokens: bool = True,
    chat_template: bool = False,
    layer_site: LayerSite = "post_norm",
    max_length: int | None = None,
    batch_tokens: int = 1024,
) -> HFEncoder:
    """Hidden states of a transformer model, decoder or encoder.

    ``special_tokens`` lets the tokenizer add its own (BOS, CLS …); ``chat_template`` makes a user turn of each
    sentence; ``layer_site`` is where the last layer is read; longer sentences are cut at ``max_length`` tokens
    (None: the model's own limit) and counted; ``batch_tokens`` bounds the tokens of one forward pass.
    """
    if model.kind in ("vectors", "arrays"):
        raise UsageError(f"encoder=hf needs a transformer model, and {model.name} is {model.kind}. Use encoder=auto.")
    if layer_site not in ("post_norm", "pre_norm"):
        raise UsageError(f"encoder.layer_site={layer_site!r}: expected post_norm or pre_norm.")
    for name, value in (("max_length", max_length), ("batch_tokens", batch_tokens)):
        if value is not None and value < 1:
            raise UsageError(f"encoder.{name}={value}: expected 1 or more.")
    device, dtype = model.placement(context.device, context.dtype)
    return HFEncoder(model, device, dtype, special_tokens, chat_template, layer_site, max_length, batch_tokens)


@dataclass
class HFEncoder:
    model: Model
    device: str
    dtype: str
    special_tokens: bool = True
    chat_template: bool = False
    layer_site: LayerSite = "post_norm"
    max_length: int | None = None
    batch_tokens: int = 1024
    counts: Counts = field(default_factory=Counts)
    cached: bool = True

    @property
    def layers(self) -> int:
        return self.model.layers

    @property
    def dim(self) -> int:
        return self.model.dim

    @property
    def conventions(self) -> Mapping[str, Any]:
        return {
            "layer_site": self.layer_site,
            "special_tokens": self.special_tokens,
            "chat_template": self.chat_template,
            "max_length": self.max_length,
        }

    @property
    def fingerprint(self) -> str:
        settings = [f"{name}={value}" for name, value in sorted(self.conventions.items())]
        return combined("hf", FORMAT, self.model.fingerprint, self.dtype, *settings)

    @property
    def shared(self) -> tuple[int, HFEncoder] | None:
        if isinstance(self.model, DerivedModel) and self.model.shared_below is not None:
            return self.model.shared_below, replace(self, model=self.model.base, counts=Counts())
        return None

    def encode(self, sentences: Sequence[str], layers: Sequence[int], poolings: Sequence[Pooling]) -> Iterator[Batch]:
        """Yield batches of sentences of equal length in tokens, the longest first: nothing is ever padded.

        Raises `RefbiasError` for a sentence without tokens and for NaN or infinity in a layer.
        """
        start = time.perf_counter()
        with self.model.open(self.device, self.dtype) as loaded:
            self.counts.load_seconds += time.perf_counter() - start
            rows = self._tokenize(loaded, sentences)
            for pooling in poolings:
                self._check_tokens_left(sentences, rows, pooling)
            parts = list(batches([len(row.ids) for row in rows], self.batch_tokens))
            with _Forward(loaded, self.model, layers, self.layer_site).hooked() as forward:

                def work(indices: Sequence[int]) -> Batch:
                    return self._encode_batch(forward, indices, [rows[i] for i in indices], poolings)

                for batch in side_by_side(work, parts, workers=8 if self.device == "cpu" else 1):
                    self._check_finite(batch, sentences)
                    self.counts.sentences += len(batch.indices)
                    self.counts.tokens += sum(batch.tokens)
                    self.counts.truncated += sum(batch.truncated)
                    yield batch

    def encode_groups(
        self, sentences: Sequence[str], group: Callable[[int, Pieces], Groups], layers: Sequence[int]
    ) -> Iterator[GroupBatch]:
        """Mean states at ``layers`` of groups of tokens: ``group(i, pieces)`` says which, for sentence number i.

        A group may be empty: its vector is 0. Batches are those of `encode`, as are the errors; and `RefbiasError` for
        a tokenizer that does not say which characters its tokens stand for.
        """
        start = time.perf_counter()
        with self.model.open(self.device, self.dtype) as loaded:
            self.counts.load_seconds += time.perf_counter() - start
            rows = self._tokenize(loaded, sentences, located=True)
            groups = [group(i, row.pieces) for i, row in enumerate(rows)]
            parts = list(batches([len(row.ids) for row in rows], self.batch_tokens))
            with _Forward(loaded, self.model, layers, self.layer_site).hooked() as forward:

                def work(indices: Sequence[int]) -> GroupBatch:
                    some = [rows[i] for i in indices]
                    means = self._group_means(forward, some, [groups[i] for i in indices])
                    vectors = np.stack([means[layer] for layer in layers], axis=1)  # (b, layers, most groups, d)
                    kept = [vectors[j, :, : len(groups[i])] for j, i in enumerate(indices)]
                    return GroupBatch(indices, kept, [len(row.ids) for row in some])

                for batch in side_by_side(work, parts, workers=8 if self.device == "cpu" else 1):
                    for index, vectors in zip(batch.indices, batch.vectors, strict=True):
                        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=(1, 2)))
                        if len(bad):
                            raise self._not_finite(layers[bad[0]], "mean of a word", sentences[index])
                    self.counts.sentences += len(batch.indices)
                    self.counts.tokens += sum(batch.tokens)
                    self.counts.truncated += sum(rows[i].truncated for i in batch.indices)
                    yield batch

    def _group_means(
        self, forward: _Forward, rows: Sequence[_Row], groups: Sequence[Groups]
    ) -> dict[int, NDArray[np.float32]]:
        """By layer, mean states (b, most groups in a sentence, d)."""
        import torch

        weights = torch.zeros(len(rows), max(map(len, groups)), len(rows[0].ids))
        for i, row in enumerate(groups):
            for j, positions in enumerate(row):
                weights[i, j, list(positions)] = 1 / max(1, len(positions))
        weights = weights.to(self.device)
        means: dict[int, torch.Tensor] = {}

        def receive(layer: int, states: torch.Tensor) -> None:
            means[layer] = weights @ states.float()

        self._run(forward, rows, receive)
        return {layer: mean.cpu().numpy() for layer, mean in means.items()}

    def _run(self, forward: _Forward, rows: Sequence[_Row], receive: Receive) -> None:
        """One forward pass over ``rows``, all of one length."""
        import torch

        with torch.inference_mode():
            ids = torch.tensor([row.ids for row in rows], device=self.device)
            try:
                forward(ids, [row.ids for row in rows], receive)
            except torch.OutOfMemoryError:
                raise RefbiasError(
                    f"Model {self.model.name}: {ids.numel()} tokens at once do not fit into the memory of "
                    f"{self.device}. Use a smaller encoder.batch_tokens (now {self.batch_tokens})."
                ) from None

    def _encode_batch(
        self, forward: _Forward, indices: Sequence[int], rows: Sequence[_Row], poolings: Sequence[Pooling]
    ) -> Batch:
        import torch

        vectors: dict[Key, torch.Tensor] = {}
        shares: dict[int, torch.Tensor] = {}

        def receive(layer: int, states: torch.Tensor) -> None:
            for pooling in poolings:
                vectors[layer, pooling.key] = pooling.function(states, mask)
            norms = torch.linalg.vector_norm(states, dim=2, dtype=torch.float32).square()
            shares[layer] = norms[:, 0] / norms.sum(1)

        with torch.inference_mode():
            mask = torch.tensor([row.marks for row in rows], device=self.device)
            self._run(forward, rows, receive)
            # one transfer from the device for all layers and poolings
            moved = torch.stack([value.float() for value in vectors.values()]).cpu().numpy()
            moved_shares = torch.stack(list(shares.values())).cpu().numpy()
            return Batch(
                indices,
                dict(zip(vectors, moved, strict=True)),
                [len(row.ids) for row in rows],
                [row.truncated for row in rows],
                dict(zip(shares, moved_shares, strict=True)),
            )

    def _tokenize(self, loaded: Loaded, sentences: Sequence[str], located: bool = False) -> list[_Row]:
        """Token rows of ``sentences``; ``located`` asks for the characters that each token stands for, too."""
        tokenizer = loaded.tokenizer
        if located and not tokenizer.is_fast:
            raise RefbiasError(
                f"Model {self.model.name}: its tokenizer ({type(tokenizer).__name__}) does not say which characters a "
                f"token stands for, so words cannot be found among its tokens. Use a model with tokenizer.json."
            )
        empty = next((i for i, sentence in enumerate(sentences) if not sentence.strip()), None)
        if empty is not None:
            raise RefbiasError(f"Model {self.model.name}: sentence number {empty} is empty: {sentences[empty]!r}.")
        if self.chat_template:
            if not getattr(tokenizer, "chat_template", None):
                raise RefbiasError(f"Model {self.model.name} has no chat template. Use encoder.chat_template=false.")
            texts = [
                tokenizer.apply_chat_template([{"role": "user", "content": sentence}], tokenize=False)
                for sentence in sentences
            ]
        else:
            texts = list(sentences)
        # A template writes the special tokens itself, so the tokenizer must not add them a second time.
        options = {
            "add_special_tokens": self.special_tokens and not self.chat_template,
            "padding": False,
            "return_offsets_mapping": located,
        }
        found = tokenizer(texts, truncation=False, **options) if texts else {"input_ids": []}
        offsets = found["offset_mapping"] if texts and located else [[]] * len(texts)
        limit = self.max_length or _own_limit(loaded)
        special = _special_ids(tokenizer)
        rows = []
        for sentence, text, ids, places in zip(sentences, texts, found["input_ids"], offsets, strict=True):
            cut = limit is not None and len(ids) > limit
            if cut:
                again = tokenizer(text, truncation=True, max_length=limit, **options)
                ids, places = again["input_ids"], again.get("offset_mapping", [])
            if not ids:
                raise RefbiasError(f"Model {self.model.name}: the tokenizer finds no token in {sentence!r}.")
            marks = tuple(SPECIAL if i in special else TOKEN for i in ids)
            pieces = _pieces(tokenizer, sentence, text, ids, marks, places, cut) if located else _NO_PIECES
            rows.append(_Row(tuple(ids), marks, cut, pieces))
        return rows

    def _check_tokens_left(self, sentences: Sequence[str], rows: Sequence[_Row], pooling: Pooling) -> None:
        for sentence, row in zip(sentences, rows, strict=True):
            if row.left(pooling.skip) < 1:
                raise RefbiasError(
                    f"Model {self.model.name}: pooling.skip={pooling.skip} leaves no token of {sentence!r} "
                    f"({len(row.ids)} in all). Use pooling.skip=none, or leave the sentence out."
                )

    def _check_finite(self, batch: Batch, sentences: Sequence[str]) -> None:
        for (layer, key), rows in batch.vectors.items():
            bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
            if len(bad):
                raise self._not_finite(layer, f"pooling {key}", sentences[batch.indices[bad[0]]])

    def _not_finite(self, layer: int, what: str, sentence: str) -> RefbiasError:
        return RefbiasError(
            f"Model {self.model.name} gives NaN or infinity at layer {layer}, {what}, for {sentence!r}. "
            f"Look at the weights, or use dtype=float32."
        )


@dataclass(frozen=True)
class Pieces:
    """Tokens of one sentence.

    ``spans`` are the characters (start, end) that each token stands for, without white space around them; they are
    empty for special tokens and for marks of a word's start that stand alone. ``unknown`` marks tokens that stand for
    text the tokenizer does not know, ``truncated`` a sentence that was cut.
    """

    spans: Sequence[tuple[int, int]]
    unknown: Sequence[bool]
    truncated: bool


@dataclass(frozen=True)
class GroupBatch:
    """Mean states of groups of tokens: ``vectors[i]`` is (layers, groups of sentence number ``indices[i]``, d)."""

    indices: Sequence[int]
    vectors: Sequence[NDArray[np.float32]]
    tokens: Sequence[int]


_NO_PIECES = Pieces((), (), False)


@dataclass(frozen=True)
class _Row:
    ids: tuple[int, ...]
    marks: tuple[int, ...]  # as the mask of refbias.pooling
    truncated: bool
    pieces: Pieces = _NO_PIECES

    def left(self, skip: Skip) -> int:
        """Tokens that a pooling with this ``skip`` reads."""
        return len(self.ids) - {"none": 0, "special": self.marks.count(SPECIAL), "sink": 1}[skip]


def _special_ids(tokenizer: Any) -> set[int]:
    """Special tokens, without the one for unknown text where it serves for nothing else."""
    marks = {getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "cls", "sep", "pad", "mask")}
    unknown = {tokenizer.unk_token_id} - marks
    return set(tokenizer.all_special_ids) - unknown


def _pieces(
    tokenizer: Any,
    sentence: str,
    text: str,
    ids: Sequence[int],
    marks: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    truncated: bool,
) -> Pieces:
    """What the tokens of ``text``, which holds ``sentence``, stand for in the sentence.

    Offsets of byte-level BPE may take in the space before a word, and that of SentencePiece's mark of a word's start
    may lie on the word's first letter: neither says anything about the word.
    """
    start = text.rfind(sentence)
    if start < 0:
        raise RefbiasError(f"The chat template changes {sentence!r}, so no word can be found. Leave it out.")
    tokens = tokenizer.convert_ids_to_tokens(list(ids))
    spans = []
    for token, mark, (left, right) in zip(tokens, marks, offsets, strict=True):
        left, right = max(left - start, 0), min(right - start, len(sentence))
        if mark == SPECIAL or not token.strip(_WORD_START) or left >= right:
            spans.append((0, 0))
            continue
        inside = sentence[left:right]
        left += len(inside) - len(inside.lstrip())
        spans.append((left, max(left, right - len(inside) + len(inside.rstrip()))))
    return Pieces(spans, [i == tokenizer.unk_token_id for i in ids], truncated)


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Indices of sentences of one length, ``batch_tokens`` tokens at most (one sentence at least), longest first."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for index, length in enumerate(lengths):
        by_length[length].append(index)
    for length in sorted(by_length, reverse=True):
        indices = by_length[length]
        most = max(1, batch_tokens // length)
        count = -(-len(indices) // most)
        for part in np.array_split(np.asarray(indices), count):
            yield part.tolist()


def _own_limit(loaded: Loaded) -> int | None:
    """The longest input that the model was made for, in tokens."""
    limits = [getattr(loaded.tokenizer, "model_max_length", None)]
    limits.append(getattr(loaded.model.config, "max_position_embeddings", None))
    known = [int(limit) for limit in limits if isinstance(limit, int) and 0 < limit < 10**9]
    return min(known, default=None)


def side_by_side(work: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """``work(item)`` of every item, in order, at most ``workers`` at a time, sharing out torch's CPU threads.

    Two passes on one thread each take a fifth less time than two threads on one pass, which wait for each other at
    every small operation.
    """
    import torch

    threads = torch.get_num_threads()
    workers = min(workers, threads, len(items))
    if workers <= 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, "refbias", initializer=lambda: torch.set_num_threads(threads // workers))
    try:
        running = deque(pool.submit(work, item) for item in items[:workers])
        waiting = iter(items[workers:])
        while running:
            done = running.popleft().result()
            running.extend(pool.submit(work, item) for item in itertools.islice(waiting, 1))
            yield done
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # the number for new threads is one for the whole process


def find_blocks(model: Any, layers: int) -> list[Any]:
    """The transformer blocks of a headless ``model`` in order; empty where they are not one list of ``layers``."""
    import torch

    lists = (module for module in model.modules() if isinstance(module, torch.nn.ModuleList))
    return list(next((blocks for blocks in lists if len(blocks) == layers), []))


class _LastLayerDone(Exception):  # noqa: N818 (nothing is wrong)
    """Raised by a hook once the last layer that is asked for is there."""


@dataclass(frozen=True)
class _Pass:
    """One forward pass: who is given the layers, the token ids, and the states to start with, if they are known."""

    receive: Receive
    keys: Sequence[tuple[int, ...]]
    start: torch.Tensor | None


class _Forward:
    """Forward passes that hand every asked layer to a function as it is produced, and keep none.

    Hooks read the input of block k, which is layer k. A changed model whose layers up to k are the base's begins at
    block k, where the base's token states are in memory; else its own pass puts them there for the next one.
    """

    def __init__(self, loaded: Loaded, model: Model, layers: Sequence[int], layer_site: LayerSite) -> None:
        self._loaded = loaded
        self._layers = set(layers)
        self._pre_norm = layer_site == "pre_norm"
        self._last = model.layers
        self._start = model.shared_below or 0
        self._captured = {k for k in {*model.captured, self._start} if 0 < k < model.layers}
        self._blocks = find_blocks(loaded.model, model.layers)
        takes = inspect.signature(loaded.model.forward).parameters
        self._options: dict[str, Any] = {"use_cache": False} if "use_cache" in takes else {}
        self._passes = threading.local()  # the pass of each thread; elsewhere the hooks do nothing

    @contextmanager
    def hooked(self) -> Iterator[_Forward]:
        """With the hooks in place."""
        with ExitStack() as stack:
            for k, block in enumerate(self._blocks):
                if k in self._layers or k in (self._start, max(self._layers)):
                    hook = functools.partial(self._before, k)
                    stack.callback(block.register_forward_pre_hook(hook, with_kwargs=True).remove)
                if k + 1 in self._captured:
                    stack.callback(block.register_forward_hook(functools.partial(self._capture, k + 1)).remove)
                if k < self._start:
                    stack.enter_context(self._skippable(block))
            if self._blocks and self._pre_norm and self._last in self._layers:
                stack.callback(self._blocks[-1].register_forward_hook(self._after_last).remove)
            yield self

    def __call__(self, ids: torch.Tensor, keys: Sequence[tuple[int, ...]], receive: Receive) -> None:
        """Run ``ids`` (b, t), all of one length; ``receive(layer, states (b, t, d))`` is called layer by layer."""
        import torch

        options = self._options if self._blocks else {**self._options, "output_hidden_states": True}
        known = self._loaded.token_states.get(self._start, keys) if self._blocks and self._start else None
        self._passes.current = _Pass(receive, keys, torch.stack(known) if known else None)
        try:
            output = self._loaded.model(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
        except _LastLayerDone:
            return
        finally:
            self._passes.current = None
        if not self._blocks:
            self._hand_over(output.hidden_states, receive)
        elif self._last in self._layers and not self._pre_norm:
            receive(self._last, output.last_hidden_state)

    @property
    def _pass(self) -> _Pass | None:
        return getattr(self._passes, "current", None)

    def _before(self, k: int, block: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        current = self._pass
        if current is None:
            return None
        if k == self._start and current.start is not None:
            if args:
                args = (current.start, *args[1:])
            else:
                kwargs = {**kwargs, "hidden_states": current.start}
        if k in self._layers:
            current.receive(k, args[0] if args else kwargs["hidden_states"])
        if k == max(self._layers):
            raise _LastLayerDone
        return args, kwargs

    @contextmanager
    def _skippable(self, block: Any) -> Iterator[None]:
        """``block`` hands on its input in passes that start above it. It stays where it is: models read from it."""
        compute, own = block.forward, vars(block).get("forward")  # hooks of other libraries set it on the instance

        def forward(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            skipped = self._pass is not None and self._pass.start is not None
            return hidden_states if skipped else compute(hidden_states, *args, **kwargs)

        block.forward = forward
        try:
            yield
        finally:
            if own is None:
                del block.forward
            else:
                block.forward = own

    def _capture(self, layer: int, block: Any, args: Any, output: Any) -> None:
        import torch

        # Blocks that return more than their states (T5: position biases) cannot be passed over later.
        current = self._pass
        if current is not None and current.start is None and isinstance(output, torch.Tensor):
            self._loaded.token_states.put(layer, current.keys, output)

    def _after_last(self, block: Any, args: Any, output: Any) -> None:
        if self._pass is not None:
            self._pass.receive(self._last, output[0] if isinstance(output, tuple) else output)

    def _hand_over(self, states: Sequence[torch.Tensor], receive: Receive) -> None:
        if len(states) != self._last + 1:
            raise RefbiasError(f"The model gives {len(states) - 1} layers, and its configuration says {self._last}.")
        if self._pre_norm:
            raise RefbiasError("encoder.layer_site=pre_norm: the blocks of this architecture are not found.")
        for layer in sorted(self._layers):
            receive(layer, states[layer])
