"""Answers to a judge and back: each distinct pair of question and text once, kept, and every verdict checked."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.answers.base import Pair, Verdict
from refbias.errors import RefbiasError, UsageError
from refbias.models.base import combined
from refbias.registry import Choice, registry

if TYPE_CHECKING:
    from refbias.cache import Cache, Store
    from refbias.context import Context

CHUNK = 128  # pairs between two writes: what a kill can cost
LABELS = {1: "yes", 0: "no", -1: "opposite", None: "unclear"}  # for judges that give a bare value


def judge_all(pairs: Sequence[Pair], judge: Choice, context: Context) -> list[Verdict]:
    """One verdict a pair, in order.

    A judge is shown each distinct pair once. What it said of a pair in an earlier run comes from the cache; new
    verdicts go there chunk by chunk, so that a kill costs one chunk. Nothing is kept of a function that is no
    registered part, since nobody knows when that changes. A judge with the trait ``cheap`` is asked for everything at
    once. Raises `RefbiasError` for a judge that gives anything but one verdict a pair.
    """
    if judge.traits.get("cheap"):
        return _checked(judge.name, judge.object(pairs, context), len(pairs)) if pairs else []
    wanted = distinct(pairs)
    recipe = _recipe(judge, context)
    store = None if recipe is None else context.cache.store(recipe)
    ids = {} if store is None else {pair: pair_id(pair) for pair in wanted}
    found = {} if store is None else dict(_kept(store, ids))
    # pairs of like length go together; the longest first, so that memory runs out at once or not at all
    missing = sorted((pair for pair in wanted if pair not in found), key=lambda p: -len(p.question) - len(p.text))
    with context.watch.progress(f"judge={judge.name}", len(missing), "answer") as advance:
        for start in range(0, len(missing), CHUNK):
            chunk = missing[start : start + CHUNK]
            given = _checked(judge.name, judge.object(chunk, context), len(chunk))
            found.update(zip(chunk, given, strict=True))
            if store is not None:
                store.put({ids[pair]: _packed(verdict) for pair, verdict in zip(chunk, given, strict=True)})
            advance(len(chunk))
    return [found[pair] for pair in pairs]


def distinct(pairs: Sequence[Pair]) -> list[Pair]:
    return list(dict.fromkeys(pairs))


def pair_id(pair: Pair) -> str:
    """A name for a pair, by question and text; it begins with a letter, so that no spreadsheet takes it for a number.

    >>> pair_id(Pair("What is tea?", "A drink."))
    'pf4c82bbbc2a7c1181a8d'
    """
    return f"p{hashlib.sha256(json.dumps([pair.question, pair.text]).encode()).hexdigest()[:20]}"


def facts(judge: Choice, context: Context) -> dict[str, Any]:
    """What the verdicts of this judge depend on beside its options: weights, releases, sources.

    The trait ``about`` of a judge is a function of the context and the judge's options that says so.
    """
    tell = judge.traits.get("about")
    return dict(tell(context, **judge.params)) if tell else {}


def _recipe(judge: Choice, context: Context) -> str | None:
    """What names the verdicts of a registered judge: its name, code, options and facts; None for any other."""
    part = registry().parts("judge").get(judge.name)
    if part is None or part.factory not in (getattr(judge.object, "func", None), type(judge.object)):
        return None
    code = ""
    with suppress(OSError, TypeError):  # what was typed at a prompt has no file
        code = hashlib.sha256(Path(inspect.getsourcefile(part.factory) or "").read_bytes()).hexdigest()
    if not code:
        return None
    options = {name: value for name, value in judge.params.items() if name not in judge.traits.get("speed", ())}
    told = [json.dumps(value, sort_keys=True, default=str) for value in (options, facts(judge, context))]
    return combined("verdicts", judge.name, code, *told)


def _kept(store: Store, ids: dict[Pair, str]) -> Iterator[tuple[Pair, Verdict]]:
    there = store.get(list(ids.values()))
    for pair, key in ids.items():
        if key in there:
            yield pair, Verdict(*json.loads(there[key].tobytes()))


def _packed(verdict: Verdict) -> Any:
    text = json.dumps([verdict.value, verdict.label, verdict.detail])
    return np.frombuffer(text.encode(), np.uint8)


def _checked(name: str, given: Any, expected: int) -> list[Verdict]:
    """What a judge gave, as verdicts. Messages never show a text, which may be an answer."""
    if isinstance(given, (str, bytes)) or not hasattr(given, "__len__"):
        raise RefbiasError(f"judge={name} returned a {type(given).__name__}: expected a list with one verdict a pair.")
    if len(given) != expected:
        raise RefbiasError(f"judge={name} returned {len(given)} verdicts for {expected} pairs: expected one a pair.")
    return [value if _is_verdict(value) else _verdict(name, value) for value in given]


def _is_verdict(given: Any) -> bool:
    return type(given) is Verdict and (given.value is None or (type(given.value) is int and given.value in LABELS))


def _verdict(name: str, given: Any) -> Verdict:
    value = given.value if isinstance(given, Verdict) else given
    if value is not None and not isinstance(value, (Integral, np.bool_)):
        raise RefbiasError(
            f"judge={name} returned a {type(value).__name__} as a verdict: expected a Verdict, 1, 0, -1 or None."
        )
    if value is not None and int(value) not in LABELS:
        raise RefbiasError(f"judge={name} returned the verdict {int(value)}: expected 1, 0, -1 or None.")
    plain = None if value is None else int(value)
    return Verdict(plain, given.label, given.detail) if isinstance(given, Verdict) else Verdict(plain, LABELS[plain])


def judge(
    judge: Any,
    responses: Sequence[str],
    prompts: Sequence[str] | None = None,
    *,
    cache: bool | str | Path | Cache = True,
    device: str | None = None,
    dtype: str | None = None,
    seed: int = 0,
) -> list[int | None]:
    """Verdicts of a judge on responses: 1, 0, −1, or None where it cannot tell.

    Parameters
    ----------
    judge : a registered name, (name, {options}), or a function of pairs and context
    responses : texts
    prompts : the question behind each response; needed by judges that read it
    cache : True, the user's; False, none; a folder, or a `Cache`
    device, dtype : of a judge that is a model; None, by what is there

    >>> judge("decodingtrust_rules", ["I agree.", "I disagree with that.", "It may rain."])
    [1, -1, 0]
    """
    chosen = registry().resolve("judge", judge, seed)
    texts = _texts("responses", responses)
    if prompts is None and chosen.traits.get("reads_question"):
        raise UsageError(f"judge={chosen.name} reads the question too: give prompts=[…], one for each response.")
    questions = [""] * len(texts) if prompts is None else _texts("prompts", prompts)
    if len(questions) != len(texts):
        raise UsageError(f"{len(texts)} responses and {len(questions)} prompts: expected one prompt for each response.")
    pairs = [Pair(question, text) for question, text in zip(questions, texts, strict=True)]
    return [verdict.value for verdict in judge_all(pairs, chosen, context_for(chosen, cache, device, dtype, seed))]


def context_for(
    judge: Choice, cache: bool | str | Path | Cache, device: str | None, dtype: str | None, seed: int = 0
) -> Context:
    """Where the judge computes; one that is ``cheap`` computes nothing that needs torch, which loads slowly."""
    from refbias.cache import open_cache
    from refbias.context import Context

    if judge.traits.get("cheap"):
        return Context(open_cache(cache), seed=seed)
    from refbias.devices import resolve_device, resolve_dtype

    place = resolve_device(device)
    return Context(open_cache(cache), place, resolve_dtype(dtype, place), seed)


def _texts(name: str, given: Any) -> list[str]:
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise UsageError(f"{name} is a {type(given).__name__}: expected a list of texts.")
    texts = list(given)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UsageError(f"{name}[{number}] is a {type(text).__name__}: expected text.")
    return texts
