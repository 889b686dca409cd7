"""External signals: bias scores measured on a model's output, or known because the change was planted."""

from refbias.benchmarks.base import Benchmark, CannotScore
from refbias.benchmarks.likelihood import likelihood
from refbias.benchmarks.planted import planted

BENCHMARKS = {"likelihood": likelihood, "planted": planted}

__all__ = ["BENCHMARKS", "Benchmark", "CannotScore", "likelihood", "planted"]
