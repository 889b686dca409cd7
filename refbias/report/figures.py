"""Pictures of a result: pure functions from the content of result.json to matplotlib figures.

Nothing here touches pyplot or any other global state, so that pictures can be made in threads and in sweeps. Sizes
are in inches throughout; every picture states model, setting, number of observations and stand-ins.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.reading import beyond_doubt, layers_of, symbol
from refbias.result import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Data = Mapping[str, Any]

# Okabe and Ito's palette, told apart under all common kinds of colour blindness
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
)  # fmt: skip
GREY, FAINT = "#555555", "#DDDDDD"
DIVERGING, SEQUENTIAL = "PuOr", "cividis"

LABEL_SIZE = 9.0
ROW = 0.27  # height of one group
PANELS_A_ROW = 4
ANNOTATED_COLUMNS = 12  # a heat map with more columns shows no numbers


# What a result says ---------------------------------------------------------------------------------------------


def _number(value: Any) -> float | None:
    """``value`` as a finite float, or None."""
    if value is None or isinstance(value, str):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _array(values: Sequence[Any]) -> np.ndarray:
    """Numbers as float64, NaN where there is none."""
    return np.array([math.nan if (v := _number(value)) is None else v for value in values], dtype=float)


def _chosen(value: Any) -> str:
    """The name of a choice, however the settings spell it."""
    if isinstance(value, Mapping):
        value = value.get("name", "own")
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def _symbol(data: Data) -> str:
    metric = data.get("settings", {}).get("metric")
    return symbol(None if metric is None else _chosen(metric))


def _directed(checkpoints: Sequence[Data]) -> bool:
    """Whether the sign of the shift means something: a metric of two spaces has no scores and no direction."""
    return any(_number(row.get("b_ref")) is not None for c in checkpoints for row in c["groups"])


def _short(text: str, limit: int) -> str:
    """``text`` in at most ``limit`` characters: a path keeps its end, and $ does not start a formula."""
    if len(text) > limit:
        head = limit // 3
        text = f"{text[:head]}…{text[len(text) - (limit - head - 1) :]}"
    return text.replace("$", r"\$")


def _setting(data: Data, layer: str) -> str:
    """One line: the reference model, ``layer`` in words, and the choices that a shift depends on."""
    reference, settings = data.get("reference", {}), data.get("settings", {})
    model = f"reference {_short(str(reference.get('name', 'unknown')), 48)}"
    if reference.get("layers"):
        model += f", {layer} of {reference['layers']}"
    words = [model]
    for kind in ("geometry", "pooling", "calibration", "anchors", "targets", "attributes"):
        if settings.get(kind) is not None:
            words.append(f"{kind} {_short(_chosen(settings[kind]), 30)}")
    return " · ".join(words)


def _footer(data: Data, counted: str) -> str:
    notes = data.get("stand_ins", [])
    used = "; ".join(_short(f"{n['used']} in place of {n['wanted']}", 90) for n in notes) or "none"
    return f"{counted} · seed {data.get('seed')} · stand-ins: {used}"


def _signed(value: float, plus: str = "+") -> str:
    """Two decimals with a true minus sign; what rounds to zero has no sign."""
    text = f"{abs(value):.2f}"
    sign = "" if text == "0.00" else "−" if value < 0 else plus
    return sign + text


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


# Frames ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Words:
    title: str
    setting: str
    footer: str


@dataclass(frozen=True)
class _Margins:
    left: float
    right: float = 0.3
    below: float = 0.6  # under every row of panels
    above: float = 0.1  # over every row of panels
    between: float = 0.15  # from one panel of a row to the next
    key: float = 0.0  # for a legend between panels and footer


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context({"font.family": "sans-serif", "font.size": LABEL_SIZE}):
        yield


def _frame(
    words: _Words, panel: tuple[float, float], rows: int, columns: int, margins: _Margins
) -> tuple[Figure, list[Axes], float]:
    """A figure with ``rows`` × ``columns`` panels, row by row, and the height where its legend may start."""
    from matplotlib.figure import Figure

    wide, high = panel
    width = max(7.0, margins.left + columns * wide + (columns - 1) * margins.between + margins.right)
    texts = [(words.title, 12.0, "bold", "black"), (words.setting, 8.5, "normal", GREY)]
    wrapped = [(_wrap(text, size, width), size, weight, colour) for text, size, weight, colour in texts]
    footer = _wrap(words.footer, 8.0, width)
    head = 0.15 + sum(_tall(text, size) for text, size, *_ in wrapped)
    foot = 0.1 + _tall(footer, 8.0)
    height = head + rows * (margins.above + high + margins.below) + margins.key + foot
    figure = Figure(figsize=(width, height))
    y = height - 0.12
    for text, size, weight, colour in wrapped:
        figure.text(0.15 / width, y / height, text, size=size, weight=weight, color=colour, va="top")
        y -= _tall(text, size)
    figure.text(0.15 / width, 0.1 / height, footer, size=8.0, color=GREY, va="bottom")
    axes = []
    for row in range(rows):
        bottom = height - head - (row + 1) * (margins.above + high) - row * margins.below
        for column in range(columns):
            x = margins.left + column * (wide + margins.between)
            axes.append(figure.add_axes((x / width, bottom / height, wide / width, high / height)))
    return figure, axes, (foot + margins.key) / height


def _wrap(text: str, size: float, width: float) -> str:
    """``text`` broken into lines that fit ``width``, for letters of about 0.58 of the font size (bold ones wider)."""
    letters = int((width - 0.3) * 72 / (size * 0.58))
    return "\n".join(piece for line in text.split("\n") for piece in textwrap.wrap(line, letters)) or " "


def _tall(text: str, size: float) -> float:
    return (text.count("\n") + 1) * size * 1.35 / 72 + 0.04


def _label_width(labels: Sequence[str]) -> float:
    return 0.3 + LABEL_SIZE * 0.6 / 72 * max(map(len, labels), default=0)


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(length=0, labelsize=LABEL_SIZE)
    axes.set_axisbelow(True)


# Shift by group -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Series:
    """The rows of one estimate of one checkpoint, in the order of the picture."""

    name: str
    colour: str
    marker: str
    rows: Sequence[Data | None]


def _order(checkpoint: Data) -> list[str]:
    """Groups from the lowest shift to the highest, those without a shift last."""
    shifts = {row["group"]: _number(row["delta_b"]) for row in checkpoint["groups"]}
    return sorted(shifts, key=lambda g: (shifts[g] is None, shifts[g] or 0.0, g))


def _series(checkpoint: Data, groups: Sequence[str], calibration: str) -> list[_Series]:
    rows = {row["group"]: row for row in checkpoint["groups"]}
    first = _Series("as chosen" if calibration != "none" else "raw", BLUE, "o", [rows.get(g) for g in groups])
    others = [row.get("second_opinion") if row else None for row in first.rows]
    if not any(others):
        return [first]
    name = next(other["calibration"] for other in others if other)
    return [first, _Series(_opinion_name(name), VERMILLION, "D", others)]


def _opinion_name(calibration: str) -> str:
    return {"center": "centred", "none": "raw"}.get(calibration, f"calibration {calibration}")


def delta_b_by_group(checkpoints: Data | Sequence[Data], data: Data, layer: Any = None) -> Figure:
    """Shift of each group with its 95 % interval, and the second opinion beside it.

    Parameters
    ----------
    checkpoints : one entry of ``data["checkpoints"]`` or a list of them, one panel each
    data : the content of result.json, for what the picture says about itself
    layer : what to call the layer; ``data["layer"]`` by default

    Groups stand in the order of the last checkpoint's shifts in every panel. A filled marker is below zero beyond
    doubt (`beyond_doubt`). A group without a shift keeps its row and says why.
    """
    shown = [checkpoints] if isinstance(checkpoints, Mapping) else list(checkpoints)
    groups = _order(shown[-1])
    labels = [_short(group, 34) for group in groups]
    columns = min(len(shown), PANELS_A_ROW)
    symbol, directed = _symbol(data), _directed(shown)
    one = len(shown) == 1
    calibration = _chosen(data.get("settings", {}).get("calibration", "none"))
    words = _Words(
        f"{symbol} by group: {_short(str(shown[0]['name']), 60) if one else _count(len(shown), 'checkpoint')}",
        _setting(data, f"layer {data.get('layer') if layer is None else layer}"),
        _footer(data, f"{_count(len(groups), 'group')} × {_count(len(shown), 'checkpoint')}, 95 % intervals"),
    )
    margins = _Margins(left=_label_width(labels), above=0.1 if one else 0.42, below=0.62, key=0.55)
    panel = (5.6 if one else 2.7, max(1.0, ROW * len(groups) + 0.2))
    with _style():
        figure, axes, key = _frame(words, panel, -(-len(shown) // columns), columns, margins)
        limits = _limits(shown)
        legend: list[_Series] = []
        for index, (ax, checkpoint) in enumerate(zip(axes, shown, strict=False)):
            series = _series(checkpoint, groups, calibration)
            legend = max(legend, series, key=len)
            _draw_groups(ax, series)
            ax.set_xlim(*limits)
            ax.set_ylim(len(groups) - 0.4, -0.6)
            ax.set_yticks(range(len(groups)), labels if index % columns == 0 else [""] * len(groups))
            ax.set_xlabel(_axis_words(symbol, directed, brief=not one), size=LABEL_SIZE)
            if not one:
                mean = _number(checkpoint.get("mean_delta_b"))
                said = "" if mean is None else f"\nmean {_signed(mean)}"
                ax.set_title(_short(str(checkpoint["name"]), 30) + said, size=LABEL_SIZE)
        for ax in axes[len(shown) :]:
            ax.remove()
        _key(figure, legend, key, directed)
    return figure


def _limits(checkpoints: Sequence[Data]) -> tuple[float, float]:
    ends = [0.0]
    for checkpoint in checkpoints:
        for row in checkpoint["groups"]:
            for estimate in filter(None, (row, row.get("second_opinion"))):
                found = [_number(estimate.get(name)) for name in ("delta_b", "ci_low", "ci_high")]
                ends += [value for value in found if value is not None]
    low, high = min(ends), max(ends)
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def _axis_words(symbol: str, directed: bool, brief: bool = False) -> str:
    if not directed:
        return f"{symbol} (no direction)"
    return f"{symbol} (< 0: towards the negative)" if brief else f"{symbol} (below 0: towards the negative attributes)"


def _draw_groups(ax: Axes, series: Sequence[_Series]) -> None:
    _plain(ax)
    ax.grid(axis="x", color=FAINT, linewidth=0.6)
    ax.axvline(0.0, color="black", linewidth=1.0, label="zero")
    for row in range(0, len(series[0].rows), 2):
        ax.axhspan(row - 0.5, row + 0.5, color="#F5F5F5", zorder=0, linewidth=0)
    for index, one in enumerate(series):
        offset = 0.0 if len(series) == 1 else (-0.17, 0.17)[index]
        rows: list[Data] = [row or {} for row in one.rows]
        y = np.arange(len(rows)) + offset
        x, low, high = (_array([row.get(name) for row in rows]) for name in ("delta_b", "ci_low", "ci_high"))
        ax.hlines(y, low, high, color=one.colour, linewidth=1.3, label=f"{one.name} interval")
        certain = np.array([beyond_doubt(row) for row in rows], dtype=bool)
        for which, face, ending in ((certain, one.colour, "beyond doubt"), (~certain, "white", "in doubt")):
            ax.plot(
                x[which], y[which], one.marker, color=one.colour, markerfacecolor=face,
                markersize=4.5, markeredgewidth=1.1, label=f"{one.name} {ending}",
            )  # fmt: skip
    for row, found in enumerate(series[0].rows):
        if found is None or _number(found.get("delta_b")) is None:
            why = (
                "not measured"
                if found is None
                else str(found.get("delta_b_reason") or found.get("reason") or "no value")
            )
            ax.annotate(
                _short(why, 40), (0.02, row), xycoords=("axes fraction", "data"), size=7.5, color=GREY, va="center"
            )


def _key(figure: Figure, series: Sequence[_Series], top: float, directed: bool) -> None:
    from matplotlib.lines import Line2D

    def handle(one: _Series, face: str, text: str) -> Line2D:
        return Line2D(
            [], [], color=one.colour, marker=one.marker, markerfacecolor=face, markersize=4.5, linewidth=1.3,
            label=text,
        )  # fmt: skip

    handles = []
    for one in series:
        if directed:
            handles.append(handle(one, one.colour, f"{one.name}, below zero beyond doubt"))
        handles.append(handle(one, "white", f"{one.name}, otherwise" if directed else one.name))
    figure.legend(
        handles=handles, loc="upper left", ncols=2, fontsize=8.5, frameon=False,
        bbox_to_anchor=(0.1 / figure.get_figwidth(), top), borderaxespad=0.0,
    )  # fmt: skip


# Shift against benchmark ----------------------------------------------------------------------------------------


def delta_b_against_benchmark(observations: Sequence[Data], data: Data) -> Figure:
    """Shift against the benchmark's shift, one point a checkpoint × group, with a linear fit.

    Parameters
    ----------
    observations : rows with the columns of observations.csv; those without both shifts are left out
    data : the content of result.json; its benchmark's figures are quoted, not computed again

    Colour is the ratio where checkpoints form a spectrum, else the checkpoint.
    """
    layers = [row.get("layer") for row in observations if row.get("layer") is not None]
    layer = layers[-1] if layers else data.get("layer")
    points = [
        row
        for row in observations
        if row.get("layer", layer) in (layer, None)
        and _number(row.get("delta_b")) is not None
        and _number(row.get("delta_bias")) is not None
    ]
    benchmark = _benchmark(data, layer)
    symbol, name = _symbol(data), _chosen(benchmark.get("name", "benchmark"))
    threshold = _number(benchmark.get("threshold"))
    counted = _count(len(points), "observation")
    if threshold is not None:
        counted += f" · above the dotted line ({threshold:g}): more biased"
    words = _Words(
        f"{symbol} against the shift of {_short(name, 40)}",
        f"{_setting(data, f'layer {layer}')}\n{_agreement(benchmark)}",
        _footer(data, counted),
    )
    checkpoints = list(dict.fromkeys(str(row["checkpoint"]) for row in points))
    ratios = {_number(row.get("ratio")) for row in points}
    spectrum = None not in ratios and len(ratios) > 1
    aside = 1.0 if spectrum else min(3.0, _label_width(checkpoints) + 0.3)
    with _style():
        figure, (ax,), _ = _frame(words, (5.6, 4.2), 1, 1, _Margins(left=0.85, right=aside, below=0.65))
        _plain(ax)
        ax.grid(color=FAINT, linewidth=0.6)
        ax.axvline(0.0, color="black", linewidth=1.0, label="zero")
        directed = any(_number(row.get("b_ref")) is not None for row in points) or not points
        ax.set_xlabel(_axis_words(symbol, directed), size=LABEL_SIZE)
        unit = f" ({benchmark['unit']})" if benchmark.get("unit") else ""
        ax.set_ylabel(_short(f"Δ bias score{unit}", 60), size=LABEL_SIZE)
        if not points:
            ax.text(0.5, 0.5, "no observation", transform=ax.transAxes, ha="center", color=GREY)
            return figure
        x, y = (_array([row[column] for row in points]) for column in ("delta_b", "delta_bias"))
        if threshold is not None:
            ax.axhline(threshold, color=GREY, linewidth=1.2, linestyle=":", label="threshold")
        if spectrum:
            _by_ratio(figure, ax, x, y, points)
        else:
            _by_checkpoint(ax, x, y, points, checkpoints)
        _fit(ax, x, y)
    return figure


def _benchmark(data: Data, layer: Any) -> Data:
    """The benchmark's block with the figures for ``layer``."""
    own: Data = next((e for e in data.get("layers", []) if e["layer"] == layer and e.get("benchmark")), data)
    return own.get("benchmark") or {}


def _agreement(benchmark: Data) -> str:
    """The benchmark's figures in words; one that is null gives its reason."""

    def said(figures: Data, name: str, label: str) -> str:
        value = _number(figures.get(name))
        if value is not None:
            return f"{label}\u00a0{_signed(value, '')}"  # never broken between lines
        return f"{label} not computed ({_short(str(figures.get(f'{name}_reason', 'no reason given')), 70)})"

    within = benchmark.get("within") or {}
    pooled = [said(benchmark, "pearson", "r"), said(benchmark, "auc", "AUC"), said(benchmark, "mae", "MAE")]
    inner = [said(within, "pearson", "r"), said(within, "auc", "AUC")]
    return f"pooled: {', '.join(pooled)} · within checkpoints: {', '.join(inner)}"


def _by_ratio(figure: Figure, ax: Axes, x: np.ndarray, y: np.ndarray, points: Sequence[Data]) -> None:
    colour = _array([row["ratio"] for row in points])
    drawn = ax.scatter(x, y, c=colour, cmap=SEQUENTIAL, s=22, edgecolors="white", linewidths=0.5, label="observations")
    box = ax.get_position()
    inch = 1 / figure.get_figwidth()
    bar = figure.add_axes((box.x1 + 0.15 * inch, box.y0, 0.14 * inch, box.height), label="scale")
    figure.colorbar(drawn, cax=bar, label="ratio", ticks=sorted(set(colour.tolist())), format="%.2g")
    bar.tick_params(labelsize=8)


def _by_checkpoint(ax: Axes, x: np.ndarray, y: np.ndarray, points: Sequence[Data], checkpoints: Sequence[str]) -> None:
    colours, markers = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY), ("o", "D", "s", "^", "v")
    for index, checkpoint in enumerate(checkpoints):
        which = np.array([str(row["checkpoint"]) == checkpoint for row in points])
        colour, marker = colours[index % len(colours)], markers[index % len(markers)]
        ax.scatter(
            x[which], y[which], color=colour, marker=marker, s=22, edgecolors="white", linewidths=0.5,
            label=_short(checkpoint, 34),
        )  # fmt: skip
    handles = ax.collections[-len(checkpoints) :]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False)


def _fit(ax: Axes, x: np.ndarray, y: np.ndarray) -> None:
    if len(x) < 3 or np.ptp(x) <= 1e-12 * np.abs(x).max():
        return
    slope, intercept = np.polyfit(x, y, 1)
    ends = np.array([x.min(), x.max()])
    ax.plot(ends, intercept + slope * ends, color="black", linewidth=1.3, linestyle="--", label="linear fit")


# Heat map -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """Shifts (groups, columns) of one estimate, NaN where there is none, and where they are below 0 beyond doubt."""

    name: str
    values: np.ndarray
    certain: np.ndarray


def heat_map(data: Data) -> Figure:
    """Shifts of all groups (rows) over checkpoints (columns), colours centred at 0; the second opinion beside it.

    With several layers the columns are layers, and each cell is the mean over the checkpoints. Groups stand in
    the order of the last column. An asterisk or a dot marks what is below zero beyond doubt.
    """
    layers = list(layers_of(data))
    several = "layers" in data
    if several:
        columns = [(str(layer), checkpoints) for layer, checkpoints in layers]
    else:
        columns = [(_short(str(checkpoint["name"]), 26), [checkpoint]) for checkpoint in layers[0][1]]
    measured = [list(checkpoints) for _, checkpoints in columns]
    groups = list(dict.fromkeys(row["group"] for checkpoint in measured[-1] for row in checkpoint["groups"]))
    tables = _tables(measured, groups, _chosen(data.get("settings", {}).get("calibration", "none")))
    last = tables[0].values[:, -1]
    order = np.argsort(np.where(np.isnan(last), np.inf, last), kind="stable")
    tables = [_Table(t.name, t.values[order], t.certain[order]) for t in tables]
    symbol, directed = _symbol(data), _directed([c for entries in measured for c in entries])
    over = "layer" if several else "checkpoint"
    each = len(measured[0])
    counted = f"{_count(len(groups), 'group')} × {_count(len(columns), over)}"
    if several and each > 1:
        counted += f", each cell the mean of {each} checkpoints"
    if any(t.certain.any() for t in tables):
        counted += f" · {'*' if len(columns) <= ANNOTATED_COLUMNS else '•'} below zero beyond doubt"
    if directed:
        counted += " · below 0: towards the negative attributes"
    if any(np.isnan(t.values).any() for t in tables):
        counted += " · grey: no value"
    words = _Words(
        f"{symbol}: groups × {over}s",
        _setting(data, f"{len(layers)} layers" if several else f"layer {layers[0][0]}"),
        _footer(data, counted),
    )
    labels = [_short(groups[i], 34) for i in order]
    return _draw_tables(words, tables, labels, [label for label, _ in columns], over, symbol)


def _tables(columns: Sequence[Sequence[Data]], groups: Sequence[str], calibration: str) -> list[_Table]:
    """The raw table and, where there is one, that of the second opinion. A column is the mean of its checkpoints."""
    shape = (len(groups), len(columns))
    made: list[_Table] = []
    for column, checkpoints in enumerate(columns):
        stacks: list[list[list[Data | None]]] = []
        for checkpoint in checkpoints:
            for index, series in enumerate(_series(checkpoint, groups, calibration)):
                if index == len(made):
                    made.append(_Table(series.name, np.full(shape, np.nan), np.zeros(shape, dtype=bool)))
                if index == len(stacks):
                    stacks.append([])
                stacks[index].append(list(series.rows))
        for table, stack in zip(made, stacks, strict=False):
            table.values[:, column] = _mean([_array([(r or {}).get("delta_b") for r in rows]) for rows in stack])
            if len(checkpoints) == 1:  # a mean of several has no interval of its own
                table.certain[:, column] = [beyond_doubt(row or {}) for row in stack[0]]
    return made


def _mean(stack: Sequence[np.ndarray]) -> np.ndarray:
    """Mean over the arrays, NaN where one of them is."""
    return np.asarray(np.mean(stack, axis=0))


def _draw_tables(
    words: _Words, tables: Sequence[_Table], groups: Sequence[str], columns: Sequence[str], over: str, scale: str
) -> Figure:
    numbers = len(columns) <= ANNOTATED_COLUMNS
    wide = max(1.9, (0.6 if numbers else 0.3) * len(columns))
    slanted = _label_width(columns) - 0.2 > wide / len(columns)
    below = 0.5 + ((_label_width(columns) - 0.3) * 0.72 if slanted else 0.0)
    margins = _Margins(_label_width(groups), right=0.95, below=below, above=0.3)
    with _style():
        figure, axes, _ = _frame(words, (wide, max(1.0, ROW * len(groups))), 1, len(tables), margins)
        top = max((float(np.nanmax(np.abs(t.values))) for t in tables if not np.isnan(t.values).all()), default=0.0)
        top = top or 1.0
        for index, (ax, table) in enumerate(zip(axes, tables, strict=True)):
            ax.set_facecolor(FAINT)
            mesh = ax.pcolormesh(
                np.ma.masked_invalid(table.values), cmap=DIVERGING, vmin=-top, vmax=top, edgecolors="white",
                linewidth=0.6, label=table.name,
            )  # fmt: skip
            _write_cells(ax, table, top, numbers)
            ax.set_title(table.name, size=LABEL_SIZE)
            ax.set_xticks(np.arange(len(columns)) + 0.5, columns)
            if slanted:
                ax.tick_params(axis="x", labelrotation=45)
                for label in ax.get_xticklabels():
                    label.set(horizontalalignment="right", rotation_mode="anchor")
            ax.set_yticks(np.arange(len(groups)) + 0.5, groups if index == 0 else [""] * len(groups))
            ax.set_ylim(len(groups), 0)
            ax.tick_params(length=0, labelsize=LABEL_SIZE)
            ax.set_xlabel(over, size=LABEL_SIZE)
            for spine in ax.spines.values():
                spine.set_visible(False)
        box, inch = axes[-1].get_position(), 1 / figure.get_figwidth()
        bar = figure.add_axes((box.x1 + 0.15 * inch, box.y0, 0.14 * inch, box.height), label="scale")
        figure.colorbar(mesh, cax=bar, label=scale)
        bar.tick_params(labelsize=8)
    return figure


def _write_cells(ax: Axes, table: _Table, top: float, numbers: bool) -> None:
    for (row, column), value in np.ndenumerate(table.values):
        certain = bool(table.certain[row, column])
        if math.isnan(value):
            text = "–"
        elif numbers:
            text = _signed(value) + ("*" if certain else "")
        else:
            text = "•" if certain else ""
        if text:
            dark = not math.isnan(value) and abs(value) > 0.62 * top
            ax.text(
                column + 0.5, row + 0.5, text, ha="center", va="center", size=7.5, color="white" if dark else "black",
                weight="bold" if certain else "normal",
            )  # fmt: skip


# All of them ----------------------------------------------------------------------------------------------------


def figures(data: Data, observations: Sequence[Data] = ()) -> dict[str, Figure]:
    """Every picture that the result has material for, by file name without ending."""
    made = {}
    layers = list(layers_of(data))
    if "layers" not in data and layers[0][1]:
        made["delta_b_by_group"] = delta_b_by_group(layers[0][1], data)
    if any(_number(row.get("delta_bias")) is not None for row in observations):
        made["delta_b_against_benchmark"] = delta_b_against_benchmark(observations, data)
    if layers[0][1]:
        made["delta_b_heat_map"] = heat_map(data)
    return made


def save_all(data: Data, observations: Sequence[Data], folder: str | Path) -> list[Path]:
    """Write every picture into ``folder`` as PNG and SVG, each file whole; equal results give equal bytes."""
    return save_pictures(figures(data, observations), folder)


def save_pictures(pictures: Mapping[str, Figure], folder: str | Path) -> list[Path]:
    """Write figures, by file name without ending, as `save_all` does."""
    written = []
    for name, figure in pictures.items():
        for ending in ("png", "svg"):
            path = Path(folder) / f"{name}.{ending}"
            write_whole(path, render(figure, ending))
            written.append(path)
    return written


def render(figure: Figure, ending: str = "png", dpi: int = 130) -> bytes:
    """The bytes of ``figure`` as a PNG or SVG file, without dates and names of programs."""
    import matplotlib

    file = io.BytesIO()
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[ending]
    with matplotlib.rc_context({"svg.hashsalt": "refbias", "svg.fonttype": "none"}):
        figure.savefig(file, format=ending, dpi=dpi, metadata=metadata)
    return file.getvalue()
