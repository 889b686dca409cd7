"""The tables of a sensitivity map: every setting, those that are recommended, and their power by dose and family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refbias.sensitivity.grid import Setting
from refbias.sensitivity.judging import Mask, Scores, powers, recommend, score, share, smallest_dose
from refbias.sensitivity.plants import FAMILIES, Plant
from refbias.types import Array

DEFAULT = {"pooling": "mean", "skip": "none", "calibration": "none"}
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def judged(
    plants: Sequence[Plant],
    signs: Array,
    shifts: Array,
    settings: Sequence[Setting],
    last: int,
    directed: Sequence[bool],
    rate: float,
    wanted: float,
) -> dict[str, list[dict[str, Any]]]:
    """The tables of the result, from shifts (plants, settings, groups) and the planted signs (plants, groups).

    ``directed`` says of each way whether its shifts have a direction; ways come round and round along the settings.
    """
    alarm = np.tile(np.where(directed, -1.0, 1.0), len(settings) // len(directed))
    values = np.stack([score(s, t, p.one_way, p.dose, alarm) for p, s, t in zip(plants, shifts, signs, strict=True)])
    scores = Scores(plants, values)
    thresholds = scores.thresholds(rate)
    above, usable = scores.above(thresholds), scores.defined()
    chosen = _recommended(scores, above, usable, settings, last)
    rows = [_row(scores, above, thresholds, usable, i, setting, wanted) for i, setting in enumerate(settings)]
    marked = []
    for geometry, numbers in chosen.items():
        for role, i in numbers.items():
            marked.append({"role": role, **rows[i], "alternatives": sum(s.geometry == geometry for s in settings)})
    cells = list(dict.fromkeys(i for numbers in chosen.values() for i in numbers.values()))
    return {
        "sensitivity": rows,
        "recommended": marked,
        "power": [row for i in cells for row in _power_rows(scores, above, settings[i], i)],
        "scores": [row for i in cells for row in _score_rows(scores, thresholds, settings[i], i)],
    }


def _recommended(
    scores: Scores, above: Mask, usable: Mask, settings: Sequence[Setting], last: int
) -> dict[str, dict[str, int]]:
    """By geometry, the number of the recommended setting and of the default one, where the map has it."""
    power = powers(scores, above, selects=True).mean(axis=0)
    default = {"layer": last, **DEFAULT}
    departures = [(sum(getattr(s, key) != value for key, value in default.items()), last - s.layer) for s in settings]
    found: dict[str, dict[str, int]] = {}
    for geometry in dict.fromkeys(s.geometry for s in settings):
        of_it = np.array([s.geometry == geometry for s in settings])
        best = recommend(power, usable & of_it, departures)
        found[geometry] = {} if best is None else {"recommended": best}
        plain = [i for i in np.flatnonzero(of_it).tolist() if departures[i] == (0, 0)]
        if plain:
            found[geometry]["default"] = plain[0]
    return found


def _row(
    scores: Scores,
    above: Mask,
    thresholds: Mapping[str, Array],
    usable: Mask,
    number: int,
    setting: Setting,
    wanted: float,
) -> dict[str, Any]:
    """One setting: power in the half that chooses, and in the other by dose, with its false alarms."""
    found = above[:, number]
    planted = np.array([not plant.is_null for plant in scores.plants])
    selects = np.array([plant.selects for plant in scores.plants])
    report, alarms = share(found[planted & ~selects]), share(found[~planted & ~selects])
    by_dose = [share(found[_planted(scores, False, dose)]) for dose in scores.doses]
    reason = None if usable[number] else "a score is not defined: some group has no shift at this setting"
    smallest, why = smallest_dose(scores.doses, [one["share"] for one in by_dose], wanted)
    row: dict[str, Any] = {
        **setting.row(),
        **{f"threshold_{null}": float(limits[number]) for null, limits in thresholds.items()},
        "power_selection": share(found[planted & selects])["share"],
        "power": report["share"], "power_low": report["ci_low"], "power_high": report["ci_high"],
        **{f"power_{dose:g}": one["share"] for dose, one in zip(scores.doses, by_dose, strict=True)},
        **{f"found_{dose:g}": one["found"] for dose, one in zip(scores.doses, by_dose, strict=True)},
        "n_planted": by_dose[0]["n"],
        "false_alarm_rate": alarms["share"], "false_alarm_low": alarms["ci_low"], "false_alarm_high": alarms["ci_high"],
        "false_alarms": alarms["found"], "n_random": alarms["n"],
        "smallest_dose": smallest, "smallest_dose_reason": why, "reason": reason,
    }  # fmt: skip
    if reason is not None:
        measured = ("threshold", "power", "false_alarm_", "smallest_dose")
        row |= {key: None for key in row if key.startswith(measured)} | {"smallest_dose_reason": reason}
    return row


def _planted(scores: Scores, selects: bool, dose: float, family: str | None = None) -> Mask:
    return np.array(
        [
            not p.is_null and p.selects == selects and p.dose == dose and family in (None, p.family)
            for p in scores.plants
        ]
    )


def _power_rows(scores: Scores, above: Mask, setting: Setting, number: int) -> list[dict[str, Any]]:
    """Held-out power of one setting by dose and family, and the false alarms of each null."""
    rows = []
    for dose in scores.doses:
        for family in ("all", *scores.families):
            mask = _planted(scores, False, dose, None if family == "all" else family)
            rows.append({**setting.row(), "dose": dose, "family": family, **share(above[mask, number])})
        for null in scores.nulls:
            mask = scores.which(False, family=null, dose=dose)
            rows.append({**setting.row(), "dose": dose, "family": null, **share(above[mask, number])})
    return rows


def _score_rows(scores: Scores, thresholds: Mapping[str, Array], setting: Setting, number: int) -> list[dict[str, Any]]:
    """Quantiles of the scores of one setting by dose and family or null, both halves together."""
    rows = []
    for family in (*scores.families, *scores.nulls):
        null = FAMILIES.get(family, family)
        for dose in scores.doses:
            mask = scores.which(True, family=family, dose=dose) | scores.which(False, family=family, dose=dose)
            values = np.quantile(scores.values[mask, number], QUANTILES).tolist()
            row = {**setting.row(), "dose": dose, "family": family, "null": null, "n": int(mask.sum())}
            row |= {f"q{round(100 * q):02d}": value for q, value in zip(QUANTILES, values, strict=True)}
            rows.append(row | {"threshold": float(thresholds[null][number])})
    return rows
