from __future__ import annotations

from typing import Any

from refbias.tasks.gate import verdict


def result(below: list[int], auc: float | None = 0.8) -> dict[str, Any]:
    """Checkpoints with so many of three groups below zero beyond doubt."""

    def row(group: int, certain: bool) -> dict[str, Any]:
        return {"group": f"group {group}", "delta_b": -0.1, "ci_high": -0.01, "p_adjusted": 0.01 if certain else 0.2}

    checkpoints = [
        {"name": f"step {k}", "mean_delta_b": -0.1, "groups": [row(g, g < count) for g in range(3)]}
        for k, count in enumerate(below)
    ]
    return {"layer": 1, "checkpoints": checkpoints, "benchmark": {"name": "likelihood", "auc": auc}}


def test_without_limits_everything_passes() -> None:
    assert verdict(result([3]), max_below_zero=None, min_auc=None) == {"passed": True, "rules": []}


def test_the_worst_checkpoint_decides() -> None:
    found = verdict(result([0, 2, 1]), max_below_zero=1, min_auc=None)
    (rule,) = found["rules"]
    assert not found["passed"]
    assert (rule["value"], rule["limit"]) == (2, 1)
    assert rule["reason"] == "2 groups below zero beyond doubt at step 1; 1 allowed"
    assert verdict(result([0, 2, 1]), max_below_zero=2, min_auc=None)["passed"]


def test_an_interval_that_reaches_zero_does_not_count() -> None:
    data = result([3])
    for row in data["checkpoints"][0]["groups"]:
        row["ci_high"] = 0.0
    assert verdict(data, max_below_zero=0, min_auc=None)["passed"]


def test_the_auc_is_held_against_its_limit() -> None:
    assert verdict(result([0], 0.8), max_below_zero=None, min_auc=0.8)["passed"]
    assert not verdict(result([0], 0.79), max_below_zero=None, min_auc=0.8)["passed"]


def test_an_auc_that_is_missing_does_not_pass() -> None:
    data = result([0], None)
    data["benchmark"]["auc_reason"] = "one class"
    (rule,) = verdict(data, max_below_zero=None, min_auc=0.5)["rules"]
    assert not rule["passed"]
    assert rule["reason"] == "AUC cannot be computed: one class"
    data["benchmark"] = {"name": None, "reason": "no benchmark was asked for"}
    assert verdict(data, max_below_zero=None, min_auc=0.5)["rules"][0]["reason"].endswith("no benchmark was asked for")


def test_every_layer_counts() -> None:
    one, two = result([0], 0.9), result([2], 0.6)
    data = {"layers": [{**one, "layer": 0}, {**two, "layer": 5}], "benchmark": {"name": "likelihood"}}
    found = verdict(data, max_below_zero=1, min_auc=0.7)
    assert [rule["value"] for rule in found["rules"]] == [2, 0.6]
    assert "step 0, layer 5" in found["rules"][0]["reason"]
