"""What the command line shows: progress, a table for each checkpoint, plain sentences. Rich is imported on use.

Where the output is no terminal, everything is plain text without control characters.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from refbias.reading import beyond_doubt, is_audit, layers_of, symbol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

PLAIN_WIDTH = 110
PLAIN_EVERY = 30.0  # seconds between two lines of progress where there is no terminal


class ConsoleWatch:
    """A `refbias.watch.Watch` that shows on ``file`` (standard output) what it is told.

    ``brief`` shows one line instead of a table for each checkpoint: for the jobs of a sweep.
    """

    def __init__(self, file: IO[str] | None = None, brief: bool = False) -> None:
        from rich.console import Console

        console = Console(file=file, highlight=False)
        if not console.is_terminal:
            console = Console(file=file, highlight=False, width=PLAIN_WIDTH, color_system=None, emoji=False)
        self.console: Console = console
        self.brief = brief
        self._bars: Progress | None = None
        self._open = 0

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=not self.console.is_terminal)

    def show(self, table: Table) -> None:
        self.console.print(table)

    def checkpoint(self, result: dict[str, Any]) -> None:
        if self.brief:
            self.say(checkpoint_line(result))
            return
        self.show(checkpoint_table(result))
        for sentence in disagreements(result):
            self.say(sentence)
        self.say("")

    @contextmanager
    def progress(self, label: str, total: int, unit: str = "") -> Iterator[Callable[[int], None]]:
        if not self.console.is_terminal:
            with self._plain_progress(label, total, unit) as advance:
                yield advance
            return
        if self._bars is None:
            self._bars = self._make_bars()
        task = self._bars.add_task(label, total=total, unit=unit)
        self._open += 1
        try:
            yield lambda n: self._bars.advance(task, n) if self._bars else None
        finally:
            self._open -= 1
            self._bars.remove_task(task)
            if not self._open:
                self._bars.stop()
                self._bars = None

    def _make_bars(self) -> Progress:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            Task,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        class Rate(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(rate(task.completed, task.elapsed or 0.0, task.fields["unit"]).rstrip(", "))

        bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            Rate(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self.console,
            transient=True,
        )
        bars.start()
        return bars

    @contextmanager
    def _plain_progress(self, label: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        begun = shown = time.monotonic()
        done = 0

        def advance(n: int) -> None:
            nonlocal shown, done
            done += n
            now = time.monotonic()
            if now - shown >= PLAIN_EVERY and 0 < done < total:
                shown = now
                speed, left = rate(done, now - begun, unit), duration((now - begun) * (total - done) / done)
                self.say(f"{label}: {100 * done // total} %, {speed}about {left} left")

        self.say(f"{label}: {total:,} {unit}".rstrip())
        yield advance
        self.say(f"{label}: done in {duration(time.monotonic() - begun)}")


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(3.2), duration(125)
    ('3.2 s', '2 min 5 s')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def rate(done: float, seconds: float, unit: str) -> str:
    """How fast a step goes, with the comma that follows; nothing where that has no unit.

    >>> rate(30, 20, "sentence"), rate(5000, 2, "row"), rate(3, 1, "")
    ('1.5 sentences/s, ', '2,500 rows/s, ', '')
    """
    if not unit or seconds <= 0:
        return ""
    speed, units = done / seconds, f"{unit.removesuffix('s')}s"
    return f"{speed:,.0f} {units}/s, " if speed >= 100 else f"{speed:.2g} {units}/s, "


def number(value: float | None, digits: int = 3, sign: bool = False) -> str:
    """A figure for a table; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def interval(row: Mapping[str, Any]) -> str:
    if row.get("ci_low") is None or row.get("ci_high") is None:
        return "–"
    return f"[{row['ci_low']:+.3f}, {row['ci_high']:+.3f}]"


def checkpoint_line(entry: Mapping[str, Any]) -> str:
    """One checkpoint in a line."""
    return f"{_heading(entry)}; {_doubtless(entry)}"


def _heading(entry: Mapping[str, Any]) -> str:
    layer = "" if entry.get("layer") is None else f", layer {entry['layer']}"
    shift = symbol(entry.get("metric", "delta_b"))
    return f"{entry['name']}: mean {shift} {number(entry['mean_delta_b'], sign=True)}{layer}"


def _doubtless(entry: Mapping[str, Any]) -> str:
    """How many groups are below zero beyond doubt, also in the second opinion."""
    rows = entry["groups"]
    text = f"below zero beyond doubt: {sum(map(beyond_doubt, rows))} of {len(rows)} groups"
    seconds = [row["second_opinion"] for row in rows if row.get("second_opinion")]
    return f"{text}; {_named(seconds[0])}: {sum(map(beyond_doubt, seconds))}" if seconds else text


def checkpoint_table(entry: Mapping[str, Any]) -> Table:
    """One checkpoint: a row a group, lowest shift first, the second opinion beside it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=_heading(entry), caption=f"* {_doubtless(entry)}", box=SIMPLE_HEAD, title_justify="left",
        caption_justify="left",
    )  # fmt: skip
    table.add_column("group")
    scores = any(row.get("b_ref") is not None for row in entry["groups"])
    shift = symbol(entry.get("metric", "delta_b"))
    for heading in [*(("B ref", "B aud") if scores else ()), shift, "95 % interval", ""]:
        table.add_column(heading, justify="right", no_wrap=True)
    second = next((row["second_opinion"] for row in entry["groups"] if row.get("second_opinion")), None)
    if second:
        for heading in (f"{shift} {_named(second)}", "95 % interval", ""):
            table.add_column(heading, justify="right", no_wrap=True)
    for row in sorted(entry["groups"], key=lambda row: (row["delta_b"] is None, row["delta_b"])):
        cells = [row["group"]]
        if scores:
            cells += [number(row["b_ref"]), number(row["b_aud"])]
        cells += _shift_cells(row)
        if second:
            cells += _shift_cells(row.get("second_opinion") or {})
        table.add_row(*cells)
    return table


def _shift_cells(row: Mapping[str, Any]) -> list[str]:
    return [number(row.get("delta_b"), sign=True), interval(row), "*" if beyond_doubt(row) else ""]


def _named(opinion: Mapping[str, Any]) -> str:
    return {"center": "centred"}.get(opinion["calibration"], str(opinion["calibration"]))


def disagreements(entry: Mapping[str, Any]) -> list[str]:
    """Plain sentences on where the shift and the second opinion differ in sign or in doubt."""
    pairs = [(row, row["second_opinion"]) for row in entry["groups"] if row.get("second_opinion")]
    if not pairs:
        return []
    name, count = _named(pairs[0][1]), len(pairs)
    other_sign = [
        row["group"]
        for row, second in pairs
        if row["delta_b"] is not None and second["delta_b"] is not None and row["delta_b"] * second["delta_b"] < 0
    ]
    only_raw = [row["group"] for row, second in pairs if beyond_doubt(row) and not beyond_doubt(second)]
    only_second = [row["group"] for row, second in pairs if beyond_doubt(second) and not beyond_doubt(row)]
    found = []
    if other_sign:
        found.append(f"The sign differs {name} for {len(other_sign)} of {count} groups: {_listed(other_sign)}.")
    if only_raw:
        found.append(
            f"Below zero beyond doubt as chosen, but not {name}, for {len(only_raw)} of {count} groups: "
            f"{_listed(only_raw)}. Such a shift may be common to any fine-tune."
        )
    if only_second:
        found.append(f"Below zero beyond doubt {name} only, for {len(only_second)} groups: {_listed(only_second)}.")
    return found


def _listed(names: list[str], most: int = 6) -> str:
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"


def benchmark_lines(benchmark: Mapping[str, Any] | None) -> list[str]:
    """The benchmark in two lines: pooled over all checkpoints, and within them."""
    if not benchmark or not benchmark.get("name"):
        return []
    if benchmark.get("reason"):
        return [f"benchmark {benchmark['name']}: {benchmark['reason']}"]
    if "n_observations" not in benchmark:  # of several layers, each has figures of its own
        return []
    within = benchmark.get("within") or {}
    lines = [
        f"benchmark {benchmark['name']} ({benchmark['n_observations']} observations, "
        f"{benchmark['n_positive']} more biased)",
        f"  pooled              Pearson {_figure(benchmark, 'pearson')}   AUC {_figure(benchmark, 'auc')}   "
        f"MAE {_figure(benchmark, 'mae')}",
    ]
    if within:
        shown = [f"{label} {_figure(within, key)}" for key, label in FIGURES.items() if _known(within, key)]
        lines.append("  within checkpoints  " + "   ".join(shown))
    reasons = {
        f"{label}: {source[f'{key}_reason']}"
        for source in (benchmark, within)
        for key, label in FIGURES.items()
        if source.get(f"{key}_reason")
    }
    return [*lines, *(f"  {reason}" for reason in sorted(reasons))]


def answer_lines(benchmark: Mapping[str, Any] | None) -> list[str]:
    """What happened to generated answers, over all models: how many were judged, and what was met."""
    if "generator" not in ((benchmark or {}).get("report") or {}):
        return []
    measured = (benchmark or {}).get("measured") or {}
    shared = (benchmark or {}).get("observed") or {}
    judged, met = 0, Counter[str]()
    for groups in measured.values():
        for score in {shared.get(group, group): score for group, score in groups.items()}.values():
            judged += score["n"]
            met.update(score["counts"])
    if not judged and not met:
        return []
    told = ", ".join(f"{count:,} {what}" for what, count in sorted(met.items()) if count) or "nothing to report"
    return [f"  {judged:,} answers judged of {len(measured)} models; {told}"]


def control_lines(block: Mapping[str, Any]) -> list[str]:
    """The control of one layer, and every checkpoint against it."""
    control = block.get("control")
    if not control:
        return []
    shift = symbol(control.get("metric", "delta_b"))
    mean = control.get("mean") or {}
    lines = [
        f"control {control['name']}: mean {shift} {number(control['mean_delta_b'], sign=True)} {interval(mean)}; "
        f"{_doubtless(control)}"
    ]
    for entry in block["checkpoints"]:
        against = entry["against_control"]
        lines.append(
            f"  {entry['name']} - control: mean {number(against['mean_delta_b'], sign=True)} "
            f"{interval(against.get('mean') or {})}; {_doubtless(against)}; "
            f"r over groups {number(against['correlation'], sign=True)}"
        )
    return lines


def probability_lines(data: Mapping[str, Any]) -> list[str]:
    """What the calibrator makes of the shifts."""
    if not data.get("calibrator"):
        return []
    known = data["calibrator"]
    skill = known["checked"].get("brier_skill")
    lines = [
        f"P(more biased) by {known['file'] or 'the calibrator'}, fitted on {known['fitted_on'].get('n_runs')} runs; "
        + (f"skill over the base rate {skill:+.3f} on runs left out" if skill is not None else "never checked")
    ]
    if known["unlike"]:
        lines.append(f"  used all the same, though other than where it was fitted: {', '.join(known['unlike'])}")
    for layer, checkpoints in layers_of(data):
        for entry in checkpoints:
            rows = sorted(
                (row for row in entry["groups"] if row.get("p_more_biased") is not None),
                key=lambda row: -row["p_more_biased"],
            )
            if rows:
                top = ", ".join(f"{row['group']} {row['p_more_biased']:.2f}" for row in rows[:3])
                lines.append(f"  {entry['name']}, layer {layer}: highest {top}")
    return lines


FIGURES = {"pearson": "Pearson", "auc": "AUC", "mae": "MAE"}


def _known(source: Mapping[str, Any], key: str) -> bool:
    return key in source or f"{key}_reason" in source


def _figure(source: Mapping[str, Any], key: str) -> str:
    return number(source.get(key), sign=key == "pearson")


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """What is known about a series of checkpoints, such as how well a fine-tune was learnt."""
    lines = []
    for key, value in report.items():
        if key == "notes":  # said before anything was encoded
            continue
        several = isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
        for item in value if several else [value]:
            if _short(item):
                lines.append(f"{key.replace('_', ' ')}: {_short(item)}")
    return lines


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key} {_short(item)}" for key, item in value.items() if not isinstance(item, (Mapping, list))
        )
    if isinstance(value, list):
        return ", ".join(map(_short, value)) if all(isinstance(v, (int, float, str)) for v in value) else ""
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{16,}", value):  # a digest: result.json has it
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def layers_table(data: Mapping[str, Any]) -> Table:
    """Mean shift by layer (rows) and checkpoint (columns)."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    metric = data["layers"][0]["checkpoints"][0].get("metric", "delta_b")
    table = Table(title=f"mean {symbol(metric)} by layer", box=SIMPLE_HEAD, title_justify="left")
    table.add_column("layer", justify="right")
    for checkpoint in data["layers"][0]["checkpoints"]:
        table.add_column(checkpoint["name"], justify="right")
    for entry in data["layers"]:
        table.add_row(str(entry["layer"]), *(number(c["mean_delta_b"], sign=True) for c in entry["checkpoints"]))
    return table


def closing_lines(data: Mapping[str, Any], folder: object) -> list[str]:
    """The end of a run: benchmark, position 0, stand-ins, what was encoded, where the files are."""
    lines = [*control_lines(data), *probability_lines(data), *benchmark_lines(data.get("benchmark"))]
    lines += answer_lines(data.get("benchmark"))
    for entry in data.get("layers", []):
        found = [*control_lines(entry), *benchmark_lines(entry.get("benchmark"))]
        lines += [f"layer {entry['layer']}", *found] if found else []
    for row in data.get("sensitivity") or ():
        said = row["sentence"] or f"nothing is known about planted edits: {row['reason']}"
        lines.append(f"layer {row['layer']}: {said}")
    if data.get("planning"):
        lines.append(f"{data['planning']['checkpoint']}: {data['planning']['sentence']}")
    shares = {k: v for k, v in (data.get("reference", {}).get("sink_share") or {}).items() if v is not None}
    if len(shares) == 1:
        ((layer, share),) = shares.items()
        lines.append(
            f"Position 0 holds {share:.0%} of the squared norm of a sentence's states at layer {layer} of the "
            f"reference (pooling.skip=sink leaves it out)."
        )
    for note in data.get("stand_ins", []):
        lines.append(f"stand-in: {note['used']} is used in place of {note['wanted']}: {note['why']}")
    timings = data.get("timings", {})
    fresh, cached = timings.get("sentences_encoded"), timings.get("sentences_from_cache")
    if fresh == 0 and cached:
        lines.append(f"No sentence was encoded: all {cached:,} came from the cache.")
    elif fresh is not None:
        lines.append(f"{fresh:,} sentences encoded, {cached or 0:,} from the cache.")
    return [*lines, f"files: {folder}"]


def sweep_table(jobs: Iterable[Mapping[str, Any]]) -> Table:
    """The jobs of a sweep: what varied, how each ended, its main figures."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="sweep", box=SIMPLE_HEAD, title_justify="left")
    jobs = list(jobs)
    for heading in ("job", "what varies", "ended"):
        table.add_column(heading)
    measured = Counter(key for job in jobs for key in job.get("figures", {}))
    keys = [key for key, _ in measured.most_common(MOST_FIGURES)] or list(AUDITED)  # those of most jobs
    for key in keys:
        table.add_column(AUDITED.get(key, key), justify="right", no_wrap=True)
    for job in jobs:
        figures = job.get("figures", {})
        cells = [number(figures.get(key), sign=key in SIGNED) for key in keys]
        table.add_row(str(job["job"]), " ".join(job["varied"]), ENDINGS.get(job["status"], "failed"), *cells)
    return table


AUDITED = {"mean_delta_b": "mean shift", **FIGURES}
SIGNED = ("mean_delta_b", "pearson")
MOST_FIGURES = 8  # of a task other than an audit, in a line of a sweep's table
ENDINGS = {0: "done", 1: "failed", 2: "wrong use", 3: "gate: no"}


def main_figures(data: Mapping[str, Any]) -> dict[str, float | None]:
    """What a line of the sweep's table shows of a result.

    Of an audit the mean over checkpoints and the benchmark's figures, of another task its first few figures.
    """
    if not is_audit(data):
        return dict(list((data.get("figures") or {}).items())[:MOST_FIGURES])
    checkpoints = [c for _, series in layers_of(data) for c in series]
    benchmark = data.get("benchmark") or {}
    means = [c["mean_delta_b"] for c in checkpoints if c["mean_delta_b"] is not None]
    return {
        "mean_delta_b": sum(means) / len(means) if means else None,
        **{key: benchmark.get(key) for key in FIGURES},
    }
