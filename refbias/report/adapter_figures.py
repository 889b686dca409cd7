"""The picture of adapter drift: relative norms by block and module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.report import figures as base

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 7  # panels: the checkpoints of a spectrum


def adapter_figures(data: Mapping[str, Any]) -> dict[str, Figure]:
    """Every picture of a result of task=adapter_drift."""
    return {"adapter_drift": relative_norms(data)} if data["adapter_drift"] else {}


def relative_norms(data: Mapping[str, Any]) -> Figure:
    """‖ΔW‖_F / ‖W‖_F, a panel a checkpoint, blocks by rows, modules by columns, on one scale; grey: not changed."""
    rows = [row for row in data["adapter_drift"] if row["block"] is not None]
    names = list(dict.fromkeys(row["checkpoint"] for row in rows))[:MOST]
    modules = list(dict.fromkeys(row["module"] for row in rows))
    blocks = sorted({row["block"] for row in rows})
    every = len({row["checkpoint"] for row in rows})
    counted = base._count(every, "checkpoint") + (f", the first {len(names)}" if len(names) < every else "")
    words = base._Words(
        "Change of weights by adapters, relative to the weights",
        f"reference {base._short(str(data['reference']['name']), 48)}, {data['reference']['layers']} blocks",
        base._footer(data, counted),
    )
    shown = [module.rpartition(".")[2] for module in modules]
    columns = modules if len(set(shown)) < len(shown) else shown
    below = 0.25 + (base._label_width(columns) - 0.3) * 0.72
    margins = base._Margins(left=0.7, right=1.0, below=below, above=0.3)
    with base._style():
        panel = (max(1.3, 0.22 * len(columns)), max(1.2, 0.16 * len(blocks)))
        figure, axes, _ = base._frame(words, panel, 1, len(names), margins)
        tables = [_table(rows, name, blocks, modules) for name in names]
        top = max((float(np.nanmax(table)) for table in tables if not np.isnan(table).all()), default=0.0) or 1.0
        for index, (ax, name, table) in enumerate(zip(axes, names, tables, strict=True)):
            ax.set_facecolor(base.FAINT)
            mesh = ax.pcolormesh(
                np.ma.masked_invalid(table), cmap=base.SEQUENTIAL, vmin=0, vmax=top, edgecolors="white", linewidth=0.3
            )
            ax.set_title(base._short(name, 18), size=base.LABEL_SIZE)
            ax.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=45, ha="right", rotation_mode="anchor")
            step = 1 if len(blocks) <= 20 else 2
            labels = [str(block) if i % step == 0 and index == 0 else "" for i, block in enumerate(blocks)]
            ax.set_yticks(np.arange(len(blocks)) + 0.5, labels)
            ax.set_ylim(len(blocks), 0)
            ax.tick_params(length=0, labelsize=8)
            for spine in ax.spines.values():
                spine.set_visible(False)
        axes[0].set_ylabel("block", size=base.LABEL_SIZE)
        box, inch = axes[-1].get_position(), 1 / figure.get_figwidth()
        bar = figure.add_axes((box.x1 + 0.15 * inch, box.y0, 0.14 * inch, box.height), label="scale")
        figure.colorbar(mesh, cax=bar, label="‖ΔW‖ / ‖W‖")
        bar.tick_params(labelsize=8)
    return figure


def _table(rows: list[Mapping[str, Any]], name: str, blocks: list[int], modules: list[str]) -> np.ndarray:
    table = np.full((len(blocks), len(modules)), np.nan)
    for row in rows:
        if row["checkpoint"] == name and row["relative_norm"] is not None:
            table[blocks.index(row["block"]), modules.index(row["module"])] = row["relative_norm"]
    return table
