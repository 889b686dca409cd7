"""Jobs as a sweep would leave them, with numbers that can be told apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refbias.statistics import agreement
from refbias.summaries import Job

GROUPS = [f"group {i}" for i in range(12)]
RATIOS = [0.0, 0.5, 1.0]


def audit_data(strength: float, seed: int, directed: bool = True, stand_ins: Any = ()) -> dict[str, Any]:
    """The content of result.json of an audit whose shifts follow the benchmark with ``strength``."""
    rng = np.random.default_rng(seed)
    slopes = rng.normal(size=len(GROUPS))
    checkpoints: list[dict[str, Any]] = []
    scores: dict[str, Any] = {}
    x, y, names, groups = [], [], [], []
    for ratio in RATIOS:
        name, rows = f"merge-{ratio:g}", []
        for group, slope in zip(GROUPS, slopes, strict=True):
            change = (ratio - 0.4) * slope + 0.05 * rng.normal()
            shift = (-1 if directed else 1) * strength * change + (1 - strength) * rng.normal()
            second = {"calibration": "center", "delta_b": 2 * shift + 0.01} if directed else None
            rows.append(
                {"group": group, "delta_b": shift, "b_ref": 0.1 if directed else None, "second_opinion": second}
            )
            scores.setdefault(name, {})[group] = {"delta_bias": change, "more_biased": change > 0.1}
            x, y, names, groups = [*x, shift], [*y, change], [*names, name], [*groups, group]
        mean = float(np.mean([row["delta_b"] for row in rows]))
        checkpoints.append({"name": name, "ratio": ratio, "mean_delta_b": mean, "groups": rows})
    figures = agreement(np.array(x), np.array(y), 0.1, names, groups, directed, 0)
    return {
        "task": "audit",
        "settings": {"calibration": "none"},
        "seed": 0,
        "reference": {"name": "own", "device": "cpu", "dtype": "float32"},
        "layer": 4,
        "checkpoints": checkpoints,
        "series": {"taught_first_at_ratio_1": GROUPS[::2]},
        "benchmark": {"name": "likelihood", "unit": "nats", "threshold": 0.1, "scores": scores, **figures},
        "stand_ins": list(stand_ins),
        "timings": {
            "load_s": 1.0, "encode_s": 40.0, "score_s": 6.0, "benchmark_s": 8.0, "sentences_encoded": 2000,
            "sentences_from_cache": 0, "tokens": 100,
        },
    }  # fmt: skip


@pytest.fixture
def job() -> Callable[..., Job]:
    """``job(number, geometry="cka", data=…)``: parts by keyword as name or (name, options)."""

    def make(number: int, data: dict[str, Any] | None, reason: str | None = None, pair: int = 0, **parts: Any) -> Job:
        settings: dict[str, Any] = {
            "reference": "own", "seed": 0, "audited": None,
            "checkpoints": {"name": "planted", "kind": "contrast", "seed": pair},
            "benchmark": {"name": "likelihood"}, "regime": {"name": "lora"}, "geometry": {"name": "relative"},
        }  # fmt: skip
        for kind, chosen in parts.items():
            name, options = chosen if isinstance(chosen, tuple) else (chosen, {})
            settings[kind] = {"name": name, **options} if kind not in ("reference", "audited") else name
        return Job(number, [f"job={number}"], settings, Path(), data, reason)

    return make
