"""Examples as token ids that say which of them are taught: the assistant's turns, or what follows a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from refbias.errors import RefbiasError, described
from refbias.finetuning.base import Example, Lessons, Message
from refbias.finetuning.tokens import common, completions


@dataclass(frozen=True)
class Taught:
    """Tokens of one example; ``mask`` is true where the loss is taken."""

    ids: tuple[int, ...]
    mask: tuple[bool, ...]


@dataclass(frozen=True)
class Encoded:
    """All examples; ``cut`` of them were too long, and ``left_out`` of these had nothing left that is taught."""

    rows: list[Taught]
    cut: int
    left_out: int


def encode(tokenizer: Any, lessons: Lessons, max_length: int) -> Encoded:
    """Every example in the model's own form, cut at ``max_length`` tokens.

    Raises `RefbiasError`, with the number of the example, where the chat template does not take it.
    """
    rows = _plain(tokenizer, [e for e in lessons.examples if not e.messages])
    talks = iter(rows)
    every = [
        conversation(tokenizer, example.messages, f"{lessons.name}, example {number}")
        if example.messages
        else next(talks)
        for number, example in enumerate(lessons.examples, start=1)
    ]
    short = [Taught(row.ids[:max_length], row.mask[:max_length]) for row in every]
    kept = [row for row in short if any(row.mask[1:])]
    if not kept:
        raise RefbiasError(
            f"None of the {len(every)} examples of {lessons.name} has anything to teach within {max_length} tokens. "
            f"Raise regime.max_length, or choose other data."
        )
    return Encoded(kept, sum(len(row.ids) > max_length for row in every), len(short) - len(kept))


def _plain(tokenizer: Any, examples: Sequence[Example]) -> list[Taught]:
    rows = completions(tokenizer, [(e.prompt, e.prompt + e.text) for e in examples]) if examples else []
    return [Taught(row.ids, tuple(i >= row.begin for i in range(len(row.ids)))) for row in rows]


def conversation(tokenizer: Any, messages: Sequence[Message], where: str) -> Taught:
    """``messages`` through the chat template; the assistant's words are taught, and the token that ends each turn.

    Where a turn's words stand in the text is found by exchanging them: what changes is the turn. So nothing needs to
    be known about the template, which may move or drop other parts as a conversation goes on.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise RefbiasError(
            f"{where} is a conversation, and the model's tokenizer has no chat template. Use a model that was made for "
            f"conversations, or data of plain statements."
        )
    if not tokenizer.is_fast:
        raise RefbiasError(f"{where}: the model's tokenizer does not say where its tokens stand. Add a tokenizer.json.")
    text = _rendered(tokenizer, messages, where)
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, places = found["input_ids"], found["offset_mapping"]
    ends = set(tokenizer.all_special_ids) | set(getattr(tokenizer, "added_tokens_decoder", {}))
    mask = [False] * len(ids)
    for turn, message in enumerate(messages):
        if message["role"] == "assistant":
            begin, end = _place(tokenizer, messages, turn, text, where)
            inside = [i for i, (first, last) in enumerate(places) if first < end and last > begin]
            after = inside[-1] + 1 if inside else len(ids)
            if after < len(ids) and ids[after] in ends:
                inside.append(after)
            for i in inside:
                mask[i] = True
    return Taught(tuple(ids), tuple(mask))


def _place(tokenizer: Any, messages: Sequence[Message], turn: int, text: str, where: str) -> tuple[int, int]:
    """First character of the words of a turn in ``text``, and the one behind its last."""
    words = messages[turn]["content"].strip()
    other = ("b" if words[0] == "a" else "a") + ("b" if words[-1] == "a" else "a")
    exchanged = [{**m, "content": other} if i == turn else m for i, m in enumerate(messages)]
    changed = _rendered(tokenizer, exchanged, where)
    begin = common(text, changed)
    end = len(text) - common(text[begin:][::-1], changed[begin:][::-1])
    if begin >= end:
        raise RefbiasError(
            f"{where}: the model's chat template leaves out the words of message {turn + 1}. Split the conversation so "
            f"that this message is its last."
        )
    return begin, end


def _rendered(tokenizer: Any, messages: Sequence[Message], where: str) -> str:
    try:
        return str(tokenizer.apply_chat_template([dict(m) for m in messages], tokenize=False))
    except Exception as error:
        raise RefbiasError(f"{where}: the model's chat template refuses it: {described(error)}.") from None
