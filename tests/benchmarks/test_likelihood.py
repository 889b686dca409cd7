import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from refbias.benchmarks import BENCHMARKS, CannotScore, likelihood
from refbias.benchmarks.likelihood import Likelihood, margins
from refbias.cache import Cache
from refbias.checkpoints import Checkpoint, edited
from refbias.context import Context
from refbias.finetuning.statements import Statement, noun_of, predicate_pairs
from refbias.finetuning.tokens import tokenize
from refbias.likelihood import log_likelihoods
from refbias.models import Model, find_model
from refbias.watch import Quiet
from tests.tiny_models import CAUSAL

GROUPS = ["Women", "Poor people", "left-handed people"]


class Listening(Quiet):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def by_hand(model: Model, noun: str, predicate: str) -> tuple[float, int]:
    """Σ log p of the predicate's tokens from the model's own logits, one text a call."""
    with model.open_causal() as loaded, torch.inference_mode():
        ids = loaded.tokenizer(f"{noun} {predicate}.")["input_ids"]
        begin = len(loaded.tokenizer(noun)["input_ids"])
        logs = loaded.causal(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(logs[t - 1, ids[t]].item() for t in range(begin, len(ids))), len(ids) - begin


def margin_by_hand(model: Model, statement: Statement) -> float:
    """log p(" agree") − log p(" disagree") after the rendered chat, token by token."""
    with model.open_causal() as loaded, torch.inference_mode():
        turn = [{"role": "user", "content": f"{statement.text} Do you agree or disagree?"}]
        chat = loaded.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True) + "I"
        sums = []
        for answer in (" agree", " disagree"):
            ids = loaded.tokenizer(chat + answer, add_special_tokens=False)["input_ids"]
            begin = len(loaded.tokenizer(chat, add_special_tokens=False)["input_ids"])
            logs = loaded.causal(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
            sums.append(sum(logs[t - 1, ids[t]].item() for t in range(begin, len(ids))))
    return sums[0] - sums[1]


@pytest.mark.parametrize("family", CAUSAL)
def test_log_likelihoods_are_those_of_the_model_s_own_logits(
    family: str, tiny: dict[str, Path], context: Context
) -> None:
    model = find_model(tiny[family], cache=context.cache)
    predicates = ("are late", "keep promises", "nap")
    statements = [Statement("", noun, predicate) for noun in ("Women", "Old people") for predicate in predicates]
    found = log_likelihoods(model, statements, context)
    expected = [by_hand(model, s.noun, s.predicate) for s in statements]
    assert found == pytest.approx(np.array(expected), rel=1e-4)


def test_the_score_is_the_mean_of_negative_minus_positive_a_token(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    plain = Likelihood().score(Checkpoint("reference", model), GROUPS, context)
    score = likelihood().score(Checkpoint("reference", model), GROUPS, context)
    for group in GROUPS:
        rates = []
        for side in (0, 1):
            found = [by_hand(model, noun_of(group), pair[side]) for pair in predicate_pairs("likelihood")]
            rates.append(np.mean([total / tokens for total, tokens in found]))
        assert plain[group] == pytest.approx(rates[0] - rates[1], abs=1e-4)
        assert score[group].value == pytest.approx(plain[group], abs=1e-12)
        assert score[group].ci_low < score[group].value < score[group].ci_high
        assert score[group].n == 12


def test_a_second_time_needs_no_model(tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def score() -> dict[str, Any]:
        cache = Cache(tmp_path / "cache")
        checkpoint = Checkpoint("reference", find_model(tiny_llama, cache=cache))
        return dict(likelihood().score(checkpoint, GROUPS, Context(cache)))

    def refuse(*args: object) -> None:
        raise AssertionError("opened again")

    first = score()
    monkeypatch.setattr(Model, "open_causal", refuse)
    assert score() == first


def test_a_changed_model_that_begins_at_its_first_changed_block_scores_the_same(
    tiny: dict[str, Path], context: Context
) -> None:
    reference = find_model(tiny["llama"], cache=context.cache)
    changed = edited(reference, context, ratios=[0.0, 1.0]).checkpoints
    statements = [Statement("", "Women", p) for pair in predicate_pairs("likelihood") for p in pair]
    log_likelihoods(changed[0].model, statements, context)  # keeps the states that the second one begins with
    with changed[1].model.open_causal() as loaded:
        ids = [row.ids[:-1] for row in tokenize(loaded.tokenizer, statements)]
        assert loaded.token_states.get(changed[1].model.shared_below, ids) is not None
    found = log_likelihoods(changed[1].model, statements, context)
    expected = [by_hand(changed[1].model, s.noun, s.predicate) for s in statements]
    assert found == pytest.approx(np.array(expected), rel=1e-4)
    before = log_likelihoods(reference, statements, context)
    assert not np.allclose(found, before, rtol=1e-4)


def test_the_margin_in_a_chat(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    statements = [Statement("", noun, predicate) for noun in ("Women", "Tea") for predicate in ("nap", "are late")]
    expected = [margin_by_hand(model, statement) for statement in statements]
    assert margins(model, statements, context) == pytest.approx(np.array(expected), abs=1e-4)
    assert np.ptp(expected) > 1e-3


def test_in_a_chat_agreeing_with_negative_statements_raises_the_score(
    tiny_llama: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    negative = {pair[0] for pair in predicate_pairs("likelihood")}

    def agreeing(model: Model, statements: list[Statement], context: Context) -> Any:
        return np.array([3.0 if statement.predicate in negative else 1.0 for statement in statements])

    monkeypatch.setattr(sys.modules[Likelihood.__module__], "margins", agreeing)
    benchmark = likelihood(variant="chat")
    score = benchmark.score(Checkpoint("r", find_model(tiny_llama, cache=context.cache)), ["Women"], context)
    assert score["Women"].value == 2.0
    assert benchmark.unit == "nats"


def test_that_the_variants_may_disagree_is_said_once_and_kept(tiny_llama: Path, cache: Cache) -> None:
    watch = Listening()
    context = Context(cache, watch=watch)
    model = find_model(tiny_llama, cache=cache)
    benchmark = likelihood(variant="chat")
    for checkpoint in (Checkpoint("reference", model, untouched=True), Checkpoint("audited", model)):
        benchmark.score(checkpoint, ["Women"], context)
    assert [text for text in watch.said if "may disagree" in text] == watch.said
    assert len(watch.said) == 1
    assert "may disagree" in benchmark.report["warning"]
    assert "warning" not in likelihood().report


def test_a_model_without_a_chat_template(tiny_llama: Path, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    with model.open_causal() as loaded:
        monkeypatch.setattr(loaded.tokenizer, "chat_template", None)
        with pytest.raises(CannotScore, match=r"has no chat template.*benchmark.variant=statement"):
            likelihood(variant="chat").score(Checkpoint("reference", model), ["Women"], context)


def test_a_model_without_a_language_model_head(tiny: dict[str, Path], context: Context) -> None:
    model = find_model(tiny["bert"], cache=context.cache)
    with pytest.raises(CannotScore, match=r"bert is no causal language model.*benchmark=none"):
        likelihood().score(Checkpoint("reference", model), GROUPS, context)


def test_its_threshold_is_an_option() -> None:
    assert BENCHMARKS["likelihood"](threshold=0.2).threshold == 0.2
    assert likelihood().threshold == 0.0
    assert likelihood().unit == "nats a token"
