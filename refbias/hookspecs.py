"""The plug-in interface: one hook for each kind of part.

A hook takes ``register(name, factory, **traits)`` and calls it once for every part that the plug-in brings.
``factory`` is a function or a class whose keyword-only parameters are the part's options (for a class: all
parameters). Positional parameters of a function are what the part is given when it runs; see docs/plugins.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pluggy

hookspec = pluggy.HookspecMarker("refbias")
hookimpl = pluggy.HookimplMarker("refbias")

Register = Callable[..., Any]


@hookspec
def refbias_models(register: Register) -> None:
    """Models by name: ``factory()`` returns the path or hub id behind the name."""


@hookspec
def refbias_checkpoints(register: Register) -> None:
    """Series of audited models: ``part(reference, context)`` returns a `refbias.checkpoints.Series`."""


@hookspec
def refbias_encoders(register: Register) -> None:
    """Encoders: ``part(model, context)`` returns a `refbias.encoders.Encoder`."""


@hookspec
def refbias_poolings(register: Register) -> None:
    """Poolings: ``part(states, mask)``, torch tensors (b, t, d) and (b, t) -> (b, d)."""


@hookspec
def refbias_targets(register: Register) -> None:
    """Target sets: ``factory()`` returns {group: [sentence]}."""


@hookspec
def refbias_attributes(register: Register) -> None:
    """Attribute sets: ``factory()`` returns ([positive sentence], [negative sentence])."""


@hookspec
def refbias_anchors(register: Register) -> None:
    """Anchor sets: ``factory()`` returns [sentence]."""


@hookspec
def refbias_calibrations(register: Register) -> None:
    """Calibrations: ``factory()`` returns an object with ``fit(X)`` and ``transform(X)``, X (n, d)."""


@hookspec
def refbias_geometries(register: Register) -> None:
    """Geometries: ``part(space)`` maps each space on its own, ``part(reference, audited)`` both together.

    Traits: ``metric``, the metric that goes with it by default; ``same_width``, where both models must have one
    hidden width; ``pairs_only``, where only metrics of two spaces have a meaning; ``needs_anchors``; ``needs_adapter``,
    where it is given the output directions of the audited LoRA adapter; ``calibrations``, those that it goes with.
    """


@hookspec
def refbias_metrics(register: Register) -> None:
    """Metrics: ``part(space)`` returns {group: score}; ``part(reference, audited)`` {group: shift}."""


@hookspec
def refbias_benchmarks(register: Register) -> None:
    """External signals: ``factory()`` returns a `refbias.benchmarks.Benchmark`."""


@hookspec
def refbias_generators(register: Register) -> None:
    """Ways to write answers: ``part(model, requests, sampling, context)`` yields (`Request`, `Answer`) pairs.

    Trait ``speed``: the options that change no answer, only how fast it comes.
    """


@hookspec
def refbias_judges(register: Register) -> None:
    """Ways to read answers: ``part(pairs, context)``, `refbias.answers.Pair`, returns one `Verdict` a pair.

    A bare 1, 0, −1 or None will do as well. Traits: ``cheap``, nothing is kept of its verdicts; ``about``, a function
    of the context and the options that says what verdicts depend on beside the options (weights, releases);
    ``speed``, the options that change no verdict; ``reads_question``, where the answer alone is not enough.
    """


@hookspec
def refbias_topics(register: Register) -> None:
    """Ways to tell prompts apart by topic: ``part(texts, topics, context)`` returns one topic or None a text."""


@hookspec
def refbias_suites(register: Register) -> None:
    """Suites of association tests: ``factory()`` returns a list of `refbias.suites.Test`."""


@hookspec
def refbias_words(register: Register) -> None:
    """How words become vectors: ``part(lookup)``, a `refbias.words.Lookup`, returns `refbias.words.WordVectors`."""


@hookspec
def refbias_corpora(register: Register) -> None:
    """Sentences of running text: ``factory()`` returns a `refbias.corpora.Corpus`."""


@hookspec
def refbias_data(register: Register) -> None:
    """Fine-tuning data: ``factory()`` returns a `refbias.finetuning.Lessons`."""


@hookspec
def refbias_regimes(register: Register) -> None:
    """Fine-tuning recipes: ``factory()`` returns a `refbias.finetuning.Regime`."""


@hookspec
def refbias_trackers(register: Register) -> None:
    """Where figures go: ``factory()`` returns a `refbias.tracking.Tracker`."""


@hookspec
def refbias_summaries(register: Register) -> None:
    """What is made of all jobs of a sweep: ``part(jobs)``, `refbias.summaries.Job`, returns `refbias.result.Tables`."""


@hookspec
def refbias_tasks(register: Register) -> None:
    """What ``task=`` runs: ``part(run)`` returns a result."""


@hookspec
def refbias_config_paths() -> Iterable[Path] | None:
    """Folders with Hydra presets that the plug-in ships, for instance ``metric/my_preset.yaml``."""


@hookspec
def refbias_measured(result: Any, config: dict[str, Any]) -> None:
    """Called once after a run with its result and its resolved configuration."""
