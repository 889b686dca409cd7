"""Pictures of association tests: split-triangle heat map, raw against calibrated, the map of ML-EAT.

Pure functions from rows of suites.csv to matplotlib figures, in the style of `refbias.report.figures`. They take
`Entry` objects, so that one run (an entry a layer) and a table of many models (an entry a model) look alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.report import figures as base
from refbias.report.figures import BLUE, DIVERGING, FAINT, GREY, LABEL_SIZE, SEQUENTIAL, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Data = Mapping[str, Any]
Row = Mapping[str, Any]

CLIP = 1.5  # |d| from which the colour does not change, as published
PANELS = (("valence", "race", "gender"), ("health", "age"))  # own panels, and those that share one, as published
MOST_PANELS = 6
MARKERS = {"static": "o", "contextual": "^", "contrastive": "s"}
STATUS_COLOURS = {"Disappearing": VERMILLION, "Stable": GREY, "Emerging": BLUE}


@dataclass(frozen=True)
class Entry:
    """The tests of one model at one layer; ``family`` chooses the marker of a scatter plot."""

    label: str
    rows: Sequence[Row]
    family: str = "static"


@dataclass(frozen=True)
class About:
    """What a picture says about itself."""

    setting: str
    footer: str
    calibration: str | None  # None where there is raw alone
    alpha: float = 0.05


def column_of(row: Row) -> str:
    """The test, with the target of a single-target test."""
    return f"{row['test']}{row.get('target', '')}"


def _significant(row: Row, space: str, alpha: float) -> bool:
    p = row.get(f"p_adjusted_{space}", row.get(f"p_{space}"))
    return p is not None and p < alpha


def about_of(data: Data, counted: str) -> About:
    """The words of a picture of one result."""
    settings, model = data["settings"], data["reference"]
    layers = list(dict.fromkeys(row["layer"] for row in data["suites"]))
    where = f"layer {layers[0]}" if len(layers) == 1 else base._count(len(layers), "layer")
    place = f", {where}" if model["layers"] else ""
    words = [f"model {base._short(str(model['name']), 48)}{place}"]
    words += [data["conventions"]["test"]]
    for kind in ("suite", "words", "corpus", "calibration"):
        if settings.get(kind) is not None:
            words.append(f"{kind} {base._short(base._chosen(settings[kind]), 30)}")
    chosen = settings.get("calibration")
    name = None if chosen in (None, "none") else str(chosen)
    return About(" · ".join(words), base._footer(data, counted), name, float(data["conventions"]["alpha"]))


def entries_of(data: Data) -> list[Entry]:
    """One entry a layer."""
    layers = list(dict.fromkeys(row["layer"] for row in data["suites"]))
    family = "static" if data["reference"]["layers"] == 0 else "contextual"
    name = str(data["reference"]["name"])
    labels = [f"layer {layer}" if len(layers) > 1 else base._short(name, 26) for layer in layers]
    return [
        Entry(label, [row for row in data["suites"] if row["layer"] == layer], family)
        for layer, label in zip(layers, labels, strict=True)
    ]


def figures(data: Data) -> dict[str, Figure]:
    """Every picture of a result of task=weat, by file name without ending."""
    entries = entries_of(data)
    tests = base._count(len(entries[0].rows), "test")
    rows = f"{tests} × {base._count(len(entries), 'layer')}" if data["reference"]["layers"] else tests
    made = {"weat_heat_map": split_triangles(entries, about_of(data, rows))}
    if about_of(data, rows).calibration is not None:
        made["weat_scatter"] = scatter(entries, about_of(data, rows))
    if data.get("map"):
        last = data["suites"][-1]["layer"]
        for space in dict.fromkeys(row["space"] for row in data["map"]):
            quadrants = [row for row in data["map"] if row["space"] == space and row["layer"] == last]
            where = f"layer {last}" if data["reference"]["layers"] else "word vectors"
            made[f"ml_eat_map_{space}"] = quadrant_map(quadrants, space, about_of(data, where))
    return made


# Heat map -------------------------------------------------------------------------------------------------------


def split_triangles(entries: Sequence[Entry], about: About) -> Figure:
    """d of each test (columns) and entry (rows): raw above, calibrated below the diagonal of each cell.

    Bold figures with an asterisk have p < alpha. Without a calibration each cell is one square.
    """
    columns = list(dict.fromkeys(column_of(row) for entry in entries for row in entry.rows))
    categories = {column_of(row): str(row["category"]) for entry in entries for row in entry.rows}
    spaces = ("raw",) if about.calibration is None else ("raw", "calibrated")
    labels = [base._short(entry.label, 30) for entry in entries]
    legend = f" · above the diagonal raw, below it {about.calibration}" if about.calibration else ""
    values = [base._number(row.get(f"d_{space}")) for entry in entries for row in entry.rows for space in spaces]
    absent = " · grey: no value" if None in values or len(values) < len(columns) * len(entries) * len(spaces) else ""
    words = base._Words(
        "Effect sizes d" + (f", raw and {about.calibration}" if about.calibration else ""),
        about.setting,
        f"{about.footer}{legend} · * p < {about.alpha:g} · colours end at |d| = {CLIP:g}{absent}",
    )
    wide, high = 0.78 * len(columns), 0.56 * len(entries)
    margins = base._Margins(base._label_width(labels), right=0.95, below=0.35, above=0.55)
    with base._style():
        figure, (ax,), _ = base._frame(words, (wide, max(0.6, high)), 1, 1, margins)
        mesh = _triangles(ax, entries, columns, spaces)
        for i, entry in enumerate(entries):
            found = {column_of(row): row for row in entry.rows}
            for j, column in enumerate(columns):
                _write_cell(ax, i, j, found.get(column, {}), spaces, about.alpha)
        ax.set_xlim(0, len(columns))
        ax.set_ylim(len(entries), 0)
        ax.set_xticks(np.arange(len(columns)) + 0.5, columns)
        ax.xaxis.tick_top()
        ax.set_yticks(np.arange(len(entries)) + 0.5, labels)
        ax.tick_params(length=0, labelsize=LABEL_SIZE)
        for spine in ax.spines.values():
            spine.set_visible(False)
        _bracket_categories(ax, [categories[column] for column in columns])
        _scale(figure, ax, mesh, "d")
    return figure


def _triangles(ax: Axes, entries: Sequence[Entry], columns: Sequence[str], spaces: Sequence[str]) -> Any:
    from matplotlib.collections import PolyCollection

    shapes, values = [], []
    for i, entry in enumerate(entries):
        found = {column_of(row): row for row in entry.rows}
        for j, column in enumerate(columns):
            corners = {
                "raw": [(j, i), (j + 1, i), (j, i + 1)],
                "calibrated": [(j + 1, i), (j + 1, i + 1), (j, i + 1)],
            }
            square = [(j, i), (j + 1, i), (j + 1, i + 1), (j, i + 1)]
            for space in spaces:
                shapes.append(corners[space] if len(spaces) > 1 else square)
                values.append(base._number(found.get(column, {}).get(f"d_{space}")))
    ax.set_facecolor(FAINT)
    filled = PolyCollection(
        shapes, array=np.ma.masked_invalid(base._array(values)), cmap=DIVERGING, edgecolors="white", linewidths=0.6,
        label="d",
    )  # fmt: skip
    filled.set_clim(-CLIP, CLIP)
    ax.add_collection(filled, autolim=False)
    return filled


def _write_cell(ax: Axes, i: int, j: int, row: Row, spaces: Sequence[str], alpha: float) -> None:
    places = {"raw": (0.3, 0.27), "calibrated": (0.7, 0.75)} if len(spaces) > 1 else {"raw": (0.5, 0.5)}
    for space in spaces:
        value, (x, y) = base._number(row.get(f"d_{space}")), places[space]
        sure = _significant(row, space, alpha)
        text = "–" if value is None else base._signed(value, "") + ("*" if sure else "")
        dark = value is not None and abs(value) > 0.62 * CLIP
        ax.text(
            j + x, i + y, text, ha="center", va="center", size=7.0 if len(spaces) > 1 else 8.0,
            color="white" if dark else "black", weight="bold" if sure else "normal",
        )  # fmt: skip


def _bracket_categories(ax: Axes, categories: Sequence[str]) -> None:
    """A line and a word over each run of columns of one category."""
    start = 0
    for end in range(1, len(categories) + 1):
        if end < len(categories) and categories[end] == categories[start]:
            continue
        above = ax.get_xaxis_transform()
        ax.plot([start + 0.08, end - 0.08], [1.0, 1.0], color=GREY, linewidth=1.0, transform=above, clip_on=False)
        ax.annotate(
            base._short(categories[start], 9 * (end - start)), ((start + end) / 2, 1.0), xycoords=above,
            xytext=(0, 16), textcoords="offset points", ha="center", va="bottom", size=8.5, color=GREY,
        )  # fmt: skip
        start = end


def _scale(figure: Figure, ax: Axes, drawn: Any, label: str) -> None:
    box, inch = ax.get_position(), 1 / figure.get_figwidth()
    bar = figure.add_axes((box.x1 + 0.15 * inch, box.y0, 0.14 * inch, box.height), label="scale")
    figure.colorbar(drawn, cax=bar, label=label)
    bar.tick_params(labelsize=8)


# Scatter --------------------------------------------------------------------------------------------------------


def scatter(entries: Sequence[Entry], about: About) -> Figure:
    """d calibrated against d raw by bias type; the colour is the status, the shape the family of the model.

    With a single entry each point has its test beside it and its 95 % intervals as a cross.
    """
    points = [(entry, row) for entry in entries for row in entry.rows if _has_both(row)]
    panels = panels_of([str(row["category"]) for entry in entries for row in entry.rows])
    counts = _counts([row for _, row in points])
    words = base._Words(
        f"Effect size d, {about.calibration} against raw",
        f"{about.setting}\n{counts}",
        f"{about.footer} · above the dashed line: d is larger with {about.calibration}",
    )
    columns = min(2, len(panels))
    margins = base._Margins(left=0.75, right=0.3, below=0.6, above=0.35, between=0.55, key=0.75)
    with base._style():
        figure, axes, key = base._frame(words, (3.0, 3.0), -(-len(panels) // columns), columns, margins)
        reach = 0.2 + max((abs(row[f"d_{space}"]) for _, row in points for space in ("raw", "calibrated")), default=1.8)
        for ax, (title, categories) in zip(axes, panels, strict=False):
            inside = [(entry, row) for entry, row in points if str(row["category"]) in categories]
            _draw_points(ax, inside, single=len(entries) == 1)
            ax.set_title(base._short(title, 36), size=LABEL_SIZE)
            ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
            ax.set_xlabel("d raw", size=LABEL_SIZE)
            ax.set_ylabel(f"d {about.calibration}", size=LABEL_SIZE)
        for ax in axes[len(panels) :]:
            ax.remove()
        _key(figure, key, {entry.family for entry, _ in points})
    return figure


def _has_both(row: Row) -> bool:
    return all(base._number(row.get(f"d_{space}")) is not None for space in ("raw", "calibrated"))


def panels_of(categories: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Panels of a scatter plot: a category each, health and age together as published, the rest of many together.

    >>> panels_of(["age", "valence", "health"])
    [('valence', ['valence']), ('health and age', ['health', 'age'])]
    """
    there = list(dict.fromkeys(categories))
    own, together = PANELS
    singles = [c for c in own if c in there] + [c for c in there if c not in (*own, *together)]
    panels = [(category, [category]) for category in singles]
    shared = [category for category in together if category in there]
    if shared:
        panels.append((" and ".join(shared), shared))
    if len(panels) > MOST_PANELS:
        rest = [category for _, inside in panels[MOST_PANELS - 1 :] for category in inside]
        panels = [*panels[: MOST_PANELS - 1], ("others", rest)]
    return panels


def _counts(rows: Sequence[Row]) -> str:
    found = [f"{name} {sum(row.get('status') == name for row in rows)}" for name in STATUS_COLOURS]
    return f"{', '.join(found)} of {base._count(len(rows), 'test')}"


def _draw_points(ax: Axes, points: Sequence[tuple[Entry, Row]], single: bool) -> None:
    base._plain(ax)
    ax.grid(color=FAINT, linewidth=0.6)
    ax.axhline(0.0, color="black", linewidth=0.8)
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.axline((0.0, 0.0), slope=1.0, color=GREY, linewidth=1.0, linestyle="--")
    for number, (entry, row) in enumerate(points):
        colour = STATUS_COLOURS.get(str(row.get("status")), "black")
        x, y = row["d_raw"], row["d_calibrated"]
        if single:
            _cross(ax, row, x, y, colour)
            beside, side = ((4, 4), "left") if number % 2 == 0 else ((-4, -11), "right")
            ax.annotate(
                base._short(column_of(row), 12), (x, y), xytext=beside, textcoords="offset points", size=8, ha=side
            )
        ax.plot(
            [x], [y], MARKERS.get(entry.family, "D"), color=colour, markersize=5.5, markeredgecolor="white",
            markeredgewidth=0.5, label=f"{entry.label} {column_of(row)}",
        )  # fmt: skip


def _cross(ax: Axes, row: Row, x: float, y: float, colour: str) -> None:
    for space, along in (("raw", "x"), ("calibrated", "y")):
        low, high = (base._number(row.get(f"{end}_{space}")) for end in ("ci_low", "ci_high"))
        if low is None or high is None:
            continue
        ends = ([low, high], [y, y]) if along == "x" else ([x, x], [low, high])
        ax.plot(*ends, color=colour, linewidth=0.8, alpha=0.5)


def _key(figure: Figure, top: float, families: set[str]) -> None:
    from matplotlib.lines import Line2D

    def mark(marker: str, colour: str, text: str) -> Line2D:
        return Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=5.5, label=text)

    handles = [mark("o", colour, name) for name, colour in STATUS_COLOURS.items()]
    if len(families) > 1:
        handles += [mark(MARKERS[name], "black", name) for name in MARKERS if name in families]
    figure.legend(
        handles=handles, loc="upper left", ncols=3, fontsize=8.5, frameon=False,
        bbox_to_anchor=(0.1 / figure.get_figwidth(), top), borderaxespad=0.0,
    )  # fmt: skip


# The map of ML-EAT ----------------------------------------------------------------------------------------------


def quadrant_map(quadrants: Sequence[Row], space: str, about: About) -> Figure:
    """Of each test the four mean cosines of targets (rows) and attributes (columns), with their SD.

    A bold figure with a dot says that the target leans to that attribute set (|d| of level 2 at least 0.2).
    """
    tests = list(dict.fromkeys(str(row["test"]) for row in quadrants))
    values = base._array([row["mean"] for row in quadrants])
    shown = about.calibration if space == "calibrated" else space
    words = base._Words(
        f"ML-EAT: mean cosines of targets and attributes, {shown}",
        about.setting,
        f"{about.footer} · mean ± SD of the cosines · •: the target leans to this attribute set",
    )
    columns = min(5, len(tests))
    margins = base._Margins(left=0.6, right=0.95, below=0.3, above=0.4, between=0.35)
    with base._style():
        figure, axes, _ = base._frame(words, (1.35, 1.0), -(-len(tests) // columns), columns, margins)
        for ax, test in zip(axes, tests, strict=False):
            mesh = _draw_quadrants(ax, [row for row in quadrants if row["test"] == test], values)
            ax.set_title(base._short(test, 14), size=LABEL_SIZE)
        for ax in axes[len(tests) :]:
            ax.remove()
        _scale(figure, axes[columns - 1], mesh, "mean cosine")
    return figure


def _draw_quadrants(ax: Axes, quadrants: Sequence[Row], values: np.ndarray) -> Any:
    table = np.full((2, 2), math.nan)
    for row in quadrants:
        table["XY".index(row["target"]), "AB".index(row["attribute"])] = row["mean"]
    low, high = float(values.min()), float(values.max())
    mesh = ax.pcolormesh(table, cmap=SEQUENTIAL, vmin=low, vmax=high, edgecolors="white", linewidth=0.6)
    for row in quadrants:
        i, j = "XY".index(row["target"]), "AB".index(row["attribute"])
        bright = row["mean"] > (low + high) / 2
        sd = base._number(row.get("sd"))
        text = f"{row['mean']:.2f}{'•' if row['leans'] else ''}" + ("" if sd is None else f"\n±{sd:.2f}")
        ax.text(
            j + 0.5, i + 0.5, text, ha="center", va="center", size=7.5, color="black" if bright else "white",
            weight="bold" if row["leans"] else "normal",
        )  # fmt: skip
    ax.set_xticks([0.5, 1.5], ["A", "B"])
    ax.set_yticks([0.5, 1.5], ["X", "Y"])
    ax.set_ylim(2, 0)
    ax.tick_params(length=0, labelsize=8)
    for spine in ax.spines.values():
        spine.set_visible(False)
    return mesh
