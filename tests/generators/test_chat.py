"""Prompts as token ids: the chat template once, nothing added, and what is done where there is none."""

from __future__ import annotations

import pytest
import transformers

from refbias.answers import Prompt
from refbias.errors import RefbiasError
from refbias.generators.chat import Writer

SYSTEM = (("system", "Be brief."), ("user", "Tea."))
REFUSING = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    "<s>{{ m['role'] }}: {{ m['content'] }}{% endfor %}"
)
IGNORING = "<s>{% for m in messages %}{% if m['role'] != 'system' %}{{ m['content'] }}{% endif %}{% endfor %}"


@pytest.fixture
def tokenizer(tiny_llama):
    return transformers.AutoTokenizer.from_pretrained(tiny_llama)


def writer(tokenizer, template="chat", say=lambda text: None):
    return Writer("tiny", tokenizer, template, say)


def test_the_template_writes_its_own_beginning_and_nothing_is_added(tokenizer):
    ids = writer(tokenizer).ids(Prompt("a", (("user", "Tea."),)))
    assert ids.count(tokenizer.bos_token_id) == 1 and ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids) == "<s>user: Tea.</s>"
    assert tokenizer(tokenizer.decode(ids))["input_ids"].count(tokenizer.bos_token_id) == 2  # what a second pass does


def test_smollm2_has_each_mark_once(smollm2):
    with smollm2.open() as loaded:
        ids = writer(loaded.tokenizer).ids(Prompt("a", (("system", "Be brief."), ("user", "Tea?"))))
        text = loaded.tokenizer.decode(ids)
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nTea?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("template", [REFUSING, IGNORING])
def test_a_system_message_that_is_refused_or_ignored_stands_in_the_first_turn(tokenizer, template):
    tokenizer.chat_template = template
    said = []
    write = writer(tokenizer, say=said.append)
    for _ in range(2):
        assert "Be brief.\n\nTea." in tokenizer.decode(write.ids(Prompt("a", SYSTEM)))
    assert len(said) == 1 and "takes no system message" in said[0]


def test_raw_text_is_continued_as_it_is(tokenizer, tiny):
    ids = writer(tokenizer).ids(Prompt("a", (("", "Tea."),)))
    assert tokenizer.decode(ids) == "<s>Tea."
    bert = transformers.AutoTokenizer.from_pretrained(tiny["bert"])
    assert bert.decode(writer(bert).ids(Prompt("a", (("", "Tea."),)))) == "<s>Tea."  # no end of text behind


def test_a_model_without_a_template_says_what_to_do(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(RefbiasError, match="has no chat template.*generator.template=plain"):
        writer(tokenizer).ids(Prompt("a", SYSTEM))
    ids = writer(tokenizer, "plain").ids(Prompt("a", SYSTEM))
    assert tokenizer.decode(ids) == "<s>System: Be brief.\nUser: Tea.\nAssistant:"


def test_a_template_that_refuses_everything_is_an_error(tokenizer):
    tokenizer.chat_template = "{{ raise_exception('never') }}"
    with pytest.raises(RefbiasError, match="refuses a prompt: TemplateError: never"):
        writer(tokenizer).ids(Prompt("a", (("user", "Tea."),)))
