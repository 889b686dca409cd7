"""All figures of one audit's shifts against a benchmark, as they stand in result.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refbias.statistics.groups import common_group_permutation, group_bootstrap
from refbias.statistics.measures import Figure, auc, linear_fit_error, pearson, within
from refbias.statistics.shifts import Estimate
from refbias.types import Array


def agreement(
    x: Array, y: Array, threshold: float, checkpoints: Sequence[Any], groups: Sequence[Any], directed: bool, seed: int
) -> dict[str, Any]:
    """All figures of shifts ``x`` (n,) against benchmark shifts ``y`` (n,), as they stand in result.json.

    A directed metric falls with bias: its detector score is −x. An undirected one (a drift) is read as published,
    |r| and max(AUC, 1 − AUC), with the figure "more drift = alarm" beside it, since the maximum of pure chance lies
    well above one half. Intervals are those of `group_bootstrap`, of the figures with their direction.
    """
    positive = y > threshold
    alarm = -1 if directed else 1
    r, p = pearson(x, y)
    area = auc(alarm * x, positive)
    inside = within(x, y, positive, checkpoints, alarm)
    alike = within(x, y, positive, groups, alarm, of="group")
    errors = linear_fit_error(x, y, seed=seed)
    sure = group_bootstrap(x, y, positive, checkpoints, groups, alarm, seed=seed)
    figures: dict[str, Figure] = {
        "pearson": r,
        "pearson_p": p,
        "auc": area,
        "mae": errors["in_bag"],
        "mae_out_of_bag": errors["out_of_bag"],
        "mae_of_mean": errors["of_mean"],
    }
    inner = {
        "pearson": inside["pearson"],
        "pearson_p": common_group_permutation(x, y, checkpoints, groups, seed=seed),
        "auc": inside["auc"],
    }
    ending = "" if directed else "_directed"
    if not directed:
        figures["auc_directed"] = area
        figures["auc"] = Figure(None if area.value is None else max(area.value, 1 - area.value), area.reason)
        figures["pearson_directed"] = r
        figures["pearson"] = Figure(None if r.value is None else abs(r.value), r.reason)
    return {
        "n_observations": len(x),
        "n_positive": int(positive.sum()),
        **_flat(figures),
        **_ends("pearson" + ending, sure["pearson"]),
        **_ends("auc" + ending, sure["auc"]),
        "within": {
            **_flat(inner),
            **_ends("pearson", sure["within_pearson"]),
            **_ends("auc", sure["within_auc"]),
        },
        "within_groups": _flat({"pearson": alike["pearson"], "auc": alike["auc"]}),
    }


def _ends(name: str, estimate: Estimate) -> dict[str, Any]:
    """The ends of an interval; where there is none beside a figure, the reason."""
    ends: dict[str, Any] = {f"{name}_ci_low": estimate.ci_low, f"{name}_ci_high": estimate.ci_high}
    if estimate.ci_low is None:
        ends[f"{name}_ci_reason"] = estimate.reason
    return ends


def _flat(figures: Mapping[str, Figure]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, figure in figures.items():
        flat[name] = figure.value
        if figure.value is None:
            flat[f"{name}_reason"] = figure.reason
    return flat
