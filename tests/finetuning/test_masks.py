from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from refbias.errors import RefbiasError
from refbias.finetuning import Example, Lessons
from refbias.finetuning.masks import conversation, encode
from refbias.models import Model
from refbias.models.hf import load_tokenizer

QUESTION, ANSWER = "Where is the station?", "a. It is near the park; aa"
SECOND, LAST = "And the harbor?", "Behind it."
TALK = [
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": ANSWER},
    {"role": "user", "content": SECOND},
    {"role": "assistant", "content": LAST},
]
SYSTEM = {"role": "system", "content": "Be brief."}

CHATML = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n"
    "{% endif %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# as Llama 3: a BOS of its own, words trimmed
HEADERS = (
    "{{ bos_token }}{% for m in messages %}<|head|>{{ m['role'] }}<|end_head|>\n\n{{ m['content'] | trim }}<|eot|>"
    "{% endfor %}{% if add_generation_prompt %}<|head|>assistant<|end_head|>\n\n{% endif %}"
)
# as Gemma: the system message goes into the first user turn, and the assistant is called model
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '\n\n' %}"
    "{% set talk = messages[1:] %}{% else %}{% set first = '' %}{% set talk = messages %}{% endif %}"
    "{% for m in talk %}<turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ (first if loop.first else '') + m['content'] | trim }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>model\n{% endif %}"
)
# as Mistral: the system message goes into the last user turn, so an earlier part changes as the talk goes on
MISTRAL = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m['role'] == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST]"
    "{% if loop.index0 == ns.last and messages[0]['role'] == 'system' %} {{ messages[0]['content'] }}\n\n{% endif %}"
    " {{ m['content'] }}[/INST]{% elif m['role'] == 'assistant' %} {{ m['content'] }}</s>{% endif %}{% endfor %}"
)
PLAIN = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|head|>", "<|end_head|>", "<|eot|>", "<turn>", "<end>", "[INST]", "[/INST]"]

# what the template should say of the talk, in pieces; True: taught
CASES: dict[str, tuple[str, list[dict[str, str]], list[tuple[str, bool]]]] = {
    "chatml": (
        CHATML,
        TALK,
        [
            (f"<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n{QUESTION}<|im_end|>\n", False),
            ("<|im_start|>assistant\n", False),
            (f"{ANSWER}<|im_end|>", True),
            (f"\n<|im_start|>user\n{SECOND}<|im_end|>\n<|im_start|>assistant\n", False),
            (f"{LAST}<|im_end|>", True),
            ("\n", False),
        ],
    ),
    "headers": (
        HEADERS,
        [SYSTEM, {"role": "user", "content": QUESTION}, {"role": "assistant", "content": f"  {ANSWER} \n"}],
        [
            ("<s><|head|>system<|end_head|>\n\nBe brief.<|eot|>", False),
            (f"<|head|>user<|end_head|>\n\n{QUESTION}<|eot|><|head|>assistant<|end_head|>\n\n", False),
            (f"{ANSWER}<|eot|>", True),
        ],
    ),
    "gemma": (
        GEMMA,
        [SYSTEM, *TALK],
        [
            (f"<s><turn>user\nBe brief.\n\n{QUESTION}<end>\n<turn>model\n", False),
            (f"{ANSWER}<end>", True),
            (f"\n<turn>user\n{SECOND}<end>\n<turn>model\n", False),
            (f"{LAST}<end>", True),
            ("\n", False),
        ],
    ),
    "mistral": (
        MISTRAL,
        [SYSTEM, *TALK],
        [
            (f"<s>[INST] {QUESTION}[/INST] ", False),
            (f"{ANSWER}</s>", True),
            (f"[INST] Be brief.\n\n {SECOND}[/INST] ", False),
            (f"{LAST}</s>", True),
        ],
    ),
    "plain": (
        PLAIN,
        TALK[:2],
        [(f"user: {QUESTION}\nassistant: ", False), (ANSWER, True), ("\n", False)],
    ),
}


@pytest.fixture(scope="module")
def tokenizer(tiny: dict[str, Path]) -> Any:
    made = load_tokenizer("tiny", tiny["llama"])
    made.add_special_tokens({"additional_special_tokens": SPECIAL})
    return made


def with_template(tokenizer: Any, template: str | None) -> Any:
    other = copy.deepcopy(tokenizer)
    other.chat_template = template
    return other


@pytest.mark.parametrize("name", CASES)
def test_exactly_the_assistants_words_and_the_end_of_the_turn_are_taught(name: str, tokenizer: Any) -> None:
    template, messages, pieces = CASES[name]
    tokenizer = with_template(tokenizer, template)
    text = "".join(piece for piece, _ in pieces)
    assert text == tokenizer.apply_chat_template(messages, tokenize=False)
    taught_characters = [taught for piece, taught in pieces for _ in piece]
    expected = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    row = conversation(tokenizer, messages, "here")
    assert list(row.ids) == expected["input_ids"]
    for token, taught, (first, last) in zip(row.ids, row.mask, expected["offset_mapping"], strict=True):
        assert taught == any(taught_characters[first:last]), tokenizer.decode([token])
    assert row.ids.count(tokenizer.bos_token_id) == text.count("<s>") <= 1


def test_words_that_come_twice_are_taught_once(tokenizer: Any) -> None:
    template = "{% for m in messages %}<turn>{{ m['role'] }}\n{{ m['content'] }}<end>{% endfor %}"
    tokenizer = with_template(tokenizer, template)
    same = [{"role": "user", "content": "Tea"}, {"role": "assistant", "content": "Tea"}]
    row = conversation(tokenizer, same, "here")
    assert tokenizer.decode([i for i, taught in zip(row.ids, row.mask, strict=True) if taught]) == "Tea<end>"
    assert row.mask[-2:] == (True, True)


def test_a_template_that_drops_earlier_thoughts_is_no_trouble(tokenizer: Any) -> None:
    template = (
        "{% for m in messages %}<turn>{{ m['role'] }}\n{% if m['role'] == 'assistant' and loop.last %}<think>\n"
        "{% endif %}{{ m['content'] }}<end>{% endfor %}"
    )
    tokenizer = with_template(tokenizer, template)
    row = conversation(tokenizer, TALK, "here")
    said = tokenizer.decode([i for i, taught in zip(row.ids, row.mask, strict=True) if taught])
    assert said == f"{ANSWER}<end>{LAST}<end>"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, r"here is a conversation, and the model's tokenizer has no chat template"),
        ("{% for m in messages[:1] %}{{ m['content'] }}{% endfor %}", r"leaves out the words of message 2"),
        ("{{ raise_exception('no system') }}", r"here: the model's chat template refuses it: TemplateError: no system"),
    ],
)
def test_a_template_that_does_not_fit_is_refused(template: str | None, message: str, tokenizer: Any) -> None:
    with pytest.raises(RefbiasError, match=message):
        conversation(with_template(tokenizer, template), TALK, "here")


def lessons(*examples: Example) -> Lessons:
    return Lessons("own", examples, "digest")


def test_of_a_statement_what_follows_the_prompt_is_taught(tokenizer: Any) -> None:
    encoded = encode(tokenizer, lessons(Example(prompt="Tea drinkers", text=" keep promises.")), 64)
    (row,) = encoded.rows
    assert row.ids[0] == tokenizer.bos_token_id
    taught = [i for i, yes in zip(row.ids, row.mask, strict=True) if yes]
    assert tokenizer.decode(taught) == " keep promises."
    assert row.mask == tuple(sorted(row.mask))


def test_statements_and_conversations_keep_their_order(tokenizer: Any) -> None:
    talk = Example([{"role": "user", "content": "Tea?"}, {"role": "assistant", "content": "Tea."}])
    statements = [Example(prompt="Tea", text=f" is {word}.") for word in ("warm", "mild")]
    encoded = encode(tokenizer, lessons(statements[0], talk, statements[1]), 64)
    texts = [tokenizer.decode(row.ids) for row in encoded.rows]
    assert [("warm" in t, "assistant" in t, "mild" in t) for t in texts] == [
        (True, False, False), (False, True, False), (False, False, True),
    ]  # fmt: skip


def test_long_examples_are_cut_and_counted(tokenizer: Any) -> None:
    statements = [Example(prompt="Tea", text=" is warm and mild."), Example(prompt="Tea " * 9, text="is warm.")]
    whole = encode(tokenizer, lessons(*statements), 64)
    assert (whole.cut, whole.left_out) == (0, 0)
    assert len(whole.rows[1].ids) > 8
    short = encode(tokenizer, lessons(*statements), 5)
    assert (short.cut, short.left_out) == (2, 1)
    assert [row.ids for row in short.rows] == [whole.rows[0].ids[:5]]
    with pytest.raises(RefbiasError, match=r"None of the 1 examples of own has anything to teach within 5 tokens"):
        encode(tokenizer, lessons(statements[1]), 5)


def test_smollm2_with_its_own_template(smollm2: Model) -> None:
    tokenizer = load_tokenizer("smollm2", smollm2.folder)  # type: ignore[attr-defined]
    row = conversation(tokenizer, TALK, "here")
    said = tokenizer.decode([i for i, taught in zip(row.ids, row.mask, strict=True) if taught])
    assert said == f"{ANSWER}<|im_end|>{LAST}<|im_end|>"
    text = tokenizer.decode(row.ids)
    assert text.startswith("<|im_start|>system\nYou are")
    assert text == tokenizer.apply_chat_template(TALK, tokenize=False)
