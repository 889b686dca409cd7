"""WinoBias (Zhao et al. 2018, arXiv:1804.06876): sentences in which a pronoun does or does not fit a stereotype."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from refbias.benchmarks.pairs import Measure, Pair, PairBenchmark, limited
from refbias.benchmarks.sources import HubFile, fetched, local_or_hub
from refbias.errors import RefbiasError, UsageError
from refbias.finetuning.files import rows_of
from refbias.stimuli.files import read_text

HUB_ID = "uclanlp/wino_bias"
SIDES = ("pro", "anti")
GROUPS = ("Women", "Men")

Split = Literal["dev", "test"]
Type = Literal["both", "type1", "type2"]

_NUMBER = re.compile(r"^\d+\s+")


def winobias(
    *,
    path: str | None = None,
    split: Split = "dev",
    type: Type = "both",
    measure: Measure = "log_odds",
    limit: int | None = None,
    threshold: float = 0.0,
) -> PairBenchmark:
    """WinoBias: by how much, or how often, the pronoun that fits an occupation's stereotype is the more probable.

    ``path`` is the folder with pro_stereotyped_type1.txt.dev, anti_stereotyped_type1.txt.dev and so on, or a hub id
    (default uclanlp/wino_bias). Women and Men share one score over all pairs: what a model thinks of the pronouns
    alone cancels there. Type 1 and type 2 stand apart among the figures. Causal and masked models.
    """
    place = local_or_hub(path, "benchmark.path", "the folder with WinoBias's text files", HUB_ID)
    if isinstance(place, Path) and not place.is_dir():
        raise UsageError(f"benchmark.path={path} is a file. Name the folder with WinoBias's pro and anti files.")
    types = ("type1", "type2") if type == "both" else (type,)
    source = str(place) if isinstance(place, str) else place.name
    report = {"source": source, "split": split, "type": type, "measure": measure, "limit": limit}
    units = dict.fromkeys(GROUPS, "all")
    return PairBenchmark(
        "winobias", lambda: limited(read(place, types, split), limit), units, measure, threshold, report
    )


def read(place: Path | str, types: Sequence[str], split: Split) -> list[Pair]:
    """The sentences of the pro and anti files, line by line, without brackets and numbers."""
    pairs = []
    for kind in types:
        pro, anti = (_sentences(place, kind, side, split) for side in SIDES)
        if len(pro) != len(anti):
            raise RefbiasError(
                f"WinoBias {kind}, {split}: {len(pro)} sentences on the pro side and {len(anti)} on the anti side; "
                f"they belong together line by line."
            )
        pairs += [Pair(more, less, kind) for more, less in zip(pro, anti, strict=True)]
    return pairs


def _sentences(place: Path | str, kind: str, side: str, split: Split) -> list[str]:
    if isinstance(place, str):
        file = f"{kind}_{side}/{'validation' if split == 'dev' else split}/0000.parquet"
        rows = rows_of(fetched(HubFile(place, file), "benchmark.path"), "benchmark.path")
        return [plain(" ".join(row["tokens"])) for _, row in rows]
    path = place / f"{side}_stereotyped_{kind}.txt.{split}"
    if not path.is_file():
        raise RefbiasError(f"benchmark.path={place} has no {path.name}, a file of WinoBias.")
    return [plain(line) for line in read_text(path).splitlines() if line.strip()]


def plain(line: Any) -> str:
    """A line of WinoBias as a sentence: no number in front, no brackets, no space before punctuation.

    >>> plain("7 [The cook] thanked the clerk 's friend , because [she] was kind .")
    "The cook thanked the clerk's friend, because she was kind."
    """
    text = _NUMBER.sub("", str(line).strip()).replace("[", "").replace("]", "")
    return re.sub(r"\s+(?=[.,;:!?]|'s\b)", "", text)
