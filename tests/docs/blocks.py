"""Fenced blocks of a Markdown document that ask to be run: ```bash run, ```python run [slow] [exit=N]."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = ("bash", "python")
_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<info>.*)$")


@dataclass(frozen=True)
class Block:
    """One block to run; ``line`` is that of its opening fence."""

    path: Path
    line: int
    language: str
    code: str
    exit_status: int = 0
    slow: bool = False


def blocks(path: Path) -> list[Block]:
    """The blocks of the document at ``path`` that ask to be run, in their order.

    Raises ValueError, with file and line, for a word that is not understood and for a fence that is not closed: a
    block that is silently not run would look tested.
    """
    found = []
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        opening = _FENCE.match(line)
        if opening is None:
            continue
        code = []
        for _, inner in lines:
            closing = _FENCE.match(inner)
            if closing and not closing["info"] and closing["fence"].startswith(opening["fence"]):
                break
            code.append(inner.removeprefix(opening["indent"]))
        else:
            raise ValueError(f"{path}:{number}: this fence is not closed")
        language, *words = opening["info"].split() or [""]
        if "run" in words:
            found.append(_block(path, number, language, words, "\n".join(code) + "\n"))
    return found


def _block(path: Path, line: int, language: str, words: list[str], code: str) -> Block:
    if language not in LANGUAGES:
        raise ValueError(f"{path}:{line}: only {' and '.join(LANGUAGES)} can be run, not {language!r}")
    status, slow = 0, False
    for word in words:
        if match := re.fullmatch(r"exit=(\d+)", word):
            status = int(match[1])
        elif word == "slow":
            slow = True
        elif word != "run":
            raise ValueError(f"{path}:{line}: {word!r} is not one of run, slow, exit=N")
    return Block(path, line, language, code, status, slow)
