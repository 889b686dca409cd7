from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from refbias.errors import RefbiasError
from refbias.reading import beyond_doubt
from refbias.report import figures


def panels(figure):
    """The axes that show data, without those of colour bars."""
    return [ax for ax in figure.axes if ax.get_label() != "scale"]


def points(ax, label):
    """(x, y) pairs of the line called ``label``."""
    line = next(line for line in ax.lines if line.get_label() == label)
    return [(float(x), float(y)) for x, y in line.get_xydata()]


def words(figure):
    return "\n".join(text.get_text() for text in figure.texts).replace("\n", " ")


def group_labels(ax):
    return [tick.get_text() for tick in ax.get_yticklabels()]


def withdraw(row, reason="a reason"):
    """Make the row of a group one that could not be measured."""
    row.update(delta_b=None, ci_low=None, ci_high=None, p_value=None, p_adjusted=None, second_opinion=None)
    row["delta_b_reason"] = reason


# Shift by group -------------------------------------------------------------------------------------------------


def test_each_group_stands_at_its_shift_with_its_interval(make_result):
    data = make_result(1)
    checkpoint = data["checkpoints"][0]
    (ax,) = panels(figures.delta_b_by_group(checkpoint, data))
    rows = {row["group"]: row for row in checkpoint["groups"]}
    labels = group_labels(ax)
    for series, offset, estimate in (
        ("raw", -0.17, lambda row: row),
        ("centred", 0.17, lambda row: row["second_opinion"]),
    ):
        drawn = {
            round(y - offset): x for ending in ("beyond doubt", "in doubt") for x, y in points(ax, f"{series} {ending}")
        }
        assert {labels[y]: x for y, x in drawn.items()} == {g: estimate(r)["delta_b"] for g, r in rows.items()}
        bars = next(c for c in ax.collections if c.get_label() == f"{series} interval").get_segments()
        for row, bar in enumerate(bars):
            found = estimate(rows[labels[row]])
            np.testing.assert_allclose(bar[:, 0], [found["ci_low"], found["ci_high"]])


def test_groups_are_sorted_and_the_zero_line_is_there(make_result):
    data = make_result(1)
    (ax,) = panels(figures.delta_b_by_group(data["checkpoints"][0], data))
    shifts = {row["group"]: row["delta_b"] for row in data["checkpoints"][0]["groups"]}
    assert group_labels(ax) == sorted(shifts, key=shifts.get)
    assert ax.yaxis_inverted()
    assert set(np.ravel(next(line for line in ax.lines if line.get_label() == "zero").get_xdata())) == {0.0}


def test_a_filled_marker_is_below_zero_beyond_doubt(make_result):
    data = make_result(1)
    rows = data["checkpoints"][0]["groups"][:4]
    for row, value, high, p in zip(
        rows, (-0.4, -0.3, -0.2, 0.4), (-0.1, 0.1, -0.1, 0.6), (0.01, 0.01, 0.2, 0.001), strict=True
    ):
        row.update(delta_b=value, ci_low=value - 0.1, ci_high=high, p_adjusted=p)
    data["checkpoints"][0]["groups"] = rows
    (ax,) = panels(figures.delta_b_by_group(data["checkpoints"][0], data))
    assert [x for x, _ in points(ax, "raw beyond doubt")] == [-0.4]
    assert sorted(x for x, _ in points(ax, "raw in doubt")) == [-0.3, -0.2, 0.4]
    faces = {line.get_label(): line.get_markerfacecolor() for line in ax.lines}
    assert faces["raw beyond doubt"] != "white"
    assert faces["raw in doubt"] == "white"


def test_several_checkpoints_have_a_panel_each_in_one_order_and_scale(make_result):
    data = make_result(7)
    axes = panels(figures.delta_b_by_group(data["checkpoints"], data))
    assert len(axes) == 7
    assert len({ax.get_xlim() for ax in axes}) == 1
    shifts = {row["group"]: row["delta_b"] for row in data["checkpoints"][-1]["groups"]}
    order = sorted(shifts, key=shifts.get)
    assert group_labels(axes[0]) == group_labels(axes[4]) == order
    for ax, checkpoint in zip(axes, data["checkpoints"], strict=True):
        assert checkpoint["name"] in ax.get_title()
        drawn = points(ax, "raw beyond doubt") + points(ax, "raw in doubt")
        first = next(x for x, y in drawn if round(y + 0.17) == 0)
        assert first == next(row["delta_b"] for row in checkpoint["groups"] if row["group"] == order[0])


def test_a_group_without_a_shift_keeps_its_row_and_says_why(make_result):
    data = make_result(1)
    withdraw(data["checkpoints"][0]["groups"][5], "layer 30 holds NaN")
    (ax,) = panels(figures.delta_b_by_group(data["checkpoints"][0], data))
    assert group_labels(ax)[-1] == data["checkpoints"][0]["groups"][5]["group"]
    assert "layer 30 holds NaN" in [text.get_text() for text in ax.texts]
    assert all(np.isfinite(x) or round(y + 0.17) == 23 for x, y in points(ax, "raw in doubt"))


def test_a_metric_of_two_spaces_has_no_direction(make_result):
    data = make_result(1)
    data["settings"]["metric"] = "cka_drift"
    for row in data["checkpoints"][0]["groups"]:
        row.update(b_ref=None, b_aud=None, second_opinion=None, p_value=None, p_adjusted=None)
    figure = figures.delta_b_by_group(data["checkpoints"][0], data)
    assert panels(figure)[0].get_xlabel() == "CKA drift (no direction)"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["raw"]


def test_every_picture_says_model_setting_number_and_stand_ins(make_result, observe):
    data = make_result(2)
    data["stand_ins"] = [{"wanted": "alpaca", "used": "packaged sentences", "why": "no network"}]
    for name, figure in figures.figures(data, observe(data)).items():
        said = words(figure)
        for part in (
            "smollm2",
            "layer 30 of 30",
            "pooling mean",
            "anchors neutral",
            "packaged sentences in place of alpaca",
        ):
            assert part in said, (name, part)
        assert ("48 observations" if "benchmark" in name else "24 groups × 2 checkpoints") in said


def test_a_dollar_sign_in_a_group_name_is_no_formula(make_result):
    data = make_result(1, groups=("$\\bad$ earners", "Women"))
    assert figures.render(figures.delta_b_by_group(data["checkpoints"][0], data), "svg").count(b"$\\bad$ earners") == 1


# Shift against benchmark ----------------------------------------------------------------------------------------


def test_scatter_shows_every_observation_and_the_fit(make_result, observe):
    data = make_result(7)
    rows = observe(data)
    rows[3]["delta_bias"] = None
    ax = panels(figures.delta_b_against_benchmark(rows, data))[0]
    drawn = next(c for c in ax.collections if c.get_label() == "observations").get_offsets()
    expected = [(row["delta_b"], row["delta_bias"]) for row in rows if row["delta_bias"] is not None]
    np.testing.assert_allclose(drawn, expected)
    (x0, y0), (x1, y1) = points(ax, "linear fit")
    assert (y1 - y0) / (x1 - x0) == pytest.approx(-2)
    assert y0 + 2 * x0 == pytest.approx(0.1)


def test_colour_is_the_ratio_or_else_the_checkpoint(make_result, observe):
    data = make_result(3)
    figure = figures.delta_b_against_benchmark(observe(data), data)
    colours = next(c for c in panels(figure)[0].collections if c.get_label() == "observations").get_array()
    np.testing.assert_array_equal(np.unique(colours), [0.0, 0.5, 1.0])
    for checkpoint in data["checkpoints"]:
        checkpoint["ratio"] = None
    ax = panels(figures.delta_b_against_benchmark(observe(data), data))[0]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [c["name"] for c in data["checkpoints"]]


def test_agreement_is_quoted_from_the_result_with_reasons(make_result, observe):
    data = make_result(2)
    data["benchmark"].update(auc=None, auc_reason="all observations are more biased")
    said = words(figures.delta_b_against_benchmark(observe(data), data)).replace("\N{NO-BREAK SPACE}", " ")
    assert "pooled: r −0.84, AUC not computed (all observations are more biased), MAE 0.30" in said
    assert "within checkpoints: r −0.92, AUC 0.95" in said


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_observations_have_no_fit(make_result, observe, count):
    data = make_result(1)
    figure = figures.delta_b_against_benchmark(observe(data)[:count], data)
    assert "linear fit" not in [line.get_label() for line in panels(figure)[0].lines]
    assert figures.render(figure)


def test_equal_shifts_have_no_fit(make_result, observe):
    data = make_result(1)
    rows = [{**row, "delta_b": 0.25} for row in observe(data)]
    assert "linear fit" not in [
        line.get_label() for line in panels(figures.delta_b_against_benchmark(rows, data))[0].lines
    ]


def test_of_several_layers_the_last_is_shown(make_result, observe):
    data = make_result(1)
    rows = [{**row, "layer": layer, "delta_b": layer} for layer in (12, 30) for row in observe(data)]
    figure = figures.delta_b_against_benchmark(rows, data)
    assert "24 observations" in words(figure)
    assert "layer 30" in words(figure)
    own = {"name": "likelihood", "unit": "nats", "threshold": 0.5, "pearson": 0.125}
    data["layers"] = [{"layer": k, "benchmark": own | {"pearson": 0.1 * k}} for k in (12, 30)]
    assert "r\N{NO-BREAK SPACE}3.00" in words(figures.delta_b_against_benchmark(rows, data))


# Heat map -------------------------------------------------------------------------------------------------------


def test_heat_map_shows_groups_by_checkpoints_centred_at_zero(make_result):
    data = make_result(7)
    raw, centred = panels(figures.heat_map(data))
    groups = group_labels(raw)
    for ax, estimate in ((raw, lambda row: row), (centred, lambda row: row["second_opinion"])):
        mesh = ax.collections[0]
        assert mesh.norm.vmin == -mesh.norm.vmax
        for column, checkpoint in enumerate(data["checkpoints"]):
            shifts = {row["group"]: estimate(row)["delta_b"] for row in checkpoint["groups"]}
            np.testing.assert_allclose(mesh.get_array()[:, column], [shifts[group] for group in groups])
    last = raw.collections[0].get_array()[:, -1]
    assert list(last) == sorted(last)
    assert [tick.get_text() for tick in raw.get_xticklabels()] == [c["name"] for c in data["checkpoints"]]


def test_heat_map_marks_doubtless_cells_and_missing_ones(make_result):
    data = make_result(2)
    withdraw(data["checkpoints"][0]["groups"][0])
    figure = figures.heat_map(data)
    ax = panels(figure)[0]
    written = [text.get_text() for text in ax.texts]
    rows = [row for checkpoint in data["checkpoints"] for row in checkpoint["groups"]]
    assert sum(text.endswith("*") for text in written) == sum(beyond_doubt(row) for row in rows)
    assert written.count("–") == 1
    assert np.ma.count_masked(ax.collections[0].get_array()) == 1
    assert "grey: no value" in words(figure)


def test_heat_map_over_layers_shows_means_over_checkpoints(make_result):
    data = make_result(3)
    del data["layer"], data["checkpoints"]
    data["layers"] = [{"layer": k, "checkpoints": make_result(3, seed=k)["checkpoints"]} for k in (0, 15, 30)]
    figure = figures.heat_map(data)
    ax = panels(figure)[0]
    groups = group_labels(ax)
    for column, entry in enumerate(data["layers"]):
        shifts = [{row["group"]: row["delta_b"] for row in c["groups"]} for c in entry["checkpoints"]]
        expected = [np.mean([s[group] for s in shifts]) for group in groups]
        np.testing.assert_allclose(ax.collections[0].get_array()[:, column], expected)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "15", "30"]
    assert not any(text.get_text().endswith("*") for text in ax.texts)
    assert "each cell the mean of 3 checkpoints" in words(figure)
    assert set(figures.figures(data)) == {"delta_b_heat_map"}


def test_heat_map_of_nothing_but_missing_and_zero_values(make_result):
    data = make_result(1, groups=("Women", "Men"))
    withdraw(data["checkpoints"][0]["groups"][0])
    data["checkpoints"][0]["groups"][1].update(
        delta_b=0.0, ci_low=0.0, ci_high=0.0, p_adjusted=1.0, second_opinion=None
    )
    assert "0.00" in [text.get_text() for text in panels(figures.heat_map(data))[0].texts]
    withdraw(data["checkpoints"][0]["groups"][1])
    assert figures.render(figures.heat_map(data))
    assert figures.render(figures.delta_b_by_group(data["checkpoints"], data))


# Files ----------------------------------------------------------------------------------------------------------


def test_save_all_writes_png_and_svg_and_nothing_else(make_result, observe, tmp_path):
    data = make_result(2)
    written = figures.save_all(data, observe(data), tmp_path)
    assert sorted(written) == sorted(tmp_path.iterdir())
    assert {path.name for path in written} == {
        f"{name}.{ending}"
        for name in ("delta_b_by_group", "delta_b_against_benchmark", "delta_b_heat_map")
        for ending in ("png", "svg")
    }
    for path in written:
        assert path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")


def test_without_a_benchmark_there_is_no_scatter(make_result, observe):
    data = make_result(1)
    data["benchmark"] = None
    rows = [{**row, "delta_bias": None} for row in observe(data)]
    assert set(figures.figures(data, rows)) == {"delta_b_by_group", "delta_b_heat_map"}


def test_equal_results_give_equal_bytes(make_result, observe, tmp_path):
    data = make_result(2)
    first = {path.name: path.read_bytes() for path in figures.save_all(data, observe(data), tmp_path)}
    second = {path.name: path.read_bytes() for path in figures.save_all(data, observe(data), tmp_path)}
    assert first == second


def test_a_folder_that_cannot_be_written_is_named(make_result, tmp_path):
    occupied = tmp_path / "file"
    occupied.write_text("here")
    with pytest.raises(RefbiasError, match="delta_b_by_group.png"):
        figures.save_all(make_result(1), [], occupied)
    assert occupied.read_text() == "here"


def test_no_global_state_and_no_early_import(make_result):
    import matplotlib

    before = dict(matplotlib.rcParams)
    data = make_result(1)
    figures.render(figures.delta_b_by_group(data["checkpoints"], data), "svg")
    assert dict(matplotlib.rcParams) == before
    code = "import refbias.report.figures, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    code = (
        "import sys, matplotlib.figure, refbias.report.figures as f; f.render(matplotlib.figure.Figure()); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
