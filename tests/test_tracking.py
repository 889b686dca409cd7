from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refbias.errors import RefbiasError
from refbias.tracking import MLflowTracker, figures, groups_of, mlflow, none, params, slugs_of

GROUPS = ["Women", "Black people", 'People who say "hm" [often]']


def row(group: str, shift: float | None, p: float = 0.5, high: float = 0.1) -> dict[str, Any]:
    return {
        "group": group, "b_ref": 0.1, "b_aud": 0.0, "delta_b": shift, "ci_low": -0.3, "ci_high": high,
        "p_value": p, "p_adjusted": p, "second_opinion": None,
    }  # fmt: skip


def result() -> dict[str, Any]:
    def checkpoint(name: str, ratio: float, shift: float) -> dict[str, Any]:
        rows = [row(GROUPS[0], shift, 0.01, -0.1), row(GROUPS[1], 0.25), row(GROUPS[2], None)]
        return {"name": name, "ratio": ratio, "mean_delta_b": shift / 2, "groups": rows}

    return {
        "layer": 2,
        "checkpoints": [checkpoint("first", 0.0, -0.5), checkpoint("second", 0.3, -0.25)],
        "benchmark": {
            "name": "likelihood", "pearson": -0.5, "auc": 0.75, "mae": None, "mae_reason": "one class",
            "within": {"pearson": -0.25, "auc": None},
        },
        "timings": {"encode_s": 1.5, "sentences_encoded": 7},
    }  # fmt: skip


def test_slugs_are_ascii_and_distinct() -> None:
    slugs = slugs_of(["Women", "women!", "Née à Łódź", "日本人", "mean"])
    assert slugs["Women"] == "women"
    assert len(set(slugs.values())) == 5
    assert all(slug.isascii() and slug.replace("_", "").isalnum() for slug in slugs.values())
    assert slugs["mean"] != "mean"


def test_every_figure_has_its_key_and_step() -> None:
    data = result()
    found = list(figures(data, slugs_of(groups_of(data))))
    assert ("delta_b/women", -0.5, 0) in found
    assert ("delta_b/women", -0.25, 1) in found
    assert ("delta_b/mean", -0.125, 1) in found
    assert ("delta_b_at_0.3/mean", -0.125, 0) in found
    assert ("below_zero", 1.0, 0) in found
    assert ("pearson/likelihood", -0.5, 0) in found
    assert ("pearson_within/likelihood", -0.25, 0) in found
    assert ("auc/likelihood", 0.75, 0) in found
    assert ("timings/sentences_encoded", 7.0, 0) in found
    keys = [key for key, _, _ in found]
    assert "mae/likelihood" not in keys
    assert "delta_b/people_who_say_hm_often" not in keys


def test_layers_have_keys_of_their_own() -> None:
    data = result()
    data["layers"] = [{"layer": k, "checkpoints": data["checkpoints"], "benchmark": data["benchmark"]} for k in (0, 2)]
    del data["checkpoints"], data["layer"], data["benchmark"]
    found = list(figures(data, slugs_of(groups_of(data))))
    assert ("delta_b/women/layer_0", -0.5, 0) in found
    assert ("auc/likelihood/layer_2", 0.75, 0) in found
    assert len({(key, step) for key, _, step in found}) == len(found)


def test_params_are_flat_and_short() -> None:
    found = params({"seed": 1, "metric": None, "pooling": {"name": "mean", "skip": "sink"}, "groups": ["x" * 300]})
    assert found["pooling"] == "mean"
    assert found["pooling.skip"] == "sink"
    assert found["metric"] == "None"
    assert found["groups"].startswith("sha256:")
    assert len(found["groups"]) < 40


def test_none_does_nothing(tmp_path: Path) -> None:
    tracker = none()
    assert tracker.start("x", {}) is None
    tracker.log(result(), tmp_path)
    tracker.finish()
    tracker.fail("no")
    tracker.discard()


# With a real MLflow ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "figures").mkdir()
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / "figures" / "a.svg").write_text("<svg/>")
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text("seed: 1")
    return tmp_path


def client(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(uri)


def test_a_sweep_has_one_parent_and_a_child_a_job(uri: str, folder: Path) -> None:
    parent = MLflowTracker(uri, "sweeps")
    identity = parent.start("sweep", {"overrides": ["seed=1,2"]})
    for seed in (1, 2):
        job = MLflowTracker(uri, "sweeps")
        job.start(f"seed={seed}", {"seed": seed, "pooling": {"name": "mean", "skip": "none"}}, identity)
        job.log(result(), folder)
        job.finish()
    parent.finish()
    store = client(uri)
    experiment = store.get_experiment_by_name("sweeps")
    runs = store.search_runs([experiment.experiment_id])
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == identity]
    assert len(runs) == 3
    assert sorted(run.data.params["seed"] for run in children) == ["1", "2"]
    assert {run.info.status for run in runs} == {"FINISHED"}
    one = children[0]
    assert one.data.metrics["delta_b/women"] == -0.25  # of the last checkpoint
    assert [m.value for m in store.get_metric_history(one.info.run_id, "delta_b/women")] == [-0.5, -0.25]
    assert one.data.metrics["auc/likelihood"] == 0.75
    assert one.data.params["pooling.skip"] == "none"
    artifacts = {entry.path for entry in store.list_artifacts(one.info.run_id)}
    assert artifacts == {"figures", "result.json", "settings.json", "group_slugs.json"}
    file = store.download_artifacts(one.info.run_id, "group_slugs.json", str(folder))
    assert json.loads(Path(file).read_text())["black_people"] == "Black people"


def test_a_failed_run_says_why(uri: str) -> None:
    tracker = MLflowTracker(uri, "failures")
    identity = tracker.start("job", {"seed": 3})
    tracker.fail("No model 'x'.")
    run = client(uri).get_run(identity)
    assert run.info.status == "FAILED"
    assert run.data.tags["mlflow.note.content"] == "No model 'x'."
    assert run.data.params["seed"] == "3"


def test_an_interrupted_run_is_killed_and_an_empty_one_forgotten(uri: str) -> None:
    stopped, empty = MLflowTracker(uri, "failures"), MLflowTracker(uri, "failures")
    first, second = stopped.start("job", {}), empty.start("job", {})
    stopped.fail("interrupted", killed=True)
    empty.discard()
    assert client(uri).get_run(first).info.status == "KILLED"
    assert client(uri).get_run(second).info.lifecycle_stage == "deleted"


def test_more_figures_than_mlflow_takes_at_once(uri: str, tmp_path: Path) -> None:
    data = result()
    data["checkpoints"][0]["groups"] = [row(f"Group {k}", float(k)) for k in range(2000)]
    tracker = MLflowTracker(uri, "many")
    identity = tracker.start("job", {})
    tracker.log(data, tmp_path)
    assert client(uri).get_run(identity).data.metrics["delta_b/group_1999"] == 1999.0


def test_a_store_that_fails_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    file.write_text("this is no database")
    with pytest.raises(
        RefbiasError, match=r"MLflow at sqlite:///.*mlflow.db failed: .*tracking.uri=…, or tracking=none"
    ):
        mlflow(uri=f"sqlite:///{file}").start("job", {})
    assert file.read_text() == "this is no database"


def test_the_default_store_lies_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert mlflow().uri == f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert not list(tmp_path.iterdir())


def test_a_deleted_experiment_is_explained(uri: str) -> None:
    tracker = MLflowTracker(uri, "gone")
    tracker.start("job", {})
    store = client(uri)
    store.delete_experiment(store.get_experiment_by_name("gone").experiment_id)
    with pytest.raises(RefbiasError, match="'gone' was deleted"):
        MLflowTracker(uri, "gone").start("job", {})


def test_the_parts_are_there_without_mlflow() -> None:
    code = "import sys, refbias.tracking as t; t.none().start('x', {}); t.mlflow(); assert 'mlflow' not in sys.modules"
    root = Path(__file__).resolve().parent.parent
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(root)})


def test_a_password_in_an_address_is_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = MLflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}", "refbias")
    run = tracker.start(
        "tracking.uri=http://me:tr0ub4dor@host", {"tracking": {"uri": "postgresql://me:tr0ub4dor@host/db"}}
    )
    tracker.finish()
    assert run is not None
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"tr0ub4dor" not in kept and b"***@host" in kept
