"""Agreement with a benchmark over fine-tune pairs: the pair is the unit, what varies are the lines of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refbias.reading import benchmarks_of, is_audit, layers_of
from refbias.statistics import Alternative, Estimate, Figure, agreement, max_statistic, mean_over_runs, meta_analysis
from refbias.summaries.base import Job, Row
from refbias.summaries.published import difference, family, nearest, place, published
from refbias.types import Array

DRAWS = 10_000
FIGURES = {"auc": "AUC", "pearson": "r", "mae": "MAE"}
RAW, CENTRED = "none", "center"
CALIBRATIONS = {RAW: "raw", CENTRED: "centred"}


class Subject(NamedTuple):
    """What a line of a table is about, besides what varies: in words of the settings."""

    model: str
    regime: str
    benchmark: str

    def published(self) -> dict[str, str | None]:
        """The same in the words of the paper's tables; None where the paper has none such."""
        regime = {"full": "full"}.get(self.regime, "lora" if self.regime.startswith("lora") else None)
        return {"model": family(self.model), "regime": regime, "benchmark": self.benchmark}


def subject_of(job: Job) -> Subject:
    return Subject(str(job.settings.get("reference")), _regime(job), _benchmark(job))


def _benchmark(job: Job) -> str:
    """The benchmark's name, with what makes it another measurement than the paper's."""
    variant = job.option("benchmark", "variant")
    parts = [job.chosen("benchmark") or "none", None if variant == "statement" else variant]
    return ", ".join([*filter(None, parts), *(["cut"] if job.option("benchmark", "limit") else [])])


def _regime(job: Job) -> str:
    """How the checkpoints were fine-tuned, as far as the settings say."""
    series = job.chosen("checkpoints")
    if job.settings.get("audited") is not None or series is None:
        return "given models"
    if series == "planted":
        return "lora, planted" if job.option("checkpoints", "kind") == "contrast" else "lora, harmless"
    return str(job.chosen("regime")) if series == "merge" else series


@dataclass(frozen=True, eq=False)
class Pair:
    """One fine-tune pair at one setting: observations (n,) and their figures, as in the block ``benchmark``."""

    job: Job
    x: Array
    y: Array
    positive: NDArray[np.bool_]
    checkpoints: list[str]
    groups: list[str]
    ratios: list[float | None]
    threshold: float
    directed: bool
    figures: Mapping[str, Any]

    @property
    def alarm(self) -> int:
        return -1 if self.directed else 1

    @property
    def run(self) -> str:
        """Which fine-tune pair it is, in words."""
        seed = self.job.option("checkpoints", "seed")
        return f"seed {self.job.settings.get('seed') if seed is None else seed}"


def pair_of(job: Job, calibration: str = RAW) -> Pair | str:
    """The observations of a job, raw or of the second opinion ``calibration``; or why there are none."""
    data = job.data
    if data is None:
        return str(job.reason)
    if not is_audit(data):
        return f"task={data['task']} is no audit"
    *_, (_, checkpoints) = layers_of(data)
    *_, (_, benchmark) = benchmarks_of(data)
    if "scores" not in benchmark:
        return str(benchmark.get("reason") or "it has no benchmark")
    if calibration != (data["settings"].get("calibration") or RAW):
        checkpoints = [_second(checkpoint, calibration) for checkpoint in checkpoints]
    rows = [
        (row["delta_b"], score["delta_bias"], checkpoint["name"], row["group"], checkpoint["ratio"])
        for checkpoint in checkpoints
        for row in checkpoint["groups"]
        if (score := benchmark["scores"].get(checkpoint["name"], {}).get(row["group"]))
        and row["delta_b"] is not None
        and score["delta_bias"] is not None
    ]
    if not rows:
        return f"no shift of calibration {calibration} that the benchmark has scored"
    x, y = (np.array([row[i] for row in rows], dtype=float) for i in (0, 1))
    names, groups = ([row[i] for row in rows] for i in (2, 3))
    threshold = float(benchmark["threshold"])
    directed = any(row.get("b_ref") is not None for c in checkpoints for row in c["groups"])
    own = calibration == (data["settings"].get("calibration") or RAW)
    figures = benchmark if own else agreement(x, y, threshold, names, groups, directed, data["seed"])
    return Pair(job, x, y, y > threshold, names, groups, [row[4] for row in rows], threshold, directed, figures)


def _second(checkpoint: Mapping[str, Any], calibration: str) -> dict[str, Any]:
    """The checkpoint with the shifts of the second opinion in place of its own."""

    def of(row: Mapping[str, Any]) -> Any:
        second = row.get("second_opinion") or {}
        return second.get("delta_b") if second.get("calibration") == calibration else None

    return {**checkpoint, "groups": [{**row, "delta_b": of(row)} for row in checkpoint["groups"]]}


@dataclass
class Line:
    """A line of a table: one subject, one value of each thing that varies, and its fine-tune pairs."""

    subject: Subject
    varied: dict[str, Any]
    pairs: list[Pair] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def said(self) -> dict[str, Any]:
        """What varies, in the words of a table."""
        return {k: CALIBRATIONS.get(v, v) if k == "calibration" else v for k, v in self.varied.items()}

    def remark(self) -> str | None:
        """Why pairs are missing."""
        if not self.failed:
            return None
        why = "; ".join(dict.fromkeys(reason.split("\n")[0] for reason in self.failed))
        several = len(self.pairs) + len(self.failed) > 1
        return f"{len(self.failed)} of {len(self.pairs) + len(self.failed)} jobs did not run: {why}" if several else why


def lines(
    jobs: Sequence[Job], varied: Callable[[Job], Mapping[str, Any]], calibrations: Sequence[str] = (RAW,)
) -> list[Line]:
    """The jobs by subject and by what ``varied`` says of them, each also centred where asked for."""
    found: dict[Any, Line] = {}
    for job in jobs:
        for calibration in calibrations:
            extra = {"calibration": calibration} if len(calibrations) > 1 else {}
            labels = {**varied(job), **extra}
            if calibration != RAW and not _has_second(job, calibration):
                continue  # an undirected metric has no second opinion, a job that failed nothing
            subject = subject_of(job)
            line = found.setdefault((subject, *labels.items()), Line(subject, labels))
            pair = pair_of(job, calibration)
            if isinstance(pair, str):
                line.failed.append(pair)
            else:
                line.pairs.append(pair)
    return list(found.values())


def _has_second(job: Job, calibration: str) -> bool:
    rows = (row for _, checkpoints in layers_of(job.data or {}) for c in checkpoints for row in c["groups"])
    return any((row.get("second_opinion") or {}).get("calibration") == calibration for row in rows)


def by_subject(every: Iterable[Line]) -> dict[Subject, list[Line]]:
    found: dict[Subject, list[Line]] = {}
    for line in every:
        found.setdefault(line.subject, []).append(line)
    return found


# Figures over pairs ---------------------------------------------------------------------------------------------


def over_pairs(pairs: Sequence[Pair], figure: str, inside: bool = False) -> Estimate:
    """One figure over fine-tune pairs with its interval.

    Of one pair the bootstrap over groups; of several the mean with the pair as the unit: random effects on Fisher's z
    for r, Student's t for AUC and MAE.
    """
    if not pairs:
        return Estimate(None, None, None, None, "no pair of fine-tunes")
    blocks = [(pair.figures["within"] if inside else pair.figures) for pair in pairs]
    values = [block.get(figure) for block in blocks]
    if len(pairs) == 1:
        ends = [blocks[0].get(f"{figure}_ci_{end}") for end in ("low", "high")]
        return Estimate(values[0], ends[0], ends[1], None, blocks[0].get(f"{figure}_reason"))
    if figure == "pearson":
        known = [(v, len(set(pair.groups))) for v, pair in zip(values, pairs, strict=True) if v is not None]
        found = meta_analysis([v for v, _ in known], [n for _, n in known])
        return Estimate(found.value, found.ci_low, found.ci_high, found.p_value, found.reason)
    return mean_over_runs([Figure(value) for value in values], (0.0, 1.0) if figure == "auc" else None)


def counted(every: Sequence[Line], figure: str) -> dict[int, Alternative]:
    """For each line of one subject (by position) the p of its figure within checkpoints, alone and with the choice
    among all lines counted: one permutation of groups common to all checkpoints of all pairs.

    Lines with other observations than the first complete one have none.
    """
    stacked = {i: _stacked(line) for i, line in enumerate(every) if line.pairs}
    if not stacked or figure not in ("pearson", "auc"):
        return {}
    most = max(stacked.values(), key=lambda s: len(s[1]))
    usable = {str(i): s[0] for i, s in stacked.items() if s[1] == most[1]}
    blocks, groups = ([cell[k] for cell in most[1]] for k in (0, 1))
    kind: Literal["auc", "pearson"] = "auc" if figure == "auc" else "pearson"
    found, _ = max_statistic(usable, most[2], most[3], blocks, groups, kind, draws=DRAWS)
    return {int(i): alternative for i, alternative in found.items()}


def _stacked(line: Line) -> tuple[Array, list[tuple[str, str]], Array, Any]:
    """Shifts that fall with bias, cells (checkpoint of a pair, group), benchmark shifts and labels of all pairs."""
    cells = [(f"{p.run}/{c}", g) for p in line.pairs for c, g in zip(p.checkpoints, p.groups, strict=True)]
    falling = np.concatenate([-p.alarm * p.x for p in line.pairs])
    return falling, cells, np.concatenate([p.y for p in line.pairs]), np.concatenate([p.positive for p in line.pairs])


# Published beside measured --------------------------------------------------------------------------------------


def beside(every: Sequence[Line], figures: Sequence[str], printed: Sequence[Row]) -> list[Row]:
    """Rows published | measured | difference: one a line and figure, then those that only the paper has."""
    rows: list[Row] = []
    used: list[Row] = []
    for of_subject in by_subject(every).values():
        chances = {figure: counted(of_subject, figure) for figure in figures}
        for i, line in enumerate(of_subject):
            row = _printed_for(printed, line)
            used += [row] if row else []
            rows += [_row(line, figure, row, chances[figure].get(i), len(chances[figure])) for figure in figures]
    rest = [row for row in printed if row not in used]
    return rows + [_not_here(row, figure, every) for row in rest for figure in figures if figure in row]


def _printed_for(printed: Sequence[Row], line: Line) -> Row | None:
    """The published row of what varies in ``line``, at its subject or the one that comes nearest."""
    if line.varied.get("calibration", RAW) != RAW:
        return None
    same = [row for row in printed if all(row[key] == line.varied[key] for key in row if key in line.varied)]
    return nearest(same, line.subject.published())


def _row(line: Line, figure: str, printed: Row | None, chance: Alternative | None, alternatives: int) -> Row:
    pooled, inner = over_pairs(line.pairs, figure), over_pairs(line.pairs, figure, inside=True)
    value = printed.get(figure) if printed else None
    return {
        **line.subject._asdict(),
        **line.said(),
        "figure": FIGURES[figure],
        "published": value,
        "published_for": _place_beside(printed, line.subject) if value is not None else None,
        "measured": pooled.value,
        "ci_low": pooled.ci_low,
        "ci_high": pooled.ci_high,
        "difference": difference(pooled.value, value),
        "within": inner.value,
        "within_ci_low": inner.ci_low,
        "within_ci_high": inner.ci_high,
        "directed": over_pairs(line.pairs, f"{figure}_directed").value,
        "within_p": chance.p_value if chance else None,
        "within_p_counted": chance.p_adjusted if chance and alternatives > 1 else None,
        "alternatives": alternatives or None,
        "pairs": len(line.pairs),
        "observations": sum(len(pair.x) for pair in line.pairs),
        "more_biased": int(sum(pair.positive.sum() for pair in line.pairs)),
        "remark": line.remark() or pooled.reason,
    }


def _place_beside(printed: Row | None, subject: Subject) -> str | None:
    """Where the published figure was measured, where that is not what the line is about."""
    same = printed is not None and all(printed[key] == value for key, value in subject.published().items())
    return None if printed is None or same else place(printed)


def _not_here(printed: Row, figure: str, every: Sequence[Line]) -> Row:
    """A published figure for which no job ran, with what it needs."""
    hub = published()["models"][printed["model"]]
    keys = [key for key in (every[0].varied if every else ()) if key in printed]
    return {
        "model": hub,
        "regime": printed["regime"],
        "benchmark": printed["benchmark"],
        **{key: printed[key] for key in keys},
        "figure": FIGURES[figure],
        "published": printed[figure],
        "pairs": 0,
        "only_published": True,
        "remark": "needs models=paper: the hub, two fine-tunes, a GPU",
    }
