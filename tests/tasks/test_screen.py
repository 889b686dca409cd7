"""task=screen: the benchmark runs where the shift alarms, and nowhere else."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from refbias.pipeline import load_stimuli
from refbias.registry import Part, registry
from refbias.report.screen_figures import screen_figures
from refbias.schema import result_schema
from refbias.statistics import Calibrator, domain_of

GROUPS = ["Women", "Men", "Canadians"]
scored: list[str] = []


class Counted:
    """A benchmark that remembers which models it was asked to score."""

    unit, threshold = "points", 0.5

    def score(self, checkpoint: Any, groups: Any, context: Any) -> dict[str, float]:
        scored.append(checkpoint.model.name)
        return {group: float(not checkpoint.untouched and group == "Women") for group in groups}


def counted() -> Counted:
    """A benchmark for these tests."""
    return Counted()


@pytest.fixture
def screen(
    command: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, spaces: list[Path]
) -> Callable[..., dict[str, Any]]:
    parts = registry().parts("benchmark")
    monkeypatch.setitem(parts, "counted", Part("benchmark", "counted", counted, {}, "this test"))  # type: ignore[arg-type]
    scored.clear()
    names = ",".join(map(str, spaces[1:]))
    fixed = [
        f"reference={spaces[0]}",
        f"audited=[{names}]",
        f"groups=[{','.join(GROUPS)}]",
        "draws=100",
        "anchors.n=100",
    ]

    def run(*words: str, status: int = 0) -> dict[str, Any]:
        return command("task=screen", "encoder=arrays", "benchmark=counted", *fixed, *words, status=status)

    return run


@pytest.fixture(scope="module")
def spaces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A reference, a model that is nearly it, and one that moved one group towards the negative attributes."""
    folder, rng = tmp_path_factory.mktemp("spaces"), np.random.default_rng(0)
    stimuli = load_stimuli(groups=GROUPS)
    sentences = stimuli.sentences()
    vectors = rng.normal(size=(len(sentences), 8))
    row = {sentence: i for i, sentence in enumerate(sentences)}
    vectors[[row[s] for s in stimuli.positive], 0] += 4
    vectors[[row[s] for s in stimuli.negative], 0] -= 4
    near = vectors + 0.01 * rng.normal(size=vectors.shape)
    moved = near.copy()
    moved[[row[s] for s in stimuli.targets["Women"]], 0] -= 3
    files = [folder / f"{name}.npz" for name in ("reference", "near", "moved")]
    for file, rows in zip(files, (vectors, near, moved), strict=True):
        np.savez(file, sentences=np.array(sentences), vectors=rows[:, None].astype(np.float32))
    return files


def calibrator(data: dict[str, Any], file: Path, **alarm: Any) -> Path:
    """P(more biased) = 0.5 at a shift of −0.5, fitted where ``data`` was measured."""
    curve, about = {"intercept": -5.0, "slope": -10.0}, {"benchmark": "counted", "n_runs": 3}
    Calibrator("logistic", curve, domain_of(data), about, {}, {"rate": 0.05, **alarm}).save(file)
    return file


def test_only_what_alarms_is_benchmarked(screen: Any, capsys: Any) -> None:
    data = screen()
    near, moved = data["screened"]
    assert (near["alarmed"], near["benchmark"], near["more_biased"]) == (False, "skipped", None)
    assert (moved["alarmed"], moved["benchmark"], moved["more_biased"]) == (True, "run", 1)
    assert moved["lowest_group"] == "Women" and moved["lowest_delta_b"] < -0.5 and moved["ratio"] is None
    assert len(scored) == 2  # the reference and what moved, each once
    assert scored[1].endswith(moved["checkpoint"]) and not any(near["checkpoint"] in name for name in scored)
    assert data["missed"]["expected_rate"] is None and "calibrator" in data["missed"]["reason"]
    assert data["cost"]["benchmark_saved_share"] == pytest.approx(1 / 3)
    assert data["figures"] | {"saved_share": None} == {
        "alarmed": 1, "skipped": 1, "expected_miss_rate": None, "saved_share": None,
        "benchmark_saved_share": pytest.approx(1 / 3), "more_biased": 1,
    }  # fmt: skip
    jsonschema.validate(data, result_schema())
    with open("out/observations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 and [row["delta_bias"] for row in rows] == ["", "", "", "1.0", "0.0", "0.0"]
    assert {"screened.csv", "screen.png", "screen.svg"} <= {found.name for found in Path("out").iterdir()}
    shown = capsys.readouterr().out
    assert "skipped, 0 of 3 groups below zero beyond doubt" in shown
    assert "ALARM, 1 of 3 groups below zero beyond doubt" in shown and "counted: 1 group more biased" in shown
    assert "counted was run on 1 of 2 checkpoints; skipped:" in shown and "of every checkpoint would have" in shown
    figure = screen_figures(data)["screen"]
    points = {c.get_label(): c.get_offsets().data for c in figure.axes[0].collections}
    assert points["a group, alarm"][0].tolist() == pytest.approx([moved["lowest_delta_b"], 1])
    assert len(points["a group, skipped"]) == 3


@pytest.mark.parametrize(
    ("words", "alarmed"),
    [
        (["task.alarm=-100"], []),
        (["task.alarm=100"], [0, 1]),
        (["task.alarm=-0.5", "task.at_least=2"], []),
        (["task.alarm=-0.2", "task.rule=mean"], [1]),
    ],
)
def test_threshold_and_rule_are_the_users(screen: Any, words: list[str], alarmed: list[int]) -> None:
    data = screen(*words)
    assert [i for i, row in enumerate(data["screened"]) if row["alarmed"]] == alarmed
    assert len(scored) == (len(alarmed) + 1 if alarmed else 0)
    if not alarmed:
        assert "no checkpoint alarmed" in data["cost"]["reason"] and data["figures"]["more_biased"] is None


def test_a_calibrator_gives_the_threshold_and_what_is_missed(screen: Any, tmp_path: Path, capsys: Any) -> None:
    file = calibrator(screen(), tmp_path / "calibrator.json", delta_b=-0.4, detection_rate=0.75)
    data = screen(f"calibrator={file}")
    assert data["alarm"]["threshold"] == -0.4 and data["alarm"]["detection_rate"] == 0.75
    p = [row["probability"] for row in data["observations"]]
    assert data["missed"]["expected_rate"] == pytest.approx(sum(p[:3]) / sum(p))
    assert data["screened"][1]["expected_more_biased"] == pytest.approx(sum(p[3:]))
    assert p[3] > 0.5 > p[0]
    assert "of the more biased observations, by the calibrator; its threshold found 75%" in capsys.readouterr().out


def test_a_calibrator_of_another_setting_is_refused_unless_told(screen: Any, tmp_path: Path, capsys: Any) -> None:
    file = calibrator(screen(), tmp_path / "calibrator.json", delta_b=-0.4)
    scored.clear()
    screen(f"calibrator={file}", "anchors.n=50", status=2)
    assert "This calibrator does not fit: its anchors.n was 100" in capsys.readouterr().err and not scored
    assert screen(f"calibrator={file}", "anchors.n=50", "calibrator_anyway=true")["alarm"]["threshold"] == -0.4
    assert "fitted at another setting: anchors.n, anchors_digest differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["benchmark=none"], "benchmark=none has none"),
        (["layer=[0,1]"], "judges by one layer"),
        (["task.at_least=0"], "task.at_least=0"),
        (["geometry=cka"], "no test of a shift below zero"),
        (["control=auto"], "belongs to task=audit"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_loaded(screen: Any, capsys: Any, words: list[str], said: str) -> None:
    screen(*words, status=2)
    assert said in capsys.readouterr().err and not scored


def test_a_calibrator_without_a_threshold_says_what_to_do(screen: Any, tmp_path: Path, capsys: Any) -> None:
    file = calibrator({"settings": {}}, tmp_path / "calibrator.json", delta_b=None, reason="too few harmless ones")
    screen(f"calibrator={file}", status=2)
    assert "too few harmless ones. Give one: task.alarm=" in capsys.readouterr().err
