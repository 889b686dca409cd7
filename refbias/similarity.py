"""Agreement of cosines with human judgements of similarity: word pairs, sentence pairs, Spearman's rho.

WordSim-353 (Finkelstein et al. 2002) and SimLex-999 (Hill et al. 2015) are read from gensim's test data, the STS
benchmark (Cer et al. 2017) from a local copy or from the hub.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from refbias import linalg
from refbias.errors import RefbiasError, UsageError, described, unknown
from refbias.statistics import LEVEL, Estimate
from refbias.types import Array, as_matrix

WORD_PAIRS: Mapping[str, str] = {"wordsim353": "wordsim353.tsv", "simlex999": "simlex999.txt"}
STS = "stsbenchmark"
_STS_COLUMNS = "genre, file, year, id, score, sentence 1 and sentence 2"
_FEWEST = 4  # pairs that a correlation needs
_CONNECT_S = 5.0
_BLOCK = 250  # draws at a time


@dataclass(frozen=True)
class Pairs:
    """Pairs of words or sentences with the mean human judgement of each, higher for more alike."""

    name: str
    unit: Literal["words", "sentences"]
    first: Sequence[str]
    second: Sequence[str]
    human: Array
    note: str

    def __len__(self) -> int:
        return len(self.first)

    @property
    def texts(self) -> list[str]:
        """Every word or sentence once."""
        return list(dict.fromkeys([*self.first, *self.second]))


def load_pairs(name: str, path: str | Path | None = None) -> Pairs:
    """The pairs called ``name``: wordsim353, simlex999 or stsbenchmark.

    Parameters
    ----------
    path : a file of one's own in the same form. For stsbenchmark it must be given: sts-dev.csv or sts-test.csv as
        published, or a data set of the hub with the columns sentence1, sentence2 and score, as "owner/name" or
        "owner/name:split".
    """
    if name in WORD_PAIRS:
        return word_pairs(name, _in_gensim(name) if path is None else Path(path).expanduser())
    if name != STS:
        raise unknown("set of pairs", name, [*WORD_PAIRS, STS])
    if path is None:
        raise UsageError(f"{STS} needs its file: sts-dev.csv or sts-test.csv as published, or a data set of the hub.")
    file = Path(path).expanduser()
    return sts_pairs(file) if file.exists() or "/" not in str(path) or file.suffix else hub_pairs(str(path))


def _in_gensim(name: str) -> Path:
    """The file in gensim's test data, found without importing gensim."""
    spec = importlib.util.find_spec("gensim")
    for location in (spec.submodule_search_locations or []) if spec else []:
        file = Path(location) / "test" / "test_data" / WORD_PAIRS[name]
        if file.is_file():
            return file
    raise RefbiasError(f"{name} comes with gensim's test data, which is not here: pip install 'gensim>=4.3'.")


def word_pairs(name: str, path: Path) -> Pairs:
    """Word pairs: tab-separated word, word, judgement, one pair a line; lines that begin with # are comments."""
    rows = [(number, line.split("\t")) for number, line in _lines(path) if not line.startswith("#")]
    return _pairs(name, "words", path, rows, "a word, a word and a number, tab-separated")


def sts_pairs(path: Path) -> Pairs:
    """Sentence pairs of the STS benchmark as published: tab-separated without quoting, so quotes are literal."""
    rows = [(number, line.split("\t")) for number, line in _lines(path)]
    picked = [(number, [*fields[5:7], *fields[4:5]]) for number, fields in rows]
    return _pairs(STS, "sentences", path, picked, f"{_STS_COLUMNS}, tab-separated")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not blank."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise RefbiasError(f"{path} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from None
    except OSError as error:
        raise RefbiasError(
            f"{path} cannot be read: {error.strerror or error}. Give a file, such as sts-test.csv."
        ) from None


def _pairs(name: str, unit: Literal["words", "sentences"], path: Path, rows: Any, expected: str) -> Pairs:
    first, second, human = [], [], []
    for number, fields in rows:
        try:
            one, other, judgement = fields[0].strip(), fields[1].strip(), float(fields[2])
        except (IndexError, ValueError):
            raise RefbiasError(f"{path}, line {number}: expected {expected}.") from None
        if not (one and other and np.isfinite(judgement)):
            raise RefbiasError(f"{path}, line {number}: expected {expected}.")
        first.append(one)
        second.append(other)
        human.append(judgement)
    if not first:
        raise RefbiasError(f"{path} holds no pair: expected {expected}.")
    return Pairs(name, unit, first, second, np.array(human), path.name)


def hub_pairs(name: str) -> Pairs:
    """Sentence pairs of a data set on the hub, "owner/name" or "owner/name:split" (split: test)."""
    dataset, _, split = name.partition(":")
    split = split or "test"
    way_out = f"Give the published file instead, sts-dev.csv or sts-test.csv, with {_STS_COLUMNS}."
    try:
        import datasets
        import huggingface_hub

        huggingface_hub.HfApi().dataset_info(dataset, timeout=_CONNECT_S)  # `datasets` alone waits for half a minute
        rows = datasets.load_dataset(dataset, split=split)
        columns = [list(rows[column]) for column in ("sentence1", "sentence2", "score")]
        human = np.asarray(columns[2], dtype=np.float64)
    except ImportError:
        raise RefbiasError(f"Reading {dataset} from the hub needs pip install datasets. {way_out}") from None
    except Exception as error:  # the hub, its library and a data set's script fail in many ways
        raise RefbiasError(f"{dataset} ({split}) cannot be fetched: {described(error)}. {way_out}") from None
    return Pairs(STS, "sentences", columns[0], columns[1], human, f"{dataset}, split {split}")


@dataclass(frozen=True)
class Found:
    """The pairs that have vectors: their numbers, and rows (k, d) of both sides; ``lost``: text -> pairs lost by it."""

    kept: NDArray[np.int64]
    first: Array
    second: Array
    lost: Mapping[str, int]


def find(pairs: Pairs, vectors: Mapping[str, Any]) -> Found:
    """Vectors of both sides of each pair. A pair is left out where ``vectors`` lacks one, or where it is 0."""
    known = {text for text in pairs.texts if text in vectors and np.any(vectors[text])}
    kept, lost = [], dict[str, int]()
    for number, both in enumerate(zip(pairs.first, pairs.second, strict=True)):
        missing = {text for text in both if text not in known}
        for text in missing:
            lost[text] = lost.get(text, 0) + 1
        if not missing:
            kept.append(number)
    if not kept:
        raise RefbiasError(f"No pair of {pairs.name} has both its vectors: {len(lost)} {pairs.unit} are missing.")
    first, second = (as_matrix([vectors[side[i]] for i in kept], pairs.name) for side in (pairs.first, pairs.second))
    return Found(np.array(kept), first, second, lost)


def paired_cosines(X: Any, Y: Any) -> Array:
    """Cosine (n,) of each row of ``X`` (n, d) with the same row of ``Y`` (n, d)."""
    X, Y = as_matrix(X, "X"), as_matrix(Y, "Y")
    if X.shape != Y.shape:
        raise RefbiasError(f"Paired cosines need two matrices of one shape: got {X.shape} and {Y.shape}.")
    cosines = np.einsum("nd,nd->n", X, Y) / linalg.norms(X, "X") / linalg.norms(Y, "Y")
    return np.clip(cosines, -1.0, 1.0)


# Spearman's rho -------------------------------------------------------------------------------------------------


class _Ranks:
    """Ranks of values (n,), ties sharing the average, in resamples where value i comes w_i times."""

    def __init__(self, values: Array) -> None:
        self._order = np.argsort(values, kind="stable")
        ordered = values[self._order]
        new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        self._starts = np.flatnonzero(new)
        self._group = np.empty(len(values), np.int64)
        self._group[self._order] = np.cumsum(new) - 1

    def centred(self, weights: Array) -> Array:
        """Ranks (b, n) minus their mean, for weights (b, n) each row of which sums to n."""
        counts = np.add.reduceat(weights[:, self._order], self._starts, axis=1)
        middle = np.cumsum(counts, axis=1) - counts / 2
        return middle[:, self._group] - weights.shape[1] / 2


def _correlations(weights: Array, x: Array, y: Array) -> Array:
    """Pearson's r (b,) of centred ranks ``x`` and ``y`` (b, n) under ``weights``; NaN where one of them is constant."""
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.einsum("bn,bn,bn->b", weights, x, x) * np.einsum("bn,bn,bn->b", weights, y, y)
        return np.asarray(np.einsum("bn,bn,bn->b", weights, x, y) / np.sqrt(spread))


def spearman(x: Any, y: Any) -> float | None:
    """Spearman's rho of paired values (n,), ties sharing average ranks; None where one side is constant."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    ones = np.ones((1, len(x)))
    value = float(_correlations(ones, _Ranks(x).centred(ones), _Ranks(y).centred(ones))[0])
    return value if np.isfinite(value) else None


@dataclass(frozen=True)
class Agreement:
    """Spearman's rho of human judgements with raw and calibrated cosines of the same ``n`` pairs.

    Intervals are percentiles of a paired bootstrap over pairs. The p of the ``difference``, calibrated − raw, is two
    sided: twice the smaller share of resamples on one side of 0, where (b + 1) / (draws + 1) is a share. Where there is
    no rho, all three are None and ``reason`` says why.
    """

    n: int
    draws: int
    raw: Estimate | None = None
    calibrated: Estimate | None = None
    difference: Estimate | None = None
    reason: str | None = None


def agreement(human: Any, raw: Any, calibrated: Any, draws: int = 10_000, seed: int = 0) -> Agreement:
    """Rho of ``human`` (n,) with the cosines ``raw`` and ``calibrated`` (n,), and how sure their difference is."""
    human, raw, calibrated = (np.asarray(values, np.float64) for values in (human, raw, calibrated))
    n = len(human)
    if not len(raw) == len(calibrated) == n:
        raise RefbiasError(f"Agreement needs paired values: got {n} judgements, {len(raw)} and {len(calibrated)}.")
    if n < _FEWEST:
        return Agreement(n, draws, reason=f"{n} pairs: a correlation needs {_FEWEST}")
    before, after = spearman(human, raw), spearman(human, calibrated)
    if before is None or after is None:
        return Agreement(n, draws, reason="all judgements or all cosines are equal")
    drawn = _bootstrap(human, raw, calibrated, draws, seed)
    change = drawn[1] - drawn[0]
    smaller = min(int((change <= 0).sum()), int((change >= 0).sum()))
    p = min(1.0, 2 * (smaller + 1) / (len(change) + 1))
    difference = _interval(after - before, change, p)
    return Agreement(n, draws, _interval(before, drawn[0]), _interval(after, drawn[1]), difference)


def _interval(value: float, drawn: Array, p: float | None = None) -> Estimate:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high), p)


def _bootstrap(human: Array, raw: Array, calibrated: Array, draws: int, seed: int) -> Array:
    """Rho of both (2, draws) in resamples of the pairs; those of one value only, which have none, are left out."""
    rng, n = np.random.default_rng(seed), len(human)
    ranks = [_Ranks(values) for values in (human, raw, calibrated)]
    found = np.empty((2, draws))
    for start in range(0, draws, _BLOCK):
        size = min(_BLOCK, draws - start)
        cells = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        weights = np.bincount(cells.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)
        centred = [rank.centred(weights) for rank in ranks]
        for row, other in enumerate(centred[1:]):
            found[row, start : start + size] = _correlations(weights, centred[0], other)
    return found[:, np.isfinite(found).all(axis=0)]
