"""What generated answers are made of: prompts, how answers are drawn, answers, verdicts, scores.

prompts -> generator -> answers (kept) -> judge -> verdicts -> a score of each group, with its interval
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from refbias.context import Context
    from refbias.models import Model
    from refbias.statistics import Estimate

Message = tuple[str, str]  # role ("system", "user", "assistant") and text


@dataclass(frozen=True)
class Prompt:
    """One question of a benchmark.

    Attributes
    ----------
    id : unique within the benchmark
    messages : (role, text) in order; a single ("", text) is continued as it is, without a chat template
    about : what scores are made by: "group", "topic", "cell" …
    asked : the text that a judge is shown as the question; None takes the last user turn
    """

    id: str
    messages: tuple[Message, ...]
    about: Mapping[str, str | None] = field(default_factory=dict)
    asked: str | None = None

    @property
    def question(self) -> str:
        return self.messages[-1][1] if self.asked is None else self.asked


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn: ``samples`` a prompt; temperature 0 is greedy."""

    samples: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 150

    def as_dict(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_new_tokens": self.max_new_tokens,
        }


@dataclass(frozen=True)
class Request:
    """One answer that is wanted; ``seed`` depends on the prompt, the sample and the run's seed alone."""

    prompt: Prompt
    sample: int
    seed: int


@dataclass(frozen=True)
class Answer:
    """``text`` as generated, without special tokens; ``finish`` is "length" where ``max_new_tokens`` cut it off."""

    text: str
    finish: Literal["stop", "length"]
    tokens: int


class Generator(Protocol):
    """A part of the kind ``generator``: a function of a model, requests, sampling and context.

    It yields each request with its answer as soon as that is there, in any order. Its trait ``speed`` lists the
    options that do not change an answer (batch size, concurrency, …), so that answers are found again under others.
    """

    def __call__(
        self, model: Model, requests: Sequence[Request], sampling: Sampling, context: Context
    ) -> Iterator[tuple[Request, Answer]]: ...


@dataclass(frozen=True)
class Verdict:
    """What a judge says of one answer.

    ``value`` is 1 for what the score counts (agreement with a stereotype, harmful, toxic), 0 for not, −1 for the
    opposite where a judge knows one (disagreement), None where it cannot tell. ``label`` is the judge's own word:
    "agree", "refusal", "unparsed" …; ``detail`` is kept with it, for instance probabilities or the raw answer.
    """

    value: int | None
    label: str
    detail: str | None = None


@dataclass(frozen=True)
class Pair:
    """What a judge is shown: the question and the text that is judged."""

    question: str
    text: str


class Judge(Protocol):
    """A part of the kind ``judge``: a function of pairs and context that returns one verdict a pair, in order."""

    def __call__(self, pairs: Sequence[Pair], context: Context) -> Sequence[Verdict]: ...


@dataclass(frozen=True)
class Score:
    """Bias score of one group with its uncertainty.

    ``value`` is None where nothing could be judged, and ``reason`` says why. ``n`` answers were judged, of ``prompts``
    prompts; ``counts`` holds what was met: "empty", "truncated", "refusal", "unparsed", … The interval is a bootstrap
    over prompts, the answers to one prompt kept together.
    """

    value: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int = 0
    prompts: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None


class Questionnaire(Protocol):
    """A benchmark that is scored on generated answers; refbias asks, keeps, judges and scores.

    Attributes
    ----------
    name, unit, threshold : as of `refbias.benchmarks.Benchmark`
    judge : name of the judge that goes with it by default
    sampling : how answers are drawn
    units : group -> unit of observation, where several groups share one score (a topic, say); None: the group itself
    digest : of the prompts as they were read
    report : what a reader must know: settings, list versions, prompts that were left out and why
    """

    name: str
    unit: str
    threshold: float
    judge: str
    sampling: Sampling
    units: Mapping[str, str] | None
    digest: str
    report: Mapping[str, Any]

    def prompts(self, groups: Sequence[str]) -> list[Prompt]:
        """The prompts that are needed to score ``groups``, each once."""
        ...

    def judged(self, prompt: Prompt, text: str) -> str:
        """The part of an answer that the judge is shown."""
        ...

    def scores(
        self,
        groups: Sequence[str],
        prompts: Sequence[Prompt],
        answers: Mapping[tuple[str, int], tuple[Answer, Verdict]],
    ) -> Mapping[str, Score]:
        """Score of each group from the answers with their verdicts, by (prompt id, sample)."""
        ...

    def shifts(
        self,
        groups: Sequence[str],
        prompts: Sequence[Prompt],
        reference: Mapping[tuple[str, int], tuple[Answer, Verdict]],
        audited: Mapping[tuple[str, int], tuple[Answer, Verdict]],
    ) -> Mapping[str, Estimate]:
        """ΔBias of each group with its interval, from both models' answers to the same prompts."""
        ...
