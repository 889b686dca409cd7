"""A test's word lists, checked, and what is left of them in a vocabulary."""

from __future__ import annotations

import random
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from refbias.errors import RefbiasError, UsageError

SETS = ("X", "Y", "A", "B")
Policy = Literal["drop", "fail", "balance"]
POLICIES = ("drop", "fail", "balance")
LEAST_TARGETS, LEAST_ATTRIBUTES = 2, 1  # words a set needs for a test to say anything


@dataclass(frozen=True)
class Test:
    """One association test: target sets ``X`` and ``Y``, attribute sets ``A`` and ``B``, each with its name."""

    __test__: ClassVar[bool] = False  # no test of ours, whatever pytest thinks of the name

    id: str
    name: str
    category: str
    X: tuple[str, ...]
    Y: tuple[str, ...]
    A: tuple[str, ...]
    B: tuple[str, ...]
    X_name: str
    Y_name: str
    A_name: str
    B_name: str
    source: str
    list_version: str

    def __post_init__(self) -> None:
        for name, words in self.sets().items():
            if not words:
                raise RefbiasError(f"Test {self.id}: set {name} is empty. Give it words.")
            twice = sorted({word for word in words if words.count(word) > 1})
            if twice:
                raise RefbiasError(f"Test {self.id}: set {name} holds {twice[0]!r} twice. Take one out.")
        for one, other in (("X", "Y"), ("A", "B")):
            both = sorted(set(self.sets()[one]) & set(self.sets()[other]))
            if both:
                raise RefbiasError(f"Test {self.id}: {both[0]!r} is in both {one} and {other}. Take it out of one.")

    @classmethod
    def of(
        cls,
        words: Mapping[str, tuple[str, ...]],
        names: Mapping[str, str],
        *,
        id: str,
        name: str,
        category: str,
        source: str,
        list_version: str,
    ) -> Test:
        """From mappings with the keys X, Y, A and B: the words of each set, and its name."""
        W, N = words, names
        return cls(
            id, name, category, W["X"], W["Y"], W["A"], W["B"], N["X"], N["Y"], N["A"], N["B"], source, list_version
        )

    def sets(self) -> dict[str, tuple[str, ...]]:
        return {"X": self.X, "Y": self.Y, "A": self.A, "B": self.B}

    def words(self) -> list[str]:
        """Every word once, in a fixed order."""
        return list(dict.fromkeys([*self.X, *self.Y, *self.A, *self.B]))

    def differences(self, other: Test) -> dict[str, tuple[list[str], list[str]]]:
        """For each set that differs: the words only here, and the words only in ``other``."""
        here, there = self.sets(), other.sets()
        return {
            name: ([w for w in here[name] if w not in there[name]], [w for w in there[name] if w not in here[name]])
            for name in SETS
            if set(here[name]) != set(there[name])
        }


@dataclass(frozen=True)
class Found:
    """What a vocabulary leaves of a test.

    ``words`` are the sets as they are to be used, ``lost`` the words that are missing, ``trimmed`` those taken out to
    balance the target sets, ``sizes`` (before, after) of each set. ``reason`` says why too little is left for a
    test; then nothing should be computed.
    """

    test: Test
    words: Mapping[str, tuple[str, ...]]
    lost: Mapping[str, tuple[str, ...]]
    trimmed: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, tuple[int, int]]
    reason: str | None = None

    @property
    def n_found(self) -> int:
        return sum(len(words) for words in self.words.values())

    @property
    def n_lost(self) -> int:
        return sum(len(words) for words in self.lost.values())

    def report(self) -> str:
        """One line: what was lost, and what that does to the sizes."""
        changed = [f"{name} {before} → {after}" for name, (before, after) in self.sizes.items() if before != after]
        if not changed:
            return f"{self.test.id}: all {self.n_found} words found."
        gone = [word for words in self.lost.values() for word in words]
        parts = [f"lost {', '.join(gone)}"] if gone else []
        spare = [word for words in self.trimmed.values() for word in words]
        parts += [f"left out for balance {', '.join(spare)}"] if spare else []
        return f"{self.test.id}: {'; '.join(parts)} ({', '.join(changed)})."


def found(test: Test, vocabulary: Container[str], policy: Policy = "drop", seed: int = 0) -> Found:
    """The words of ``test`` that ``vocabulary`` contains.

    Parameters
    ----------
    vocabulary : anything with ``in``; folding of case is its own affair
    policy : "drop" uses what is found; "fail" raises where a word is missing; "balance" drops, then takes words out of
        the larger target set at random until both have one size, as the lists of 2017 were made
    seed : of that choice
    """
    if policy not in POLICIES:
        raise UsageError(f"The policy for missing words is one of {', '.join(POLICIES)}: got {policy!r}.")
    kept = {name: tuple(w for w in words if w in vocabulary) for name, words in test.sets().items()}
    lost = {name: tuple(w for w in words if w not in kept[name]) for name, words in test.sets().items()}
    missing = [word for words in lost.values() for word in words]
    if missing and policy == "fail":
        raise RefbiasError(
            f"Test {test.id}: the model has no {', '.join(missing)}. Use the policy drop or balance, or lists without "
            "these words."
        )
    trimmed: dict[str, tuple[str, ...]] = dict.fromkeys(SETS, ())
    if policy == "balance":
        size = min(len(kept["X"]), len(kept["Y"]))
        for name in ("X", "Y"):
            chosen = sorted(random.Random(seed).sample(range(len(kept[name])), size))
            trimmed[name] = tuple(w for i, w in enumerate(kept[name]) if i not in chosen)
            kept[name] = tuple(kept[name][i] for i in chosen)
    sizes = {name: (len(words), len(kept[name])) for name, words in test.sets().items()}
    return Found(test, kept, lost, trimmed, sizes, _too_few(test, kept))


def _too_few(test: Test, kept: Mapping[str, tuple[str, ...]]) -> str | None:
    for name in SETS:
        least = LEAST_TARGETS if name in "XY" else LEAST_ATTRIBUTES
        if len(kept[name]) < least:
            total = len(test.sets()[name])
            return f"too few words: {len(kept[name])} of {total} in {name} found, at least {least} needed"
    return None


def selected(tests: list[Test], wanted: list[str] | None) -> list[Test]:
    """The tests with the ids ``wanted``, in that order; all for None."""
    if wanted is None:
        return tests
    by_id = {test.id: test for test in tests}
    unknown = [name for name in wanted if name not in by_id]
    if unknown:
        raise UsageError(f"No test {unknown[0]!r} in this suite. Available: {', '.join(by_id)}.")
    return [by_id[name] for name in wanted]
