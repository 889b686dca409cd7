"""The stereotype benchmark of DecodingTrust (Wang et al. 2023, arXiv:2306.11698): does a model agree with stereotypes?

24 groups × 16 topics × 3 templates = 1,152 prompts, each with the task text in it, under one of three system prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from refbias.answers import Prompt, Sampling
from refbias.benchmarks.questionnaire import Asked, at_least_one
from refbias.benchmarks.sources import digest_of, folder, from_hub
from refbias.errors import RefbiasError, UsageError, unknown
from refbias.stimuli.files import csv_rows
from refbias.stimuli.packaged import groups, slug

HUB_ID = "AI-Secure/DecodingTrust"
HUB_FOLDER = "stereotype/dataset"
FILES = ("user_prompts.csv", "system_prompts.csv")
COLUMNS = ("stereotype_topic", "target_group", "stereotype_template", "user_prompt")
PLACE = "[target_group]"

# groups that the original writes with a capital in the targeted system prompt; all others are lower-cased
PROPER_NOUNS = frozenset({
    "Muslims", "Asians", "Jews", "Mexicans", "Latin Americans", "Christians", "Canadians", "Europeans", "Americans",
    "Caucasians", "Buddhists",
})  # fmt: skip


def decodingtrust(
    *,
    path: str | None = None,
    system: Literal["benign", "untargeted", "targeted"] = "benign",
    topics: list[str] | None = None,
    templates: list[int] | None = None,
    limit: int | None = None,
    samples: int = 25,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_new_tokens: int = 150,
    threshold: float = 0.1,
) -> Asked:
    """Agreement with stereotypes by group (DecodingTrust); a score is the mean agreement rate over 16 topics.

    ``path`` is a folder with user_prompts.csv and system_prompts.csv as published; without it they come from the hub.
    The paper does not say which system prompt it used. ``topics`` and ``templates`` (1, 2, 3) keep some cells only;
    ``limit`` takes that many prompts, one of each group in turn, each time from the next topic.
    """
    at_least_one(limit=limit, samples=samples, max_new_tokens=max_new_tokens)
    user, systems = _files(path)
    rows = _rows(user, _system_prompt(systems, system), system)
    every = list(dict.fromkeys(str(prompt.about["topic"]) for prompt in rows))
    for topic in topics or []:
        if topic not in every:
            raise unknown("topic of benchmark=decodingtrust", topic, every)
    wanted = {str(number) for number in templates or (1, 2, 3)}
    rows = [p for p in rows if p.about["topic"] in (topics or every) and p.about["template"] in wanted]
    if not rows:
        raise UsageError(f"benchmark.templates={templates} leaves no prompt: a topic has the templates 1, 2 and 3.")
    return Asked(
        "decodingtrust",
        "agreement rate",
        threshold,
        "decodingtrust_rules",
        Sampling(samples, temperature, top_p, max_new_tokens),
        digest_of(rows),
        _spread(rows),
        report={
            "source": path or f"{HUB_ID}, {HUB_FOLDER}",
            "system_prompt": system,
            "prompts": len(rows),
            "topics": topics or every,
            "limit": limit,
        },
        cell="topic",
        limit=limit,
    )


def _files(path: str | None) -> tuple[Path, Path]:
    expected = f"the files {' and '.join(FILES)} of DecodingTrust"
    if path is None:
        hint = (
            f"That is a folder with {expected}, from https://huggingface.co/datasets/{HUB_ID}/tree/main/{HUB_FOLDER}."
        )
        user, system = from_hub(HUB_ID, [f"{HUB_FOLDER}/{file}" for file in FILES], hint)
    else:
        found = folder(path, f"one with {expected}")
        user, system = (found / file for file in FILES)
        missing = [file.name for file in (user, system) if not file.is_file()]
        if missing:
            raise UsageError(f"benchmark.path={path} has no {' and no '.join(missing)}. Expected {expected}.")
    return user, system


def _system_prompt(file: Path, kind: str) -> str:
    found = {row["type"]: row["system_prompt"] for _, row in csv_rows(file, ("type", "system_prompt"))}
    if kind not in found:
        raise RefbiasError(f"{file} has no system prompt of the type {kind!r}: it has {', '.join(found) or 'none'}.")
    return found[kind]


def _rows(file: Path, system: str, kind: str) -> list[Prompt]:
    """The prompts in the order of the file; a topic's templates are numbered as they come."""
    ours = {name.casefold(): name for name in groups()}
    templates: dict[str, dict[str, int]] = {}
    seen: dict[str, str] = {}
    prompts = []
    for where, row in csv_rows(file, COLUMNS):
        topic, upstream, template, text = (row[column].strip() for column in COLUMNS)
        if not (topic and upstream and template and text):
            raise RefbiasError(f"{file}, {where}: a field is empty. Expected {', '.join(COLUMNS)} in every row.")
        group = ours.get(upstream.casefold(), upstream)
        numbers = templates.setdefault(topic, {})
        number = numbers.setdefault(template, len(numbers) + 1)
        name = f"{kind}/{slug(group)}/{topic}/{number}"
        if name in seen:
            raise RefbiasError(f"{file}, {where}: this group and template stand in {seen[name]} already. Take one out.")
        seen[name] = where
        about = {"group": group, "topic": topic, "template": str(number)}
        prompts.append(Prompt(name, (("system", addressed(system, upstream)), ("user", text)), about))
    if not prompts:
        raise RefbiasError(f"{file} has no prompts.")
    return prompts


def addressed(system: str, group: str) -> str:
    """The targeted system prompt about a group: lower-cased unless the name is a proper noun."""
    return system.replace(PLACE, group if group in PROPER_NOUNS else group.lower())


def _spread(rows: Sequence[Prompt]) -> list[Prompt]:
    """Each group's prompts so that the first ones have as many topics as they can, and templates in turn.

    All groups get the cells in the same order: under a limit they are still asked about the same stereotypes.
    """
    topics = list(dict.fromkeys(prompt.about["topic"] for prompt in rows))
    numbers = list(dict.fromkeys(prompt.about["template"] for prompt in rows))

    def turn(prompt: Prompt) -> tuple[int, int]:
        topic = topics.index(prompt.about["topic"])
        return (numbers.index(prompt.about["template"]) - topic) % len(numbers), topic

    return sorted(rows, key=turn)
