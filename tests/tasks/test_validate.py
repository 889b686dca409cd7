"""task=validate from the command line: a file in, result, tables, pictures and a calibrator out."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import jsonschema
import pytest

from refbias.schema import result_schema
from refbias.statistics import Calibrator
from tests.statistics.test_validation import table


def run(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "refbias", "task=validate", "tracking=none", "hydra.run.dir=out", "draws=200", *words],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("validate")
    table(folder / "own.csv", runs=3)
    done = run(folder, "task.path=own.csv", "task.alternatives=[seat]", "task.standard_error=0.1")
    assert done.returncode == 0, done.stderr
    return folder / "out", done.stdout


def test_it_leaves_a_result_tables_pictures_and_a_calibrator(validated):
    folder, _ = validated
    data = json.loads((folder / "result.json").read_text())
    jsonschema.validate(data, result_schema())
    for name in ("agreement", "auc_parts", "thresholds", "runs", "over_runs", "alternatives", "reliability", "fit"):
        rows = list(csv.DictReader((folder / f"{name}.csv").open()))
        assert len(rows) == len(data[name])
    for name in ("delta_b_against_benchmark", "threshold_sweep", "reliability"):
        assert (folder / f"{name}.png").stat().st_size > 5000 and (folder / f"{name}.svg").exists()
    assert Calibrator.load(folder / "calibrator.json").fitted_on["n_runs"] == 3
    assert data["figures"]["brier_skill"] > 0 and data["figures"]["auc_ceiling"] < 1
    assert data["settings"]["task.path"] == "own.csv" and data["settings"]["draws"] == 200


def test_it_says_the_main_figures(validated):
    _, said = validated
    assert "504 observations (3 runs, 21 checkpoints, 24 groups)" in said
    assert "r within checkpoints" in said and "over 3 runs" in said and "after 2 alternatives are counted" in said
    assert "each run left out in turn" in said and "calibrator: calibrator.json" in said


def test_what_it_saves_can_be_read_again(validated, tmp_path):
    folder, _ = validated
    done = run(tmp_path, f"task.path={folder / 'observations.csv'}")
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((f / "result.json").read_text()) for f in (folder, tmp_path / "out"))
    assert first["figures"]["pearson"] == second["figures"]["pearson"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 2, "task=validate needs task.path=FILE"),
        (("task.path=none.csv",), 2, "no such file"),
        (("task.path=bad.csv",), 1, "row 2: delta_b is 'x', no number"),
        (("task.path=bad.csv", "task.rate=5"), 2, "task.rate=5"),
    ],
)
def test_wrong_use_is_one_message(tmp_path, words, status, said):
    (tmp_path / "bad.csv").write_text("checkpoint,group,delta_b,delta_bias\nm,a,x,1\n")
    done = run(tmp_path, *words)
    assert done.returncode == status
    assert said in done.stderr and "Traceback" not in done.stderr
