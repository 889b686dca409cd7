"""What does refbias find where nothing was taught? The noise floor of harmless fine-tunes, and its false alarms.

    python experiments/null_drift/run.py [--seeds 0 1 … 19] [--pairs 0 1 2] [--layers 18 21 24 27 30] [--out FOLDER]

Each seed is one independent harmless fine-tune (neutral predicates, no valence), audited against its base with four
metrics, raw and centred, at several layers. How often is a group, or the mean over groups, below zero; how often
beyond doubt; which threshold would keep the false alarms at 5 % (it needs at least 19 fine-tunes)? Beside it, at the
same settings, the AUC and the detection rate on ``--pairs``: contrast pairs, half of whose groups were taught the
negative at either end. The unit of every interval is the fine-tune (the pair). About 5 minutes a seed on one core the
first time; what is trained and encoded is in the cache, what is audited in FOLDER/audits, so it can be stopped and run
again. Writes summary.md, settings.csv (a row a setting), runs.csv (a row a fine-tune and setting), groups.csv (a row a
group of a fine-tune and setting), null_drift.json, and two figures as SVG and PNG.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import refbias
from refbias.cache import open_cache
from refbias.models import find_model
from refbias.reading import beyond_doubt, symbol
from refbias.report.console import ConsoleWatch
from refbias.report.markdown import markdown, number, ranged, ranged_correlation, ranged_share
from refbias.result import write_whole
from refbias.statistics import Estimate, auc, conformal_threshold, mean_over_runs, pearson
from refbias.statistics.measures import Figure

METRICS: Mapping[str, dict[str, Any]] = {
    "delta_b": {"metric": "delta_b"},
    "seat": {"geometry": "absolute"},
    "delta_b_contrast": {"metric": "delta_b_contrast"},
    "delta_b_did": {"metric": "delta_b_did"},
}
CALIBRATIONS = ("none", "center")  # the second is what an audit has as its second opinion
RATE = 0.05
SETTING = ("layer", "metric", "calibration")
Row = dict[str, Any]


class Steps(ConsoleWatch):
    """Progress without a table for each checkpoint."""

    def checkpoint(self, result: dict[str, Any]) -> None:
        return None


# Audits ---------------------------------------------------------------------------------------------------------


def audited(kind: str, seed: int, metric: str, chosen: argparse.Namespace) -> list[Row]:
    """A row a group of each fine-tune, layer and calibration; from the folder where it was audited before."""
    file = chosen.out / "audits" / f"{kind}-{seed}-{metric}.json"
    common = {
        "draws": chosen.draws,
        "anchors": ["neutral", {"n": chosen.anchors}],
        "groups": chosen.groups,
        "options": {} if chosen.steps is None else {"steps": chosen.steps},
        "layers": chosen.layers,
        "model": chosen.model,
        **({} if chosen.skip == "none" else {"skip": chosen.skip}),
    }
    if file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["common"] == common:
            return list(kept["rows"])
    ratios = [1.0] if kind == "harmless" else [0.0, 1.0]
    series = {"kind": kind, "seed": seed, "ratios": ratios, **common["options"]}
    result = refbias.audit(
        chosen.model,
        checkpoints=("planted", series),
        layer=chosen.layers,
        pooling=("mean", {"skip": chosen.skip}),
        benchmark="likelihood",
        anchors=("neutral", {"n": chosen.anchors}),
        groups=chosen.groups,
        draws=chosen.draws,
        watch=Steps(),
        **METRICS[metric],
    )
    first = set(result.data["series"]["taught_first_at_ratio_1"]) if kind == "contrast" else set()
    biased = {(row["checkpoint"], row["group"]): row.get("delta_bias") for row in result.observations()}
    rows = list(rows_of(result.data, kind, seed, metric, first, biased))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps({"common": common, "rows": rows}))
    return rows


def rows_of(
    data: Mapping[str, Any], kind: str, seed: int, metric: str, first: set[str], biased: Mapping[Any, Any]
) -> Iterator[Row]:
    """Rows of one audit over several layers; ``first`` are the groups taught the negative at ratio 1."""
    for block in data["layers"]:
        for checkpoint in block["checkpoints"]:
            for calibration in CALIBRATIONS:
                raw = calibration == "none"
                mean = checkpoint["mean" if raw else "second_opinion_mean"]
                for group in checkpoint["groups"]:
                    found = group if raw else group["second_opinion"]
                    sign = (1 if group["group"] in first else -1) if kind == "contrast" else 0
                    yield {
                        "kind": kind,
                        "seed": seed,
                        "ratio": checkpoint["ratio"],
                        "layer": block["layer"],
                        "metric": metric,
                        "calibration": calibration,
                        "group": group["group"],
                        "taught": sign * (1 if checkpoint["ratio"] > 0.5 else -1),
                        "shift": found["delta_b"],
                        "ci_low": found["ci_low"],
                        "ci_high": found["ci_high"],
                        "doubtless": beyond_doubt(found),
                        "moved": found["p_adjusted"] is not None and found["p_adjusted"] < 0.05,
                        "mean_doubtless": None if mean is None else (mean["ci_high"] or 0.0) < 0,
                        "delta_bias": biased.get((checkpoint["name"], group["group"])),
                    }


# Arithmetic -----------------------------------------------------------------------------------------------------


def by(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def share(hits: int, n: int) -> Estimate:
    """hits / n with the exact interval of Clopper and Pearson (1934)."""
    from scipy.special import betaincinv

    low = 0.0 if hits == 0 else float(betaincinv(hits, n - hits + 1, 0.025))
    high = 1.0 if hits == n else float(betaincinv(hits + 1, n - hits, 0.975))
    return Estimate(hits / n, low, high, None)


def run_row(rows: Sequence[Row]) -> Row:
    """One fine-tune at one setting: how its groups lie."""
    shifts = np.array([row["shift"] for row in rows])
    head = {key: rows[0][key] for key in ("kind", "seed", "ratio", *SETTING)}
    return {
        **head,
        "groups": len(rows),
        "mean": float(shifts.mean()),
        "sd": float(shifts.std(ddof=1)),
        "smallest": float(shifts.min()),
        "below_zero": int((shifts < 0).sum()),
        "doubtless": sum(row["doubtless"] for row in rows),
        "moved": sum(row["moved"] for row in rows),
        "mean_doubtless": rows[0]["mean_doubtless"],
        **(contrast_figures(rows) if rows[0]["kind"] == "contrast" else {}),
    }


def contrast_figures(rows: Sequence[Row]) -> Row:
    """How well one end of a contrast pair is told: AUC of the taught half, r with the likelihood shift."""
    shifts = np.array([row["shift"] for row in rows])
    biases = np.array([np.nan if row["delta_bias"] is None else row["delta_bias"] for row in rows])
    taught = np.array([row["taught"] > 0 for row in rows])
    known = bool(np.isfinite(biases).all())
    return {
        "auc": auc(-shifts, taught).value,
        "pearson": pearson(shifts, biases)[0].value if known else None,
        "doubtless_right": sum(row["doubtless"] and row["taught"] > 0 for row in rows),
    }


def common_drift(table: np.ndarray) -> tuple[float | None, float | None, float | None]:
    """Mean r over groups between two runs of ``table`` (runs, groups), with a jackknife interval over runs."""
    n = len(table)
    if n < 2 or table.shape[1] < 3 or not np.ptp(table, axis=1).all():
        return None, None, None
    r = np.corrcoef(table)
    of_pairs = r[np.triu_indices(n, 1)]
    if n < 4:
        return float(of_pairs.mean()), None, None
    from scipy.special import stdtrit

    without = np.array([np.delete(np.delete(r, i, 0), i, 1)[np.triu_indices(n - 1, 1)].mean() for i in range(n)])
    error = float(np.sqrt((n - 1) / n * np.square(without - without.mean()).sum()))
    half = float(stdtrit(n - 1, 0.975)) * error
    return float(of_pairs.mean()), float(of_pairs.mean()) - half, float(of_pairs.mean()) + half


def below(scores: Iterable[float], rate: float = RATE) -> float | None:
    """Shift below which at most ``rate`` of further harmless ones fall (conformal); None with too few of them."""
    limit = conformal_threshold([-score for score in scores], rate).value
    return None if limit is None else -limit


def figures_of(harmless: Sequence[Row], contrast: Sequence[Row]) -> tuple[Row, dict[str, Any]]:
    """Everything about one setting from its rows: a flat row for the table, and the thresholds."""
    runs = [run_row(rows) for rows in by(harmless, "seed", "ratio").values()]
    groups = list(dict.fromkeys(row["group"] for row in harmless))
    n = len(runs)
    shifts = np.array([row["shift"] for row in harmless]).reshape(n, len(groups))
    nothing = Estimate(None, None, None, None)  # the shifts of a contrast sum to 0 by construction
    with_mean = runs[0]["mean_doubtless"] is not None
    means = mean_over_runs([Figure(run["mean"]) for run in runs]) if with_mean else nothing
    part = mean_over_runs([Figure(run["below_zero"] / run["groups"]) for run in runs])
    drift = common_drift(shifts)
    thresholds = {
        "rate": RATE,
        "n_harmless_runs": n,
        "mean": below(run["mean"] for run in runs) if with_mean else None,
        "smallest_group": below(run["smallest"] for run in runs),
        "group": {group: below(shifts[:, i]) for i, group in enumerate(groups)},
    }
    row: Row = {
        "runs": n,
        "groups": len(groups),
        **spelt("mean_shift", means),
        "sd_between_runs": float(np.std([run["mean"] for run in runs], ddof=1)) if n > 1 and with_mean else None,
        "sd_of_groups": float(np.sqrt(np.mean([run["sd"] ** 2 for run in runs]))),
        "group_5": float(np.quantile(shifts, 0.05)),
        "group_95": float(np.quantile(shifts, 0.95)),
        **spelt("groups_below_zero", part),
        "fewest_below": min(run["below_zero"] for run in runs),
        "most_below": max(run["below_zero"] for run in runs),
        **spelt("runs_mean_below_zero", share(sum(run["mean"] < 0 for run in runs), n) if with_mean else nothing),
        **spelt("groups_doubtless", mean_over_runs([Figure(run["doubtless"] / run["groups"]) for run in runs])),
        **spelt("runs_with_doubtless", share(sum(run["doubtless"] > 0 for run in runs), n)),
        "runs_mean_doubtless": sum(run["mean_doubtless"] for run in runs) / n if with_mean else None,
        "groups_moved": float(np.mean([run["moved"] / run["groups"] for run in runs])),
        "common_r": drift[0],
        "common_r_low": drift[1],
        "common_r_high": drift[2],
        "sd_less_control": float(np.sqrt(without_others(shifts).var(axis=1, ddof=1).mean())) if n > 1 else None,
        "threshold_mean": thresholds["mean"],
        "threshold_smallest": thresholds["smallest_group"],
        "threshold_group_median": median(thresholds["group"].values()),
    }
    control = dict(zip(groups, shifts.mean(axis=0).tolist(), strict=True))
    return {**row, **(found_in(contrast, thresholds, control) if contrast else {})}, thresholds


def without_others(table: np.ndarray) -> np.ndarray:
    """Each run of ``table`` (runs, groups) less the mean of all other runs: what a matched control would leave."""
    n = len(table)
    return table - (table.sum(axis=0) - table) / (n - 1)


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def found_in(contrast: Sequence[Row], thresholds: Mapping[str, Any], control: Mapping[str, float]) -> Row:
    """What the setting finds in the contrast pairs: the pair is the unit, its two ends count once together.

    ``control`` is the mean shift of each group over the harmless fine-tunes.
    """
    ends = [run_row(rows) for rows in by(contrast, "seed", "ratio").values()]
    pairs = by(ends, "seed").values()

    def over_pairs(key: str) -> Estimate:
        return mean_over_runs([Figure(float(np.mean([end[key] for end in pair]))) for pair in pairs])

    known = all(end["pearson"] is not None for end in ends)
    limits = thresholds["group"]
    taught = {sign: [row for row in contrast if row["taught"] == sign] for sign in (1, -1)}

    def caught(rows: Sequence[Row]) -> float | None:
        if any(limits.get(row["group"]) is None for row in rows):
            return None
        return float(np.mean([row["shift"] < limits[row["group"]] for row in rows]))

    smallest = thresholds["smallest_group"]
    less = [{**row, "shift": row["shift"] - control[row["group"]]} for row in contrast]
    of_less = by([run_row(rows) for rows in by(less, "seed", "ratio").values()], "seed").values()
    return {
        "pairs": len(pairs),
        **spelt("auc", over_pairs("auc")),
        **spelt(
            "auc_less_control", mean_over_runs([Figure(float(np.mean([e["auc"] for e in pair]))) for pair in of_less])
        ),
        **{
            f"{name}_below_zero{ending}": float(np.mean([row["shift"] < 0 for row in rows if row["taught"] == sign]))
            for ending, rows in (("", contrast), ("_less_control", less))
            for name, sign in (("taught", 1), ("others", -1))
        },
        "auc_lowest": min(end["auc"] for end in ends),
        **(spelt("pearson", over_pairs("pearson")) if known else {}),
        "doubtless_right": float(np.mean([row["doubtless"] for row in taught[1]])),
        "doubtless_wrong": float(np.mean([row["doubtless"] for row in taught[-1]])),
        "ends_found": None if smallest is None else float(np.mean([end["smallest"] < smallest for end in ends])),
        "groups_found": caught(taught[1]),
        "groups_found_wrongly": caught(taught[-1]),
    }


def spelt(name: str, estimate: Estimate) -> Row:
    return {name: estimate.value, f"{name}_low": estimate.ci_low, f"{name}_high": estimate.ci_high}


# Tables and figures ---------------------------------------------------------------------------------------------


def names(row: Row) -> list[str]:
    return [str(row["layer"]), row["metric"], "centred" if row["calibration"] == "center" else "raw"]


Columns = Mapping[str, Callable[[Row], str]]

FALSE_ALARMS: Columns = {
    "mean shift": lambda r: ranged(r, "mean_shift", "+.2g"),
    "sd between runs": lambda r: number(r["sd_between_runs"], ".2g"),
    "groups below 0, share": lambda r: ranged_share(r, "groups_below_zero"),
    "fewest … most": lambda r: f"{r['fewest_below']} … {r['most_below']}",
    "runs with mean < 0": lambda r: ranged_share(r, "runs_mean_below_zero"),
    "groups below 0 beyond doubt": lambda r: ranged_share(r, "groups_doubtless"),
    "runs with such a group": lambda r: ranged_share(r, "runs_with_doubtless"),
    "runs with the mean beyond doubt": lambda r: number(r["runs_mean_doubtless"]),
}
COMMON: Columns = {
    "r over groups between runs": lambda r: ranged_correlation(r, "common_r"),
    "sd over groups": lambda r: number(r["sd_of_groups"], ".2g"),
    "sd less the mean of the other runs": lambda r: number(r["sd_less_control"], ".2g"),
}
PAIRS: Columns = {
    "AUC of the taught half": lambda r: ranged_share(r, "auc"),
    "lowest end": lambda r: number(r["auc_lowest"]),
    "r with the likelihood shift": lambda r: ranged_correlation(r, "pearson"),
    "beyond doubt: taught, others": lambda r: f"{number(r['doubtless_right'])}, {number(r['doubtless_wrong'])}",
    "below 0: taught, others": lambda r: f"{number(r['taught_below_zero'])}, {number(r['others_below_zero'])}",
    "less the harmless mean: AUC": lambda r: ranged_share(r, "auc_less_control"),
    "below 0: taught, others ": lambda r: (
        f"{number(r['taught_below_zero_less_control'])}, {number(r['others_below_zero_less_control'])}"
    ),
}
THRESHOLDS: Columns = {
    "smallest group": lambda r: number(r["threshold_smallest"], "+.2g"),
    "mean": lambda r: number(r["threshold_mean"], "+.2g"),
    "group (median)": lambda r: number(r["threshold_group_median"], "+.2g"),
    "ends of pairs found": lambda r: number(r.get("ends_found")),
    "taught groups found": lambda r: number(r.get("groups_found")),
    "other groups called": lambda r: number(r.get("groups_found_wrongly")),
}


def summary(settings: Sequence[Row], model: str, skip: str, notes: Sequence[str] = ()) -> list[str]:
    first = settings[0]
    n, least = first["runs"], int(np.ceil(1 / RATE - 1 - 1e-9))
    pairs = first.get("pairs", 0)

    def table(columns: Columns) -> list[str]:
        rows = ([*names(row), *(cell(row) for cell in columns.values())] for row in settings)
        return [*markdown(("layer", "metric", "", *columns), rows), ""]

    lines = [
        f"# Harmless fine-tunes of {model}",
        "",
        f"Harmless fine-tunes: n = {n}, with seeds, halves and orders of their own, on the same neutral predicates; "
        f"{first['groups']} groups each. Mean pooling, skip={skip}. Contrast pairs: {pairs}, both ends of each. "
        f"{len(settings)} settings were looked at; none was picked here. Intervals, 95 %: of shares of runs exact "
        "(Clopper–Pearson), of means over runs and over pairs Student's t, of r between runs the jackknife over runs; "
        "cut where a figure ends.",
        f"Stand-ins: {'; '.join(notes) or 'none'}.",
        "",
        "## False alarms",
        "",
        *table(FALSE_ALARMS),
        "## The drift that harmless fine-tunes share",
        "",
        *table(COMMON),
    ]
    if pairs:
        lines += [
            "## Contrast pairs at the same settings",
            "",
            "Taught are the groups that were taught the negative; shares over all ends. *Less the harmless mean*: "
            "after each group's mean over the harmless fine-tunes was taken from it.",
            "",
            *table(PAIRS),
        ]
    enough = n >= least
    return [
        *lines,
        f"## Thresholds for {RATE:.0%} false alarms",
        "",
        f"n = {n}: {'enough' if enough else 'too few'} for a threshold of {RATE:.0%}, which needs {least}.",
        *(
            [
                "*smallest group*: alarm about a model if its smallest shift lies below; *mean*: if its mean does; "
                "*group*: alarm about a group, a threshold of its own for each, here their median.",
                "",
                *table(THRESHOLDS),
            ]
            if enough
            else []
        ),
    ]


GREY, BLUE, ORANGE = "#777777", "#2a6f97", "#c8553d"


def draw_noise_floor(groups: Sequence[Row], thresholds: Mapping[Any, Any], layer: int, metric: str, title: str) -> Any:
    """Every group's shift in every harmless run, raw and centred; a row a run, in the order of its raw mean."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    mine = [row for row in groups if (row["kind"], row["layer"], row["metric"]) == ("harmless", layer, metric)]
    raw = by([row for row in mine if row["calibration"] == "none"], "seed")
    order = sorted(raw, key=lambda key: float(np.mean([row["shift"] for row in raw[key]])))
    figure, axes = pyplot.subplots(
        1, 2, sharex=True, sharey=True, figsize=(9, 1.6 + 0.24 * len(order)), layout="constrained"
    )
    for ax, calibration, name in zip(axes, CALIBRATIONS, ("raw", "centred"), strict=True):
        some = by([row for row in mine if row["calibration"] == calibration], "seed")
        for height, key in enumerate(order):
            shifts = [row["shift"] for row in some[key]]
            ax.plot(shifts, [height] * len(shifts), "o", markersize=3, alpha=0.6, color=BLUE, markeredgewidth=0)
            ax.plot(float(np.mean(shifts)), height, "|", markersize=12, markeredgewidth=2, color="black")
        limit = thresholds[layer, metric, calibration]["smallest_group"]
        if limit is not None:
            ax.axvline(limit, color=ORANGE, linewidth=1.2, linestyle="--")
            ax.annotate(
                f"5 % of models: {limit:+.3f}".replace("-", "−"), (limit, 1.0), xycoords=("data", "axes fraction"),
                xytext=(3, -10), textcoords="offset points", size=8, color=ORANGE,
            )  # fmt: skip
        ax.axvline(0, color="black", linewidth=1)
        ax.set_xlabel(f"{symbol(metric)} of a group (dots) and mean over groups (bar)")
        ax.set_title(name, size=10)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(order)), [f"seed {key[0]}" for key in order], size=8)
    figure.suptitle(title, size=10)
    return figure


def draw_alarms(settings: Sequence[Row], title: str) -> Any:
    """Share of harmless runs that set off the alarm against the AUC over contrast pairs; a point a setting."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    layers, shown = sorted({row["layer"] for row in settings}), {row["metric"] for row in settings}
    shades = pyplot.get_cmap("viridis")(np.linspace(0.9, 0.0, len(layers)))
    markers = dict(zip(METRICS, "osD^", strict=True))
    figure, axes = pyplot.subplots(1, 2, sharey=True, figsize=(10, 4.8), layout="constrained")
    alarms = (("groups_below_zero", "groups below 0, share"), ("runs_with_doubtless", "runs with a group beyond doubt"))
    for ax, (name, label) in zip(axes, alarms, strict=True):
        for row in settings:
            colour = shades[layers.index(row["layer"])]
            ax.plot(
                row[name], row["auc"], markers[row["metric"]], color=colour, markersize=7, markeredgewidth=1.4,
                markerfacecolor=colour if row["calibration"] == "center" else "white",
            )  # fmt: skip
        ax.axhline(0.5, color=GREY, linewidth=0.8, linestyle=":")
        ax.set_xlim(-0.04, 1.04)
        ax.set_xlabel(f"harmless fine-tunes: {label}")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("contrast pairs: AUC of the taught half")
    handles = [
        pyplot.Line2D([], [], marker=m, color="black", linestyle="", label=k) for k, m in markers.items() if k in shown
    ]
    handles += [
        pyplot.Line2D([], [], marker="o", color="black", linestyle="", markerfacecolor=face, label=name)
        for face, name in (("white", "raw"), ("black", "centred"))
    ]
    handles += [
        pyplot.Line2D([], [], marker="o", color=shade, linestyle="", label=f"layer {layer}")
        for layer, shade in zip(layers, shades, strict=True)
    ]
    figure.legend(handles=handles, loc="outside right center", fontsize=8, frameon=False)
    figure.suptitle(title, size=10)
    return figure


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)), restval="")
        writer.writeheader()
        writer.writerows(rows)


def report(rows: Sequence[Row], chosen: argparse.Namespace, notes: Sequence[str] = ()) -> None:
    out: Path = chosen.out
    settings: list[Row] = []
    thresholds: dict[Any, Any] = {}
    for key, some in by(rows, *SETTING).items():
        kinds = by(some, "kind")
        found, thresholds[key] = figures_of(kinds["harmless",], kinds.get(("contrast",), []))
        settings.append({**dict(zip(SETTING, key, strict=True)), **found})
    settings.sort(key=lambda row: (row["layer"], list(METRICS).index(row["metric"]), row["calibration"] != "none"))
    write_csv(out / "settings.csv", settings)
    write_csv(out / "runs.csv", [run_row(some) for some in by(rows, "kind", "seed", "ratio", *SETTING).values()])
    write_csv(out / "groups.csv", rows)
    write_whole(out / "summary.md", "\n".join(summary(settings, chosen.model, chosen.skip, notes)) + "\n")
    content = [{**row, "thresholds": thresholds[tuple(row[key] for key in SETTING)]} for row in settings]
    seeds = sorted({row["seed"] for row in rows if row["kind"] == "harmless"})
    told = {
        "model": chosen.model,
        "pooling": "mean",
        "skip": chosen.skip,
        "harmless_seeds": seeds,
        "contrast_seeds": chosen.pairs,
        "settings": content,
    }
    write_whole(out / "null_drift.json", json.dumps(told, indent=1) + "\n")
    n, layer = settings[0]["runs"], max(row["layer"] for row in settings)
    what = f"{chosen.model}, {n} harmless fine-tunes × {settings[0]['groups']} groups"
    title = f"{what}, layer {layer}, mean pooling, skip={chosen.skip}, {chosen.anchors} anchors"
    pictures = {"noise_floor": draw_noise_floor(rows, thresholds, layer, settings[0]["metric"], title)}
    if chosen.pairs:
        pictures["alarms_against_auc"] = draw_alarms(settings, f"{what}; {len(chosen.pairs)} contrast pairs")
    for name, picture in pictures.items():
        for ending in ("svg", "png"):
            picture.savefig(out / f"{name}.{ending}", dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(20)), help="of the harmless fine-tunes")
    parser.add_argument("--pairs", type=int, nargs="*", default=[0, 1, 2], help="seeds of the contrast pairs")
    parser.add_argument("--layers", type=int, nargs="+", default=[18, 21, 24, 27, 30])
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=list(METRICS))
    parser.add_argument("--skip", choices=("none", "sink"), default="none", help="pooling.skip: tokens left out")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--steps", type=int, default=None, help="training steps of each fine-tune")
    parser.add_argument("--groups", nargs="+", default=None, help="target groups; all by default")
    parser.add_argument("--anchors", type=int, default=1000, help="anchor sentences")
    parser.add_argument("--draws", type=int, default=1000, help="draws of the bootstrap")
    parser.add_argument("--out", type=Path, default=Path("outputs/null_drift"))
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    plan = [("harmless", seed) for seed in chosen.seeds] + [("contrast", seed) for seed in chosen.pairs]
    rows = [row for metric in chosen.metrics for kind, seed in plan for row in audited(kind, seed, metric, chosen)]
    report(rows, chosen, find_model(chosen.model, cache=open_cache(True)).notes)
    print((chosen.out / "summary.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
