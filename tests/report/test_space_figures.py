"""Pictures of isotropy and similarity hold the figures of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from refbias.report.space_figures import isotropy_figures, similarity_figures, spectra


@pytest.fixture
def isotropy() -> dict[str, Any]:
    figures = ("mean_cosine", "sd_cosine", "effective_rank", "iso_score", "top_50")
    rows = [
        {"layer": k, "n": 100, "n_fitted": 200}
        | {f"{figure}_{space}": 0.1 * (k + 1) for figure in figures for space in ("raw", "calibrated")}
        for k in (0, 1)
    ]
    spectrum = [
        {"layer": k, "component": i, "raw": 0.5**i, "calibrated": 0.25} for k in (0, 1) for i in range(1, 5)
    ]  # fmt: skip
    return {
        "settings": {"calibration": "zca", "pooling": "mean", "corpus": None},
        "seed": 0,
        "reference": {"name": "m", "layers": 1, "dim": 4},
        "isotropy": rows,
        "spectrum": spectrum,
        "stand_ins": [],
    }


def words(figure):
    return "\n".join(text.get_text() for text in figure.texts).replace("\n", " ")


def test_isotropy_has_curves_cosines_and_layers(isotropy):
    cosines = {space: np.eye(3, dtype=np.float32) for space in ("raw", "calibrated")}
    made = isotropy_figures(isotropy, cosines)
    assert list(made) == ["explained_variance", "cosine_heat_map", "isotropy_by_layer"]
    raw, white = made["explained_variance"].axes
    lines = {line.get_label(): line for line in raw.lines}
    assert lines["layer 1"].get_ydata().tolist() == [0.5, 0.25, 0.125, 0.0625]
    assert set(lines["equal"].get_ydata()) == {0.25}
    assert (raw.get_title(), white.get_title(), raw.get_yscale()) == ("raw", "zca", "log")
    heat = made["cosine_heat_map"].axes[0]
    assert heat.images[0].get_array().tolist() == np.eye(3).tolist() and heat.images[0].get_clim() == (-1, 1)
    assert "3 of 100 held-out vectors" in words(made["cosine_heat_map"])
    by_layer = made["isotropy_by_layer"].axes[0].get_lines()
    assert by_layer[0].get_ydata().tolist() == pytest.approx([0.1, 0.2])


def test_raw_alone_without_a_calibration(isotropy):
    isotropy["settings"]["calibration"] = "none"
    made = isotropy_figures({**isotropy, "isotropy": isotropy["isotropy"][:1]}, {})
    assert list(made) == ["explained_variance"] and len(made["explained_variance"].axes) == 1


def test_curves_of_many_models_have_no_legend():
    rows = [{"component": 1, "raw": 0.5}, {"component": 2, "raw": None}]
    few = spectra({"a": rows, "b": rows}, {"raw": "raw"}, "setting", "footer")
    assert [text.get_text() for text in few.axes[0].get_legend().get_texts()] == ["a", "b"]
    many = spectra({f"m{i}": rows for i in range(20)}, {"raw": "raw"}, "setting", "footer")
    assert many.axes[0].get_legend() is None


def test_correlations_stand_at_rho_with_their_intervals():
    rows = [
        {"layer": 0, "set": "wordsim353", "pairs": 353, "rho_raw": 0.5, "rho_low_raw": 0.4, "rho_high_raw": 0.6,
         "rho_calibrated": 0.6, "rho_low_calibrated": 0.5, "rho_high_calibrated": 0.7},
        {"layer": 0, "set": "simlex999", "pairs": 2, "rho_raw": None, "rho_calibrated": None},
    ]  # fmt: skip
    data = {
        "settings": {"calibration": "zca", "words": "auto", "pooling": "mean"}, "seed": 0, "similarity": rows,
        "reference": {"name": "m", "layers": 0, "dim": 4}, "stand_ins": [],
    }  # fmt: skip
    figure = similarity_figures(data)["similarity"]
    ax = figure.axes[0]
    points = {line.get_label(): line.get_xdata() for line in ax.lines}
    assert points["raw"][0] == 0.5 and points["zca"][0] == 0.6 and np.isnan(points["raw"][1])
    bars = ax.collections[0].get_segments()
    assert bars[0][:, 0].tolist() == [0.4, 0.6]
    assert "pairs: wordsim353 353, simlex999 2" in words(figure)
