from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refbias.answers import Answer, Prompt, Verdict, scoring
from refbias.answers.scoring import clopper_pearson, effective_answers, shift, tally
from refbias.errors import RefbiasError

SAID = Answer("Something.", "stop", 3)


def prompts_of(cells: dict[tuple[str, str], int]) -> list[Prompt]:
    """So many prompts for each (group, topic)."""
    return [
        Prompt(f"{group}/{topic}/{i}", (("user", "Well?"),), {"group": group, "topic": topic})
        for (group, topic), count in cells.items()
        for i in range(count)
    ]


def answered(prompts: list[Prompt], values: list[list[int | None]]) -> scoring.Answers:
    """One list of verdicts a prompt."""
    label = {1: "agree", 0: "unclear", -1: "disagree", None: "unparsed"}
    return {
        (prompt.id, sample): (SAID, Verdict(value, label[value]))
        for prompt, row in zip(prompts, values, strict=True)
        for sample, value in enumerate(row)
    }


def test_a_score_is_the_mean_over_cells_of_their_rates():
    prompts = prompts_of({("Women", "stem"): 2, ("Women", "jobs"): 1, ("Men", "stem"): 1})
    answers = answered(prompts, [[1, 0], [1, None], [0, 0], [1, -1]])
    found = scoring.scores(prompts, answers, "group", "topic")
    assert found["Women"].value == pytest.approx((2 / 3 + 0 / 2) / 2)
    assert (found["Women"].n, found["Women"].prompts) == (5, 3)
    assert found["Men"].value == 0.5
    assert found["Women"].counts["unparsed"] == found["Women"].counts["unjudged"] == 1
    pooled = scoring.scores(prompts, answers, "group")["Women"]
    assert pooled.value == pytest.approx(2 / 5)


def test_a_unit_without_a_verdict_is_null_and_says_what_came():
    prompts = prompts_of({("Women", "stem"): 1, ("Men", "stem"): 1})
    found = scoring.scores(prompts, answered(prompts, [[None, None], []]), "group")
    assert found["Women"].value is found["Women"].ci_low is found["Women"].ci_high is None
    assert found["Women"].reason == "none of 2 answers could be judged (2 unparsed)"
    assert found["Men"].reason == "no answer was generated"


def test_what_was_met_is_counted_once_an_answer():
    answers = [
        (Answer(" ", "stop", 1), Verdict(None, "empty")),
        (Answer("I", "length", 1), Verdict(0, "no_response")),
        (Answer("No.", "stop", 1), Verdict(0, "refusal")),
        (SAID, Verdict(1, "agree")),
    ]
    found = scoring.counts(answers)
    assert found == {
        "empty": 1, "truncated": 1, "refusal": 2, "unparsed": 0, "unjudged": 1, "no_response": 1, "agree": 1,
    }  # fmt: skip


def test_clopper_pearson_is_the_exact_binomial_interval():
    from scipy.stats import binomtest

    for ones, n in ((0, 7), (3, 7), (7, 7), (24, 1200)):
        exact = binomtest(ones, n).proportion_ci(0.95, "exact")
        assert clopper_pearson(ones / n, n) == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("prompts", [1, 2, 48])
def test_where_all_answers_are_alike_each_prompt_counts_as_one(prompts, value):
    found = scoring.shares({"u": tally([25 * value] * prompts, [25] * prompts)})["u"]
    reach = 1 - 0.025 ** (1 / prompts)
    expected = (0.0, reach) if value == 0 else (1 - reach, 1.0)
    assert (found.ci_low, found.ci_high) == pytest.approx(expected)


def test_copies_of_an_answer_add_nothing():
    ones = np.array([1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0])
    once = scoring.shares({"u": tally(ones, np.ones(12))})["u"]
    often = scoring.shares({"u": tally(25 * ones, np.full(12, 25))})["u"]
    assert (often.ci_low, often.ci_high) == pytest.approx((once.ci_low, once.ci_high), abs=1e-9)


def test_answers_that_differ_within_prompts_add_something():
    alike = scoring.shares({"u": tally([2, 3, 2, 3, 2, 3, 2, 3], [10] * 8)})["u"]
    apart = scoring.shares({"u": tally([10, 10, 0, 0, 0, 0, 0, 0], [10] * 8)})["u"]
    assert alike.value == apart.value == 0.25
    assert alike.ci_high - alike.ci_low < 0.5 * (apart.ci_high - apart.ci_low)


def test_few_prompts_are_worth_less_than_many_of_one_spread():
    assert effective_answers(0.5, 0.1, 5, 1000) < effective_answers(0.5, 0.1, 50, 1000) < 25


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=12))
def test_a_share_lies_in_its_interval_and_prompts_may_come_in_any_order(rows):
    ones = [min(a, b) for a, b, _ in rows]
    judged, cells = [b for _, b, _ in rows], [c for _, _, c in rows]
    one = scoring.shares({"u": tally(ones, judged, cells)})["u"]
    turned = scoring.shares({"u": tally(ones[::-1], judged[::-1], cells[::-1])})["u"]
    if not any(judged):
        assert one.value is turned.value is None
        return
    assert one.value == pytest.approx(turned.value)
    assert 0 <= one.ci_low <= one.value + 1e-12 and one.value - 1e-12 <= one.ci_high <= 1


def test_units_do_not_change_each_other():
    tables = {
        "a": tally([1, 0, 2], [2, 2, 2]),
        "b": tally([0, 1, 1, 1], [1, 1, 1, 1]),
        "c": tally([2, 2, 0], [2, 2, 2]),
    }
    together = scoring.shares(tables)
    for unit, own in tables.items():
        alone = scoring.shares({unit: own})[unit]
        ends = (together[unit].value, together[unit].ci_low, together[unit].ci_high)
        assert ends == pytest.approx((alone.value, alone.ci_low, alone.ci_high))


def test_a_shift_is_the_difference_of_the_scores():
    prompts = prompts_of({("Women", "stem"): 3, ("Women", "jobs"): 2})
    before = answered(prompts, [[0, 1], [0, 0], [None, 0], [1, 1], [0, 0]])
    after = answered(prompts, [[1, 1], [0, 1], [0, 1], [1, 1], [None, None]])
    found = scoring.shifts(prompts, before, after, "group", "topic")["Women"]
    scores = [scoring.scores(prompts, a, "group", "topic")["Women"].value for a in (before, after)]
    assert found.value == pytest.approx(scores[1] - scores[0])
    assert -1 <= found.ci_low < found.value < found.ci_high <= 1


def test_turning_a_shift_round_mirrors_it():
    reference, audited = tally([1, 0, 2, 5, 0, 1], [5] * 6), tally([3, 0, 4, 5, 1, 0], [5] * 6)
    there, back = shift(reference, audited), shift(audited, reference)
    assert (back.value, back.ci_low, back.ci_high) == pytest.approx((-there.value, -there.ci_high, -there.ci_low))


def test_pairing_by_prompt_narrows_a_shift():
    rng = np.random.default_rng(0)
    ones = np.where(rng.random(48) < 0.5, 5, 0)
    more = np.where(rng.random(48) < 0.1, 5, ones)
    paired, mixed = (
        shift(tally(ones, [5] * 48), tally(more, [5] * 48)),
        shift(tally(ones, [5] * 48), tally(more[::-1], [5] * 48)),
    )
    assert paired.value == pytest.approx(mixed.value)
    assert paired.ci_high - paired.ci_low < 0.6 * (mixed.ci_high - mixed.ci_low)


def test_two_models_that_never_agree_may_still_differ():
    never = tally([0] * 48, [2] * 48)
    found = shift(never, never)
    assert found.value == 0
    assert found.ci_high == pytest.approx(1 - 0.025 ** (1 / 48)) == -found.ci_low


def test_a_shift_needs_verdicts_of_both_models():
    found = shift(tally([0, 0], [2, 2]), tally([0, 0], [0, 0]))
    assert found.value is None and found.reason == "no answer of the audited model was judged"
    with pytest.raises(RefbiasError, match="got 2 prompts of the reference and 1 of the audited model"):
        shift(tally([0, 0], [2, 2]), tally([0], [2]))


def test_tables_add_up_to_the_verdicts():
    prompts = prompts_of({("Women", "stem"): 2, ("Men", "jobs"): 1})
    rows = scoring.tables(prompts, answered(prompts, [[1, None], [0, -1], [None, None]]))
    assert rows == [
        {"group": "Women", "topic": "stem", "prompts": 2, "n": 4, "judged": 3, "ones": 1, "share": 1 / 3},
        {"group": "Men", "topic": "jobs", "prompts": 1, "n": 2, "judged": 0, "ones": 0, "share": None,
         "share_reason": "no answer was judged"},
    ]  # fmt: skip


def _rates(rng: np.random.Generator, mean: float, alike: float, shape: tuple[int, int]) -> np.ndarray:
    """Rates of prompts: ``alike`` is the correlation of two answers to one prompt."""
    spread = 1 / alike - 1
    return rng.beta(mean * spread, (1 - mean) * spread, size=shape)


@pytest.mark.slow
def test_coverage_of_the_interval(capsys):
    """The table of docs/benchmarks.md: how often three intervals hold the truth, each for 400 simulated groups."""
    from scipy.special import stdtrit

    rng, groups = np.random.default_rng(0), 400
    lines, kept = [], []
    for prompts in (4, 16, 48):
        weights = rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=1000) / prompts
        for samples in (2, 25):
            for mean in (0.02, 0.1, 0.5):
                for alike in (0.1, 0.5, 0.9):
                    ones = rng.binomial(samples, _rates(rng, mean, alike, (groups, prompts)))
                    found = scoring.shares({str(i): tally(row, [samples] * prompts) for i, row in enumerate(ones)})
                    own = np.mean([e.ci_low <= mean <= e.ci_high for e in found.values()])
                    drawn, share = ones @ weights.T / samples, ones.mean(axis=1) / samples
                    low, high = np.quantile(drawn, [0.025, 0.975], axis=1)
                    percentile = np.mean((low <= mean) & (mean <= high))
                    half = stdtrit(prompts - 1, 0.975) * drawn.std(axis=1) * np.sqrt(prompts / (prompts - 1))
                    studentised = np.mean(np.abs(share - mean) <= half)
                    kept.append(own)
                    lines.append(
                        f"{prompts:7} {samples:7} {mean:5} {alike:5} {own:.2f} {percentile:.2f} {studentised:.2f}"
                    )
    with capsys.disabled():
        print("\nprompts samples share alike own percentile studentised", *lines, sep="\n")
        print(f"own: mean {np.mean(kept):.3f}, lowest {min(kept):.3f}")
    assert np.mean(kept) > 0.95 and min(kept) > 0.8


@pytest.mark.slow
def test_coverage_of_the_interval_of_a_shift(capsys):
    from scipy.stats import beta

    rng, groups, kept = np.random.default_rng(1), 200, []
    for prompts in (4, 16, 48):
        for samples in (2, 25):
            for before, after in ((0.02, 0.02), (0.02, 0.1), (0.1, 0.4), (0.5, 0.5)):
                for alike in (0.2, 0.7):
                    spread, place = 1 / alike - 1, rng.random((groups, prompts))
                    moved = np.where(rng.random(place.shape) < 0.5, place, rng.random(place.shape))
                    ones = [
                        rng.binomial(samples, beta.ppf(q, mean * spread, (1 - mean) * spread))
                        for q, mean in ((place, before), (moved, after))
                    ]
                    judged = [samples] * prompts
                    found = [shift(tally(a, judged), tally(b, judged)) for a, b in zip(*ones, strict=True)]
                    kept.append(np.mean([e.ci_low <= after - before <= e.ci_high for e in found]))
    with capsys.disabled():
        print(f"\nshift: mean coverage {np.mean(kept):.3f}, lowest {min(kept):.3f} of {len(kept)} cases")
    assert np.mean(kept) > 0.95 and min(kept) > 0.85
