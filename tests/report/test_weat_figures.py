"""Pictures of association tests hold the figures of the rows, say what they show and escape what they are given."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from refbias.report.figures import render
from refbias.report.weat_figures import (
    CLIP,
    STATUS_COLOURS,
    About,
    Entry,
    entries_of,
    figures,
    panels_of,
    scatter,
    split_triangles,
)
from refbias.report.weat_figures import quadrant_map as draw_map

ABOUT = About("model glove · weat", "2 tests · seed 0", "zca")
STATUSES = tuple(STATUS_COLOURS)


def make_row(test: str, raw: float | None, white: float | None, p_raw=0.01, p_white=0.2, **more: Any) -> dict[str, Any]:
    row = {"layer": 0, "test": test, "name": f"{test} sets", "category": "valence", "status": "Stable"}
    row |= {"d_raw": raw, "d_calibrated": white, "p_raw": p_raw, "p_calibrated": p_white}
    return row | {f"ci_{end}_{space}": None for end in ("low", "high") for space in ("raw", "calibrated")} | more


def texts(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def words(figure):
    return "\n".join(text.get_text() for text in figure.texts).replace("\n", " ")


def triangles(figure):
    (collection,) = [c for ax in figure.axes for c in ax.collections if c.get_label() == "d"]
    return collection


def test_raw_stands_above_and_white_below_the_diagonal():
    figure = split_triangles([Entry("glove", [make_row("W1", 1.2, -0.4), make_row("W2", 0.3, 0.5)])], ABOUT)
    found = triangles(figure)
    assert found.get_array().tolist() == [1.2, -0.4, 0.3, 0.5]
    assert found.get_clim() == (-CLIP, CLIP)
    above, below = found.get_paths()[:2]
    assert above.vertices[:, 1].mean() < below.vertices[:, 1].mean()  # the axis points down
    assert figure.axes[0].yaxis_inverted()
    assert texts(figure)[:4] == ["1.20*", "−0.40", "0.30*", "0.50"]
    weights = [text.get_weight() for text in figure.axes[0].texts[:2]]
    assert weights == ["bold", "normal"]
    assert "above the diagonal raw, below it zca" in words(figure) and "grey" not in words(figure)


def test_adjusted_p_values_decide_where_there_are_some():
    figure = split_triangles([Entry("m", [make_row("W1", 1.0, 1.0, 0.01, 0.01, p_adjusted_raw=0.2)])], ABOUT)
    assert texts(figure)[:2] == ["1.00", "1.00*"]


def test_squares_without_a_calibration_and_grey_without_a_value():
    rows = [make_row("W1", 1.0, None), make_row("W2", None, None)]
    figure = split_triangles([Entry("m", rows)], About("s", "f", None))
    found = triangles(figure)
    assert np.ma.getmaskarray(found.get_array()).tolist() == [False, True]
    assert all(len(path.vertices) == 5 for path in found.get_paths())  # four corners, closed
    assert texts(figure)[1] == "–" and "grey: no value" in words(figure) and "diagonal" not in words(figure)


def test_models_and_tests_that_lack_each_other():
    entries = [Entry("one", [make_row("W1", 1.0, 0.5)]), Entry("other", [make_row("W2", 0.2, 0.1, category="age")])]
    figure = split_triangles(entries, ABOUT)
    assert triangles(figure).get_array().count() == 4
    labels = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert labels == ["W1", "W2"] and {"valence", "age"} <= set(texts(figure))


def test_points_stand_at_their_d_with_the_colour_of_their_status():
    rows = [make_row("W1", 1.2, -0.4, status="Disappearing"), make_row("W2", 0.3, 0.5, status="Emerging")]
    rows.append(make_row("W3", None, 0.5))
    figure = scatter([Entry("m", rows)], ABOUT)
    (ax,) = figure.axes
    points = {line.get_label(): line for line in ax.lines if str(line.get_label()).startswith("m W")}
    assert list(points) == ["m W1", "m W2"]
    for row in rows[:2]:
        line = points[f"m {row['test']}"]
        assert (line.get_xdata()[0], line.get_ydata()[0]) == (row["d_raw"], row["d_calibrated"])
        assert line.get_color() == STATUS_COLOURS[row["status"]]
    assert "Disappearing 1, Stable 0, Emerging 1 of 2 tests" in words(figure)


def test_a_marker_for_each_family_and_no_labels_with_several_models():
    entries = [Entry("a", [make_row("W1", 1.0, 1.0)], "static"), Entry("b", [make_row("W1", 0.5, 1.0)], "contextual")]
    figure = scatter(entries, ABOUT)
    markers = [line.get_marker() for line in figure.axes[0].lines if str(line.get_label()).endswith("W1")]
    assert markers == ["o", "^"]
    assert not figure.axes[0].texts
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [*STATUSES, "static", "contextual"]


def test_many_categories_share_the_last_panel():
    assert len(panels_of([f"c{i}" for i in range(9)])) == 6
    assert panels_of([f"c{i}" for i in range(9)])[-1] == ("others", ["c5", "c6", "c7", "c8"])


def test_the_map_of_ml_eat():
    quadrants = [
        {"test": "W1", "target": t, "attribute": a, "mean": mean, "sd": 0.1, "d": 0.3, "leans": leans}
        for (t, a), mean, leans in zip(
            itertools.product("XY", "AB"), (0.1, 0.2, 0.3, 0.4), (True, False) * 2, strict=True
        )
    ]
    figure = draw_map(quadrants, "calibrated", ABOUT)
    mesh = figure.axes[0].collections[0]
    assert mesh.get_array().ravel().tolist() == [0.1, 0.2, 0.3, 0.4]
    assert texts(figure)[:2] == ["0.10•\n±0.10", "0.20\n±0.10"]
    assert "ML-EAT: mean cosines of targets and attributes, zca" in words(figure)


@pytest.fixture
def result() -> dict[str, Any]:
    rows = [make_row("W1", 1.2, 0.4, layer=k) for k in (0, 1)]
    return {
        "settings": {"calibration": "zca", "suite": "file", "words": "auto", "corpus": None},
        "seed": 0,
        "reference": {"name": "own_$model$", "layers": 1},
        "conventions": {"test": "weat", "alpha": 0.05},
        "suites": rows,
        "stand_ins": [],
        "map": [],
    }


def test_an_entry_a_layer_and_dollars_are_no_formulas(result):
    assert [entry.label for entry in entries_of(result)] == ["layer 0", "layer 1"]
    made = figures(result)
    assert list(made) == ["weat_heat_map", "weat_scatter"]
    svg = render(made["weat_heat_map"], "svg").decode()
    assert "own_$model$" in svg and "2 layers" in svg
    result["settings"]["calibration"] = "none"
    assert list(figures(result)) == ["weat_heat_map"]


def test_equal_results_give_equal_bytes(result):
    assert render(figures(result)["weat_scatter"], "svg") == render(figures(result)["weat_scatter"], "svg")
