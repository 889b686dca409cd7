"""A benchmark that asks, from prompts to the agreement with the shifts, on tiny real models."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

import refbias
from refbias.answers import Prompt, Sampling, Verdict
from refbias.benchmarks.questionnaire import Asked
from refbias.errors import UsageError
from refbias.registry import registry
from refbias.schema import result_schema
from tests.tiny_models import write_tiny

GROUPS = ("Bakers", "Cyclists", "Gardeners")
OWN = {
    "targets": {g: [f"{g} walk along {w} street." for w in ("a", "the", "one")] for g in GROUPS},
    "attributes": (
        ["The day was lovely.", "The song was lovely."],
        ["The day was dreadful.", "The meal was dreadful."],
    ),
    "anchors": [f"Sentence number {i} says little." for i in range(8)],
    "draws": 200,
}


def questions(**options) -> Asked:
    rows = [
        Prompt(f"{g}/{i}", (("", f"{g} {word}"),), {"group": g})
        for g in GROUPS
        for i, word in enumerate(("go", "sing"))
    ]
    return Asked(
        "questions", "share of long answers", 0.0, "decodingtrust_rules", Sampling(2, 1.0, 1.0, 6), "1", rows, **options
    )


def long_words(pairs, context):
    """1 where an answer has more than ten letters, None where it has none."""
    return [Verdict(int(len(p.text) > 10), "long" if len(p.text) > 10 else "short") if p.text else None for p in pairs]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("answered")
    return [str(write_tiny("llama", root / f"llama{seed}", seed)) for seed in (7, 8, 9)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def result(pair: list[str], cache: Path) -> dict:
    return refbias.audit(pair[0], pair[1:], benchmark=questions(), judge=long_words, cache=cache, **OWN).data


def test_scores_are_shares_of_the_verdicts(result: dict, pair: list[str], cache: Path) -> None:
    from refbias.answers.store import collect
    from refbias.context import Context
    from refbias.models import find_model

    asked, context = questions(), Context(refbias.cache.Cache(cache))
    for path in pair:
        prompts = asked.prompts(GROUPS)
        generator = registry().resolve("generator", "hf")
        answers = collect(find_model(path, cache=context.cache), prompts, asked.sampling, generator, context)
        for group in GROUPS:
            texts = [a.text for (prompt, _), a in answers.items() if prompt.startswith(group) and a.text]
            measured = result["benchmark"]["measured"][path][group]
            assert measured["n"] == len(texts)
            assert measured["value"] == pytest.approx(sum(len(t) > 10 for t in texts) / len(texts))
            assert measured["ci_low"] <= measured["value"] <= measured["ci_high"]


def test_the_result_says_who_was_asked_and_how(result: dict) -> None:
    jsonschema.validate(result, result_schema(), jsonschema.Draft202012Validator)
    report = result["benchmark"]["report"]
    assert (report["generator"], report["judge"], report["sampling.samples"]) == ("hf", "long_words", 2)
    assert result["settings"]["generator"] == "hf"
    shift = result["benchmark"]["scores"][next(iter(result["benchmark"]["scores"]))]["Bakers"]
    assert shift["delta_bias"] == pytest.approx(shift["bias_score_aud"] - shift["bias_score_ref"])
    assert shift["delta_bias_ci_low"] <= shift["delta_bias"] <= shift["delta_bias_ci_high"]
    assert result["benchmark"]["n_observations"] == 6


def test_nothing_is_generated_twice(
    result: dict, pair: list[str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("generated again")

    generator = registry().resolve("generator", "hf")
    silent = type(generator)(generator.kind, generator.name, generator.params, refuse, generator.traits)
    again = refbias.audit(
        pair[0], pair[1:], benchmark=questions(), generator=silent, judge=long_words, cache=cache, **OWN
    )
    assert again.data["benchmark"]["scores"] == result["benchmark"]["scores"]


def test_the_questionnaire_s_judge_is_the_default(pair: list[str], cache: Path) -> None:
    found = refbias.audit(pair[0], pair[1], benchmark=questions(), cache=cache, **OWN).data
    assert found["settings"]["judge"] == "decodingtrust_rules"
    assert found["benchmark"]["report"]["judge.licence"] == "CC BY-SA 4.0"


def test_groups_of_one_topic_are_one_observation(pair: list[str], cache: Path) -> None:
    shared = questions(units={"Bakers": "Bakers", "Cyclists": "Bakers", "Gardeners": "Gardeners"})
    found = refbias.audit(pair[0], pair[1:], benchmark=shared, judge=long_words, cache=cache, **OWN).data["benchmark"]
    assert found["n_observations"] == 4
    measured = found["measured"][pair[1]]
    assert measured["Bakers"] == measured["Cyclists"]


def test_one_served_model_cannot_answer_for_several(pair: list[str], cache: Path) -> None:
    def served(model, requests, sampling, context, *, served="one"):
        from refbias.answers import Answer

        return ((request, Answer("Yes, this is long.", "stop", 4)) for request in requests)

    part = registry().resolve("generator", "hf")
    choice = type(part)("generator", "served", {"served": "one"}, served, {"remote": True})
    with pytest.raises(UsageError, match=r"generator\.served=one would let one served model answer for all"):
        refbias.audit(pair[0], pair[1], benchmark=questions(), generator=choice, judge=long_words, cache=cache, **OWN)


def test_a_model_that_writes_no_text_has_no_figures(tmp_path: Path, cache: Path) -> None:
    encoder = str(write_tiny("bert", tmp_path / "bert"))
    found = refbias.audit(encoder, encoder, benchmark=questions(), judge=long_words, cache=cache, **OWN).data[
        "benchmark"
    ]
    assert "is no causal language model, so it writes no answers" in found["reason"]
