"""Pictures of task=sensitivity: power by layer and pooling, power over the dose, scores against random directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.report import figures as base
from refbias.report.figures import BLUE, FAINT, GREEN, GREY, LABEL_SIZE, ORANGE, PURPLE, SEQUENTIAL, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Data = Mapping[str, Any]

CELL = ("layer", "pooling", "skip", "calibration", "geometry", "metric")
COLOURS = {"valence": BLUE, "own": GREEN, "probe": ORANGE, "all_one_way": PURPLE}
MARKERS = {"valence": "o", "own": "s", "probe": "^", "all_one_way": "D"}
SHOWN = {"valence": "valence", "own": "own part a group", "probe": "trained probe", "all_one_way": "all one way"}


def sensitivity_figures(data: Data) -> dict[str, Figure]:
    """Every picture that the result has material for, by file name without ending."""
    recommended = _role(data, "recommended")
    if recommended is None:
        return {}
    return {
        "sensitivity_map": sensitivity_map(data, recommended),
        "power_over_dose": power_over_dose(data, recommended),
        "planted_scores": planted_scores(data, recommended),
    }


def _role(data: Data, role: str) -> Data | None:
    """The row of the first geometry with this role."""
    geometry = data["about"]["geometries"][0]
    rows = [row for row in data["recommended"] if row["geometry"] == geometry and row["role"] == role]
    return rows[0] if rows else None


def _same(row: Data, cell: Data) -> bool:
    return all(row[key] == cell[key] for key in CELL)


def _words(row: Data) -> str:
    skip = "" if row["skip"] == "none" else f" without {row['skip']}"
    return f"layer {row['layer']}, {row['pooling']}{skip}, calibration {row['calibration']}, {row['geometry']}"


def _setting(data: Data, more: str = "") -> str:
    model, edit, count = data["reference"], data["edit"], data["about"]["sentences"]
    return (
        f"model {base._short(str(model['name']), 48)}, block {edit['block']} of {model['layers']} edited{more}\n"
        f"{count['groups']} groups · {count['targets']} targets, {count['attributes']} attributes, {count['anchors']} "
        "anchors · power for planted edits: other kinds of change may be missed"
    )


def sensitivity_map(data: Data, recommended: Data) -> Figure:
    """Held-out power, mean over doses and families, by layer and pooling at the recommended calibration and geometry.

    The recommended cell has a frame, the default one a dashed frame.
    """
    fixed = ("calibration", "geometry", "metric")
    rows = [row for row in data["sensitivity"] if all(row[key] == recommended[key] for key in fixed)]
    layers = sorted({row["layer"] for row in rows}, reverse=True)
    columns = list(dict.fromkeys((row["pooling"], row["skip"]) for row in rows))
    values = np.full((len(layers), len(columns)), np.nan)
    for row in rows:
        values[layers.index(row["layer"]), columns.index((row["pooling"], row["skip"]))] = _value(row["power"])
    n = recommended["n_planted"] * len(data["about"]["doses"])
    doses = ", ".join(f"{dose:g}" for dose in data["about"]["doses"])
    counted = (
        f"share of {n} planted edits found (doses {doses}), {data['about']['rate']:.0%} false alarms wanted; edits "
        f"that the choice did not see · frame: recommended, of {recommended['alternatives']} settings"
    )
    default = _role(data, "default")
    if default is not None and any(_same(row, default) for row in rows):
        counted += "; dashed: default"
    words = base._Words(
        f"Power by layer and pooling: calibration {recommended['calibration']}, geometry {recommended['geometry']}",
        _setting(data),
        base._footer(data, counted),
    )
    with base._style():
        margins = base._Margins(left=0.75, right=1.1, below=0.75, above=0.15)
        panel = (max(3.0, 0.85 * len(columns)), max(1.2, 0.3 * len(layers)))
        figure, (ax,), _ = base._frame(words, panel, 1, 1, margins)
        base._plain(ax)
        ax.set_facecolor(FAINT)
        mesh = ax.pcolormesh(np.ma.masked_invalid(values), cmap=SEQUENTIAL, vmin=0, vmax=1, edgecolors="white")
        for i, j in zip(*np.nonzero(np.isfinite(values)), strict=True):
            tone = "white" if values[i, j] < 0.6 else "black"
            ax.text(j + 0.5, i + 0.5, f"{values[i, j]:.2f}", ha="center", va="center", size=7.5, color=tone)
        _frame_cell(ax, layers, columns, recommended, "-", "recommended")
        if default is not None and any(_same(row, default) for row in rows):
            _frame_cell(ax, layers, columns, default, "--", "default")
        ax.set_ylim(len(layers), 0)
        ax.set_xticks(np.arange(len(columns)) + 0.5, [p if s == "none" else f"{p}\nno {s}" for p, s in columns])
        ax.set_yticks(np.arange(len(layers)) + 0.5, [str(layer) for layer in layers])
        ax.set_ylabel("layer", size=LABEL_SIZE)
        _scale(figure, ax, mesh, "power")
    return figure


def _value(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _frame_cell(
    ax: Axes, layers: Sequence[int], columns: Sequence[tuple[str, str]], row: Data, style: str, label: str
) -> None:
    from matplotlib.patches import Rectangle

    place = (columns.index((row["pooling"], row["skip"])) + 0.04, layers.index(row["layer"]) + 0.06)
    ax.add_patch(Rectangle(place, 0.92, 0.88, fill=False, edgecolor=VERMILLION, linewidth=2, linestyle=style,
                           label=label))  # fmt: skip


def _scale(figure: Figure, ax: Axes, drawn: Any, label: str) -> None:
    box, inch = ax.get_position(), 1 / figure.get_figwidth()
    bar = figure.add_axes((box.x1 + 0.15 * inch, box.y0, 0.14 * inch, box.height), label="scale")
    figure.colorbar(drawn, cax=bar, label=label)
    bar.tick_params(labelsize=8)


def power_over_dose(data: Data, recommended: Data) -> Figure:
    """Held-out power over the dose, of all families and of each, with the false alarms of random directions.

    One panel for the recommended setting and one for the default one, where they differ.
    """
    default = _role(data, "default")
    shown = [("recommended", recommended)]
    if default is not None and not _same(default, recommended):
        shown.append(("default", default))
    about = data["about"]
    per_dose = recommended["n_planted"]
    counted = (
        f"bars: 95 % (Wilson), {per_dose} edits a dose; crosses: random directions above the threshold · edits that "
        f"the choice did not see · dotted: {about['wanted_power']:g} wanted, and {about['rate']:g} false alarms"
    )
    words = base._Words("Power over the dose of planted edits", _setting(data), base._footer(data, counted))
    with base._style():
        margins = base._Margins(left=0.75, below=0.6, above=0.5, between=0.3, key=0.3)
        figure, axes, key = base._frame(words, (3.4, 3.0), 1, len(shown), margins)
        handles: list[Any] = []
        for index, (ax, (role, cell)) in enumerate(zip(axes, shown, strict=True)):
            base._plain(ax)
            ax.grid(color=FAINT, linewidth=0.6)
            for level, label in ((about["wanted_power"], "wanted power"), (about["rate"], "wanted false alarms")):
                ax.axhline(level, color=GREY, linewidth=1.0, linestyle=":", label=label)
            handles = _draw_powers(ax, [row for row in data["power"] if _same(row, cell)])
            ax.set_title(f"{role}: layer {cell['layer']}, {_words(cell).partition(', ')[2]}", size=8)
            ax.set_ylim(-0.04, 1.04)
            ax.set_xlabel("dose, of the norm at the noun", size=LABEL_SIZE)
            if index:
                ax.set_yticklabels([])
        axes[0].set_ylabel("share above the threshold", size=LABEL_SIZE)
        figure.legend(
            handles=handles, loc="upper left", ncols=len(handles), fontsize=8, frameon=False, columnspacing=1.2,
            bbox_to_anchor=(0.1 / figure.get_figwidth(), key), borderaxespad=0.0,
        )  # fmt: skip
    return figure


def _draw_powers(ax: Axes, rows: Sequence[Data]) -> list[Any]:
    doses = sorted({row["dose"] for row in rows})
    families = list(dict.fromkeys(row["family"] for row in rows))
    places = {dose: i for i, dose in enumerate(doses)}
    ax.set_xticks(range(len(doses)), [f"{dose:g}" for dose in doses])
    ax.set_xlim(-0.4, len(doses) - 0.6)
    handles = []

    def drawn(some: Sequence[Data], offset: float, **style: Any) -> None:
        x, y = [places[row["dose"]] + offset for row in some], [_value(row["share"]) for row in some]
        handles.extend(ax.plot(x, y, **style))

    whole = [row for row in rows if row["family"] == "all"]
    ax.vlines(
        [places[row["dose"]] for row in whole], [_value(row["ci_low"]) for row in whole],
        [_value(row["ci_high"]) for row in whole], color="black", linewidth=1.2, label="interval",
    )  # fmt: skip
    drawn(whole, 0.0, color="black", marker="o", markersize=5, linewidth=1.5, label="all families")
    for number, family in enumerate(f for f in families if f in COLOURS):
        some = [row for row in rows if row["family"] == family]
        drawn(some, 0.08 * (number + 1), color=COLOURS[family], marker=MARKERS[family], markersize=4, linewidth=0.8,
              label=SHOWN[family])  # fmt: skip
    alarms = []
    for dose in doses:
        nulls = [row for row in rows if row["dose"] == dose and row["family"] not in ("all", *COLOURS)]
        n = sum(row["n"] for row in nulls)
        alarms.append({"dose": dose, "share": sum(row["found"] for row in nulls) / n if n else None})
    drawn(alarms, -0.1, color=GREY, marker="x", markersize=6, linewidth=0, label="random directions")
    return handles


def planted_scores(data: Data, recommended: Data) -> Figure:
    """Scores at the recommended setting over the dose: those of random directions as a band, planted ones beside it.

    A panel a kind of score: AUC where halves of the groups are moved apart, the mean where all are moved one way.
    """
    rows = [row for row in data["scores"] if _same(row, recommended)]
    nulls = list(dict.fromkeys(row["null"] for row in rows))
    labels = {"random": "AUC of −shift", "random_one_way": "mean of −shift / dose"}
    counted = "bands and bars: quantiles 5 to 95 % and the median, of edits of both halves · dashed: the threshold"
    words = base._Words(
        "Planted edits against random directions of the same norm",
        _setting(data) + f"\nrecommended setting: {_words(recommended)}",
        base._footer(data, counted),
    )
    with base._style():
        margins = base._Margins(left=0.75, below=0.6, above=0.15, between=0.75, key=0.3)
        figure, axes, key = base._frame(words, (3.1, 3.0), 1, len(nulls), margins)
        handles: dict[str, Any] = {}
        for ax, null in zip(axes, nulls, strict=True):
            base._plain(ax)
            ax.grid(color=FAINT, linewidth=0.6)
            handles |= _draw_scores(ax, [row for row in rows if row["null"] == null], null)
            ax.set_xlabel("dose, of the norm at the noun", size=LABEL_SIZE)
            ax.set_ylabel(labels.get(null, "score"), size=LABEL_SIZE)
        figure.legend(
            handles=list(handles.values()), loc="upper left", ncols=len(handles), fontsize=8, frameon=False,
            columnspacing=1.2, bbox_to_anchor=(0.1 / figure.get_figwidth(), key), borderaxespad=0.0,
        )  # fmt: skip
    return figure


def _draw_scores(ax: Axes, rows: Sequence[Data], null: str) -> dict[str, Any]:
    doses = sorted({row["dose"] for row in rows})
    at = np.arange(len(doses))
    ax.set_xticks(at, [f"{dose:g}" for dose in doses])
    ax.set_xlim(-0.4, len(doses) - 0.6)

    def quantile(family: str, name: str) -> Any:
        found = {row["dose"]: row[name] for row in rows if row["family"] == family}
        return base._array([found.get(dose) for dose in doses])

    band = ax.fill_between(
        at, quantile(null, "q05"), quantile(null, "q95"), color=GREY, alpha=0.2, linewidth=0, label="random directions"
    )
    ax.plot(at, quantile(null, "q50"), color=GREY, linewidth=1.0, label="random median")
    ax.plot(at, quantile(null, "threshold"), color="black", linewidth=1.0, linestyle="--", label="threshold")
    handles: dict[str, Any] = {"null": band}
    families = list(dict.fromkeys(row["family"] for row in rows if row["family"] != null))
    for number, family in enumerate(families):
        x = at + 0.1 * (number - (len(families) - 1) / 2)
        colour = COLOURS.get(family, BLUE)
        ax.vlines(
            x, quantile(family, "q05"), quantile(family, "q95"), color=colour, linewidth=1.3, label=f"{family} bar"
        )
        (handles[family],) = ax.plot(
            x, quantile(family, "q50"), color=colour, marker=MARKERS.get(family, "o"), markersize=5, linewidth=0,
            label=SHOWN.get(family, family),
        )  # fmt: skip
    return handles
