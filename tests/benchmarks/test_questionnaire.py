from __future__ import annotations

import pytest

from refbias.answers import Answer, Prompt, Sampling, Verdict
from refbias.benchmarks.questionnaire import Asked, at_least_one
from refbias.benchmarks.sources import from_hub
from refbias.errors import RefbiasError, UsageError


def asked(**options) -> Asked:
    rows = [
        Prompt(f"{g}{i}", (("user", f"About {g}?"),), {"group": g})
        for g, n in {"a": 3, "b": 1}.items()
        for i in range(n)
    ]
    return Asked("tiny", "rate", 0.1, "judge", Sampling(2), "digest", rows, **options)


def ids(benchmark: Asked, *groups: str) -> list[str]:
    return [prompt.id for prompt in benchmark.prompts(groups)]


def test_prompts_take_turns_by_group_and_a_limit_is_a_beginning():
    assert ids(asked(), "b", "a") == ["b0", "a0", "a1", "a2"]
    assert ids(asked(limit=2), "a", "b") == ["a0", "b0"] == ids(asked(limit=3), "a", "b")[:2]
    assert ids(asked(), "c") == []


def test_groups_of_one_unit_share_prompts_and_score():
    shared = asked(units={"A": "a", "A2": "a", "B": "b"})
    assert ids(shared, "A", "A2") == ["a0", "a1", "a2"]
    answers = {("a0", 0): (Answer("Yes.", "stop", 2), Verdict(1, "agree"))}
    found = shared.scores(["A", "A2", "B", "C"], shared.prompts(["A", "A2", "B"]), answers)
    assert found["A"] == found["A2"] and found["A"].value == 1.0
    assert found["B"].reason == "no answer was generated"
    assert found["C"].reason == "tiny says nothing about C"


def test_a_group_without_prompts_says_why():
    limited = asked(limit=1, absent={"c": "its file is missing"})
    found = limited.scores(["b", "c", "d"], limited.prompts(["a", "b"]), {})
    assert [found[g].reason for g in "bcd"] == [
        "benchmark.limit=1 leaves no prompt about b", "its file is missing", "tiny has no prompt about d",
    ]  # fmt: skip


def test_shifts_go_by_group_too():
    one, none = ((Answer("Yes.", "stop", 2), Verdict(value, "")) for value in (1, 0))
    benchmark = asked()
    before, after = ({("a0", 0): a, ("a1", 0): none, ("a2", 0): none} for a in (none, one))
    found = benchmark.shifts(["a", "d"], benchmark.prompts(["a"]), before, after)
    assert found["a"].value == pytest.approx(1 / 3)
    assert found["d"].reason == "tiny has no prompt about d"


def test_numbers_of_prompts_begin_at_one():
    at_least_one(limit=None, samples=1)
    with pytest.raises(UsageError, match="benchmark.limit=0: expected 1 or more"):
        at_least_one(limit=0)


def test_a_data_set_out_of_reach_says_what_to_do(monkeypatch, tmp_path):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(RefbiasError, match=r"The data set some/where .*: benchmark.path=PATH\. It is at home\."):
        from_hub("some/where", ["file.csv"], "It is at home.")
