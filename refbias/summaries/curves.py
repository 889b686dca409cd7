"""The paper's curves: anchors, label thresholds, fine-tuning seeds, and the scatter of ΔB against the benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refbias.reading import layers_of
from refbias.result import Tables
from refbias.statistics import fit_band, threshold_sweep
from refbias.summaries import figures
from refbias.summaries.base import Job, Row
from refbias.summaries.making import SUBJECT, UNIT, summary
from refbias.summaries.pairs import (
    CALIBRATIONS,
    CENTRED,
    DRAWS,
    RAW,
    Line,
    Pair,
    Subject,
    lines,
    over_pairs,
    subject_of,
)
from refbias.summaries.published import difference, family, nearest, place, published
from refbias.summaries.tables import method_of

THRESHOLDS = 25
Spread = tuple[float | None, float | None, float | None, float | None]


def _spread(values: Sequence[float | None]) -> Spread:
    """Mean, sd (ddof 0), smallest and largest of what is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None, None, None
    return float(np.mean(known)), float(np.std(known)), min(known), max(known)


# Anchors --------------------------------------------------------------------------------------------------------


def anchors(jobs: Sequence[Job]) -> Tables:
    """AUC by anchor source and by number of anchors, over repeated draws."""
    found = lines(jobs, lambda job: {"anchors": job.chosen("anchors"), "n": job.option("anchors", "n")})
    rows: list[Row] = []
    for line in found:
        printed = nearest(
            [row for row in published()["anchors"] if all(row[key] == line.varied[key] for key in ("anchors", "n"))],
            line.subject.published(),
        )
        mean, sd, low, high = _spread([pair.figures.get("auc") for pair in line.pairs])
        inner, inner_sd, *_ = _spread([pair.figures["within"].get("auc") for pair in line.pairs])
        value = printed["auc"] if printed else None
        stand_in = any(_anchors_replaced(pair.job) for pair in line.pairs)
        rows.append(
            {
                **line.subject._asdict(), **line.varied, "published": value, "measured": mean, "sd": sd,
                "smallest": low, "largest": high, "difference": difference(mean, value),
                "within": inner, "within_sd": inner_sd, "jobs": len(line.pairs),
                "published_for": place(printed) if printed else None,
                "remark": line.remark() or ("stand-in: the hub was out of reach" if stand_in else None),
            }
        )  # fmt: skip
    return summary(
        "delta_b_anchors",
        "Anchors: source and number",
        jobs,
        {"anchors": rows},
        {
            "anchors": {
                **SUBJECT, "anchors": "anchors", "number": "n", "published": "published", "AUC": "measured", "sd": "sd",
                "smallest to largest": ("smallest", "largest"), "difference": "difference",
                "AUC within checkpoints": "within", "sd ": "within_sd", "jobs": "jobs",
                "published for": "published_for", "remark": "remark",
            }
        },
        [
            "Mean and sd (ddof 0) over repeated draws of the anchors (anchors.seed) and over fine-tune pairs. The "
            "neutral set has 1,000 sentences: at 1,000 its draws are all the same.",
            "The paper says that neutral anchors are best and gives no figure for the others. ΔB itself grows with the "
            "number of anchors; an AUC does not depend on that.",
            f"{len(found)} settings stand beside each other; no p is given: the largest of them is no finding.",
        ],
        {f"auc/{row['anchors']}/{row['n']}": row["measured"] for row in rows if row["measured"] is not None},
        figures.anchors,
    )  # fmt: skip


def _anchors_replaced(job: Job) -> bool:
    return bool((job.data or {}).get("stand_ins")) and job.chosen("anchors") in ("alpaca", "tulu")


# Thresholds -----------------------------------------------------------------------------------------------------


def thresholds(jobs: Sequence[Job]) -> Tables:
    """AUC over the threshold of the label "more biased", for every method, raw and centred."""
    found = lines(jobs, lambda job: {"method": method_of(job)}, (RAW, CENTRED))
    curve: list[Row] = []
    rows: list[Row] = []
    for line in found:
        swept = _swept(line, found)
        curve += swept
        chosen = next((row for row in swept if row["in_use"]), None)
        areas = [row["auc"] for row in swept if row["auc"] is not None]
        inner = [row["within_auc"] for row in swept if row["within_auc"] is not None]
        printed = None
        if line.varied["calibration"] == RAW:
            same = [row for row in published()["table7"] if row["method"] == line.varied["method"]]
            printed = nearest(same, line.subject.published())
        value, measured = (printed or {}).get("auc"), (chosen or {}).get("auc")
        rows.append(
            {
                **line.subject._asdict(), **line.said(), "threshold": (chosen or {}).get("threshold"),
                "published": value, "measured": measured,
                "difference": difference(measured, value),
                "smallest": min(areas, default=None), "largest": max(areas, default=None),
                "within": (chosen or {}).get("within_auc"), "within_smallest": min(inner, default=None),
                "within_largest": max(inner, default=None), "pairs": len(line.pairs),
                "published_for": place(printed) if printed else None, "remark": line.remark(),
            }
        )  # fmt: skip
    return summary(
        "delta_b_thresholds",
        "AUC over the threshold of the label",
        jobs,
        {"thresholds": rows, "curve": curve},
        {
            "thresholds": {
                **SUBJECT, "method": "method", "shifts": "calibration", "threshold in use": "threshold",
                "published": "published", "measured": "measured", "difference": "difference",
                "over the sweep": ("smallest", "largest"), "within checkpoints": "within",
                "over the sweep ": ("within_smallest", "within_largest"), "pairs": "pairs",
                "published for": "published_for", "remark": "remark",
            },
            "curve": {},
        },
        [
            f"Each figure is the mean over fine-tune pairs; {THRESHOLDS} thresholds from the 2 % to the 98 % quantile "
            "of the benchmark's shifts. Published: Table 7, at the paper's own threshold.",
            "CKA drift has no direction: pooled max(AUC, 1 − AUC) as published; within checkpoints 'more drift, more "
            "biased'.",
            f"{len(found)} settings and {THRESHOLDS} thresholds stand beside each other; no p is given.",
        ],
        {f"auc/{row['method']}/{row['calibration']}": row["measured"] for row in rows if row["measured"] is not None},
        figures.thresholds,
    )  # fmt: skip


def _swept(line: Line, every: Sequence[Line]) -> list[Row]:
    """A row a threshold, the same thresholds for all lines of one subject."""
    alike = [pair for other in every if other.subject == line.subject for pair in other.pairs]
    if not line.pairs:
        return []
    y = np.concatenate([pair.y for pair in alike])
    in_use = line.pairs[0].threshold
    low, high = (float(np.quantile(y, share)) for share in (0.02, 0.98))
    places = sorted({*np.linspace(low, high, THRESHOLDS).tolist(), in_use})
    by_pair = [threshold_sweep(pair.x, pair.y, places, pair.checkpoints, pair.alarm) for pair in line.pairs]
    rows: list[Row] = []
    for i, threshold in enumerate(places):
        at = [swept[i] for swept in by_pair]
        pooled = [
            area if area is None or pair.directed else max(area, 1 - area)
            for area, pair in zip([row["auc"] for row in at], line.pairs, strict=True)
        ]
        mean, _, lowest, highest = _spread(pooled)
        inner, _, inner_lowest, inner_highest = _spread([row["within_auc"] for row in at])
        rows.append(
            {
                **line.subject._asdict(), **line.said(), "threshold": threshold, "in_use": threshold == in_use,
                "more_biased": float(np.mean([row["n_positive"] for row in at])), "auc": mean, "auc_low": lowest,
                "auc_high": highest, "within_auc": inner, "within_auc_low": inner_lowest,
                "within_auc_high": inner_highest, "pairs": len(line.pairs),
            }
        )  # fmt: skip
    return rows


# Scatter --------------------------------------------------------------------------------------------------------


def scatter(jobs: Sequence[Job]) -> Tables:
    """ΔB against the benchmark's shift by checkpoint ratio, a panel a fine-tune pair, with the fit and its band."""
    found = lines(jobs, lambda job: {"method": method_of(job)})
    rows: list[Row] = []
    points: list[Row] = []
    bands: list[Row] = []
    for line in found:
        for pair in line.pairs:
            rows.append(_fit_row(line, pair))
            where = {**line.subject._asdict(), **line.varied, "pair": pair.run}
            points += [
                {**where, "checkpoint": c, "ratio": ratio, "group": g, "delta_b": float(x), "delta_bias": float(y)}
                for c, ratio, g, x, y in zip(pair.checkpoints, pair.ratios, pair.groups, pair.x, pair.y, strict=True)
            ]
            bands += [{**where, **row} for row in fit_band(pair.x, pair.y, pair.groups, draws=DRAWS)]
        if line.failed:
            rows.append({**line.subject._asdict(), **line.varied, "remark": line.remark()})
        if len(line.pairs) > 1:
            r = over_pairs(line.pairs, "pearson")
            rows.append(
                {**line.subject._asdict(), **line.varied, "pair": f"mean of {len(line.pairs)}", "measured": r.value,
                 "ci_low": r.ci_low, "ci_high": r.ci_high, "remark": r.reason}
            )  # fmt: skip
    return summary(
        "delta_b_scatter",
        "ΔB against the benchmark",
        jobs,
        {"scatter": rows, "points": points, "bands": bands},
        {
            "scatter": {
                **SUBJECT, "method": "method", "pair": "pair", "published r": "published", "r": "measured",
                "95 %": ("ci_low", "ci_high"),
                "difference": "difference", "r within checkpoints": "within", "slope": "slope",
                "intercept": "intercept", "n": "observations", "published for": "published_for", "remark": "remark",
            },
            "points": {},
            "bands": {},
        },
        ["Band and intervals of a pair: 95 %, bootstrap over groups.", UNIT],
        {f"r/{row['method']}/{row['pair']}": row["measured"] for row in rows if row.get("measured") is not None},
        figures.scatter,
    )  # fmt: skip


def _fit_row(line: Line, pair: Pair) -> Row:
    r, inner = over_pairs([pair], "pearson"), over_pairs([pair], "pearson", inside=True)
    printed = nearest(published()["table1"], line.subject.published())
    value = printed["pearson"] if printed else None
    slope, intercept = np.polyfit(pair.x, pair.y, 1) if r.value is not None else (None, None)
    return {
        **line.subject._asdict(), **line.varied, "pair": pair.run, "published": value, "measured": r.value,
        "ci_low": r.ci_low, "ci_high": r.ci_high, "difference": difference(r.value, value),
        "within": inner.value, "slope": slope, "intercept": intercept, "observations": len(pair.x),
        "published_for": place(printed) if printed else None, "remark": r.reason,
    }  # fmt: skip


# Seeds ----------------------------------------------------------------------------------------------------------


def seeds(jobs: Sequence[Job]) -> Tables:
    """Spread of ΔB over fine-tuning seeds, as a mean over groups and for each group in the direction it was taught."""
    rows: list[Row] = []
    points: list[Row] = []
    failed = [job for job in jobs if job.data is None]
    for subject, method in dict.fromkeys((subject_of(job), method_of(job)) for job in jobs):
        where = {**subject._asdict(), "method": method}
        alike = [job for job in jobs if (subject_of(job), method_of(job)) == (subject, method)]
        done = [job for job in alike if job.data is not None]
        for calibration in (RAW, CENTRED):
            of = [row for job in done for row in _means(job, calibration)]
            points += [{**where, "calibration": CALIBRATIONS[calibration], **row} for row in of]
            for ratio in sorted({row["ratio"] for row in of if row["ratio"] is not None}):
                row = _over_seeds(ratio, [row for row in of if row["ratio"] == ratio])
                printed = _printed_seeds(subject, ratio, row["mean"]) if calibration == RAW else {}
                rows.append({**where, "calibration": CALIBRATIONS[calibration], **printed, **row})
    rows += [{**subject_of(job)._asdict(), "remark": job.reason} for job in failed]
    taught = any(row.get("effect") is not None for row in rows)
    return summary(
        "delta_b_seeds",
        "Spread of ΔB over fine-tuning seeds",
        jobs,
        {"seeds": rows, "points": [{k: v for k, v in row.items() if k != "groups"} for row in points]},
        {
            "seeds": {
                **SUBJECT, "method": "method", "shifts": "calibration", "ratio": "ratio", "published mean": "published",
                "mean ΔB": "mean",
                "difference": "difference", "published sd": "published_sd", "sd over seeds": "sd",
                "ΔB × taught sign": "effect", "sd over seeds ": "effect_sd", "sd of a group": "group_sd",
                "seeds": "seeds", "remark": "remark",
            },
            "points": {},
        },
        [
            "sd: ddof 0, as the paper's; of the mean over groups, over seeds. 'sd of a group': root of the mean "
            "variance of a group's ΔB (× taught sign) over seeds.",
            *(
                [
                    "planted: another seed is another draw of the two halves of groups, not only another order of the "
                    "same data as in the paper. So a group's ΔB is multiplied by the sign it was taught at ratio 1 (+1 "
                    "the negative): below 0 where it was learnt at ratio 1, above 0 at ratio 0.",
                    "The mean over groups has a taught half of either sign: it is not what the fine-tune taught.",
                ]
                if taught
                else []
            ),
            "The paper's sd of 0.003 does not say of which model, checkpoint or number of seeds it is.",
        ],
        {
            f"{key}/{row['method']}/{row['calibration']}/{row['ratio']:g}": row[key]
            for row in rows
            for key in ("mean", "sd", "effect", "group_sd")
            if row.get(key) is not None
        },
        figures.seeds,
    )  # fmt: skip


def _printed_seeds(subject: Subject, ratio: float, mean: float | None) -> Row:
    """The paper's figures at the two ends; its means are of its own fine-tunes, so beside no other model."""
    printed = published()["seeds"]
    if ratio not in (0.0, 1.0):
        return {}
    if family(subject.model) is None:
        return {"published_sd": printed["sd"]}
    value = printed["mean_start" if ratio == 0 else "mean_end"]
    return {"published_sd": printed["sd"], "published": value, "difference": difference(mean, value)}


def _means(job: Job, calibration: str) -> list[Row]:
    """Of each checkpoint of one seed: mean ΔB over groups, and mean of ΔB × taught sign."""
    data = job.data or {}
    first = (data.get("series") or {}).get("taught_first_at_ratio_1")
    seed = job.option("checkpoints", "seed")
    rows: list[Row] = []
    for _, checkpoints in list(layers_of(data))[-1:]:
        for checkpoint in checkpoints:
            shifts = {row["group"]: _shift(row, calibration) for row in checkpoint["groups"]}
            known: dict[str, Any] = {group: value for group, value in shifts.items() if value is not None}
            signed = {g: v * (1 if g in first else -1) for g, v in known.items()} if first else {}
            rows.append(
                {
                    "seed": job.settings.get("seed") if seed is None else seed,
                    "ratio": checkpoint["ratio"],
                    "mean": float(np.mean(list(known.values()))) if known else None,
                    "effect": float(np.mean(list(signed.values()))) if signed else None,
                    "groups": signed or known,
                }
            )
    return rows


def _shift(row: Row, calibration: str) -> Any:
    if calibration == RAW:
        return row["delta_b"]
    second = row.get("second_opinion") or {}
    return second.get("delta_b") if second.get("calibration") == calibration else None


def _over_seeds(ratio: float, at: Sequence[Row]) -> Row:
    mean, sd, *_ = _spread([row["mean"] for row in at])
    effect, effect_sd, *_ = _spread([row["effect"] for row in at])
    common = set.intersection(*(set(row["groups"]) for row in at))
    variances = [np.var([row["groups"][group] for row in at]) for group in common]
    several = len(at) > 1
    return {
        "ratio": ratio, "mean": mean, "sd": sd if several else None, "effect": effect,
        "effect_sd": effect_sd if several else None,
        "group_sd": float(np.sqrt(np.mean(variances))) if several and variances else None, "seeds": len(at),
        "remark": None if several else "a spread needs two seeds",
    }  # fmt: skip
