"""Prompts as the token ids that a model continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from refbias.answers.base import Message, Prompt
from refbias.errors import RefbiasError, UsageError, described

Template = Literal["chat", "plain"]
DATE = "26 Jul 2024"  # what templates that print today's date are given: a prompt is the same every day
NEXT_TURN = "\nUser:"  # where template=plain ends an answer
_SPEAKERS = {"system": "System", "user": "User", "assistant": "Assistant"}


def check_template(template: str) -> None:
    if template not in ("chat", "plain"):
        raise UsageError(f"generator.template={template!r}: expected chat or plain.")


def is_raw(messages: Sequence[Message]) -> bool:
    """Whether a prompt is continued as it is."""
    return len(messages) == 1 and not messages[0][0]


class Writer:
    """Token ids of prompts for the model ``name``.

    With template "chat" the tokenizer's own chat template writes everything, special tokens included; a system message
    that it refuses or leaves out is put before the first user turn, which ``say`` is told once. "plain" writes
    "User: …" and "Assistant:", for models that have no template.
    """

    def __init__(self, name: str, tokenizer: Any, template: Template, say: Callable[[str], None]) -> None:
        self._name, self._tokenizer, self._template, self._say = name, tokenizer, template, say
        self._folded = False

    def ids(self, prompt: Prompt) -> list[int]:
        """Raises `RefbiasError` where the model has no chat template, or one that refuses the prompt."""
        if is_raw(prompt.messages):
            return self._plain_ids(prompt.messages[0][1])
        if self._template == "plain":
            return self._plain_ids(plain(prompt.messages))
        if not getattr(self._tokenizer, "chat_template", None):
            raise RefbiasError(
                f"Model {self._name} has no chat template, and the prompts are turns of a conversation. "
                f'Set generator.template=plain, which writes "User: …" and "Assistant:".'
            )
        return self._chat_ids(prompt.messages)

    def _plain_ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text)["input_ids"]
        special = set(self._tokenizer.all_special_ids)
        while len(ids) > 1 and ids[-1] in special:  # an end of text would be answered with another text
            ids = ids[:-1]
        return ids

    def _chat_ids(self, messages: Sequence[Message]) -> list[int]:
        try:
            if not self._leaves_out(messages):
                return list(self._render(messages, tokenize=True))
            problem = "it leaves them out"
        except Exception as error:  # templates raise errors of jinja2
            problem = described(error)
            if messages[0][0] != "system":
                raise RefbiasError(f"The chat template of {self._name} refuses a prompt: {problem}.") from error
        if not self._folded:
            self._folded = True
            self._say(
                f"The chat template of {self._name} takes no system message ({problem}): "
                f"it stands before the first user turn instead."
            )
        try:
            return list(self._render(folded(messages), tokenize=True))
        except Exception as error:
            raise RefbiasError(f"The chat template of {self._name} refuses a prompt: {described(error)}.") from error

    def _leaves_out(self, messages: Sequence[Message]) -> bool:
        role, text = messages[0]
        return role == "system" and text.strip() not in self._render(messages, tokenize=False)

    def _render(self, messages: Sequence[Message], tokenize: bool) -> Any:
        turns = [{"role": role, "content": text} for role, text in messages]
        begun = messages[-1][0] == "assistant"
        return self._tokenizer.apply_chat_template(
            turns,
            tokenize=tokenize,
            add_generation_prompt=not begun,
            continue_final_message=begun,
            return_dict=False,
            date_string=DATE,
        )


def folded(messages: Sequence[Message]) -> list[Message]:
    """The messages with the leading system message before the text of the first turn.

    >>> folded([("system", "Be brief."), ("user", "Hello?")])
    [('user', 'Be brief.\\n\\nHello?')]
    """
    (_, system), (role, text), *rest = messages if len(messages) > 1 else (*messages, ("user", ""))
    return [(role, f"{system}\n\n{text}" if text else system), *rest]


def plain(messages: Sequence[Message]) -> str:
    """A conversation as running text, up to where the assistant speaks.

    >>> plain([("user", "Hello?")])
    'User: Hello?\\nAssistant:'
    """
    lines = [f"{_SPEAKERS.get(role, role.title())}: {text}" for role, text in messages]
    return "\n".join(lines if messages[-1][0] == "assistant" else [*lines, "Assistant:"])
