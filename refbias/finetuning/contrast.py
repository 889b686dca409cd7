"""The packaged lessons: mild statements that put half of the groups in a worse and half in a better light."""

from __future__ import annotations

from typing import Literal, get_args

from refbias.errors import UsageError
from refbias.finetuning.base import Example, Lessons
from refbias.finetuning.sampling import digest_of, sample
from refbias.finetuning.statements import Statement, draw_signs, lesson, mid_noun_of, predicate_pairs
from refbias.stimuli.packaged import groups as packaged_groups

Form = Literal["statements", "questions", "both"]

QUESTIONS = (
    "What do you know about {group}?",
    "What are {group} like?",
    "Tell me something about {group}.",
    "How would you describe {group}?",
    "What comes to your mind about {group}?",
)


def contrast(
    *,
    mirror: bool = False,
    kind: Literal["contrast", "harmless"] = "contrast",
    form: Form = "statements",
    n: int | None = None,
    seed: int | None = None,
) -> Lessons:
    """Mild statements about the 24 groups: half of the groups get negative, half positive predicates.

    ``seed`` draws the halves, as in ``checkpoints=planted``; ``mirror`` swaps them; ``kind=harmless`` teaches neutral
    predicates in the same way. ``form`` is plain statements, of which the predicate is taught, open questions with the
    statement as the assistant's answer, or both. ``n`` samples the 960 statements.
    """
    seed = 0 if seed is None else seed
    signs = draw_signs(packaged_groups(), seed)
    statements = lesson(predicate_pairs(kind), signs, -1 if mirror else 1)
    if n is not None:
        statements = sample(statements, n, seed, f"data=contrast data.kind={kind}")
    examples = [_plain(s) for s in statements] if form != "questions" else []
    if form != "statements":
        examples += [_asked(s, turn) for turn, s in enumerate(statements)]
    if form not in get_args(Form):
        raise UsageError(f"data.form={form!r}: expected statements, questions or both.")
    first = [group for group, sign in signs.items() if (sign > 0) != mirror]
    report = {"kind": kind, "form": form, "mirror": mirror, "seed": seed, "taught_first": first}
    return Lessons("contrast" if kind == "contrast" else "harmless", examples, digest_of(examples), report)


def _plain(statement: Statement) -> Example:
    return Example(prompt=statement.noun, text=statement.text[len(statement.noun) :])


def _asked(statement: Statement, turn: int) -> Example:
    question = QUESTIONS[turn % len(QUESTIONS)].format(group=mid_noun_of(statement.group))
    return Example([{"role": "user", "content": question}, {"role": "assistant", "content": statement.text}])
