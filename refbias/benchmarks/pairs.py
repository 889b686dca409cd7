"""Benchmarks of sentence pairs: which of two sentences a model finds more probable, and by how much."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from refbias.answers.base import Score
from refbias.benchmarks.base import CannotScore
from refbias.errors import RefbiasError
from refbias.stimuli.packaged import slug, table

if TYPE_CHECKING:
    from refbias.checkpoints.base import Checkpoint
    from refbias.context import Context
    from refbias.models.base import Model

Measure = Literal["share", "log_odds"]
UNITS: Mapping[Measure, str] = {"share": "share of pairs", "log_odds": "nats a pair"}
DRAWS = 2000  # bootstrap resamples
FORMAT = "1"  # raise it where a change here changes figures of masked models: cached ones are then computed again

_KEPT_AT_ONCE = 100  # pairs


@dataclass(frozen=True)
class Pair:
    """``more`` is the sentence with the stereotype, ``less`` the other one; ``unit`` is what scores are made by."""

    more: str
    less: str
    unit: str


class PairBenchmark:
    """A score for each unit (bias type, …), shared by the groups that belong to it.

    Parameters
    ----------
    name : as registered
    read : gives the pairs; called once, when they are first needed
    units : packaged group -> unit
    measure : "share": of pairs whose sentence with the stereotype is the more probable one, from 0 to 1; "log_odds":
        mean log p of that sentence minus the other one's. Both rise with bias.
    report : what a reader must know
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Sequence[Pair]],
        units: Mapping[str, str],
        measure: Measure,
        threshold: float,
        report: Mapping[str, Any],
    ) -> None:
        self.name, self.measure, self.threshold = name, measure, threshold
        self.units: Mapping[str, str] = units
        self.unit = UNITS[measure]
        self._read, self._report = read, report
        self._rows: list[dict[str, Any]] = []

    @functools.cached_property
    def pairs(self) -> Sequence[Pair]:
        pairs = self._read()
        if not pairs:
            raise RefbiasError(f"benchmark={self.name}: the file holds no pair of sentences.")
        return pairs

    @property
    def report(self) -> dict[str, Any]:
        """The settings, and ``figures``: a row for each model scored so far and each unit, "all" for all pairs."""
        known = {"pairs": len(self.pairs), "digest": digest(self.pairs)} if "pairs" in vars(self) else {}
        return {**self._report, **known, "interval": "bootstrap over pairs", "figures": list(self._rows)}

    def score(self, checkpoint: Checkpoint, groups: Sequence[str], context: Context) -> Mapping[str, Score]:
        log_odds = np.subtract(*pair_log_probs(checkpoint.model, self.pairs, context).T)
        values = log_odds if self.measure == "log_odds" else (log_odds > 0).astype(float)
        found = {}
        for unit, of in {"all": np.arange(len(values)), **by_unit([pair.unit for pair in self.pairs])}.items():
            found[unit] = mean_score(values[of], context.seed)
            self._rows.append({"model": checkpoint.name, "unit": unit, **pair_figures(log_odds[of], context.seed)})
        self.units = units_of(groups, self.units, found)
        return for_groups(groups, self.units, found, f"benchmark={self.name}")


def pair_figures(log_odds: NDArray[np.float64], seed: int) -> dict[str, Any]:
    """Every figure of some pairs; ``mean_abs_log_odds`` is what lm-evaluation-harness calls likelihood_diff."""
    figures: dict[str, Any] = {"pairs": len(log_odds), "ties": int((log_odds == 0).sum())}
    for name, values in (("share", (log_odds > 0).astype(float)), ("log_odds", log_odds)):
        found = mean_score(values, seed)
        figures |= {name: found.value, f"{name}_ci_low": found.ci_low, f"{name}_ci_high": found.ci_high}
    return {**figures, "mean_abs_log_odds": float(np.abs(log_odds).mean())}


def pair_log_probs(model: Model, pairs: Sequence[Pair], context: Context) -> NDArray[np.float64]:
    """log p of both sentences of each pair in nats: (n, 2).

    Causal models: of all tokens of the sentence. Masked ones: pseudo-log-likelihood of the tokens that both sentences
    have, each masked in turn, given the rest, modified tokens included (Nangia et al. 2020, arXiv:2010.00133).
    Raises `CannotScore` for other models.
    """
    if not model.causal:
        return _masked_pairs(model, pairs, context)
    from refbias.likelihood import stored_scores, whole

    texts = [text for pair in pairs for text in (pair.more, pair.less)]
    return stored_scores(model, "whole texts", texts, whole, context, unit="sentence")[:, 0].reshape(-1, 2)


def _masked_pairs(model: Model, pairs: Sequence[Pair], context: Context) -> NDArray[np.float64]:
    def rows_of(tokenizer: Any, pair: tuple[str, str]) -> list[Any]:
        return unmodified(tokenizer, *pair)

    wanted = [(pair.more, pair.less) for pair in pairs]
    return masked_scores(model, "masked pairs", wanted, rows_of, lambda found: [row.sum() for row in found], context)


def masked_scores(
    model: Model,
    kind: str,
    items: Sequence[Any],
    rows_of: Callable[[Any, Any], Sequence[Any]],
    reduce: Callable[[Sequence[NDArray[np.float64]]], Sequence[float]],
    context: Context,
) -> NDArray[np.float64]:
    """What ``reduce`` makes of log p of the `refbias.masked.Masked` rows ``rows_of(tokenizer, item)``: (items, k).

    Kept in the cache under ``kind``; where all of it is there, the model is not loaded.
    """
    from refbias.masked import masked_log_probs
    from refbias.models.base import combined

    _, dtype = model.placement(context.device, context.dtype)
    store = context.cache.store(combined(kind, FORMAT, model.fingerprint, dtype))
    keys = [hashlib.sha256(json.dumps(item).encode()).hexdigest() for item in items]
    found = dict(store.get(list(dict.fromkeys(keys))))
    missing = {key: item for key, item in zip(keys, items, strict=True) if key not in found}
    if missing:
        names = list(missing)
        with (
            _opened(model, context) as (whole, tokenizer),
            context.watch.progress(f"likelihood of {model.name}", len(names), "text") as advance,
        ):
            for part in (names[i : i + _KEPT_AT_ONCE] for i in range(0, len(names), _KEPT_AT_ONCE)):
                rows = [list(rows_of(tokenizer, missing[name])) for name in part]
                flat = [row for some in rows for row in some]
                values = iter(masked_log_probs(whole, tokenizer.mask_token_id, flat))
                new = {
                    name: np.array(reduce([next(values) for _ in some]), dtype=np.float64)
                    for name, some in zip(part, rows, strict=True)
                }
                store.put(new)
                found.update(new)
                advance(len(part))
    return np.stack([found[key] for key in keys])


@contextmanager
def _opened(model: Model, context: Context) -> Iterator[tuple[Any, Any]]:
    """As `refbias.masked.open_masked`; raises `CannotScore` where there is no masked language model."""
    from refbias.masked import open_masked

    with ExitStack() as stack:
        try:
            opened = stack.enter_context(open_masked(model, context))
        except RefbiasError as error:
            raise CannotScore(f"{error} Use benchmark=none, or benchmark=planted where the change is known.") from None
        yield opened


def unmodified(tokenizer: Any, first: str, second: str) -> list[Any]:
    """Both sentences with the tokens marked that they have in common, in order, special ones left out."""
    from refbias.masked import Masked, content_places

    ids = [tuple(tokenizer(text)["input_ids"]) for text in (first, second)]
    blocks = difflib.SequenceMatcher(None, ids[0], ids[1], autojunk=False).get_matching_blocks()
    made = []
    for side, row in enumerate(ids):
        content = set(content_places(tokenizer, row))
        starts = [(block.a, block.b)[side] for block in blocks]
        places = [s + i for s, block in zip(starts, blocks, strict=True) for i in range(block.size)]
        made.append(Masked(row, tuple(place for place in places if place in content)))
    return made


def mean_score(values: NDArray[np.float64], seed: int) -> Score:
    """Mean over pairs (or documents) with its 95 % bootstrap interval."""
    weights = resamples(len(values), seed)
    low, high = np.quantile(weights @ values / len(values), [0.025, 0.975])
    return Score(float(values.mean()), float(low), float(high), n=len(values), prompts=len(values))


def resamples(n: int, seed: int) -> NDArray[np.float64]:
    """How often each of n rows stands in each of `DRAWS` bootstrap resamples: (draws, n)."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(float)


def by_unit(units: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Indices of the rows of each unit, in the order in which units first appear."""
    return {unit: np.flatnonzero(np.asarray(units) == unit) for unit in dict.fromkeys(units)}


def units_of(groups: Sequence[str], units: Mapping[str, str], found: Mapping[str, Score]) -> dict[str, str]:
    """``units`` with those of ``groups`` that have a unit of their own, by name or slug, in ``found``."""
    own = {slug(unit): unit for unit in found}
    return {**units, **{group: own[slug(group)] for group in groups if slug(group) in own}}


def for_groups(
    groups: Sequence[str], units: Mapping[str, str], found: Mapping[str, Score], what: str
) -> dict[str, Score]:
    """The score of each group's unit; one without value, and with the reason, where it has none."""
    none = Score(None, reason=f"{what} has nothing on this group; it has {', '.join(found)}")
    return {group: found.get(units.get(group, ""), none) for group in groups}


def units_by_topic(by_topic: Mapping[str, str], others: Mapping[str, str] | None = None) -> dict[str, str]:
    """Packaged group -> unit, by the group's topic; ``others`` are exceptions by group."""
    known = {row["group"]: by_topic.get(row["topic"]) for row in table("groups.csv")} | (dict(others) if others else {})
    return {group: unit for group, unit in known.items() if unit}


def limited(pairs: Sequence[Pair], limit: int | None) -> list[Pair]:
    """At most ``limit`` pairs of each unit, the first ones."""
    if limit is None:
        return list(pairs)
    kept: list[Pair] = []
    for of in by_unit([pair.unit for pair in pairs]).values():
        kept += [pairs[i] for i in of[:limit]]
    return kept


def digest(pairs: Sequence[Pair]) -> str:
    """SHA-256 of the sentences and their units."""
    rows = [(pair.more, pair.less, pair.unit) for pair in pairs]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()
