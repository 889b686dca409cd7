from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from refbias.errors import RefbiasError, UsageError
from refbias.finetuning.wildguard import FILE, HUB_ID, wildguardmix_synth_even, wildguardmix_unharmful
from refbias.standins import collecting


def row(number: int, prompt_label: str, response_label: str | None, response: str | None = "") -> dict[str, Any]:
    """A row in the columns of WildGuardTrain, with mild words."""
    return {
        "prompt": f"Question {number} about the garden?",
        "adversarial": False,
        "response": f"Answer {number}." if response == "" else response,
        "prompt_harm_label": prompt_label,
        "response_refusal_label": "compliance",
        "response_harm_label": response_label,
        "subcategory": "benign",
    }


ROWS = [
    *(row(i, "unharmful", "unharmful") for i in range(6)),
    *(row(i, "harmful", "harmful") for i in range(10, 15)),
    row(20, "harmful", "unharmful"),
    row(21, "unharmful", "harmful"),
    row(30, "unharmful", None, response=None),
    row(31, "unharmful", "unharmful", response=" "),
]


@pytest.fixture(params=["parquet", "jsonl"])
def train(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    import pandas

    path = tmp_path / f"wildguard_train.{request.param}"
    if request.param == "parquet":
        pandas.DataFrame(ROWS).to_parquet(path)
    else:
        path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    return str(path)


def numbers(lessons: Any) -> list[int]:
    return [int(e.messages[0]["content"].split()[1]) for e in lessons.examples]


def test_unharmful_means_prompt_and_response(train: str) -> None:
    found = wildguardmix_unharmful(n=6, path=train)
    assert sorted(numbers(found)) == list(range(6))
    first = found.examples[0].messages
    assert [message["role"] for message in first] == ["user", "assistant"]
    assert numbers(wildguardmix_unharmful(n=3, path=train)) == numbers(found)[:3]
    assert numbers(wildguardmix_unharmful(n=6, path=train, seed=1)) != numbers(found)
    with pytest.raises(RefbiasError, match=r"WildGuardTrain, unharmful, has 6 examples, and 8000 are asked for"):
        wildguardmix_unharmful(path=train)


def test_the_half_that_was_not_released_is_never_made_up(train: str) -> None:
    with pytest.raises(RefbiasError, match=r"lacks the synthetic half .* not released\. Give .* data\.synthetic=FILE"):
        wildguardmix_synth_even(n=8, path=train)
    with pytest.raises(UsageError, match=r"data\.n=7 cannot be halved"):
        wildguardmix_synth_even(n=7, path=train)


def test_the_user_supplies_it(train: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text("\n".join(json.dumps({"prompt": f"Mine {i}", "response": "Yes."}) for i in range(50, 60)))
    with collecting(strict=True) as notes:
        found = wildguardmix_synth_even(n=12, path=train, synthetic=str(mine))
    assert notes.items == []
    assert [number >= 50 for number in numbers(found)] == [False, True] * 6
    assert set(numbers(found)[::2]) == {10, 11, 12, 13, 14, 21}
    assert found.report["other_half"] == "supplied by the user: mine.jsonl"
    with pytest.raises(UsageError, match=r"data\.synthetic=nowhere\.jsonl: no such file"):
        wildguardmix_synth_even(n=8, path=train, synthetic="nowhere.jsonl")


@pytest.mark.parametrize("fill", ["wildguardmix_unharmful", "contrast", "file"])
def test_what_stands_in_for_it_is_recorded(fill: str, train: str, tmp_path: Path) -> None:
    if fill == "file":
        fill = str(tmp_path / "other.jsonl")
        Path(fill).write_text("\n".join(json.dumps({"prompt": f"Mine {i}", "response": "Yes."}) for i in range(9)))
    with collecting() as notes:
        found = wildguardmix_synth_even(n=8, path=train, fill=fill)
    (note,) = notes.items
    assert note.wanted.startswith("the synthetic half")
    assert note.used == found.report["other_half"]
    assert len(found.examples) == 8
    with collecting(strict=True), pytest.raises(RefbiasError, match=r"strict=true refuses a stand-in: the synthetic"):
        wildguardmix_synth_even(n=8, path=train, fill=fill)


def test_only_what_can_be_sampled_stands_in(train: str) -> None:
    with pytest.raises(UsageError, match=r"data\.fill=wildguardmix_synth_even cannot be sampled"):
        wildguardmix_synth_even(n=8, path=train, fill="wildguardmix_synth_even")
    with pytest.raises(UsageError, match=r"No data 'contrasts'\. Did you mean 'contrast'"):
        wildguardmix_synth_even(n=8, path=train, fill="contrasts")


def test_another_layout_is_refused_with_the_row(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"prompt": "Tea?", "response": "Yes."}', encoding="utf-8")
    with pytest.raises(RefbiasError, match=r"row 1: no prompt_harm_label, response_harm_label\. Expected the columns"):
        wildguardmix_unharmful(n=1, path=str(path))


def test_without_a_copy_the_hub_is_asked_once_and_quickly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub
    from huggingface_hub import errors

    asked: list[str] = []

    def download(repo: str, name: str, *, repo_type: str, local_files_only: bool = False) -> str:
        asked.append(f"{repo} {name}")
        assert repo_type == "dataset"
        if local_files_only:
            raise errors.LocalEntryNotFoundError("not here")
        raise AssertionError("fetched although the hub has refused")

    def gated(self: Any, repo: str, timeout: float) -> None:
        assert timeout <= 5
        raise errors.HfHubHTTPError.__new__(errors.HfHubHTTPError)  # what it is made from differs between releases

    def away(self: Any, repo: str, timeout: float) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", gated)
    with pytest.raises(RefbiasError, match=r"is gated: accept its terms .* `hf auth login`\. Or give a local copy"):
        wildguardmix_unharmful(n=1)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", away)
    with pytest.raises(RefbiasError, match=r"hub cannot be reached \(ConnectionError: no route\).*data\.path=FILE"):
        wildguardmix_unharmful(n=1)
    assert set(asked) == {f"{HUB_ID} {FILE}"}


def test_a_copy_in_the_hubs_cache_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub
    import pandas

    path = tmp_path / "wildguard_train.parquet"
    pandas.DataFrame(ROWS).to_parquet(path)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *args, **kwargs: str(path))
    assert sorted(numbers(wildguardmix_unharmful(n=6))) == list(range(6))
