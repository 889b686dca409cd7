"""``task=adapter_drift``: what LoRA adapters change, weight by weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refbias.report.console import number

if TYPE_CHECKING:
    from rich.table import Table

    from refbias.result import Tables
    from refbias.tasks.run import Run

PARTS = ("checkpoints",)
VALUES = ("device", "dtype", "seed")
MOST_ROWS = 12  # modules in the table on the screen


def adapter_drift(run: Run) -> Tables:
    """Norm, stable rank and singular values of each change that LoRA adapters make; angles between two. Exploratory."""
    from refbias.checkpoints import drift

    reference, chosen = _choices(run)
    result = drift.adapter_drift(reference, **chosen, cache=run.cache(), watch=run.watch, command=run.command)
    run.watch.show(table(result.data))
    for line in closing_lines(result.data):
        run.watch.say(line)
    run.watch.say(f"files: {run.folder}")
    return result


def check(run: Run) -> None:
    """Raise where no adapter is named, before anything is loaded."""
    from refbias.checkpoints import drift

    _, chosen = _choices(run)
    drift.check(chosen["audited"], chosen["checkpoints"])


def _choices(run: Run) -> tuple[str, dict[str, Any]]:
    audited = run.names("audited")
    series = run.part("checkpoints") if audited is None else None
    values = {key: run.settings[key] for key in VALUES}
    return str(run.settings["reference"]), {"audited": audited, "checkpoints": series, **values}


def table(data: dict[str, Any]) -> Table:
    """The modules of each checkpoint: means over the blocks."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(title="adapter drift, means over blocks", box=SIMPLE_HEAD, title_justify="left")
    for heading in ("checkpoint", "module"):
        shown.add_column(heading)
    for heading in ("blocks", "‖ΔW‖", "‖ΔW‖ / ‖W‖", "stable rank"):
        shown.add_column(heading, justify="right", no_wrap=True)
    rows = data["adapter_drift"]
    for checkpoint in dict.fromkeys(row["checkpoint"] for row in rows):
        modules = list(dict.fromkeys(row["module"] for row in rows if row["checkpoint"] == checkpoint))
        for module in modules[:MOST_ROWS]:
            some = [row for row in rows if row["checkpoint"] == checkpoint and row["module"] == module]
            digits = {"norm": 3, "relative_norm": 4, "stable_rank": 2}
            means = [number(_mean([row[key] for row in some]), d) for key, d in digits.items()]
            shown.add_row(checkpoint, module, str(len(some)), *means)
    return shown


def closing_lines(data: dict[str, Any]) -> list[str]:
    angles = data["adapter_angles"]
    if not angles:
        return []
    lines = [f"Spaces of {angles[0]['first']} and {angles[0]['second']}, means over {len(angles)} weights:"]
    for side in ("output", "input"):
        mean, by_chance = (_mean([row[f"{side}_{key}"] for row in angles]) for key in ("overlap", "overlap_by_chance"))
        smallest = _mean([row[f"{side}_smallest"] for row in angles])
        lines.append(
            f"  {side}: overlap {number(mean)} (by chance {number(by_chance)}), smallest angle {number(smallest, 1)}°"
        )
    return lines


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
