"""Gates: limits that turn a measured result into a yes or no for scripts (exit status 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refbias.errors import UsageError
from refbias.reading import below_zero, benchmarks_of, is_audit, layers_of, several_layers


def verdict(data: Mapping[str, Any], *, max_below_zero: int | None, min_auc: float | None) -> dict[str, Any]:
    """Hold a result against the limits: ``passed``, and each rule with its limit, value and reason."""
    if not is_audit(data) and (max_below_zero is not None or min_auc is not None):
        raise UsageError(f"gate.… holds an audit against limits: task={data['task']} is none. Leave the gate out.")
    rules = []
    if max_below_zero is not None:
        rules.append(_count_rule(data, max_below_zero))
    if min_auc is not None:
        found = [benchmark for _, benchmark in benchmarks_of(data)]
        values = [benchmark["auc"] for benchmark in found if benchmark.get("auc") is not None]
        undecided = not found or len(values) < len(found)
        value = None if undecided else min(values)
        reasons = [b.get("auc_reason") or b.get("reason") for b in found]
        why = next(filter(None, reasons), "no benchmark was measured")
        reason = f"AUC cannot be computed: {why}" if value is None else f"AUC {value:.3f}; at least {min_auc:g} wanted"
        rules.append(_rule("min_auc", min_auc, value, value is not None and value >= min_auc) | {"reason": reason})
    return {"passed": all(rule["passed"] for rule in rules), "rules": rules}


def _count_rule(data: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Groups below zero beyond doubt at the worst checkpoint; a group without a test is undecided, which is no pass."""
    every = [(layer, checkpoint) for layer, checkpoints in layers_of(data) for checkpoint in checkpoints]
    if any(row.get("p_adjusted") is None for _, checkpoint in every for row in checkpoint["groups"]):
        reason = "some groups have no test of a shift below zero: choose a metric that has a direction"
        return _rule("max_below_zero", limit, None, False) | {"reason": reason}
    layer, worst = max(every, key=lambda pair: len(below_zero(pair[1])))
    count = len(below_zero(worst))
    where = f"{worst['name']}, layer {layer}" if several_layers(data) else worst["name"]
    reason = f"{count} groups below zero beyond doubt at {where}; {limit} allowed"
    return _rule("max_below_zero", limit, count, count <= limit) | {"reason": reason}


def _rule(name: str, limit: float, value: float | None, passed: bool) -> dict[str, Any]:
    return {"rule": name, "limit": limit, "value": value, "passed": passed}
