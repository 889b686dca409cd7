"""The audit as a plain function: models and choices in, a `Result` out.

sentences -> encoder -> layer, pooling -> calibration -> geometry -> metric -> shift of each group -> statistics
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refbias.benchmarks.signal import Signal
from refbias.cache import Cache, open_cache
from refbias.checkpoints import Checkpoint, Series
from refbias.checkpoints.audited import audited_series, say_notes
from refbias.checkpoints.control import matched_control
from refbias.checkpoints.directions import Directions
from refbias.comparison import Comparison, choose, second_calibration
from refbias.context import Context
from refbias.corpora import Corpus
from refbias.devices import resolve_device, resolve_dtype
from refbias.encoders import Encoder
from refbias.encoding import Embedded, embed
from refbias.errors import RefbiasError, UsageError, unknown
from refbias.layers import parse_layers
from refbias.metrics import Association
from refbias.models import Model, find_model
from refbias.pooling import pooling_from_choice
from refbias.provenance import digest, provenance
from refbias.reading import beyond_doubt, layers_of
from refbias.registry import Choice, arity, registry
from refbias.result import SCHEMA_VERSION, Result, plain
from refbias.sample import Fit, fitting, sentence_samples
from refbias.standins import collecting, stand_in
from refbias.statistics import LEVEL, Calibrator, CrossedBootstrap, Estimate, Figure, domain_of, holm, pearson
from refbias.statistics.planning import plan
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
    with collecting(strict) as notes:
        stimuli = _stimuli(_sentence_sets(targets, attributes, anchors, seed), groups)
    for note in notes.items:
        stand_in(note.wanted, note.used, note.why)
    return stimuli


def _sentence_sets(targets: Any, attributes: Any, anchors: Any, seed: int) -> dict[str, Choice]:
    chosen = {"targets": targets, "attributes": attributes, "anchors": anchors}
    return {kind: registry().resolve(kind, choice, seed) for kind, choice in chosen.items()}


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


def with_controls(stimuli: Stimuli, metric: Choice) -> tuple[Stimuli, list[str]]:
    """The stimuli with the control targets that the metric needs, and the groups that it scores."""
    if not isinstance(metric.object, Association):
        return stimuli, stimuli.groups
    missing = [name for name in metric.object.controls if name not in stimuli.targets]
    if missing:
        packaged = registry().get("targets", "control").build()
        for name in missing:
            if name not in packaged:
                raise unknown("control target", name, [*packaged, *stimuli.targets])
        stimuli = replace(stimuli, targets={**stimuli.targets, **{name: packaged[name] for name in missing}})
    return stimuli, list(metric.object.contrasts(stimuli.groups))


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
    corpus: Choice | None
    geometry: Choice
    metric: Choice
    benchmark: Choice | None
    checkpoints: Choice | None
    generator: Choice | None = None
    judge: Choice | None = None

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
    layer: Any = "last",
    targets: Any = "base",
    attributes: Any = "base",
    anchors: Any = "neutral",
    calibration: Any = "none",
    corpus: Any = None,
    geometry: Any = "relative",
    metric: Any = None,
    groups: Sequence[str] | None = None,
    control: Any = None,
    calibrator: Any = None,
    sensitivity: Any = None,
    strict: bool = False,
    seed: int = 0,
    **_: Any,
) -> None:
    """Raise for choices of `audit` that have no meaning together or lack their sentences, before a model is loaded."""
    _check_choices(audited, checkpoints, layer)
    by_geometry, by_metric, _calibration = choose(geometry, metric, calibration, seed)
    _check_control(control, by_geometry, by_metric)
    if calibrator is not None:
        _calibrator(calibrator)
    if sensitivity is not None:
        _map_of(sensitivity)
    with collecting(strict):
        with_controls(_stimuli(_sentence_sets(targets, attributes, anchors, seed), groups), by_metric)
        if corpus is not None:
            registry().resolve("corpus", corpus, seed)


def _check_choices(audited: Any, checkpoints: Any, layer: Any) -> None:
    if (audited is None) == (checkpoints is None):
        raise UsageError("An audit needs either audited models or a series of checkpoints: give exactly one of them.")
    parse_layers(layer, 10**6 - 1)  # that it is well formed; whether the model has it shows later


def _check_control(control: Any, geometry: Choice, metric: Choice) -> None:
    """A paired difference of two shifts needs scores of each space on its own."""
    if control is not None and not (arity(geometry.object) == 1 and arity(metric.object) == 1):
        raise UsageError(
            f"control=… takes the difference of two shifts group by group, and geometry={geometry.name} with "
            f"metric={metric.name} scores pairs of spaces. Use geometry=relative or geometry=absolute with it."
        )


def _map_of(sensitivity: Any) -> Any:
    """The saved map that a file or a `refbias.sensitivity.SensitivityMap` is."""
    from refbias.sensitivity import SensitivityMap, load

    return sensitivity if isinstance(sensitivity, SensitivityMap) else load(sensitivity)


def _calibrator(calibrator: Any) -> Calibrator:
    return calibrator if isinstance(calibrator, Calibrator) else Calibrator.load(calibrator)


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
    corpus: Any = None,
    geometry: Any = "relative",
    metric: Any = None,
    groups: Sequence[str] | None = None,
    benchmark: Any = None,
    generator: Any = "hf",
    judge: Any = None,
    topics: Any = "keywords",
    control: Any = None,
    calibrator: Any = None,
    calibrator_anyway: bool = False,
    sensitivity: Any = None,
    device: str | None = None,
    dtype: str | None = None,
    cache: bool | str | Path | Cache = True,
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
    generator, judge, topics : for benchmarks that ask: who writes the answers, who reads them (None follows the
        benchmark), how prompts that name no group are told apart
    control : a harmless fine-tune to audit beside the suspect, a model or "auto" for one made on this machine: the
        shifts are then also given as differences to its own
    calibrator : what a shift means as a probability: a file that ``task=validate`` wrote, or a
        `refbias.statistics.Calibrator`; refused where it was fitted at another setting, unless ``calibrator_anyway``
    sensitivity : a sensitivity.json of ``task=sensitivity`` on the reference: what planted edits an audit at this
        setting would have found
    corpus : running text whose sentences the calibrations are fitted on, by name, (name, {options}) or a
        `refbias.corpora.Corpus`; None fits them on each model's own anchors
    layer : "last", an integer, a list of them, or "all"; k is Hugging Face's ``hidden_states[k]``
    groups : target groups to score; None is all
    device, dtype : None chooses by the hardware
    cache : True for the user's cache, False for none, a folder, or a `refbias.cache.Cache`
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
    _check_choices(audited, checkpoints, layer)
    parts, watch = registry(), watch or Quiet()
    with collecting(strict) as notes:

        def resolve(kind: str, choice: Any) -> Choice:
            return parts.resolve(kind, choice, seed)

        by_geometry, by_metric, by_calibration = choose(geometry, metric, calibration, seed)
        _check_control(control, by_geometry, by_metric)
        known = None if calibrator is None else _calibrator(calibrator)
        charted = None if sensitivity is None else _map_of(sensitivity)
        signal = None if benchmark in (None, "none") else resolve("benchmark", benchmark)
        asking = signal is not None and hasattr(signal.object, "prompts")
        writer = resolve("generator", generator) if asking else None
        reader = resolve("judge", judge or signal.object.judge) if signal and asking else None
        sets = _sentence_sets(targets, attributes, anchors, seed)
        stimuli = _stimuli(sets, groups)
        setting = _Setting(
            encoder=resolve("encoder", encoder),
            pooling=resolve("pooling", pooling),
            **sets,
            calibration=by_calibration,
            corpus=None if corpus is None else resolve("corpus", corpus),
            geometry=by_geometry,
            metric=by_metric,
            benchmark=signal,
            checkpoints=None if checkpoints is None else resolve("checkpoints", checkpoints),
            generator=writer,
            judge=reader,
        )
        where = resolve_device(device)
        store = open_cache(cache)
        context = Context(store, where, resolve_dtype(dtype, where), seed, watch)
        stimuli, scored = with_controls(stimuli, by_metric)
        if signal and writer and reader:
            from refbias.benchmarks.answered import Answered

            by_topic = resolve("topics", topics) if hasattr(signal.object, "with_topics") else None
            signal = replace(signal, object=Answered(signal.object, writer, reader, by_topic))
        run = _Audit(setting, stimuli, scored, context, layer, also_layers or (), draws, control, signal)
        measured = run.measure(find_model(reference, cache=store, watch=watch), audited)
    chosen = {"layer": layer, "groups": groups, "control": _named(control), "strict": strict, "draws": draws}
    result = Result(
        plain(
            {
                "schema_version": SCHEMA_VERSION,
                "task": "audit",
                "settings": {**setting.flat(), **chosen},
                "seed": seed,
                **measured,
                "stand_ins": notes.rows(),
                "provenance": provenance(_digests(stimuli, setting.corpus), command),
            }
        )
    )
    if known is not None:
        file = None if isinstance(calibrator, Calibrator) else str(calibrator)
        add_probabilities(result.data, known, file, calibrator_anyway)
    if charted is not None:
        add_sensitivity(result.data, charted)
    return result


def add_sensitivity(data: dict[str, Any], charted: Any) -> None:
    """Say, for each layer, what planted edits this audit would have found, or why the map does not say; in place."""
    known = {"setting": data["settings"], "fingerprint": data["reference"]["fingerprint"]}
    data["sensitivity"] = [
        {"layer": k, "sentence": charted.statement(layer=k, **known), "reason": charted.reason(layer=k, **known)}
        for k, _ in layers_of(data)
    ]


def _named(model: Any) -> str | None:
    return model if model is None or isinstance(model, str) else str(getattr(model, "name", type(model).__name__))


def add_probabilities(
    data: dict[str, Any], calibrator: Calibrator, file: str | None = None, anyway: bool = False
) -> None:
    """Give every shift of an audit the calibrator's P(more biased), in place.

    Raises `UsageError` where the calibrator was fitted at another setting, unless told to go on ``anyway``.
    """
    unlike: list[str] = []
    for layer, checkpoints in layers_of(data):
        unlike += calibrator.check(domain_of(data, layer), anyway)
        for row in (row for checkpoint in checkpoints for row in checkpoint["groups"]):
            known = row["delta_b"] is not None
            row["p_more_biased"] = float(calibrator.probability(row["delta_b"])) if known else None
    data["calibrator"] = {
        "file": file,
        "unlike": sorted(set(unlike)),
        "method": calibrator.method,
        "fitted_on": calibrator.fitted_on,
        "checked": calibrator.checked,
        "alarm": calibrator.alarm,
    }


def _digests(stimuli: Stimuli, corpus: Choice | None) -> dict[str, str]:
    return {
        **({"corpus": corpus.object.digest} if corpus else {}),
        "targets": digest(f"{group}\t{s}" for group, sentences in stimuli.targets.items() for s in sentences),
        "attributes": digest([*(f"+\t{s}" for s in stimuli.positive), *(f"-\t{s}" for s in stimuli.negative)]),
        "anchors": digest(stimuli.anchors),
    }


@dataclass
class _AtLayer:
    """What is compared at one layer, and the checkpoints' blocks so far."""

    number: int
    first: Comparison
    second: Comparison | None
    control: _AtLayer | None = None  # the same with the control in the reference's place
    control_entry: dict[str, Any] | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)


class _Audit:
    """One audit under way: encodes each model once, compares each checkpoint as soon as it is encoded."""

    def __init__(
        self,
        setting: _Setting,
        stimuli: Stimuli,
        scored: Sequence[str],
        context: Context,
        layer: Any,
        also_layers: Sequence[Any],
        draws: int,
        control: Any = None,
        signal: Choice | None = None,
    ) -> None:
        self.setting, self.stimuli, self.scored, self.context = setting, stimuli, scored, context
        self.layer, self.also_layers = layer, also_layers
        self.control, self.signal = control, signal
        self.pooling = pooling_from_choice(setting.pooling)
        self.corpus: Corpus | None = setting.corpus.object if setting.corpus else None
        self.calibrations: list[dict[str, Any]] = []  # those that were fitted on the corpus
        self.bootstrap = CrossedBootstrap(len(stimuli.positive), len(stimuli.negative), draws, context.seed)
        self.sentences = stimuli.sentences()
        self.row = {sentence: i for i, sentence in enumerate(self.sentences)}
        self.directions: Directions | None = None  # of the audited adapters, for geometries that need them
        self.planning: dict[str, Any] | None = None  # how many sentences would be enough, by the last checkpoint
        self.warnings: list[str] = []
        self.timings: dict[str, float] = dict.fromkeys(("load_s", "encode_s", "score_s"), 0.0)
        self.counts: dict[str, int] = dict.fromkeys(
            ("sentences_encoded", "sentences_from_cache", "tokens", "truncated", "missing_words"), 0
        )

    # Models to spaces

    def _encoder(self, model: Model) -> Encoder:
        return self.setting.encoder.object(model, self.context)

    def _layers(self, encoder: Encoder) -> list[int]:
        return parse_layers(self.layer, encoder.layers)

    def _spaces(self, encoder: Encoder) -> tuple[list[Space], dict[str, Any]]:
        """The model's view of the stimuli at each layer, and what was met on the way."""
        layers = self._layers(encoder)
        extra = _those_it_has(self.also_layers, encoder.layers)
        context = self.context
        wanted = list(dict.fromkeys([*layers, *extra]))
        found = embed(encoder, self.sentences, wanted, [self.pooling], context.cache, context.watch)
        self._count(found)
        fits = self._fits(encoder, layers, wanted)
        spaces = [self._space(found.vectors[k, self.pooling.key], fits.get(k)) for k in layers]
        return spaces, {"sink_share": {k: found.sink_share.get(k) for k in layers}}

    def _count(self, found: Embedded) -> None:
        self.timings["load_s"] += found.load_seconds
        self.timings["encode_s"] += found.seconds - found.load_seconds
        self.counts["sentences_encoded"] += found.encoded
        self.counts["sentences_from_cache"] += found.from_cache
        self.counts["tokens"] += found.tokens_encoded
        self.counts["truncated"] += found.truncated
        self.counts["missing_words"] += found.missing_words

    def _fits(self, encoder: Encoder, layers: Sequence[int], wanted: Sequence[int]) -> dict[int, Fit]:
        """What fits calibrations on the corpus, by layer; empty where they are fitted on the anchors."""
        if self.corpus is None:
            return {}
        samples = sentence_samples(encoder, wanted, self.pooling, self.corpus, self.context, met=self._count)

        def at(layer: int) -> Fit:
            def keep(calibration: Any) -> None:
                if hasattr(calibration, "describe"):
                    where = {"model": encoder.model.name, "layer": layer}
                    self.calibrations.append({**where, **calibration.describe()})

            return fitting(samples[layer], self.context.cache, keep)

        return {layer: at(layer) for layer in layers}

    def _space(self, vectors: NDArray[np.float32], fit: Fit | None) -> Space:
        def take(sentences: Sequence[str]) -> Array:
            return vectors[[self.row[s] for s in sentences]].astype(np.float64)

        stimuli = self.stimuli
        return Space(
            {group: take(sentences) for group, sentences in stimuli.targets.items()},
            take(stimuli.positive),
            take(stimuli.negative),
            take(stimuli.anchors) if stimuli.anchors else None,
            fit,
        )

    # The audit

    def measure(self, reference: Model, audited: Any) -> dict[str, Any]:
        """The part of result.json that is measured."""
        encoder = self._encoder(reference)
        layers = self._layers(encoder)
        series = self._series(reference, audited)
        if self.setting.geometry.traits.get("needs_adapter"):
            site = encoder.conventions.get("layer_site", "post_norm")
            self.directions = Directions(reference, site, self.context)
        for checkpoint in series.checkpoints:
            self._check_fits(encoder, checkpoint.model)
        spaces, seen = self._spaces(encoder)
        at_layers = [self._at_layer(k, space) for k, space in zip(layers, spaces, strict=True)]
        beside = self._add_control(encoder, at_layers)
        benchmark = Signal(self.signal, reference, self.scored, self.context)
        for checkpoint in series.checkpoints:
            theirs, _ = self._spaces(self._encoder(checkpoint.model))
            start = time.perf_counter()
            with self._noting_warnings():
                for at_layer, space in zip(at_layers, theirs, strict=True):
                    at_layer.entries.append(self._entry(checkpoint, space, at_layer))
                if checkpoint is series.checkpoints[-1]:
                    self.planning = self._plan(checkpoint, theirs[-1], at_layers[-1])
            self.timings["score_s"] += time.perf_counter() - start
            if len(at_layers) == 1:
                self.context.watch.checkpoint(at_layers[0].entries[-1])
            benchmark.add(checkpoint)
        tables = [
            {
                "layer": at_layer.number,
                "checkpoints": at_layer.entries,
                **({"control": {**at_layer.control_entry, "notes": beside}} if at_layer.control_entry else {}),
                "benchmark": benchmark.agreement(at_layer.entries, at_layer.first.directed),
            }
            for at_layer in at_layers
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
            "planning": self.planning,
            **({"calibrations": self.calibrations} if self.corpus else {}),
            "warnings": self.warnings,
            "conventions": self._conventions(encoder),
            "timings": {**self.timings, "benchmark_s": benchmark.seconds, **self.counts},
        }

    def _add_control(self, encoder: Encoder, at_layers: Sequence[_AtLayer]) -> list[str]:
        """Audit the control like any other model; returns what a reader must know about it."""
        if self.control is None:
            return []
        checkpoint, notes = matched_control(self.control, encoder.model, self.setting.checkpoints, self.context)
        say_notes(notes, self.context)
        self._check_fits(encoder, checkpoint.model)
        spaces, _ = self._spaces(self._encoder(checkpoint.model))
        with self._noting_warnings():
            for at_layer, space in zip(at_layers, spaces, strict=True):
                at_layer.control_entry = self._entry(checkpoint, space, at_layer)
                at_layer.control = self._at_layer(at_layer.number, space)
        return notes

    def _is_single(self) -> bool:
        return isinstance(self.layer, int) or (isinstance(self.layer, str) and self.layer != "all")

    def _series(self, reference: Model, audited: Any) -> Series:
        if self.setting.checkpoints is not None:
            return self.setting.checkpoints.object(reference, self.context)
        return audited_series(reference, audited if isinstance(audited, list) else [audited], self.context)

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
        if self.directions is not None:
            self.directions.check(audited, min(there))

    def _at_layer(self, number: int, reference: Space) -> _AtLayer:
        setting = self.setting
        first = Comparison(reference, setting.geometry, setting.metric, setting.calibration)
        if not first.directed:  # a drift by CKA is centred by itself: a second opinion would repeat it
            return _AtLayer(number, first, None)
        second = second_calibration(setting.calibration)
        return _AtLayer(number, first, Comparison(reference, setting.geometry, setting.metric, second))

    @contextlib.contextmanager
    def _noting_warnings(self) -> Iterator[None]:
        """Keep what geometries and metrics warn of, for the result, and say each of it once."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            text = str(warning.message)
            if text not in self.warnings:
                self.warnings.append(text)
                self.context.watch.say(text)

    def _entry(self, checkpoint: Checkpoint, space: Space, at_layer: _AtLayer) -> dict[str, Any]:
        """One checkpoint's block of result.json."""
        directions = self.directions.of(checkpoint.model, at_layer.number) if self.directions else None
        shifts, estimates, mean = at_layer.first.estimates(space, self.bootstrap, directions)
        rows = _rows(estimates)
        second, second_mean = at_layer.second, None
        opinions: dict[str, Any] = dict.fromkeys(rows)
        if second is not None:
            _, others, second_mean = second.estimates(space, self.bootstrap, directions)
            name = second.calibration.name
            opinions = {group: {"calibration": name, **row} for group, row in _rows(others).items()}
        values = [v for v in shifts.values() if np.isfinite(v)]
        beside = {}
        if at_layer.control and at_layer.control_entry:
            pairs = [(shifts[row["group"]], row["delta_b"]) for row in at_layer.control_entry["groups"]]
            together, _ = pearson(*np.array(pairs, dtype=float).T)
            whole = self._entry(checkpoint, space, at_layer.control)
            other = {key: whole[key] for key in _DIFFERENCE if key in whole}
            beside = {"against_control": {**other, "correlation": together.value, **_why("correlation", together)}}
        return {
            "name": checkpoint.name,
            "ratio": checkpoint.ratio,
            "fingerprint": checkpoint.model.fingerprint,
            "metric": self.setting.metric.name,
            **({"mean_delta_b": float(np.mean(values))} if values else _no_mean),
            "mean": _row(mean, mean.p_value) if mean else None,
            "second_opinion_mean": _row(second_mean, second_mean.p_value) if second_mean else None,
            **_controls(at_layer.first.placebo(space, self.bootstrap, directions)),
            "groups": [
                {
                    "group": group,
                    "b_ref": shifts.reference.get(group),
                    "b_aud": shifts.audited.get(group),
                    **rows[group],
                    "second_opinion": opinions[group],
                }
                for group in shifts
            ],
            **beside,
        }

    def _plan(self, checkpoint: Checkpoint, space: Space, at_layer: _AtLayer) -> dict[str, Any] | None:
        """What carries the intervals of one checkpoint, and what it takes to halve them."""
        metric = self.setting.metric.object
        ends = [(row["ci_low"], row["ci_high"]) for row in at_layer.entries[-1]["groups"]]
        widths = [(high - low) / 2 for low, high in ends if low is not None and high > low]
        if not widths or not isinstance(metric, Association) or metric.contrast:
            return None
        directions = self.directions.of(checkpoint.model, at_layer.number) if self.directions else None
        differences = at_layer.first.differences(space, directions)
        wanted = float(f"{np.median(widths) / 2:.1g}")
        try:
            made = plan(differences, wanted, len(space.positive))
        except RefbiasError:  # too few sentences to tell what carries the variance
            return None
        about = {"checkpoint": checkpoint.name, "layer": at_layer.number, "half_width": wanted}
        return {**about, "shares": made.shares, "sentence": str(made)}

    def _interval(self) -> str:
        if isinstance(self.setting.metric.object, Association):
            drawn = "pairs of attribute sentences" if self.bootstrap.paired else "attribute sentences"
            resampled = f"two-way bootstrap over target sentences and {drawn}, {self.bootstrap.draws} draws"
        else:
            resampled = "jackknife in 20 blocks of target and attribute sentences"
        return f"{resampled}, studentised (Student's t, Satterthwaite)"

    def _calibration_sample(self) -> str:
        if self.corpus is None:
            return "the model's own anchors"
        return f"up to {self.corpus.n:,} sentences of the corpus {self.corpus.name}, drawn by the seed, for each model"

    def _contrast(self) -> dict[str, str]:
        metric = self.setting.metric.object
        return {"contrast": metric.note} if isinstance(metric, Association) and metric.note else {}

    def _conventions(self, encoder: Encoder) -> dict[str, Any]:
        return {
            **encoder.conventions,
            "interval": self._interval(),
            "level": LEVEL,
            **self._contrast(),
            "alternative": "two-sided",
            "ddof": 1,
            "adjustment": "Holm over the groups of a checkpoint",
            "calibration_sample": self._calibration_sample(),
            "ties": "one half in a ROC curve",
            "mae": "mean over 1,000 bootstrap resamples, in the bag",
            "pearson_p": "two-tailed, as published: takes checkpoints x groups as independent, which merges are not",
            "within_pearson_p": "one permutation of groups common to all checkpoints, 10,000 draws",
        }


def _those_it_has(specs: Sequence[Any], layers: int) -> list[int]:
    """Layers by number, without those that this model lacks: the job that asks for one of them will say so."""
    found = []
    for spec in specs:
        with contextlib.suppress(UsageError):
            found += parse_layers(spec, layers)
    return found


# of an entry, where the control is the reference
_DIFFERENCE = ("mean_delta_b", "mean_delta_b_reason", "mean", "second_opinion_mean", "groups")


def _why(name: str, figure: Figure) -> dict[str, Any]:
    return {} if figure.value is not None else {f"{name}_reason": figure.reason}


_no_mean = {"mean_delta_b": None, "mean_delta_b_reason": "the metric is undefined for every group"}


def _rows(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, Any]]:
    """Each group's figures, with p-values adjusted over the groups."""
    adjusted = holm([estimate.p_value for estimate in estimates.values()])
    return {group: _row(estimates[group], p) for group, p in zip(estimates, adjusted, strict=True)}


def _controls(placebo: tuple[Estimate, dict[str, Estimate]] | None) -> dict[str, Any]:
    """The block ``controls`` of a checkpoint: what the shift is among targets that name no social group."""
    if placebo is None:
        return {}
    halves, each = placebo
    rows = _rows(each)
    block = {
        "halves": _row(halves, halves.p_value),
        "n": len(rows),
        "sd": float(np.std([row["delta_b"] for row in rows.values()], ddof=1)),
        "below_zero": sum(map(beyond_doubt, rows.values())),
        "targets": [{"target": name, **row} for name, row in rows.items()],
    }
    return {"controls": block}


def _row(estimate: Estimate, adjusted: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "delta_b": estimate.value,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
        "p_value": estimate.p_value,
        "p_adjusted": adjusted,
    }
    return {**row, "reason": estimate.reason} if estimate.reason else row
