from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import refbias.benchmarks.likelihood
import refbias.checkpoints.planted  # noqa: F401  (both patched below)
from refbias.finetuning.statements import predicate_pairs


@pytest.fixture(scope="module")
def few_predicates() -> Iterator[None]:
    """Four pairs to teach and to score are enough for a tiny model."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("refbias.checkpoints.planted", "refbias.benchmarks.likelihood"):
            patch.setattr(sys.modules[module], "predicate_pairs", lambda name: predicate_pairs(name)[:4])
        yield
