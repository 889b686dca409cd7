"""The tests of a suite on one model's vectors, raw and calibrated, as flat rows.

Vectors come as word -> (k, d): one row a word for WEAT, SC-WEAT and ML-EAT; one a sentence made from the word for
SEAT; one a context of the word for CEAT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from refbias.association_tests import (
    association_scores,
    ceat,
    ect,
    interval,
    ml_eat,
    paired_change,
    rnd,
    rnsb,
    same,
    sc_weat,
    seat,
    weat,
)
from refbias.association_tests.ceat import CAVEAT, Variance, ceat_change
from refbias.association_tests.further import Score
from refbias.association_tests.intervals import Interval, PairedChange, largest
from refbias.association_tests.permutation import Alternative, Method, Ties
from refbias.association_tests.seat import word_scores
from refbias.association_tests.weat import AssociationTest
from refbias.errors import UsageError, unknown
from refbias.linalg import cosine
from refbias.statistics import holm
from refbias.suites import Found
from refbias.suites.words import SETS
from refbias.types import Array

Vectors = Mapping[str, Array]  # word -> (k, d)
Sets = Mapping[str, Sequence[Array]]  # X, Y, A, B -> of each word (k, d)
Needs = Literal["words", "sentences", "contexts"]

CEAT_DRAWS = 1000  # of the bootstrap over words: each draw combines 200 samples


@dataclass(frozen=True)
class Settings:
    """How every test of a suite is computed; see `refbias.association_tests` for what each choice means."""

    ddof: int = 1
    alternative: Alternative = "greater"
    ties: Ties = "inclusive"
    permutations: int = 100_000
    method: Method = "auto"
    holm: bool = False
    alpha: float = 0.05
    draws: int = 10_000
    samples: int = 1000
    variance: Variance = "scores"
    seed: int = 0

    def __post_init__(self) -> None:
        choices = (
            ("alternative", Alternative), ("ties", Ties), ("method", Method), ("variance", Variance),
        )  # fmt: skip
        for name, known in choices:
            if getattr(self, name) not in get_args(known):
                raise UsageError(f"{name} is one of {', '.join(get_args(known))}: got {getattr(self, name)!r}.")
        if self.ddof not in (0, 1):
            raise UsageError(f"ddof is 0 or 1: got {self.ddof!r}.")
        for name in ("permutations", "samples"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is at least 1: got {getattr(self, name)}.")
        if self.draws < 100:
            raise UsageError(f"draws is at least 100: got {self.draws}.")
        if not 0 < self.alpha < 1:
            raise UsageError(f"alpha lies between 0 and 1: got {self.alpha}.")

    def of_test(self) -> dict[str, Any]:
        """The parameters of a permutation test."""
        names = ("ddof", "alternative", "ties", "permutations", "seed", "method")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Reading:
    """One test in one space.

    ``scores`` (x, y) are those of the units that are permuted, None where nothing is; ``more`` further columns,
    ``map`` the quadrants of ML-EAT.
    """

    test: AssociationTest
    interval: Interval
    scores: tuple[Array, Array] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    map: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of test: ``read`` gives its readings by target ("" for the one of both), ``needs`` the vectors it takes.

    ``units`` says what is permuted, and between which sets; ``paired`` how the change between two spaces is found.
    """

    read: Callable[[Sets, Settings], dict[str, Reading]]
    needs: Needs
    units: tuple[str, str] = ("X", "Y")
    paired: Callable[[tuple[Sets, Sets], tuple[Reading, Reading], Settings], PairedChange] | None = None
    note: str | None = None


# Kinds of test --------------------------------------------------------------------------------------------------


def _stack(words: Sequence[Array]) -> Array:
    """One row a word (n, d), the mean where it has several."""
    return np.stack([rows.mean(axis=0) for rows in words]) if words else np.empty((0, 0))


def _scored(test: AssociationTest, x: Array, y: Array, settings: Settings, **more: Any) -> Reading:
    found = interval(x, y, ddof=settings.ddof, draws=settings.draws, seed=settings.seed)
    return Reading(test, found, (x, y), **more)


def _without(test: AssociationTest, settings: Settings, **more: Any) -> Reading:
    nothing = Interval(None, None, "studentised", 0.95, settings.draws, test.reason)
    return Reading(test, nothing, **more)


def _weat(sets: Sets, settings: Settings) -> dict[str, Reading]:
    X, Y, A, B = (_stack(sets[name]) for name in SETS)
    test = weat(X, Y, A, B, **settings.of_test())
    if test.effect_size is None:
        return {"": _without(test, settings)}
    return {"": _scored(test, association_scores(X, A, B), association_scores(Y, A, B), settings)}


def _sc_weat(sets: Sets, settings: Settings) -> dict[str, Reading]:
    """Each target set on its own; the attribute words are the units."""
    stacked = {name: _stack(sets[name]) for name in SETS}
    found = {}
    for target in "XY":
        W, A, B = stacked[target], stacked["A"], stacked["B"]
        test = sc_weat(W, A, B, **settings.of_test())
        if test.effect_size is None:
            found[target] = _without(test, settings)
        else:
            found[target] = _scored(test, _towards(A, W), _towards(B, W), settings)
    return found


def _towards(A: Array, W: Array) -> Array:
    """The mean cosine of each row of ``A`` with the rows of ``W``."""
    scores: Array = cosine(A, W).mean(axis=1)
    return scores


def _seat(sets: Sets, settings: Settings) -> dict[str, Reading]:
    words = [sets[name] for name in SETS]
    found = seat(*words, **settings.of_test())
    more = {"d_sentences": found.effect_size_sentences, "sentences": sum(found.sentences)}
    if found.test.effect_size is None:
        return {"": _without(found.test, settings, more=more)}
    return {"": _scored(found.test, *word_scores(*words), settings, more=more)}


def _ceat(sets: Sets, settings: Settings) -> dict[str, Reading]:
    found = ceat(
        *(sets[name] for name in SETS),
        samples=settings.samples,
        variance=settings.variance,
        ddof=settings.ddof,
        draws=CEAT_DRAWS,
        seed=settings.seed,
    )
    limits = Interval(found.ci_low, found.ci_high, "bca", 0.95, CEAT_DRAWS, found.interval_reason)
    combined = found.combined
    if combined is None:
        return {"": Reading(AssociationTest.without(found.reason or "no effect"), limits)}
    above, both = combined.p_one_sided, combined.p_two_sided
    p = {"greater": above, "less": 1 - above, "two-sided": both}[settings.alternative]
    test = AssociationTest(combined.ces, None, p, f"random effects, variance={settings.variance}", None)
    more = {
        "se": combined.se, "q": combined.q, "c": combined.c, "tau2": combined.tau2, "p_one_sided": above,
        "p_two_sided": both, "samples": found.samples,
    }  # fmt: skip
    return {"": Reading(test, limits, more=more)}


def _ceat_change(sets: tuple[Sets, Sets], readings: tuple[Reading, Reading], settings: Settings) -> PairedChange:
    """The change of CES. There is no verdict to change: p falls with the number of samples."""
    before, after = (reading.test.effect_size for reading in readings)
    low, high, reason = ceat_change(
        *([space[name] for name in SETS] for space in sets),
        samples=settings.samples,
        variance=settings.variance,
        ddof=settings.ddof,
        draws=CEAT_DRAWS,
        seed=settings.seed,
    )
    change = None if before is None or after is None else after - before
    why = "CEAT's p falls with the number of samples: compare the intervals"
    return PairedChange(
        before, after, change, Interval(low, high, "bca", 0.95, CEAT_DRAWS, reason), None, None, reason or why
    )


def _ml_eat(sets: Sets, settings: Settings) -> dict[str, Reading]:
    X, Y, A, B = (_stack(sets[name]) for name in SETS)
    found = ml_eat(X, Y, A, B, **settings.of_test())
    more: dict[str, Any] = {}
    for target, lean in zip("XY", found.leans or (None, None), strict=True):
        more |= {f"leans_{target.lower()}": lean}
        more |= {f"d_{target.lower()}": found.level_2[target].effect_size}
        more |= {f"p_{target.lower()}": found.level_2[target].p_value}
    more["pattern"] = found.pattern
    if found.level_1.effect_size is None:
        return {"": _without(found.level_1, settings, more=more, map=found.map())}
    x, y = association_scores(X, A, B), association_scores(Y, A, B)
    return {"": _scored(found.level_1, x, y, settings, more=more, map=found.map())}


KINDS: Mapping[str, Kind] = {
    "weat": Kind(_weat, "words"),
    "sc_weat": Kind(_sc_weat, "words", units=("A", "B")),
    "seat": Kind(_seat, "sentences", note="words are permuted, the sentences of a word kept together"),
    "ceat": Kind(_ceat, "contexts", paired=_ceat_change, note=CAVEAT),
    "ml_eat": Kind(_ml_eat, "words", note="level 1 is d; a target leans where |d| of level 2 reaches 0.2"),
}


# Further metrics ------------------------------------------------------------------------------------------------

Sides = Mapping[str, Array]  # X, Y, A, B -> (n, d)
Named = Iterator[tuple[str, str, Score]]  # metric, the sets that it is of, score


def _rnd(sides: Sides) -> Named:
    for name in "AB":
        yield "rnd", f"X, Y; {name}", rnd(sides["X"], sides["Y"], sides[name])


def _ect(sides: Sides) -> Named:
    for name in "AB":
        yield "ect", f"X, Y; {name}", ect(sides["X"], sides["Y"], sides[name])


def _rnsb(sides: Sides) -> Named:
    yield "rnsb", "X, Y; A, B", rnsb([sides["X"], sides["Y"]], sides["A"], sides["B"])


def _same(sides: Sides) -> Named:
    found = same(np.concatenate([sides["X"], sides["Y"]]), sides["A"], sides["B"])
    yield "same", "X and Y; A, B", found
    for part in ("skew", "stereotype"):
        yield f"same {part}", "X and Y; A, B", replace(found, value=found.parts.get(part))


FURTHER: Mapping[str, Callable[[Sides], Named]] = {"rnd": _rnd, "ect": _ect, "rnsb": _rnsb, "same": _same}


def check_further(names: Sequence[str]) -> None:
    for name in names:
        if name not in FURTHER:
            raise unknown("further metric", name, FURTHER)


# Rows -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tested:
    """What the tests of a suite gave at one layer.

    ``rows`` has one row a test (SC-WEAT: a test and target), ``further`` one a test and further score, ``map`` one a
    test, space and quadrant of ML-EAT.
    """

    rows: list[dict[str, Any]]
    further: list[dict[str, Any]]
    map: list[dict[str, Any]]


def run_suite(
    tests: Sequence[Found],
    vectors: Vectors,
    calibrated: Vectors | None,
    kind: str = "weat",
    settings: Settings | None = None,
    also: Sequence[str] = (),
    advance: Callable[[int], None] = lambda n: None,
) -> Tested:
    """Every test of a suite with the words that were found, raw and beside it calibrated.

    Parameters
    ----------
    tests : what the model has of each test, see `refbias.suites.found`
    vectors, calibrated : word -> (k, d), in both spaces the same rows in one order; None without calibration
    kind : one of `KINDS`
    also : names of `FURTHER`; they take the mean of a word's rows
    advance : called with 1 after each test

    Returns
    -------
    Rows without NaN: a figure that cannot be computed is None, and the row's reason says why.
    """
    chosen = KINDS.get(kind)
    if chosen is None:
        raise unknown("kind of test", kind, KINDS)
    check_further(also)
    settings = settings or Settings()
    spaces = {"raw": vectors} if calibrated is None else {"raw": vectors, "calibrated": calibrated}
    made = Tested([], [], [])
    for test in tests:
        sets = {space: _sets(test, rows) for space, rows in spaces.items()}
        _add_rows(made, test, kind, chosen, sets, settings)
        for name in also:
            made.further.extend(_further_rows(test, name, sets))
        advance(1)
    if settings.holm:
        for space in spaces:
            adjusted = holm([row[f"p_{space}"] for row in made.rows])
            for row, p in zip(made.rows, adjusted, strict=True):
                row[f"p_adjusted_{space}"] = p
    return made


def _sets(test: Found, vectors: Vectors) -> Sets:
    if test.reason:
        return {name: [] for name in SETS}
    return {name: [vectors[word] for word in test.words[name]] for name in SETS}


def _add_rows(made: Tested, test: Found, name: str, kind: Kind, sets: Mapping[str, Sets], settings: Settings) -> None:
    head = _about(test, name, kind, settings)
    if test.reason:
        nothing = {f"{figure}_{space}": None for space in sets for figure in ("d", "ci_low", "ci_high", "p")}
        change = _change_columns(None) if len(sets) == 2 else {}
        made.rows.append({**head, **nothing, **change, "reason": test.reason})
        return
    readings = {space: kind.read(found, settings) for space, found in sets.items()}
    for target in readings["raw"]:
        both = [readings[space][target] for space in sets]
        row = {**head, **({"target": target} if target else {})}
        for space, reading in zip(sets, both, strict=True):
            row |= _columns(reading, space)
            quadrants = [{"test": test.test.id, "space": space, **quadrant} for quadrant in reading.map]
            made.map.extend(quadrants)
        row["partitions"] = both[0].test.partitions
        if len(both) == 2:
            row |= _change_columns(_change(kind, (sets["raw"], sets["calibrated"]), (both[0], both[1]), settings))
        made.rows.append(row)


def _about(test: Found, name: str, kind: Kind, settings: Settings) -> dict[str, Any]:
    sizes = {key: test.sizes[key] for key in SETS}
    n, m = (sizes[unit][1] for unit in kind.units)
    return {
        "test": test.test.id,
        "name": test.test.name,
        "category": test.test.category,
        "list_version": test.test.list_version,
        "kind": name,
        "words_found": test.n_found,
        "words_lost": test.n_lost,
        "lost": ", ".join(word for words in test.lost.values() for word in words),
        "left_out": ", ".join(word for words in test.trimmed.values() for word in words),
        **{f"n_{key.lower()}": after for key, (_, after) in sizes.items()},
        **{f"of_{key.lower()}": before for key, (before, _) in sizes.items()},
        "d_bound": largest(n, m, settings.ddof) if min(n, m) > 0 else None,
    }


def _columns(reading: Reading, space: str) -> dict[str, Any]:
    test, limits = reading.test, reading.interval
    row: dict[str, Any] = {"d": test.effect_size, "ci_low": limits.low, "ci_high": limits.high, "p": test.p_value}
    row |= {"method": test.method}
    optional: dict[str, Any] = {
        "p_low": test.p_low,
        "p_high": test.p_high,
        "p_se": test.standard_error,
        "reason": test.reason,
    }
    optional["interval_reason"] = limits.reason
    row |= {name: value for name, value in optional.items() if value is not None}
    return {f"{name}_{space}": value for name, value in {**row, **reading.more}.items()}


def _change(
    kind: Kind, sets: tuple[Sets, Sets], readings: tuple[Reading, Reading], settings: Settings
) -> PairedChange | None:
    if kind.paired is not None:
        return kind.paired(sets, readings, settings)
    before, after = readings
    if before.scores is None or after.scores is None:
        return None
    return paired_change(
        before.scores,
        after.scores,
        before.test.p_value,
        after.test.p_value,
        alpha=settings.alpha,
        alternative=settings.alternative,
        ddof=settings.ddof,
        draws=settings.draws,
        seed=settings.seed,
    )


def _change_columns(change: PairedChange | None) -> dict[str, Any]:
    if change is None:
        return {
            **dict.fromkeys(("status", "change", "change_low", "change_high", "flip_chance")),
            "change_reason": "there is no d in one of the spaces",
        }
    reason = change.reason or change.interval.reason
    return {
        "status": change.status,
        "change": change.change,
        "change_low": change.interval.low,
        "change_high": change.interval.high,
        "flip_chance": change.flip_chance,
        **({"change_reason": reason} if reason else {}),
    }


def _further_rows(test: Found, name: str, sets: Mapping[str, Sets]) -> Iterator[dict[str, Any]]:
    if test.reason:
        yield {"test": test.test.id, "metric": name, "of": None, **dict.fromkeys(sets), "reason": test.reason}
        return
    found = {}
    for space, words in sets.items():
        sides = {key: _stack(words[key]) for key in SETS}
        found[space] = list(FURTHER[name](sides))
    for index, (metric, of, _) in enumerate(found["raw"]):
        row: dict[str, Any] = {"test": test.test.id, "metric": metric, "of": of}
        for space, scores in found.items():
            score = scores[index][2]
            row |= {space: score.value} | ({f"reason_{space}": score.reason} if score.reason else {})
        yield row


def count_status(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many rows are Stable, Disappearing and Emerging; rows without a status count nowhere."""
    return {name: sum(row.get("status") == name for row in rows) for name in ("Stable", "Disappearing", "Emerging")}
