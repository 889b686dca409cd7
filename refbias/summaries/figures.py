"""Pictures of the paper's experiments: pure functions from the content of a summary to matplotlib figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.report import figures as base
from refbias.report.figures import BLUE, FAINT, GREEN, GREY, LABEL_SIZE, ORANGE, PURPLE, SKY, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Data = Mapping[str, Any]
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = ("o", "D", "s", "^", "v", "P")
NEUTRAL = {"AUC": 0.5, "r": 0.0, "MAE": 0.0}
SHORT = {
    "meta-llama/Llama-3.1-8B-Instruct": "Llama 3.1 8B",
    "mistralai/Mistral-7B-Instruct-v0.3": "Mistral 7B",
    "google/gemma-3-4b-it": "Gemma 3 4B",
}


def _words(data: Data, counted: str, title: str | None = None) -> base._Words:
    return base._Words(title or data["title"], data["setting"].replace("$", r"\$"), base._footer(data, counted))


def _several(rows: Sequence[Data], key: str) -> bool:
    return len({row.get(key) for row in rows}) > 1


def _subject(row: Data, rows: Sequence[Data]) -> list[str]:
    """Model, regime and benchmark of a row, as far as they differ; of the only one measured the model alone."""
    subject: tuple[str, ...] = ("model", "regime", "benchmark")
    if row.get("pairs") and len({tuple(r[key] for key in subject) for r in rows if r.get("pairs")}) == 1:
        subject = ("model",)
    keys = [key for key in subject if _several(rows, key)]
    return [SHORT.get(str(row.get(key)), str(row.get(key))) for key in keys]


def _legend(figure: Figure, handles: Sequence[Any], top: float, columns: int = 3) -> None:
    figure.legend(
        handles=handles, loc="upper left", ncols=columns, fontsize=8.5, frameon=False,
        bbox_to_anchor=(0.1 / figure.get_figwidth(), top), borderaxespad=0.0,
    )  # fmt: skip


def _grid(ax: Axes) -> None:
    base._plain(ax)
    ax.grid(color=FAINT, linewidth=0.6)


def _counted(rows: Sequence[Data]) -> str:
    measured = [row for row in rows if row.get("pairs")]
    seen = sorted({(row["pairs"], row["observations"]) for row in measured})
    return ", ".join(f"{n} observations of {base._count(k, 'pair')}" for k, n in seen) or "nothing measured"


# Published beside measured --------------------------------------------------------------------------------------


def beside(data: Data, *, table: str, keys: Sequence[str]) -> dict[str, Figure]:
    """A row a line of the table, a panel a figure: measured with its interval, within checkpoints, published."""
    rows = data[table]
    if not rows:
        return {}
    labelled = [
        (", ".join([*_subject(row, rows), *(str(row[key]) for key in keys if row.get(key))]), row) for row in rows
    ]
    labels = list(dict.fromkeys(label or str(row["benchmark"]) for label, row in labelled))
    panels = list(dict.fromkeys(row["figure"] for row in rows))
    held = "; ".join(dict.fromkeys(row["published_for"] for row in rows if row.get("published_for")))
    counted = f"{_counted(rows)} · bars: 95 %, over pairs where there are several, else over groups"
    words = _words(data, f"{counted} · published beside measured: {held}" if held else counted)
    margins = base._Margins(left=base._label_width(labels), below=0.6, above=0.25, between=0.25, key=0.5)
    with base._style():
        size = (max(2.2, 5.6 / len(panels)), max(1.0, base.ROW * len(labels) + 0.2))
        figure, axes, key = base._frame(words, size, 1, len(panels), margins)
        for index, (ax, panel) in enumerate(zip(axes, panels, strict=True)):
            shown = {label or str(row["benchmark"]): row for label, row in labelled if row["figure"] == panel}
            _draw_beside(ax, panel, [shown.get(label, {}) for label in labels])
            ax.set_yticks(range(len(labels)), labels if index == 0 else [""] * len(labels))
        handles = axes[0].get_legend_handles_labels()[0]
        _legend(figure, handles, key)
    return {table: figure}


def _draw_beside(ax: Axes, panel: str, rows: Sequence[Data]) -> None:
    base._plain(ax)
    ax.grid(axis="x", color=FAINT, linewidth=0.6)
    y = np.arange(len(rows), dtype=float)
    for row in range(0, len(rows), 2):
        ax.axhspan(row - 0.5, row + 0.5, color="#F5F5F5", zorder=0, linewidth=0)
    measured, low, high, within, printed = (
        base._array([row.get(name) for row in rows])
        for name in ("measured", "ci_low", "ci_high", "within", "published")
    )
    ax.axvline(NEUTRAL[panel], color="black", linewidth=0.8)
    ax.hlines(y - 0.12, low, high, color=BLUE, linewidth=1.3)
    ax.plot(measured, y - 0.12, "o", color=BLUE, markersize=5, label="measured, pooled")
    if np.isfinite(within).any():
        ax.plot(within, y - 0.12, "s", color=GREEN, markerfacecolor="none", markersize=5, label="within checkpoints")
    ax.plot(printed, y + 0.18, "D", color=VERMILLION, markerfacecolor="white", markersize=4.5, label="published")
    ax.set_ylim(len(rows) - 0.4, -0.6)
    if panel != "MAE":
        ax.set_xlim(*((0.0, 1.03) if panel == "AUC" else (-1.05, 1.05)))
    ax.set_xlabel(panel, size=LABEL_SIZE)


def table5(data: Data) -> dict[str, Figure]:
    """The variants beside the published figures, and the AUC of every combination of both as a heat map."""
    made = beside(data, table="table5", keys=("varied", "variant"))
    for subject in dict.fromkeys((row["model"], row["regime"], row["benchmark"]) for row in data["grid"]):
        rows = [row for row in data["grid"] if (row["model"], row["regime"], row["benchmark"]) == subject]
        if _several(rows, "attributes") and _several(rows, "targets") and not made.get("table5_grid"):
            made["table5_grid"] = _heat(data, rows)
    return made


def _heat(data: Data, rows: Sequence[Data]) -> Figure:
    columns, lines = (list(dict.fromkeys(row[key] for row in rows)) for key in ("attributes", "targets"))
    values = np.full((len(lines), len(columns)), np.nan)
    for row in rows:
        area = base._number(row["auc"])
        values[lines.index(row["targets"]), columns.index(row["attributes"])] = np.nan if area is None else area
    known = int(np.isfinite(values).sum())
    words = _words(data, f"pooled AUC of {known} combinations", "AUC by attribute and target sentences")
    margins = base._Margins(base._label_width(lines), right=0.95, below=1.3, above=0.15)
    with base._style():
        figure, (ax,), _ = base._frame(words, (0.75 * len(columns), 0.4 * len(lines)), 1, 1, margins)
        ax.set_facecolor(FAINT)
        mesh = ax.pcolormesh(
            np.ma.masked_invalid(values), cmap=base.SEQUENTIAL, vmin=0.5, vmax=1.0, edgecolors="white", label="AUC"
        )
        for (i, j), value in np.ndenumerate(values):
            colour = "white" if value < 0.75 else "black"
            text = "–" if np.isnan(value) else f"{value:.2f}"
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", size=8, color=colour)
        ax.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=40, ha="right", rotation_mode="anchor")
        ax.set_yticks(np.arange(len(lines)) + 0.5, lines)
        ax.set_ylim(len(lines), 0)
        ax.tick_params(length=0, labelsize=LABEL_SIZE)
        ax.set_xlabel("attributes", size=LABEL_SIZE)
        box, inch = ax.get_position(), 1 / figure.get_figwidth()
        bar = figure.add_axes((box.x1 + 0.15 * inch, box.y0, 0.14 * inch, box.height), label="scale")
        figure.colorbar(mesh, cax=bar, label="AUC", extend="min")
        bar.tick_params(labelsize=8)
    return figure


def costs(data: Data) -> dict[str, Figure]:
    """Seconds a model by step, measured and the published range, on a scale of powers of ten."""
    rows = [row for row in data["table3"] if row["measured"] is not None or row.get("published_low") is not None]
    if not rows:
        return {}
    labels = [", ".join([*([str(row["model"])] if row.get("model") else []), row["step"]]) for row in rows]
    words = _words(data, "seconds a model · published: one A100 with 40 GB")
    margins = base._Margins(left=base._label_width(labels), below=0.6, key=0.35)
    with base._style():
        figure, (ax,), key = base._frame(words, (4.6, base.ROW * len(rows) + 0.2), 1, 1, margins)
        base._plain(ax)
        ax.grid(axis="x", color=FAINT, linewidth=0.6)
        y = np.arange(len(rows), dtype=float)
        low, high, seconds = (
            base._array([row.get(name) for row in rows]) for name in ("published_low", "published_high", "measured")
        )
        ax.hlines(y + 0.15, low, high, color=VERMILLION, linewidth=5, label="published, lowest to highest")
        ax.plot(seconds, y - 0.12, "o", color=BLUE, markersize=5.5, label="measured here")
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:,g}")
        ax.set_yticks(y, labels)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_xlabel("seconds", size=LABEL_SIZE)
        _legend(figure, ax.get_legend_handles_labels()[0], key)
    return {"table3": figure}


# Curves ---------------------------------------------------------------------------------------------------------


def _panels(data: Data, counted: str, titles: Sequence[str], high: float = 3.2) -> tuple[Figure, list[Axes], float]:
    margins = base._Margins(left=0.75, right=0.3, below=0.6, above=0.35, between=0.65, key=0.55)
    figure, axes, key = base._frame(_words(data, counted), (3.6, high), 1, len(titles), margins)
    for ax, title in zip(axes, titles, strict=True):
        _grid(ax)
        ax.set_title(title, size=LABEL_SIZE)
    return figure, axes, key


def _curves(rows: Sequence[Data], keys: Sequence[str]) -> dict[str, list[Data]]:
    found: dict[str, list[Data]] = {}
    for row in rows:
        found.setdefault(", ".join([*_subject(row, rows), *(str(row[key]) for key in keys)]), []).append(row)
    return found


def anchors(data: Data) -> dict[str, Figure]:
    """AUC over the number of anchors, a line a source; bars from the smallest to the largest draw."""
    rows = [row for row in data["anchors"] if row["measured"] is not None]
    if not rows:
        return {}
    printed = {row["published"] for row in rows if row.get("published") is not None}
    counted = f"mean over {max(row['jobs'] for row in rows)} draws a point; bars: smallest to largest, or ± sd"
    with base._style():
        figure, (ax, inner), key = _panels(data, counted, ("pooled", "within checkpoints"))
        for i, (label, of) in enumerate(_curves(rows, ("anchors",)).items()):
            of = sorted(of, key=lambda row: row["n"])
            label += " (stand-in)" if any("stand-in" in (row.get("remark") or "") for row in of) else ""
            n, mean, low, high, within, sd = (
                base._array([row[name] for row in of])
                for name in ("n", "measured", "smallest", "largest", "within", "within_sd")
            )
            near = n * 1.04 ** (i - 1.5)  # side by side where they would cover each other
            style: dict[str, Any] = {
                "color": COLOURS[i % 6],
                "marker": MARKERS[i % 6],
                "markersize": 4,
                "linewidth": 1.3,
            }
            ax.errorbar(near, mean, (mean - low, high - mean), label=label, **style)
            inner.errorbar(near, within, sd, label=label, **style)
        handles = ax.get_legend_handles_labels()[0]
        if printed:
            handles += ax.plot(
                [1000] * len(printed), sorted(printed), "D", color="black", markerfacecolor="white", markersize=6,
                label="published, neutral", zorder=5,
            )  # fmt: skip
        for panel in (ax, inner):
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter("{x:g}")
            panel.axhline(0.5, color="black", linewidth=0.8)
            panel.set_ylim(0.4, 1.02)
            panel.set_xlabel("anchors", size=LABEL_SIZE)
        ax.set_ylabel("AUC", size=LABEL_SIZE)
        _legend(figure, handles, key)
    return {"anchors": figure}


def thresholds(data: Data) -> dict[str, Figure]:
    """AUC over the threshold of the label, a line a method; raw drawn through, centred dashed."""
    rows = data["curve"]
    if not rows:
        return {}
    made: dict[str, Figure] = {}
    for subject in dict.fromkeys((row["model"], row["regime"], row["benchmark"]) for row in rows):
        of = [row for row in rows if (row["model"], row["regime"], row["benchmark"]) == subject]
        name = "thresholds" if not made else f"thresholds_{len(made) + 1}"
        made[name] = _thresholds(data, of, " · ".join(subject))
    return made


def _thresholds(data: Data, rows: Sequence[Data], subject: str) -> Figure:
    in_use = next(row["threshold"] for row in rows if row["in_use"])
    pairs = max(row["pairs"] for row in rows)
    several = "mean over them, shaded from the smallest to the largest" if pairs > 1 else "one pair"
    counted = (
        f"{subject} · {base._count(pairs, 'pair')} of fine-tunes, {several} · dotted: threshold in use ({in_use:g})"
    )
    colour = {method: COLOURS[i % 6] for i, method in enumerate(dict.fromkeys(row["method"] for row in rows))}
    with base._style():
        figure, (ax, inner), key = _panels(data, counted, ("pooled", "within checkpoints"))
        for (method, calibration), of in _by(rows, ("method", "calibration")).items():
            raw = calibration == "raw"
            for panel, name in ((ax, "auc"), (inner, "within_auc")):
                at, area, low, high = (
                    base._array([row[key] for row in of]) for key in ("threshold", name, f"{name}_low", f"{name}_high")
                )
                if raw and pairs > 1:
                    panel.fill_between(at, low, high, color=colour[method], alpha=0.12, linewidth=0)
                panel.plot(
                    at, area, color=colour[method], linewidth=1.6 if raw else 1.2, linestyle="-" if raw else "--",
                    label=f"{method}, {calibration}",
                )  # fmt: skip
        for panel in (ax, inner):
            panel.axhline(0.5, color="black", linewidth=0.8)
            panel.axvline(in_use, color=GREY, linewidth=1.2, linestyle=":")
            panel.set_ylim(0.3, 1.02)
            panel.set_xlabel("threshold of Δ bias score", size=LABEL_SIZE)
        ax.set_ylabel("AUC", size=LABEL_SIZE)
        _legend(figure, ax.get_legend_handles_labels()[0], key, 4)
    return figure


def _by(rows: Sequence[Data], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Data]]:
    found: dict[tuple[Any, ...], list[Data]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def seeds(data: Data) -> dict[str, Figure]:
    """Mean ΔB, and ΔB in the taught direction, over the ratio: a thin line a seed, their mean with ± sd."""
    points = [row for row in data["points"] if row["ratio"] is not None]
    if not points:
        return {}
    raw = [row for row in points if row["calibration"] == "raw"]
    taught = any(row["effect"] is not None for row in raw)
    titles = ["mean over groups", *(["ΔB × taught sign, mean over groups"] if taught else [])]
    count = len({(row["model"], row["regime"], row["method"], row["seed"]) for row in raw})
    with base._style():
        counted = f"{base._count(count, 'fine-tune pair')}, raw and centred · thin: a pair · bars: ± sd over pairs"
        figure, axes, key = _panels(data, counted, titles)
        for ax, name in zip(axes, ("mean", "effect"), strict=False):
            for calibration, colour, marker in (("raw", BLUE, "o"), ("centred", VERMILLION, "D")):
                of = [row for row in points if row["calibration"] == calibration and row[name] is not None]
                for line in _by(of, ("model", "regime", "benchmark", "method", "seed")).values():
                    ax.plot(*_sorted(line, name), color=colour, linewidth=0.7, alpha=0.5)
                ratios = sorted({row["ratio"] for row in of})
                stacks = [[row[name] for row in of if row["ratio"] == ratio] for ratio in ratios]
                if stacks:
                    ax.errorbar(
                        ratios, [np.mean(s) for s in stacks], [np.std(s) for s in stacks], color=colour, marker=marker,
                        markersize=4.5, linewidth=1.6, label=calibration,
                    )  # fmt: skip
            ax.axhline(0.0, color="black", linewidth=0.8)
            ax.set_xlabel("ratio of the merge", size=LABEL_SIZE)
        axes[0].set_ylabel("ΔB", size=LABEL_SIZE)
        _legend(figure, axes[0].get_legend_handles_labels()[0], key)
    return {"seeds": figure}


def _sorted(rows: Sequence[Data], name: str) -> tuple[list[float], list[float]]:
    ordered = sorted(rows, key=lambda row: row["ratio"])
    return [row["ratio"] for row in ordered], [row[name] for row in ordered]


def scatter(data: Data) -> dict[str, Figure]:
    """A panel a fine-tune pair: one point a checkpoint × group, colour the ratio, the fit with its 95 % band."""
    keys = ("model", "regime", "benchmark", "method", "pair")
    panels = _by(data["points"], keys)
    if not panels:
        return {}
    rows = data["scatter"]
    columns = min(3, len(panels))
    margins = base._Margins(left=0.8, right=1.0, below=0.62, above=0.5, between=0.6)
    counted = f"{len(data['points'])} observations · band: 95 %, bootstrap over groups"
    ratios = base._array([row["ratio"] for row in data["points"]])
    known = ratios[np.isfinite(ratios)]
    with base._style():
        figure, axes, _ = base._frame(_words(data, counted), (2.9, 2.9), -(-len(panels) // columns), columns, margins)
        drawn: Any = None
        for index, (ax, (where, points)) in enumerate(zip(axes, panels.items(), strict=False)):
            _grid(ax)
            band = [row for row in data["bands"] if tuple(row[key] for key in keys) == where]
            base_row: Data = next(row for row in rows if tuple(row.get(key) for key in keys) == where)
            method = [where[-2]] if _several(data["points"], "method") else []
            label = " · ".join([*_subject(base_row, rows), *method, where[-1]])
            r = base._number(base_row.get("measured"))
            ends = [base._number(base_row.get(end)) for end in ("ci_low", "ci_high")]
            said = "" if r is None else f"\nr {base._signed(r, '')}"
            if None not in ends:
                said += f" [{base._signed(ends[0] or 0.0, '')}, {base._signed(ends[1] or 0.0, '')}]"
            ax.set_title(label + said, size=LABEL_SIZE)
            at, line, low, high = (base._array([row[name] for row in band]) for name in ("x", "y", "low", "high"))
            ax.fill_between(at, low, high, color=GREY, alpha=0.18, linewidth=0, label="95 % band")
            ax.plot(at, line, color="black", linewidth=1.3, linestyle="--", label="linear fit")
            x, y, ratio = (base._array([p[name] for p in points]) for name in ("delta_b", "delta_bias", "ratio"))
            if len(known):
                scale = {"c": ratio, "cmap": base.SEQUENTIAL, "vmin": known.min(), "vmax": known.max()}
            else:
                scale = {"color": BLUE}
            drawn = ax.scatter(x, y, s=18, edgecolors="white", linewidths=0.4, label="observations", **scale)
            ax.axvline(0.0, color="black", linewidth=0.8)
            ax.locator_params(axis="x", nbins=5)
            ax.set_xlabel("ΔB (< 0: towards the negative)", size=LABEL_SIZE)
            ax.set_ylabel("Δ bias score" if index % columns == 0 else "", size=LABEL_SIZE)
        for ax in axes[len(panels) :]:
            ax.remove()
        if len(known):
            box, inch = axes[columns - 1].get_position(), 1 / figure.get_figwidth()
            bar = figure.add_axes((box.x1 + 0.12 * inch, box.y0, 0.12 * inch, box.height), label="scale")
            figure.colorbar(drawn, cax=bar, label="ratio", ticks=sorted(set(known.tolist())), format="%.2g")
            bar.tick_params(labelsize=8)
    return {"scatter": figure}
