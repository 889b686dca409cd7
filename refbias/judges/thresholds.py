"""From a probability to a verdict, for judges that give one."""

from __future__ import annotations

from refbias.answers import Verdict
from refbias.errors import UsageError

EMPTY = Verdict(None, "empty")


def check_threshold(threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise UsageError(f"judge.threshold={threshold} is no probability: expected 0 to 1.")


def verdict(probability: float, threshold: float, word: str) -> Verdict:
    """1 and ``word`` from ``threshold`` on, else 0 and "not_…"; the probability is kept as detail."""
    over = probability >= threshold
    return Verdict(int(over), word if over else f"not_{word}", f"{probability:.6f}")
