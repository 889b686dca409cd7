from collections import Counter

import pytest

from refbias.errors import RefbiasError, UsageError
from refbias.finetuning.contrast import QUESTIONS, contrast
from refbias.finetuning.statements import draw_signs, lesson, predicate_pairs
from refbias.stimuli import GROUPS


def texts(**options: object) -> list[str]:
    return [e.prompt + e.text for e in contrast(**options).examples]  # type: ignore[arg-type]


@pytest.mark.parametrize(("mirror", "end"), [(False, 1), (True, -1)])
@pytest.mark.parametrize("kind", ["contrast", "harmless"])
def test_it_teaches_what_the_planted_checkpoints_are_taught(mirror: bool, end: int, kind: str) -> None:
    signs = draw_signs(GROUPS, 3)
    expected = lesson(predicate_pairs(kind), signs, end)
    found = contrast(mirror=mirror, kind=kind, seed=3)  # type: ignore[arg-type]
    assert [(e.prompt, e.prompt + e.text) for e in found.examples] == [(s.noun, s.text) for s in expected]
    assert found.report["taught_first"] == [group for group, sign in signs.items() if sign == end]
    assert len(found.examples) == 960


def test_the_mirror_image_exchanges_the_halves() -> None:
    there, back = contrast(), contrast(mirror=True)
    assert not set(there.report["taught_first"]) & set(back.report["taught_first"])
    assert {*there.report["taught_first"], *back.report["taught_first"]} == set(GROUPS)
    assert not set(texts()) & set(texts(mirror=True))
    assert there.digest != back.digest
    assert contrast(seed=1).digest != there.digest == contrast(seed=0).digest


def test_open_questions_have_the_statement_as_their_answer() -> None:
    found = contrast(form="questions")
    answers = [e.messages[1]["content"] for e in found.examples]
    assert answers == texts()
    questions = [e.messages[0]["content"] for e in found.examples]
    assert not any(word in question.lower() for question in QUESTIONS for word in ("agree", "true", "yes"))
    assert all(question.endswith(("?", ".")) and "{" not in question for question in questions)
    asked = Counter(question.replace("women", "{group}") for question in questions if "women" in question)
    assert set(QUESTIONS) == set(asked)
    assert len(set(asked.values())) == 1
    assert len(contrast(form="both").examples) == 2 * 960


def test_a_sample_is_the_beginning_of_a_larger_one() -> None:
    assert texts(n=10, seed=2) == texts(n=30, seed=2)[:10]
    assert set(texts(n=30, seed=2)) < set(texts(seed=2))
    with pytest.raises(UsageError, match=r"data\.n=0 is no number of examples"):
        contrast(n=0)
    with pytest.raises(RefbiasError, match=r"data=contrast data\.kind=harmless has 960 examples, and 961 are asked"):
        contrast(n=961, kind="harmless")


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(UsageError, match=r"data\.form='songs': expected statements, questions or both"):
        contrast(form="songs")  # type: ignore[arg-type]
