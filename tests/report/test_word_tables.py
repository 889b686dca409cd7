"""Console tables and lines of the tasks on words."""

from __future__ import annotations

import io
from typing import Any

import pytest

from refbias.report.console import ConsoleWatch
from refbias.report.word_tables import calibration_lines, cost_lines, p_value, suite_lines, suite_tables


def make_row(test: str = "W1", **changes: Any) -> dict[str, Any]:
    sizes = {f"{kind}_{key}": 8 for kind in ("n", "of") for key in "xyab"}
    row = {"layer": 0, "test": test, "name": "Flowers / Insects × pleasant / unpleasant", "category": "valence"}
    row |= {"words_found": 31, "words_lost": 1, "lost": "aster", "left_out": "", **sizes, "n_x": 7, "d_bound": 1.9}
    for space, d in (("raw", 1.25), ("calibrated", -0.5)):
        row |= {f"d_{space}": d, f"ci_low_{space}": d - 0.5, f"ci_high_{space}": d + 0.5, f"p_{space}": 0.01}
    row |= {"status": "Stable", "change": -1.75, "change_low": -2.0, "change_high": -1.5, "flip_chance": 0.12}
    return row | changes


@pytest.fixture
def result() -> dict[str, Any]:
    return {
        "settings": {"calibration": "zca"},
        "reference": {"name": "m[red]", "layers": 0},
        "conventions": {
            "test": "weat", "alpha": 0.05, "ddof": 1, "ties": "inclusive", "alternative": "greater",
            "list_version": "caliskan2017", "list_source": "a [paper]", "words": {"form": "table"},
        },
        "suites": [make_row(), make_row("W2", p_calibrated=0.3, status="Disappearing")],
        "status_counts": {"Stable": 1, "Disappearing": 1, "Emerging": 0},
        "further": [],
        "calibrations": [],
    }  # fmt: skip


def shown(tables) -> str:
    file = io.StringIO()
    watch = ConsoleWatch(file)
    for table in tables:
        watch.show(table)
    return file.getvalue()


def test_d_intervals_and_changes_are_there(result):
    text = shown(suite_tables(result))
    for word in ("m[red]: weat", "+1.25*", "-0.50*", "-0.50 ", "[+0.75, +1.75]", "0.0100", "31/32", "Disappearing",
                 "-1.75", "[-2.00, -1.50]", "12%", "1.90", "Flowers / Insects (valence)"):  # fmt: skip
        assert word in text, word
    assert "raw → zca" in text


def test_lines_say_what_is_missing_and_how_it_was_computed(result):
    lines = list(suite_lines(result))
    assert lines[0] == "W1: no vector for aster (X 8 → 7)"
    result["suites"][0]["lost"] = ", ".join(f"w{i}" for i in range(15))
    assert "w10, w11 and 3 more (X 8 → 7)" in next(suite_lines(result))
    assert "Stable 1, Disappearing 1, Emerging 0 of 2" in lines
    assert "d with ddof=1; p greater, ties inclusive; lists caliskan2017 (a [paper])" in lines


def test_reasons_take_the_place_of_figures(result):
    nothing = dict.fromkeys(("d_raw", "p_raw", "ci_low_raw", "d_calibrated", "p_calibrated", "change", "status"))
    result["suites"] = [make_row(**nothing, reason="too few words: 1 of 8 in X found")]
    assert "W1: no figure: too few words: 1 of 8 in X found" in list(suite_lines(result))
    assert "–" in shown(suite_tables(result))


def test_several_layers_are_one_table_a_space(result):
    result["suites"] = [make_row(layer=k, d_raw=k / 10) for k in range(3)]
    text = shown(suite_tables(result))
    assert "d raw" in text and "d zca" in text and "+0.20*" in text and "interval" not in text


def test_without_a_status_the_reason_is_said(result):
    del result["status_counts"]
    result["suites"] = [make_row(status=None, change_reason="compare the intervals")]
    assert "no status: compare the intervals" in list(suite_lines(result))


def test_a_ridge_that_is_large_for_its_space_is_named():
    fit = {"layer": 0, "calibration": "zca", "fitted_on": "5 vectors", "eps": 1e-3, "shrinkage_used": 0.0}
    small, large = (
        list(calibration_lines({"calibrations": [{**fit, "eps_relative": share}]})) for share in (0.002, 0.4)
    )
    assert small == ["zca: fitted on 5 vectors; eps 0.001, 0.002 of the mean eigenvalue; shrinkage 0"]
    assert "0.4 of the mean eigenvalue: directions with less variance than that are hardly whitened" in large[0]
    many = {"calibrations": [{**fit, "layer": k, "eps_relative": 0.1} for k in range(31)]}
    assert len(list(calibration_lines(many))) == 4


def test_costs_and_stand_ins():
    timings = {"load_s": 1.0, "encode_s": 2.0, "score_s": 0.5, "sentences_encoded": 10, "sentences_from_cache": 5}
    notes = [{"wanted": "a", "used": "b", "why": "c"}]
    lines = list(cost_lines({"stand_ins": notes, "timings": timings}, "out"))
    assert lines == ["stand-in: b is used in place of a: c", "10 sentences encoded, 5 from the cache; 3.5 s in all.",
                     "files: out"]  # fmt: skip


def test_p_values_are_readable():
    assert [p_value(p) for p in (0.05, 1 / 12870, 0.0, 1.0)] == ["0.0500", "7.8e-05", "0.0000", "1.0000"]
