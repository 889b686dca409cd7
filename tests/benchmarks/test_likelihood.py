from pathlib import Path

import numpy as np
import pytest
import torch

from refbias.benchmarks import BENCHMARKS, CannotScore, likelihood
from refbias.cache import Cache
from refbias.checkpoints import Checkpoint, edited
from refbias.context import Context
from refbias.finetuning.statements import Statement, noun_of, predicate_pairs
from refbias.finetuning.tokens import tokenize
from refbias.likelihood import log_likelihoods
from refbias.models import Model, find_model
from tests.tiny_models import CAUSAL

GROUPS = ["Women", "Poor people", "left-handed people"]


def by_hand(model: Model, noun: str, predicate: str) -> tuple[float, int]:
    """Σ log p of the predicate's tokens from the model's own logits, one text a call."""
    with model.open_causal() as loaded, torch.inference_mode():
        ids = loaded.tokenizer(f"{noun} {predicate}.")["input_ids"]
        begin = len(loaded.tokenizer(noun)["input_ids"])
        logs = loaded.causal(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(logs[t - 1, ids[t]].item() for t in range(begin, len(ids))), len(ids) - begin


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
    score = likelihood().score(Checkpoint("reference", model), GROUPS, context)
    for group in GROUPS:
        rates = []
        for side in (0, 1):
            found = [by_hand(model, noun_of(group), pair[side]) for pair in predicate_pairs("likelihood")]
            rates.append(np.mean([total / tokens for total, tokens in found]))
        assert score[group] == pytest.approx(rates[0] - rates[1], abs=1e-4)


def test_a_second_time_needs_no_model(tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def score() -> dict[str, float]:
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
        ids = [row.ids for row in tokenize(loaded.tokenizer, statements)]
        assert loaded.token_states.get(changed[1].model.shared_below, ids) is not None
    found = log_likelihoods(changed[1].model, statements, context)
    expected = [by_hand(changed[1].model, s.noun, s.predicate) for s in statements]
    assert found == pytest.approx(np.array(expected), rel=1e-4)
    before = log_likelihoods(reference, statements, context)
    assert not np.allclose(found, before, rtol=1e-4)


def test_a_model_without_a_language_model_head(tiny: dict[str, Path], context: Context) -> None:
    model = find_model(tiny["bert"], cache=context.cache)
    with pytest.raises(CannotScore, match=r"bert is no causal language model.*benchmark=none"):
        likelihood().score(Checkpoint("reference", model), GROUPS, context)


def test_its_threshold_is_an_option() -> None:
    assert BENCHMARKS["likelihood"](threshold=0.2).threshold == 0.2
    assert likelihood().threshold == 0.0
    assert likelihood().unit == "nats a token"
