"""Metrics: what scores a space, or the change between two."""

from refbias.metrics.association import Association, delta_b, delta_b_contrast, delta_b_did, projection, seat
from refbias.metrics.drift import cka_drift

# name -> part, or (part, traits)
METRICS = {
    "delta_b": delta_b,
    "delta_b_contrast": delta_b_contrast,
    "delta_b_did": delta_b_did,
    "seat": seat,
    "cka_drift": cka_drift,
    "projection": (projection, {"geometries": ("adapter",)}),
}

__all__ = ["METRICS", "Association", "cka_drift", "delta_b", "delta_b_contrast", "delta_b_did", "projection", "seat"]
