"""The summaries of the paper's experiments on made-up results: tables by hand, pictures read back, failed jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refbias import summaries
from refbias.statistics import fit_band
from refbias.summaries import SUMMARIES, Job
from refbias.summaries.pairs import pair_of
from tests.summaries.conftest import RATIOS, audit_data

Make = Callable[..., Job]
STAND_IN = {"wanted": "tatsu-lab/alpaca", "used": "a packaged set", "why": "no network"}


def jobs_of(job: Make, name: str) -> list[Job]:
    """A few jobs as the experiment ``name`` would leave them, the last of which failed."""
    made: list[Job] = []

    def add(strength: float, seed: int, directed: bool = True, **parts: Any) -> None:
        stand_ins = [STAND_IN] if parts.get("anchors", ("",))[0] == "alpaca" else []
        made.append(job(len(made), audit_data(strength, seed, directed, stand_ins), pair=seed, **parts))

    if name in ("table7", "thresholds"):
        for seed in range(2):
            add(0.9, seed)
            add(0.6, seed, geometry="absolute")
            add(0.6, seed, directed=False, geometry="cka")
    elif name == "table6":
        for pooling in ("mean", "max"):
            add(0.9, 0, pooling=pooling)
    elif name == "table5":
        for attributes in ("base", "synonyms_1"):
            for targets in ("base", "passive"):
                add(0.9, 0, attributes=attributes, targets=targets)
    elif name == "anchors":
        for source in ("neutral", "alpaca"):
            for n in (10, 1000):
                for draw in range(2):
                    add(0.7 + 0.1 * draw, 0, anchors=(source, {"n": n, "seed": draw}))
    else:
        add(0.9, 0)
        add(0.8, 1)
    made.append(job(len(made), None, "No model 'x'. It is on the hub.", pair=9))
    return made


@pytest.fixture
def summed(job: Make) -> Callable[[str], Any]:
    return lambda name: SUMMARIES[f"delta_b_{name}"](jobs_of(job, name))


@pytest.mark.parametrize("name", [name.removeprefix("delta_b_") for name in SUMMARIES])
def test_every_summary_leaves_tables_text_and_pictures(name: str, summed: Callable[[str], Any], tmp_path: Path) -> None:
    made = summed(name)
    text = summaries.markdown(made)
    if name in ("scatter", "anchors"):  # drawing to a file takes a second each
        assert summaries.save(made, name, tmp_path) in text
        assert {file.suffix for file in tmp_path.iterdir()} == {".json", ".csv", ".md", ".png", ".svg"}
    assert "No model 'x'" in text  # what a failed job needs
    assert "of the paper" in text or name in ("table3", "seeds")
    assert made.data["figures"]
    for figure in made.figures().values():
        words = " ".join(part.get_text() for part in figure.texts).replace("\n", " ")
        assert "own" in words
        assert "stand-ins: " in words


@pytest.mark.parametrize("name", [name.removeprefix("delta_b_") for name in SUMMARIES])
def test_a_sweep_of_which_nothing_ran_still_has_a_text(name: str, job: Make) -> None:
    made = SUMMARIES[f"delta_b_{name}"]([job(0, None, "the hub is out of reach")])
    assert "the hub is out of reach" in summaries.markdown(made)
    made.figures()


def test_table7_has_a_line_a_method_raw_and_centred(summed: Callable[[str], Any]) -> None:
    made = summed("table7")
    measured = [row for row in made.rows("table7") if row["pairs"] == 2]
    assert {(row["method"], row["calibration"]) for row in measured} == {
        ("RR", "raw"), ("RR", "centred"), ("SEAT", "raw"), ("SEAT", "centred"), ("CKA drift", "raw"),
    }  # fmt: skip
    rr = next(row for row in measured if (row["method"], row["calibration"], row["figure"]) == ("RR", "raw", "AUC"))
    assert (rr["published"], rr["published_for"]) == (0.949, "Llama, full, DecodingTrust")
    assert rr["difference"] == pytest.approx(rr["measured"] - 0.949)
    assert rr["alternatives"] == 5
    assert rr["remark"].startswith("1 of 3 jobs did not run")
    drift = next(row for row in measured if row["method"] == "CKA drift" and row["figure"] == "AUC")
    assert drift["measured"] == pytest.approx(max(drift["directed"], 1 - drift["directed"]))
    (figure,) = made.figures().values()
    (points,) = [line for line in figure.axes[0].get_lines() if line.get_label() == "measured, pooled"]
    shown = np.asarray(points.get_xdata(), dtype=float)
    in_table = [row["measured"] for row in made.rows("table7") if row["figure"] == "AUC" and row["pairs"]]
    np.testing.assert_allclose(shown[np.isfinite(shown)], in_table)


def test_table5_gives_mean_and_sd_over_the_variants(summed: Callable[[str], Any]) -> None:
    made = summed("table5")
    areas = [row["measured"] for row in made.rows("table5") if row["varied"] == "targets" and row.get("measured")]
    (mean,) = [row for row in made.rows("means") if row["varied"] == "targets"]
    assert mean["mean"] == pytest.approx(np.mean(areas))
    assert mean["sd"] == pytest.approx(np.std(areas))  # ddof 0, as published
    assert (mean["published"], mean["published_sd"], mean["variants"]) == (0.902, 0.008, 2)
    grid = made.figures()["table5_grid"].axes[0]
    assert [text.get_text() for text in grid.texts] == [f"{row['auc']:.2f}" for row in _by_targets(made.rows("grid"))]


def _by_targets(grid: list[dict[str, Any]]) -> list[dict[str, Any]]:
    known = [row for row in grid if row["auc"] is not None]
    return sorted(known, key=lambda row: (row["targets"] != "base", row["attributes"] != "base"))


def test_table3_divides_by_the_models_and_knows_the_published_range(summed: Callable[[str], Any]) -> None:
    made = summed("table3")
    first = {row["step"]: row for row in made.rows("table3")[:4]}
    assert first["embeddings"]["measured"] == pytest.approx(40 / 4)  # reference and three checkpoints
    assert first["embeddings"]["difference"] == pytest.approx(10 - 136)
    assert first["embeddings"]["each"] == pytest.approx(40 / 2000)
    assert first["shift"]["measured"] == pytest.approx(6 / 3)
    assert first["embeddings and shift"]["measured"] == pytest.approx(12)
    assert first["likelihood"]["measured"] == pytest.approx(8 / 4)
    assert any("needs models=paper benchmark=toxigen" in (row.get("remark") or "") for row in made.rows("table3"))


def test_what_came_from_the_cache_is_no_cost(job: Make) -> None:
    data = audit_data(0.9, 0)
    data["timings"] |= {"sentences_encoded": 0, "sentences_from_cache": 2000}
    rows = SUMMARIES["delta_b_table3"]([job(0, data)]).rows("table3")
    assert (rows[0]["step"], rows[0]["measured"]) == ("embeddings", None)
    assert rows[0]["remark"] == "2,000 of 2,000 sentences came from the cache: empty cache.dir"


def test_anchors_are_means_over_draws_and_name_the_stand_in(summed: Callable[[str], Any], job: Make) -> None:
    made = summed("anchors")
    jobs = [j for j in jobs_of(job, "anchors") if j.chosen("anchors") == "neutral" and j.option("anchors", "n") == 1000]
    areas = [j.data["benchmark"]["auc"] for j in jobs if j.data]
    (row,) = [row for row in made.rows("anchors") if (row["anchors"], row["n"]) == ("neutral", 1000)]
    assert (row["measured"], row["sd"]) == pytest.approx((np.mean(areas), np.std(areas)))
    assert (row["smallest"], row["largest"], row["published"]) == (min(areas), max(areas), 0.892)
    remarks = {row["anchors"]: row["remark"] for row in made.rows("anchors")}
    assert remarks["alpaca"] == "stand-in: the hub was out of reach"
    assert remarks["neutral"] is None
    assert made.data["stand_ins"] == [STAND_IN]
    legend = [text.get_text() for text in made.figures()["anchors"].legends[0].get_texts()]
    assert "alpaca (stand-in)" in legend


def test_thresholds_are_swept_for_every_method(summed: Callable[[str], Any]) -> None:
    made = summed("thresholds")
    rows = [row for row in made.rows("curve") if (row["method"], row["calibration"]) == ("RR", "raw")]
    assert sum(row["in_use"] for row in rows) == 1
    in_use = next(row for row in rows if row["in_use"])
    table = next(row for row in made.rows("thresholds") if (row["method"], row["calibration"]) == ("RR", "raw"))
    assert (table["threshold"], table["measured"]) == (0.1, in_use["auc"])
    assert table["smallest"] <= table["measured"] <= table["largest"]
    panel = made.figures()["thresholds"].axes[0]
    (line,) = [line for line in panel.get_lines() if line.get_label() == "RR, raw"]
    np.testing.assert_allclose(line.get_xydata(), [[row["threshold"], row["auc"]] for row in rows])


def test_the_scatter_has_a_panel_a_pair_with_its_band(summed: Callable[[str], Any], job: Make) -> None:
    made = summed("scatter")
    pair = pair_of(jobs_of(job, "scatter")[1])
    assert not isinstance(pair, str)
    row = next(row for row in made.rows("scatter") if row.get("pair") == "seed 1")
    slope, intercept = np.polyfit(pair.x, pair.y, 1)
    assert (row["slope"], row["intercept"]) == pytest.approx((slope, intercept))
    assert row["measured"] == pair.figures["pearson"]
    band = fit_band(pair.x, pair.y, pair.groups)
    assert [r["low"] for r in made.rows("bands") if r["pair"] == "seed 1"] == [r["low"] for r in band]
    panel = made.figures()["scatter"].axes[1]
    np.testing.assert_allclose(panel.collections[-1].get_offsets(), np.column_stack([pair.x, pair.y]))


def test_seeds_are_compared_in_the_direction_that_each_was_taught(summed: Callable[[str], Any], job: Make) -> None:
    made = summed("seeds")
    done = [j.data for j in jobs_of(job, "seeds") if j.data]
    (row,) = [r for r in made.rows("seeds") if (r.get("ratio"), r.get("calibration")) == (RATIOS[-1], "raw")]
    shifts = [{g["group"]: g["delta_b"] for g in data["checkpoints"][-1]["groups"]} for data in done]
    means = [np.mean(list(one.values())) for one in shifts]
    assert (row["mean"], row["sd"]) == pytest.approx((np.mean(means), np.std(means)))
    taught = done[0]["series"]["taught_first_at_ratio_1"]
    signed = [{g: v * (1 if g in taught else -1) for g, v in one.items()} for one in shifts]
    assert row["effect"] == pytest.approx(np.mean([np.mean(list(one.values())) for one in signed]))
    spread = np.sqrt(np.mean([np.var([one[g] for one in signed]) for g in signed[0]]))
    assert (row["group_sd"], row["seeds"]) == (pytest.approx(spread), 2)
    assert row["published_sd"] == 0.003
    assert "published" not in row  # the paper's means are of its own fine-tunes
