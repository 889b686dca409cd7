"""Association tests of one model as a plain function: a model and choices in, tables out.

model -> vectors of words, sentences or contexts -> calibration -> tests of a suite -> rows, raw beside calibrated
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import numpy as np

from refbias.cache import Cache
from refbias.errors import RefbiasError, UsageError, unknown
from refbias.layers import parse_layers
from refbias.provenance import digest, provenance
from refbias.registry import registry
from refbias.result import Tables, task_data
from refbias.standins import collecting
from refbias.subject import Subject, Vocabulary, described, open_subject
from refbias.suite_tests import KINDS, Settings, Tested, Vectors, check_further, count_status, run_suite
from refbias.suites import Test, found
from refbias.suites.words import POLICIES, SETS, Policy
from refbias.watch import Advance, Watch
from refbias.words import WordVectors

# The templates of May et al. (2019) that fit names and nouns alike
TEMPLATES = (
    "This is {word}.", "That is {word}.", "There is {word}.", "Here is {word}.", "{word} is here.", "{word} is there.",
)  # fmt: skip


@dataclass(frozen=True)
class Material:
    """What a suite is computed from at one layer: word -> (k, d), why words are lost, and what to record."""

    vectors: Vectors
    lost: Mapping[str, str]
    report: Mapping[str, Any]


def association_tests(
    model: Any,
    *,
    suite: Any = "caliskan2017",
    test: str = "weat",
    also: Sequence[str] = (),
    words: Any = "auto",
    corpus: Any = None,
    calibration: Any = "none",
    layer: Any = "last",
    pooling: Any = "mean",
    encoder: Any = "auto",
    missing: str = "drop",
    templates: Sequence[str] | None = None,
    sample: int = 100_000,
    vocabulary: Vocabulary = "frequent",
    device: str | None = None,
    dtype: str | None = None,
    cache: bool | str | Path | Cache = True,
    strict: bool = False,
    seed: int = 0,
    draws: int = 10_000,
    watch: Watch | None = None,
    command: str | None = None,
    **options: Any,
) -> Tables:
    """Run a suite of association tests on a model, raw and beside it calibrated.

    Parameters
    ----------
    model : hub id, folder, GGUF file, word-vector file, registered name, or (transformers model, tokenizer)
    suite, words, corpus, calibration, pooling, encoder : a name, (name, {options}) or an object; ``corpus`` None is
        the small Wikipedia sample where text is needed, ``calibration`` "none" gives raw alone
    test : "weat", "sc_weat", "seat", "ceat" or "ml_eat", see `refbias.suite_tests.KINDS`
    also : further scores beside it: "rnd", "ect", "rnsb", "same"
    layer : "last", an integer, a list, or "all": a row a layer and test
    missing : what happens to words without a vector: "drop", "balance" (then equal target sets) or "fail"
    templates : of SEAT, with {word} where the word goes; None takes those of May et al. that fit all words
    sample, vocabulary : how many vectors the calibration is fitted on, see `refbias.subject.Reference`
    device, dtype, cache, strict, seed : as in `refbias.audit`
    draws : of the bootstrap behind every interval
    options : of the tests, see `refbias.suite_tests.Settings`: ddof, alternative, ties, permutations, method, holm,
        alpha, samples, variance

    Returns
    -------
    Tables: ``suites`` (a row a layer and test), ``lost_words``, ``further`` and, for ML-EAT, ``map``
    """
    settings = settings_of(seed, draws, options)
    check(test, also, missing, templates, layer)
    with collecting(strict) as notes:
        chosen = registry().resolve("suite", suite, seed)
        tests: list[Test] = list(chosen.object)
        subject = open_subject(
            model, encoder=encoder, pooling=pooling, layer=layer, words=words, corpus=corpus, calibration=calibration,
            sample=sample, vocabulary=vocabulary, device=device, dtype=dtype, cache=cache, seed=seed, watch=watch,
        )  # fmt: skip
        run = _Suite(subject, tests, test, tuple(also), cast(Policy, missing), list(templates or TEMPLATES), settings)
        measured = run.measure()
    own = {"test": test, "also": list(also), "missing": missing}
    own |= {"templates": list(templates or TEMPLATES)} if test == "seat" else {}
    own |= {f.name: getattr(settings, f.name) for f in fields(settings) if f.name not in ("seed", "draws")}
    data = task_data(
        "weat",
        {
            **subject.settings(),
            "suite": chosen.name,
            **{f"suite.{name}": value for name, value in chosen.params.items()},
            **{f"task.{name}": value for name, value in own.items()},
            "layer": layer,
            "strict": strict,
            "draws": draws,
        },
        seed,
        reference=subject.about(),
        **measured,
        stand_ins=notes.rows(),
        timings=subject.cost.timings(),
        provenance=provenance({**_digests(tests), **measured["conventions"]["digests"]}, command),
    )
    tables = [name for name in ("suites", "lost_words", "further", "map") if data[name]]
    return Tables(data, tables, _pictures)


def _pictures(data: Mapping[str, Any]) -> Mapping[str, Any]:
    from refbias.report.weat_figures import figures

    return figures(data)


def settings_of(seed: int, draws: int, options: Mapping[str, Any]) -> Settings:
    names = [f.name for f in fields(Settings) if f.name not in ("seed", "draws")]
    for name in options:
        if name not in names:
            raise unknown("option of the tests", name, names)
    return Settings(seed=seed, draws=draws, **options)


def check(test: str, also: Sequence[str], missing: str, templates: Sequence[str] | None, layer: Any) -> None:
    """Raise `UsageError` for choices that have no meaning, before anything is loaded."""
    if test not in KINDS:
        raise unknown("kind of test", test, KINDS)
    check_further(also)
    if missing not in POLICIES:
        raise UsageError(f"The policy for missing words is one of {', '.join(POLICIES)}: got {missing!r}.")
    for template in templates or ():
        if template.count("{word}") != 1:
            raise UsageError(f"A template holds {{word}} once: got {template!r}.")
    if templates is not None and not templates:
        raise UsageError("No template was given. Leave templates out to take those of May et al. (2019).")
    parse_layers(layer, 10**6 - 1)


def _digests(tests: Sequence[Test]) -> dict[str, str]:
    lines = (f"{test.id}\t{key}\t{word}" for test in tests for key in SETS for word in test.sets()[key])
    return {"suite": digest(lines)}


class _Suite:
    """One run of a suite: every layer from its vectors to its rows."""

    def __init__(
        self,
        subject: Subject,
        tests: Sequence[Test],
        kind: str,
        also: Sequence[str],
        missing: Policy,
        templates: Sequence[str],
        settings: Settings,
    ) -> None:
        self.subject, self.tests, self.kind, self.also = subject, tests, kind, also
        self.missing, self.templates, self.settings = missing, templates, settings
        self.every_word = list(dict.fromkeys(word for test in tests for word in test.words()))

    def measure(self) -> dict[str, Any]:
        """The part of result.json that is measured."""
        subject = self.subject
        made: dict[str, list[dict[str, Any]]] = {"suites": [], "lost_words": [], "further": [], "map": []}
        fits: list[dict[str, Any]] = []
        report: Mapping[str, Any] = {}
        for layer, material in MATERIAL[KINDS[self.kind].needs](self):
            report = material.report
            tests = [found(test, material.vectors, self.missing, self.settings.seed) for test in self.tests]
            calibrated = None
            if subject.calibration is not None:
                fit = subject.fitted(layer)
                fits.append({"layer": layer, **described(fit)})
                calibrated = transformed(material.vectors, fit)
            with subject.cost.scoring(), self._progress(layer, len(tests)) as advance:
                tested = run_suite(tests, material.vectors, calibrated, self.kind, self.settings, self.also, advance)
            for name, rows in _tables(tested).items():
                made[name] += [{"layer": layer, **row} for row in rows]
            made["lost_words"] += [
                {"layer": layer, "test": test.test.id, "set": key, "word": word, "why": material.lost.get(word, "")}
                for test in tests
                for key in SETS
                for word in test.lost[key]
            ]
        judged = any(row.get("status") for row in made["suites"])
        counts = {"status_counts": count_status(made["suites"])} if judged else {}
        return {
            **made,
            "calibrations": fits,
            **counts,
            "figures": self._figures(made["suites"], counts.get("status_counts", {})),
            "conventions": self._conventions(report),
        }

    def _progress(self, layer: int, tests: int) -> AbstractContextManager[Advance]:
        label = f"tests at layer {layer}" if len(self.subject.layers) > 1 else "tests"
        return self.subject.context.watch.progress(label, tests)

    # Vectors

    def by_word(self) -> Iterator[tuple[int, Material]]:
        for layer in self.subject.layers:
            found = self.subject.words(self.every_word, layer)
            vectors = {word: np.asarray(v, np.float64)[None] for word, v in found.vectors.items()}
            yield layer, Material(vectors, found.lost, _report(found))

    def by_context(self) -> Iterator[tuple[int, Material]]:
        for layer in self.subject.layers:
            found = self.subject.words(self.every_word, layer)
            if not found.contexts:
                raise UsageError(
                    f"task.test={self.kind} needs several contexts of each word, and words={found.form} gives one "
                    f"vector a word. Use words=aggregated with a language model and a corpus, or task.test=weat."
                )
            contexts = {word: np.asarray(rows, np.float64) for word, rows in found.contexts.items()}
            yield layer, Material(contexts, found.lost, _report(found))

    def by_sentence(self) -> Iterator[tuple[int, Material]]:
        """The sentences that the templates make of each word; of word vectors, only of words that have one."""
        words, lost = self.every_word, {}
        if self.subject.is_table:
            known = self.subject.words(words, self.subject.layers[0])
            words, lost = [word for word in words if word in known.vectors], dict(known.lost)
        sentences = {word: [_sentence(template, word) for template in self.templates] for word in words}
        every = list(dict.fromkeys(s for some in sentences.values() for s in some))
        if not every:
            raise RefbiasError(f"Model {self.subject.encoder.model.name} has a vector for no word of the suite.")
        place = {sentence: i for i, sentence in enumerate(every)}
        report = {"form": "sentences", "templates": len(self.templates), "sentences": len(every)}
        for layer, rows in self.subject.sentences(every).items():
            vectors = {word: rows[[place[s] for s in some]] for word, some in sentences.items()}
            yield layer, Material(vectors, lost, report)

    # The record

    def _figures(self, rows: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> dict[str, float | None]:
        """What a tracker keeps: counts first, then d and p of every test."""
        choice = self.subject.calibration
        spaces = {"raw": "raw", **({"calibrated": choice.name} if choice else {})}
        several = len(self.subject.layers) > 1
        made: dict[str, float | None] = {name.lower(): count for name, count in counts.items()}
        for figure in ("d", "p"):
            for row in rows:
                test = f"{row['test']}_{row['target']}" if row.get("target") else row["test"]
                at = f"/layer_{row['layer']}" if several else ""
                for space, shown in spaces.items():
                    made[f"{figure}/{test}/{shown}{at}"] = row[f"{figure}_{space}"]
        return made

    def _conventions(self, report: Mapping[str, Any]) -> dict[str, Any]:
        settings, kind = self.settings, KINDS[self.kind]
        versions = dict.fromkeys(test.list_version for test in self.tests)
        sources = dict.fromkeys(test.source for test in self.tests)
        corpus = {"corpus": str(report["corpus_digest"])} if report.get("corpus_digest") else {}
        return {
            "test": self.kind,
            "ddof": settings.ddof,
            "ties": settings.ties,
            "alternative": settings.alternative,
            "permutations": settings.permutations,
            **({"samples": settings.samples, "variance": settings.variance} if self.kind == "ceat" else {}),
            "alpha": settings.alpha,
            "adjustment": "Holm over the tests of a layer" if settings.holm else "none",
            "level": 0.95,
            "interval": "bootstrap over the words that are permuted, the other sets held fixed",
            "draws": settings.draws,
            "status": "by p before and after against alpha, without adjustment",
            "list_version": ", ".join(versions),
            "list_source": "; ".join(sources),
            "missing": self.missing,
            "words": dict(report),
            "digests": corpus,
            **dict(self.subject.encoder.conventions),
            **({"note": kind.note} if kind.note else {}),
        }


# what a kind of test needs -> its vectors at each layer
MATERIAL: Mapping[str, Callable[[_Suite], Iterator[tuple[int, Material]]]] = {
    "words": _Suite.by_word,
    "contexts": _Suite.by_context,
    "sentences": _Suite.by_sentence,
}


def _sentence(template: str, word: str) -> str:
    text = template.replace("{word}", word)
    return text[:1].upper() + text[1:]


def _report(found: WordVectors) -> dict[str, Any]:
    return {"form": found.form, **found.report}


def _tables(tested: Tested) -> dict[str, list[dict[str, Any]]]:
    return {"suites": tested.rows, "further": tested.further, "map": tested.map}


def transformed(vectors: Vectors, fit: Any) -> Vectors:
    """Every row calibrated, all in one product."""
    words = list(vectors)
    if not words:
        return {}
    ends = np.cumsum([len(vectors[word]) for word in words])[:-1]
    every = np.asarray(fit.transform(np.concatenate([vectors[word] for word in words])), np.float64)
    return dict(zip(words, np.split(every, ends), strict=True))
