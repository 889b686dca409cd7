"""The errors that a user sees: one message that says what was given, what was expected and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RefbiasError(Exception):
    """Something the user can mend. At the command line it becomes one message and exit status 1."""


class UsageError(RefbiasError):
    """A wrong name, option or combination, found before any work is done. Exit status 2."""


def unknown(kind: str, name: object, known: Iterable[str]) -> UsageError:
    """The error for a name that nothing is registered under: suggestion first, then everything there is."""
    names = sorted(known)
    available = ", ".join(names) if names else "none"
    return UsageError(f"No {kind} {str(name)!r}.{did_you_mean(name, names)} Available: {available}.")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A question that names the closest of ``known``, with a space before it; empty where none is close."""
    close = difflib.get_close_matches(str(name), sorted(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def first_line(error: BaseException) -> str:
    """First line of what an error of a library says."""
    return str(error).strip().partition("\n")[0]


def described(error: BaseException) -> str:
    """An error of a library in half a sentence: its type and its first line, without a full stop."""
    return f"{type(error).__name__}: {first_line(error).rstrip('.') or 'no message'}"
