"""Pictures of task=validate: the plotted data are those of the result."""

from __future__ import annotations

import numpy as np
import pytest

from refbias.report.figures import render
from refbias.report.validate_figures import reliability, scatter, threshold_sweep, validate_figures
from refbias.statistics.observations import read_observations
from refbias.statistics.validation import validate
from tests.statistics.test_validation import table


def made(tmp_path, runs=2, **options):
    observations = read_observations([table(tmp_path / "o.csv", runs=runs)])
    blocks, _ = validate(observations, draws=200, **options)
    return blocks | {"settings": {"task.path": "o.csv"}, "seed": 0, "stand_ins": []}


def drawn(ax, label):
    return next(artist for artist in ax.get_children() if artist.get_label() == label)


def test_the_scatter_shows_every_observation_with_line_and_band(tmp_path):
    data = made(tmp_path)
    ax = scatter(data).axes[0]
    points = drawn(ax, "observations")
    np.testing.assert_allclose(
        points.get_offsets(), [(row["delta_b"], row["delta_bias"]) for row in data["observations"]]
    )
    np.testing.assert_allclose(points.get_array(), [row["ratio"] for row in data["observations"]])
    line = drawn(ax, "linear fit").get_xydata()
    np.testing.assert_allclose(line, [(row["x"], row["y"]) for row in data["fit"]])
    corners = drawn(ax, "95 % band").get_paths()[0].vertices
    for row in data["fit"]:
        at = corners[np.isclose(corners[:, 0], row["x"])][:, 1]
        assert at.min() == pytest.approx(row["low"]) and at.max() == pytest.approx(row["high"])
    assert drawn(ax, "threshold").get_ydata()[0] == 0.0


def test_without_ratios_colour_is_the_checkpoint(tmp_path):
    data = made(tmp_path, runs=1)
    for row in data["observations"]:
        row["ratio"] = None
    ax = scatter(data).axes[0]
    assert len(drawn(ax, "merge 3").get_offsets()) == 24


def test_the_sweep_shows_both_curves_and_the_counts(tmp_path):
    data = made(tmp_path, standard_error=0.1)
    figure = threshold_sweep(data)
    ax, counts = figure.axes
    rows = data["thresholds"]
    for label, name in (("pooled", "auc"), ("within checkpoints", "within_auc")):
        np.testing.assert_allclose(
            drawn(ax, label).get_xydata(), [(r["threshold"], np.nan if r[name] is None else r[name]) for r in rows]
        )
    filled = drawn(counts, "more biased").get_paths()[0].vertices
    assert filled[:, 1].max() == max(row["n_positive"] for row in rows)
    ceiling = next(row["value"] for row in data["agreement"] if row["figure"] == "auc_ceiling")
    assert drawn(ax, "ceiling").get_ydata()[0] == ceiling


def test_reliability_shows_the_bins(tmp_path):
    data = made(tmp_path)
    ax = reliability(data).axes[0]
    expected = [(row["predicted"], row["observed"]) for row in data["reliability"]]
    np.testing.assert_allclose(drawn(ax, "bins").get_offsets(), expected)


def test_a_table_with_nothing_to_draw_still_has_pictures(tmp_path):
    (tmp_path / "o.csv").write_text("checkpoint,group,delta_b,delta_bias\nm,a,,\n")
    blocks, _ = validate(read_observations([tmp_path / "o.csv"]), draws=100)
    data = blocks | {"settings": {}, "seed": 0, "stand_ins": []}
    for figure in validate_figures(data).values():
        assert render(figure).startswith(b"\x89PNG")
    assert "reliability" not in validate_figures(data)
