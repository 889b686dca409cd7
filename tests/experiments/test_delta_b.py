"""+experiment=delta_b/…: one command from jobs to table and picture, resumed after a kill."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from refbias import cli, options, sweep
from refbias.registry import Part, registry
from refbias.summaries import SUMMARIES
from refbias.tracking import Nowhere

FOLDER = options.own_folder() / "experiment" / "delta_b"
EXPERIMENTS = sorted(file.stem for file in FOLDER.glob("*.yaml"))
logged: list[tuple[dict[str, Any], list[str]]] = []


class Memory(Nowhere):
    """Keeps what a parent run is given."""

    def start(self, name: str, settings: Any, parent: str | None = None) -> str:
        self.is_parent = parent is None
        return "id"

    def log(self, data: Any, folder: Path) -> None:
        if self.is_parent:
            logged.append((dict(data), sorted(file.name for file in folder.iterdir())))


@pytest.fixture(autouse=True)
def _clean(hydra_restored: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("REFBIAS_SWEEP", raising=False)
    monkeypatch.setitem(registry()._parts["tracking"], "memory", Part("tracking", "memory", Memory, {}, "test"))
    logged.clear()
    yield
    os.environ.pop("REFBIAS_SWEEP", None)
    sweep.launched.clear()


@pytest.fixture
def composed() -> Iterator[Callable[..., Any]]:
    from hydra import compose, initialize_config_dir

    options.store(registry())
    with initialize_config_dir(str(options.own_folder()), version_base="1.3"):
        yield lambda *words: compose("config", list(words), return_hydra_config=True)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_a_sweep_with_its_summary(name: str, composed: Any) -> None:
    config = composed(f"+experiment=delta_b/{name}")
    assert config.summary.name == f"delta_b_{name}"
    assert config.summary.name in SUMMARIES
    assert str(config.hydra.mode).endswith("MULTIRUN")
    assert config.reference == "smollm2"
    assert config.hydra.sweep.dir.startswith(f"outputs/experiments/delta_b/{name}/smollm2")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_paper_s_models_go_the_same_way(name: str, composed: Any) -> None:
    config = composed(f"+experiment=delta_b/{name}", "models=paper", "reference=google/gemma-3-4b-it", "regime=full")
    assert config.checkpoints.name == "merge"
    assert config.checkpoints.end == "finetunes/google/gemma-3-4b-it/full/0/wildguardmix_synth_even"
    assert "meta-llama/Llama-3.1-8B-Instruct" in config.hydra.sweeper.params["reference"]
    assert config.hydra.sweeper.params["benchmark"] == "wildguardmix,decodingtrust,toxigen"
    assert config.hydra.sweep.dir == f"outputs/experiments/delta_b/{name}/paper"


def test_there_is_an_experiment_for_every_summary() -> None:
    assert [f"delta_b_{name}" for name in EXPERIMENTS] == sorted(SUMMARIES)


def test_a_summary_alone_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["summary=delta_b_table7", "tracking=none", "benchmark=none"]) == 2
    assert "summary=delta_b_table7 is made of all jobs of a sweep. Add -m" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["models=paper"],
            r"models=paper is added to a run as an experiment: \+experiment=delta_b/table7 models=paper",
        ),
        (["+experiment=delta_b/tabel7"], "No experiment 'delta_b/tabel7'. Did you mean 'delta_b/table7'"),
        (["+experiment=delta_b/table7", "models=papr"], "No models 'papr'. Did you mean 'paper'"),
        (["+experiment=delta_b/table7", "pooling=mena"], "No pooling 'mena'"),
    ],
)
def test_a_mistake_is_named(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    import re

    assert cli.main(words) == 2
    assert re.search(message, capsys.readouterr().err)


def test_models_out_of_reach_leave_rows_that_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["+experiment=delta_b/table7", "models=paper", "regime=full", "tracking=none", "geometry=relative"]
    assert cli.main([*words, "reference=google/gemma-3-4b-it", "benchmark=likelihood", "hydra.sweep.dir=s"]) == 1
    shown = capsys.readouterr()
    assert "jobs failed" in shown.err
    text = Path("s/summary/delta_b_table7.md").read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if "google/gemma-3-4b-it" in line and "| AUC" in line]
    assert "gemma" in row.rpartition("|")[0].rpartition("|")[2]  # the remark names what is missing
    assert "14 published figures" in shown.out


def test_table7_from_jobs_to_picture_and_resumed(
    tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "+experiment=delta_b/table7", "models=smollm2_pair", f"reference={tiny_llama}", "checkpoints.steps=2",
        "checkpoints.ratios=[0.0,1.0]", "anchors.n=48", "groups=[Women,Men,Muslims,Asians]", "draws=100",
        "geometry=relative,absolute", "tracking=memory", "hydra.sweep.dir=s",
    ]  # fmt: skip
    assert cli.main(words) == 0
    ((data, files),) = logged
    assert files == ["delta_b_table7.md", "result.json", "table7.csv", "table7.png", "table7.svg"]
    results = [json.loads((tmp_path / "s" / job / "result.json").read_text()) for job in "01"]
    for result, method in zip(results, ("RR", "SEAT"), strict=True):
        row = next(
            row for row in data["table7"]
            if (row.get("method"), row.get("calibration"), row["figure"]) == (method, "raw", "AUC")
        )  # fmt: skip
        assert row["measured"] == result["benchmark"]["auc"]
        assert row["within"] == result["benchmark"]["within"]["auc"]
    assert data["figures"]["AUC/RR/raw"] == results[0]["benchmark"]["auc"]
    assert "| SEAT" in capsys.readouterr().out

    begun = {job: json.loads((tmp_path / "s" / job / "result.json").read_text())["provenance"] for job in "01"}
    (tmp_path / "s" / "1" / "outcome.json").unlink()  # as after a kill in the second job
    assert cli.main(words) == 0
    assert capsys.readouterr().out.count("done before with these settings") == 1
    again = {job: json.loads((tmp_path / "s" / job / "result.json").read_text())["provenance"] for job in "01"}
    assert again["0"] == begun["0"]
    assert logged[-1][0]["table7"] == data["table7"]

    assert cli.main([*words, "anchors.n=24"]) == 0  # another setting: nothing is taken over
    assert "done before" not in capsys.readouterr().out
    assert logged[-1][0]["table7"] != data["table7"]
