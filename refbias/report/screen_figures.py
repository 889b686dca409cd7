"""Pictures of two stages: which checkpoints alarmed, and what a threshold costs and finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.report import figures as base
from refbias.report.figures import BLUE, FAINT, GREY, LABEL_SIZE, ROW, VERMILLION

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Data = Mapping[str, Any]


def screen_figures(data: Data) -> dict[str, Figure]:
    """Every picture of task=screen, by file name without ending."""
    return {"screen": alarms(data)} if data["screened"] else {}


def alarms(data: Data) -> Figure:
    """The shifts of every checkpoint, one point a group, with the threshold; those that alarmed in colour."""
    rows, alarm = data["screened"], data["alarm"]
    names = [str(row["checkpoint"]) for row in rows]
    raised = sum(row["alarmed"] for row in rows)
    counted = f"{raised} of {base._count(len(rows), 'checkpoint')} alarmed; the others were not benchmarked"
    layer = f"layer {data['layer']}"
    words = base._Words(
        f"Which checkpoints went on to {data['signal']['name']}",
        f"{base._setting(data, layer)}\nalarm: {data['conventions']['alarm']}",
        base._footer(data, counted),
    )
    margins = base._Margins(left=base._label_width([base._short(name, 32) for name in names]), below=0.6, key=0.3)
    with base._style():
        figure, (ax,), key = base._frame(words, (5.0, max(1.2, ROW * len(rows))), 1, 1, margins)
        base._plain(ax)
        ax.grid(axis="x", color=FAINT, linewidth=0.6)
        for label, colour, which in (("alarm", VERMILLION, True), ("skipped", BLUE, False)):
            chosen = [row for row in data["observations"] if row["alarmed"] is which and row["delta_b"] is not None]
            x = base._array([row["delta_b"] for row in chosen])
            y = [names.index(str(row["checkpoint"])) for row in chosen]
            ax.scatter(x, y, s=18, color=colour, alpha=0.7, linewidths=0, label=f"a group, {label}")
        means = base._array([row["mean_delta_b"] for row in rows])
        ax.scatter(means, range(len(rows)), s=70, marker="|", color="black", linewidths=2, label="mean")
        ax.axvline(0.0, color="black", linewidth=0.8)
        if alarm["threshold"] is not None:
            ax.axvline(alarm["threshold"], color=GREY, linewidth=1.2, linestyle=":", label="threshold")
        ax.set_yticks(range(len(rows)), [base._short(name, 32) for name in names])
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xlabel(base._axis_words(base._symbol(data), alarm["directed"]), size=LABEL_SIZE)
        figure.legend(
            loc="upper left", ncols=4, fontsize=8.5, frameon=False,
            bbox_to_anchor=(0.1 / figure.get_figwidth(), key), borderaxespad=0.0,
        )  # fmt: skip
    return figure


def cost_and_recall(curves: Mapping[str, Sequence[Data]], best: Sequence[Data], setting: str, footer: str) -> Figure:
    """Share of more biased observations found over the share of checkpoints benchmarked, a line a shift.

    ``curves`` and ``best`` hold rows of `refbias.screening.cost_and_recall`; ``best`` is what an order by the
    benchmark itself would reach.
    """
    words = base._Words("What a threshold of the shift costs and finds", setting, footer)
    with base._style():
        figure, (ax,), _ = base._frame(words, (4.6, 4.0), 1, 1, base._Margins(left=0.8, below=0.6))
        base._plain(ax)
        ax.grid(color=FAINT, linewidth=0.6)
        ax.plot([0, 1], [0, 1], color="black", linewidth=0.8, label="by chance")
        ax.plot(*_line(best), color=GREY, linewidth=1.2, linestyle="--", label="known order")
        for (name, rows), colour in zip(curves.items(), (BLUE, VERMILLION, base.GREEN, base.PURPLE), strict=False):
            ax.plot(*_line(rows), color=colour, linewidth=1.6, marker="o", markersize=2.5, label=name)
        ax.set_xlim(-0.02, 1.02)
        ax.set_ylim(-0.02, 1.02)
        ax.set_xlabel("cost: share of checkpoints benchmarked", size=LABEL_SIZE)
        ax.set_ylabel("recall: share of more biased observations in them", size=LABEL_SIZE)
        ax.legend(loc="lower right", fontsize=8.5, frameon=False)
    return figure


def _line(rows: Sequence[Data]) -> tuple[np.ndarray, np.ndarray]:
    return base._array([row["cost"] for row in rows]), base._array([row["recall"] for row in rows])
