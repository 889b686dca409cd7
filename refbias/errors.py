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
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    available = ", ".join(names) if names else "none"
    return UsageError(f"No {kind} {str(name)!r}.{hint} Available: {available}.")
