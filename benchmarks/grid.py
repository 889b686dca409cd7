"""Time and memory of a 1,920-cell grid on seven checkpoints, everything after the encoder, without intervals.

    python benchmarks/grid.py [--threads 2] [--layers 30] [--poolings 3] [--dim 576] [--checked 2]

    6 attribute x 6 target sets x 4 anchor sets x 3 poolings x 4 geometries, last layer, no calibration    1,728
    all 31 layers x 3 calibrations x relative and absolute, one choice of sentences                           186
    the last layer x 3 calibrations x procrustes and CKA, likewise                                              6

Random vectors of SmolLM2's size: 24 groups x 50 targets, 100 + 100 attributes, 1,000 anchors in each set. Cells that
differ in their sentences alone are blocks of one table: one `Comparison` holds all target and attribute sets, and a
space is calibrated once for all geometries. Prints seconds by the clock and of the processors (a busy machine stretches
the first alone), the ratio to the matrix products that the cells need, and the peak of memory over the vectors; then a
few cells one by one, to compare figures and time.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

GROUPS, TARGETS, SIDE, ANCHORS, AUDITED = 24, 50, 100, 1000, 7
TARGET_SETS = ("base", "passive", "passive_rephrased", "synonyms_1", "synonyms_2", "synonyms_3")
ATTRIBUTE_SETS = ("base", "subject_they", "subject_person", "synonyms_1", "synonyms_2", "synonyms_3")
ANCHOR_SETS = ("neutral", "words", "alpaca", "tulu")
POOLINGS = ("mean", "max", "last")
CALIBRATIONS = ("center", "zca", "abtt")
GEOMETRIES = ("relative", "absolute", "procrustes", "cka")
NEEDS_ANCHORS = ("relative", "procrustes")

Cell = tuple[Any, ...]
Shifts = dict[Cell, list[dict[str, float]]]  # the groups' shifts of each checkpoint


@dataclass(frozen=True)
class Embeddings:
    """Vectors of one model: ``last`` (poolings, sentences, d) and ``layers`` (layers, base sentences, d), float32."""

    last: Any
    layers: Any

    @property
    def nbytes(self) -> int:
        return int(self.last.nbytes + self.layers.nbytes)


def embeddings(layers: int, dim: int, poolings: int = len(POOLINGS)) -> list[Embeddings]:
    """A reference and its checkpoints, each the reference and a change of its own."""
    import numpy as np

    rng, per_set = np.random.default_rng(0), GROUPS * TARGETS
    every = len(TARGET_SETS) * per_set + 2 * SIDE * len(ATTRIBUTE_SETS) + ANCHORS * len(ANCHOR_SETS)
    base = per_set + 2 * SIDE + ANCHORS
    made: list[Embeddings] = []
    for _ in range(1 + AUDITED):
        arrays = []
        for i, shape in enumerate(((poolings, every, dim), (layers + 1, base, dim))):
            rows = np.empty(shape, np.float32)
            for block in rows:  # a block at a time, so that nothing but the vectors is ever in memory
                rng.standard_normal(dtype=np.float32, out=block)
            if made:
                first = made[0].layers if i else made[0].last
                for block, before in zip(rows, first, strict=True):
                    block *= 0.2
                    block += before
            else:
                rows += 1
            arrays.append(rows)
        made.append(Embeddings(*arrays))
    return made


def wide_space(vectors: Any, anchors: int) -> Any:
    """Every target set and every attribute set of one pooling in one space, with one anchor set."""
    import numpy as np

    from refbias.types import Space

    rows = vectors.astype(np.float64)
    per_set, end = GROUPS * TARGETS, len(TARGET_SETS) * GROUPS * TARGETS
    targets = {
        (name, g): rows[k * per_set + g * TARGETS :][:TARGETS]
        for k, name in enumerate(TARGET_SETS)
        for g in range(GROUPS)
    }
    half = SIDE * len(ATTRIBUTE_SETS)
    positive, negative = rows[end : end + half], rows[end + half : end + 2 * half]
    return Space(targets, positive, negative, rows[end + 2 * half + anchors * ANCHORS :][:ANCHORS])


def base_space(vectors: Any) -> Any:
    import numpy as np

    from refbias.types import Space

    rows, end = vectors.astype(np.float64), GROUPS * TARGETS
    targets = {("base", g): rows[g * TARGETS :][:TARGETS] for g in range(GROUPS)}
    return Space(targets, rows[end : end + SIDE], rows[end + SIDE : end + 2 * SIDE], rows[end + 2 * SIDE :])


def tables(comparison: Any, audited: Any, sets: Sequence[str]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Target set, attribute set and the groups' shifts, for all sets of one comparison."""
    from refbias.metrics import Association

    if not isinstance(comparison.metric.object, Association):
        shifts = comparison.shifts(audited)
        for target_set in dict.fromkeys(name for name, _ in shifts):
            own = {str(g): shift for (name, g), shift in shifts.items() if name == target_set}
            for attribute_set in sets:  # a drift of the targets does not depend on them
                yield target_set, attribute_set, own
        return
    differences = {
        key: rows.mean(axis=0).reshape(2, len(sets), -1) for key, rows in comparison.differences(audited).items()
    }
    shifts_of = {key: (rows[0] - rows[1]).mean(axis=1).tolist() for key, rows in differences.items()}
    for target_set in dict.fromkeys(name for name, _ in shifts_of):
        for k, attribute_set in enumerate(sets):
            yield target_set, attribute_set, {str(g): v[k] for (name, g), v in shifts_of.items() if name == target_set}


def sentence_cells(models: Sequence[Embeddings]) -> Shifts:
    """6 x 6 x 4 x 3 x 4 cells at the last layer."""
    from refbias.comparison import Comparison

    found: Shifts = {}
    for p, pooling in enumerate(POOLINGS[: len(models[0].last)]):
        for a, anchors in enumerate(ANCHOR_SETS):
            # what needs no anchors is the same for all of them
            geometries = [g for g in GEOMETRIES if g in NEEDS_ANCHORS or not a]
            reference = wide_space(models[0].last[p], a)
            comparisons = {geometry: Comparison(reference, geometry) for geometry in geometries}
            for model in models[1:]:
                audited = wide_space(model.last[p], a)
                for geometry, comparison in comparisons.items():
                    for targets, attributes, shifts in tables(comparison, audited, ATTRIBUTE_SETS):
                        same = ANCHOR_SETS if geometry not in NEEDS_ANCHORS else (anchors,)
                        for name in same:
                            found.setdefault((attributes, targets, name, pooling, geometry), []).append(shifts)
    return found


def layer_cells(models: Sequence[Embeddings]) -> Shifts:
    """31 x 3 x 2 cells with one choice of sentences, and 3 x 2 more at the last layer."""
    from refbias.calibration import calibrate
    from refbias.comparison import Comparison
    from refbias.registry import registry

    found: Shifts = {}
    layers = len(models[0].layers)
    for layer in range(layers):
        geometries = GEOMETRIES if layer == layers - 1 else GEOMETRIES[:2]
        plain = [base_space(model.layers[layer]) for model in models]
        for name in CALIBRATIONS:
            calibration = registry().resolve("calibration", name).object
            spaces = [calibrate(space, calibration) for space in plain]
            for geometry in geometries:
                comparison = Comparison(spaces[0], geometry)
                for audited in spaces[1:]:
                    for _, _, shifts in tables(comparison, audited, ("base",)):
                        found.setdefault((layer, name, geometry), []).append(shifts)
    return found


def one_by_one(models: Sequence[Embeddings], cells: Sequence[Cell]) -> tuple[list[dict[str, float]], float]:
    """The same cells for the first checkpoint, each from its own spaces, as an audit does it; processor seconds."""
    from refbias.comparison import compare_spaces
    from refbias.types import Space

    found, begun = [], time.process_time()
    for attributes, targets, anchors, pooling, geometry in cells:
        pair = []
        for model in models[:2]:
            wide = wide_space(model.last[POOLINGS.index(pooling)], ANCHOR_SETS.index(anchors))
            side = slice(ATTRIBUTE_SETS.index(attributes) * SIDE, (ATTRIBUTE_SETS.index(attributes) + 1) * SIDE)
            own = {str(g): rows for (name, g), rows in wide.targets.items() if name == targets}
            pair.append(Space(own, wide.positive[side], wide.negative[side], wide.anchors))
        found.append(dict(compare_spaces(pair[0], pair[1], geometry)))
    return found, (time.process_time() - begun) / max(1, len(cells))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """What ``run`` returns, seconds of the clock and of the processors."""
    begun, spent = time.perf_counter(), time.process_time()
    return run(), time.perf_counter() - begun, time.process_time() - spent


def product_rate() -> float:
    """Floating-point operations a processor second of a float64 matrix product, best of four."""
    import numpy as np

    X = np.random.default_rng(0).normal(size=(1500, 1500))
    return 2 * 1500.0**3 / min(timed(lambda: X @ X)[2] for _ in range(4))


def products(layers: int, poolings: int, d: int) -> float:
    """Floating-point operations of the cells' associations and maps, as the plain formulas have them, each once.

    Relative representations of all sentences, distances between them, cosines, one rotation a checkpoint (25 d³ for
    the SVD, by convention); the fits of calibrations are not counted.
    """
    t, a, models = len(TARGET_SETS) * GROUPS * TARGETS, 2 * SIDE * len(ATTRIBUTE_SETS), 1 + AUDITED
    relative = 2 * (t + a) * d * ANCHORS + 2 * t * a * ANCHORS
    rotation = 2 * ANCHORS * d * d + 25 * d**3 + 2 * t * d * d + 2 * t * a * d
    sentences = poolings * (len(ANCHOR_SETS) * (models * relative + AUDITED * rotation) + models * 2 * t * a * d)
    t, a = GROUPS * TARGETS, 2 * SIDE
    one = 2 * (t + a) * d * ANCHORS + 2 * t * a * ANCHORS + 2 * t * a * d
    return float(sentences + models * (layers + 1) * len(CALIBRATIONS) * one)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--dim", type=int, default=576)
    options.add_argument("--layers", type=int, default=30, help="blocks of the model; one hidden state more")
    options.add_argument("--poolings", type=int, default=len(POOLINGS), choices=range(1, len(POOLINGS) + 1))
    options.add_argument("--checked", type=int, default=2, help="cells a geometry that are done one by one as well")
    chosen = options.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(chosen.threads)  # read when numpy is loaded, below

    import warnings

    import numpy as np

    warnings.simplefilter("ignore")
    models = embeddings(chosen.layers, chosen.dim, chosen.poolings)
    held = sum(model.nbytes for model in models)
    before = peak_bytes()
    print(
        f"d = {chosen.dim}, {chosen.threads} thread(s), numpy {np.__version__}; vectors of {len(models)} models "
        f"{held / 2**30:.2f} GiB"
    )
    rate = product_rate()
    seconds, found = [0.0, 0.0], []
    for what, part in (("of sentences", sentence_cells), ("of layers", layer_cells)):
        cells, *spent = timed(functools.partial(part, models))
        found.append(cells)
        seconds = [one + other for one, other in zip(seconds, spent, strict=True)]
        shown = f"{spent[0]:6.1f} s by the clock, {spent[1]:6.1f} s of the processors"
        print(f"{len(cells):,} cells {what:14s} {shown}", flush=True)
    by_sentences, peak = found[0], peak_bytes() - before
    total = sum(map(len, found))
    print(f"{total:,} cells in all         {seconds[0]:6.1f} s by the clock, {seconds[1]:6.1f} s of the processors")
    bare = products(chosen.layers, chosen.poolings, chosen.dim) / rate
    print(f"over the matrix products {seconds[1] / bare:6.2f} ({bare:.1f} s of the processors)")
    print(f"peak over the vectors    {peak / 2**30:6.2f} GiB")
    rng = np.random.default_rng(1)
    for geometry in GEOMETRIES:
        same = [cell for cell in by_sentences if cell[-1] == geometry]
        some = [same[i] for i in rng.choice(len(same), chosen.checked, replace=False)]
        alone, each = one_by_one(models, some)
        worst = max(
            (abs(one[g] - by_sentences[cell][0][g]) for one, cell in zip(alone, some, strict=True) for g in one),
            default=0.0,
        )
        print(f"  {geometry:10s} one by one {each:.3f} s a cell and checkpoint, figures differ by {worst:.0e} at most")


if __name__ == "__main__":
    main()
