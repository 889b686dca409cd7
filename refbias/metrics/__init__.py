"""Metrics: what scores a space, or the change between two."""

from refbias.metrics.association import Association, delta_b, seat
from refbias.metrics.drift import cka_drift

METRICS = {"delta_b": delta_b, "seat": seat, "cka_drift": cka_drift}

__all__ = ["METRICS", "Association", "cka_drift", "delta_b", "seat"]
