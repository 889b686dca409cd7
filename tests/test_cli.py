from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refbias import cli, sweep
from refbias.errors import RefbiasError
from refbias.registry import Part, registry
from refbias.result import Result

ROOT = Path(__file__).resolve().parent.parent
Files = tuple[Path, Path]


@pytest.fixture(autouse=True)
def _clean(hydra_restored: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test runs in an empty folder with a cache of its own."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("REFBIAS_SWEEP", "HYDRA_FULL_ERROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    yield
    os.environ.pop("REFBIAS_SWEEP", None)
    sweep.launched.clear()


@pytest.fixture
def small(vector_models: Files) -> list[str]:
    """The words of an audit that takes a moment."""
    reference, audited = vector_models
    return [f"reference={reference}", f"audited={audited}", "benchmark=none", "groups=[Women,Men]", "draws=200"]


@pytest.fixture(scope="session")
def mlflow_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without runs: making the tables takes seconds."""
    from mlflow import MlflowClient

    file = tmp_path_factory.mktemp("template") / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def mlflow_here(mlflow_template: Path) -> None:
    shutil.copy(mlflow_template, "mlflow.db")


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Registers a part for the length of one test."""

    def add_part(kind: str, name: str, factory: Any) -> None:
        monkeypatch.setitem(registry()._parts[kind], name, Part(kind, name, factory, {}, "test"))

    return add_part


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=variables, timeout=120)


def run_folder() -> Path:
    (folder,) = Path("outputs").glob("*/*")
    return folder


def outcomes() -> list[dict[str, Any]]:
    found = [json.loads(file.read_text()) for file in Path().rglob("outcome.json")]
    return sorted(found, key=lambda record: record["job"])


# Help and configuration ------------------------------------------------------------------------------------------


def test_help_is_grouped_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from refbias.cli import main; status = main(['--help'])\n"
        "heavy = {'torch', 'transformers', 'peft', 'mlflow', 'scipy', 'sklearn', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "sys.exit(status)"
    )
    shown = python("-c", code)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("refbias measures")
    for word in ("anchors", "neutral, words", "mean, max, last, first", "gate.min_auc", "refbias list"):
        assert word in shown.stdout
    assert "cli" not in shown.stdout.replace("click", "")


def test_help_takes_little_time() -> None:
    import resource
    import time

    def seconds() -> float:
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        assert python("-m", "refbias", "--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        computed = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return min(computed, time.perf_counter() - begun)  # on a busy machine the clock says little

    assert any(seconds() <= 1.5 for _ in range(3))


def test_cfg_job_shows_the_composed_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["seed=3", "pooling=mean_nosink", "--cfg", "job"]) == 0
    import yaml

    config = yaml.safe_load(capsys.readouterr().out)
    assert config["seed"] == 3
    assert config["pooling"] == {"name": "mean", "skip": "sink"}
    assert (config["reference"], config["checkpoints"]["name"]) == ("smollm2", "planted")


def test_info_takes_its_flag_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["seed=1", "--info", "searchpath"]) == 0
    assert "conf" in capsys.readouterr().out


def test_completion_knows_options_and_parameters() -> None:
    def complete(line: str) -> str:
        return python("-m", "refbias", "-sc", "query=bash", COMP_LINE=line, COMP_POINT=str(len(line))).stdout

    assert "metric=delta_b" in complete("refbias metric=")
    assert "anchors.n=" in complete("refbias anchors.")


# Wrong use -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["metric=delt"], r"No metric 'delt'. Did you mean 'delta_b'\? Available: .*cka_drift"),
        (["sed=1"], r"No setting 'sed'. Did you mean 'seed'\?"),
        (["+sed=1", "tracking=none"], r"No setting 'sed'. Did you mean 'seed'\?"),
        (["cache.dri=x"], r"No setting 'cache.dri'. Did you mean 'cache.dir'\?"),
        (["pooling.skp=sink"], r"No option of pooling=mean 'skp'. Did you mean 'skip'\?"),
        (["pooling.skip=sinc"], r"pooling.skip=sinc: Invalid value 'sinc', expected one of \[none, special, sink\]"),
        (["anchors.n=many"], r"anchors.n=many: Value 'many' .* could not be converted to Integer"),
        (["metric.alpha=1"], r"metric.alpha is an option of one metric, and none is chosen"),
        (["seed=x"], r"seed=x: Value 'x'"),
        (["lst"], r"No command 'lst'. Did you mean 'list'\?.* key=value"),
        (["reference=a=b"], r"'reference=a=b' is not understood. Expected key=value"),
        (["pooling=mean,max"], r"To sweep over it, add --multirun"),
        (["-m", "metric=seat,cka_drift", "metric.kernel=rbf"], r"metric=seat has no option 'kernel'.*preset"),
        (["+experiment=nothing"], r"No experiment 'nothing'. Available: delta_b/anchors"),
        (["--config-dir", "nowhere"], r"nowhere' not found"),
        (["layer=1.5", "tracking=none"], r"layer=1.5 is no layer"),
        (["draws=5", "tracking=none"], r"draws=5: intervals need"),
        (["reference=???", "tracking=none"], r"No value for reference. Give it: reference=…"),
        (["geometry=cka", "metric=delta_b", "tracking=none"], r"metric=delta_b scores one space.*geometry=relative"),
        (["list", "metrik"], r"No kind of part 'metrik'. Did you mean 'metric'\?"),
        (["new-plugin", "Bad-Name", "metric"], r"'Bad-Name' is no name for a part"),
    ],
)
def test_wrong_use_is_one_message_and_exit_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert error.startswith("refbias: ")
    assert "Traceback" not in error


def test_an_unreadable_model_is_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reference=./nowhere", "audited=./nowhere", "tracking=none"]) == 1
    error = capsys.readouterr().err
    assert error.count("refbias: ") == 1
    assert "./nowhere" in error
    assert not list(run_folder().glob("result.json"))


def test_the_trace_is_there_for_those_who_ask() -> None:
    shown = python("-m", "refbias", "metric=delt", HYDRA_FULL_ERROR="1")
    assert shown.returncode == 2
    assert "Traceback" in shown.stderr
    assert shown.stderr.strip().splitlines()[-1].startswith("refbias: No metric 'delt'")


def test_an_unexpected_error_says_how_to_see_more(add: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def explode(run: Any) -> None:
        raise KeyError("lost")

    add("task", "explode", explode)
    assert cli.main(["task=explode", "tracking=none"]) == 1
    assert "KeyError: 'lost'. This was not expected: HYDRA_FULL_ERROR=1" in capsys.readouterr().err


def test_an_interrupted_run_ends_cleanly(add: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def wait(run: Any) -> None:
        raise KeyboardInterrupt

    add("task", "wait", wait)
    assert cli.main(["task=wait", "tracking=none"]) == 130
    assert capsys.readouterr().err == "refbias: interrupted\n"


def test_a_folder_that_cannot_be_made_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("a file")
    assert cli.main(["hydra.run.dir=taken/here", "tracking=none"]) == 1
    assert "taken" in capsys.readouterr().err


# One run ---------------------------------------------------------------------------------------------------------


def test_a_run_leaves_its_files_and_says_what_it_found(small: list[str]) -> None:
    code = (
        "import sys; from refbias.cli import main\n"
        f"status = main({[*small, 'tracking=none']!r})\n"
        "assert 'mlflow' not in sys.modules\n"
        "sys.exit(status)"
    )
    shown = python("-c", code)
    assert shown.returncode == 0, shown.stderr
    folder = run_folder()
    names = {file.name for file in folder.iterdir()}
    assert {"result.json", "observations.csv", "outcome.json", ".hydra"} <= names
    assert any(name.endswith(".svg") for name in names)
    data = json.loads((folder / "result.json").read_text())
    assert data["provenance"]["command"].startswith("python -m refbias reference=")
    assert len((folder / "observations.csv").read_text().splitlines()) == 3
    for text in ("audited.npz: mean ΔB", "Women", "95 % interval", "ΔB centred", f"files: {folder.resolve()}"):
        assert text in shown.stdout
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", shown.stdout)


def test_a_gate_says_no_with_exit_status_3(small: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*small, "tracking=none", "gate.min_auc=0.9", "gate.max_below_zero=24"]) == 3
    verdict = json.loads((run_folder() / "gate.json").read_text())
    assert verdict["passed"] is False
    assert [rule["passed"] for rule in verdict["rules"]] == [True, False]
    assert "the gate says no: AUC cannot be computed" in capsys.readouterr().err
    assert (run_folder() / "result.json").is_file()


def test_the_result_is_there_although_tracking_fails(
    small: list[str], add: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from refbias.tracking import Nowhere

    class Full(Nowhere):
        def log(self, data: Any, folder: Path) -> None:
            raise RefbiasError("MLflow at sqlite:///x failed: disk full.")

    add("tracking", "full", Full)
    assert cli.main([*small, "tracking=full"]) == 1
    assert (run_folder() / "result.json").is_file()
    assert re.search(r"The result is saved in .*, but not tracked. MLflow at .* disk full", capsys.readouterr().err)


def test_plug_ins_hear_of_the_result(small: list[str]) -> None:
    heard: list[tuple[Result, dict[str, Any]]] = []

    class Listener:
        def refbias_measured(self, result: Result, config: dict[str, Any]) -> None:
            heard.append((result, config))

    listener = Listener()
    registry().manager.register(listener)
    try:
        assert cli.main([*small, "tracking=none"]) == 0
    finally:
        registry().manager.unregister(listener)
    ((result, config),) = heard
    assert result.data["task"] == "audit"
    assert config["groups"] == ["Women", "Men"]


def test_presets_of_one_s_own(small: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (Path("mine") / "anchors").mkdir(parents=True)
    (Path("mine") / "anchors" / "few.yaml").write_text("defaults: [neutral]\nn: 48\n")
    assert cli.main(["anchors=few", "--config-dir", "mine", "--cfg", "job", "--package", "anchors"]) == 0
    assert "48" in capsys.readouterr().out
    assert cli.main(["anchors=few", "anchors.m=3", "--config-dir", "mine"]) == 2
    assert "No option of anchors=neutral 'm'" in capsys.readouterr().err


# Sweeps ----------------------------------------------------------------------------------------------------------


def test_a_sweep_is_one_parent_with_a_child_a_job(
    small: list[str], mlflow_here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    assert cli.main([*small, "layer=0,-1", "geometry=relative,absolute", "-m"]) == 0
    assert [record["varied"] for record in outcomes()] == [
        ["layer=0", "geometry=relative"],
        ["layer=0", "geometry=absolute"],
        ["layer=-1", "geometry=relative"],
        ["layer=-1", "geometry=absolute"],
    ]
    (folder,) = Path("multirun").glob("*/*")
    shared = sweep.Sweep.read(folder)
    assert shared is not None
    assert shared.layers == [0, -1]
    store = MlflowClient(f"sqlite:///{Path.cwd() / 'mlflow.db'}")
    runs = store.search_runs([store.get_experiment_by_name("refbias").experiment_id])
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == shared.parent]
    assert len(runs) == 5
    assert sorted(run.info.run_name for run in children) == sorted(" ".join(r["varied"]) for r in outcomes())
    assert {run.info.status for run in runs} == {"FINISHED"}
    by_name = {run.info.run_name: run for run in children}
    for record in outcomes():
        data = json.loads((folder / str(record["job"]) / "result.json").read_text())
        found = by_name[" ".join(record["varied"])].data.metrics
        assert found["delta_b/mean"] == data["checkpoints"][0]["mean_delta_b"]
        assert found["delta_b/women"] == data["checkpoints"][0]["groups"][0]["delta_b"]
    assert "what varies" in capsys.readouterr().out


def test_a_job_that_fails_does_not_stop_the_sweep(
    small: list[str], mlflow_here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    assert cli.main([*small, "-m", "metric=delta_b", "geometry=cka,relative"]) == 2
    assert [record["status"] for record in outcomes()] == [2, 0]
    shown = capsys.readouterr()
    assert "1 of 2 jobs failed: 0" in shown.err
    assert "wrong use" in shown.out
    store = MlflowClient(f"sqlite:///{Path.cwd() / 'mlflow.db'}")
    runs = store.search_runs([store.get_experiment_by_name("refbias").experiment_id])
    assert {run.info.run_name: run.info.status for run in runs if "mlflow.parentRunId" in run.data.tags} == {
        "geometry=cka": "FAILED",
        "geometry=relative": "FINISHED",
    }
    assert [run.info.status for run in runs if "mlflow.parentRunId" not in run.data.tags] == ["FAILED"]


def test_a_gate_of_one_job_is_the_exit_status_of_the_sweep(small: list[str]) -> None:
    assert cli.main([*small, "-m", "tracking=none", "gate.min_auc=null,0.5"]) == 3
    assert [record["status"] for record in outcomes()] == [0, 3]


def test_a_sweep_of_an_experiment_file_into_an_old_folder(add: Any) -> None:
    def explode(run: Any) -> None:
        raise RefbiasError("No.")

    add("task", "explode", explode)
    left_over = Path("same") / "9" / "outcome.json"
    left_over.parent.mkdir(parents=True)
    left_over.write_text('{"job": 9, "status": 0, "varied": []}')
    assert cli.main(["-m", "+experiment=geometries", "task=explode", "tracking=none", "hydra.sweep.dir=same"]) == 1
    assert [(record["job"], record["varied"]) for record in outcomes()] == [
        (job, [f"geometry={name}"]) for job, name in enumerate(["relative", "absolute", "procrustes", "cka"])
    ]


def test_an_interrupted_sweep_ends_its_parent_run(add: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from refbias.tracking import Nowhere

    ended: list[tuple[str, bool]] = []

    class Memory(Nowhere):
        def fail(self, reason: str, killed: bool = False) -> None:
            ended.append((reason, killed))

    def wait(run: Any) -> None:
        raise KeyboardInterrupt

    add("task", "wait", wait)
    add("tracking", "memory", Memory)
    assert cli.main(["-m", "task=wait", "tracking=memory", "seed=1,2"]) == 130
    assert ended == [("interrupted", True), ("interrupted", True)]  # the first job, then the parent
    assert capsys.readouterr().err == "refbias: interrupted\n"


def test_a_sweep_that_cannot_be_composed_leaves_no_parent_run(small: list[str], mlflow_here: None) -> None:
    from mlflow import MlflowClient

    assert cli.main([*small, "-m", "pooling.skip=none,sinc"]) == 2
    store = MlflowClient(f"sqlite:///{Path.cwd() / 'mlflow.db'}")
    assert store.search_runs([store.get_experiment_by_name("refbias").experiment_id]) == []


def test_the_sweep_of_an_experiment_file() -> None:
    assert sweep.swept(["a=1", "layer=0,2", "geometry=choice(relative,cka)", "n=range(1,4)"]) == {
        "layer": [0, 2],
        "geometry": ["relative", "cka"],
        "n": [1, 2, 3],
    }


# Commands --------------------------------------------------------------------------------------------------------


def test_list_shows_every_part_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    shown = capsys.readouterr().out
    for text in ("metric.kernel: linear | rbf = linear", "smollm2", "presets: harmless", "[refbias]", "tracking.uri"):
        assert text in shown
    assert cli.main(["list", "pooling"]) == 0
    assert "metric" not in capsys.readouterr().out


def test_doctor_says_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--offline"]) == 0
    shown = capsys.readouterr().out
    for text in ("versions", "GFLOP/s", "cache ", "free there", "smollm2", "network"):
        assert text in shown


def test_doctor_tells_when_the_hub_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    from refbias.commands import doctor

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    (line,) = doctor.network(offline=False)
    assert "http://127.0.0.1:9 cannot be reached" in line
    assert "Use local folders" in line


def test_cache_shows_and_prunes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from refbias.cache import Cache

    Cache(tmp_path / "cache").build_folder("old", lambda folder: (folder / "a").write_bytes(b"x" * 2**20) and None)
    assert cli.main(["cache"]) == 0
    assert re.search(r"1\.0 MiB .* folder +old", capsys.readouterr().out)
    assert cli.main(["cache", "prune", "--max-gib", "0"]) == 0
    assert "removed 0.00 GiB in 1 entries" in capsys.readouterr().out
    assert Cache(tmp_path / "cache").usage() == []


def test_new_plugin_refuses_to_overwrite(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new-plugin", "my_score", "metric"]) == 0
    assert cli.main(["new-plugin", "my_score", "metric"]) == 1
    assert "refbias-my-score exists already" in capsys.readouterr().err
    assert cli.main(["new-plugin", "delta_b", "metric"]) == 2
    assert "There is a metric 'delta_b' already" in capsys.readouterr().err
