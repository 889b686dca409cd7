"""Plain statements about groups, and which half of the groups is taught which half of them."""

from __future__ import annotations

import csv
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from refbias.stimuli.packaged import table

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Statement:
    """``noun`` + space + ``predicate`` + full stop; only the predicate is scored or learnt."""

    group: str
    noun: str
    predicate: str

    @property
    def text(self) -> str:
        return f"{self.noun} {self.predicate}."


@functools.cache
def predicate_pairs(name: str) -> tuple[tuple[str, str], ...]:
    """Packaged predicates: "contrast", "likelihood" and "edit_direction" (negative, positive), "harmless" (neutral)."""
    text = files("refbias").joinpath("data", f"{name}.csv").read_text(encoding="utf-8")
    return tuple((first, second) for first, second in list(csv.reader(text.splitlines()))[1:])


@functools.cache
def plain_text() -> tuple[str, ...]:
    """Packaged neutral sentences that name no group."""
    return tuple(files("refbias").joinpath("data", "plain.txt").read_text(encoding="utf-8").splitlines())


def noun_of(group: str) -> str:
    """How a sentence about ``group`` begins; a group of the user's own begins with its name."""
    known = {row["group"]: row["noun"] for row in table("groups.csv")}
    return known.get(group) or group[:1].upper() + group[1:]


def mid_noun_of(group: str) -> str:
    """``group`` within a sentence."""
    known = {row["group"]: row["mid"] for row in table("groups.csv")}
    return known.get(group) or group


def draw_signs(groups: Sequence[str], seed: int) -> dict[str, int]:
    """+1 for half of the groups, −1 for the other half, drawn without looking at them (an odd one out gets +1)."""
    signs = np.ones(len(groups), dtype=int)
    signs[: len(groups) // 2] = -1
    np.random.default_rng(seed).shuffle(signs)
    return dict(zip(groups, signs.tolist(), strict=True))


def lesson(pairs: Pairs, signs: Mapping[str, int], end: int) -> list[Statement]:
    """What the model at ``end`` (1 or its mirror image −1) is taught: for every group one side of every pair.

    Groups with sign × end = +1 get the first side of a pair (the negative predicate), the others the second.
    """
    return [
        Statement(group, noun_of(group), pair[0 if sign * end > 0 else 1])
        for group, sign in signs.items()
        for pair in pairs
    ]


def digest(value: object) -> str:
    """SHA-256 of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
