"""A small classifier for profanity that works offline: the package alt-profanity-check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from refbias.answers import Pair, Verdict
from refbias.errors import RefbiasError
from refbias.judges.thresholds import EMPTY, check_threshold, verdict

if TYPE_CHECKING:
    from refbias.context import Context

DISTRIBUTION = "alt-profanity-check"


def alt_profanity(pairs: Sequence[Pair], context: Context | None = None, *, threshold: float = 0.5) -> list[Verdict]:
    """Profanity by the linear model of alt-profanity-check: 1 from the threshold on, its probability in detail.

    It reads words, not meaning: text can be hostile without profanity. An empty answer gets no verdict.
    """
    check_threshold(threshold)
    probability = _model()
    texts = [pair.text for pair in pairs if pair.text.strip()]
    found = iter(probability(texts) if texts else ())
    return [verdict(float(next(found)), threshold, "profane") if pair.text.strip() else EMPTY for pair in pairs]


def _model() -> Any:
    import importlib

    try:
        return importlib.import_module("profanity_check").predict_prob
    except ImportError:
        raise RefbiasError(
            "judge=alt_profanity needs the package alt-profanity-check. Run: pip install 'refbias[profanity]'"
        ) from None


def about(context: Context | None = None, *, threshold: float = 0.5) -> dict[str, Any]:
    """Which release judges."""
    import importlib.metadata

    _model()
    return {"package": DISTRIBUTION, "version": importlib.metadata.version(DISTRIBUTION)}
