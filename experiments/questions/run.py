"""The questions that the ΔB paper leaves open, each answered on planted fine-tunes of a small model.

    python experiments/questions/run.py QUESTION … [--seeds 0 1 2] [--harmless 0 1 2] [--out FOLDER]

layers       which layer and pooling show the taught half; chosen on one pair, reported on the others
calibration  none, centring, ZCA and all-but-the-top with ΔB, by how long the fine-tune was taught
scale        ΔB as published, over √m, over the spread of distances
anchors      how ΔB and its AUC grow with the number of anchors, in repeated draws
distance     relative representations with cosine against Euclid
naming       anchors that name the scored group held out; anchors that name groups against those that name none
adapter      the drift in the adapter's own output space, by experiments/adapter_drift

A pair is two fine-tunes, mirror images: half of the groups taught the negative at either end; the ends alone are
audited, for merges of them add no independent observation. AUC is that of the taught half within an end. Intervals:
over pairs by Student's t, and over groups by the bootstrap. What is trained and encoded is cached (about 10 minutes a
seed on one core the first time), so it can be stopped and run again. Each question leaves QUESTION.md, QUESTION.csv and
a figure as SVG and PNG.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from spaces import Audited, Lab, View

import refbias
from refbias.calibration import CALIBRATIONS, calibrate
from refbias.comparison import Comparison
from refbias.geometry import relative
from refbias.linalg import pooled_spread
from refbias.metrics import delta_b
from refbias.report.markdown import markdown, number, ranged, ranged_correlation, ranged_share
from refbias.result import write_whole
from refbias.statistics import Estimate, auc, auc_difference, group_bootstrap, mean_over_runs, pearson
from refbias.statistics.measures import Figure
from refbias.stimuli.packaged import by_key
from refbias.types import Space

HERE = Path(__file__).resolve().parent
ENDS = (0.0, 1.0)
Row = dict[str, Any]
Shifts = Mapping[str, float]


@dataclass(frozen=True)
class Setting:
    """How a shift is measured, and what the row of it is called."""

    name: tuple[Any, ...]
    view: View
    geometry: str = "relative"
    metric: Any = "delta_b"
    calibration: str = "none"


@dataclass(frozen=True)
class Found:
    """The shifts of one fine-tune at one setting, beside what is known of it."""

    name: tuple[Any, ...]
    seed: int
    kind: str
    ratio: float
    shifts: Shifts
    taught: Mapping[str, float]
    likelihood: Mapping[str, float]
    loss: float | None = None


def found_at(name: tuple[Any, ...], one: Audited, shifts: Shifts) -> Found:
    return Found(name, one.seed, one.kind, one.ratio, dict(shifts), one.taught, one.likelihood, one.loss)


def measured(
    lab: Lab, settings: Sequence[Setting], chosen: Chosen, harmless: bool = True, **options: Any
) -> list[Found]:
    """Every fine-tune at every setting: both ends of the pairs, and one end of each harmless fine-tune."""
    views = list(dict.fromkeys(setting.view for setting in settings))
    ours = lab.spaces(lab.reference, views)
    compared = [Comparison(ours[s.view], s.geometry, s.metric, s.calibration) for s in settings]
    return [
        found_at(setting.name, one, comparison.shifts(one.spaces[setting.view]))
        for one in fine_tunes(lab, chosen, views, harmless, **options)
        for setting, comparison in zip(settings, compared, strict=True)
    ]


def fine_tunes(
    lab: Lab, chosen: Chosen, views: Sequence[View], harmless: bool = True, **options: Any
) -> Iterator[Audited]:
    for seed in chosen.seeds:
        yield from lab.audited("contrast", seed, ENDS, views, **options)
    for seed in chosen.harmless if harmless else ():
        yield from lab.audited("harmless", seed, [1.0], views, **options)


@dataclass(frozen=True)
class Chosen:
    seeds: Sequence[int]
    harmless: Sequence[int]
    out: Path
    model: str = "smollm2"
    layer: int | None = None
    anchors: int = 1000
    groups: Sequence[str] | None = None
    steps: Sequence[int] = (60, 120, 240)
    training: Mapping[str, Any] = field(default_factory=dict)
    layers: Sequence[int] | None = None

    def lab(self) -> Lab:
        return Lab(self.model, self.anchors, self.groups, self.training)

    def last(self, lab: Lab) -> View:
        return (lab.reference.layers if self.layer is None else self.layer, "mean", "none")


# Arithmetic -----------------------------------------------------------------------------------------------------


def end_auc(found: Found) -> Figure:
    """AUC of the half that was taught the negative, in one fine-tune."""
    groups = list(found.shifts)
    return auc(-np.array([found.shifts[g] for g in groups]), [found.taught[g] > 0 for g in groups])


def separation(found: Found) -> float:
    """Mean shift of the half taught the positive less that of the half taught the negative: above 0 where told."""
    halves = [[v for g, v in found.shifts.items() if found.taught[g] * sign > 0] for sign in (-1, 1)]
    return float(np.mean(halves[0]) - np.mean(halves[1]))


def likelihood_r(found: Found) -> Figure:
    groups = list(found.shifts)
    return pearson(*(np.array([values[g] for g in groups]) for values in (found.shifts, found.likelihood)))[0]


def over_pairs(found: Sequence[Found], figure: Callable[[Found], Figure | float]) -> Estimate:
    """Mean over pairs of the mean over the ends of a pair, with Student's t over the pairs."""
    values: dict[int, list[float]] = {}
    for one in found:
        got = figure(one)
        value = got.value if isinstance(got, Figure) else got
        if value is not None:
            values.setdefault(one.seed, []).append(value)
    return mean_over_runs([Figure(float(np.mean(some))) for some in values.values()])


def long(found: Sequence[Found]) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str], list[str]]:
    """Shifts, likelihood shifts and labels of all ends in one column, with their end and their group."""
    rows = [
        (one.shifts[g], one.likelihood[g], one.taught[g] > 0, f"{one.seed} {one.ratio}", g)
        for one in found
        for g in one.shifts
    ]
    x, y, labels, ends, groups = zip(*rows, strict=True)
    return np.array(x), np.array(y), np.array(labels), list(ends), list(groups)


def over_groups(found: Sequence[Found], draws: int = 2000) -> Estimate:
    """AUC within ends, with the interval of the bootstrap over groups."""
    return group_bootstrap(*long(found), draws=draws)["within_auc"]


def spelt(name: str, estimate: Estimate) -> Row:
    return {name: estimate.value, f"{name}_low": estimate.ci_low, f"{name}_high": estimate.ci_high}


def figures_of(found: Sequence[Found]) -> Row:
    """One setting: AUC and r of the pairs, and how the harmless fine-tunes lie."""
    pairs = [one for one in found if one.kind == "contrast"]
    harmless = [one for one in found if one.kind == "harmless"]
    areas = [end_auc(one).value for one in pairs]
    row: Row = {
        "pairs": len({one.seed for one in pairs}),
        "ends": len(pairs),
        **spelt("auc", over_pairs(pairs, end_auc)),
        "auc_lowest": min((area for area in areas if area is not None), default=None),
        "auc_groups_low": (groups := over_groups(pairs)).ci_low,
        "auc_groups_high": groups.ci_high,
        **spelt("pearson", over_pairs(pairs, likelihood_r)),
        **spelt("separation", over_pairs(pairs, separation)),
        **spelt("mean_shift", over_pairs(pairs, lambda one: float(np.mean(list(one.shifts.values()))))),
    }
    if harmless:
        below = [Figure(float(np.mean([v < 0 for v in one.shifts.values()]))) for one in harmless]
        means = [float(np.mean(list(one.shifts.values()))) for one in harmless]
        row |= {
            "harmless": len(harmless),
            **spelt("harmless_below_zero", mean_over_runs(below)),
            "harmless_mean": float(np.mean(means)),
            "harmless_sd": float(np.sqrt(np.mean([np.var(list(one.shifts.values()), ddof=1) for one in harmless]))),
        }
    return row


def by_name(found: Iterable[Found]) -> dict[tuple[Any, ...], list[Found]]:
    grouped: dict[tuple[Any, ...], list[Found]] = {}
    for one in found:
        grouped.setdefault(one.name, []).append(one)
    return grouped


def table_of(found: Iterable[Found], *keys: str) -> list[Row]:
    return [{**dict(zip(keys, name, strict=True)), **figures_of(some)} for name, some in by_name(found).items()]


# Writing --------------------------------------------------------------------------------------------------------


COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "AUC, t over pairs": lambda r: ranged_share(r, "auc"),
    "lowest end": lambda r: number(r["auc_lowest"]),
    "AUC, over groups": lambda r: "–" if r["auc_groups_low"] is None else
    f"[{number(r['auc_groups_low'])}, {number(r['auc_groups_high'])}]",
    "r with the likelihood": lambda r: ranged_correlation(r, "pearson"),
    "separation of the halves": lambda r: ranged(r, "separation", "+.2g"),
    "mean over groups": lambda r: ranged(r, "mean_shift", "+.2g"),
    "harmless: groups below 0": lambda r: ranged_share(r, "harmless_below_zero"),
    "harmless: mean, sd of groups": lambda r: f"{number(r.get('harmless_mean'), '+.2g')}, "
    f"{number(r.get('harmless_sd'), '.2g')}",
}  # fmt: skip


def standard(rows: Sequence[Row], *keys: str) -> list[str]:
    """The table of `figures_of`, a row a setting."""
    columns = {n: f for n, f in COLUMNS.items() if "harmless" in rows[0] or not n.startswith("harmless")}
    cells = ([*(str(row[key]) for key in keys), *(f(row) for f in columns.values())] for row in rows)
    return markdown([*keys, *columns], cells)


def head(chosen: Chosen, lab: Lab | None, rows: Sequence[Row], more: str = "") -> list[str]:
    """What every table says of itself: n, how many settings were looked at, intervals, stand-ins."""
    n, seeds = len(chosen.seeds), ", ".join(map(str, chosen.seeds))
    notes = [] if lab is None else lab.reference.notes
    return [
        f"{chosen.model}; {n} contrast pairs (seeds {seeds}), both ends; {len(chosen.harmless)} harmless fine-tunes; "
        f"{chosen.anchors} anchors. Intervals, 95 %: over {n} pairs by Student's t, cut where a figure ends, or over "
        f"the groups by the bootstrap. Looked at: {len(rows)} settings.{more}",
        f"External signal: the likelihood of held-out statements. Stand-ins: {'; '.join(notes) or 'none'}.",
        "",
    ]


def keep(chosen: Chosen, name: str, lines: Sequence[str], rows: Sequence[Row], figure: Any) -> None:
    write_whole(chosen.out / f"{name}.md", "\n".join([f"# {name}", "", *lines]) + "\n")
    with open(chosen.out / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)), restval="")
        writer.writeheader()
        writer.writerows(rows)
    for ending in ("svg", "png"):
        figure.savefig(chosen.out / f"{name}.{ending}", dpi=150)
    print("\n".join(lines))


def plots(rows: int = 1, columns: int = 1, size: tuple[float, float] = (5.2, 3.8), **options: Any) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        rows, columns, figsize=(size[0] * columns, size[1] * rows), squeeze=False, layout="constrained", **options
    )
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def titled(figure: Any, chosen: Chosen, text: str, anchors: str = "") -> Any:
    anchors = anchors or f"{chosen.anchors} anchors"
    figure.suptitle(f"{text}\n{chosen.model}, {len(chosen.seeds)} contrast pairs, {anchors}", size=10)
    return figure


COLOURS = ("#2a6f97", "#c8553d", "#588157", "#7b2d8b", "#777777")
NAMES = {"none": "raw", "center": "centred"}


# Questions ------------------------------------------------------------------------------------------------------

# the last token is never the sink, so that skip says nothing to it
POOLED = [("mean", "none"), ("max", "none"), ("last", "none"), ("mean", "sink"), ("max", "sink")]


def layers(chosen: Chosen) -> None:
    """Layer × pooling × skip × calibration."""
    lab = chosen.lab()
    last = lab.reference.layers
    some = list(chosen.layers or range(last // 2 + 1, last + 1))  # below, planted fine-tunes leave the model as it is
    found: list[Found] = []
    for pooling, skip in POOLED:
        settings = [
            Setting((layer, pooling, skip, calibration), (layer, pooling, skip), calibration=calibration)
            for layer in some
            for calibration in NAMES
        ]
        found += measured(lab, settings, chosen, harmless=False)
    rows = []
    for name, ends in by_name(found).items():
        rows.append(
            {
                **dict(zip(("layer", "pooling", "skip", "calibration"), name, strict=True)),
                **spelt("auc", over_pairs(ends, end_auc)),
                **{f"auc_{s}": over_pairs([e for e in ends if e.seed == s], end_auc).value for s in chosen.seeds},
                **spelt("pearson", over_pairs(ends, likelihood_r)),
            }
        )
    published = next(
        r
        for r in rows
        if (r["layer"], r["pooling"], r["skip"], r["calibration"]) == (max(some), "mean", "none", "none")
    )
    picked = [selected(rows, chosen.seeds, seed, published) for seed in chosen.seeds]
    lines = [
        *head(chosen, lab, rows, f" Layers up to {last // 2} are the reference's own: ΔB is 0 there."),
        "Selected by AUC on one pair (ties all kept), reported on the other pairs:",
        "",
        *markdown(
            ("selected on pair", "settings tied at the best", "AUC there", "AUC of these on the other pairs: mean",
             "lowest … highest", "published setting, other pairs", "median of all settings, other pairs"),
            ([str(p["seed"]), str(p["tied"]), number(p["best"]), number(p["held_out"]),
              f"{number(p['held_out_lowest'])} … {number(p['held_out_highest'])}", number(p["published"]),
              number(p["median"])] for p in picked),
        ),
        "",
        "AUC, mean over pairs and ends (in brackets t over pairs), by pooling; the best and the worst layer of each:",
        "",
        *markdown(
            ("pooling", "skip", "", "best layer", "AUC", "worst layer", "AUC", f"layer {max(some)}"),
            (
                [pooling, skip, NAMES[calibration], str(best["layer"]), ranged_share(best, "auc"), str(worst["layer"]),
                 ranged_share(worst, "auc"), ranged_share(end, "auc")]
                for pooling, skip in POOLED
                for calibration in NAMES
                for best, worst, end in [extremes(rows, pooling, skip, calibration)]
            ),
        ),
    ]  # fmt: skip
    keep(
        chosen, "layers", lines, rows, titled(draw_layers(rows, some), chosen, "AUC of the taught half, mean over ends")
    )


def extremes(rows: Sequence[Row], pooling: str, skip: str, calibration: str) -> tuple[Row, Row, Row]:
    mine = [r for r in rows if (r["pooling"], r["skip"], r["calibration"]) == (pooling, skip, calibration)]
    ordered = sorted(mine, key=lambda r: r["auc"])
    return ordered[-1], ordered[0], max(mine, key=lambda r: r["layer"])


def selected(rows: Sequence[Row], seeds: Sequence[int], seed: int, published: Row) -> Row:
    """The settings with the highest AUC on one pair, and what they have on the others."""
    best = max(row[f"auc_{seed}"] for row in rows)
    tied = [row for row in rows if row[f"auc_{seed}"] > best - 1e-12]
    others = [s for s in seeds if s != seed]

    def there(row: Row) -> float:
        return float(np.mean([row[f"auc_{s}"] for s in others])) if others else float("nan")

    held_out = [there(row) for row in tied]
    return {
        "seed": seed,
        "tied": len(tied),
        "best": best,
        "held_out": float(np.mean(held_out)),
        "held_out_lowest": min(held_out),
        "held_out_highest": max(held_out),
        "published": there(published),
        "median": float(np.median([there(row) for row in rows])),
    }


def draw_layers(rows: Sequence[Row], some: Sequence[int]) -> Any:
    figure, axes = plots(2, 1, (0.52 * len(some) + 3.4, 2.6))
    for ax, calibration in zip(axes.flat, NAMES, strict=True):
        table = np.array(
            [
                [
                    next(
                        r["auc"]
                        for r in rows
                        if (r["layer"], r["pooling"], r["skip"], r["calibration"])
                        == (layer, pooling, skip, calibration)
                    )
                    for layer in some
                ]
                for pooling, skip in POOLED
            ]
        )
        image = ax.imshow(table, vmin=0, vmax=1, cmap="RdBu", aspect="auto")
        for (y, x), value in np.ndenumerate(table):
            ink = "white" if abs(value - 0.5) > 0.3 else "black"
            ax.text(x, y, f"{value:.2f}", ha="center", va="center", size=7, color=ink)
        ax.set_xticks(range(len(some)), some)
        ax.set_yticks(range(len(POOLED)), [p if s == "none" else f"{p}, skip={s}" for p, s in POOLED])
        ax.set_title(f"ΔB {NAMES[calibration]}", size=9)
        figure.colorbar(image, ax=ax, pad=0.01)
    axes[-1, 0].set_xlabel("layer")
    return figure


def calibration(chosen: Chosen) -> None:
    """Calibrations with ΔB, by the number of training steps."""
    lab = chosen.lab()
    view = chosen.last(lab)
    settings = [Setting((kind,), view, calibration=kind) for kind in ("none", "center", "abtt", "zca")]
    settings.append(Setting(("SEAT, none",), view, "absolute", "seat"))
    rows, learnt = [], []
    for steps in chosen.steps:
        harmless = steps == max(chosen.steps)
        found = measured(lab, settings, chosen, harmless, steps=steps)
        ends = [one for one in by_name(found)[settings[0].name] if one.kind == "contrast"]
        signal = [replace(one, shifts={g: -v for g, v in one.likelihood.items()}) for one in ends]
        learnt.append(
            {
                "steps": steps,
                "loss": float(np.mean([one.loss for one in ends])),
                **spelt("likelihood_auc", over_pairs(signal, end_auc)),
                **spelt("likelihood_apart", over_pairs(signal, separation)),
            }
        )
        rows += [{"steps": steps, **row} for row in table_of(found, "calibration")]
    lines = [
        *head(chosen, lab, rows),
        "How well was it learnt? Loss of the last steps, and the likelihood of held-out statements in the two halves:",
        "",
        *markdown(
            ("steps", "loss, nats a token", "AUC of the likelihood shift", "halves apart, nats a token"),
            ([str(r["steps"]), number(r["loss"]), ranged_share(r, "likelihood_auc"), ranged(r, "likelihood_apart")]
             for r in learnt),
        ),
        "",
    ]  # fmt: skip
    for steps in chosen.steps:
        lines += [f"{steps} steps:", "", *standard([r for r in rows if r["steps"] == steps], "calibration"), ""]
    keep(chosen, "calibration", lines, rows, titled(draw_dose(rows, chosen.steps), chosen, "Calibrations with ΔB"))


def draw_dose(rows: Sequence[Row], steps: Sequence[int]) -> Any:
    figure, axes = plots(1, 2)
    for ax, name, label in zip(
        axes.flat, ("auc", "pearson"), ("AUC of the taught half", "r with the likelihood shift"), strict=True
    ):
        for colour, kind in zip(COLOURS, dict.fromkeys(row["calibration"] for row in rows), strict=False):
            mine = [row for row in rows if row["calibration"] == kind]
            errors = [[row[name] - (row[f"{name}_low"] or row[name]) for row in mine],
                      [(row[f"{name}_high"] or row[name]) - row[name] for row in mine]]  # fmt: skip
            nudge = 1 + 0.02 * (list(dict.fromkeys(r["calibration"] for r in rows)).index(kind) - 2)
            ax.errorbar(
                np.array(steps) * nudge, [row[name] for row in mine], np.maximum(errors, 0), marker="o", capsize=2,
                color=colour, label=kind, linewidth=1.2, elinewidth=0.7,
            )  # fmt: skip
        ax.set_xscale("log")
        ax.set_xticks(steps, steps)
        ax.minorticks_off()
        ax.set_xlabel("training steps")
        ax.set_ylabel(label)
    axes[0, 0].set_ylim(0, 1.1)
    axes[0, 1].set_ylim(-1.1, 1.1)
    axes[0, 0].legend(fontsize=8, frameon=False, loc="lower right")
    return figure


SCALES = ("none", "sqrt_m", "spread", "reference spread")


def scale(chosen: Chosen) -> None:
    """Units of ΔB, at several layers."""
    lab = chosen.lab()
    last = lab.reference.layers
    some = list(chosen.layers or [last - 12, last - 9, last - 6, last - 3, last])
    views = [(layer, "mean", "none") for layer in some]
    ours = lab.spaces(lab.reference, views)
    found = []
    compared = {
        (view, kind, scale): Comparison(ours[view], "relative", ("delta_b", {"scale": scale}), kind)
        for view in views
        for kind in NAMES
        for scale in SCALES[:3]
    }
    units = {(view, kind): reference_units(ours[view], kind) for view in views for kind in NAMES}
    for one in fine_tunes(lab, chosen, views):
        for (view, kind, scale), comparison in compared.items():
            shifts = comparison.shifts(one.spaces[view])
            found.append(found_at((view[0], NAMES[kind], scale), one, shifts))
            if scale == "none":
                over = {group: value / units[view, kind][group] for group, value in shifts.items()}
                found.append(found_at((view[0], NAMES[kind], SCALES[3]), one, over))
    rows = table_of(found, "layer", "calibration", "scale")
    rows.sort(key=lambda r: (r["layer"], r["calibration"] != "raw", SCALES.index(r["scale"])))
    lines = [
        *head(chosen, lab, rows),
        "*spread*: each model's distances over their own spread; *reference spread*: ΔB over the reference's spread.",
        "",
        *standard(rows, "layer", "calibration", "scale"),
    ]
    keep(chosen, "scale", lines, rows, titled(draw_scale(rows), chosen, "Separation of the taught halves, by unit"))


def reference_units(space: Space, kind: str) -> dict[str, float]:
    """Spread of the reference's distances, for each group."""
    prepared = relative(calibrate(space, CALIBRATIONS[kind]()))
    return {group: pooled_spread(rows, len(space.positive)) for group, rows in delta_b().matrices(prepared).items()}


def draw_scale(rows: Sequence[Row]) -> Any:
    figure, axes = plots(2, len(SCALES), (3.2, 2.7), sharex=True)
    for line, kind in enumerate(NAMES.values()):
        for ax, unit in zip(axes[line], SCALES, strict=True):
            mine = [row for row in rows if (row["calibration"], row["scale"]) == (kind, unit)]
            at = [row["layer"] for row in mine]
            middle = np.array([row["separation"] for row in mine])
            low, high = (np.array([r[f"separation_{e}"] if r[f"separation_{e}"] is not None else r["separation"]
                                   for r in mine]) for e in ("low", "high"))  # fmt: skip
            ax.errorbar(at, middle, [middle - low, high - middle], marker="o", capsize=2, color=COLOURS[0],
                        label="pairs: halves apart")  # fmt: skip
            if "harmless_sd" in mine[0]:
                ax.plot(
                    at, [row["harmless_sd"] for row in mine], "s--", color=COLOURS[1], label="harmless: sd of groups"
                )
                ax.plot(at, [row["harmless_mean"] for row in mine], "D:", color=COLOURS[4], label="harmless: mean")
            ax.axhline(0, color="black", linewidth=0.7)
            ax.set_title(f"{unit}, {kind}", size=9)
            ax.set_xticks(at)
    for ax in axes[-1]:
        ax.set_xlabel("layer")
    axes[0, 0].legend(fontsize=7, frameon=False)
    return figure


SIZES = (10, 20, 50, 100, 200, 500, 1000)
DRAWS = 20


def anchors(chosen: Chosen) -> None:
    """Anchor counts, with repeated draws of the anchors."""
    lab = chosen.lab()
    view = chosen.last(lab)
    everyone = len(lab.stimuli.anchors)
    sizes = sorted({min(m, everyone) for m in SIZES})
    rng = np.random.default_rng(0)
    samples = {m: [rng.permutation(everyone)[:m] for _ in range(DRAWS if m < everyone else 1)] for m in sizes}
    ours = lab.spaces(lab.reference, [view])[view]
    cells = [(kind, m, i) for kind in NAMES for m in sizes for i in range(len(samples[m]))]
    compared = {cell: Comparison(with_anchors(ours, samples[cell[1]][cell[2]]), calibration=cell[0]) for cell in cells}
    found = []
    for one in fine_tunes(lab, chosen, [view]):
        for cell, comparison in compared.items():
            theirs = with_anchors(one.spaces[view], samples[cell[1]][cell[2]])
            found.append(found_at((NAMES[cell[0]], cell[1], cell[2]), one, comparison.shifts(theirs)))
    rows = [anchor_row(kind, m, found) for kind in NAMES.values() for m in sizes]
    slopes = [growth(kind, sizes, found) for kind in NAMES.values()]
    lines = [
        *head(chosen, lab, rows, f" Draws of each size below {everyone}: {DRAWS}, parts of one set."),
        *markdown(
            ("", "m", "AUC, mean over draws", "sd over draws", "lowest draw", "halves apart, ΔB", "the same / √m",
             "harmless: groups below 0"),
            ([r["calibration"], str(r["m"]), ranged_share(r, "auc"), number(r["auc_sd"], ".3f"),
              number(r["auc_lowest"]), ranged(r, "separation", "+.2g"), number(r["over_root"], "+.2g"),
              number(r.get("harmless_below_zero"))]
             for r in rows),
        ),
        "",
        "Growth of the separation, exponent of m (t over pairs): "
        + "; ".join(f"{s['calibration']} {ranged(s, 'exponent')}" for s in slopes) + ". ½ would be √m.",
    ]  # fmt: skip
    keep(
        chosen,
        "anchors",
        lines,
        rows,
        titled(draw_anchors(rows), chosen, "ΔB and AUC by the number of anchors", f"up to {everyone} anchors"),
    )


def with_anchors(space: Space, rows: np.ndarray) -> Space:
    return Space(space.targets, space.positive, space.negative, space.require_anchors("anchors")[rows])


def anchor_row(kind: str, m: int, found: Sequence[Found]) -> Row:
    mine = [one for one in found if one.name[:2] == (kind, m)]
    pairs = [one for one in mine if one.kind == "contrast"]
    draws = sorted({one.name[2] for one in pairs})
    areas = [over_pairs([one for one in pairs if one.name[2] == draw], end_auc).value for draw in draws]
    harmless = [float(np.mean([v < 0 for v in one.shifts.values()])) for one in mine if one.kind == "harmless"]
    apart = over_pairs(pairs, separation)
    return {
        "calibration": kind,
        "m": m,
        "draws": len(draws),
        **spelt("auc", over_pairs(pairs, end_auc)),
        "auc_sd": float(np.std(areas, ddof=1)) if len(areas) > 1 else None,
        "auc_lowest": min(areas),
        "auc_highest": max(areas),
        **spelt("separation", apart),
        "over_root": None if apart.value is None else apart.value / m**0.5,
        **({"harmless_below_zero": float(np.mean(harmless))} if harmless else {}),
    }


def growth(kind: str, sizes: Sequence[int], found: Sequence[Found]) -> Row:
    """Exponent b of separation ~ m^b, of each pair; none for pairs that are not told apart at every size."""
    exponents = []
    for seed in sorted({one.seed for one in found if one.kind == "contrast"}):
        mine = [one for one in found if one.kind == "contrast" and one.seed == seed]
        apart = [float(np.mean([separation(o) for o in mine if o.name[:2] == (kind, m)])) for m in sizes]
        enough = len(sizes) > 1 and min(apart) > 0
        exponents.append(Figure(float(np.polyfit(np.log(sizes), np.log(apart), 1)[0]) if enough else None))
    return {"calibration": kind, **spelt("exponent", mean_over_runs(exponents))}


def draw_anchors(rows: Sequence[Row]) -> Any:
    figure, axes = plots(1, 3, (4.2, 3.6))
    for colour, kind in zip(COLOURS, NAMES.values(), strict=False):
        mine = [row for row in rows if row["calibration"] == kind]
        m = [row["m"] for row in mine]
        axes[0, 0].plot(m, [row["separation"] for row in mine], "o-", color=colour, label=kind)
        axes[0, 1].plot(m, [row["over_root"] for row in mine], "o-", color=colour)
        axes[0, 2].plot(m, [row["auc"] for row in mine], "o-", color=colour)
        axes[0, 2].fill_between(
            m, [r["auc_lowest"] for r in mine], [r["auc_highest"] for r in mine], color=colour, alpha=0.15, linewidth=0
        )
    for ax, label in zip(axes.flat, ("halves apart, ΔB", "halves apart, ΔB / √m", "AUC (band: draws)"), strict=True):
        ax.set_xscale("log")
        ax.set_xlabel("number of anchors m")
        ax.set_ylabel(label)
    axes[0, 0].set_yscale("log")
    axes[0, 1].set_ylim(bottom=0)
    axes[0, 0].legend(fontsize=8, frameon=False)
    return figure


def distance(chosen: Chosen) -> None:
    """Cosine against Euclid between relative representations."""
    lab = chosen.lab()
    last = lab.reference.layers
    some = list(chosen.layers or [last - 6, last])
    ways = {
        "RR, Euclid (ΔB)": ("relative", "delta_b"),
        "RR, cosine": ("relative", "seat"),
        "states, cosine (SEAT)": ("absolute", "seat"),
    }
    settings = [
        Setting((layer, NAMES[kind], way), (layer, "mean", "none"), geometry, metric, kind)
        for layer in some
        for kind in NAMES
        for way, (geometry, metric) in ways.items()
    ]
    found = measured(lab, settings, chosen)
    rows = table_of(found, "layer", "calibration", "distance")
    named = by_name(found)
    differences = []
    for layer in some:
        for kind in NAMES.values():
            one, other = (
                long([f for f in named[layer, kind, way] if f.kind == "contrast"])
                for way in ("RR, cosine", "RR, Euclid (ΔB)")
            )
            gap = auc_difference(-one[0], -other[0], one[2], one[4], one[3], draws=2000)
            differences.append({"layer": layer, "calibration": kind, **spelt("gap", gap), "p": gap.p_value})
    lines = [
        *head(chosen, lab, rows),
        *standard(rows, "layer", "calibration", "distance"),
        "",
        "AUC within ends, cosine less Euclid, paired bootstrap over groups: "
        + "; ".join(
            f"layer {d['layer']} {d['calibration']} {ranged(d, 'gap', '+.2f')} (p {number(d['p'])})"
            for d in differences
        )
        + ".",
    ]
    keep(
        chosen,
        "distance",
        lines,
        rows,
        titled(draw_bars(rows, "distance"), chosen, "Distances between representations"),
    )


def draw_bars(rows: Sequence[Row], key: str) -> Any:
    """AUC of each row with its interval over pairs, and the harmless share below zero beside it."""
    figure, axes = plots(1, 2, (5.2, 0.8 + 0.3 * len(rows)), sharey=True)
    labels = [" · ".join(str(row[k]) for k in ("layer", "calibration", key) if k in row) for row in rows]
    y = np.arange(len(rows))[::-1]
    for ax, name, label in (
        (axes[0, 0], "auc", "AUC of the taught half (t over pairs)"),
        (axes[0, 1], "harmless_below_zero", "harmless: share of groups below 0"),
    ):
        values = [row.get(name) for row in rows]
        for at, row, value in zip(y, rows, values, strict=True):
            if value is None:
                continue
            low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
            if low is not None and high is not None:
                ax.plot([max(low, 0), min(high, 1)], [at, at], color=COLOURS[0], linewidth=1)
            ax.plot(value, at, "o", color=COLOURS[0])
        ax.axvline(0.5, color=COLOURS[4], linewidth=0.8, linestyle=":")
        ax.set_xlim(-0.03, 1.03)
        ax.set_xlabel(label)
    axes[0, 0].set_yticks(y, labels, size=8)
    return figure


def naming(chosen: Chosen) -> None:
    """Anchors that name the scored group, other groups, or no group."""
    lab = chosen.lab()
    view = chosen.last(lab)
    group_of = {s: g for g, sentences in by_key("anchors/neutral.csv", "group").items() for s in sentences}
    names = [group_of[sentence] for sentence in lab.stimuli.anchors]
    own = {g: np.array([name != g for name in names]) for g in lab.stimuli.groups}
    rng = np.random.default_rng(0)
    at_random = {g: rng.permutation(kept) for g, kept in own.items()}
    m = len(names)
    others = {
        "no group: pastimes": spread_over(refbias.load_stimuli("control").targets, m),
        "no group: words": refbias.load_stimuli(anchors=("words", {"n": m})).anchors,
    }
    ours = lab.spaces(lab.reference, [view])[view]
    ways = ["all", "own group held out", "as many at random held out", *others]

    def measure(before: Space, after: Space, way: str, kind: str, rows: Mapping[str, Any]) -> dict[str, float]:
        if way in others:
            pair = (replaced(before, rows["reference"][way]), replaced(after, rows["audited"][way]))
            return dict(refbias.compare_spaces(*pair, calibration=kind))
        if way == "all":
            return dict(refbias.compare_spaces(before, after, calibration=kind))
        kept = own if way == "own group held out" else at_random
        shifts = {}
        for group in before.groups:
            alone = [with_anchors(one_group(space, group), np.flatnonzero(kept[group])) for space in (before, after)]
            shifts[group] = refbias.compare_spaces(*alone, calibration=kind)[group]
        return shifts

    extra = {"reference": {way: lab.rows(lab.reference, [view], s)[view] for way, s in others.items()}}
    found = []
    for one in fine_tunes(lab, chosen, [view]):
        theirs = {**extra, "audited": {way: lab.rows(one.model, [view], s)[view] for way, s in others.items()}}
        for kind in NAMES:
            for way in ways:
                shifts = measure(ours, one.spaces[view], way, kind, theirs)
                found.append(found_at((NAMES[kind], way), one, shifts))
    rows = table_of(found, "calibration", "anchors")
    for row in rows:
        row |= against_all(by_name(found), row["calibration"], row["anchors"])
    rows.sort(key=lambda row: (row["calibration"] != "raw", ways.index(row["anchors"])))
    lines = [
        *head(chosen, lab, rows, f" Every one of the {m} neutral anchors names a group, each group about "
              f"{m // max(1, len(lab.stimuli.groups))} of them."),
        *standard(rows, "calibration", "anchors"),
        "",
        "Against all anchors, over groups within each end of the pairs:",
        "",
        *markdown(
            ("", "anchors", "r of the shifts (lowest end)", "largest change of a shift", "sd of shifts"),
            ([row["calibration"], row["anchors"],
              f"{number(row['r_all'], '.3f')} ({number(row['r_all_lowest'], '.3f')})",
              number(row["largest_change"], ".2g"), number(row["sd_all"], ".2g")] for row in rows),
        ),
    ]  # fmt: skip
    keep(chosen, "naming", lines, rows, titled(draw_bars(rows, "anchors"), chosen, "Which anchors"))


def spread_over(targets: Mapping[str, Sequence[str]], n: int) -> list[str]:
    """The first ``n`` sentences, one of each target, then a second of each, and so on."""
    turns = max(map(len, targets.values()))
    every = [sentences[i] for i in range(turns) for sentences in targets.values() if i < len(sentences)]
    return every[:n]


def one_group(space: Space, group: str) -> Space:
    return Space({group: space.targets[group]}, space.positive, space.negative, space.anchors)


def replaced(space: Space, anchors: np.ndarray) -> Space:
    return Space(space.targets, space.positive, space.negative, anchors)


def against_all(named: Mapping[tuple[Any, ...], Sequence[Found]], kind: str, way: str) -> Row:
    r, changes, spreads = [], [], []
    for mine, whole in zip(named[kind, way], named[kind, "all"], strict=True):
        if mine.kind != "contrast":
            continue
        x, y = (np.array([one.shifts[g] for g in whole.shifts]) for one in (mine, whole))
        r.append(pearson(x, y)[0].value or 0.0)
        changes.append(float(np.abs(x - y).max()))
        spreads.append(float(y.std(ddof=1)))
    return {
        "r_all": float(np.mean(r)),
        "r_all_lowest": min(r),
        "largest_change": max(changes),
        "sd_all": float(np.mean(spreads)),
    }


def adapter(chosen: Chosen) -> None:
    """Adapter-space drift, as experiments/adapter_drift measures it on all merges of each pair."""
    script, out = HERE.parent / "adapter_drift" / "run.py", chosen.out / "adapter_drift"
    words = ["--seeds", *map(str, chosen.seeds), "--model", chosen.model, "--anchors", str(chosen.anchors)]
    if "steps" in chosen.training:
        words += ["--steps", str(chosen.training["steps"])]
    subprocess.run([sys.executable, str(script), *words, "--out", str(out)], check=True)
    with open(out / "figures.csv", newline="", encoding="utf-8") as file:
        measured_rows = list(csv.DictReader(file))
    rows = adapter_rows(measured_rows)
    lines = [
        *head(chosen, None, rows, " All merges of each pair; within checkpoints."),
        *markdown(
            ("method", "", "AUC, planted direction", "AUC, likelihood", "r with the likelihood",
             "harmless ends: groups below 0"),
            ([r["method"], r["calibration"], ranged_share(r, "auc"), ranged_share(r, "auc_likelihood"),
              ranged_correlation(r, "pearson"), ranged_share(r, "harmless_below_zero")] for r in rows),
        ),
    ]  # fmt: skip
    keep(chosen, "adapter", lines, rows, titled(draw_bars(rows, "method"), chosen, "Adapter-space drift"))


def adapter_rows(figures: Sequence[Mapping[str, str]]) -> list[Row]:
    """A row a method and calibration of the figures of experiments/adapter_drift; each seed is one pair."""
    rows = []
    for method, calibration in dict.fromkeys((row["method"], row["calibration"]) for row in figures):
        mine = [row for row in figures if (row["method"], row["calibration"]) == (method, calibration)]

        def over(kind: str, against: str, name: str, mine: Sequence[Mapping[str, str]] = mine) -> Estimate:
            of_seed: dict[str, list[float]] = {}
            for row in mine:
                if row["kind"].startswith(kind) and row["against"] == against and row[name]:
                    value = float(row[name]) / (float(row["groups"]) if name == "below_zero" else 1.0)
                    of_seed.setdefault(row["seed"], []).append(value)
            return mean_over_runs([Figure(float(np.mean(values))) for values in of_seed.values()])

        rows.append(
            {
                "method": method,
                "calibration": NAMES[calibration],
                **spelt("auc", over("contrast", "planted", "auc_within")),
                **spelt("auc_likelihood", over("contrast", "likelihood", "auc_within")),
                **spelt("pearson", over("contrast", "likelihood", "pearson_within")),
                **spelt("harmless_below_zero", over("harmless", "", "below_zero")),
            }
        )
    return rows


QUESTIONS: Mapping[str, Callable[[Chosen], None]] = {
    "layers": layers,
    "calibration": calibration,
    "scale": scale,
    "anchors": anchors,
    "distance": distance,
    "naming": naming,
    "adapter": adapter,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="+", choices=QUESTIONS, metavar="QUESTION")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the contrast pairs")
    parser.add_argument("--harmless", type=int, nargs="*", default=[0, 1, 2], help="seeds of the harmless fine-tunes")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--layer", type=int, default=None, help="where one is looked at; the last by default")
    parser.add_argument("--layers", type=int, nargs="+", default=None, help="where several are looked at")
    parser.add_argument("--anchors", type=int, default=1000, help="anchor sentences")
    parser.add_argument("--groups", nargs="+", default=None, help="target groups; all by default")
    parser.add_argument("--steps", type=int, nargs="+", default=[60, 120, 240], help="doses of question calibration")
    parser.add_argument("--training-steps", type=int, default=None, help="of all other fine-tunes")
    parser.add_argument("--out", type=Path, default=Path("outputs/questions"))
    given = vars(parser.parse_args(arguments))
    questions, steps = given.pop("questions"), given.pop("training_steps")
    chosen = Chosen(**given, training={} if steps is None else {"steps": steps})
    chosen.out.mkdir(parents=True, exist_ok=True)
    for question in questions:
        QUESTIONS[question](chosen)


if __name__ == "__main__":
    main()
