"""Time of the statistics over groups: 10,000 bootstraps and permutations of r and AUC on 7 x 24 observations.

    python benchmarks/resampling.py [--draws 10000] [--runs 1] [--alternatives 1920]

Prints seconds, the median of three, one thread. (Not called statistics.py: a script of that name would hide Python's
own module from the other benchmarks.)
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable


def seconds(run: Callable[[], object], repeats: int = 3) -> float:
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return sorted(taken)[repeats // 2]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--draws", type=int, default=10_000)
    options.add_argument("--runs", type=int, default=1, help="independent fine-tune pairs of seven checkpoints")
    options.add_argument("--alternatives", type=int, default=1920)
    chosen = options.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # read when numpy is loaded, below

    import numpy as np

    from refbias import statistics

    rng, blocks, draws = np.random.default_rng(0), 7 * chosen.runs, chosen.draws
    x, y = rng.normal(size=(2, blocks * 24))
    checkpoints, groups = np.repeat(np.arange(blocks), 24), np.tile(np.arange(24), blocks)
    labels = y > 0.1
    grid = {str(i): rng.normal(size=len(x)) for i in range(chosen.alternatives)}
    steps: dict[str, Callable[[], object]] = {
        "bootstrap over groups: r and AUC, pooled and within": lambda: statistics.group_bootstrap(
            x, y, labels, checkpoints, groups, draws=draws
        ),
        "common permutation of groups: r": lambda: statistics.common_group_permutation(
            x, y, checkpoints, groups, draws=draws
        ),
        "common permutation of groups: AUC, pooled and within": lambda: statistics.auc_permutation(
            x, labels, checkpoints, groups, draws=draws
        ),
        "difference of two AUCs": lambda: statistics.auc_difference(x, -x + y, labels, groups, draws=draws),
        "fit with its band": lambda: statistics.fit_band(x, y, groups, draws=draws),
        f"maximum over {chosen.alternatives:,} alternatives": lambda: statistics.max_statistic(
            grid, y, labels, checkpoints, groups, draws=draws
        ),
    }
    print(f"{len(x)} observations, {draws:,} draws, one thread, numpy {np.__version__}")
    for name, step in steps.items():
        step()  # scipy is imported by the first call
        print(f"{name:56s} {seconds(step, 1 if 'maximum' in name else 3):8.3f} s")


if __name__ == "__main__":
    main()
