"""Time of everything after the encoder: one checkpoint against a reference that is ready, at a paper-sized cell.

    python benchmarks/score.py [--dim 4096] [--threads 1]

24 groups x 50 targets, 100 + 100 attributes, 1,000 anchors of random numbers. Prints seconds, the median of five, and
their ratio to the time of one float64 matrix product of the cell's own size (1,400 x d by d x 1,000), which is the
part of the work that no arrangement avoids.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable


def median_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[repeats // 2]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dim", type=int, default=4096)
    options.add_argument("--threads", type=int, default=1)
    chosen = options.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(chosen.threads)  # read when numpy is loaded, below

    import warnings

    import numpy as np

    from refbias.comparison import Comparison
    from refbias.statistics import CrossedBootstrap
    from refbias.types import Space

    warnings.simplefilter("ignore")
    d, rng = chosen.dim, np.random.default_rng(0)

    def space() -> Space:
        def rows(n: int) -> np.ndarray:
            return rng.normal(size=(n, d)) + 1

        return Space({f"group {i}": rows(50) for i in range(24)}, rows(100), rows(100), rows(1000))

    reference, audited = space(), space()
    X, Y = rng.normal(size=(1400, d)), rng.normal(size=(d, 1000))
    product = median_seconds(lambda: X @ Y)
    print(f"d = {d}, {chosen.threads} thread(s), numpy {np.__version__}")
    print(f"{'matrix product 1,400 x d x 1,000, float64':52s} {product:8.3f} s   1.00")
    settings = {
        "relative, delta_b": ("relative", None, "none"),
        "relative, delta_b, centred": ("relative", None, "center"),
        "absolute, seat": ("absolute", None, "none"),
        "cka, cka_drift (24 groups)": ("cka", None, "none"),
        "procrustes, seat": ("procrustes", None, "none"),
        "relative, delta_b, zca": ("relative", None, "zca"),
    }
    for name, choice in settings.items():
        slow = name.startswith("procrustes") or "zca" in name
        if slow and d > 1024:
            continue
        comparison = Comparison(reference, *choice)
        seconds = median_seconds(lambda made=comparison: made.shifts(audited), 3 if slow else 5)
        print(f"{name:52s} {seconds:8.3f} s {seconds / product:6.2f}")
    bootstrap = CrossedBootstrap(100, 100, 10_000)
    comparison = Comparison(reference)
    plain = median_seconds(lambda: comparison.shifts(audited), 3)
    both = median_seconds(lambda: comparison.estimates(audited, bootstrap), 3)
    print(f"{'10,000 bootstrap draws of 24 groups':52s} {both - plain:8.3f} s")


if __name__ == "__main__":
    main()
