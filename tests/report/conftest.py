"""Results as a run would leave them, with numbers that can be told apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

GROUPS = (
    "Homosexuals", "Muslims", "Christians", "Jews", "Buddhists", "Atheists", "Black people", "White people", "Asians",
    "Caucasians", "Mexicans", "Latin Americans", "Women", "Men", "Old people", "Young people",
    "Physically disabled people", "Able-bodied people", "Poor people", "Rich people", "Immigrants", "Canadians",
    "Americans", "Europeans",
)  # fmt: skip


def _estimate(value: float, half: float) -> dict[str, Any]:
    p = math.erfc(abs(value) / (half / 1.96) / math.sqrt(2))
    return {"delta_b": value, "ci_low": value - half, "ci_high": value + half, "p_adjusted": min(1.0, 24 * p)}


def _checkpoint(index: int, count: int, groups: tuple[str, ...], rng: np.random.Generator) -> dict[str, Any]:
    ratio = index / max(count - 1, 1)
    rows = []
    for number, group in enumerate(groups):
        dose = (0.5 - ratio) * (1 if number % 2 else -1)
        value, centred = (float(0.4 * dose - 0.1 * shift + 0.04 * rng.normal()) for shift in (1, 0))
        row = {"group": group, "b_ref": 0.2, "b_aud": 0.2 + value, **_estimate(value, 0.07), "p_value": 0.5}
        row["second_opinion"] = {"calibration": "center", **_estimate(centred, 0.06)}
        rows.append(row)
    mean = float(np.mean([row["delta_b"] for row in rows]))
    name = f"planted-{round(100 * (1 - ratio))}-{round(100 * ratio)}"
    return {"name": name, "ratio": ratio, "fingerprint": f"f{index}", "mean_delta_b": mean, "groups": rows}


@pytest.fixture
def make_result() -> Callable[..., dict[str, Any]]:
    """``make_result(count)``: the content of result.json of an audit of ``count`` checkpoints."""

    def make(count: int = 7, groups: tuple[str, ...] = GROUPS, seed: int = 0) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        return {
            "schema_version": "1",
            "task": "audit",
            "settings": {
                "reference": "smollm2", "geometry": "relative", "metric": "delta_b", "pooling": "mean",
                "calibration": "none", "anchors": {"name": "neutral", "n": 1000}, "targets": "base",
                "attributes": "base", "layer": "last",
            },
            "seed": 0,
            "reference": {
                "name": "smollm2", "fingerprint": "f", "layers": 30, "dim": 576, "dtype": "float32", "device": "cpu",
            },
            "layer": 30,
            "checkpoints": [_checkpoint(index, count, groups, rng) for index in range(count)],
            "benchmark": {
                "name": "likelihood", "unit": "nats a token", "threshold": 0.0, "n_observations": 24 * count,
                "n_positive": 90, "pearson": -0.84, "pearson_p": 1e-9, "auc": 0.89, "mae": 0.3,
                "within": {"pearson": -0.92, "auc": 0.95},
            },
            "conventions": {"ddof": 1},
            "stand_ins": [],
            "timings": {
                "load_s": 1.0, "encode_s": 2.0, "score_s": 0.5, "sentences_encoded": 2400, "sentences_from_cache": 0,
                "tokens": 27600,
            },
            "provenance": {
                "refbias": "0.1.0", "torch": "2", "transformers": "5", "numpy": "2", "python": "3.11",
                "platform": "Linux", "git_commit": None, "command": "refbias", "started": "2026-01-01T00:00:00+00:00",
                "data_digests": {},
            },
        }  # fmt: skip

    return make


@pytest.fixture
def observe() -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of observations.csv for a made result, ΔBias = −2 ΔB + 0.1 exactly."""

    def rows(data: dict[str, Any]) -> list[dict[str, Any]]:
        found = []
        for checkpoint in data["checkpoints"]:
            for group in checkpoint["groups"]:
                row = {**group, "checkpoint": checkpoint["name"], "ratio": checkpoint["ratio"], "layer": data["layer"]}
                row["delta_bias"] = None if row["delta_b"] is None else -2 * row["delta_b"] + 0.1
                found.append(row)
        return found

    return rows
