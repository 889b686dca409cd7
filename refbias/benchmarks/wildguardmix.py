"""WildGuardMix (Han et al. 2024, arXiv:2406.18495): how often does a model answer harmfully about a topic?

The prompts of WildGuardTest about social stereotypes name no group: a part of the kind ``topics`` tells which of the
nine topics each is about, and a group takes the score of its topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from refbias.answers import Prompt, Sampling
from refbias.benchmarks.questionnaire import Asked, at_least_one
from refbias.benchmarks.sources import digest_of, from_hub
from refbias.errors import RefbiasError, unknown
from refbias.finetuning.files import rows_of
from refbias.stimuli.files import existing
from refbias.stimuli.packaged import table

if TYPE_CHECKING:
    from refbias.context import Context
    from refbias.registry import Choice

HUB_ID = "allenai/wildguardmix"
FILE = "test/wildguard_test.parquet"
EXPECTED = "a copy of WildGuardTest as parquet, CSV or JSONL, with the columns prompt and subcategory"
LABELS = ("prompt_harm_label", "response_harm_label")


@dataclass(frozen=True)
class ByTopic(Asked):
    """Prompts that have no topic until `with_topics` has given them one."""

    mapped: bool = False

    def with_topics(self, choice: Choice, context: Context) -> ByTopic:
        """The same questions with ``about["topic"]``, as the chosen part of the kind ``topics`` says.

        Prompts without a topic are not asked; ``report["topics"]`` counts them, with the reasons where the part has
        them.
        """
        topics = topic_groups()
        found = choice.object([prompt.question for prompt in self.rows], topics, context)
        strange = next((topic for topic in found if topic is not None and topic not in topics), None)
        if len(found) != len(self.rows) or strange is not None:
            what = f"{len(found)} topics for {len(self.rows)} prompts" if strange is None else f"the topic {strange!r}"
            raise RefbiasError(
                f"topics={choice.name} gave {what}. Expected one of {', '.join(topics)} or None a prompt."
            )
        rows = [replace(p, about={**p.about, "topic": topic}) for p, topic in zip(self.rows, found, strict=True)]
        counted = Counter(found)
        about = {
            "by": choice.name,
            "parameters": dict(choice.params),
            "prompts": {topic: counted[topic] for topic in topics},
            "unmapped": counted[None],
            "unmapped_why": dict(getattr(found, "reasons", None) or {}),
        }
        if counted[None]:
            context.watch.say(f"topics={choice.name}: {counted[None]} of {len(rows)} prompts have no topic: left out")
        return replace(self, rows=rows, mapped=True, report={**self.report, "topics": about})

    def prompts(self, groups: Sequence[str]) -> list[Prompt]:
        """The prompts about the topics of ``groups``: one of each topic in turn, up to ``limit``."""
        if not self.mapped:
            raise RefbiasError("The prompts of benchmark=wildguardmix have no topics yet. Call with_topics first.")
        return super().prompts(groups)


def wildguardmix(
    *,
    path: str | None = None,
    subcategory: str = "social_stereotypes_and_unfair_discrimination",
    limit: int | None = None,
    samples: int = 5,
    temperature: float = 0.7,
    top_p: float = 1.0,
    max_new_tokens: int = 256,
    threshold: float = 0.1,
) -> ByTopic:
    """Rate of harmful responses by topic (WildGuardTest, social stereotypes); a group takes its topic's score.

    ``path`` is a copy of WildGuardTest, parquet, CSV or JSONL; without it the gated data set comes from the hub.
    ``topics=…`` chooses how prompts are told apart; ``limit`` takes that many prompts, one of each topic in turn.
    """
    at_least_one(limit=limit, samples=samples, max_new_tokens=max_new_tokens)
    rows, report = _rows(path, subcategory)
    return ByTopic(
        "wildguardmix",
        "harmful-response rate",
        threshold,
        "wildguard",
        Sampling(samples, temperature, top_p, max_new_tokens),
        digest_of(rows),
        rows,
        units={row["group"]: row["topic"] for row in table("groups.csv")},
        report={"source": path or HUB_ID, "subcategory": subcategory, **report, "limit": limit},
        by="topic",
        limit=limit,
    )


def topic_groups() -> dict[str, list[str]]:
    """The nine topics with their groups."""
    found: dict[str, list[str]] = {}
    for row in table("groups.csv"):
        found.setdefault(row["topic"], []).append(row["group"])
    return found


def _rows(path: str | None, subcategory: str) -> tuple[list[Prompt], dict[str, Any]]:
    """The prompts of one subcategory, each once, and what was met among the rows."""
    hint = f"It is gated: accept its terms at https://huggingface.co/datasets/{HUB_ID}, then run `hf auth login`."
    file = existing(path, "benchmark.path", EXPECTED) if path else from_hub(HUB_ID, [FILE], hint)[0]
    prompts: dict[str, Prompt] = {}
    met: Counter[str] = Counter()
    labels: dict[str, Counter[str]] = {name: Counter() for name in LABELS}
    categories: Counter[str] = Counter()
    for number, (where, row) in enumerate(rows_of(file, "benchmark.path"), start=1):
        missing = [c for c in ("prompt", "subcategory") if not isinstance(row, Mapping) or c not in row]
        if missing:
            raise RefbiasError(f"{file}, {where}: no {' and no '.join(missing)}. Expected {EXPECTED}.")
        text, category = row["prompt"], row["subcategory"]
        categories[str(category or "")] += 1
        if category != subcategory:
            continue
        for name in LABELS:
            labels[name][str(row.get(name) or "none")] += 1
        if not isinstance(text, str) or not text.strip():
            met["empty"] += 1
        elif text in prompts:
            met["repeated"] += 1
        else:
            prompts[text] = Prompt(f"test/{number}", (("user", text),), {"topic": None})
    if not prompts:
        raise unknown("prompt of the subcategory", subcategory, filter(None, categories))
    report = {"prompts": len(prompts), "rows": sum(categories.values()), "rows_without_subcategory": categories[""]}
    return list(prompts.values()), {
        **report,
        "left_out": {name: met[name] for name in ("empty", "repeated")},
        "labels": {name: dict(found) for name, found in labels.items()},
    }
