"""Permutations a second of the association test on the sizes of WEAT 1-10.

    python benchmarks/weat.py [--permutations 100000] [--wefe-python PYTHON]

Scores are random numbers: the time does not depend on them. Prints seconds, the median of three, for each suite by
each method, and for all ten together. With --wefe-python, the Python of an environment with WEFE, it also times WEFE's
permutation test on the same sizes in the same run and prints the ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from refbias.association_tests.permutation import partition_test
from refbias.suites import SUITES

WEFE_WORDS, WEFE_PERMUTATIONS = 25, 300

# Runs in WEFE's environment, which has another numpy: random vectors for the words of W2, WEFE's own timing loop.
WEFE = """
import json, sys, time
import numpy as np
from gensim.models import KeyedVectors
from wefe.metrics import WEAT
from wefe.query import Query
from wefe.word_embedding_model import WordEmbeddingModel
size, permutations = int(sys.argv[1]), int(sys.argv[2])
sets = [[f"{name}{i}" for i in range(size)] for name in "xyab"]
words = [word for words in sets for word in words]
vectors = KeyedVectors(300)
vectors.add_vectors(words, np.random.default_rng(0).normal(size=(len(words), 300)).astype(np.float32))
model, query = WordEmbeddingModel(vectors, "random"), Query(sets[:2], sets[2:])
start = time.perf_counter()
WEAT().run_query(query, model)
plain = time.perf_counter() - start
start = time.perf_counter()
WEAT().run_query(query, model, calculate_p_value=True, p_value_iterations=permutations)
print(json.dumps(time.perf_counter() - start - plain))
"""


def seconds(run: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--permutations", type=int, default=100_000)
    options.add_argument("--wefe-python", type=Path, help="Python of an environment with WEFE 1.0.1")
    chosen = options.parse_args()
    rng = np.random.default_rng(0)
    print(f"numpy {np.__version__}, one thread; {chosen.permutations:,} permutations")
    print(f"{'suite':6s} {'words':>8s} {'sampled s':>10s} {'auto s':>8s}  method")
    sampled_total = auto_total = 0.0
    for test in SUITES["caliskan2017"]():
        n, m = len(test.X), len(test.Y)
        scores = rng.normal(size=n + m) * 0.1 + np.repeat([0.05, 0.0], [n, m])
        sampled = seconds(
            lambda s=scores, n=n: partition_test(s, n, permutations=chosen.permutations, method="sampled"), 3
        )
        found = partition_test(scores, n)
        auto = seconds(lambda s=scores, n=n: partition_test(s, n), 1 if n + m > 48 else 3)
        sampled_total, auto_total = sampled_total + sampled, auto_total + auto
        print(f"{test.id:6s} {f'{n}+{m}':>8s} {sampled:10.3f} {auto:8.3f}  {found.method}")
    print(f"{'all':6s} {'':8s} {sampled_total:10.3f} {auto_total:8.3f}")
    if chosen.wefe_python:
        command = [str(chosen.wefe_python), "-c", WEFE, str(WEFE_WORDS), str(WEFE_PERMUTATIONS)]
        theirs = WEFE_PERMUTATIONS / float(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        scores = rng.normal(size=2 * WEFE_WORDS)
        taken = seconds(
            lambda: partition_test(scores, WEFE_WORDS, permutations=chosen.permutations, method="sampled"), 3
        )
        ours = chosen.permutations / taken
        print(
            f"{WEFE_WORDS}+{WEFE_WORDS} words, permutations a second: refbias {ours:,.0f}, WEFE {theirs:,.1f}, ", end=""
        )
        print(f"ratio {ours / theirs:,.0f}")


if __name__ == "__main__":
    main()
