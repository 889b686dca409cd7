"""External signals: bias scores measured on a model's output, or known because the change was planted."""

from refbias.benchmarks.base import Benchmark, CannotScore
from refbias.benchmarks.crows_pairs import crows_pairs
from refbias.benchmarks.decodingtrust import decodingtrust
from refbias.benchmarks.harness import lm_eval
from refbias.benchmarks.likelihood import likelihood
from refbias.benchmarks.planted import planted
from refbias.benchmarks.stereoset import stereoset
from refbias.benchmarks.toxigen import toxigen
from refbias.benchmarks.wildguardmix import wildguardmix
from refbias.benchmarks.winobias import winobias

BENCHMARKS = {"likelihood": likelihood, "planted": planted}
BENCHMARKS |= {"crows_pairs": crows_pairs, "stereoset": stereoset, "winobias": winobias, "lm_eval": lm_eval}
BENCHMARKS |= {"decodingtrust": decodingtrust, "toxigen": toxigen, "wildguardmix": wildguardmix}  # need answers

__all__ = ["BENCHMARKS", "Benchmark", "CannotScore", "likelihood", "planted"]
