"""Two stages of an audit: which checkpoints the shifts send on to the benchmark, what that may miss, what it saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from refbias.errors import RefbiasError, UsageError
from refbias.reading import beyond_doubt
from refbias.statistics.measures import Figure
from refbias.types import Array

Of = Literal["groups", "mean"]


@dataclass(frozen=True)
class Judged:
    """Whether a checkpoint alarms and why, with the ``groups`` that say so."""

    alarmed: bool
    why: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alarm:
    """When a checkpoint goes on to the benchmark.

    Parameters
    ----------
    threshold : of the shift; None: below zero beyond doubt (p_adjusted < 0.05 and ci_high < 0), as
        chosen or in the second opinion, where the drift that any fine-tune has is taken out
    of : what is held against it: ``groups``, of which ``at_least`` so many must cross it, or the ``mean`` over groups
    directed : the shift falls with bias, so an alarm lies below the threshold; a drift's lies above it
    """

    threshold: float | None = None
    of: Of = "groups"
    at_least: int = 1
    directed: bool = True

    def __post_init__(self) -> None:
        if self.at_least < 1:
            raise UsageError(f"task.at_least={self.at_least}: expected a number of groups, 1 or more.")

    @property
    def said(self) -> str:
        """The rule in words."""
        if self.of == "mean":
            return f"the mean over groups {self._crossing}"
        return f"at least {self.at_least} {'group' if self.at_least == 1 else 'groups'} {self._crossing}"

    @property
    def _crossing(self) -> str:
        if self.threshold is None:
            return "below zero beyond doubt, in the shift or its second opinion"
        return f"{'below' if self.directed else 'above'} {self.threshold:+.3f}"

    def judge(self, checkpoint: Mapping[str, Any]) -> Judged:
        """Judge one checkpoint's entry of result.json.

        A figure that is missing is no all-clear: where it could have made the difference, the checkpoint goes on to
        the benchmark.
        """
        if self.of == "mean":
            second = checkpoint.get("second_opinion_mean")
            mean = {"delta_b": checkpoint["mean_delta_b"], "second_opinion": second, **(checkpoint.get("mean") or {})}
            crossed = self._crosses(mean)
            if crossed is None:
                return Judged(True, "the mean over groups has no figure to judge by")
            return Judged(crossed, f"mean {mean['delta_b']:+.3f}")
        verdicts = {str(row["group"]): self._crosses(row) for row in checkpoint["groups"]}
        crossed_by = tuple(group for group, crossed in verdicts.items() if crossed)
        undecided = [group for group, crossed in verdicts.items() if crossed is None]
        why = f"{len(crossed_by)} of {len(verdicts)} groups {self._crossing}"
        if len(crossed_by) < self.at_least <= len(crossed_by) + len(undecided):
            return Judged(True, f"{why}; {len(undecided)} have no figure to judge by", crossed_by)
        return Judged(len(crossed_by) >= self.at_least, why, crossed_by)

    def _crosses(self, row: Mapping[str, Any]) -> bool | None:
        """Whether a row crosses the threshold; None where it has no figure."""
        if self.threshold is None:
            opinions = [one for one in (row, row.get("second_opinion")) if one and one.get("p_adjusted") is not None]
            return any(map(beyond_doubt, opinions)) if opinions else None
        if row.get("delta_b") is None:
            return None
        shift = float(row["delta_b"])
        return shift < self.threshold if self.directed else shift > self.threshold


def expected_miss_rate(chances: Mapping[str, Sequence[float]], skipped: Sequence[str]) -> Figure:
    """Share of the more biased observations that lie in the ``skipped`` checkpoints, as P(more biased | ΔB) has it.

    Σ P over the skipped ÷ Σ P over all; ``chances`` holds P for each observation, by checkpoint.
    """
    total = float(sum(sum(values) for values in chances.values()))
    if not total > 0:
        return Figure(None, "no observation is expected to be more biased")
    return Figure(float(sum(sum(chances[name]) for name in skipped)) / total)


def cost(
    checkpoints: int, benchmarked: int, stage_1_s: float, stage_2_s: float, benchmark_s: float | None
) -> dict[str, Any]:
    """What the two stages cost beside the benchmark of every checkpoint, in seconds.

    Parameters
    ----------
    checkpoints, benchmarked : how many there are, and how many the benchmark has scored beside the reference
    stage_1_s, stage_2_s : of the wall clock
    benchmark_s : of the benchmark alone, within stage 2; None where it was not run

    Returns
    -------
    ``a_model_s``, ``everything_s`` (reference and all checkpoints, at this rate), ``benchmark_saved_share`` of the
    benchmark alone, and ``saved_share`` once both stages are counted: below 0 where screening cost more than it saved
    """
    found: dict[str, Any] = {"stage_1_s": stage_1_s, "stage_2_s": stage_2_s, "benchmark_s": benchmark_s}
    if not benchmarked or not benchmark_s:
        why = "no checkpoint alarmed" if not benchmarked else "it took no time that can be measured"
        nothing = dict.fromkeys(("a_model_s", "everything_s", "benchmark_saved_share", "saved_share"))
        return found | nothing | {"reason": f"the rate of the benchmark is not known: {why}"}
    rate = benchmark_s / (1 + benchmarked)
    everything = rate * (1 + checkpoints)
    return found | {
        "a_model_s": rate,
        "everything_s": everything,
        "benchmark_saved_share": 1 - benchmark_s / everything,
        "saved_share": 1 - (stage_1_s + stage_2_s) / everything,
    }


# Over many audits that have a benchmark: what a threshold would have cost, and found ------------------------------


@dataclass(frozen=True)
class Screened:
    """Checkpoints that were all benchmarked, so that any threshold can be tried on them.

    ``score`` (k,) is what alarms, higher first; ``positive`` (k,) the number of more biased observations in each
    checkpoint; ``run`` (k,) the independent fine-tune that it belongs to.
    """

    score: Array
    positive: Array
    run: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.score)

    def of(self, which: Array) -> Screened:
        """Those of a mask (k,)."""
        run = tuple(name for name, kept in zip(self.run, which, strict=True) if kept)
        return Screened(self.score[which], self.positive[which], run)


def screened(
    x: Any, positive: Any, checkpoints: Sequence[str], runs: Sequence[str], at_least: int = 1, directed: bool = True
) -> Screened:
    """Observations (n,) gathered by (run, checkpoint).

    The score of a checkpoint is its ``at_least``-th most alarming shift: it is above a threshold where so many groups
    are.
    """
    alarm = (-1.0 if directed else 1.0) * np.asarray(x, dtype=float)
    labels = np.asarray(positive, dtype=bool)
    members: dict[tuple[str, str], list[int]] = {}
    for i, key in enumerate(zip(runs, checkpoints, strict=True)):
        members.setdefault(key, []).append(i)
    fewest = min(map(len, members.values()), default=0)
    if fewest < at_least:
        raise RefbiasError(f"A rule of {at_least} groups needs as many observations a checkpoint: one has {fewest}.")
    return Screened(
        np.array([np.sort(alarm[rows])[-at_least] for rows in members.values()]),
        np.array([int(labels[rows].sum()) for rows in members.values()]),
        tuple(run for run, _ in members),
    )


def at_threshold(seen: Screened, score: float) -> dict[str, float | None]:
    """Cost and recall where checkpoints of at least ``score`` alarm.

    ``cost``: share of the checkpoints that are benchmarked. ``recall``: share of the more biased observations that
    lie in them; ``checkpoint_recall``: share of the checkpoints with such an observation. None where there is none.
    """
    raised, total, guilty = seen.score >= score, int(seen.positive.sum()), seen.positive > 0
    return {
        "cost": float(raised.mean()),
        "recall": float(seen.positive[raised].sum() / total) if total else None,
        "checkpoint_recall": float(raised[guilty].mean()) if guilty.any() else None,
    }


def cost_and_recall(seen: Screened) -> list[dict[str, Any]]:
    """A row a threshold that makes a difference, from an alarm at none to an alarm at every checkpoint."""
    if not len(seen):
        return []
    scores = [float("inf"), *np.unique(seen.score)[::-1].tolist()]
    return [{"score": score, **at_threshold(seen, score)} for score in scores]


def threshold_for(seen: Screened, wanted: float) -> Figure:
    """The highest score at which ``wanted`` of the more biased observations are found."""
    if not 0 < wanted <= 1:
        raise UsageError(f"A wanted recall lies above 0 and at most at 1: got {wanted}.")
    if not seen.positive.sum():
        return Figure(None, "there is no more biased observation to find")
    return Figure(next(row["score"] for row in cost_and_recall(seen) if row["recall"] >= wanted - 1e-12))


def leave_one_run_out(seen: Screened, wanted: float) -> list[dict[str, Any]]:
    """For each run: the threshold that the other runs give for a ``wanted`` recall, and what it costs and finds here.

    A run's own merges say nothing about its threshold: they are nearly one observation.
    """
    rows = []
    for run in dict.fromkeys(seen.run):
        own = np.array([name == run for name in seen.run])
        threshold = threshold_for(seen.of(~own), wanted)
        row: dict[str, Any] = {"run": run, "wanted": wanted, "score": threshold.value, "checkpoints": int(own.sum())}
        row["more_biased"] = int(seen.positive[own].sum())
        if threshold.value is None:
            rows.append({**row, "cost": None, "recall": None, "checkpoint_recall": None, "reason": threshold.reason})
        else:
            rows.append({**row, **at_threshold(seen.of(own), threshold.value)})
    return rows
