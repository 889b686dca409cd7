"""Everything that one table of observations can say, without any model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from refbias.errors import RefbiasError, UsageError
from refbias.statistics.calibrator import Calibrator, fit_calibrator, leave_one_run_out, reliability
from refbias.statistics.families import holm
from refbias.statistics.groups import (
    DRAWS,
    auc_difference,
    auc_permutation,
    common_group_permutation,
    fit_band,
    group_bootstrap,
    max_statistic,
)
from refbias.statistics.measures import Figure, auc, linear_fit_error, pearson, within
from refbias.statistics.meta import Meta, mean_over_runs, meta_analysis
from refbias.statistics.observations import Observations
from refbias.statistics.roc import auc_parts, delong, noise_ceiling, threshold_sweep
from refbias.statistics.shifts import Estimate
from refbias.types import Array

SWEEP = 25  # thresholds of the sweep, beside the one in use
PUBLISHED = "Student's t over all observations, as published: takes merges of two fine-tunes as independent"
COMMON = "one permutation of groups common to all checkpoints"


def validate(
    observations: Observations,
    threshold: float | None = None,
    standard_error: float | None = None,
    directed: bool | None = None,
    method: Literal["logistic", "isotonic"] = "logistic",
    rate: float = 0.05,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[dict[str, Any], Calibrator | None]:
    """All statistics of ``observations``, as blocks of result.json, and the calibrator where one could be fitted.

    Parameters
    ----------
    threshold : "more biased" is delta_bias above it; None takes that of the result beside the file, else 0
    standard_error : of one delta_bias, for the ceiling that label noise allows; a column delta_bias_se beats it
    directed : whether the shift falls with bias; None reads it from the file
    method, rate : of the calibrator, and the wanted share of false alarms

    Returns
    -------
    blocks: ``observations``, ``agreement``, ``auc_parts``, ``thresholds``, ``runs``, ``over_runs``, ``alternatives``,
    ``reliability`` and ``fit`` hold flat rows; ``calibration``, ``about`` and ``figures`` are mappings
    """
    chosen = _threshold(observations, threshold)
    falls = bool(observations.context["directed"]) if directed is None else directed
    return _Validation(observations, chosen, standard_error, falls, method, rate, draws, seed).blocks()


def _threshold(observations: Observations, threshold: float | None) -> float:
    context = observations.context
    if threshold is None and context["thresholds_differ"]:
        raise UsageError("The files were made with different thresholds of the benchmark: choose task.threshold=….")
    chosen = context["threshold"] if threshold is None else threshold
    chosen = 0.0 if chosen is None else float(chosen)
    if threshold is None:
        for where, label, y in zip(observations.where, observations.labelled, observations.y, strict=True):
            if label is not None and label != (y > chosen):
                raise UsageError(
                    f"{where}: more_biased is {label} and delta_bias {y:g}, which the threshold {chosen:g} does not "
                    "give. Say which threshold is meant: task.threshold=…."
                )
    return chosen


class _Validation:
    def __init__(
        self,
        observations: Observations,
        threshold: float,
        standard_error: float | None,
        directed: bool,
        method: Literal["logistic", "isotonic"],
        rate: float,
        draws: int,
        seed: int,
    ) -> None:
        self.seen, self.threshold, self.directed = observations, threshold, directed
        self.error = observations.error if observations.error is not None else standard_error
        self.method, self.rate, self.draws, self.seed = method, rate, draws, seed
        self.x, self.y = observations.x, observations.y
        self.labels = self.y > threshold
        self.alarm = -1 if directed else 1
        self.blocks_of, self.groups = observations.blocks, observations.group
        self.runs = list(dict.fromkeys(observations.run))

    def blocks(self) -> tuple[dict[str, Any], Calibrator | None]:
        agreement = self._agreement()
        calibrator, calibration, chance = self._calibration()
        by_name = {row["figure"]: row["value"] for row in agreement}
        p_values = {row["figure"]: row["p_value"] for row in agreement}
        over_runs = self._over_runs()
        alternatives, counted = self._alternatives()
        checked = calibration.get("checked", {})
        figures = {
            "pearson": by_name["pearson"],
            "auc": by_name["auc"],
            "within_pearson": by_name["within_pearson"],
            "within_auc": by_name["within_auc"],
            "within_pearson_p": p_values["within_pearson"],
            "brier_skill": checked.get("brier_skill"),
            "auc_ceiling": by_name["auc_ceiling"],
        }
        return {
            "about": {
                "observations": len(self.x),
                "left_out": self.seen.left_out,
                "more_biased": int(self.labels.sum()),
                "threshold": self.threshold,
                "directed": self.directed,
                "runs": len(self.runs),
                "checkpoints": len(set(self.blocks_of)),
                "groups": len(set(self.groups)),
                "alternatives": counted,
                "benchmark": self.seen.context["benchmark"],
                "unit": self.seen.context["unit"],
                "metric": self.seen.context["metric"],
            },
            "agreement": agreement,
            "auc_parts": [asdict(p) for p in auc_parts(self.alarm * self.x, self.labels, self.blocks_of, self.groups)],
            "thresholds": self._thresholds(),
            "runs": self._by_run(),
            "over_runs": over_runs,
            "alternatives": alternatives,
            "calibration": calibration,
            "reliability": [] if chance is None else reliability(chance, self.labels),
            "fit": fit_band(self.x, self.y, self.groups, draws=self.draws, seed=self.seed),
            "observations": self._observations(calibrator, chance),
            "figures": figures,
        }, calibrator

    # Agreement

    def _agreement(self) -> list[dict[str, Any]]:
        x, y, labels, draws, seed = self.x, self.y, self.labels, self.draws, self.seed
        sure = group_bootstrap(x, y, labels, self.blocks_of, self.groups, self.alarm, draws, seed)
        published = pearson(x, y)[1]
        common = common_group_permutation(x, y, self.blocks_of, self.groups, draws, seed)
        areas = auc_permutation(x, labels, self.blocks_of, self.groups, self.alarm, draws, seed)
        alike = within(x, y, labels, self.groups, self.alarm, of="group")
        errors = linear_fit_error(x, y, seed=seed)
        rows = [
            _row("pearson", "pooled", sure["pearson"], published, PUBLISHED),
            _row("auc", "pooled", sure["auc"], areas["pooled"], COMMON),
            _row("within_pearson", "within checkpoints", sure["within_pearson"], common, COMMON),
            _row("within_auc", "within checkpoints", sure["within_auc"], areas["within"], COMMON),
            _row("within_groups_pearson", "within groups", _alone(alike["pearson"])),
            _row("within_groups_auc", "within groups", _alone(alike["auc"])),
            _row("auc_delong", "pooled, observations independent", self._delong()),
            _row("auc_ceiling", "what label noise allows", _alone(self._ceiling())),
        ]
        rows += [_row(f"mae_{name}", "line, 1,000 resamples", _alone(figure)) for name, figure in errors.items()]
        return rows

    def _ceiling(self) -> Figure:
        if self.error is None:
            return Figure(None, "needs the standard error of delta_bias: a column delta_bias_se, or one number")
        return noise_ceiling(self.y, self.threshold, self.error)

    def _delong(self) -> Estimate:
        try:
            return delong(self.alarm * self.x, self.labels, self.groups).estimate()
        except RefbiasError as error:
            return Estimate(None, None, None, None, str(error))

    def _thresholds(self) -> list[dict[str, Any]]:
        if not len(self.y):
            return []
        low, high = (float(np.quantile(self.y, share)) for share in (0.02, 0.98))
        between = np.linspace(low, high, SWEEP).tolist()
        return threshold_sweep(self.x, self.y, sorted({*between, self.threshold}), self.blocks_of, self.alarm)

    # Runs

    def _of_run(self, run: str) -> tuple[Array, Array, Any, list[str], list[str]]:
        which = np.array([name == run for name in self.seen.run])
        rows = np.flatnonzero(which)
        blocks, groups = ([names[i] for i in rows] for names in (self.blocks_of, self.groups))
        return self.x[which], self.y[which], self.labels[which], blocks, groups

    def _by_run(self) -> list[dict[str, Any]]:
        rows = []
        for run in self.runs:
            x, y, labels, blocks, groups = self._of_run(run)
            inner = within(x, y, labels, blocks, self.alarm)
            figures = {"pearson": pearson(x, y)[0], "auc": auc(self.alarm * x, labels)}
            figures |= {f"within_{name}": figure for name, figure in inner.items()}
            reasons = list(dict.fromkeys(f.reason for f in figures.values() if f.reason))
            rows.append(
                {"run": run, "checkpoints": len(set(blocks)), "groups": len(set(groups))}
                | {"more_biased": int(labels.sum()), **{name: figure.value for name, figure in figures.items()}}
                | {"reason": "; ".join(reasons) or None}
            )
        return rows

    def _over_runs(self) -> list[dict[str, Any]]:
        """The fine-tune pair as the unit: correlations by a random-effects mean, AUCs by a mean over runs."""
        rows = []
        by_run = self._by_run()
        for name in ("pearson", "within_pearson"):
            usable = [row for row in by_run if row[name] is not None]
            found = meta_analysis([row[name] for row in usable], [row["groups"] for row in usable])
            rows.append({"figure": name, "n_of_a_run": "groups", **asdict(found)})
        for name in ("auc", "within_auc"):
            mean = mean_over_runs([Figure(row[name], row["reason"]) for row in by_run], (0.0, 1.0))
            k = sum(row[name] is not None for row in by_run)
            plain = Meta(k, mean.value, mean.ci_low, mean.ci_high, reason=mean.reason)
            rows.append({"figure": name, "n_of_a_run": None, **asdict(plain)})
        return rows

    # Choices

    def _alternatives(self) -> tuple[list[dict[str, Any]], int]:
        """The shift in use and every alternative to it, with the choice among them counted."""
        seen = self.seen
        if not seen.alternatives:
            return [], 1
        every = {seen.name: self.x, **seen.alternatives}
        whole = {name: values for name, values in every.items() if np.isfinite(values).all()}
        arguments = (self.y, self.labels, self.blocks_of, self.groups)
        found = {
            figure: max_statistic(whole, *arguments, figure, self.alarm, self.draws, self.seed)
            for figure in ("pearson", "auc")
        }
        differences = {name: self._against(values) for name, values in whole.items() if name != seen.name}
        adjusted = dict(zip(differences, holm([d.p_value for d in differences.values()]), strict=True))
        nothing = Estimate(None, None, None, None)
        rows: list[dict[str, Any]] = []
        for name, values in every.items():
            missing = int((~np.isfinite(values)).sum())
            if missing:
                rows.append({"alternative": name, "reason": f"missing for {missing} of {len(values)} observations"})
                continue
            r, area = (found[figure][0][name] for figure in ("pearson", "auc"))
            gap = differences.get(name, nothing)
            rows.append(
                {
                    "alternative": name,
                    "within_pearson": r.value,
                    "within_pearson_p": r.p_value,
                    "within_pearson_p_adjusted": r.p_adjusted,
                    "auc": auc(self.alarm * values, self.labels).value,
                    "within_auc": area.value,
                    "within_auc_p": area.p_value,
                    "within_auc_p_adjusted": area.p_adjusted,
                    "auc_gain": gap.value,
                    "auc_gain_ci_low": gap.ci_low,
                    "auc_gain_ci_high": gap.ci_high,
                    "auc_gain_p": gap.p_value,
                    "auc_gain_p_holm": adjusted.get(name),
                    "reason": r.reason or area.reason or gap.reason,
                }
            )
        return rows, found["pearson"][1]

    def _against(self, values: Array) -> Estimate:
        """AUC of an alternative minus that of the shift in use."""
        alarm = self.alarm
        return auc_difference(
            alarm * values, alarm * self.x, self.labels, self.groups, draws=self.draws, seed=self.seed
        )

    # Calibration

    def _calibration(self) -> tuple[Calibrator | None, dict[str, Any], Array | None]:
        if not len(self.x):
            return None, {"reason": "there is no observation"}, None
        known = {"threshold": self.threshold, "benchmark": self.seen.context["benchmark"]}
        made = fit_calibrator(
            self.x, self.labels, self.seen.run, self.groups, self.method, self.rate, self.directed,
            self.seen.context["domain"], **known,
        )  # fmt: skip
        if isinstance(made, Figure):
            return None, {"reason": made.reason}, None
        chance, _ = leave_one_run_out(self.x, self.labels, self.seen.run, self.method, self.directed)
        return made, asdict(made), chance

    def _observations(self, calibrator: Calibrator | None, left_out: Array | None) -> list[dict[str, Any]]:
        seen, n = self.seen, len(self.x)
        fitted: Sequence[float | None] = [None] * n if calibrator is None else calibrator.probability(self.x).tolist()
        apart: Sequence[float | None] = [None] * n if left_out is None else left_out.tolist()
        columns: Mapping[str, Sequence[Any]] = {
            "run": seen.run,
            "checkpoint": seen.checkpoint,
            "ratio": seen.ratio.tolist(),
            "group": seen.group,
            "delta_b": self.x.tolist(),
            "delta_bias": self.y.tolist(),
            "more_biased": self.labels.tolist(),
            "probability": fitted,
            "probability_run_left_out": apart,
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _alone(figure: Figure) -> Estimate:
    return Estimate(figure.value, None, None, None, figure.reason)


def _row(name: str, of: str, estimate: Estimate, p: Figure | None = None, how: str | None = None) -> dict[str, Any]:
    """A row of the table ``agreement``; a p-value that is missing says why where the figure has no reason."""
    p_value = p.value if p else estimate.p_value
    reason = estimate.reason or (p.reason if p and p.value is None else None)
    return {
        "figure": name,
        "of": of,
        "value": estimate.value,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
        "p_value": p_value,
        "p_of": how if p_value is not None else None,
        "reason": reason,
    }
