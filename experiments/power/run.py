"""How many target, attribute and anchor sentences are enough for a wanted interval, from an audit's own sentences?

    python experiments/power/run.py [--seed 0] [--ratio 1] [--half-width 0.02] [--cache FOLDER] [--out FOLDER]

The planted contrast pair of the seed, audited with ΔB, raw and centred (the fine-tunes come from the cache, or are
trained once: about 7 minutes on two cores). For each: the variance components of every group's shift, what it takes for
the wanted half-width, and a check: widths predicted from all sentences beside those measured on repeated draws of fewer
of them. For anchors, which enter through every association, there is only the check: shifts on repeated draws of fewer
anchors. Writes plan.csv, widths.csv, anchors.csv, power.md and the picture.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import refbias
from refbias.cache import open_cache
from refbias.checkpoints import planted
from refbias.comparison import Comparison
from refbias.context import Context
from refbias.models import find_model
from refbias.report import figures as base
from refbias.report.console import ConsoleWatch
from refbias.report.figures import save_pictures
from refbias.statistics import CrossedBootstrap
from refbias.statistics.planning import Plan, plan, subsample
from refbias.types import Array, Space

CALIBRATIONS = {"raw": "none", "centred": "center"}
CHECKED = ((50, 100), (50, 50), (50, 25), (25, 100), (12, 100), (25, 50))  # targets, pairs of attributes
REPEATS = 10
ANCHORS = (10, 30, 100, 300)


def spaces(model: str, seed: int, ratio: float, cache: str | bool, options: Any) -> tuple[Space, Space]:
    """The reference's and the planted checkpoint's view of the packaged sentences, last layer, mean pooling."""
    store, watch = open_cache(cache), ConsoleWatch()
    reference = find_model(model, cache=store, watch=watch)
    series = planted(reference, Context(store, watch=watch), seed=seed, ratios=[ratio], **options)
    stimuli = refbias.load_stimuli()
    sentences = stimuli.sentences()
    row = {sentence: i for i, sentence in enumerate(sentences)}

    def seen_by(found: Any) -> Space:
        vectors = refbias.encode(found, sentences, cache=store).astype(np.float64)

        def take(some: Sequence[str]) -> Array:
            return vectors[[row[s] for s in some]]

        targets = {group: take(some) for group, some in stimuli.targets.items()}
        return Space(targets, take(stimuli.positive), take(stimuli.negative), take(stimuli.anchors))

    return seen_by(reference), seen_by(series.checkpoints[0].model)


def checked(differences: Mapping[str, Array], made: Plan, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Predicted and measured half-widths of a group's interval, and the spread of its shift over draws."""
    n, m = made.pooled.n, made.pooled.m
    rows = []
    for targets, pairs in ((t, a) for t, a in CHECKED if t <= n and a <= m):
        bootstrap, widths, shifts = CrossedBootstrap(pairs, pairs, draws=1000), [], []
        for _ in range(REPEATS):
            some = {group: subsample(rows, targets, pairs, rng) for group, rows in differences.items()}
            values = {group: _shift(rows, pairs) for group, rows in some.items()}
            found = bootstrap.estimates(some, values)[0].values()
            widths.append([(e.ci_high - e.ci_low) / 2 for e in found if e.ci_low is not None and e.ci_high is not None])
            shifts.append(list(values.values()))
        rows.append(
            {
                "targets": targets,
                "attribute_pairs": pairs,
                "predicted": float(np.mean([c.half_width(targets, pairs) for c in made.groups.values()])),
                "measured": float(np.mean(widths)),
                "predicted_se": _left(made, targets, pairs),
                "measured_sd": float(np.sqrt(np.mean(np.var(shifts, axis=0, ddof=1)))),
            }
        )
    return rows


def _shift(rows: Array, pairs: int) -> float:
    return float(rows[:, :pairs].mean() - rows[:, pairs:].mean())


def _left(made: Plan, targets: int, pairs: int) -> float:
    """Spread over draws without replacement from the sentences that there are: what has been drawn cannot differ."""
    variances = []
    for c in made.groups.values():
        t, a, ta = c.targets, sum(c.attributes), sum(c.interaction)
        whole = 1 / (c.n * c.m)
        variances.append(t * (1 / targets - 1 / c.n) + a * (1 / pairs - 1 / c.m) + ta * (1 / (targets * pairs) - whole))
    return float(np.sqrt(np.mean(variances)))


def by_anchors(reference: Space, audited: Space, calibration: str, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Shifts with fewer anchors, over draws: their spread, and how far they order the groups as all anchors do."""
    assert reference.anchors is not None and audited.anchors is not None
    every = Comparison(reference, calibration=calibration).shifts(audited)
    groups, total = list(every), len(reference.anchors)
    rows = []
    for count in (*(n for n in ANCHORS if n < total), total):
        drawn = []
        for _ in range(REPEATS if count < total else 1):
            chosen = rng.choice(total, count, replace=False)
            few = [Space(s.targets, s.positive, s.negative, s.anchors[chosen]) for s in (reference, audited)]  # type: ignore[index]
            found = Comparison(few[0], calibration=calibration).shifts(few[1])
            drawn.append([found[group] / np.sqrt(count) for group in groups])
        whole = [every[group] / np.sqrt(total) for group in groups]
        rows.append(
            {
                "anchors": count,
                "mean_over_sqrt_m": float(np.mean(drawn)),
                "sd_over_draws": float(np.sqrt(np.mean(np.var(drawn, axis=0, ddof=1)))) if len(drawn) > 1 else None,
                "sd_over_groups": float(np.mean(np.std(drawn, axis=1, ddof=1))),
                "r_with_all": float(np.mean([np.corrcoef(some, whole)[0, 1] for some in drawn])),
            }
        )
    return rows


def picture(plans: Mapping[str, Plan], rows: Sequence[Mapping[str, Any]], setting: str, wanted: float) -> Any:
    """Predicted half-width over the number of sentences, with what was measured on fewer of them as points."""
    words = base._Words(
        "Half-width of a group's 95 % interval over the number of sentences",
        setting,
        f"lines: predicted from the variance components (mean over groups) · points: measured on {REPEATS} draws of "
        f"fewer sentences · dotted: ± {wanted:g}",
    )
    with base._style():
        frame = base._Margins(left=0.8, below=0.6, between=0.75, above=0.35, key=0.3)
        figure, axes, key = base._frame(words, (3.6, 3.0), 1, len(plans), frame)
        for ax, (name, made) in zip(axes, plans.items(), strict=True):
            n, m = made.pooled.n, made.pooled.m
            at = np.unique(np.geomspace(5, 2000, 60).round().astype(int)).tolist()
            scale = max(1, round(m / n))
            lines = (
                (f"attribute pairs, {n} targets", base.BLUE, [made.pooled.half_width(n, a) for a in at]),
                (f"targets, {m} pairs", base.VERMILLION, [made.pooled.half_width(t, m) for t in at]),
                (
                    f"targets, {scale} times as many pairs",
                    base.GREEN,
                    [made.pooled.half_width(t, scale * t) for t in at],
                ),
            )
            base._plain(ax)
            ax.grid(color=base.FAINT, linewidth=0.6)
            for label, colour, widths in lines:
                ax.plot(at, widths, color=colour, linewidth=1.4, label=label)
            own = [row for row in rows if row["shift"] == name]
            for column, fixed, whole, colour in (
                ("attribute_pairs", "targets", n, base.BLUE),
                ("targets", "attribute_pairs", m, base.VERMILLION),
            ):
                some = [row for row in own if row[fixed] == whole]
                ax.scatter([r[column] for r in some], [r["measured"] for r in some], s=26, color=colour, zorder=3)
            ax.axhline(wanted, color=base.GREY, linewidth=1.2, linestyle=":")
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_title(f"ΔB {name}", size=10, loc="left")
            ax.set_xlabel("number of sentences or pairs", size=base.LABEL_SIZE)
            ax.set_ylabel("half-width", size=base.LABEL_SIZE)
        figure.legend(
            handles=axes[0].get_lines()[:3], loc="upper left", ncols=3, fontsize=8.5, frameon=False,
            bbox_to_anchor=(0.1 / figure.get_figwidth(), key), borderaxespad=0.0,
        )  # fmt: skip
    return figure


def write(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with open(file, "w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def markdown(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = list(rows[0])

    def cell(value: Any) -> str:
        return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)

    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return [*lines, *(f"| {' | '.join(cell(row[c]) for c in columns)} |" for row in rows)]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ratio", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=None, help="of the planted fine-tunes")
    parser.add_argument("--half-width", type=float, default=0.02)
    parser.add_argument("--cache", default=None)
    parser.add_argument("--out", type=Path, default=Path("outputs/power"))
    chosen = parser.parse_args(words)
    chosen.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(chosen.seed)
    options = {} if chosen.steps is None else {"steps": chosen.steps}
    reference, audited = spaces(chosen.model, chosen.seed, chosen.ratio, chosen.cache or True, options)
    plans: dict[str, Plan] = {}
    tables: dict[str, list[dict[str, Any]]] = {"plan": [], "widths": [], "anchors": []}
    for name, calibration in CALIBRATIONS.items():
        differences = Comparison(reference, calibration=calibration).differences(audited)
        plans[name] = plan(differences, chosen.half_width)
        found = {
            "plan": plans[name].rows(),
            "widths": checked(differences, plans[name], rng),
            "anchors": by_anchors(reference, audited, calibration, rng),
        }
        for table, rows in found.items():
            tables[table] += [{"shift": name, **row} for row in rows]
    setting = f"{chosen.model}, planted contrast fine-tune of seed {chosen.seed}, ratio {chosen.ratio:g}, ΔB"
    for table, rows in tables.items():
        write(chosen.out / f"{table}.csv", rows)
    save_pictures({"power": picture(plans, tables["widths"], setting, chosen.half_width)}, chosen.out)
    text = [setting, "", *(f"- {name}: {made}" for name, made in plans.items()), ""]
    text += [*markdown(tables["widths"]), "", *markdown(tables["anchors"]), ""]
    (chosen.out / "power.md").write_text("\n".join(text), encoding="utf-8")
    print("\n".join(text))


if __name__ == "__main__":
    main()
