"""The grid's shifts are those of `refbias.compare_spaces`, setting by setting."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from refbias import Space, compare_spaces
from refbias.comparison import choose
from refbias.errors import UsageError
from refbias.pooling import built_in
from refbias.sensitivity.grid import Grid, Way
from refbias.types import Stimuli

SITES = [(3, built_in("mean")), (3, built_in("mean", "sink")), (4, built_in("max"))]


def way(geometry: str, calibration: str) -> Way:
    chosen, metric, calibrator = choose(geometry, None, calibration)
    return Way(calibrator, chosen, metric)


def stimuli(anchors: int) -> Stimuli:
    targets = {group: [f"{group} {i}" for i in range(n)] for group, n in (("A", 4), ("B", 5), ("C", 6))}
    return Stimuli(targets, ["p0", "p1", "p2"], ["n0", "n1"], [f"a{i}" for i in range(anchors)])


@pytest.mark.parametrize("calibration", ["none", "center", "abtt", "zca"])
@pytest.mark.parametrize("geometry", ["relative", "absolute", "procrustes", "cka"])
@pytest.mark.parametrize("anchors", [7, 30])  # fewer and more than half of the dimensions
def test_agrees_with_compare_spaces(geometry: str, calibration: str, anchors: int) -> None:
    sentences = stimuli(anchors)
    row = {s: i for i, s in enumerate(sentences.sentences())}
    rng = np.random.default_rng(1)
    before = {(k, p.key): rng.normal(1, 1, (len(row), 24)).astype(np.float32) for k, p in SITES}
    after = {key: v + 0.3 * rng.normal(size=v.shape).astype(np.float32) for key, v in before.items()}

    def space(vectors: np.ndarray) -> Space:
        def take(some: list[str]) -> np.ndarray:
            return vectors[[row[s] for s in some]].astype(np.float64)

        named = {group: take(some) for group, some in sentences.targets.items()}
        return Space(named, take(sentences.positive), take(sentences.negative), take(sentences.anchors))

    ways = [way(geometry, calibration), way("relative", "none")]
    found = Grid(sentences, SITES, ways, before).shifts(after)
    assert found.shape == (3, 2, 3)
    for i, (layer, pooling) in enumerate(SITES):
        key = (layer, pooling.key)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shifts = compare_spaces(space(before[key]), space(after[key]), geometry, calibration=calibration)
        assert found[i, 0] == pytest.approx([shifts[group] for group in "ABC"], abs=1e-9)
        raw = compare_spaces(space(before[key]), space(after[key]))
        assert found[i, 1] == pytest.approx([raw[group] for group in "ABC"], abs=1e-12)


def test_metrics_that_the_grid_cannot_compute_are_refused() -> None:
    with pytest.raises(UsageError, match="geometry=adapter needs a LoRA adapter"):
        way("adapter", "none").check()
    chosen, metric, calibrator = choose("relative", "delta_b_contrast", "none")
    with pytest.raises(UsageError, match="metric=delta_b_contrast is neither"):
        Way(calibrator, chosen, metric).check()
