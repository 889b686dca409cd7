"""A benchmark that asks: prompts are answered by each model, the answers kept, judged and scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from refbias.answers.base import Answer, Pair, Prompt, Questionnaire, Sampling, Score, Verdict
from refbias.answers.judging import facts, judge_all
from refbias.answers.store import collect
from refbias.benchmarks.base import CannotScore
from refbias.errors import UsageError
from refbias.provenance import redacted
from refbias.registry import Choice

if TYPE_CHECKING:
    from refbias.checkpoints.base import Checkpoint
    from refbias.context import Context
    from refbias.models import Model
    from refbias.statistics import Estimate

Verdicts = Mapping[tuple[str, int], tuple[Answer, Verdict]]


class Answered:
    """A `Questionnaire` with the generator and the judge that go with it: a `Benchmark`.

    Parameters
    ----------
    asked : the questionnaire
    generator : a choice of the kind ``generator``
    judge : a choice of the kind ``judge``
    topics : how prompts are told apart, for a questionnaire that needs it
    """

    def __init__(self, asked: Questionnaire, generator: Choice, judge: Choice, topics: Choice | None = None) -> None:
        self.asked, self.generator, self.judge = asked, generator, judge
        self._topics = topics
        self._facts: dict[str, Any] = {}  # what the verdicts depend on beside the judge's options
        self._verdicts: dict[str, tuple[Sequence[Prompt], Verdicts]] = {}  # by the model's fingerprint

    name = property(lambda self: self.asked.name)
    unit = property(lambda self: self.asked.unit)
    threshold = property(lambda self: self.asked.threshold)
    units = property(lambda self: self.asked.units)
    sampling: Sampling = property(lambda self: self.asked.sampling)  # type: ignore[assignment]

    @property
    def report(self) -> dict[str, Any]:
        """What the questionnaire says of itself, and who answered and judged."""
        return {
            **self.asked.report,
            **{f"sampling.{key}": value for key, value in self.sampling.as_dict().items()},
            **_flat("generator", self.generator),
            **_flat("judge", self.judge),
            **self._facts,
            "interval": "bootstrap over prompts, the answers to one prompt kept together, gives an effective number of "
            "answers; Clopper and Pearson at that",
        }

    def score(self, checkpoint: Checkpoint, groups: Sequence[str], context: Context) -> Mapping[str, Score]:
        """Score of each group of ``groups``; what was generated and judged before is taken from the cache."""
        model = checkpoint.model
        if not model.causal and not self.generator.traits.get("remote"):
            raise CannotScore(
                f"{model.name} is no causal language model, so it writes no answers. Use benchmark=none, or "
                f"generator=openai where a server runs it."
            )
        served = self.generator.params.get("served")
        if served and any(known != model.fingerprint for known in self._verdicts):
            raise UsageError(
                f"generator.served={served} would let one served model answer for all models of this audit. Leave it "
                f"out: each model is then asked for under its own name."
            )
        asked = self._with_topics(context)
        self._facts = {f"judge.{key}": value for key, value in facts(self.judge, context).items()}
        prompts = asked.prompts(groups)
        answers = self.answers(model, prompts, context)
        verdicts = self.verdicts(asked, prompts, answers, context)
        self._verdicts[model.fingerprint] = prompts, verdicts
        return asked.scores(groups, prompts, verdicts)

    def shifts(self, reference: Model, audited: Model, groups: Sequence[str]) -> Mapping[str, Estimate]:
        """ΔBias of each group with its interval, paired by prompt, of two models that were scored."""
        prompts, before = self._verdicts[reference.fingerprint]
        _, after = self._verdicts[audited.fingerprint]
        return self.asked.shifts(groups, prompts, before, after)

    def answers(self, model: Model, prompts: Sequence[Prompt], context: Context) -> Mapping[tuple[str, int], Answer]:
        return collect(model, prompts, self.sampling, self.generator, context)

    def verdicts(
        self,
        asked: Questionnaire,
        prompts: Sequence[Prompt],
        answers: Mapping[tuple[str, int], Answer],
        context: Context,
    ) -> dict[tuple[str, int], tuple[Answer, Verdict]]:
        """Each answer with what the judge says of it, by (prompt id, sample)."""
        by_id = {prompt.id: prompt for prompt in prompts}
        pairs = [Pair(by_id[i].question, asked.judged(by_id[i], answer.text)) for (i, _), answer in answers.items()]
        found = judge_all(pairs, self.judge, context)
        return {key: (answers[key], verdict) for key, verdict in zip(answers, found, strict=True)}

    def _with_topics(self, context: Context) -> Questionnaire:
        if self._topics is not None and hasattr(self.asked, "with_topics"):
            self.asked, self._topics = self.asked.with_topics(self._topics, context), None
        return self.asked


def _flat(kind: str, choice: Choice) -> dict[str, Any]:
    options = {f"{kind}.{option}": redacted(value) for option, value in choice.params.items()}
    return {kind: choice.name, **options}
