"""Fitting a whitening in one pass over blocks, against the bare product X.T @ X of the same vectors.

    python benchmarks/zca.py [--rows 100000] [--dim 768] [--block 8192] [--threads 1] [--repeats 3]

The fit converts blocks to float64 and accumulates their scatter with BLAS dsyrk; numpy's X.T @ X is a syrk too. The
product and the fit take turns; medians are printed. Memory is the peak of what Python and numpy allocate during the
fit, LAPACK's work arrays included, beside the vectors themselves.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from refbias.calibration import ZCA
from refbias.moments import ROWS, Moments


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def peak(run: Callable[[], object]) -> int:
    """Bytes that were allocated at most while ``run`` ran."""
    tracemalloc.start()
    run()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--dim", type=int, default=768)
    options.add_argument("--block", type=int, default=8192, help="rows in one block of the stream")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--repeats", type=int, default=3)
    chosen = options.parse_args()
    n, d = chosen.rows, chosen.dim
    single = np.random.default_rng(0).normal(3.0, 1.0, size=(n, d)).astype(np.float32)
    double = single.astype(np.float64)

    def blocks(X: NDArray[np.floating]) -> Iterator[NDArray[np.floating]]:
        for start in range(0, n, chosen.block):
            yield X[start : start + chosen.block]

    def add(X: NDArray[np.floating]) -> None:
        moments = Moments()
        for block in blocks(X):
            moments.add(block)

    runs: dict[str, Callable[[], object]] = {
        "X.T @ X in float64": lambda: double.T @ double,
        "fit on float64 blocks": lambda: ZCA().fit_blocks(blocks(double)),
        "fit on float32 blocks": lambda: ZCA().fit_blocks(blocks(single)),
        "  of which moments": lambda: add(single),
        "X.T @ X in float32": lambda: single.T @ single,
    }
    with threadpool_limits(chosen.threads):
        runs["fit on float64 blocks"]()
        taken = [{name: seconds(run) for name, run in runs.items()} for _ in range(chosen.repeats)]
        memory = peak(runs["fit on float32 blocks"])
    product = statistics.median(one["X.T @ X in float64"] for one in taken)
    print(f"{n:,} x {d}, blocks of {chosen.block:,} rows, {chosen.threads} thread(s), numpy {np.__version__}")
    print(f"{'':24s} {'seconds':>8s} {'ratio':>6s}")
    for name in runs:
        ratio = statistics.median(one[name] / one["X.T @ X in float64"] for one in taken)
        print(f"{name:24s} {statistics.median(one[name] for one in taken):8.3f} {ratio:6.2f}")
    allowed = 8 * (2 * d * d + ROWS * d)
    print(f"{2 * n * d * d / 2 / product / 1e9:.0f} GFLOP/s of the product (d² n multiplications and additions)")
    print(f"peak memory of a fit {memory / 2**20:.1f} MiB; 2 d² floats and {ROWS} rows are {allowed / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
