from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pandas
import pytest

from refbias import cli, sweep
from refbias.result import Tables
from refbias.schema import result_schema


@pytest.fixture(autouse=True)
def _clean(hydra_restored: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test runs in an empty folder with a cache of its own."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REFBIAS_SWEEP", "")
    yield
    sweep.launched.clear()


@pytest.fixture
def short(tiny_llama: Path) -> list[str]:
    """The words of a fine-tune that takes a moment."""
    recipe = ["regime.max_steps=3", "regime.batch=4", "regime.accumulation=1", "data.n=12"]
    return ["task=finetune", f"reference={tiny_llama}", "tracking=none", "task.out=made", *recipe]


def run_folder() -> Path:
    (folder,) = Path("outputs").glob("*/*")
    return folder


def test_a_run_leaves_the_folder_and_its_record(short: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*short, "seed=4", "regime=full"]) == 0
    said = capfd.readouterr()
    assert said.err == ""
    assert "fine-tune" in said.out
    assert f"model in {Path('made').resolve()}; audit it with refbias reference=" in said.out
    assert "%|" not in said.out
    data = json.loads((run_folder() / "result.json").read_text())
    jsonschema.validate(data, result_schema())
    assert data["task"] == "finetune"
    assert data["settings"]["regime"] == "full"
    assert data["settings"]["data.n"] == 12
    assert data["settings"]["data.seed"] == data["seed"] == data["finetune"]["seed"] == 4
    assert data["finetune"] == {"folder": str(Path("made").resolve())} | json.loads(
        Path("made/refbias.json").read_text()
    )
    assert data["provenance"]["data_digests"] == {"data": data["finetune"]["data"]["digest"]}
    losses = pandas.read_csv(run_folder() / "losses.csv")
    assert list(losses["step"]) == [1, 2, 3]
    assert losses["loss"].mean() == pytest.approx(data["figures"]["loss_first"])
    assert list(data["figures"])[:2] == ["loss_first", "loss_last"]
    assert not [path.name for path in Path().glob("*.unfinished")]


def test_what_was_made_can_be_audited(short: list[str]) -> None:
    assert cli.main([*short, "regime.learning_rate=0.05"]) == 0
    reference = next(word for word in short if word.startswith("reference="))
    words = [reference, "audited=made", "benchmark=none", "groups=[Women,Men]", "draws=200", "anchors.n=48"]
    assert cli.main([*words, "tracking=none", "hydra.run.dir=audit"]) == 0
    data = json.loads(Path("audit/result.json").read_text())
    assert all(group["delta_b"] != 0 for group in data["checkpoints"][0]["groups"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.out=."], r"exists, and refbias has not written it. Name another folder."),
        (["dtype=bfloat16"], "A fine-tune takes regime.precision=bf16 or fp32."),
        (["regime.epochs=0"], "regime.epochs=0.0: expected a number above 0."),
        (["data=file", "~data.n"], "data.path is not set. Use data.path=FILE"),
    ],
)
def test_wrong_use_is_found_before_anything_is_done(
    words: list[str], message: str, short: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    Path("mine.txt").write_text("mine")
    drop = [word.removeprefix("~") for word in words if word.startswith("~")]
    kept = [word for word in short if not word.startswith(tuple(drop or ["~"]))]
    assert cli.main([*kept, *(word for word in words if not word.startswith("~"))]) == 2
    assert message in capfd.readouterr().err
    assert {path.name for path in Path().iterdir()} <= {"mine.txt", "outputs"}


def test_the_folder_must_be_named(short: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word for word in short if not word.startswith("task.out")]) == 2
    assert "No value for task.out. Give it: task.out=…." in capfd.readouterr().err


def test_a_stand_in_is_said_recorded_and_refused_when_strict(
    short: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    labels = {"prompt_harm_label": "harmful", "response_harm_label": "harmful"}
    rows = [{"prompt": f"Question {i}?", "response": f"Answer {i}.", **labels} for i in range(8)]
    Path("train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = [*short, "data=wildguardmix_synth_even", "data.path=train.jsonl", "data.fill=contrast"]
    assert cli.main([*words, "strict=true"]) == 1
    assert "strict=true refuses a stand-in" in capfd.readouterr().err
    assert cli.main([*words, "hydra.run.dir=run"]) == 0
    assert "stand-in: 6 examples of data=contrast is used in place of the synthetic half" in capfd.readouterr().out
    (noted,) = json.loads(Path("run/result.json").read_text())["stand_ins"]
    assert noted["used"] == "6 examples of data=contrast"


def test_a_sweep_makes_a_pair(short: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    words = [word for word in short if not word.startswith("task.out")]
    assert cli.main(["-m", *words, "data.mirror=false,true", "task.out='pair-${data.mirror}'"]) == 0
    about = [json.loads(Path(name, "refbias.json").read_text()) for name in ("pair-False", "pair-True")]
    assert not set(about[0]["data"]["report"]["taught_first"]) & set(about[1]["data"]["report"]["taught_first"])
    assert "loss_last" in capfd.readouterr().out


def test_the_result_gives_its_table_as_a_frame(short: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    save = Tables.save
    monkeypatch.setattr(Tables, "save", lambda self, folder: (kept.append(self), save(self, folder))[1])
    assert cli.main(short) == 0
    frame = kept[0].to_frame()
    assert {"step", "epoch", "loss", "learning_rate", "grad_norm"} <= set(frame.columns)
