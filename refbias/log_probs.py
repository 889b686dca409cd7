"""log p of marked tokens under a causal language model: the engine of everything that is scored by likelihood.

Nothing is padded, no token is read whose state is not needed, no position gets logits that is not scored, and what
texts have in common at their beginning is computed once where that saves time.
"""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from refbias.checkpoints.tail import Tail
from refbias.encoders.hf import batches
from refbias.errors import RefbiasError
from refbias.finetuning.tokens import common
from refbias.models.base import Loaded

_BATCH_TOKENS = 512
_LOGITS = 2**26  # logits of one batch at most, 256 MiB in float32
_OVERHEAD = 64  # tokens that could be read in the time that one more batch takes: it reads all weights again

Ids = tuple[int, ...]


class Marked(Protocol):
    """Token ids of a text; the ``scored`` tokens from ``begin`` on are scored, each given everything before it."""

    @property
    def ids(self) -> Ids: ...

    @property
    def begin(self) -> int: ...

    @property
    def scored(self) -> int: ...


@dataclass(frozen=True)
class Span:
    """Token ids of a text; those from ``begin`` up to, not including, ``end`` are scored."""

    ids: Ids
    begin: int
    end: int

    @property
    def scored(self) -> int:
        return self.end - self.begin


def sum_log_probs(
    loaded: Loaded, rows: Sequence[Marked], shared_below: int = 0, advance: Callable[[int], None] = lambda n: None
) -> NDArray[np.float64]:
    """Σ log p of each row's scored tokens, in nats: (n,). See `token_log_probs`."""
    return np.array([values.sum() for values in token_log_probs(loaded, rows, shared_below, advance)], dtype=np.float64)


def token_log_probs(
    loaded: Loaded,
    rows: Sequence[Marked],
    shared_below: int = 0,
    advance: Callable[[int], None] = lambda n: None,
    share: bool | None = None,
) -> list[NDArray[np.float64]]:
    """log p of each row's scored tokens, in nats: one array (scored,) a row.

    Parameters
    ----------
    shared_below : states below this block are the base's; they are kept at the first pass and not computed again for
        another change of the same base
    advance : told how many rows are finished
    share : whether common beginnings are computed once; None: where that saves more than smaller batches cost

    Raises `RefbiasError` for a row with nothing to score, or whose first token is to be scored.
    """
    import torch

    for row in rows:
        if not 0 < row.begin < row.begin + row.scored <= len(row.ids):
            raise RefbiasError(
                f"A text of {len(row.ids)} tokens cannot be scored from token {row.begin} on ({row.scored} tokens): "
                f"expected at least one token to score and one before it."
            )
    if not rows:
        return []
    flat = np.empty(sum(row.scored for row in rows))
    vocabulary = loaded.causal.get_output_embeddings().weight.shape[0]
    most = max(1, min(_BATCH_TOKENS, _LOGITS // vocabulary))
    with torch.inference_mode(), Tail(loaded, shared_below) as tail:
        for step in _planned(rows, most, share):
            past = None
            if step.prefixes:
                with _recording(loaded) as caches:
                    _score(loaded, tail, step.prefixes, flat)
                past = caches[0]
                if not _resumable(past):
                    return token_log_probs(loaded, rows, shared_below, advance, share=False)
            for batch in step.batches:
                with nullcontext() if past is None else _resuming(loaded, past, batch):
                    _score(loaded, tail, batch, flat, resume=True)
                advance(sum(p.rows for p in batch))
    return np.split(flat, np.cumsum([row.scored for row in rows])[:-1])


@dataclass
class _Pass:
    """One row of a batch: ``ids`` as far as they are read; those before ``start`` are read by another one.

    ``prefix`` is the number of that other one in its batch, ``rows`` how many texts are done with this one,
    ``wants`` are (place in the result, position whose logits predict it, token).
    """

    ids: Ids
    start: int = 0
    prefix: int = 0
    rows: int = 0
    wants: list[tuple[int, int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids) - self.start


@dataclass(frozen=True)
class _Step:
    """One batch of common beginnings, or none, and the batches that go on from it."""

    prefixes: list[_Pass]
    batches: list[list[_Pass]]

    @property
    def cost(self) -> int:
        """In tokens read."""
        return sum(_OVERHEAD + sum(map(len, batch)) for batch in [self.prefixes, *self.batches] if batch)


def _planned(rows: Sequence[Marked], most: int, share: bool | None) -> list[_Step]:
    # the last token of a text is only predicted, never read
    inputs = [row.ids[: row.begin + row.scored - 1] for row in rows]
    hosts: list[Ids] = []
    host: dict[Ids, Ids] = {}
    for ids in sorted(set(inputs), reverse=True):  # a text that goes on passes what the shorter one needs
        if not hosts or hosts[-1][: len(ids)] != ids:
            hosts.append(ids)
        host[ids] = hosts[-1]
    hosts.reverse()
    of_row = [host[ids] for ids in inputs]
    apart = _steps(rows, of_row, dict.fromkeys(hosts, 0), most)
    if share is False:
        return apart
    together = _steps(rows, of_row, dict(zip(hosts, shared_beginnings(hosts), strict=True)), most)
    return together if share or sum(s.cost for s in together) < sum(s.cost for s in apart) else apart


def _steps(rows: Sequence[Marked], of_row: Sequence[Ids], starts: Mapping[Ids, int], most: int) -> list[_Step]:
    """Steps that read every host once, what stands before its start once for all that share it."""
    prefixes = {ids[:start]: _Pass(ids[:start]) for ids, start in starts.items() if start}
    passes = {ids: _Pass(ids, start) for ids, start in starts.items()}
    place = 0
    for row, ids in zip(rows, of_row, strict=True):
        own = passes[ids]
        own.rows += 1
        for position in range(row.begin - 1, row.begin - 1 + row.scored):
            by = own if position >= own.start else prefixes[ids[: own.start]]
            by.wants.append((place, position, row.ids[position + 1]))
            place += 1
    steps = []
    following: dict[Ids, list[_Pass]] = {}
    for p in passes.values():
        following.setdefault(p.ids[: p.start], []).append(p)
    for some in _batched(list(prefixes.values()), most):
        for number, prefix in enumerate(some):
            for p in following[prefix.ids]:
                p.prefix = number
        steps.append(_Step(some, _batched([p for prefix in some for p in following[prefix.ids]], most)))
    return [*steps, _Step([], _batched(following.get((), []), most))]


def _batched(passes: Sequence[_Pass], most: int) -> list[list[_Pass]]:
    return [[passes[i] for i in indices] for indices in batches([len(p) for p in passes], most)]


def shared_beginnings(texts: Sequence[Ids]) -> list[int]:
    """How many tokens of each of the sorted ``texts`` to compute once for all that share them; 0 for none.

    From long beginnings to short ones: a family, or a text that is in none, joins the family of a shorter beginning
    where that saves tokens. Never worse than any one length for all. No text is the beginning of another one.

    >>> shared_beginnings([(1, 2, 3), (1, 2, 4), (1, 5, 6), (7, 8, 9)])
    [2, 2, 0, 0]
    """
    same = [common(first, second) for first, second in itertools.pairwise(texts)]

    def best(first: int, last: int) -> tuple[int, list[int]]:
        """Tokens saved, and the lengths, for texts first..last."""
        if first == last:
            return 0, [0]
        least = min(same[first:last])
        ends = [*(i for i in range(first, last) if same[i] == least), last]
        parts = [best(left, right) for left, right in zip([first, *(e + 1 for e in ends)], ends, strict=False)]
        saved = sum(part[0] for part in parts)
        joined = [_joined(*part, least) for part in parts]
        together = sum(part[0] for part in joined) - least
        chosen = (together, joined) if together > saved else (saved, parts)
        return chosen[0], [length for part in chosen[1] for length in part[1]]

    return best(0, len(texts) - 1)[1] if texts else []


def _joined(saved: int, lengths: list[int], least: int) -> tuple[int, list[int]]:
    """What a part of the texts saves, and how, where beginnings of ``least`` tokens are computed anyway."""
    some = saved + lengths.count(0) * least
    if len(lengths) * least > some:
        return len(lengths) * least, [least] * len(lengths)
    return some, [length or least for length in lengths]


@contextmanager
def _recording(loaded: Loaded) -> Iterator[list[Any]]:
    """The list holds the keys and values of every call made within the block."""
    made: list[Any] = []
    with _with_cache(loaded, None):
        name = _cache_name(loaded.causal)
        hook = loaded.causal.register_forward_hook(
            lambda module, args, output: made.append(getattr(output, name, None))
        )
        try:
            yield made
        finally:
            hook.remove()


@contextmanager
def _resuming(loaded: Loaded, past: Any, batch: Sequence[_Pass]) -> Iterator[None]:
    """The call within the block goes on from the keys and values of its prefixes in ``past``, which is not changed."""
    import torch

    past = copy.deepcopy(past)
    past.batch_select_indices(torch.tensor([p.prefix for p in batch], device=loaded.causal.device))
    with _with_cache(loaded, past):
        yield


@contextmanager
def _with_cache(loaded: Loaded, past: Any) -> Iterator[None]:
    def give(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, _cache_name(loaded.causal): past, "use_cache": True}

    hook = loaded.causal.register_forward_pre_hook(give, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def _cache_name(causal: Any) -> str:
    """How this release of transformers calls keys and values."""
    return "cache" if "cache" in inspect.signature(causal.forward).parameters else "past_key_values"


def _resumable(past: Any) -> bool:
    """Whether rows can go on from ``past``: it holds keys and values of every layer and no other kind of state."""
    layers = getattr(past, "layers", ())
    return hasattr(past, "batch_select_indices") and all(getattr(layer, "keys", None) is not None for layer in layers)


def _score(loaded: Loaded, tail: Tail, batch: Sequence[_Pass], flat: NDArray[np.float64], resume: bool = False) -> None:
    """Put what the passes of ``batch``, all of one length and start, want into ``flat``.

    ``resume`` allows to begin at the states of `Tail.start` that are known. A prefix must pass every block: the
    keys and values of all of them are asked for.
    """
    import torch

    start, length, device = batch[0].start, len(batch[0]), loaded.causal.device
    wants = np.array(
        [
            (place, i * length + position - start, token)
            for i, p in enumerate(batch)
            for place, position, token in p.wants
        ],
        dtype=np.int64,
    ).reshape(-1, 3)
    places, (cells, tokens) = wants[:, 0], torch.from_numpy(wants[:, 1:]).to(device).T
    ids = torch.tensor([p.ids[start:] for p in batch], device=device)
    keep = torch.zeros(ids.numel(), dtype=torch.bool, device=device)
    keep[cells] = True
    # states that follow a prefix are those of these tokens only: they are known by another name
    keys = [(-start, *p.ids) if start else p.ids for p in batch]
    known = loaded.token_states.get(tail.start, keys) if resume and tail.start else None
    logits = tail(ids, keep.view_as(ids), None if known is None else torch.stack(known)).float()
    if resume and tail.start and known is None:
        loaded.token_states.put(tail.start, keys, tail.states())
    rows = (keep.cumsum(0) - 1)[cells]
    found = logits[rows, tokens].double() - logits.logsumexp(dim=-1).double()[rows]
    flat[places] = found.cpu().numpy()
