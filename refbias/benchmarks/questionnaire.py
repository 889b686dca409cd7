"""A benchmark on generated answers as plain data: what is asked, and what its scores are made by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from refbias.answers import Answer, Prompt, Sampling, Score, Verdict, scoring
from refbias.errors import UsageError
from refbias.statistics.shifts import Estimate

T = TypeVar("T")


def whole(text: str) -> str:
    """All of an answer."""
    return text


@dataclass(frozen=True)
class Asked:
    """A `refbias.answers.Questionnaire` over prompts that are there from the beginning.

    Attributes
    ----------
    name, unit, threshold, judge, sampling, units, digest, report : as of `Questionnaire`
    rows : every prompt, in the order in which ``limit`` takes those of one group
    by : the key of ``Prompt.about`` that scores are made by
    cell : the key of the cells that weigh the same in a score; None: all prompts are one cell
    limit : that many prompts, spread evenly over what is scored; None: all
    extract : the part of an answer that is judged
    absent : group -> why it has no prompts
    """

    name: str
    unit: str
    threshold: float
    judge: str
    sampling: Sampling
    digest: str
    rows: Sequence[Prompt]
    units: Mapping[str, str] | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    by: str = "group"
    cell: str | None = None
    limit: int | None = None
    extract: Callable[[str], str] = whole
    absent: Mapping[str, str] = field(default_factory=dict)

    def unit_of(self, group: str) -> str | None:
        return group if self.units is None else self.units.get(group)

    def prompts(self, groups: Sequence[str]) -> list[Prompt]:
        """The prompts that are needed to score ``groups``: one of each unit in turn, up to ``limit``."""
        lines: dict[str, list[Prompt]] = {}
        for group in groups:
            unit = self.unit_of(group)
            if unit is not None:
                lines.setdefault(unit, [])
        for prompt in self.rows:
            unit = prompt.about.get(self.by)
            if unit in lines:
                lines[unit].append(prompt)
        longest = max(map(len, lines.values()), default=0)
        taken = [line[turn] for turn in range(longest) for line in lines.values() if turn < len(line)]
        return taken[: self.limit]

    def judged(self, prompt: Prompt, text: str) -> str:
        """The part of an answer that the judge is shown."""
        return self.extract(text)

    def scores(
        self,
        groups: Sequence[str],
        prompts: Sequence[Prompt],
        answers: Mapping[tuple[str, int], tuple[Answer, Verdict]],
    ) -> dict[str, Score]:
        """Score of each group; None with a reason where it has no prompt, or no answer was judged."""
        found = scoring.scores(prompts, answers, self.by, self.cell)
        return self._each(groups, found, lambda why: Score(None, reason=why))

    def shifts(
        self, groups: Sequence[str], prompts: Sequence[Prompt], reference: scoring.Answers, audited: scoring.Answers
    ) -> dict[str, Estimate]:
        """ΔBias of each group with its interval, paired by prompt."""
        found = scoring.shifts(prompts, reference, audited, self.by, self.cell)
        return self._each(groups, found, lambda why: Estimate(None, None, None, None, why))

    def _each(self, groups: Sequence[str], found: Mapping[str, T], none: Callable[[str], T]) -> dict[str, T]:
        units = {group: self.unit_of(group) for group in groups}
        return {g: found[u] if u is not None and u in found else none(self._why(g)) for g, u in units.items()}

    def _why(self, group: str) -> str:
        if group in self.absent:
            return self.absent[group]
        unit = self.unit_of(group)
        if unit is None:
            return f"{self.name} says nothing about {group}"
        if any(prompt.about.get(self.by) == unit for prompt in self.rows):
            return f"benchmark.limit={self.limit} leaves no prompt about {unit}"
        return f"{self.name} has no prompt about {unit}"


def at_least_one(**options: int | None) -> None:
    """Raise where one of these options of the benchmark is below 1; None is no limit."""
    for name, value in options.items():
        if value is not None and value < 1:
            raise UsageError(f"benchmark.{name}={value}: expected 1 or more.")
