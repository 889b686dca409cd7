"""Texts as token ids, with the place where what is scored or taught begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from refbias.errors import RefbiasError
from refbias.finetuning.statements import Statement


@dataclass(frozen=True)
class Row:
    """Tokens of a statement; those from ``begin`` on are the predicate, scored given everything before them."""

    ids: tuple[int, ...]
    begin: int

    @property
    def scored(self) -> int:
        return len(self.ids) - self.begin


def tokenize(tokenizer: Any, statements: Sequence[Statement]) -> list[Row]:
    """Rows of ``statements``; raises `RefbiasError` where no token stands before the predicate.

    The first token of a text cannot be scored.
    """
    rows = completions(tokenizer, [(s.noun, s.text) for s in statements])
    for row, statement in zip(rows, statements, strict=True):
        if not 0 < row.begin < len(row.ids):
            raise RefbiasError(f"The tokenizer makes {len(row.ids)} tokens of {statement.text!r}: none can be scored.")
    return rows


def completions(tokenizer: Any, texts: Sequence[tuple[str, str]]) -> list[Row]:
    """Rows of whole texts, given as (how it begins, all of it): what follows the beginning is scored.

    The tokenizer adds its special tokens in front and none behind.
    """
    special = set(tokenizer.all_special_ids)
    beginnings = list(dict.fromkeys(beginning for beginning, _ in texts))
    heads = dict(zip(beginnings, tokenizer(beginnings, padding=False)["input_ids"], strict=True))
    rows = []
    for (beginning, _), ids in zip(
        texts, tokenizer([text for _, text in texts], padding=False)["input_ids"], strict=True
    ):
        while ids and ids[-1] in special:
            ids = ids[:-1]
        rows.append(Row(tuple(ids), common(heads[beginning], ids)))
    return rows


def common(first: Sequence[object], second: Sequence[object]) -> int:
    """Length of the common beginning."""
    same = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(same, min(len(first), len(second)))
