"""Topics by a language model that is asked for one name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from refbias.answers import Prompt, Request, Sampling
from refbias.models import find_model
from refbias.registry import registry
from refbias.topics.base import Assigned, Topics

if TYPE_CHECKING:
    from refbias.context import Context
    from refbias.models import Model

QUESTION = """\
Which one of these topics is the request below about?

{topics}

Answer with the name of one topic and nothing else, or with "none" if the request is about none of them.

Request: {text}"""

GREEDY = Sampling(samples=1, temperature=0.0, top_p=1.0, max_new_tokens=16)


def llm(
    texts: Sequence[str],
    topics: Topics,
    context: Context,
    *,
    model: str,
    base_url: str | None = None,
    key_env: str | None = None,
) -> Assigned:
    """Topics by a model that is asked for one name, greedily; an answer that names no topic, or several, is none.

    ``model`` is a causal model as for ``reference``, or with ``base_url`` the name of one on an OpenAI-compatible
    server, whose key is in the environment variable ``key_env``.
    """
    listed = "\n".join(f"- {topic}: {', '.join(groups)}" for topic, groups in topics.items())
    prompts = [
        Prompt(str(number), (("user", QUESTION.format(topics=listed, text=text)),)) for number, text in enumerate(texts)
    ]
    if base_url:
        written = _answers(
            prompts, ("openai", {"base_url": base_url, "served": model, "key_env": key_env}), None, context
        )
    else:
        written = _answers(prompts, "hf", find_model(model, cache=context.cache, watch=context.watch), context)
    return Assigned.of(parsed(written[prompt.id], topics) for prompt in prompts)


def _answers(prompts: Sequence[Prompt], generator: Any, model: Model | None, context: Context) -> dict[str, str]:
    """The answer to every prompt, by id; ``model`` is None where a server has it."""
    generate = registry().resolve("generator", generator).object
    requests = [Request(prompt, sample=0, seed=context.seed) for prompt in prompts]
    found = {}
    with context.watch.progress("topics", len(requests), "prompts") as advance:
        for request, answer in generate(model, requests, GREEDY, context):
            found[request.prompt.id] = answer.text
            advance(1)
    return found


def parsed(answer: str, topics: Topics) -> tuple[str | None, str]:
    """The topic that an answer names, or None with the reason: the model said none, or nothing that can be read.

    >>> topics = {"Age": [], "Race": []}
    >>> parsed("**Age**.", topics), parsed("None", topics), parsed("Age or Race", topics)
    (('Age', ''), (None, 'none, says the model'), (None, 'unparsed'))
    """
    first = next((line for line in answer.splitlines() if line.strip()), "")
    named = {topic for topic in topics if re.search(rf"(?<!\w){re.escape(topic)}(?!\w)", first, re.IGNORECASE)}
    none = re.search(r"(?<!\w)none(?!\w)", first, re.IGNORECASE) is not None
    if len(named) + none != 1:
        return None, "unparsed"
    return (None, "none, says the model") if none else (named.pop(), "")
