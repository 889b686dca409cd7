"""How probable a masked language model finds tokens of a text, each masked in turn, in nats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refbias.encoders.hf import batches
from refbias.errors import RefbiasError
from refbias.models.base import Model
from refbias.models.hf import FolderModel, LiveModel, load_tokenizer, load_weights

if TYPE_CHECKING:
    from refbias.context import Context

Ids = tuple[int, ...]

_BATCH_TOKENS = 1024


@dataclass(frozen=True)
class Masked:
    """Token ids of a text, special ones included, and which of them are masked and scored, one after the other."""

    ids: Ids
    places: tuple[int, ...]


@contextmanager
def open_masked(model: Model, context: Context) -> Iterator[tuple[Any, Any]]:
    """The masked language model in the files of ``model``, with its head, and its tokenizer.

    It is loaded for the block and dropped after it. Raises `RefbiasError` where the files hold no such head.
    """
    if isinstance(model, LiveModel):
        with model.open(context.device, context.dtype) as loaded:
            _check(model, loaded.whole, loaded.tokenizer)
            yield loaded.whole, loaded.tokenizer
        return
    if not isinstance(model, FolderModel):
        raise RefbiasError(
            f"{model.name} ({model.kind}) is neither a causal language model nor the folder of a masked one."
        )
    whole, tokenizer = _load(model, context.device, context.dtype), load_tokenizer(model.name, model.folder)
    _check(model, whole, tokenizer)
    model.check_files()
    yield whole, tokenizer


def _load(model: FolderModel, device: str, dtype: str) -> Any:
    import transformers

    failure = f"{model.name} cannot be loaded as a masked language model"
    whole, missing = load_weights(transformers.AutoModelForMaskedLM, model.folder, device, dtype, failure)
    if missing:
        raise RefbiasError(
            f"{model.name} has no head that predicts masked tokens: its files lack {len(missing)} weights, first "
            f"{missing[0]!r}."
        )
    return whole


def _check(model: Model, whole: Any, tokenizer: Any) -> None:
    if not type(whole).__name__.endswith("ForMaskedLM"):
        raise RefbiasError(f"{model.name} ({type(whole).__name__}) has no head that predicts masked tokens.")
    if tokenizer.mask_token_id is None:
        raise RefbiasError(f"{model.name}: its tokenizer has no mask token.")


def masked_log_probs(
    whole: Any, mask: int, rows: Sequence[Masked], advance: Callable[[int], None] = lambda n: None
) -> list[NDArray[np.float64]]:
    """log p, in nats, of each marked token of each row, with that token alone masked: one array a row.

    Texts of one length go together, so nothing is padded; the vocabulary is looked at where a mask stands only.
    """
    import torch

    copies = [(i, place) for i, row in enumerate(rows) for place in row.places]
    flat = np.empty(len(copies))
    left = [len(row.places) for row in rows]
    advance(left.count(0))
    with torch.inference_mode(), _only_kept(whole) as keep:
        for indices in batches([len(rows[i].ids) for i, _ in copies], _BATCH_TOKENS):
            some = [copies[k] for k in indices]
            ids = torch.tensor([rows[i].ids for i, _ in some], device=whole.device)
            order = torch.arange(len(some), device=whole.device)
            places = torch.tensor([place for _, place in some], device=whole.device)
            wanted = ids[order, places]
            ids[order, places] = mask
            keep[:] = [order, places]
            logits = whole(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
            if logits.ndim == 3:  # a head that does not call its last layer as a module
                logits = logits[order, places]
            found = logits.float().log_softmax(-1)[order, wanted]
            flat[indices] = found.double().cpu().numpy()
            for i, _ in some:
                left[i] -= 1
            advance(sum(left[i] == 0 for i in {i for i, _ in some}))
    return np.split(flat, np.cumsum([len(row.places) for row in rows])[:-1])


@contextmanager
def _only_kept(whole: Any) -> Iterator[list[Any]]:
    """The last layer of the head is given the rows and places in the list alone."""
    keep: list[Any] = []

    def select(head: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0][tuple(keep)], *args[1:]) if args[0].ndim == 3 else args

    hook = whole.get_output_embeddings().register_forward_pre_hook(select)
    try:
        yield keep
    finally:
        hook.remove()


def content_places(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """Places of the tokens that are text: neither put there by the tokenizer nor special by themselves."""
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return [i for i, token in enumerate(ids) if token not in special]
