"""What all summaries of the paper's experiments share: sentences on what was used, and the frame of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from refbias.provenance import provenance
from refbias.result import Tables, task_data
from refbias.summaries.base import Job, Row
from refbias.summaries.published import family, published

BESIDE = {
    "figure": "figure",
    "published": "published",
    "measured": "measured",
    "95 %": ("ci_low", "ci_high"),
    "difference": "difference",
    "within checkpoints": "within",
    "95 % ": ("within_ci_low", "within_ci_high"),
    "p": "within_p",
    "p, choice counted": "within_p_counted",
    "directed": "directed",
    "pairs": "pairs",
    "n": "observations",
    "published for": "published_for",
    "remark": "remark",
}
SUBJECT = {"model": "model", "regime": "regime", "benchmark": "benchmark"}
UNIT = (
    "The interval of one fine-tune pair is the bootstrap over groups; of several, the pair is the unit (random effects "
    "on Fisher's z for r, Student's t for AUC and MAE)."
)
INNER = (
    "p: of the figure within checkpoints, by one permutation of groups common to all checkpoints; a pooled p would "
    "take merges as independent."
)


def choice(alternatives: int, what: str) -> str:
    """How many settings could have been picked from."""
    return (
        f"{alternatives} {what} stand beside each other: the best of them is not one figure but the largest of "
        f"{alternatives}; its p counts that (maximum over all, Westfall and Young)."
    )


def summary(
    name: str,
    title: str,
    jobs: Sequence[Job],
    tables: Mapping[str, Sequence[Row]],
    shown: Mapping[str, Mapping[str, Any]],
    notes: Iterable[str],
    figures: Mapping[str, float | None],
    draw: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    **blocks: Any,
) -> Tables:
    """The summary ``name`` as a result: ``shown`` says which columns of ``tables`` stand in the text."""
    stand_ins = _distinct(note for job in jobs for note in (job.data or {}).get("stand_ins", []))
    setting = _setting(jobs)
    done = sum(job.data is not None for job in jobs)
    data = task_data(
        "summary",
        {"summary": name, "jobs": len(jobs)},
        int(next((job.settings["seed"] for job in jobs if "seed" in job.settings), 0)),
        figures=figures,
        conventions={"published": published()["source"], "ddof_of_spreads": 0},
        stand_ins=stand_ins,
        timings=_timings(jobs),
        provenance=provenance({}, f"summary={name} of {len(jobs)} jobs"),
        title=title,
        about=[
            f"{setting} · {done} of {len(jobs)} jobs ran · stand-ins: {_listed(stand_ins)}",
            *_foreign(jobs, tables),
        ],
        setting=setting,
        shown=shown,
        notes=[*notes, *_failures(jobs)],
        **blocks,
        **tables,
    )
    return Tables(data, tuple(tables), draw)


def _distinct(items: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _listed(stand_ins: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{note['used']} in place of {note['wanted']}" for note in stand_ins) or "none"


def _foreign(jobs: Sequence[Job], tables: Mapping[str, Sequence[Row]]) -> list[str]:
    """That a model is none of the paper's, where published figures stand beside its own."""
    others = _distinct(str(job.settings.get("reference")) for job in jobs)
    others = [name for name in others if family(name) is None]
    if not others or not any("published" in row for rows in tables.values() for row in rows):
        return []
    return [
        f"{', '.join(others)}: none of the paper's models, nor its fine-tunes. The difference is from the figure in "
        f"the column 'published for'."
    ]


def _setting(jobs: Sequence[Job]) -> str:
    """One line: models, fine-tunes, what was scored, and the choices that did not vary."""
    names = _distinct(str(job.settings.get("reference")) for job in jobs)
    parts = [", ".join(names)]
    for data in (job.data for job in jobs if job.data is not None):
        if "checkpoints" in data:
            groups = max((len(c["groups"]) for c in data["checkpoints"]), default=0)
            parts.append(f"{groups} groups × {len(data['checkpoints'])} checkpoints")
        break
    pairs = len({str((job.settings.get("reference"), job.settings.get("checkpoints"))) for job in jobs})
    series = ", ".join(_distinct(str(job.chosen("checkpoints")) for job in jobs))
    tuned = f"{series}: {pairs} pair{'s' if pairs != 1 else ''} of fine-tunes"
    parts.append(tuned if series in ("planted", "merge") else series)
    for kind in ("benchmark", "geometry", "pooling", "anchors", "targets", "attributes"):
        chosen = _distinct(job.chosen(kind) for job in jobs)
        if len(chosen) == 1 and chosen[0] is not None:
            parts.append(f"{kind} {chosen[0]}")
    layers = _distinct((job.data or {}).get("layer", job.settings.get("layer")) for job in jobs)
    return " · ".join([*parts, *([f"layer {layers[0]}"] if len(layers) == 1 else [])])


def _failures(jobs: Sequence[Job]) -> list[str]:
    """One sentence a reason, with the jobs that it stopped."""
    reasons: dict[str, list[str]] = {}
    for job in jobs:
        if job.data is None:
            reasons.setdefault(str(job.reason).partition("\n")[0], []).append(str(job.number))
    return [f"Not run: job {', '.join(numbers)}: {reason}" for reason, numbers in reasons.items()]


def _timings(jobs: Sequence[Job]) -> dict[str, float]:
    total: dict[str, float] = {}
    for job in jobs:
        for name, value in ((job.data or {}).get("timings") or {}).items():
            if isinstance(value, (int, float)):
                total[name] = total.get(name, 0) + value
    return total


def main_figures(rows: Sequence[Row], keys: Sequence[str]) -> dict[str, float | None]:
    """The measured figures of a table for the tracker, by what varies."""
    several = len({(row["model"], row["regime"], row["benchmark"]) for row in rows if row.get("pairs")}) > 1
    found = {}
    for row in rows:
        if row.get("measured") is not None:
            subject = [row["model"], row["regime"], row["benchmark"]] if several else []
            label = "/".join(str(part) for part in [row["figure"], *subject, *(row.get(key) for key in keys)] if part)
            found[label] = row["measured"]
    return found
