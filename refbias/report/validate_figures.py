"""Pictures of task=validate: shifts against the benchmark, AUC over thresholds, reliability of the probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from refbias.report import figures as base
from refbias.report.figures import BLUE, FAINT, GREY, LABEL_SIZE, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Data = Mapping[str, Any]


def validate_figures(data: Data) -> dict[str, Figure]:
    """Every picture that the result has material for, by file name without ending."""
    made = {"delta_b_against_benchmark": scatter(data), "threshold_sweep": threshold_sweep(data)}
    if data["reliability"]:
        made["reliability"] = reliability(data)
    return made


def _symbol(data: Data) -> str:
    metric = data["about"].get("metric")
    return "ΔB" if metric in (None, "delta_b") else f"{metric} shift"


def _setting(data: Data) -> str:
    about = data["about"]
    parts = [base._short(str(data["settings"].get("task.path") or "observations of one's own"), 60)]
    if about.get("benchmark"):
        parts.append(f"benchmark {base._short(str(about['benchmark']), 40)}")
    parts.append(", ".join(base._count(about[f"{noun}s"], noun) for noun in ("run", "checkpoint", "group")))
    return " · ".join(parts)


def _value(data: Data, figure: str) -> Data:
    return next(row for row in data["agreement"] if row["figure"] == figure)


def _said(row: Data, label: str) -> str:
    """A figure with its interval, or why it is missing."""
    if row["value"] is None:
        return f"{label} not computed ({base._short(str(row['reason']), 60)})"
    text = f"{label}\u00a0{base._signed(row['value'], '')}"
    if row["ci_low"] is None:
        return text
    return f"{text} [{base._signed(row['ci_low'], '')}, {base._signed(row['ci_high'], '')}]"


def scatter(data: Data) -> Figure:
    """Shift against the benchmark's shift, one point an observation, with the linear fit and its 95 % band.

    Colour is the ratio where checkpoints form a spectrum, else the checkpoint; the band is by the bootstrap over
    groups.
    """
    points = data["observations"]
    about, symbol = data["about"], _symbol(data)
    agreed = [_said(_value(data, name), label) for name, label in (("pearson", "r"), ("auc", "AUC"))]
    inner = [_said(_value(data, f"within_{name}"), label) for name, label in (("pearson", "r"), ("auc", "AUC"))]
    counted = f"{base._count(len(points), 'observation')} · above the dotted line ({about['threshold']:g}): more biased"
    counted += " · intervals and band: 95 %, bootstrap over groups"
    words = base._Words(
        f"{symbol} against the benchmark",
        f"{_setting(data)}\npooled: {', '.join(agreed)}\nwithin checkpoints: {', '.join(inner)}",
        base._footer(data, counted),
    )
    names = [f"{p['run']} / {p['checkpoint']}" if about["runs"] > 1 else str(p["checkpoint"]) for p in points]
    checkpoints = list(dict.fromkeys(names))
    ratios = {base._number(row.get("ratio")) for row in points}
    spectrum = None not in ratios and len(ratios) > 1
    few = len(checkpoints) <= 12  # a key of more would be longer than the picture
    aside = 1.0 if spectrum else min(3.0, base._label_width(checkpoints) + 0.3) if few else 0.3
    with base._style():
        figure, (ax,), _ = base._frame(words, (5.6, 4.2), 1, 1, base._Margins(left=0.85, right=aside, below=0.65))
        base._plain(ax)
        ax.grid(color=FAINT, linewidth=0.6)
        ax.axvline(0.0, color="black", linewidth=1.0, label="zero")
        ax.axhline(about["threshold"], color=GREY, linewidth=1.2, linestyle=":", label="threshold")
        ax.set_xlabel(base._axis_words(symbol, about["directed"]), size=LABEL_SIZE)
        unit = f" ({about['unit']})" if about.get("unit") else ""
        ax.set_ylabel(base._short(f"Δ bias score{unit}", 60), size=LABEL_SIZE)
        _band(ax, data)
        x, y = (base._array([row[column] for row in points]) for column in ("delta_b", "delta_bias"))
        if spectrum:
            base._by_ratio(figure, ax, x, y, points)
        elif few:
            rows = [{"checkpoint": name} for name in names]
            base._by_checkpoint(ax, x, y, rows, checkpoints)
        else:
            ax.scatter(x, y, color=BLUE, s=22, edgecolors="white", linewidths=0.5, label="observations")
    return figure


def _band(ax: Axes, data: Data) -> None:
    if not data["fit"]:
        return
    at, line, low, high = (base._array([row[name] for row in data["fit"]]) for name in ("x", "y", "low", "high"))
    ax.fill_between(at, low, high, color=GREY, alpha=0.18, linewidth=0, label="95 % band")
    ax.plot(at, line, color="black", linewidth=1.3, linestyle="--", label="linear fit")


def threshold_sweep(data: Data) -> Figure:
    """AUC over the threshold of the label, pooled and within checkpoints, with how many are more biased."""
    rows, about = data["thresholds"], data["about"]
    ceiling = _value(data, "auc_ceiling")["value"]
    counted = f"{about['observations']} observations · dotted: the threshold in use ({about['threshold']:g})"
    if ceiling is not None:
        counted += f" · dashed: what label noise allows there ({base._signed(ceiling, '')})"
    words = base._Words("AUC over the threshold of the label", _setting(data), base._footer(data, counted))
    margins = base._Margins(left=0.75, right=0.75, below=0.6, key=0.3)
    with base._style():
        figure, (ax,), key = base._frame(words, (5.6, 3.4), 1, 1, margins)
        base._plain(ax)
        ax.grid(color=FAINT, linewidth=0.6)
        at, positive = (base._array([row[name] for row in rows]) for name in ("threshold", "n_positive"))
        counts = ax.twinx()
        counts.fill_between(at, positive, color=FAINT, alpha=0.6, linewidth=0, label="more biased")
        counts.set_ylabel("observations labelled more biased", size=LABEL_SIZE, color=GREY)
        counts.tick_params(length=0, labelsize=8, colors=GREY)
        counts.set_ylim(0, None)
        for side in ("top", "left", "right", "bottom"):
            counts.spines[side].set_visible(False)
        ax.set_zorder(counts.get_zorder() + 1)
        ax.patch.set_visible(False)
        for name, colour, shown in (("auc", BLUE, "pooled"), ("within_auc", VERMILLION, "within checkpoints")):
            values = base._array([row[name] for row in rows])
            ax.plot(at, values, color=colour, marker="o", markersize=3, linewidth=1.3, label=shown)
        handles = ax.get_lines()[:2]
        ax.axhline(0.5, color="black", linewidth=0.8, label="chance")
        if ceiling is not None:
            ax.axhline(ceiling, color=GREY, linewidth=1.0, linestyle="--", label="ceiling")
        ax.axvline(about["threshold"], color=GREY, linewidth=1.2, linestyle=":", label="threshold")
        ax.set_ylim(0, 1.03)
        ax.set_xlabel("threshold of Δ bias score", size=LABEL_SIZE)
        ax.set_ylabel("AUC", size=LABEL_SIZE)
        figure.legend(
            handles=handles, loc="upper left", ncols=2, fontsize=8.5, frameon=False,
            bbox_to_anchor=(0.1 / figure.get_figwidth(), key), borderaxespad=0.0,
        )  # fmt: skip
    return figure


def reliability(data: Data) -> Figure:
    """Observed share of "more biased" over the predicted probability, each run predicted from the others."""
    rows, checked = data["reliability"], data["calibration"]["checked"]
    said = f"Brier score {checked['brier']:.3f}, of the base rate {checked['brier_base_rate']:.3f}"
    if checked["brier_skill"] is not None:
        said += f", skill {base._signed(checked['brier_skill'])}"
    words = base._Words(
        "Reliability of P(more biased | shift)",
        f"{_setting(data)}\n{said}",
        base._footer(
            data, f"each run predicted from the others · {len(rows)} bins of about {rows[0]['n']} observations"
        ),
    )
    with base._style():
        figure, (ax,), _ = base._frame(words, (3.8, 3.8), 1, 1, base._Margins(left=0.75, below=0.6))
        base._plain(ax)
        ax.grid(color=FAINT, linewidth=0.6)
        ax.plot([0, 1], [0, 1], color="black", linewidth=0.8, label="perfect")
        predicted, observed = (base._array([row[name] for row in rows]) for name in ("predicted", "observed"))
        ax.plot(predicted, observed, color=BLUE, linewidth=1.0)
        ax.scatter(predicted, observed, s=30, color=BLUE, label="bins")
        ax.set_xlim(-0.03, 1.03)
        ax.set_ylim(-0.03, 1.03)
        ax.set_xlabel("predicted probability", size=LABEL_SIZE)
        ax.set_ylabel("observed share", size=LABEL_SIZE)
    return figure
