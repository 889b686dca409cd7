"""Everything together: the blocks agree with the functions behind them, and degenerate tables have reasons."""

from __future__ import annotations

import json

import numpy as np
import pytest

from refbias import statistics
from refbias.errors import UsageError
from refbias.statistics.observations import read_observations
from refbias.statistics.validation import validate
from tests.statistics.simulations import merges


def table(path, runs: int = 1, groups: int = 24, link: float = 0.8, seed: int = 0, extra: bool = False):
    """An observations.csv of ``runs`` independent pairs of fine-tunes, seven merges each."""
    rng = np.random.default_rng(seed)
    rows = ["run,checkpoint,ratio,group,delta_b,delta_bias,seat"]
    for run in range(runs):
        X, Y = merges(rng, groups, link, noise=0.2)
        for c, g in np.ndindex(X.shape):
            rows.append(f"seed {run},merge {c},{c / 6},group {g},{X[c, g]},{Y[c, g]},{X[c, g] + rng.normal()}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def read(path, **options):
    return read_observations([path], **options)


def row_of(blocks, figure):
    return next(row for row in blocks["agreement"] if row["figure"] == figure)


def test_figures_are_those_of_the_functions(tmp_path):
    observations = read(table(tmp_path / "o.csv"))
    blocks, calibrator = validate(observations, draws=300)
    x, y, labels = observations.x, observations.y, observations.y > 0
    inner = statistics.within(x, y, labels, observations.checkpoint)
    assert row_of(blocks, "pearson")["value"] == statistics.pearson(x, y)[0].value
    assert row_of(blocks, "pearson")["p_value"] == statistics.pearson(x, y)[1].value
    assert "as published" in row_of(blocks, "pearson")["p_of"]
    assert row_of(blocks, "within_auc")["value"] == inner["auc"].value
    common = statistics.common_group_permutation(x, y, observations.checkpoint, observations.group, draws=300)
    assert row_of(blocks, "within_pearson")["p_value"] == common.value
    assert row_of(blocks, "auc_delong")["value"] is None and "7 times" in row_of(blocks, "auc_delong")["reason"]
    assert row_of(blocks, "auc_ceiling")["reason"].startswith("needs the standard error")
    assert sum(part["share"] * part["auc"] for part in blocks["auc_parts"]) == pytest.approx(
        row_of(blocks, "auc")["value"]
    )
    assert blocks["about"]["runs"] == 1 and blocks["over_runs"][0]["reason"].endswith("there are 1")
    assert blocks["reliability"] == [] and calibrator.checked["brier"] is None
    assert any(row["threshold"] == 0.0 for row in blocks["thresholds"])
    assert [row["probability"] for row in blocks["observations"]] == calibrator.probability(x).tolist()
    json.dumps(blocks, allow_nan=False)


def test_several_runs_are_the_unit(tmp_path):
    observations = read(table(tmp_path / "o.csv", runs=4))
    blocks, calibrator = validate(observations, draws=200)
    assert [row["run"] for row in blocks["runs"]] == [f"seed {i}" for i in range(4)]
    over = {row["figure"]: row for row in blocks["over_runs"]}
    expected = statistics.meta_analysis([row["within_pearson"] for row in blocks["runs"]], [24] * 4)
    assert over["within_pearson"]["value"] == expected.value and over["within_pearson"]["ci_high"] < 0
    assert over["auc"]["ci_low"] < over["auc"]["value"] < over["auc"]["ci_high"]
    assert calibrator.checked["brier_skill"] > 0.2
    assert sum(row["n"] for row in blocks["reliability"]) == 4 * 168
    assert calibrator.fitted_on["n_independent"] == 96


def test_alternatives_are_counted_and_compared(tmp_path):
    observations = read(table(tmp_path / "o.csv"), alternatives=["seat"])
    blocks, _ = validate(observations, draws=200)
    main, seat = blocks["alternatives"]
    assert blocks["about"]["alternatives"] == 2
    assert main["alternative"] == "delta_b" and main["auc_gain"] is None
    assert seat["auc_gain"] == pytest.approx(seat["auc"] - main["auc"])
    assert seat["auc_gain_p"] == seat["auc_gain_p_holm"]  # a family of one
    assert main["within_pearson_p_adjusted"] >= main["within_pearson_p"]


def test_an_alternative_with_gaps_is_left_out_with_the_reason(tmp_path):
    path = table(tmp_path / "o.csv")
    lines = path.read_text().split("\n")
    lines[3] = lines[3].rpartition(",")[0] + ","
    path.write_text("\n".join(lines))
    blocks, _ = validate(read(path, alternatives=["seat"]), draws=100)
    assert blocks["alternatives"][1]["reason"] == "missing for 1 of 168 observations"
    assert blocks["about"]["alternatives"] == 1


def test_missing_pairs_leave_what_can_be_said(tmp_path):
    path = table(tmp_path / "o.csv", runs=2)
    lines = path.read_text().strip().split("\n")
    path.write_text("\n".join(lines[:5] + lines[6:]) + "\n")
    blocks, _ = validate(read(path), draws=100)
    row = row_of(blocks, "within_pearson")
    assert row["ci_low"] is not None and row["p_value"] is None
    assert row["reason"] == "a common permutation of groups needs every group at every checkpoint"


@pytest.mark.parametrize(
    "rows",
    [
        ["m,a,,", "m,b,,"],
        ["m,a,1,1"],
        ["m,a,1,1", "m,b,1,1"],
        ["m,a,1,1", "m,b,2,-1"],
        ["m,a,1,1", "m,b,1,1", "n,a,1,1", "n,b,1,1"],
        ["m,a,1,1", "m,b,2,1", "m,c,3,1", "m,d,4,1"],
        ["m,a,1,1", "m,b,1,-1", "m,c,1,1", "m,d,1,-1"],
    ],
)
def test_degenerate_tables_give_reasons_and_no_nan(tmp_path, rows):
    path = tmp_path / "o.csv"
    path.write_text("\n".join(["checkpoint,group,delta_b,delta_bias", *rows]) + "\n")
    blocks, _ = validate(read(path), standard_error=0.1, draws=100)
    json.dumps({k: v for k, v in blocks.items() if k != "observations"}, allow_nan=False)
    for row in blocks["agreement"]:
        assert row["value"] is not None or row["reason"]
        assert row["ci_low"] is not None or row["reason"] or row["figure"].startswith(("within_groups", "mae", "auc_c"))


def test_one_checkpoint_alone_has_delong_too(tmp_path):
    path = tmp_path / "o.csv"
    rng = np.random.default_rng(0)
    rows = [f"m,g{i},{x},{-x + 0.5 * rng.normal()}" for i, x in enumerate(rng.normal(size=24))]
    path.write_text("\n".join(["checkpoint,group,delta_b,delta_bias", *rows]) + "\n")
    blocks, _ = validate(read(path), draws=200)
    found = row_of(blocks, "auc_delong")
    assert found["ci_low"] < found["value"] == row_of(blocks, "auc")["value"]


def test_thresholds_are_known_or_asked_for(tmp_path, audited):
    path = tmp_path / "o.csv"
    head = "checkpoint,group,delta_b,delta_bias,more_biased"
    path.write_text(f"{head}\nm,a,1,0.05,False\nm,b,2,0.2,True\n")
    with pytest.raises(UsageError, match=r"row 2: more_biased is False and delta_bias 0.05, which the threshold 0"):
        validate(read(path))
    assert validate(read(path), threshold=0.1, draws=100)[0]["about"]["more_biased"] == 1
    audited["benchmark"]["threshold"] = 0.1
    (tmp_path / "result.json").write_text(json.dumps(audited))
    blocks, _ = validate(read(path), draws=100)
    assert blocks["about"]["threshold"] == 0.1 and blocks["about"]["benchmark"] == "likelihood"
    both = read(path)
    both.context["thresholds_differ"] = True
    with pytest.raises(UsageError, match="choose task.threshold"):
        validate(both)


def test_a_drift_rises_with_bias(tmp_path):
    observations = read(table(tmp_path / "o.csv"))
    falling, _ = validate(observations, draws=100)
    rising, _ = validate(observations, directed=False, draws=100)
    assert row_of(rising, "auc")["value"] == pytest.approx(1 - row_of(falling, "auc")["value"])
    assert not rising["about"]["directed"]
