"""Settings as the plain-Python functions of one model take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refbias.tasks.run import Run

VALUES = ("layer", "device", "dtype", "strict", "seed")


def choices(run: Run, kinds: Sequence[str], values: Sequence[str] = VALUES) -> dict[str, Any]:
    """The parts of ``kinds`` that are chosen, and the settings ``values``, by the names of the functions."""
    chosen: dict[str, Any] = {kind: part for kind in kinds if (part := run.part(kind)) is not None}
    return chosen | {key: run.settings[key] for key in values}


def check_calibration(run: Run) -> None:
    """Build the calibration once: a saved one that cannot be read is refused before a model is loaded."""
    from refbias.registry import registry

    registry().resolve("calibration", run.part("calibration") or "none", run.settings["seed"])
