"""Statements as token ids, with the place where what is scored begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from refbias.checkpoints.statements import Statement
from refbias.errors import RefbiasError


@dataclass(frozen=True)
class Row:
    """Tokens of a statement; those from ``begin`` on are the predicate, scored given everything before them."""

    ids: tuple[int, ...]
    begin: int

    @property
    def scored(self) -> int:
        return len(self.ids) - self.begin


def tokenize(tokenizer: Any, statements: Sequence[Statement]) -> list[Row]:
    """Rows of ``statements``, with the special tokens that the tokenizer adds in front and none behind.

    Raises `RefbiasError` where no token stands before the predicate: the first token of a text cannot be scored.
    """
    special = set(tokenizer.all_special_ids)
    texts = tokenizer([s.text for s in statements], padding=False)["input_ids"]
    nouns = list(dict.fromkeys(s.noun for s in statements))
    heads = dict(zip(nouns, tokenizer(nouns, padding=False)["input_ids"], strict=True))
    rows = []
    for statement, ids in zip(statements, texts, strict=True):
        while ids and ids[-1] in special:
            ids = ids[:-1]
        begin = _common(heads[statement.noun], ids)
        if not 0 < begin < len(ids):
            raise RefbiasError(f"The tokenizer makes {len(ids)} tokens of {statement.text!r}: none can be scored.")
        rows.append(Row(tuple(ids), begin))
    return rows


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common beginning."""
    same = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(same, min(len(first), len(second)))
