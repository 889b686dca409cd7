"""``task=sensitivity``: which settings find edits that are planted in the user's own reference model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from refbias.sensitivity.design import CALIBRATIONS, DOSES, GEOMETRIES, PLANTED, POOLED, SKIPPED, Design

if TYPE_CHECKING:
    from refbias.result import Tables
    from refbias.tasks.run import Run

CHOSEN = ("encoder", "targets", "attributes", "anchors")
SAVED = "sensitivity.json"


def sensitivity(
    run: Run,
    *,
    doses: list[float] = DOSES,
    seeds: int = 6,
    random: int = 20,
    families: list[str] = PLANTED,
    block: int | None = None,
    layers: list[int] | None = None,
    poolings: list[str] = POOLED,
    skips: list[str] = SKIPPED,
    calibrations: list[str] = CALIBRATIONS,
    geometries: list[str] = GEOMETRIES,
    targets: int = 4,
    attributes: int = 16,
    anchors: int = 48,
    rate: float = 0.05,
    power: float = 0.8,
) -> Tables:
    """Power and false alarms of every setting on edits planted in the reference model; recommends one of them.

    ``doses`` in units of the median norm of the hidden state at the groups' nouns; ``seeds`` a family and dose,
    ``random`` directions of the same norm a dose, half of each to choose and half to report. ``block``: the edited one
    (null: at 0.4 of the depth); ``layers``: null is all above it. ``targets`` a group, ``attributes`` a side,
    ``anchors``: sentences drawn from the stimuli. ``rate`` of false alarms and ``power`` that are wanted.
    """
    from refbias.result import write_whole
    from refbias.sensitivity import sensitivity as measure
    from refbias.tasks.subject import choices

    design = Design(
        doses, seeds, random, families, block, layers, poolings, skips, calibrations, geometries, targets, attributes,
        anchors, rate, power,
    )  # fmt: skip
    result, saved = measure(
        str(run.settings["reference"]),
        design,
        groups=run.names("groups"),
        **choices(run, CHOSEN, ("device", "dtype", "strict", "seed")),
        cache=run.cache(),
        watch=run.watch,
        command=run.command,
    )
    write_whole(run.folder / SAVED, saved.to_json())
    for line in (*lines(result.data), f"map: {run.folder / SAVED}", f"files: {run.folder}"):
        run.watch.say(line)
    return result


def check(run: Run) -> None:
    """Raise for options that have no meaning, before anything is loaded or tracked."""
    _, options = run.part("task") or ("sensitivity", {})
    Design(**options).ways()


def lines(data: Mapping[str, Any]) -> list[str]:
    """The result in plain sentences."""
    about = data["about"]
    sentences = ", ".join(f"{n} {kind}" for kind, n in about["sentences"].items())
    text = [
        f"{about['models']} edited models (block {data['edit']['block']}), {about['settings']} settings; {sentences}",
        "power and false alarms below are of edits and random directions that the choice of the setting did not see",
    ]
    for row in data["recommended"]:
        text.append(f"  {row['role']} for geometry={row['geometry']}: {_said(row)}")
    text.append(
        "geometries are not ranked against each other: the plant is nearly the direction that SEAT projects on, so its "
        "power is an upper bound. Trained contrast pairs rank them."
    )
    text.append("this is the power for planted edits; other kinds of change may be missed")
    return text


def _said(row: Mapping[str, Any]) -> str:
    where = f"layer={row['layer']} pooling={row['pooling']} skip={row['skip']} calibration={row['calibration']}"
    if row["reason"] is not None:
        return f"{where}: {row['reason']}"
    smallest = (
        row["smallest_dose_reason"] if row["smallest_dose"] is None else f"smallest dose {row['smallest_dose']:g}"
    )
    return (
        f"{where}: power {_share(row, 'power')}, false alarms {_share(row, 'false_alarm')} "
        f"({row['false_alarms']} of {row['n_random']}), {smallest}"
    )


def _share(row: Mapping[str, Any], name: str) -> str:
    value = row["false_alarm_rate" if name == "false_alarm" else name]
    return f"{value:.2f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"
