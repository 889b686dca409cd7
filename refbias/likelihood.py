"""How probable a causal language model finds the predicates of statements, in nats a token."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from refbias.checkpoints.tail import Tail
from refbias.context import Context
from refbias.encoders.hf import batches
from refbias.finetuning.statements import Statement
from refbias.finetuning.tokens import Row, tokenize
from refbias.models.base import Loaded, Model, combined

FORMAT = "1"  # raise it where a change here changes figures: cached ones are then computed again
_BATCH_TOKENS = 512  # the head's logits of one batch: 512 × vocabulary × 4 bytes


def log_likelihoods(model: Model, statements: Sequence[Statement], context: Context) -> NDArray[np.float64]:
    """Σ log p of the predicate's tokens given what stands before them, and their number: (n, 2).

    What was computed before comes from the cache; where all of it did, the model is not loaded.
    """
    device, dtype = model.placement(context.device, context.dtype)
    store = context.cache.store(combined("likelihood", FORMAT, model.fingerprint, dtype))
    keys = [hashlib.sha256(f"{s.noun}\n{s.predicate}".encode()).hexdigest() for s in statements]
    found = dict(store.get(list(dict.fromkeys(keys))))
    missing = {key: s for key, s in zip(keys, statements, strict=True) if key not in found}
    if missing:
        with (
            model.open_causal(device, dtype) as loaded,
            context.watch.progress(f"likelihood of {model.name}", len(missing), "statement") as advance,
        ):
            rows = tokenize(loaded.tokenizer, list(missing.values()))
            sums = predicate_log_probs(loaded, rows, model.shared_below or 0, advance)
        new = {
            key: np.array([total, row.scored], dtype=np.float64)
            for key, total, row in zip(missing, sums, rows, strict=True)
        }
        store.put(new)
        found.update(new)
    return np.stack([found[key] for key in keys])


def predicate_log_probs(
    loaded: Loaded, rows: Sequence[Row], shared_below: int = 0, advance: Callable[[int], None] = lambda n: None
) -> list[float]:
    """Σ log p of each row's scored tokens, in nats.

    Rows of one length go together, so nothing is padded. States below block ``shared_below`` are the base's: they
    are kept at the first pass and not computed again for another change of the same base.
    """
    import torch

    sums = [0.0] * len(rows)
    with torch.inference_mode(), Tail(loaded, shared_below) as tail:
        for indices in batches([len(row.ids) for row in rows], _BATCH_TOKENS):
            some = [rows[i] for i in indices]
            for index, total in zip(indices, _score_batch(loaded, tail, some), strict=True):
                sums[index] = total
            advance(len(indices))
    return sums


def _score_batch(loaded: Loaded, tail: Tail, rows: Sequence[Row]) -> list[float]:
    import torch

    keys = [row.ids for row in rows]
    ids = torch.tensor(keys, device=loaded.causal.device)
    # the token at position t is predicted at t − 1
    begins = torch.tensor([row.begin for row in rows], device=ids.device)
    places = torch.arange(ids.shape[1], device=ids.device)
    keep = (places >= begins[:, None] - 1) & (places < ids.shape[1] - 1)
    known = loaded.token_states.get(tail.start, keys) if tail.start else None
    logits = tail(ids, keep, None if known is None else torch.stack(known))
    if tail.start and known is None:
        loaded.token_states.put(tail.start, keys, tail.states())
    wanted = ids[:, 1:][keep[:, :-1]]
    scores = -torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none").cpu().double()
    return [float(part.sum()) for part in scores.split([row.scored for row in rows])]
