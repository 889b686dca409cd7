"""A small map of a tiny model: few groups, sentences and edits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refbias.cache import Cache
from refbias.result import Tables
from refbias.sensitivity import Design, SensitivityMap, sensitivity

GROUPS = ["Women", "Men", "Jews", "Muslims", "Canadians", "Immigrants"]
SMALL: dict[str, Any] = {
    "doses": [0.1, 0.3], "seeds": 2, "random": 2, "rate": 0.4, "attributes": 4, "anchors": 10,
    "poolings": ["mean", "last"], "layers": [3, 4], "geometries": ["relative", "cka"],
}  # fmt: skip

Measure = Callable[..., tuple[Tables, SensitivityMap]]


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """Where bases of edits and shifts are kept, measured once."""
    return Cache(tmp_path_factory.mktemp("sensitivity"))


@pytest.fixture(scope="session")
def maps(tiny_llama: Path, kept: Cache) -> Measure:
    """``maps(cache=…)`` measures the small map, in `kept` by default."""

    def measure(cache: Cache = kept) -> tuple[Tables, SensitivityMap]:
        return sensitivity(tiny_llama, Design(**SMALL), groups=GROUPS, cache=cache)

    return measure
