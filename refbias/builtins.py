"""The parts that come with refbias, registered through the same hooks as everyone else's.

Each module keeps a table of its parts: name -> part, or name -> (part, traits).
"""

from __future__ import annotations

import importlib

from refbias.hookspecs import Register, hookimpl


def _add_all(register: Register, module: str, table: str) -> None:
    for name, entry in getattr(importlib.import_module(module), table).items():
        part, traits = entry if isinstance(entry, tuple) else (entry, {})
        register(name, part, **traits)


@hookimpl
def refbias_tasks(register: Register) -> None:
    _add_all(register, "refbias.tasks", "TASKS")


@hookimpl
def refbias_models(register: Register) -> None:
    _add_all(register, "refbias.models", "MODELS")


@hookimpl
def refbias_checkpoints(register: Register) -> None:
    _add_all(register, "refbias.checkpoints", "CHECKPOINTS")


@hookimpl
def refbias_encoders(register: Register) -> None:
    _add_all(register, "refbias.encoders", "ENCODERS")


@hookimpl
def refbias_poolings(register: Register) -> None:
    _add_all(register, "refbias.pooling", "POOLINGS")


@hookimpl
def refbias_targets(register: Register) -> None:
    _add_all(register, "refbias.stimuli", "TARGETS")


@hookimpl
def refbias_attributes(register: Register) -> None:
    _add_all(register, "refbias.stimuli", "ATTRIBUTES")


@hookimpl
def refbias_anchors(register: Register) -> None:
    _add_all(register, "refbias.stimuli", "ANCHORS")


@hookimpl
def refbias_calibrations(register: Register) -> None:
    _add_all(register, "refbias.calibration", "CALIBRATIONS")


@hookimpl
def refbias_geometries(register: Register) -> None:
    _add_all(register, "refbias.geometry", "GEOMETRIES")


@hookimpl
def refbias_metrics(register: Register) -> None:
    _add_all(register, "refbias.metrics", "METRICS")


@hookimpl
def refbias_benchmarks(register: Register) -> None:
    _add_all(register, "refbias.benchmarks", "BENCHMARKS")


@hookimpl
def refbias_trackers(register: Register) -> None:
    _add_all(register, "refbias.tracking", "TRACKERS")


@hookimpl
def refbias_suites(register: Register) -> None:
    _add_all(register, "refbias.suites", "SUITES")


@hookimpl
def refbias_words(register: Register) -> None:
    _add_all(register, "refbias.words", "WORDS")


@hookimpl
def refbias_corpora(register: Register) -> None:
    _add_all(register, "refbias.corpora", "CORPORA")


@hookimpl
def refbias_data(register: Register) -> None:
    _add_all(register, "refbias.finetuning", "DATA")


@hookimpl
def refbias_regimes(register: Register) -> None:
    _add_all(register, "refbias.finetuning", "REGIMES")


@hookimpl
def refbias_generators(register: Register) -> None:
    _add_all(register, "refbias.generators", "GENERATORS")


@hookimpl
def refbias_judges(register: Register) -> None:
    _add_all(register, "refbias.judges", "JUDGES")


@hookimpl
def refbias_topics(register: Register) -> None:
    _add_all(register, "refbias.topics", "TOPICS")


@hookimpl
def refbias_summaries(register: Register) -> None:
    _add_all(register, "refbias.summaries", "SUMMARIES")
