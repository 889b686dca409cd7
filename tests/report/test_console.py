from __future__ import annotations

import io
from typing import Any

import pytest

from refbias.report import console
from refbias.report.console import ConsoleWatch


def row(group: str, shift: float, certain: bool, second: float, second_certain: bool) -> dict[str, Any]:
    def figures(value: float, doubtless: bool) -> dict[str, Any]:
        high = -0.001 if doubtless else abs(value) + 0.1
        return {"delta_b": value, "ci_low": value - 0.1, "ci_high": high, "p_adjusted": 0.01 if doubtless else 0.4}

    return {
        "group": group, "b_ref": 0.25, "b_aud": 0.25 + shift, **figures(shift, certain),
        "second_opinion": {"calibration": "center", **figures(second, second_certain)},
    }  # fmt: skip


@pytest.fixture
def entry() -> dict[str, Any]:
    return {
        "name": "planted 0.70",
        "ratio": 0.7,
        "mean_delta_b": -0.05,
        "groups": [
            row("Women", 0.1, False, 0.1, False),
            row("Men", -0.2, True, 0.05, False),
            row("Asians", -0.3, True, -0.3, True),
        ],
    }


def shown(act: Any, width: int | None = None, brief: bool = False) -> str:
    file = io.StringIO()
    act(ConsoleWatch(file, brief))
    return file.getvalue()


def test_a_checkpoint_is_a_table_with_the_second_opinion(entry: dict[str, Any]) -> None:
    lines = [line.rstrip() for line in shown(lambda watch: watch.checkpoint(entry)).splitlines()]
    assert lines[0] == "planted 0.70: mean ΔB -0.050"
    assert " ".join(lines[2].split()) == "group B ref B aud ΔB 95 % interval ΔB centred 95 % interval"
    rows = [line.split() for line in lines if line.strip().startswith(("Women", "Men", "Asians"))]
    assert [cells[0] for cells in rows] == ["Asians", "Men", "Women"]
    assert rows[0][1:] == [
        "0.250",
        "-0.050",
        "-0.300",
        "[-0.400,",
        "-0.001]",
        "*",
        "-0.300",
        "[-0.400,",
        "-0.001]",
        "*",
    ]
    assert "*" not in rows[2]
    assert "* below zero beyond doubt: 2 of 3 groups; centred: 1" in lines


def test_disagreement_is_said_in_sentences(entry: dict[str, Any]) -> None:
    assert console.disagreements(entry) == [
        "The sign differs centred for 1 of 3 groups: Men.",
        "Below zero beyond doubt as chosen, but not centred, for 1 of 3 groups: Men. "
        "Such a shift may be common to any fine-tune.",
    ]
    entry["groups"] = entry["groups"][:1]
    assert console.disagreements(entry) == []


def test_metrics_of_two_spaces_have_no_scores(entry: dict[str, Any]) -> None:
    for group in entry["groups"]:
        group.update(b_ref=None, b_aud=None, second_opinion=None)
    text = shown(lambda watch: watch.checkpoint(entry))
    assert "B ref" not in text
    assert "centred" not in text


def test_a_checkpoint_in_brief_is_one_line(entry: dict[str, Any]) -> None:
    text = shown(lambda watch: watch.checkpoint(entry), brief=True)
    assert text == "planted 0.70: mean ΔB -0.050; below zero beyond doubt: 2 of 3 groups; centred: 1\n"


def test_progress_is_plain_where_there_is_no_terminal() -> None:
    def act(watch: ConsoleWatch) -> None:
        with watch.progress("encoding", 2400, "sentences") as advance:
            advance(1200)
            advance(1200)

    lines = shown(act).splitlines()
    assert lines[0] == "encoding: 2,400 sentences"
    assert lines[1].startswith("encoding: done in ")
    assert len(lines) == 2


def test_progress_says_how_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 40.0, 50.0, 120.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(now))

    def act(watch: ConsoleWatch) -> None:
        with watch.progress("training", 10, "steps") as advance:
            advance(2)
            advance(1)

    assert shown(act).splitlines() == [
        "training: 10 steps",
        "training: 20 %, 0.05 steps/s, about 2 min 40 s left",
        "training: done in 2 min 0 s",
    ]


def test_a_terminal_gets_bars_that_end_with_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    file = io.StringIO()
    watch = ConsoleWatch(file)
    watch.console = Console(file=file, force_terminal=True, width=100)
    with watch.progress("outer", 2) as outer:
        with watch.progress("inner", 3, "steps") as inner:
            inner(3)
            watch.say("in between")
        outer(1)
    assert watch._bars is None
    assert "in between" in file.getvalue()
    assert "inner" in file.getvalue()


def test_benchmark_lines_give_figures_and_reasons() -> None:
    benchmark = {
        "name": "likelihood", "n_observations": 168, "n_positive": 80, "pearson": -0.84, "auc": 0.89, "mae": 0.12,
        "within": {"pearson": -0.92, "auc": None, "auc_reason": "one class in every checkpoint"},
    }  # fmt: skip
    assert console.benchmark_lines(benchmark) == [
        "benchmark likelihood (168 observations, 80 more biased)",
        "  pooled              Pearson -0.840   AUC 0.890   MAE 0.120",
        "  within checkpoints  Pearson -0.920   AUC –",
        "  AUC: one class in every checkpoint",
    ]
    assert console.benchmark_lines({"name": "likelihood", "reason": "no causal head"}) == [
        "benchmark likelihood: no causal head"
    ]
    assert console.benchmark_lines({"name": None, "reason": "no benchmark was asked for"}) == []


@pytest.mark.parametrize(
    ("timings", "line"),
    [
        (
            {"sentences_encoded": 0, "sentences_from_cache": 4800},
            "No sentence was encoded: all 4,800 came from the cache.",
        ),
        ({"sentences_encoded": 12, "sentences_from_cache": 0}, "12 sentences encoded, 0 from the cache."),
    ],
)
def test_the_end_says_what_was_encoded(timings: dict[str, int], line: str) -> None:
    assert console.closing_lines({"timings": timings}, "outputs/x") == [line, "files: outputs/x"]


def test_the_end_names_stand_ins_and_the_share_of_position_0() -> None:
    data = {
        "stand_ins": [{"wanted": "alpaca", "used": "its stand-in", "why": "no network"}],
        "reference": {"sink_share": {"30": 0.62}},
    }
    lines = console.closing_lines(data, "x")
    assert "stand-in: its stand-in is used in place of alpaca: no network" in lines
    assert any(line.startswith("Position 0 holds 62% of the squared norm") for line in lines)


def test_layers_have_a_table(entry: dict[str, Any]) -> None:
    data = {"layers": [{"layer": 0, "checkpoints": [entry]}, {"layer": 9, "checkpoints": [entry]}]}
    lines = shown(lambda watch: watch.show(console.layers_table(data))).splitlines()
    assert [line.split() for line in lines[4:6]] == [["0", "-0.050"], ["9", "-0.050"]]


def test_the_report_of_a_series_is_flat() -> None:
    report = {
        "kind": "contrast", "data": "0123456789abcdef", "recipe": {"steps": 240, "rate": 0.001},
        "learnt": [{"end": "end at ratio 1", "held_out_auc": 0.98765}, {"end": "end at ratio 0", "held_out_auc": 1.0}],
    }  # fmt: skip
    assert console.report_lines(report) == [
        "kind: contrast",
        "recipe: steps 240, rate 0.001",
        "learnt: end end at ratio 1, held_out_auc 0.9877",
        "learnt: end end at ratio 0, held_out_auc 1",
    ]


def test_sweeps_end_with_a_table() -> None:
    jobs = [
        {"job": 0, "varied": ["pooling=mean"], "status": 0, "figures": {"mean_delta_b": -0.1, "auc": 0.9}},
        {"job": 1, "varied": ["pooling=max"], "status": 1},
    ]
    text = shown(lambda watch: watch.show(console.sweep_table(jobs)))
    assert "pooling=mean" in text
    assert "-0.100" in text
    assert "failed" in text


def test_a_sweep_of_another_task_shows_the_figures_that_most_jobs_have() -> None:
    first = {f"d/W{i}": 0.25 for i in range(1, 9)}
    second = {"d/W2": 0.5, "d/W8": 0.75, "stable": 8.0}
    jobs = [
        {"job": i, "varied": [f"seed={i}"], "status": 0, "figures": figures}
        for i, figures in enumerate((first, second))
    ]
    headings = [str(column.header) for column in console.sweep_table(jobs).columns]
    assert headings[:5] == ["job", "what varies", "ended", "d/W2", "d/W8"]
    assert len(headings) == 3 + console.MOST_FIGURES
    assert "stable" not in headings


def test_main_figures_are_means_over_checkpoints(entry: dict[str, Any]) -> None:
    other = {**entry, "mean_delta_b": 0.15}
    data = {"checkpoints": [entry, other], "layer": 3, "benchmark": {"pearson": -0.5, "auc": None}}
    assert console.main_figures(data) == {
        "mean_delta_b": pytest.approx(0.05),
        "pearson": -0.5,
        "auc": None,
        "mae": None,
    }
