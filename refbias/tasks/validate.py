"""``task=validate``: the statistics of any table of observations, without a model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from refbias.errors import UsageError

if TYPE_CHECKING:
    from refbias.result import Tables
    from refbias.tasks.run import Run

TABLES = ("agreement", "auc_parts", "thresholds", "runs", "over_runs", "alternatives", "reliability", "fit")
SAVED = "calibrator.json"


def validate(
    run: Run,
    *,
    path: str | None = None,
    threshold: float | None = None,
    standard_error: float | None = None,
    layer: int | None = None,
    alternatives: list[str] | None = None,
    directed: bool | None = None,
    method: Literal["logistic", "isotonic"] = "logistic",
    rate: float = 0.05,
) -> Tables:
    """Intervals, p-values, AUC taken apart, calibration: all statistics of an observations.csv, without a model.

    ``path``: a CSV file with the columns checkpoint, group, delta_b, delta_bias; a folder of them; or a pattern.
    ``threshold``: "more biased" is delta_bias above it; by default that of the result beside the file, else 0.
    ``standard_error`` of one delta_bias. ``layer`` of several in the file. ``alternatives``: further columns with
    shifts, -NAME where one rises with bias. ``rate``: wanted share of false alarms.
    """
    from refbias.provenance import provenance
    from refbias.report.validate_figures import validate_figures
    from refbias.result import Tables, task_data, write_whole
    from refbias.statistics import validation
    from refbias.statistics.observations import find_files, read_observations

    begun = time.perf_counter()
    files = find_files(_given(path))
    observations = read_observations(files, alternatives or (), layer)
    blocks, calibrator = validation.validate(
        observations, threshold, standard_error, directed, method, rate, run.settings["draws"], run.settings["seed"]
    )
    data = task_data(
        "validate",
        run.flat(("task",), ("draws",)),
        run.settings["seed"],
        conventions=CONVENTIONS,
        stand_ins=[],
        timings={"score_s": time.perf_counter() - begun},
        provenance=provenance({str(file): _digest(file) for file in files}, run.command),
        **blocks,
    )
    if calibrator is not None:
        write_whole(run.folder / SAVED, calibrator.to_json())
    for line in (*lines(data, calibrator is not None), f"files: {run.folder}"):
        run.watch.say(line)
    tables = [name for name in ("observations", *TABLES) if data[name]]
    return Tables(data, tables, validate_figures)


CONVENTIONS = {
    "pearson_p": "pooled: two-tailed, as published: takes checkpoints x groups as independent, which merges are not",
    "permutation": "one permutation of groups common to all checkpoints; exact where there are few",
    "interval": "bootstrap over groups, studentised: Fisher's z for r, log-odds for AUC, Student's t",
    "level": 0.95,
    "ties": "one half in a ROC curve",
    "alternatives": "maximum over all alternatives under one common permutation (Westfall and Young), single step",
    "auc_gain": "AUC of the alternative - AUC of the shift in use, bootstrap over groups; Holm over the alternatives",
    "over_runs": "correlations: Fisher's z, REML, Hartung and Knapp; AUC: mean and Student's t over runs",
    "calibration": "logistic regression, weak ridge on the standardised slope; checked by leaving one run out",
}


def check(run: Run) -> None:
    """Raise for a path that leads nowhere, before anything is tracked."""
    from refbias.statistics.observations import find_files

    _, options = run.part("task") or ("validate", {})
    find_files(_given(options["path"]))
    if not 0 < options["rate"] < 1:
        raise UsageError(f"task.rate={options['rate']} is no share of false alarms: choose one between 0 and 1.")


def _given(path: str | None) -> str:
    if not path:
        raise UsageError(
            "task=validate needs task.path=FILE: a CSV file with the columns checkpoint, group, delta_b, delta_bias, "
            "a folder with observations.csv files, or a pattern."
        )
    return path


def _digest(file: Any) -> str:
    import hashlib

    return hashlib.sha256(file.read_bytes()).hexdigest()


def lines(data: Mapping[str, Any], calibrated: bool) -> list[str]:
    """The result in plain sentences."""
    about, rows = data["about"], {row["figure"]: row for row in data["agreement"]}
    counts = ", ".join(_count(about, noun) for noun in ("run", "checkpoint", "group"))
    text = [
        f"{about['observations']} observations ({counts}), {about['more_biased']} with Δ bias above "
        f"{about['threshold']:g}; {about['left_out']} rows without a figure left out"
    ]
    for name, label in SHOWN.items():
        text.append(f"  {label:42s} {_shown(rows[name])}")
    for part in data["auc_parts"]:
        if part["pairs"]:
            text.append(f"  pairs of {part['name']:15s} {part['share']:6.1%} of all, AUC {part['auc']:.3f}")
    text += [f"  over {row['k']} runs: {row['figure']} {_shown(row)}" for row in data["over_runs"] if row["k"] > 1]
    for row in data["alternatives"]:
        if row.get("within_pearson") is not None:
            text.append(
                f"  {row['alternative']}: r within checkpoints {row['within_pearson']:+.3f}, p {_p(row)} after "
                f"{about['alternatives']} alternatives are counted"
            )
    calibration = data["calibration"]
    if not calibrated:
        return [*text, f"  no calibrator: {calibration['reason']}"]
    checked, alarm = calibration["checked"], calibration["alarm"]
    if checked["brier_skill"] is not None:
        text.append(
            f"  P(more biased), each run left out in turn: Brier {checked['brier']:.3f}, of the base rate "
            f"{checked['brier_base_rate']:.3f}, skill {checked['brier_skill']:+.3f}"
        )
    else:
        text.append(f"  P(more biased) is not checked: {checked['reason']}")
    if alarm["delta_b"] is None:
        text.append(f"  no alarm threshold: {alarm['reason']}")
    else:
        side = "below" if about["directed"] else "above"
        text.append(
            f"  alarm {side} {alarm['delta_b']:+.3f} for {alarm['rate']:.0%} false alarms, from {alarm['n_harmless']} "
            f"harmless observations ({_count({'runs': alarm['n_runs']}, 'run')})"
        )
    return [*text, f"calibrator: {SAVED}"]


SHOWN = {
    "pearson": "r, pooled (p as published)",
    "auc": "AUC, pooled",
    "within_pearson": "r within checkpoints",
    "within_auc": "AUC within checkpoints",
    "within_groups_pearson": "r within groups",
    "auc_ceiling": "AUC that label noise allows",
}


def _shown(row: Mapping[str, Any]) -> str:
    if row["value"] is None:
        return f"–  ({row['reason']})"
    text = f"{row['value']:+.3f}"
    if row["ci_low"] is not None:
        text += f"  95 % [{row['ci_low']:+.3f}, {row['ci_high']:+.3f}]"
    return text if row["p_value"] is None else f"{text}  p {row['p_value']:.2g}"


def _count(counts: Mapping[str, Any], noun: str) -> str:
    n = counts[f"{noun}s"]
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _p(row: Mapping[str, Any]) -> str:
    value = row["within_pearson_p_adjusted"]
    return "–" if value is None else f"{value:.2g}"
