"""Isotropy of a model's vectors, and how far their cosines agree with people, as plain functions.

model -> vectors -> calibration -> figures, raw beside calibrated
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refbias.cache import Cache
from refbias.errors import RefbiasError, UsageError, unknown
from refbias.layers import parse_layers
from refbias.linalg import cosine
from refbias.provenance import digest, provenance
from refbias.result import Tables, task_data
from refbias.similarity import STS, WORD_PAIRS, Agreement, Found, Pairs, agreement, find, load_pairs, paired_cosines
from refbias.standins import collecting
from refbias.statistics import Estimate
from refbias.subject import Subject, Vocabulary, described, open_subject
from refbias.watch import Quiet, Watch

COMPONENTS = 50
SHOWN = 500  # vectors whose cosines are drawn
FEWEST = 8  # vectors that a sample needs, half of them held out
FIGURES = ("mean_cosine", "sd_cosine", "effective_rank", "iso_score")
MOST_LOST = 20  # words that a row names


# Isotropy -------------------------------------------------------------------------------------------------------


def isotropy(
    model: Any,
    *,
    n: int = 2000,
    corpus: Any = None,
    calibration: Any = "none",
    layer: Any = "last",
    pooling: Any = "mean",
    encoder: Any = "auto",
    sample: int = 100_000,
    vocabulary: Vocabulary = "frequent",
    device: str | None = None,
    dtype: str | None = None,
    cache: bool | str | Path | Cache = True,
    strict: bool = False,
    seed: int = 0,
    watch: Watch | None = None,
    command: str | None = None,
) -> Tables:
    """How evenly a model's vectors fill their space, raw and beside it calibrated.

    Parameters
    ----------
    n : vectors to measure. They are held out of the reference sample, and the calibration is fitted on the rest: on
        the fitted vectors a whitening is perfect by construction. A sample below 2 n gives half of it.
    model, corpus, calibration, layer, pooling, encoder, sample, vocabulary, device, dtype, cache, strict, seed :
        as in `refbias.weat_pipeline.association_tests`

    Returns
    -------
    Tables: ``isotropy``, a row a layer: mean and SD of the pairwise cosines, share of the variance that the top 50
    components explain, effective rank, IsoScore; ``spectrum``, a row a layer and component
    """
    check_isotropy(n, layer)
    with collecting(strict) as notes:
        subject = open_subject(
            model, encoder=encoder, pooling=pooling, layer=layer, corpus=corpus, calibration=calibration,
            sample=sample, vocabulary=vocabulary, device=device, dtype=dtype, cache=cache, seed=seed, watch=watch,
        )  # fmt: skip
        rows, spectrum, fits = [], [], []
        cosines: dict[str, NDArray[np.float32]] = {}
        told = subject.context.watch if len(subject.layers) > 1 else Quiet()
        with told.progress("isotropy", len(subject.layers), "layers") as advance:
            for k in subject.layers:
                row, components, fit, cosines = _isotropy_at(subject, k, n)
                rows.append(row)
                spectrum += components
                fits += fit
                advance(1)
        reference = subject.sample(subject.layers[-1])
    settings = {k: v for k, v in subject.settings().items() if k.partition(".")[0] != "words"}
    data = task_data(
        "isotropy",
        {**settings, "task.n": n, "layer": layer, "strict": strict},
        seed,
        reference=subject.about(),
        isotropy=rows,
        spectrum=spectrum,
        calibrations=fits,
        figures=_by_space(subject, rows, lambda row: "", (*FIGURES[:1], *FIGURES[2:])),
        conventions={
            "sample": reference.note,
            "unit": reference.kind,
            "held_out": "measured on vectors that the calibration was not fitted on",
            "effective_rank": "exp of the entropy of the singular values (Roy and Vetterli 2007)",
            "iso_score": "IsoScore (Rudman et al. 2022, arXiv 2108.07344)",
            "iso_score_of_isotropic": "what so many vectors of an isotropic Gaussian score, about",
            **dict(subject.encoder.conventions),
        },
        stand_ins=notes.rows(),
        timings=subject.cost.timings(),
        provenance=provenance({"sample": reference.digest}, command),
    )
    return Tables(data, ("isotropy", "spectrum"), functools.partial(_isotropy_pictures, cosines))


def check_isotropy(n: int, layer: Any) -> None:
    if n < FEWEST // 2:
        raise UsageError(f"n={n}: isotropy needs at least {FEWEST // 2} vectors; 2000 is the default.")
    parse_layers(layer, 10**6 - 1)


def _isotropy_pictures(cosines: Mapping[str, NDArray[np.float32]], data: Mapping[str, Any]) -> Mapping[str, Any]:
    from refbias.report.space_figures import isotropy_figures

    return isotropy_figures(data, cosines)


def _isotropy_at(
    subject: Subject, layer: int, n: int
) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]], dict[str, NDArray[np.float32]]]:
    """A layer's row, its components, how the calibration was fitted, and cosines to draw."""
    from refbias.isotropy import measure

    sample = subject.sample(layer)
    if sample.n < FEWEST:
        raise RefbiasError(f"Isotropy needs a sample of at least {FEWEST} vectors: {sample.note} has {sample.n}.")
    rest, held = sample.split(min(n, sample.n // 2), subject.context.seed)
    spaces = {"raw": held.vectors().astype(np.float64)}
    fits = []
    if subject.calibration is not None:
        fit = subject.fitted(layer, rest)
        fits.append({"layer": layer, **described(fit)})
        spaces["calibrated"] = fit.transform(spaces["raw"])
    row: dict[str, Any] = {"layer": layer, "n": held.n, "n_fitted": rest.n if fits else 0}
    found = {}
    with subject.cost.scoring():
        for space, vectors in spaces.items():
            try:
                found[space] = measure(vectors, COMPONENTS)
            except RefbiasError as error:  # a zero vector, rows that are all the same
                row |= {f"{figure}_{space}": None for figure in (*FIGURES, "top_50")} | {f"reason_{space}": str(error)}
                continue
            row |= {f"{figure}_{space}": found[space][figure] for figure in FIGURES}
            row[f"top_50_{space}"] = float(sum(found[space]["explained_variance"]))
            row["iso_score_of_isotropic"] = found[space]["iso_score_of_isotropic"]
    shares = {space: figures["explained_variance"] for space, figures in found.items()}
    most = max(map(len, shares.values()), default=0)
    components = [
        {"layer": layer, "component": i + 1, **{space: share[i] for space, share in shares.items() if i < len(share)}}
        for i in range(most)
    ]
    order = np.random.default_rng(subject.context.seed).permutation(held.n)[:SHOWN]
    cosines = {space: cosine(spaces[space][order], spaces[space][order]).astype(np.float32) for space in found}
    return row, components, fits, cosines


def _by_space(
    subject: Subject, rows: Sequence[Mapping[str, Any]], named: Callable[[Mapping[str, Any]], str], of: Sequence[str]
) -> dict[str, Any]:
    """Figures for a tracker: "mean_cosine/raw", with the layer where there are several."""
    choice = subject.calibration
    spaces = {"raw": "raw", **({"calibrated": choice.name} if choice else {})}
    several = len(subject.layers) > 1
    made = {}
    for figure in of:
        for row in rows:
            at = f"/layer_{row['layer']}" if several else ""
            for space, shown in spaces.items():
                made[f"{figure}{named(row)}/{shown}{at}"] = row.get(f"{figure}_{space}")
    return made


# Similarity -----------------------------------------------------------------------------------------------------


def similarity(
    model: Any,
    *,
    sets: Sequence[str] | None = None,
    sts_path: str | Path | None = None,
    words: Any = "auto",
    corpus: Any = None,
    calibration: Any = "none",
    layer: Any = "last",
    pooling: Any = "mean",
    encoder: Any = "auto",
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
) -> Tables:
    """Spearman's ρ of cosines with human judgements of similarity, raw and beside it calibrated.

    Parameters
    ----------
    sets : names of "wordsim353", "simlex999", "stsbenchmark"; None takes the first two, and the third where its file
        is given
    sts_path : sts-dev.csv or sts-test.csv as published, or a data set of the hub, "owner/name:split"
    draws : of the paired bootstrap over pairs
    model, words, corpus, calibration, layer, pooling, encoder, sample, vocabulary, device, dtype, cache, strict, seed :
        as in `refbias.weat_pipeline.association_tests`; words by ``words``, sentences by ``pooling``

    Returns
    -------
    Tables: ``similarity``, a row a layer and set; ``lost_words``
    """
    names = check_similarity(sets, sts_path, layer, draws)
    with collecting(strict) as notes:
        every = [load_pairs(name, sts_path if name == STS else None) for name in names]
        subject = open_subject(
            model, encoder=encoder, pooling=pooling, layer=layer, words=words, corpus=corpus, calibration=calibration,
            sample=sample, vocabulary=vocabulary, device=device, dtype=dtype, cache=cache, seed=seed, watch=watch,
        )  # fmt: skip
        run = _Similarity(subject, every, draws)
        measured = run.measure()
    data = task_data(
        "similarity",
        {**subject.settings(), "task.sets": names, "layer": layer, "strict": strict, "draws": draws},
        seed,
        reference=subject.about(),
        **measured,
        figures=_by_space(subject, measured["similarity"], lambda row: f"/{row['set']}", ("rho",)),
        conventions={
            "figure": "Spearman's rho of cosine and mean human judgement",
            "interval": "percentiles of a paired bootstrap over pairs",
            "draws": draws,
            "level": 0.95,
            "words": run.report,
            **dict(subject.encoder.conventions),
        },
        stand_ins=notes.rows(),
        timings=subject.cost.timings(),
        provenance=provenance({pairs.name: _digest(pairs) for pairs in every}, command),
    )
    return Tables(data, [name for name in ("similarity", "lost_words") if data[name]], _similarity_pictures)


def check_similarity(sets: Sequence[str] | None, sts_path: str | Path | None, layer: Any, draws: int) -> list[str]:
    """The names of the sets; raises `UsageError` for what has no meaning, before anything is loaded."""
    names = [*WORD_PAIRS, *([STS] if sts_path is not None else [])] if sets is None else list(sets)
    for name in names:
        if name not in (*WORD_PAIRS, STS):
            raise unknown("set of pairs", name, [*WORD_PAIRS, STS])
    if not names:
        raise UsageError("sets=[] names no set of pairs. Leave it out to take wordsim353 and simlex999.")
    if STS in names and sts_path is None:
        raise UsageError(
            f"{STS} needs task.sts_path=FILE: sts-dev.csv or sts-test.csv as published, or a data set of the hub "
            f"(owner/name:split)."
        )
    if draws < 100:
        raise UsageError(f"draws={draws}: intervals need at least 100 draws; 10000 is the default.")
    parse_layers(layer, 10**6 - 1)
    return names


def _similarity_pictures(data: Mapping[str, Any]) -> Mapping[str, Any]:
    from refbias.report.space_figures import similarity_figures

    return similarity_figures(data)


def _digest(pairs: Pairs) -> str:
    return digest(f"{a}\t{b}\t{h}" for a, b, h in zip(pairs.first, pairs.second, pairs.human, strict=True))


class _Similarity:
    """One run over sets of pairs: each layer's vectors, then each set's correlations."""

    def __init__(self, subject: Subject, every: Sequence[Pairs], draws: int) -> None:
        self.subject, self.every, self.draws = subject, every, draws
        self.report: dict[str, Any] = {}
        self.lost: list[dict[str, Any]] = []

    def measure(self) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        fits = []
        by_unit = {unit: self._vectors(unit) for unit in dict.fromkeys(pairs.unit for pairs in self.every)}
        for layer in self.subject.layers:
            fit = None
            if self.subject.calibration is not None:
                fit = self.subject.fitted(layer)
                fits.append({"layer": layer, **described(fit)})
            for pairs in self.every:
                vectors, reason = by_unit[pairs.unit][layer]
                head = {"layer": layer, "set": pairs.name, "unit": pairs.unit, "source": pairs.note}
                rows.append({**head, **self._row(pairs, vectors, fit, reason)})
        return {"similarity": rows, "lost_words": self.lost, "calibrations": fits}

    def _vectors(self, unit: str) -> dict[int, tuple[Mapping[str, Any], str | None]]:
        """Layer -> vectors of all words or sentences, and why there are none."""
        texts = list(dict.fromkeys(text for pairs in self.every if pairs.unit == unit for text in pairs.texts))
        if unit == "words":
            return {layer: (self._words(texts, layer), None) for layer in self.subject.layers}
        try:
            found = self.subject.sentences(texts)
        except RefbiasError as error:  # word vectors that know no word of a sentence
            return {layer: ({}, str(error)) for layer in self.subject.layers}
        return {layer: (dict(zip(texts, rows, strict=True)), None) for layer, rows in found.items()}

    def _words(self, words: Sequence[str], layer: int) -> Mapping[str, Any]:
        found = self.subject.words(words, layer)
        self.report = {"form": found.form, **found.report}
        self.lost += [{"layer": layer, "word": word, "why": why} for word, why in found.lost.items()]
        return found.vectors

    def _row(self, pairs: Pairs, vectors: Mapping[str, Any], fit: Any, reason: str | None) -> dict[str, Any]:
        if reason is None:
            try:
                found = find(pairs, vectors)
            except RefbiasError as error:
                reason = str(error)
        if reason is not None:
            return {"pairs": 0, "pairs_lost": len(pairs), **self._columns(None, fit), "reason": reason}
        lost = sorted(found.lost, key=lambda text: -found.lost[text])
        row: dict[str, Any] = {"pairs": len(found.kept), "pairs_lost": len(pairs) - len(found.kept)}
        if pairs.unit == "words":
            more = f" and {len(lost) - MOST_LOST} more" if len(lost) > MOST_LOST else ""
            row["lost"] = ", ".join(lost[:MOST_LOST]) + more
        with self.subject.cost.scoring():
            return {**row, **self._columns(self._agreement(pairs, found, fit), fit)}

    def _agreement(self, pairs: Pairs, found: Found, fit: Any) -> Agreement:
        raw = paired_cosines(found.first, found.second)
        other = raw if fit is None else paired_cosines(fit.transform(found.first), fit.transform(found.second))
        return agreement(pairs.human[found.kept], raw, other, self.draws, self.subject.context.seed)

    def _columns(self, found: Agreement | None, fit: Any) -> dict[str, Any]:
        row: dict[str, Any] = _estimate(found.raw if found else None, "rho_raw", "rho_low_raw", "rho_high_raw")
        if fit is not None:
            calibrated, change = (found.calibrated, found.difference) if found else (None, None)
            row |= _estimate(calibrated, "rho_calibrated", "rho_low_calibrated", "rho_high_calibrated")
            row |= _estimate(change, "change", "change_low", "change_high")
            row["p"] = change.p_value if change else None
        return {**row, "reason": found.reason} if found and found.reason else row


def _estimate(found: Estimate | None, *names: str) -> dict[str, Any]:
    return dict(zip(names, (found.value, found.ci_low, found.ci_high) if found else (None, None, None), strict=True))
