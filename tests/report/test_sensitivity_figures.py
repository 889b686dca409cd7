"""Pictures of task=sensitivity hold the figures of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from refbias.report.sensitivity_figures import sensitivity_figures
from refbias.sensitivity.grid import Setting
from refbias.sensitivity.plants import NULLS, Plant
from refbias.sensitivity.tables import judged

SITES = [(k, p, s) for k in (3, 4) for p, s in (("mean", "none"), ("mean", "sink"), ("last", "none"))]
SETTINGS = [Setting(k, p, s, c, "relative", "delta_b") for k, p, s in SITES for c in ("none", "center")]
FAMILIES = ("valence", "own", "all_one_way")


@pytest.fixture
def data() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    doses = (0.1, 0.2)
    plants = [Plant(f, d, i, i < 3) for f in FAMILIES for i in range(6) for d in doses]
    plants += [Plant(null, d, i, i < 10) for null in NULLS for i in range(20) for d in doses]
    signs = np.array([np.ones(8) if p.one_way else rng.permutation([1] * 4 + [-1] * 4) for p in plants])
    shifts = rng.normal(size=(len(plants), len(SETTINGS), 8))
    size = np.linspace(0.1, 0.6, len(SETTINGS))[:, None]
    size[3] = 9.0  # layer 3, mean without the sink, centred
    for i, plant in enumerate(plants):
        if not plant.is_null:
            shifts[i] -= 5 * plant.dose * signs[i] * size
    return {
        **judged(plants, signs, shifts, SETTINGS, 4, [True, True], 0.1, 0.8),
        "reference": {"name": "m", "layers": 4, "dim": 8}, "edit": {"block": 2}, "seed": 0, "stand_ins": [],
        "about": {
            "doses": list(doses), "rate": 0.1, "wanted_power": 0.8, "geometries": ["relative"],
            "sentences": {"groups": 8, "targets": 16, "attributes": 8, "anchors": 10},
        },
    }  # fmt: skip


def words(figure: Any) -> str:
    return "\n".join(text.get_text() for text in figure.texts).replace("\n", " ")


def test_the_map_shows_power_by_layer_and_pooling(data: dict[str, Any]) -> None:
    made = sensitivity_figures(data)
    assert list(made) == ["sensitivity_map", "power_over_dose", "planted_scores"]
    best = next(row for row in data["recommended"] if row["role"] == "recommended")
    assert (best["layer"], best["pooling"], best["skip"], best["calibration"]) == (3, "mean", "sink", "center")
    ax = made["sensitivity_map"].axes[0]
    shown = np.asarray(ax.collections[0].get_array()).reshape(2, 3)
    power = {
        (r["layer"], r["pooling"], r["skip"]): r["power"] for r in data["sensitivity"] if r["calibration"] == "center"
    }
    expected = [[power[k, p, s] for p, s in (("mean", "none"), ("mean", "sink"), ("last", "none"))] for k in (4, 3)]
    assert shown == pytest.approx(np.array(expected))
    frames = {patch.get_label(): patch.get_xy() for patch in ax.patches}
    assert frames == {"recommended": (1.04, 1.06)}  # the default has no calibration: it is not in this picture
    assert "other kinds of change may be missed" in words(made["sensitivity_map"])
    assert "recommended, of 12 settings" in words(made["sensitivity_map"])
    assert "dashed" not in words(made["sensitivity_map"])


def test_power_over_the_dose_has_intervals_and_false_alarms(data: dict[str, Any]) -> None:
    figure = sensitivity_figures(data)["power_over_dose"]
    recommended, default = figure.axes[:2]
    assert recommended.get_title().startswith("recommended: layer 3")
    assert default.get_title().startswith("default: layer 4, mean, calibration none")
    rows = [r for r in data["power"] if (r["layer"], r["calibration"]) == (3, "center")]
    lines = {line.get_label(): line.get_ydata() for line in recommended.lines}
    assert list(lines["all families"]) == [r["share"] for r in rows if r["family"] == "all"]
    assert list(lines["valence"]) == [r["share"] for r in rows if r["family"] == "valence"]
    alarms = [r for r in rows if r["family"] in NULLS and r["dose"] == 0.1]
    assert lines["random directions"][0] == sum(r["found"] for r in alarms) / sum(r["n"] for r in alarms)
    bars = [segment[:, 1].tolist() for segment in recommended.collections[0].get_segments()]
    assert bars == [[r["ci_low"], r["ci_high"]] for r in rows if r["family"] == "all"]


def test_planted_scores_stand_beside_those_of_random_directions(data: dict[str, Any]) -> None:
    halves, one_way = sensitivity_figures(data)["planted_scores"].axes
    rows = [r for r in data["scores"] if (r["layer"], r["calibration"], r["null"]) == (3, "center", "random")]
    lines = {line.get_label(): line.get_ydata() for line in halves.lines}
    assert list(lines["valence"]) == [r["q50"] for r in rows if r["family"] == "valence"]
    assert set(lines["threshold"]) == {rows[0]["threshold"]}
    assert list(lines["random median"]) == [r["q50"] for r in rows if r["family"] == "random"]
    assert [line.get_label() for line in one_way.lines] == ["random median", "threshold", "all one way"]
    assert one_way.get_ylabel().startswith("mean of")


def test_without_a_recommendation_there_is_no_picture(data: dict[str, Any]) -> None:
    assert sensitivity_figures({**data, "recommended": []}) == {}
