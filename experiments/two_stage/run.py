"""Cost against recall of a two-stage audit: if the benchmark runs only where ΔB alarms, what is saved and what missed?

    python experiments/two_stage/run.py [FILE …] [--seeds 0 1 2] [--cache FOLDER] [--out FOLDER]

FILE is a result.json or an observations.csv of an audit with a benchmark, one for each independent fine-tune. Without
one, the planted contrast pairs of the seeds and their harmless twins are audited with the likelihood benchmark, seven
merges each (about 13 minutes a seed on two cores the first time; what is trained and encoded is cached).

A checkpoint alarms where at least K groups lie below the threshold. Cost is the share of checkpoints that go on to the
benchmark, recall the share of the more biased observations that lie in them. Thresholds are drawn over all runs, and
chosen for each run from the others. Writes curve.csv, left_out.csv, two_stage.md and the picture.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import refbias
from refbias import screening
from refbias.errors import RefbiasError
from refbias.report.console import ConsoleWatch
from refbias.report.figures import save_pictures
from refbias.report.screen_figures import cost_and_recall
from refbias.statistics.observations import read_observations

KINDS = ("contrast", "harmless")


class Steps(ConsoleWatch):
    """Progress without a table for each checkpoint."""

    def checkpoint(self, result: dict[str, Any]) -> None:
        return None


@dataclass(frozen=True)
class Audited:
    """Observations of one run: ``shifts`` by name (raw, centred); ``alarms`` has the checkpoints beyond doubt."""

    run: str
    checkpoints: list[str]
    shifts: dict[str, list[float]]
    positive: list[bool]
    alarms: dict[str, list[str]]


def from_result(run: str, data: Mapping[str, Any]) -> Audited:
    """An audit's raw ΔB, and its second opinion where that is centred."""
    scores = data["benchmark"].get("scores")
    if not scores or "checkpoints" not in data:
        raise RefbiasError(f"{run}: this needs a result.json of an audit of one layer, with a benchmark.")
    rows = [
        (entry["name"], row, scores[entry["name"]][row["group"]]["more_biased"])
        for entry in data["checkpoints"]
        if entry["name"] in scores
        for row in entry["groups"]
    ]
    rows = [row for row in rows if row[2] is not None and row[1]["delta_b"] is not None]
    shifts = {"raw": [float(row["delta_b"]) for _, row, _ in rows]}
    alarms = {"raw": _beyond_doubt(data["checkpoints"])}
    second = [(row.get("second_opinion") or {}) for _, row, _ in rows]
    if all(opinion.get("calibration") == "center" for opinion in second):
        shifts["centred"] = [float(opinion["delta_b"]) for opinion in second]
        opinions = [
            {**entry, "groups": [{"group": row["group"], **row["second_opinion"]} for row in entry["groups"]]}
            for entry in data["checkpoints"]
        ]
        alarms["centred"] = _beyond_doubt(opinions)
    return Audited(run, [name for name, *_ in rows], shifts, [bool(label) for *_, label in rows], alarms)


def _beyond_doubt(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    return [entry["name"] for entry in entries if screening.Alarm().judge(entry).alarmed]


def read(file: Path) -> list[Audited]:
    """One audit from its result.json, or every run of an observations.csv."""
    if file.suffix == ".json":
        return [from_result(file.parent.name or file.stem, json.loads(file.read_text(encoding="utf-8")))]
    seen = read_observations([file])
    threshold = seen.context["threshold"] or 0.0
    sign = 1.0 if seen.context["directed"] else -1.0
    found = []
    for run in dict.fromkeys(seen.run):
        rows = [i for i, name in enumerate(seen.run) if name == run]
        label = run if len(set(seen.run)) > 1 else str(file.parent.name or file.stem)
        positive = [bool(seen.y[i] > threshold) for i in rows]
        names = [seen.checkpoint[i] for i in rows]
        found.append(Audited(label, names, {"raw": [sign * float(seen.x[i]) for i in rows]}, positive, {}))
    return found


def planted(model: str, seeds: Sequence[int], kinds: Sequence[str], cache: str | bool, options: Any) -> list[Audited]:
    found = []
    for kind in kinds:
        for seed in seeds:
            result = refbias.audit(
                model,
                checkpoints=("planted", {"seed": seed, "kind": kind, **options}),
                benchmark="likelihood",
                seed=seed,
                draws=1000,
                cache=cache,
                watch=Steps(),
            )
            found.append(from_result(f"{kind} {seed}", result.data))
    return found


def gathered(audits: Sequence[Audited], shift: str, at_least: int) -> screening.Screened:
    shifts = np.concatenate([a.shifts[shift] for a in audits])
    positive = np.concatenate([a.positive for a in audits])
    runs = [a.run for a in audits for _ in a.checkpoints]
    return screening.screened(shifts, positive, [c for a in audits for c in a.checkpoints], runs, at_least)


def best_order(seen: screening.Screened) -> list[dict[str, Any]]:
    """What an order by the number of more biased observations would reach: no threshold does better."""
    return screening.cost_and_recall(screening.Screened(seen.positive.astype(float), seen.positive, seen.run))


def by_rule(audits: Sequence[Audited], shift: str, seen: screening.Screened) -> dict[str, Any]:
    """Cost and recall of "any group below zero beyond doubt", the rule of task=screen without a threshold."""
    raised = {(a.run, name) for a in audits for name in a.alarms[shift]}
    keys = dict.fromkeys((a.run, name) for a in audits for name in a.checkpoints)
    score = np.array([float(key in raised) for key in keys])
    return screening.at_threshold(screening.Screened(score, seen.positive, seen.run), 1.0)


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def report(audits: Sequence[Audited], at_least: Sequence[int], wanted: Sequence[float], out: Path, setting: str) -> str:
    """Write tables and picture; returns the Markdown table."""
    names = [name for name in ("raw", "centred") if all(name in a.shifts for a in audits)]
    curves, curve_rows, left_rows = {}, [], []
    table = [
        "| shift | alarm | threshold | cost | recall | cost, runs left out | recall, runs left out |",
        "|---" * 7 + "|",
    ]
    for name in names:
        for k in at_least:
            seen = gathered(audits, name, k)
            label = f"{name}, {k} or more groups" if k > 1 else f"{name}, any group"
            curves[label] = screening.cost_and_recall(seen)
            curve_rows += [{"shift": name, "at_least": k, "threshold": -row["score"], **row} for row in curves[label]]
            for goal in wanted:
                inside = screening.threshold_for(seen, goal)
                if inside.value is None:
                    table.append(f"| {name} | {k} or more | {inside.reason} | | | | |")
                    continue
                found = screening.at_threshold(seen, inside.value)
                apart = screening.leave_one_run_out(seen, goal)
                left_rows += [{"shift": name, "at_least": k, **row} for row in apart]
                cells = [f"{-inside.value:+.3f}", share(found["cost"]), share(found["recall"])]
                cells += [share(_over(apart, "cost", "checkpoints")), share(_over(apart, "recall", "more_biased"))]
                table.append(f"| {name} | {k} or more groups, recall {goal:g} wanted | {' | '.join(cells)} |")
    for name in names:
        if all(name in a.alarms for a in audits):
            seen = gathered(audits, name, 1)
            found = by_rule(audits, name, seen)
            table.append(
                f"| {name} | any group below zero beyond doubt | none | {share(found['cost'])} | "
                f"{share(found['recall'])} | the same | the same |"
            )
    seen = gathered(audits, names[0], 1)
    _write(out / "curve.csv", curve_rows)
    _write(out / "left_out.csv", left_rows)
    harmful = int((seen.positive > 0).sum())
    footer = (
        f"{len(seen)} checkpoints of {len(audits)} runs, {harmful} with a more biased observation "
        f"({int(seen.positive.sum())} in all)"
    )
    save_pictures({"two_stage": cost_and_recall(curves, best_order(seen), setting, footer)}, out)
    text = "\n".join([f"{setting}; {footer}.", "", *table, ""])
    (out / "two_stage.md").write_text(text, encoding="utf-8")
    return text


def _over(rows: Sequence[Mapping[str, Any]], figure: str, weight: str) -> float | None:
    """A share over all runs left out, weighted by what it is a share of."""
    known = [(row[figure], row[weight]) for row in rows if row[figure] is not None]
    total = sum(w for _, w in known)
    return sum(value * w for value, w in known) / total if total else None


def _write(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with open(file, "w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(dict.fromkeys(key for row in rows for key in row)), restval="")
        writer.writeheader()
        writer.writerows(rows)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--steps", type=int, default=None, help="of the planted fine-tunes")
    parser.add_argument("--ratios", type=float, nargs="+", default=None)
    parser.add_argument("--cache", default=None)
    parser.add_argument("--at-least", type=int, nargs="+", default=[1, 6], help="groups that make an alarm")
    parser.add_argument("--wanted", type=float, nargs="+", default=[0.8, 0.9, 1.0], help="recall")
    parser.add_argument("--out", type=Path, default=Path("outputs/two_stage"))
    chosen = parser.parse_args(words)
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.files:
        audits = [audited for file in chosen.files for audited in read(file)]
        setting = f"{len(chosen.files)} files, {', '.join(sorted({file.name for file in chosen.files}))}"
    else:
        given = {"steps": chosen.steps, "ratios": chosen.ratios}
        options = {key: value for key, value in given.items() if value is not None}
        audits = planted(chosen.model, chosen.seeds, chosen.kinds, chosen.cache or True, options)
        seeds = ", ".join(map(str, chosen.seeds))
        setting = f"{chosen.model}, planted {' and '.join(chosen.kinds)} fine-tunes of seeds {seeds}, likelihood"
    print(report(audits, chosen.at_least, chosen.wanted, chosen.out, setting))


if __name__ == "__main__":
    main()
