from __future__ import annotations

import numpy as np
import pytest

import refbias
from refbias.answers import Pair, Verdict
from refbias.answers import judging as module
from refbias.answers.judging import facts, judge_all, pair_id
from refbias.cache import Cache
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from refbias.registry import Registry, registry
from refbias.watch import Quiet

PAIRS = [Pair("q", "x" * n) for n in (3, 1, 3, 2, 1)]
seen: list[list[Pair]] = []


def length(pairs, context, *, limit: int = 2, batch: int = 4):
    """1 for a text above a limit."""
    seen.append(list(pairs))
    return [int(len(pair.text) > limit) for pair in pairs]


def stubborn(pairs, context):
    """Fails at every text of two letters."""
    seen.append(list(pairs))
    if any(len(pair.text) == 2 for pair in pairs):
        raise RuntimeError("stopped")
    return [None] * len(pairs)


@pytest.fixture
def parts(monkeypatch):
    """A registry with two judges more, and nothing seen yet."""
    own = Registry()
    own.load()
    weights = ["one"]
    own.add("judge", "length", length, speed=("batch",), about=lambda context, **params: {"weights": weights[0]})
    own.add("judge", "stubborn", stubborn)
    monkeypatch.setattr(module, "registry", lambda: own)
    seen.clear()
    return own, weights


def values(verdicts):
    return [verdict.value for verdict in verdicts]


def test_each_distinct_pair_is_judged_once_and_order_is_kept(parts, context):
    choice = parts[0].resolve("judge", "length")
    assert values(judge_all(PAIRS, choice, context)) == [1, 0, 1, 0, 0]
    assert seen == [[PAIRS[0], PAIRS[3], PAIRS[1]]]  # longest first
    assert judge_all([], choice, context) == []


def test_verdicts_are_kept_by_judge_options_and_what_it_depends_on(parts, cache):
    own, weights = parts

    def count(choice, place=cache):
        seen.clear()
        judge_all(PAIRS, own.resolve("judge", choice), Context(place))
        return sum(map(len, seen))

    assert count("length") == 3
    assert count("length", Cache(cache.directory)) == 0
    assert count(("length", {"batch": 9})) == 0
    assert count(("length", {"limit": 1})) == 3
    weights[0] = "others"
    assert count("length") == 3
    assert count("length") == 0
    assert count("length", Cache(None)) == 3


def test_a_kill_costs_one_chunk(parts, context, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    pairs = [Pair("q", "x" * n) for n in (1, 2, 3, 4, 5)]
    choice = parts[0].resolve("judge", "stubborn")
    for expected in ([[pairs[4], pairs[3]], [pairs[2], pairs[1]]], [[pairs[2], pairs[1]]]):
        seen.clear()
        with pytest.raises(RuntimeError, match="stopped"):
            judge_all(pairs, choice, context)
        assert seen == expected


def test_progress_counts_what_is_still_to_be_judged(parts, cache):
    class Watching(Quiet):
        def progress(self, label, total, unit=""):
            told.append((label, total))
            return super().progress(label, total, unit)

    told = []
    choice = parts[0].resolve("judge", "length")
    for pairs in (PAIRS[:2], PAIRS):
        judge_all(pairs, choice, Context(cache, watch=Watching()))
    assert told == [("judge=length", 2), ("judge=length", 1)]


def test_nothing_is_kept_of_a_function_that_is_no_part(parts, context):
    for limit in (2, 0):
        choice = parts[0].resolve("judge", lambda pairs, context, limit=limit: [len(p.text) > limit for p in pairs])
        assert values(judge_all(PAIRS, choice, context)) == [int(len(p.text) > limit) for p in PAIRS]
    own = parts[0].resolve("judge", length)  # under the name of a part, and not that part: it has no options
    judge_all(PAIRS, own, context)
    judge_all(PAIRS, own, context)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1, 0, -1], [1, 0, -1]),
        ((None, True, False), [None, 1, 0]),
        (np.array([1, 0, -1]), [1, 0, -1]),
        ([Verdict(np.int64(1), "a"), Verdict(None, "b"), 0], [1, None, 0]),
    ],
)
def test_bare_values_become_verdicts(given, expected, context):
    choice = registry().resolve("judge", lambda pairs, context: given)
    found = judge_all(PAIRS, choice, context)
    assert values(found[i] for i in (0, 3, 1)) == expected
    assert all(type(v.value) in (int, type(None)) for v in found)
    assert [v.label for v in judge_all(PAIRS[:1], registry().resolve("judge", lambda p, c: [None]), context)] == [
        "unclear"
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1, 0], "returned 2 verdicts for 3 pairs"),
        ([1] * 4, "returned 4 verdicts for 3 pairs"),
        ([1, 0, 2], "returned the verdict 2: expected 1, 0, -1 or None"),
        ([1, 0, 0.5], "returned a float as a verdict"),
        ([1, 0, "xxx"], "returned a str as a verdict"),
        ([1, 0, Verdict(7, "a")], "returned the verdict 7"),
        ("xxx", "returned a str: expected a list"),
        (None, "returned a NoneType"),
        (iter([1]), "returned a list_iterator"),
    ],
)
def test_anything_else_is_an_error_that_shows_no_text(given, said, context):
    def mine(pairs, context):
        return given

    with pytest.raises(RefbiasError, match=f"judge=mine {said}") as caught:
        judge_all(PAIRS, registry().resolve("judge", mine), context)
    assert "xxx" not in str(caught.value)


def test_a_judge_without_facts_has_none(parts, context):
    assert facts(parts[0].resolve("judge", "stubborn"), context) == {}
    assert facts(parts[0].resolve("judge", "length"), context) == {"weights": "one"}


def test_ids_tell_question_and_text_apart():
    pairs = [Pair("a", "b"), Pair("ab", ""), Pair("", "ab"), Pair("a", "b "), Pair("", "\ud800")]
    assert len({pair_id(pair) for pair in pairs}) == 5
    assert pair_id(Pair("a", "b")) == pair_id(pairs[0])


def test_from_python_it_returns_values():
    assert refbias.judge("decodingtrust_rules", ["I agree.", "I disagree.", "As an AI …", ""]) == [1, -1, 0, 0]
    assert refbias.judge("decodingtrust_rules", []) == []
    assert refbias.judge("decodingtrust_rules", ("I agree.",), prompts=["Really?"], cache=False) == [1]

    def asks_much(pairs, context):
        return [len(pair.question) > 1 for pair in pairs]

    assert refbias.judge(asks_much, ["a", "b"], ["x", "yes"]) == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("decodingtrust_rule", ["a"]), "No judge 'decodingtrust_rule'. Did you mean 'decodingtrust_rules'"),
        (("decodingtrust_rules", "I agree."), "responses is a str: expected a list of texts"),
        (("decodingtrust_rules", 3), "responses is a int"),
        (("decodingtrust_rules", ["a", None]), r"responses\[1\] is a NoneType: expected text"),
        (("decodingtrust_rules", ["a", "b"], ["q"]), "2 responses and 1 prompts"),
        (("decodingtrust_rules", ["a"], "q"), "prompts is a str"),
        (("wildguard", ["a"]), "judge=wildguard reads the question too"),
        ((("decodingtrust_rules", {"limit": 1}), ["a"]), "No option of judge=decodingtrust_rules 'limit'"),
    ],
)
def test_wrong_use_is_named(arguments, said):
    with pytest.raises(UsageError, match=said):
        refbias.judge(*arguments)
