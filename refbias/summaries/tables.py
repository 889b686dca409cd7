"""Tables 1, 3, 5, 6 and 7 of arXiv 2609.10060: published, measured, difference."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refbias.result import Tables
from refbias.summaries import figures
from refbias.summaries.base import Job, Row
from refbias.summaries.making import BESIDE, INNER, SUBJECT, UNIT, choice, main_figures, summary
from refbias.summaries.pairs import CENTRED, RAW, Line, beside, by_subject, lines, over_pairs, subject_of
from refbias.summaries.published import difference, published

METHODS = {"relative": "RR", "absolute": "SEAT", "procrustes": "Procrustes-SEAT", "cka": "CKA drift"}
CELL = (
    "The same Llama cell of WildGuardMix has AUC 0.89 in the paper's Table 1, 0.892 in Table 5 and 0.964 in Tables 6 "
    "and 7; it does not say why."
)


def method_of(job: Job) -> str:
    geometry = str(job.chosen("geometry"))
    return METHODS.get(geometry, geometry)


def table1(jobs: Sequence[Job]) -> Tables:
    """Table 1: Pearson's r, AUC and MAE of ΔB by benchmark, model and regime."""
    found = lines(jobs, lambda job: {}, (RAW, CENTRED))
    rows = beside(found, ("pearson", "auc", "mae"), published()["table1"])
    return summary(
        "delta_b_table1",
        "Table 1: ΔB against benchmarks",
        jobs,
        {"table1": rows},
        {"table1": {**SUBJECT, "shifts": "calibration", **BESIDE}},
        [
            "MAE: of a linear fit, mean over 1,000 bootstrap resamples, in the bag; in the benchmark's unit.",
            "Centred shifts are not in the paper: the second opinion of every audit.",
            UNIT,
            INNER,
            choice(2, "calibrations"),
        ],
        main_figures(rows, ("calibration",)),
        functools.partial(figures.beside, table="table1", keys=("calibration",)),
    )


def table5(jobs: Sequence[Job]) -> Tables:
    """Table 5: AUC by variant of the attribute and of the target sentences, mean and spread."""
    kinds = ("attributes", "targets")
    known = [job for job in jobs if all(job.chosen(kind) for kind in kinds)]
    found = lines(known, lambda job: {kind: job.chosen(kind) for kind in kinds})
    one: list[Line] = []
    for kind, other in (("attributes", "targets"), ("targets", "attributes")):
        for line in found:
            if line.varied[other] == "base":
                varied = {"varied": kind, "variant": line.varied[kind]}
                one.append(Line(line.subject, varied, line.pairs, line.failed))
    rows = beside(one, ("auc",), published()["table5"])
    means = [row for subject, of in by_subject(one).items() for row in _spreads(subject._asdict(), of)]
    grid = [
        {**line.subject._asdict(), **line.varied, "auc": over_pairs(line.pairs, "auc").value,
         "within_auc": over_pairs(line.pairs, "auc", inside=True).value}
        for line in found
    ]  # fmt: skip
    values = [row["auc"] for row in grid if row["auc"] is not None]
    notes = [CELL, UNIT, INNER, choice(len(by_variant(one)), "variants")]
    if len(values) > len(one):
        notes.append(
            f"All {len(values)} combinations of both (not in the paper): AUC {np.mean(values):.3f} ± "
            f"{np.std(values):.3f}, {min(values):.3f} to {max(values):.3f}."
        )
    return summary(
        "delta_b_table5",
        "Table 5: variants of the attribute and target sentences",
        jobs,
        {"table5": rows, "means": means, "grid": grid},
        {
            "table5": {**SUBJECT, "varied": "varied", "variant": "variant", **BESIDE},
            "means": {
                **SUBJECT, "varied": "varied", "mean": "mean", "sd": "sd", "published mean": "published",
                "published sd": "published_sd", "difference": "difference", "variants": "variants",
            },
            "grid": {},
        },
        notes,
        {f"mean/{row['varied']}": row["mean"] for row in means} | main_figures(rows, ("varied", "variant")),
        figures.table5,
    )  # fmt: skip


def by_variant(every: Sequence[Line]) -> set[tuple[Any, ...]]:
    return {tuple(line.varied.items()) for line in every}


def _spreads(subject: Mapping[str, Any], of: Sequence[Line]) -> list[Row]:
    """Mean and sd (ddof 0, as published) over the variants of each kind."""
    rows: list[Row] = []
    for printed in published()["table5_means"]:
        areas = [over_pairs(line.pairs, "auc").value for line in of if line.varied["varied"] == printed["varied"]]
        values = [area for area in areas if area is not None]
        mean = float(np.mean(values)) if values else None
        rows.append(
            {
                **subject, "varied": printed["varied"], "mean": mean, "sd": float(np.std(values)) if values else None,
                "published": printed["mean"], "published_sd": printed["sd"],
                "difference": difference(mean, printed["mean"]), "variants": len(values),
            }
        )  # fmt: skip
    return rows


def table6(jobs: Sequence[Job]) -> Tables:
    """Table 6: AUC by pooling, of relative representations and of SEAT."""
    found = lines(jobs, lambda job: {"pooling": job.chosen("pooling"), "method": method_of(job)})
    return _methods("table6", "Table 6: pooling", jobs, found, ("auc",), ("pooling", "method"))


def table7(jobs: Sequence[Job]) -> Tables:
    """Table 7: relative representations, SEAT, Procrustes-SEAT and CKA drift, raw and centred."""
    found = lines(jobs, lambda job: {"method": method_of(job)}, (RAW, CENTRED))
    return _methods(
        "table7", "Table 7: methods", jobs, found, ("auc", "pearson"), ("method", "calibration"),
        "Centred shifts are not in the paper. CKA drift has no direction: as published |r| and max(AUC, 1 − AUC), "
        "whose mean under pure chance is above one half; 'directed' is the figure of 'more drift, more biased'.",
    )  # fmt: skip


def _methods(
    name: str,
    title: str,
    jobs: Sequence[Job],
    found: Sequence[Line],
    wanted: Sequence[str],
    keys: Sequence[str],
    *notes: str,
) -> Tables:
    rows = beside(found, wanted, published()[name])
    return summary(
        f"delta_b_{name}",
        title,
        jobs,
        {name: rows},
        {name: {**SUBJECT, **{("shifts" if key == "calibration" else key): key for key in keys}, **BESIDE}},
        [CELL, *notes, UNIT, INNER, choice(len(by_variant(found)), "settings")],
        main_figures(rows, keys),
        functools.partial(figures.beside, table=name, keys=keys),
    )


# Table 3 --------------------------------------------------------------------------------------------------------


def table3(jobs: Sequence[Job]) -> Tables:
    """Table 3: seconds for embeddings, for the shift and for each benchmark, a model."""
    rows: list[Row] = []
    for job in jobs:
        rows += _costs(job)
    measured = {(row["step"]) for row in rows if row["measured"] is not None}
    for printed in published()["table3"]:
        if printed["step"] not in measured and printed["step"] not in ("embeddings", "shift", "embeddings and shift"):
            remark = f"needs models=paper benchmark={printed['step']}, a GPU"
            rows.append(
                {"step": printed["step"], **_printed(printed["step"], None), "measured": None, "remark": remark}
            )
    devices = sorted({_device(job) for job in jobs if job.data is not None})
    return summary(
        "delta_b_table3",
        "Table 3: cost, seconds a model",
        jobs,
        {"table3": rows},
        {
            "table3": {
                "model": "model", "step": "step", "published": ("published_low", "published_high"),
                "measured": "measured", "difference": "difference", "sentences": "sentences", "per sentence": "each",
                "device": "device", "remark": "remark",
            }
        },
        [
            "Published: one A100 with 40 GB, the lowest and the highest of the models. The difference is from the "
            "nearer end, 0 between them.",
            f"Measured on: {', '.join(devices) or 'nothing ran'}. Embeddings and benchmark: of the reference and of "
            "the checkpoints, divided by their number; loading and converting a model is not counted, nor what came "
            "from the cache: a row says so.",
            "The shift is computed with its intervals (draws of the bootstrap) and second opinion, on the CPU.",
        ],
        {f"{row['step']}": row["measured"] for row in rows if row["measured"] is not None},
        figures.costs,
    )  # fmt: skip


def _device(job: Job) -> str:
    reference = (job.data or {}).get("reference", {})
    return f"{reference.get('device', 'cpu')} {reference.get('dtype', '')}".strip()


def _costs(job: Job) -> list[Row]:
    subject = subject_of(job)
    if job.data is None:
        return [{"model": subject.model, "step": "embeddings and shift", "measured": None, "remark": job.reason}]
    timings = job.data["timings"]
    models = 1 + len(job.data.get("checkpoints", []))
    fresh, cached = timings["sentences_encoded"], timings["sentences_from_cache"]
    stale = f"{cached:,} of {fresh + cached:,} sentences came from the cache: empty cache.dir" if cached else None
    embeddings = timings["encode_s"] / models if fresh else None
    shift = timings["score_s"] / max(models - 1, 1)
    both = None if embeddings is None else embeddings + shift
    steps = [("embeddings", embeddings), ("shift", shift), ("embeddings and shift", both)]
    if subject.benchmark != "none" and timings.get("benchmark_s"):
        steps.append((subject.benchmark, timings["benchmark_s"] / models))
    return [
        {
            "model": subject.model,
            "step": step,
            **_printed(step, seconds),
            "measured": seconds,
            "sentences": round(fresh / models) if step == "embeddings" else None,
            "each": embeddings * models / fresh if step == "embeddings" and embeddings and fresh else None,
            "device": _device(job),
            "remark": stale if step.startswith("embeddings") else None,
        }
        for step, seconds in steps
    ]


def _printed(step: str, measured: float | None) -> Row:
    printed = next((row for row in published()["table3"] if row["step"] == step), None)
    if printed is None:
        return {"published_low": None, "published_high": None, "difference": None}
    low, high = float(printed["low"]), float(printed["high"])
    apart = None if measured is None else measured - min(max(measured, low), high)
    return {"published_low": low, "published_high": high, "difference": apart}
