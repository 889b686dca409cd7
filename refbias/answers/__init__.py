"""Generated answers: what is asked, how it is drawn and kept, and what judges say of it."""

from refbias.answers.base import (
    Answer,
    Generator,
    Judge,
    Message,
    Pair,
    Prompt,
    Questionnaire,
    Request,
    Sampling,
    Score,
    Verdict,
)

__all__ = [
    "Answer", "Generator", "Judge", "Message", "Pair", "Prompt", "Questionnaire", "Request", "Sampling", "Score",
    "Verdict",
]  # fmt: skip
