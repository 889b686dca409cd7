"""CrowS-Pairs (Nangia et al. 2020, arXiv:2010.00133): pairs of sentences about a group and another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refbias.benchmarks.pairs import Measure, Pair, PairBenchmark, limited, units_by_topic
from refbias.benchmarks.sources import HubFile, fetched, local_or_hub
from refbias.errors import RefbiasError
from refbias.finetuning.files import rows_of

HUB_ID = "nyu-mll/crows_pairs"
FILE = "crows_pairs/test/0000.parquet"

# the numbers that stand for bias types in the hub's copy, in its order
_TYPES = (
    "race-color", "socioeconomic", "gender", "disability", "nationality", "sexual-orientation",
    "physical-appearance", "religion", "age",
)  # fmt: skip

# The file has no ethnicity: it writes of Latin Americans under race-color, of Mexicans mostly under nationality.
UNITS: Mapping[str, str] = units_by_topic(
    {
        "Sexual orientation": "sexual-orientation",
        "Religion": "religion",
        "Race": "race-color",
        "Ethnicity": "race-color",
        "Gender": "gender",
        "Age": "age",
        "Disability": "disability",
        "Socioeconomic status": "socioeconomic",
        "Nationality": "nationality",
    },
    {"Mexicans": "nationality"},
)


def crows_pairs(
    *,
    path: str | None = None,
    measure: Measure = "share",
    limit: int | None = None,
    threshold: float = 0.0,
) -> PairBenchmark:
    """CrowS-Pairs: how often, or by how much, the more stereotyped of two sentences is the more probable one.

    ``path`` is crows_pairs_anonymized.csv or a hub id (default nyu-mll/crows_pairs). Scores are made by bias type, and
    the groups that belong to one share its score; ``limit`` takes the first pairs of each type. Causal and masked
    models.
    """
    place = local_or_hub(path, "benchmark.path", "crows_pairs_anonymized.csv", HUB_ID)
    report = {"source": str(place) if isinstance(place, str) else place.name, "measure": measure, "limit": limit}
    return PairBenchmark("crows_pairs", lambda: limited(read(place), limit), UNITS, measure, threshold, report)


def read(place: Path | str) -> list[Pair]:
    """The pairs of a CSV, JSON, JSONL or parquet file, or of a hub id."""
    path = fetched(HubFile(place, FILE), "benchmark.path") if isinstance(place, str) else place
    return [_pair(row, f"{path.name}, {where}") for where, row in rows_of(path, "benchmark.path")]


def _pair(row: Any, where: str) -> Pair:
    columns = ("sent_more", "sent_less", "bias_type")
    missing = [c for c in columns if not isinstance(row, Mapping) or row.get(c) in (None, "")]
    if missing:
        raise RefbiasError(
            f"{where}: no {', '.join(missing)}. Expected the columns {', '.join(columns)} of CrowS-Pairs."
        )
    kind = row["bias_type"]
    return Pair(str(row["sent_more"]), str(row["sent_less"]), _TYPES[kind] if isinstance(kind, int) else str(kind))
