"""How probable a causal language model finds texts, or how they go on, in nats; kept in the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from refbias.context import Context
from refbias.errors import RefbiasError
from refbias.finetuning.statements import Statement
from refbias.finetuning.tokens import Row, common, completions, tokenize
from refbias.log_probs import Marked, sum_log_probs
from refbias.models.base import Model, combined

FORMAT = "1"  # raise it where a change of the engine changes figures: cached ones are then computed again

_KEPT_AT_ONCE = 1200  # texts; what is kept survives a kill

T = TypeVar("T")


def log_likelihoods(model: Model, statements: Sequence[Statement], context: Context) -> NDArray[np.float64]:
    """Σ log p of the predicate's tokens given what stands before them, and their number: (n, 2).

    What was computed before comes from the cache; where all of it did, the model is not loaded.
    """

    def key(statement: Statement) -> str:
        return f"{statement.noun}\n{statement.predicate}"

    return stored_scores(model, "likelihood", statements, tokenize, context, unit="statement", key=key)


def stored_scores(
    model: Model,
    kind: str,
    texts: Sequence[T],
    rows_of: Callable[[Any, Sequence[T]], Sequence[Marked]],
    context: Context,
    unit: str = "text",
    key: Callable[[T], str] = json.dumps,
) -> NDArray[np.float64]:
    """Σ log p of what ``rows_of(tokenizer, texts)`` marks, and the number of marked tokens: (n, 2).

    Kept in the cache under ``kind`` and the ``key`` of each text. Where all of it is there, the model is not loaded.
    """
    device, dtype = model.placement(context.device, context.dtype)
    store = context.cache.store(combined(kind, FORMAT, model.fingerprint, dtype))
    keys = [hashlib.sha256(key(text).encode()).hexdigest() for text in texts]
    found = dict(store.get(list(dict.fromkeys(keys))))
    missing = {name: text for name, text in zip(keys, texts, strict=True) if name not in found}
    if missing:
        with (
            model.open_causal(device, dtype) as loaded,
            context.watch.progress(f"likelihood of {model.name}", len(missing), unit) as advance,
        ):
            names = list(missing)
            for part in (names[i : i + _KEPT_AT_ONCE] for i in range(0, len(names), _KEPT_AT_ONCE)):
                rows = rows_of(loaded.tokenizer, [missing[name] for name in part])
                sums = sum_log_probs(loaded, rows, model.shared_below or 0, advance)
                new = {
                    name: np.array([total, row.scored], dtype=np.float64)
                    for name, total, row in zip(part, sums, rows, strict=True)
                }
                store.put(new)
                found.update(new)
    return np.stack([found[name] for name in keys])


def whole(tokenizer: Any, texts: Sequence[str]) -> list[Row]:
    """Rows in which every token of a text is scored, the first one given the token that texts begin with.

    That is the tokenizer's BOS, or EOS where it has none. Raises `RefbiasError` where it has neither.
    """
    first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if first is None:
        raise RefbiasError("The tokenizer has neither BOS nor EOS, so the first token of a text has no score.")
    found = tokenizer(list(texts), padding=False, add_special_tokens=False)["input_ids"]
    return [Row((first, *ids), 1) for ids in found]


def continued(tokenizer: Any, texts: Sequence[tuple[str, str]]) -> list[Row]:
    """Rows of (how it begins, all of it) in which what follows the beginning is scored."""
    return completions(tokenizer, texts)


def rendered(tokenizer: Any, texts: Sequence[tuple[str, str]]) -> list[Row]:
    """As `continued`, for texts that a chat template has written: it has set the special tokens itself."""
    heads, wholes = (
        tokenizer([pair[i] for pair in texts], padding=False, add_special_tokens=False)["input_ids"] for i in (0, 1)
    )
    return [Row(tuple(ids), common(head, ids)) for head, ids in zip(heads, wholes, strict=True)]
