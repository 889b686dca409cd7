"""generator=hf: what transformers' own generate writes; and the same answers whatever the batch."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from refbias.answers import Answer, Prompt, Request, Sampling
from refbias.errors import RefbiasError, UsageError
from refbias.generators.hf import _answer, _Pool, _Row, end_tokens, hf
from refbias.models import LiveModel, find_model
from tests.tiny_models import CAUSAL, SENTENCES

GREEDY = Sampling(1, 0.0, 1.0, 20)
TEXTS = [text[:50] for text in SENTENCES]


def asked(texts, samples=1, role=""):
    prompts = [Prompt(f"p{i}", ((role, text),)) for i, text in enumerate(texts)]
    return [Request(p, s, 100 * i + s) for i, p in enumerate(prompts) for s in range(samples)]


def answers(model, requests, sampling, context, **options) -> dict[tuple[str, int], Answer]:
    return {(r.prompt.id, r.sample): a for r, a in hf(model, requests, sampling, context, **options)}


def generated_ids(loaded, text, tokens, chat=False):
    """What model.generate writes, by itself and greedily."""
    tokenizer = loaded.tokenizer
    if chat:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False, return_tensors="pt"
        )
    else:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
    ends = sorted(end_tokens(loaded))
    with torch.inference_mode():
        made = loaded.causal.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens, pad_token_id=0,
            eos_token_id=ends,
        )  # fmt: skip
    return made[0, ids.shape[1] :].tolist()


def generated(loaded, text, tokens, chat=False):
    return loaded.tokenizer.decode(generated_ids(loaded, text, tokens, chat), skip_special_tokens=True)


@pytest.mark.parametrize("family", CAUSAL)
def test_greedy_answers_are_those_of_generate(family, tiny, context):
    model = find_model(tiny[family], cache=context.cache)
    found = answers(model, asked(TEXTS), GREEDY, context, batch=3)  # lengths differ: rows are padded on the left
    with model.open_causal() as loaded:
        for i, text in enumerate(TEXTS):
            assert found[f"p{i}", 0].text == generated(loaded, text, 20), (family, text)


@pytest.mark.parametrize("sampling", [Sampling(2, 1.0, 1.0, 12), Sampling(2, 0.7, 0.9, 12)], ids=["all", "nucleus"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_answers_depend_neither_on_the_batch_nor_on_the_order_nor_on_what_else_is_asked(
    family, sampling, tiny, context
):
    model, requests = find_model(tiny[family], cache=context.cache), asked(TEXTS, 2)
    alone = answers(model, requests, sampling, context, batch=1)
    assert alone == answers(model, requests[::-1], sampling, context, batch=16)
    rest = answers(model, requests[5::2], sampling, context, batch=4)
    assert all(alone[key] == answer for key, answer in rest.items())
    assert len({answer.text for answer in alone.values()}) > 10
    assert alone != answers(model, [replace(r, seed=r.seed + 1) for r in requests], sampling, context)


def test_where_rounding_could_decide_a_row_is_computed_alone(tiny_llama, context, monkeypatch):
    model, requests, sampling = (
        find_model(tiny_llama, cache=context.cache),
        asked(TEXTS[:5], 3),
        Sampling(3, 1.0, 0.95, 12),
    )
    exact = answers(model, requests, sampling, context, batch=1)
    forward, rng = _Pool._forward, np.random.default_rng(0)

    def wobbly(self, ids, **options):
        logits = forward(self, ids, **options)
        if "logits_to_keep" in options:  # alone
            return logits
        size = 0.004 * logits.abs().amax(1, keepdim=True)
        return logits + size * torch.from_numpy(rng.uniform(-1, 1, logits.shape)).float()

    monkeypatch.setattr(_Pool, "_forward", wobbly)
    assert answers(model, requests, sampling, context, batch=8) != exact
    monkeypatch.setattr(sys.modules[_Pool.__module__], "_ROUNDING", 0.02)
    assert answers(model, requests, sampling, context, batch=8) == exact


def test_samples_of_a_prompt_are_different_and_its_prompt_is_read_once(tiny_llama, context, monkeypatch):
    model, read = find_model(tiny_llama, cache=context.cache), []
    forward = _Pool._forward

    def watched(self, ids, **options):
        read.extend(len(row) for row in ids if len(row) > 1 and self._cache_name in options)
        return forward(self, ids, **options)

    monkeypatch.setattr(_Pool, "_forward", watched)
    found = answers(model, asked(TEXTS[:2], 6), Sampling(6, 1.0, 1.0, 8), context, batch=4)
    assert len({answer.text for answer in found.values()}) == 12
    assert len(read) == 2


def test_every_end_token_ends_an_answer_and_is_not_in_it(tiny_llama, context):
    model = find_model(tiny_llama, cache=context.cache)
    whole = answers(model, asked(TEXTS), GREEDY, context)["p0", 0]
    with model.open_causal() as loaded:
        written = generated_ids(loaded, TEXTS[0], 20)
        other = written[4]
        before = loaded.causal.generation_config.eos_token_id
        loaded.causal.generation_config.eos_token_id = [before, other]
        try:
            assert end_tokens(loaded) >= {before, other}
            found = answers(model, asked(TEXTS), GREEDY, context)["p0", 0]
        finally:
            loaded.causal.generation_config.eos_token_id = before
    assert whole.tokens == 20 and found.finish == "stop" and found.tokens == written.index(other)
    assert whole.text.startswith(found.text)


def test_an_answer_that_is_cut_off_says_so(tiny_llama, context):
    model = find_model(tiny_llama, cache=context.cache)
    found = answers(model, asked(TEXTS[:1]), replace(GREEDY, max_new_tokens=3), context)["p0", 0]
    assert (found.finish, found.tokens) == ("length", 3)
    with model.open_causal() as loaded:
        text = loaded.tokenizer.decode(loaded.tokenizer(" ".join(SENTENCES))["input_ids"][1:58])
        room = 64 - len(loaded.tokenizer(text)["input_ids"])
    assert 0 < room < 10
    assert answers(model, asked([text]), GREEDY, context)["p0", 0].tokens == room
    with pytest.raises(RefbiasError, match="Prompt p0 has .* tokens, and .* reads 64"):
        answers(model, asked([" ".join(SENTENCES * 3)]), GREEDY, context)


def test_plain_turns_end_where_the_user_would_speak_again(tiny_llama, context):
    model = find_model(tiny_llama, cache=context.cache)
    with model.open_causal() as loaded:
        tokenizer = loaded.tokenizer
        new = tokenizer(" Yes.\nUser: And", add_special_tokens=False)["input_ids"]
        rng = np.random.default_rng(0)
        turn, raw = (_Row(asked(["Tea?"], role=role)[0], (1,), 99, rng, new) for role in ("user", ""))
        assert _answer(tokenizer, turn, "plain") == Answer(" Yes.", "stop", len(new))
        assert _answer(tokenizer, turn, "chat").text == _answer(tokenizer, raw, "plain").text == " Yes.\nUser: And"


def test_a_live_model_and_a_model_without_a_head(tiny, context):
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(tiny["llama"])
    live = LiveModel(model, transformers.AutoTokenizer.from_pretrained(tiny["llama"]), "live")
    folder = find_model(tiny["llama"], cache=context.cache)
    assert answers(live, asked(TEXTS), GREEDY, context) == answers(folder, asked(TEXTS), GREEDY, context)
    with pytest.raises(RefbiasError, match="no language-model head"):
        answers(find_model(tiny["bert"], cache=context.cache), asked(TEXTS), GREEDY, context)


def test_options_without_a_meaning_are_refused_at_once(tiny_llama, context):
    model = find_model(tiny_llama, cache=context.cache)
    with pytest.raises(UsageError, match="generator.batch=0"):
        hf(model, [], GREEDY, context, batch=0)
    with pytest.raises(UsageError, match="generator.template='none'"):
        hf(model, [], GREEDY, context, template="none")


def test_smollm2_answers_as_generate_does(smollm2, context):
    texts = ["Name one fruit.", "How many legs does a spider have, and how many does an ant have?"]
    found = answers(smollm2, asked(texts, role="user"), replace(GREEDY, max_new_tokens=6), context)
    with smollm2.open_causal() as loaded:
        for i, text in enumerate(texts):
            assert found[f"p{i}", 0].text == generated(loaded, text, 6, chat=True)


@pytest.mark.slow
def test_smollm2_answers_the_same_in_any_batch(smollm2, context):
    texts = [f"Write a sentence about {what}." for what in ("tea", "the long history of maps", "Paris", "a garden")]
    requests, sampling = asked(texts, 8, role="user"), Sampling(8, 1.0, 1.0, 32)
    alone = answers(smollm2, requests, sampling, context, batch=1)
    assert alone == answers(smollm2, requests, sampling, context, batch=16)
