"""The audit as a plain function: models and choices in, a `Result` out.

sentences -> encoder -> layer, pooling -> calibration -> geometry -> metric -> shift of each group -> statistics
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refbias.benchmarks import CannotScore
from refbias.cache import Cache, default_directory
from refbias.checkpoints import Checkpoint, Series
from refbias.comparison import Comparison, choose, second_calibration
from refbias.context import Context
from refbias.devices import resolve_device, resolve_dtype
from refbias.encoders import Encoder
from refbias.encoding import embed
from refbias.errors import RefbiasError, UsageError, unknown
from refbias.layers import parse_layers
from refbias.models import Model, find_model
from refbias.pooling import pooling_from_choice
from refbias.provenance import digest, provenance
from refbias.registry import Choice, registry
from refbias.result import SCHEMA_VERSION, Result, plain
from refbias.standins import collecting, stand_in
from refbias.statistics import LEVEL, CrossedBootstrap, Estimate, agreement, holm
from refbias.types import Array, Space, Stimuli
from refbias.watch import Quiet, Watch


def load_stimuli(
    targets: Any = "base",
    attributes: Any = "base",
    anchors: Any = "neutral",
    *,
    groups: Sequence[str] | None = None,
    strict: bool = False,
    seed: int = 0,
) -> Stimuli:
    """The sentences of an audit.

    Parameters
    ----------
    targets, attributes, anchors : a registered name, (name, {options}), or sentences of one's own:
        {group: [sentence]}, ([positive], [negative]), [sentence]
    groups : names of the target groups to keep; None keeps all
    strict : refuse stand-ins for data that cannot be reached
    seed : of the draw where an anchor set is sampled
    """
    parts = registry()
    with collecting(strict) as notes:
        chosen = {
            "targets": parts.resolve("targets", targets, seed),
            "attributes": parts.resolve("attributes", attributes, seed),
            "anchors": parts.resolve("anchors", anchors, seed),
        }
    for note in notes.items:
        stand_in(note.wanted, note.used, note.why)
    return _stimuli(chosen, groups)


def _stimuli(chosen: Mapping[str, Choice], groups: Sequence[str] | None) -> Stimuli:
    positive, negative = chosen["attributes"].object
    stimuli = Stimuli(
        {g: list(sentences) for g, sentences in chosen["targets"].object.items()},
        list(positive),
        list(negative),
        list(chosen["anchors"].object),
    )
    if groups is not None:
        for group in groups:
            if group not in stimuli.targets:
                raise unknown("target group", group, stimuli.targets)
        if not groups:
            raise UsageError("groups=[] leaves no target group. Leave groups out to take all of them.")
        stimuli = stimuli.only(groups)
    for name, sentences in _named_sets(stimuli):
        if not sentences:
            raise RefbiasError(f"{name} has no sentence. Every group and both attribute sets need at least one.")
        if len(set(sentences)) < len(sentences):
            twice = next(s for i, s in enumerate(sentences) if s in sentences[:i])
            raise RefbiasError(f"{name} holds a sentence twice: {twice!r}. Take one out.")
    return stimuli


def _named_sets(stimuli: Stimuli) -> list[tuple[str, list[str]]]:
    named = [(f"targets of {group!r}", sentences) for group, sentences in stimuli.targets.items()]
    return [*named, ("positive attributes", stimuli.positive), ("negative attributes", stimuli.negative),
            ("anchors", stimuli.anchors)]  # fmt: skip


@dataclass(frozen=True)
class _Setting:
    """Every choice of one audit, built and checked."""

    encoder: Choice
    pooling: Choice
    targets: Choice
    attributes: Choice
    anchors: Choice
    calibration: Choice
    geometry: Choice
    metric: Choice
    benchmark: Choice | None
    checkpoints: Choice | None

    def flat(self) -> dict[str, Any]:
        """The choices by the words of the command line: ``pooling``, ``pooling.skip`` …"""
        flat: dict[str, Any] = {}
        for kind in self.__dataclass_fields__:
            choice: Choice | None = getattr(self, kind)
            flat[kind] = choice.name if choice else None
            flat.update({f"{kind}.{name}": value for name, value in (choice.params if choice else {}).items()})
        return flat


def check(
    reference: Any = None,
    audited: Any = None,
    *,
    checkpoints: Any = None,
    geometry: Any = "relative",
    metric: Any = None,
    calibration: Any = "none",
    layer: Any = "last",
    **_: Any,
) -> None:
    """Raise `UsageError` for choices of `audit` that have no meaning together, before anything is loaded."""
    if (audited is None) == (checkpoints is None):
        raise UsageError("An audit needs either audited models or a series of checkpoints: give exactly one of them.")
    choose(geometry, metric, calibration)
    parse_layers(layer, 10**6 - 1)  # that it is well formed; whether the model has it shows later


def audit(
    reference: Any,
    audited: Any = None,
    *,
    checkpoints: Any = None,
    encoder: Any = "auto",
    pooling: Any = "mean",
    layer: Any = "last",
    targets: Any = "base",
    attributes: Any = "base",
    anchors: Any = "neutral",
    calibration: Any = "none",
    geometry: Any = "relative",
    metric: Any = None,
    groups: Sequence[str] | None = None,
    benchmark: Any = None,
    device: str | None = None,
    dtype: str | None = None,
    cache: bool | Cache = True,
    strict: bool = False,
    seed: int = 0,
    draws: int = 10_000,
    also_layers: Sequence[Any] | None = None,
    watch: Watch | None = None,
    command: str | None = None,
) -> Result:
    """Compare the hidden states of audited models with a reference: ΔB for each group, with its uncertainty.

    Parameters
    ----------
    reference : a model: hub id, folder, adapter folder, GGUF file, vector file, registered name, or a pair
        (transformers model, tokenizer)
    audited : one such model or a list of them; or None, with ``checkpoints``
    checkpoints : a registered series of audited models, by name or (name, {options})
    encoder, pooling, targets, attributes, anchors, calibration, geometry, metric, benchmark :
        a name, (name, {options}) or an object; metric None follows the geometry, benchmark None is none
    layer : "last", an integer, a list of them, or "all"; k is Hugging Face's ``hidden_states[k]``
    groups : target groups to score; None is all
    device, dtype : None chooses by the hardware
    cache : True for the user's cache, False for none, or a `refbias.cache.Cache`
    strict : refuse every stand-in
    seed : of every draw
    draws : resamples of the bootstrap
    also_layers : layers to encode and keep beside those that are asked, for a later run
    watch : told about progress and each checkpoint as it is ready
    command : recorded in the result

    Returns
    -------
    Result; ``result.data`` is the content of result.json

    Raises
    ------
    UsageError for unknown names and meaningless combinations, RefbiasError for data and models that do not fit
    """
    check(
        reference, audited, checkpoints=checkpoints, geometry=geometry, metric=metric, calibration=calibration,
        layer=layer,
    )  # fmt: skip
    parts, watch = registry(), watch or Quiet()
    with collecting(strict) as notes:

        def resolve(kind: str, choice: Any) -> Choice:
            return parts.resolve(kind, choice, seed)

        by_geometry, by_metric, by_calibration = choose(geometry, metric, calibration)
        setting = _Setting(
            encoder=resolve("encoder", encoder),
            pooling=resolve("pooling", pooling),
            targets=resolve("targets", targets),
            attributes=resolve("attributes", attributes),
            anchors=resolve("anchors", anchors),
            calibration=by_calibration,
            geometry=by_geometry,
            metric=by_metric,
            benchmark=None if benchmark in (None, "none") else resolve("benchmark", benchmark),
            checkpoints=None if checkpoints is None else resolve("checkpoints", checkpoints),
        )
        stimuli = _stimuli({k: getattr(setting, k) for k in ("targets", "attributes", "anchors")}, groups)
        where = resolve_device(device)
        store = cache if isinstance(cache, Cache) else Cache(default_directory() if cache else None)
        context = Context(store, where, resolve_dtype(dtype, where), seed, watch)
        run = _Audit(setting, stimuli, context, layer, also_layers or (), draws)
        measured = run.measure(find_model(reference, cache=store), audited)
    return Result(
        plain(
            {
                "schema_version": SCHEMA_VERSION,
                "task": "audit",
                "settings": {**setting.flat(), "layer": layer, "groups": groups, "strict": strict, "draws": draws},
                "seed": seed,
                **measured,
                "stand_ins": notes.rows(),
                "provenance": provenance(_digests(stimuli), command),
            }
        )
    )


def _digests(stimuli: Stimuli) -> dict[str, str]:
    return {
        "targets": digest(f"{group}\t{s}" for group, sentences in stimuli.targets.items() for s in sentences),
        "attributes": digest([*(f"+\t{s}" for s in stimuli.positive), *(f"-\t{s}" for s in stimuli.negative)]),
        "anchors": digest(stimuli.anchors),
    }


class _Audit:
    """One audit under way: encodes each model once, compares each checkpoint as soon as it is encoded."""

    def __init__(
        self, setting: _Setting, stimuli: Stimuli, context: Context, layer: Any, also_layers: Sequence[Any], draws: int
    ) -> None:
        self.setting, self.stimuli, self.context = setting, stimuli, context
        self.layer, self.also_layers = layer, also_layers
        self.pooling = pooling_from_choice(setting.pooling)
        self.bootstrap = CrossedBootstrap(len(stimuli.positive), len(stimuli.negative), draws, context.seed)
        self.sentences = stimuli.sentences()
        self.row = {sentence: i for i, sentence in enumerate(self.sentences)}
        self.timings: dict[str, float] = dict.fromkeys(("load_s", "encode_s", "score_s"), 0.0)
        self.counts: dict[str, int] = dict.fromkeys(
            ("sentences_encoded", "sentences_from_cache", "tokens", "truncated"), 0
        )

    # Models to spaces

    def _encoder(self, model: Model) -> Encoder:
        return self.setting.encoder.object(model, self.context)

    def _layers(self, encoder: Encoder) -> list[int]:
        return parse_layers(self.layer, encoder.layers)

    def _spaces(self, encoder: Encoder) -> tuple[list[Space], dict[str, Any]]:
        """The model's view of the stimuli at each layer, and what was met on the way."""
        layers = self._layers(encoder)
        extra = [k for spec in self.also_layers for k in parse_layers(spec, encoder.layers)]
        context = self.context
        wanted = list(dict.fromkeys([*layers, *extra]))
        found = embed(encoder, self.sentences, wanted, [self.pooling], context.cache, context.watch)
        self.timings["load_s"] += found.load_seconds
        self.timings["encode_s"] += found.seconds - found.load_seconds
        self.counts["sentences_encoded"] += found.encoded
        self.counts["sentences_from_cache"] += found.from_cache
        self.counts["tokens"] += found.tokens_encoded
        self.counts["truncated"] += found.truncated
        spaces = [self._space(found.vectors[k, self.pooling.key]) for k in layers]
        return spaces, {"sink_share": {k: found.sink_share.get(k) for k in layers}}

    def _space(self, vectors: NDArray[np.float32]) -> Space:
        def take(sentences: Sequence[str]) -> Array:
            return vectors[[self.row[s] for s in sentences]].astype(np.float64)

        stimuli = self.stimuli
        return Space(
            {group: take(sentences) for group, sentences in stimuli.targets.items()},
            take(stimuli.positive),
            take(stimuli.negative),
            take(stimuli.anchors) if stimuli.anchors else None,
        )

    # The audit

    def measure(self, reference: Model, audited: Any) -> dict[str, Any]:
        """The part of result.json that is measured."""
        encoder = self._encoder(reference)
        layers = self._layers(encoder)
        series = self._series(reference, audited)
        for checkpoint in series.checkpoints:
            self._check_fits(encoder, checkpoint.model)
        spaces, seen = self._spaces(encoder)
        setting, second = self.setting, second_calibration(self.setting.calibration)
        first_opinions = [Comparison(s, setting.geometry, setting.metric, setting.calibration) for s in spaces]
        second_opinions = [Comparison(s, setting.geometry, setting.metric, second) for s in spaces]
        benchmark = _Signal(setting.benchmark, self.stimuli.groups, self.context)
        benchmark.add(Checkpoint(reference.name, reference))
        by_layer: list[list[dict[str, Any]]] = [[] for _ in layers]
        for checkpoint in series.checkpoints:
            theirs, _ = self._spaces(self._encoder(checkpoint.model))
            start = time.perf_counter()
            for found, space, one, other in zip(by_layer, theirs, first_opinions, second_opinions, strict=True):
                found.append(self._entry(checkpoint, space, one, other, second))
            self.timings["score_s"] += time.perf_counter() - start
            if len(layers) == 1:
                self.context.watch.checkpoint(by_layer[0][-1])
            benchmark.add(checkpoint)
        directed = first_opinions[0].directed
        tables = [
            {"layer": k, "checkpoints": found, "benchmark": benchmark.agreement(found, directed)}
            for k, found in zip(layers, by_layer, strict=True)
        ]
        single = self._is_single()
        return {
            "reference": {
                "name": reference.name,
                "fingerprint": reference.fingerprint,
                "layers": encoder.layers,
                "dim": encoder.dim,
                "dtype": encoder.dtype,
                "device": encoder.device,
                "notes": list(reference.notes),
                **seen,
            },
            **(tables[0] if single else {"layers": tables, "benchmark": benchmark.head()}),
            "series": dict(series.report),
            "conventions": self._conventions(encoder, directed),
            "timings": {**self.timings, **self.counts},
        }

    def _is_single(self) -> bool:
        return isinstance(self.layer, int) or (isinstance(self.layer, str) and self.layer != "all")

    def _series(self, reference: Model, audited: Any) -> Series:
        if self.setting.checkpoints is not None:
            return self.setting.checkpoints.object(reference, self.context)
        many = audited if isinstance(audited, list) else [audited]
        if not many:
            raise UsageError("audited=[] names no model. Give one model or a list of them.")
        models = [find_model(one, cache=self.context.cache) for one in many]
        names = _distinct([model.name for model in models])
        return Series([Checkpoint(name, model) for name, model in zip(names, models, strict=True)])

    def _check_fits(self, reference: Encoder, audited: Model) -> None:
        """Refuse what could not be compared, before anything is encoded."""
        geometry = self.setting.geometry
        if geometry.traits.get("same_width") and audited.dim != reference.dim:
            raise RefbiasError(
                f"geometry={geometry.name} needs two models of one width: {reference.model.name} has {reference.dim} "
                f"dimensions, {audited.name} {audited.dim}. Use geometry=relative or geometry=cka."
            )
        here, there = self._layers(reference), parse_layers(self.layer, audited.layers)
        if len(here) != len(there):
            raise RefbiasError(
                f"layer={self.layer!r} gives {len(here)} layers of {reference.model.name} and {len(there)} of "
                f"{audited.name}. Name layers that both have, for instance layer=[{', '.join(map(str, there[:2]))}]."
            )

    def _entry(
        self, checkpoint: Checkpoint, space: Space, first: Comparison, second: Comparison, second_name: str
    ) -> dict[str, Any]:
        """One checkpoint's block of result.json."""
        shifts, estimates, mean = first.estimates(space, self.bootstrap)
        _, others, second_mean = second.estimates(space, self.bootstrap)
        adjusted = holm([e.p_value for e in estimates.values()])
        second_adjusted = holm([e.p_value for e in others.values()])
        groups = [
            {
                "group": group,
                "b_ref": shifts.reference.get(group),
                "b_aud": shifts.audited.get(group),
                **_row(estimates[group], p),
                "second_opinion": {"calibration": second_name, **_row(others[group], q)},
            }
            for group, p, q in zip(shifts, adjusted, second_adjusted, strict=True)
        ]
        values = [v for v in shifts.values() if np.isfinite(v)]
        return {
            "name": checkpoint.name,
            "ratio": checkpoint.ratio,
            "fingerprint": checkpoint.model.fingerprint,
            **({"mean_delta_b": float(np.mean(values))} if values else _no_mean),
            "mean": _row(mean, mean.p_value) if mean else None,
            "second_opinion_mean": _row(second_mean, second_mean.p_value) if second_mean else None,
            "groups": groups,
        }

    def _conventions(self, encoder: Encoder, directed: bool) -> dict[str, Any]:
        return {
            **encoder.conventions,
            "interval": f"two-way bootstrap over target and attribute sentences, {self.bootstrap.draws} draws, "
            "studentised (Student's t, Satterthwaite)" if directed else "jackknife in blocks of sentences",
            "level": LEVEL,
            "alternative": "two-sided",
            "ddof": 1,
            "adjustment": "Holm over the groups of a checkpoint",
            "calibration_sample": "the model's own anchors",
            "ties": "one half in a ROC curve",
            "mae": "mean over 1,000 bootstrap resamples, in the bag",
            "pearson_p": "two-tailed, as published: takes checkpoints x groups as independent, which merges are not",
            "within_pearson_p": "one permutation of groups common to all checkpoints, 10,000 draws",
        }  # fmt: skip


_no_mean = {"mean_delta_b": None, "mean_delta_b_reason": "the metric is undefined for every group"}


def _row(estimate: Estimate, adjusted: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "delta_b": estimate.value,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
        "p_value": estimate.p_value,
        "p_adjusted": adjusted,
    }
    return {**row, "reason": estimate.reason} if estimate.reason else row


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, numbered where one comes twice."""
    return [n if names.count(n) == 1 else f"{n} ({names[: i + 1].count(n)})" for i, n in enumerate(names)]


class _Signal:
    """The benchmark's scores of the models that were added, the reference first."""

    def __init__(self, choice: Choice | None, groups: Sequence[str], context: Context) -> None:
        self.choice, self.groups, self.context = choice, groups, context
        self.reason = None if choice else "no benchmark was asked for"
        self.reference: Mapping[str, float | None] | None = None
        self.scores: dict[str, dict[str, Any]] = {}

    def add(self, checkpoint: Checkpoint) -> None:
        if self.choice is None or self.reason:
            return
        benchmark = self.choice.object
        try:
            scores = benchmark.score(checkpoint, self.groups, self.context)
        except CannotScore as error:
            self.reason = str(error)
            self.context.watch.say(f"benchmark={self.choice.name}: {error}")
            return
        if self.reference is None:
            self.reference = scores
            return
        self.scores[checkpoint.name] = {
            group: self._shift(scores.get(group), self.reference.get(group), benchmark.threshold)
            for group in self.groups
        }

    def _shift(self, audited: float | None, reference: float | None, threshold: float) -> dict[str, Any]:
        shift = None if audited is None or reference is None else audited - reference
        return {
            "bias_score_ref": reference,
            "bias_score_aud": audited,
            "delta_bias": shift,
            "more_biased": None if shift is None else shift > threshold,
        }

    def head(self) -> dict[str, Any]:
        """What does not depend on the layer."""
        if self.choice is None or self.reason:
            name = self.choice.name if self.choice else None
            return {"name": name, "reason": self.reason}
        benchmark = self.choice.object
        return {
            "name": self.choice.name,
            "unit": benchmark.unit,
            "threshold": benchmark.threshold,
            "scores": self.scores,
        }

    def agreement(self, entries: Sequence[Mapping[str, Any]], directed: bool) -> dict[str, Any]:
        """The block ``benchmark`` of result.json, for the checkpoints of one layer."""
        head = self.head()
        if "reason" in head:
            return head
        rows = [
            (group["delta_b"], self.scores[entry["name"]][group["group"]]["delta_bias"], entry["name"], group["group"])
            for entry in entries
            for group in entry["groups"]
        ]
        rows = [row for row in rows if row[0] is not None and np.isfinite(row[0]) and row[1] is not None]
        x, y = (np.array([row[i] for row in rows], dtype=float) for i in (0, 1))
        figures = agreement(
            x, y, head["threshold"], [r[2] for r in rows], [r[3] for r in rows], directed, self.context.seed
        )
        return {**head, **figures}
