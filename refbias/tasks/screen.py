"""``task=screen``: the shift of every checkpoint first, the benchmark only for those that alarm."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from refbias.errors import UsageError
from refbias.tasks.audit import PARTS, VALUES, choices, reference
from refbias.tasks.audit import check as check_audit

if TYPE_CHECKING:
    from refbias.checkpoints import Checkpoint, Series
    from refbias.context import Context
    from refbias.models import Model
    from refbias.result import Result, Tables
    from refbias.screening import Alarm
    from refbias.statistics import Calibrator
    from refbias.tasks.run import Run
    from refbias.watch import Advance, Watch

TABLES = ("screened", "observations")
OF_OBSERVATION = ("delta_b", "ci_low", "ci_high", "p_adjusted", "delta_bias", "more_biased")


def screen(
    run: Run,
    *,
    alarm: float | None = None,
    rule: Literal["groups", "mean"] = "groups",
    at_least: int = 1,
) -> Tables:
    """The shift of every checkpoint first, the expensive benchmark only where it alarms; what that may miss and saves.

    ``alarm``: threshold of the shift; without one that of ``calibrator=FILE``; without both: below zero beyond doubt.
    ``rule``: ``groups``, of which ``at_least`` so many must cross it, or the ``mean`` over groups.
    """
    from refbias import pipeline
    from refbias.registry import registry
    from refbias.report.screen_figures import screen_figures
    from refbias.result import Tables
    from refbias.statistics import domain_of

    chosen, calibrator = choices(run), _calibrator(run)
    benchmark = chosen.pop("benchmark")
    named = registry().resolve("checkpoints", _series(chosen), run.settings["seed"])
    series = _Once(named.object)
    common = {**chosen, "audited": None, "checkpoints": replace(named, object=series), "calibrator": None}
    common |= {"cache": run.cache(), "watch": _Untabled(run.watch), "command": run.command}
    begun = time.perf_counter()
    first = pipeline.audit(reference(run), **common, benchmark=None)
    stage_1 = time.perf_counter() - begun - series.seconds
    unlike = calibrator.check(domain_of(first.data), run.settings["calibrator_anyway"]) if calibrator else []
    if unlike:
        run.watch.say(f"The calibrator was fitted at another setting: {', '.join(unlike)} differ.")
    rule_used = _alarm(run, calibrator)
    judged = {entry["name"]: rule_used.judge(entry) for entry in first.data["checkpoints"]}
    run.watch.say(
        f"Stage 1: the shift of {_count(len(judged), 'checkpoint')} in {stage_1:.1f} s. Alarm: {rule_used.said}."
    )
    alarmed = [name for name, verdict in judged.items() if verdict.alarmed]
    series.only = alarmed
    begun, second = time.perf_counter(), None
    if alarmed:
        second = pipeline.audit(reference(run), **common, benchmark=benchmark)
    stage_2 = time.perf_counter() - begun
    data = _data(run, first, second, judged, rule_used, calibrator, unlike, (stage_1, stage_2, series.seconds))
    for line in lines(data):
        run.watch.say(line)
    return Tables(data, TABLES, screen_figures)


def check(run: Run) -> None:
    """Raise for choices that leave nothing to screen, before anything is loaded."""
    from refbias.comparison import choose
    from refbias.layers import parse_layers
    from refbias.registry import arity

    check_audit(run)
    if run.part("benchmark") is None:
        raise UsageError("task=screen saves runs of a benchmark, and benchmark=none has none. Choose one: benchmark=….")
    if run.settings.get("control"):
        raise UsageError("task=screen judges by the shift itself: control=… belongs to task=audit. Leave it out here.")
    layer = run.settings["layer"]
    if isinstance(layer, list) or layer == "all" or len(parse_layers(layer, 10**6 - 1)) != 1:
        raise UsageError(f"task=screen judges by one layer: got layer={layer}. Give one, for instance last.")
    found = _alarm(run, _calibrator(run))
    scorer = choose(run.part("geometry"), run.part("metric"))[1]
    if found.threshold is None and arity(scorer.object) != 1:
        raise UsageError(
            f"metric={scorer.name} has no test of a shift below zero: give a threshold, task.alarm=…, or "
            "calibrator=FILE."
        )


def _calibrator(run: Run) -> Calibrator | None:
    from refbias.statistics import Calibrator

    file = run.settings.get("calibrator")
    return Calibrator.load(Path(file).expanduser()) if file else None


def _alarm(run: Run, calibrator: Calibrator | None) -> Alarm:
    from refbias.comparison import choose
    from refbias.registry import arity
    from refbias.screening import Alarm

    _, options = run.part("task") or ("screen", {})
    threshold = options["alarm"]
    if threshold is None and calibrator:
        threshold = calibrator.alarm.get("delta_b")
        if threshold is None:
            raise UsageError(
                f"calibrator={run.settings['calibrator']} has no alarm threshold: "
                f"{calibrator.alarm.get('reason', 'it does not say why')}. Give one: task.alarm=…."
            )
    directed = arity(choose(run.part("geometry"), run.part("metric"))[1].object) == 1
    return Alarm(threshold, options["rule"], options["at_least"], directed)


def _series(chosen: Mapping[str, Any]) -> Any:
    """The choice of checkpoints, also where models are named by ``audited``."""
    if chosen["audited"] is None:
        return chosen["checkpoints"]

    def audited(reference: Model, context: Context) -> Series:
        from refbias.checkpoints.audited import audited_series

        return audited_series(reference, chosen["audited"], context)

    return audited


class _Once:
    """A series that is made once and audited twice: whole, then ``only`` the checkpoints named."""

    def __init__(self, make: Any) -> None:
        self._make, self._made = make, list[Any]()
        self.only: Sequence[str] | None = None
        self.seconds = 0.0

    def __call__(self, reference: Model, context: Context) -> Series:
        if not self._made:
            begun = time.perf_counter()
            self._made.append(self._make(reference, context))
            self.seconds = time.perf_counter() - begun
        series: Series = self._made[0]
        kept: list[Checkpoint] = [c for c in series.checkpoints if self.only is None or c.name in self.only]
        return replace(series, checkpoints=kept)


@dataclass(frozen=True)
class _Untabled:
    """A watch without a table for each checkpoint: the task has one for all of them."""

    watch: Watch

    def say(self, text: str) -> None:
        self.watch.say(text)

    def progress(self, label: str, total: int, unit: str = "") -> AbstractContextManager[Advance]:
        return self.watch.progress(label, total, unit)

    def checkpoint(self, result: dict[str, Any]) -> None:
        return None


def _data(
    run: Run,
    first: Result,
    second: Result | None,
    judged: Mapping[str, Any],
    alarm: Alarm,
    calibrator: Calibrator | None,
    unlike: Sequence[str],
    seconds: tuple[float, float, float],
) -> dict[str, Any]:
    from refbias import screening
    from refbias.result import task_data
    from refbias.statistics.measures import Figure

    scores = second.data["benchmark"].get("scores", {}) if second else {}
    why_unscored = second.data["benchmark"].get("reason") if second else None
    observations = [
        {"checkpoint": entry["name"], "ratio": entry["ratio"], "group": row["group"]}
        | {key: {**row, **scores.get(entry["name"], {}).get(row["group"], {})}.get(key) for key in OF_OBSERVATION}
        | {"probability": _chance(calibrator, row["delta_b"]), "alarmed": judged[entry["name"]].alarmed}
        for entry in first.data["checkpoints"]
        for row in entry["groups"]
    ]
    rows = [_row(entry, judged[entry["name"]], observations, why_unscored) for entry in first.data["checkpoints"]]
    skipped = [row["checkpoint"] for row in rows if not row["alarmed"]]
    if calibrator is None:
        missed = Figure(None, "needs calibrator=FILE, which task=validate makes of audits with this benchmark")
    else:
        chances: dict[str, list[float]] = {row["checkpoint"]: [] for row in rows}
        for row in observations:
            if row["probability"] is not None:
                chances[row["checkpoint"]].append(row["probability"])
        missed = screening.expected_miss_rate(chances, skipped)
    stage_1, stage_2, made = seconds
    benchmark_s = second.data["timings"].get("benchmark_s") if second else None
    spent = screening.cost(len(rows), len(rows) - len(skipped), stage_1, stage_2, benchmark_s)
    more = [row["more_biased"] for row in rows if row["more_biased"] is not None]
    reason = "no checkpoint was benchmarked" if not more else None
    found = {key: first.data["timings"][key] for key in ("load_s", "encode_s", "score_s")}
    encoded = ("sentences_encoded", "sentences_from_cache", "tokens")
    found |= {key: first.data["timings"][key] for key in encoded}
    kinds = [kind for kind in ("task", *PARTS) if kind != "checkpoints" or run.names("audited") is None]
    # where none was chosen, the one that follows the geometry, with its options
    metric = {key: value for key, value in first.data["settings"].items() if key.partition(".")[0] == "metric"}
    head = second.data["benchmark"] if second else {"name": (run.part("benchmark") or ("none",))[0]}
    return task_data(
        "screen",
        run.flat(kinds, (*VALUES, "audited", "groups")) | metric,
        run.settings["seed"],
        figures={
            "alarmed": len(rows) - len(skipped),
            "skipped": len(skipped),
            "expected_miss_rate": missed.value,
            "saved_share": spent["saved_share"],
            "benchmark_saved_share": spent["benchmark_saved_share"],
            "more_biased": sum(more) if more else None,
        },
        conventions={
            "alarm": alarm.said,
            "selection": "benchmark figures are of the checkpoints that alarmed: r and AUC over them would be biased",
            "rate": "seconds of the benchmark over the models that it scored, reference included",
        },
        stand_ins=first.data["stand_ins"],
        timings={**found, "made_s": made, **{k: spent[k] for k in ("stage_1_s", "stage_2_s")}},
        provenance=first.data["provenance"],
        reference=first.data["reference"],
        layer=first.data["layer"],
        alarm={**asdict(alarm), **_known(calibrator, unlike, run)},
        screened=rows,
        observations=observations,
        missed={"expected_rate": missed.value, "reason": missed.reason, "skipped": skipped},
        cost={"checkpoints": len(rows), **spent},
        more_biased_reason=reason,
        series=first.data["series"],
        warnings=first.data["warnings"],
        signal={key: head.get(key) for key in ("name", "unit", "threshold", "reason")},
    )


def _chance(calibrator: Calibrator | None, shift: float | None) -> float | None:
    return None if calibrator is None or shift is None else float(calibrator.probability(shift))


def _known(calibrator: Calibrator | None, unlike: Sequence[str], run: Run) -> dict[str, Any]:
    """What the calibrator says about its threshold, where it is the one in use."""
    if calibrator is None:
        return {}
    _, options = run.part("task") or ("screen", {})
    known: dict[str, Any] = {"calibrated_on": calibrator.fitted_on.get("benchmark"), "unlike": list(unlike)}
    known["n_runs"] = calibrator.fitted_on.get("n_runs")
    if options["alarm"] is None:
        known |= {key: calibrator.alarm.get(key) for key in ("rate", "false_alarm_rate", "detection_rate")}
    return known


def _row(
    entry: Mapping[str, Any], verdict: Any, observations: Sequence[Mapping[str, Any]], why_unscored: str | None
) -> dict[str, Any]:
    """One checkpoint in the table ``screened``."""
    own = [row for row in observations if row["checkpoint"] == entry["name"]]
    shifts = [row for row in own if row["delta_b"] is not None]
    lowest = min(shifts, key=lambda row: float(row["delta_b"]), default=None)
    chances = [row["probability"] for row in own if row["probability"] is not None]
    measured = [row for row in own if row["delta_bias"] is not None]
    if not verdict.alarmed:
        state = "skipped"
    elif measured:
        state = "run"
    else:
        state = f"no figure: {why_unscored or 'it is the reference itself, or no group has a score'}"
    return {
        "checkpoint": entry["name"],
        "ratio": entry["ratio"],
        "alarmed": verdict.alarmed,
        "why": verdict.why,
        "mean_delta_b": entry["mean_delta_b"],
        "lowest_group": lowest["group"] if lowest else None,
        "lowest_delta_b": lowest["delta_b"] if lowest else None,
        "expected_more_biased": sum(chances) if chances else None,
        "benchmark": state,
        "more_biased": sum(bool(row["more_biased"]) for row in measured) if measured else None,
        "mean_delta_bias": sum(row["delta_bias"] for row in measured) / len(measured) if measured else None,
    }


def lines(data: Mapping[str, Any]) -> list[str]:
    """The result in plain sentences."""
    rows, name, spent = data["screened"], data["signal"]["name"], data["cost"]
    text = []
    for row in rows:
        low = "" if row["lowest_delta_b"] is None else f", lowest {row['lowest_delta_b']:+.3f} ({row['lowest_group']})"
        found = "" if row["more_biased"] is None else f"; {name}: {_count(row['more_biased'], 'group')} more biased"
        if row["alarmed"] and row["more_biased"] is None:
            found = f"; {name}: {row['benchmark']}"
        text.append(f"  {row['checkpoint']}: {'ALARM' if row['alarmed'] else 'skipped'}, {row['why']}{low}{found}")
    skipped = data["missed"]["skipped"]
    ran = f"{len(rows) - len(skipped)} of {_count(len(rows), 'checkpoint')}"
    text.append(f"{name} was run on {ran}; skipped: {_listed(skipped)}.")
    text += [_miss_line(data), _cost_line(spent, name)]
    return text


def _miss_line(data: Mapping[str, Any]) -> str:
    missed, alarm, name = data["missed"], data["alarm"], data["signal"]["name"]
    if missed["expected_rate"] is None:
        return f"What was missed by it is not known: {missed['reason']}."
    line = f"Expected to be missed: {missed['expected_rate']:.0%} of the more biased observations, by the calibrator"
    if alarm.get("calibrated_on") not in (None, name):
        line += f" (of {alarm['calibrated_on']}, not {name})"
    if alarm.get("detection_rate") is not None:
        line += f"; its threshold found {alarm['detection_rate']:.0%} of them in runs left out"
    return f"{line}."


def _cost_line(spent: Mapping[str, Any], name: str) -> str:
    took = f"Stage 1 took {spent['stage_1_s']:.1f} s, stage 2 {spent['stage_2_s']:.1f} s"
    if spent["saved_share"] is None:
        return f"{took}. What was saved cannot be said: {spent['reason']}."
    everything = f"{name} of every checkpoint would have taken {spent['everything_s']:.1f} s"
    if spent["saved_share"] < 0:
        saved = "so screening cost more than it saved"
    else:
        saved = f"so {spent['saved_share']:.0%} was saved"
    took += f" ({name} {spent['benchmark_s']:.1f} s)"
    return f"{took}; {everything}, {saved} ({spent['benchmark_saved_share']:.0%} of {name} alone)."


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _listed(names: Sequence[str], most: int = 12) -> str:
    if not names:
        return "none"
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"
