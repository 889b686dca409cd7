"""What an audit leaves behind, as far as the statistics read it."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def audited() -> dict[str, Any]:
    """The parts of result.json that say what the observations beside it are."""
    return {
        "task": "audit",
        "settings": {
            "geometry": "relative", "metric": "delta_b", "pooling": "mean", "calibration": "none",
            "anchors": "neutral", "anchors.n": 1000,
        },
        "reference": {"name": "smollm2", "layers": 30, "dim": 576},
        "layer": 30,
        "benchmark": {"name": "likelihood", "unit": "nats a token", "threshold": 0.0},
        "provenance": {"data_digests": {"anchors": "abc"}},
    }  # fmt: skip
