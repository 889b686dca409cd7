"""Pictures of isotropy and similarity: explained variance, cosines of sampled vectors, correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refbias.report import figures as base
from refbias.report.figures import BLUE, FAINT, GREEN, GREY, LABEL_SIZE, ORANGE, PURPLE, SKY, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Data = Mapping[str, Any]
Matrix = NDArray[np.float32]

COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
MOST_NAMED = 12  # curves that a legend names
SHOWN = 500  # rows and columns of a heat map of cosines: about the pixels that it has


def _calibration(data: Data) -> str | None:
    chosen = data["settings"].get("calibration")
    return None if chosen in (None, "none") else str(chosen)


def _spaces(data: Data) -> dict[str, str]:
    """Space -> what it is called in the picture."""
    name = _calibration(data)
    return {"raw": "raw", **({"calibrated": name} if name else {})}


def _setting(data: Data, kinds: Sequence[str]) -> str:
    model, settings = data["reference"], data["settings"]
    words = [f"model {base._short(str(model['name']), 48)}, {model['dim']} dimensions"]
    words += [
        f"{kind} {base._short(base._chosen(settings[kind]), 30)}" for kind in kinds if settings.get(kind) is not None
    ]
    return " · ".join(words)


def isotropy_figures(data: Data, cosines: Mapping[str, Matrix]) -> dict[str, Figure]:
    """Every picture of a result of task=isotropy; ``cosines`` by space are those of the last layer."""
    made = {"explained_variance": explained_variance(data)}
    if cosines:
        made["cosine_heat_map"] = cosine_heat_map(data, cosines)
    if len(data["isotropy"]) > 1:
        made["isotropy_by_layer"] = by_layer(data)
    return made


def explained_variance(data: Data) -> Figure:
    """Share of the variance that each of the first components explains, on a log scale; a panel a space."""
    layers = list(dict.fromkeys(row["layer"] for row in data["spectrum"]))
    curves = {f"layer {k}": [row for row in data["spectrum"] if row["layer"] == k] for k in layers}
    sizes, dim = {row["n"] for row in data["isotropy"]}, data["reference"]["dim"]
    return spectra(
        curves,
        _spaces(data),
        _setting(data, ("pooling", "corpus", "calibration")),
        base._footer(data, f"{max(sizes):,} held-out vectors · dotted: equal variance in all {dim}"),
        dim,
    )


def spectra(
    curves: Mapping[str, Sequence[Data]], spaces: Mapping[str, str], setting: str, footer: str, dim: int | None = None
) -> Figure:
    """Curves of explained variance by label, of rows with ``component`` and a share a space; a panel a space."""
    words = base._Words("Explained variance of the first components", setting, footer)
    labels = list(curves)
    aside = min(3.0, base._label_width(labels) + 0.4) if 1 < len(labels) <= MOST_NAMED else 0.3
    margins = base._Margins(left=0.75, right=aside, above=0.35, below=0.6, between=0.3)
    with base._style():
        figure, axes, _ = base._frame(words, (3.2, 2.6), 1, len(spaces), margins)
        bottom = _lowest([row for rows in curves.values() for row in rows], spaces) / 2
        for index, (ax, (space, shown)) in enumerate(zip(axes, spaces.items(), strict=True)):
            base._plain(ax)
            ax.grid(color=FAINT, linewidth=0.6)
            for number, (label, rows) in enumerate(curves.items()):
                ax.plot(
                    [row["component"] for row in rows], base._array([row.get(space) for row in rows]),
                    color=_colour(number, len(curves)), linewidth=1.3, label=base._short(label, 30),
                )  # fmt: skip
            if dim is not None:
                ax.axhline(1 / dim, color=GREY, linestyle=":", linewidth=1.2, label="equal")
            ax.set_yscale("log")
            ax.set_ylim(bottom if dim is None else min(bottom, 0.5 / dim), 1.0)
            ax.set_title(shown, size=LABEL_SIZE)
            ax.set_xlabel("component", size=LABEL_SIZE)
            if index:
                ax.set_yticklabels([])
        axes[0].set_ylabel("share of the variance", size=LABEL_SIZE)
        if 1 < len(labels) <= MOST_NAMED:
            handles = axes[-1].get_lines()[: len(labels)]
            axes[-1].legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False)
    return figure


def _lowest(rows: Sequence[Data], spaces: Mapping[str, str]) -> float:
    values = [row.get(space) for row in rows for space in spaces]
    return min((value for value in values if value is not None and value > 0), default=1e-4)


def _colour(number: int, of: int) -> Any:
    if of <= len(COLOURS):
        return COLOURS[number]
    import matplotlib

    return matplotlib.colormaps["cividis"](number / (of - 1))


def cosine_heat_map(data: Data, cosines: Mapping[str, Matrix]) -> Figure:
    """Cosines between sampled vectors, raw and calibrated, on one scale from −1 to 1.

    At most 500 vectors are drawn, the first of the sample, which is in random order.
    """
    spaces = {space: shown for space, shown in _spaces(data).items() if space in cosines}
    last = data["isotropy"][-1]
    n = min(SHOWN, min(len(table) for table in cosines.values()))
    words = base._Words(
        f"Cosines between sampled vectors, layer {last['layer']}",
        _setting(data, ("pooling", "corpus", "calibration")),
        base._footer(data, f"{n:,} of {last['n']:,} held-out vectors"),
    )
    margins = base._Margins(left=0.4, right=0.95, above=0.35, below=0.35, between=0.3)
    with base._style():
        figure, axes, _ = base._frame(words, (3.0, 3.0), 1, len(spaces), margins)
        for ax, (space, shown) in zip(axes, spaces.items(), strict=True):
            drawn = ax.imshow(cosines[space][:n, :n], cmap=base.DIVERGING, vmin=-1, vmax=1, interpolation="nearest")
            mean = base._number(last.get(f"mean_cosine_{space}"))
            ax.set_title(shown + ("" if mean is None else f", mean {base._signed(mean, '')}"), size=LABEL_SIZE)
            ax.set_xticks([])
            ax.set_yticks([])
        _scale(figure, axes[-1], drawn, "cosine")
    return figure


def _scale(figure: Figure, ax: Axes, drawn: Any, label: str) -> None:
    box, inch = ax.get_position(), 1 / figure.get_figwidth()
    bar = figure.add_axes((box.x1 + 0.15 * inch, box.y0, 0.14 * inch, box.height), label="scale")
    figure.colorbar(drawn, cax=bar, label=label)
    bar.tick_params(labelsize=8)


def by_layer(data: Data) -> Figure:
    """Mean cosine ± sd and IsoScore over layers."""
    spaces = _spaces(data)
    rows = data["isotropy"]
    layers = [row["layer"] for row in rows]
    words = base._Words(
        "Isotropy by layer",
        _setting(data, ("pooling", "corpus", "calibration")),
        base._footer(data, f"{rows[-1]['n']:,} held-out vectors a layer · bands: ± sd"),
    )
    margins = base._Margins(left=0.75, right=0.3, above=0.35, below=0.6, between=0.6, key=0.3)
    with base._style():
        figure, axes, key = base._frame(words, (3.2, 2.6), 1, 2, margins)
        for ax, figure_name, title in zip(axes, ("mean_cosine", "iso_score"), ("mean cosine", "IsoScore"), strict=True):
            base._plain(ax)
            ax.grid(color=FAINT, linewidth=0.6)
            for colour, (space, shown) in zip((BLUE, VERMILLION), spaces.items(), strict=False):
                values = base._array([row.get(f"{figure_name}_{space}") for row in rows])
                ax.plot(layers, values, color=colour, marker="o", markersize=3, linewidth=1.3, label=shown)
                if figure_name == "mean_cosine":
                    sd = base._array([row.get(f"sd_cosine_{space}") for row in rows])
                    ax.fill_between(layers, values - sd, values + sd, color=colour, alpha=0.15, linewidth=0)
            ax.set_title(title, size=LABEL_SIZE)
            ax.set_xlabel("layer", size=LABEL_SIZE)
        figure.legend(
            handles=axes[0].get_lines(), loc="upper left", ncols=2, fontsize=8.5, frameon=False,
            bbox_to_anchor=(0.1 / figure.get_figwidth(), key), borderaxespad=0.0,
        )  # fmt: skip
    return figure


def similarity_figures(data: Data) -> dict[str, Figure]:
    """The picture of a result of task=similarity."""
    return {"similarity": correlations(data)}


def correlations(data: Data) -> Figure:
    """Spearman's ρ of each set of pairs, raw and calibrated, with 95 % intervals."""
    rows = data["similarity"]
    several = len({row["layer"] for row in rows}) > 1
    labels = [f"{row['set']}, layer {row['layer']}" if several else str(row["set"]) for row in rows]
    pairs = ", ".join(dict.fromkeys(f"{row['set']} {row['pairs']}" for row in rows))
    footer = base._footer(data, f"pairs: {pairs} · 95 % intervals by bootstrap over pairs")
    return dumbbells(labels, rows, _spaces(data), _setting(data, ("words", "pooling", "corpus", "calibration")), footer)


def dumbbells(
    labels: Sequence[str], rows: Sequence[Data], spaces: Mapping[str, str], setting: str, footer: str
) -> Figure:
    """Spearman's ρ of rows of similarity.csv, a row of the picture each."""
    labels = [base._short(label, 40) for label in labels]
    words = base._Words("Spearman's ρ of cosine and human score", setting, footer)
    margins = base._Margins(left=base._label_width(labels), right=0.3, above=0.1, below=0.55, key=0.3)
    with base._style():
        figure, (ax,), key = base._frame(words, (4.6, max(0.8, 0.4 * len(rows))), 1, 1, margins)
        base._plain(ax)
        ax.grid(axis="x", color=FAINT, linewidth=0.6)
        ax.axvline(0.0, color="black", linewidth=1.0)
        handles = []
        for offset, colour, marker, (space, shown) in zip((-0.13, 0.13), (BLUE, VERMILLION), "oD", spaces.items(),
                                                          strict=False):  # fmt: skip
            y = np.arange(len(rows)) + (offset if len(spaces) > 1 else 0.0)
            low, high = (base._array([row.get(f"rho_{end}_{space}") for row in rows]) for end in ("low", "high"))
            ax.hlines(y, low, high, color=colour, linewidth=1.2)
            x = base._array([row.get(f"rho_{space}") for row in rows])
            handles += ax.plot(x, y, marker, color=colour, markersize=5, label=shown)
        ax.set_yticks(range(len(rows)), labels)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xlabel("Spearman's ρ", size=LABEL_SIZE)
        figure.legend(
            handles=handles, loc="upper left", ncols=2, fontsize=8.5, frameon=False,
            bbox_to_anchor=(0.1 / figure.get_figwidth(), key), borderaxespad=0.0,
        )  # fmt: skip
    return figure
