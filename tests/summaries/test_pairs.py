"""Figures over fine-tune pairs, and what stands beside them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from refbias.statistics import agreement, common_group_permutation, mean_over_runs, meta_analysis
from refbias.statistics.measures import Figure
from refbias.summaries import Job
from refbias.summaries.pairs import CENTRED, RAW, beside, counted, lines, over_pairs, pair_of, subject_of
from refbias.summaries.published import nearest, place, published
from tests.summaries.conftest import GROUPS, RATIOS, audit_data

Make = Callable[..., Job]


def test_a_pair_holds_the_observations_of_the_result(job: Make) -> None:
    data = audit_data(0.9, 0)
    pair = pair_of(job(0, data))
    assert not isinstance(pair, str)
    assert len(pair.x) == len(GROUPS) * len(RATIOS) == data["benchmark"]["n_observations"]
    assert pair.figures is data["benchmark"]
    assert (pair.threshold, pair.directed, pair.run) == (0.1, True, "seed 0")
    first = data["checkpoints"][0]
    assert pair.x[3] == first["groups"][3]["delta_b"]
    assert pair.y[3] == data["benchmark"]["scores"][first["name"]][GROUPS[3]]["delta_bias"]


def test_the_second_opinion_is_measured_anew(job: Make) -> None:
    pair, centred = pair_of(job(0, audit_data(0.9, 0))), pair_of(job(0, audit_data(0.9, 0)), CENTRED)
    assert not isinstance(pair, str)
    assert not isinstance(centred, str)
    np.testing.assert_allclose(centred.x, 2 * pair.x + 0.01)  # a shift and a scale change neither r nor AUC
    for figure in ("pearson", "auc"):
        assert centred.figures[figure] == pytest.approx(pair.figures[figure], abs=1e-12)
    again = agreement(pair.x, pair.y, 0.1, pair.checkpoints, pair.groups, True, 0)
    assert pair.figures["within"] == again["within"]


def test_a_pair_without_figures_says_why(job: Make) -> None:
    data = audit_data(0.9, 0)
    assert pair_of(job(0, None, "no disk")) == "no disk"
    assert pair_of(job(0, {"task": "weat"})) == "task=weat is no audit"
    assert pair_of(job(0, {**data, "benchmark": {"name": "x", "reason": "no GPU"}})) == "no GPU"


def test_one_pair_has_the_interval_over_groups_several_that_over_pairs(job: Make) -> None:
    pairs = [pair_of(job(seed, audit_data(0.9, seed), pair=seed)) for seed in range(3)]
    known = [pair for pair in pairs if not isinstance(pair, str)]
    figures = known[0].figures
    one = over_pairs(known[:1], "pearson")
    assert (one.value, one.ci_low, one.ci_high) == tuple(
        figures[key] for key in ("pearson", "pearson_ci_low", "pearson_ci_high")
    )
    r = over_pairs(known, "pearson", inside=True)
    expected = meta_analysis([pair.figures["within"]["pearson"] for pair in known], [12, 12, 12])
    assert (r.value, r.ci_low, r.ci_high) == (expected.value, expected.ci_low, expected.ci_high)
    area = over_pairs(known, "auc")
    mean = mean_over_runs([Figure(pair.figures["auc"]) for pair in known])
    assert area.value == mean.value == pytest.approx(np.mean([pair.figures["auc"] for pair in known]))
    assert 0 <= area.ci_low <= area.ci_high <= 1  # type: ignore[operator]
    assert over_pairs([], "auc").reason == "no pair of fine-tunes"


def test_p_is_that_of_the_common_permutation_and_counts_the_choice(job: Make) -> None:
    strong, weak = (audit_data(strength, 0) for strength in (0.9, 0.2))
    weak["benchmark"] = {**weak["benchmark"], "scores": strong["benchmark"]["scores"]}
    jobs = [job(0, strong), job(1, weak, geometry="absolute")]
    both = lines(jobs, lambda one: {"geometry": one.chosen("geometry")})
    found = counted(both, "pearson")
    pair = both[0].pairs[0]
    alone = common_group_permutation(pair.x, pair.y, pair.checkpoints, pair.groups)
    assert found[0].p_value == pytest.approx(alone.value, rel=0.5)
    for alternative in found.values():
        assert alternative.p_adjusted >= alternative.p_value  # type: ignore[operator]
    assert counted(both, "mae") == {}


def test_lines_put_pairs_of_one_setting_together(job: Make) -> None:
    jobs = [job(seed, audit_data(0.9, seed), pair=seed) for seed in range(2)]
    jobs += [job(2, None, "no disk.\nmore", pair=2), job(3, audit_data(0.5, 1, directed=False), geometry="cka")]
    found = lines(jobs, lambda one: {"geometry": one.chosen("geometry")}, (RAW, CENTRED))
    assert [(line.varied, len(line.pairs), line.remark()) for line in found] == [
        ({"geometry": "relative", "calibration": RAW}, 2, "1 of 3 jobs did not run: no disk."),
        ({"geometry": "relative", "calibration": CENTRED}, 2, None),
        ({"geometry": "cka", "calibration": RAW}, 1, None),  # a drift has no second opinion
    ]


def test_rows_are_published_measured_difference(job: Make) -> None:
    llama = "meta-llama/Llama-3.1-8B-Instruct"
    merge = {"checkpoints": ("merge", {"start": "a", "end": "b"}), "benchmark": "wildguardmix", "regime": "full"}
    jobs = [job(0, audit_data(0.9, 0), reference=llama, **merge), job(1, audit_data(0.9, 1))]
    printed = [
        {"benchmark": "wildguardmix", "model": "llama", "regime": "full", "auc": 0.5},
        {"benchmark": "decodingtrust", "model": "llama", "regime": "lora", "auc": 0.7},
        {"benchmark": "toxigen", "model": "gemma", "regime": "lora", "auc": 0.6},
    ]
    own, other, rest = beside(lines(jobs, lambda one: {}), ("auc",), printed)
    assert (own["published"], own["published_for"]) == (0.5, None)
    assert own["difference"] == pytest.approx(own["measured"] - 0.5)
    assert (other["published"], other["published_for"]) == (0.7, "Llama, LoRA, DecodingTrust")
    assert (rest["model"], rest["published"], rest.get("measured")) == ("google/gemma-3-4b-it", 0.6, None)
    assert "needs models=paper" in rest["remark"]


def test_the_regime_is_what_the_settings_say(job: Make) -> None:
    assert subject_of(job(0, None)).regime == "lora, planted"
    assert subject_of(job(0, None, checkpoints=("planted", {"kind": "harmless"}))).regime == "lora, harmless"
    assert subject_of(job(0, None, checkpoints="merge", regime="full")).regime == "full"
    assert subject_of(job(0, None, audited="a")).regime == "given models"
    assert subject_of(job(0, None, benchmark=("likelihood", {"variant": "chat"}))).benchmark == "likelihood, chat"
    assert subject_of(job(0, None, benchmark=("decodingtrust", {"limit": 96}))).benchmark == "decodingtrust, cut"


# Published ------------------------------------------------------------------------------------------------------


def test_the_published_figures_are_those_of_the_paper() -> None:
    content = published()
    assert [len(content[f"table{i}"]) for i in (1, 3, 5, 6, 7)] == [18, 6, 12, 6, 8]
    (cell,) = [
        row for row in content["table1"]
        if (row["model"], row["regime"], row["benchmark"]) == ("llama", "full", "decodingtrust")
    ]  # fmt: skip
    assert (cell["pearson"], cell["stars"], cell["auc"], cell["mae"]) == (-0.84, 3, 0.91, 0.11)
    assert [row["auc"] for row in content["table7"][:4]] == [0.964, 0.778, 0.567, 0.864]
    for row in content["table5_means"]:
        areas = [other["auc"] for other in content["table5"] if other["varied"] == row["varied"]]
        assert np.mean(areas) == pytest.approx(row["mean"], abs=6e-4)
        assert np.std(areas) == pytest.approx(row["sd"], abs=6e-4)
    for table in ("table1", "table5", "table6", "table7", "anchors"):
        for row in content[table]:
            assert place(row).count(",") == 2


def test_the_nearest_published_row_is_its_own_else_of_decodingtrust_and_llama() -> None:
    rows = published()["table1"]
    own = nearest(rows, {"model": "gemma", "regime": "lora", "benchmark": "toxigen"})
    assert own is not None
    assert place(own) == "Gemma, LoRA, ToxiGen"
    other = nearest(rows, {"model": None, "regime": None, "benchmark": "likelihood"})
    assert other is not None
    assert place(other) == "Llama, LoRA, DecodingTrust"
    assert nearest([], {}) is None
