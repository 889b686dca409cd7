"""Tables of observations from files: a row a (checkpoint, group), ours or a user's own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refbias.errors import RefbiasError, UsageError, did_you_mean
from refbias.statistics.calibrator import DOMAIN, domain_of
from refbias.stimuli.files import csv_rows
from refbias.types import Array

NEEDED = ("checkpoint", "group", "delta_b", "delta_bias")
NAME = "observations.csv"
MISSING = ("", "nan", "na", "n/a", "null", "none")
SHOWN = 5  # malformed rows that a message names


@dataclass(frozen=True, eq=False)
class Observations:
    """n observations as columns (n,): who, the shift ``x``, the benchmark's shift ``y``, and what is known beside.

    ``alternatives`` are further shifts of the same observations, NaN where one is missing; ``context`` what a
    result.json beside the files says: threshold, directed, benchmark, metric, domain.
    """

    run: list[str]
    checkpoint: list[str]
    group: list[str]
    ratio: Array
    x: Array
    y: Array
    error: Array | None
    alternatives: dict[str, Array]
    labelled: list[bool | None]
    where: list[str]
    left_out: int
    name: str
    context: dict[str, Any]

    def __len__(self) -> int:
        return len(self.x)

    @property
    def blocks(self) -> list[str]:
        """Checkpoints with the run that they belong to, where there is more than one."""
        if len(set(self.run)) < 2:
            return self.checkpoint
        return [f"{run} / {checkpoint}" for run, checkpoint in zip(self.run, self.checkpoint, strict=True)]


def find_files(path: str) -> list[Path]:
    """The files that ``path`` means: one file, every observations.csv below a folder, or those of a pattern."""
    given = Path(path).expanduser()
    if given.is_file():
        return [given]
    if given.is_dir():
        found = sorted(given.rglob(NAME))
        what = f"is a folder without {NAME} in or below it"
    else:
        anchor = Path(given.anchor) if given.anchor else Path()
        pattern = str(given.relative_to(given.anchor)) if given.anchor else str(given)
        found = sorted(file for file in anchor.glob(pattern) if file.is_file())
        what = f"no such file in {Path.cwd()}, nor does the pattern fit one"
    if not found:
        raise UsageError(f"task.path={path}: {what}. Give a CSV file with the columns {', '.join(NEEDED)}.")
    return found


def read_observations(
    files: Sequence[Path], alternatives: Sequence[str] = (), layer: int | None = None
) -> Observations:
    """Read observations from CSV files with the columns checkpoint, group, delta_b, delta_bias.

    Optional columns: ``run`` (the independent fine-tune pair; without it each file is one run), ``ratio``, ``layer``,
    ``delta_bias_se`` (standard error of delta_bias) and ``more_biased``. Rows without a shift or a benchmark shift
    are left out and counted.

    Parameters
    ----------
    alternatives : names of further columns with shifts of the same observations; -NAME where a column rises with
        bias and delta_b falls
    layer : which layer is meant where a file has several; the last by default. The others become alternatives

    Raises
    ------
    RefbiasError naming the rows that are malformed or come twice
    """
    table = [row for file, label in zip(files, _labels(files), strict=True) for row in _rows(file, label, alternatives)]
    layers = sorted({row.layer for row in table if row.layer is not None})
    chosen = layer if layer is not None else (layers[-1] if layers else None)
    if layer is not None and layer not in layers:
        raise UsageError(f"task.layer={layer}: the file has {', '.join(map(str, layers)) or 'no column layer'}.")
    _check_once(table)
    main = [row for row in table if row.layer == chosen]
    kept = [row for row in main if row.x is not None and row.y is not None]
    further: dict[str, Array] = {}
    for other in layers:
        if other != chosen:
            values = {row.cell: row.x for row in table if row.layer == other}
            further[f"layer {other}"] = _array([values.get(row.cell) for row in kept])
    for i, name in enumerate(alternatives):
        further[name.lstrip("-")] = _array([row.further[i] for row in kept])
    errors = _array([row.error for row in kept])
    return Observations(
        run=[row.cell[0] for row in kept],
        checkpoint=[row.cell[1] for row in kept],
        group=[row.cell[2] for row in kept],
        ratio=_array([row.ratio for row in kept]),
        x=_array([row.x for row in kept]),
        y=_array([row.y for row in kept]),
        error=errors if len(errors) and np.isfinite(errors).all() else None,
        alternatives=further,
        labelled=[row.labelled for row in kept],
        where=[row.where for row in kept],
        left_out=len(main) - len(kept),
        name="delta_b" if chosen is None or len(layers) < 2 else f"layer {chosen}",
        context=_context(files, chosen, any(row.undirected for row in main)),
    )


@dataclass(frozen=True)
class _Row:
    where: str
    cell: tuple[str, str, str]  # run, checkpoint, group
    layer: int | None
    x: float | None
    y: float | None
    ratio: float | None
    error: float | None
    labelled: bool | None
    further: list[float | None]
    undirected: bool


def _array(values: Sequence[float | None]) -> Array:
    return np.array([math.nan if value is None else value for value in values], dtype=float)


def _labels(files: Sequence[Path]) -> list[str]:
    """A short name for each file: its folder, or its whole path where folders repeat."""
    if len(files) == 1:
        return ["run"]
    short = [file.parent.name or file.stem for file in files]
    return short if len(set(short)) == len(short) else [str(file) for file in files]


def _rows(file: Path, label: str, alternatives: Sequence[str]) -> list[_Row]:
    wanted = [name.lstrip("-") for name in alternatives]
    made: list[_Row] = []
    wrong: list[str] = []
    for where, row in csv_rows(file, NEEDED):
        for name in wanted:
            if name not in row:
                raise UsageError(f"task.alternatives: {file} has no column {name!r}.{did_you_mean(name, row)}")
        try:
            made.append(_row(f"{file}, {where}", row, label, alternatives))
        except ValueError as error:
            wrong.append(f"{where}: {error}")
    if wrong:
        more = f"; and {len(wrong) - SHOWN} more rows" if len(wrong) > SHOWN else ""
        raise RefbiasError(f"{file}, {'; '.join(wrong[:SHOWN])}{more}. Mend these rows.")
    if not made:
        raise RefbiasError(f"{file} has no row below its header. It needs one for each checkpoint and group.")
    return made


def _row(where: str, row: Mapping[str, str], label: str, alternatives: Sequence[str]) -> _Row:
    for name in ("checkpoint", "group"):
        if not row[name].strip():
            raise ValueError(f"{name} is empty")
    layer = _number(row, "layer")
    if layer is not None and layer != int(layer):
        raise ValueError(f"layer is {row['layer']!r}, no whole number")
    error = _number(row, "delta_bias_se")
    if error is not None and error < 0:
        raise ValueError(f"delta_bias_se is {row['delta_bias_se']!r}, below 0")
    further = []
    for name in alternatives:
        value = _number(row, name.lstrip("-"))
        further.append(-value if value is not None and name.startswith("-") else value)
    return _Row(
        where=where,
        cell=(row.get("run", "").strip() or label, row["checkpoint"].strip(), row["group"].strip()),
        layer=None if layer is None else int(layer),
        x=_number(row, "delta_b"),
        y=_number(row, "delta_bias"),
        ratio=_number(row, "ratio"),
        error=error,
        labelled={"true": True, "1": True, "false": False, "0": False}.get(row.get("more_biased", "").strip().lower()),
        further=further,
        undirected="b_ref" in row and row["b_ref"].strip() == "" and row["delta_b"].strip() != "",
    )


def _number(row: Mapping[str, str], column: str) -> float | None:
    text = row.get(column, "").strip()
    if text.lower() in MISSING:
        return None
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column} is {text!r}, no number") from None
    if not math.isfinite(value):
        raise ValueError(f"{column} is {text!r}, no finite number")
    return value


def _check_once(table: Sequence[_Row]) -> None:
    seen: dict[Any, str] = {}
    for row in table:
        key = (row.cell, row.layer)
        if key in seen:
            run, checkpoint, group = row.cell
            raise RefbiasError(
                f"{seen[key]} and {row.where}: checkpoint {checkpoint!r} and group {group!r} of run {run!r} come "
                "twice. Keep one of them, or add a column run that tells independent fine-tunes apart."
            )
        seen[key] = row.where


def _context(files: Sequence[Path], layer: int | None, undirected: bool) -> dict[str, Any]:
    """What the result.json files beside the tables say; None where they are silent or do not agree."""
    found = [_beside(file) for file in files]
    benchmarks = [data.get("benchmark") or {} for data in found]
    domains = [domain_of(data, layer) for data in found]

    def shared(values: Sequence[Any]) -> Any:
        return values[0] if all(value == values[0] for value in values) else None

    thresholds = {b.get("threshold") for b in benchmarks}
    return {
        "threshold": shared([b.get("threshold") for b in benchmarks]),
        "thresholds_differ": len(thresholds) > 1,
        "directed": not undirected,
        "benchmark": shared([b.get("name") for b in benchmarks]),
        "unit": shared([b.get("unit") for b in benchmarks]),
        "metric": shared([data.get("settings", {}).get("metric") for data in found]),
        "domain": {key: shared([domain[key] for domain in domains]) for key in DOMAIN},
    }


def _beside(file: Path) -> dict[str, Any]:
    """The result.json beside ``file``; empty where there is none that can be read."""
    try:
        data = json.loads((file.parent / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) and data.get("task") == "audit" else {}
