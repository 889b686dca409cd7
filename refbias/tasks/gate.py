"""Gates: limits that turn a measured result into a yes or no for scripts (exit status 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refbias.tracking import below_zero, benchmarks_of, layers_of


def verdict(data: Mapping[str, Any], *, max_below_zero: int | None, min_auc: float | None) -> dict[str, Any]:
    """Hold a result against the limits: ``passed``, and each rule with its limit, value and reason."""
    rules = []
    if max_below_zero is not None:
        counts = [
            (
                len(below_zero(checkpoint)),
                checkpoint["name"] if layer is None else f"{checkpoint['name']}, layer {layer}",
            )
            for layer, checkpoints in layers_of(data)
            for checkpoint in checkpoints
        ]
        worst, where = max(counts, default=(0, "no checkpoint"), key=lambda count: count[0])
        rules.append(
            _rule("max_below_zero", max_below_zero, worst, worst <= max_below_zero)
            | {"reason": f"{worst} groups below zero beyond doubt at {where}; {max_below_zero} allowed"}
        )
    if min_auc is not None:
        measured = {"auc", "reason"}  # with several layers the block beside them has neither
        found = [benchmark for _, benchmark in benchmarks_of(data) if measured & set(benchmark)]
        values = [benchmark["auc"] for benchmark in found if benchmark.get("auc") is not None]
        undecided = not found or len(values) < len(found)
        value = None if undecided else min(values)
        reasons = [b.get("auc_reason") or b.get("reason") for b in found]
        why = next(filter(None, reasons), "no benchmark was measured")
        reason = f"AUC cannot be computed: {why}" if value is None else f"AUC {value:.3f}; at least {min_auc:g} wanted"
        rules.append(_rule("min_auc", min_auc, value, value is not None and value >= min_auc) | {"reason": reason})
    return {"passed": all(rule["passed"] for rule in rules), "rules": rules}


def _rule(name: str, limit: float, value: float | None, passed: bool) -> dict[str, Any]:
    return {"rule": name, "limit": limit, "value": value, "passed": passed}
