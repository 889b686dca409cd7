"""What a sensitivity map covers, and what it covers where nothing else is said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from refbias.comparison import choose
from refbias.errors import UsageError, unknown
from refbias.layers import parse_layers
from refbias.models import Model
from refbias.pooling import POOLINGS, Pooling, built_in
from refbias.sensitivity.grid import Way
from refbias.sensitivity.plants import FAMILIES, ONE_WAY

DOSES, PLANTED = [0.05, 0.1, 0.2], list(FAMILIES)
POOLED, SKIPPED = ["mean", "max", "last"], ["none", "sink"]
CALIBRATIONS, GEOMETRIES = ["none", "center"], ["relative", "absolute", "procrustes", "cka"]
SKIPS = ("none", "special", "sink")
# options that are lists of names, and those that are no parts with what they may hold
_KNOWN: dict[str, Any] = {
    "families": FAMILIES,
    "poolings": POOLINGS,
    "skips": SKIPS,
    "calibrations": None,
    "geometries": None,
}


@dataclass(frozen=True)
class Design:
    """The options of task=sensitivity.

    Attributes
    ----------
    doses : sizes of the edits, in units of the median norm of the hidden state at the groups' nouns
    seeds, random : edits a family and dose; random directions of the same norm a null and dose. Half of each chooses,
        the other half is reported
    families : of `refbias.sensitivity.plants.FAMILIES`
    block : the edited block; None is at 0.4 of the depth
    layers : None is every layer above the edit
    poolings, skips, calibrations, geometries : the settings of the map; a geometry takes its own metric. One setting
        is recommended for each geometry, and the first of them is the one that is drawn
    targets, attributes, anchors : sentences a group, a side, in all, that are drawn from the stimuli
    rate, power : wanted share of false alarms, and of edits that are found
    """

    doses: Sequence[float] = tuple(DOSES)
    seeds: int = 6
    random: int = 20
    families: Sequence[str] = tuple(PLANTED)
    block: int | None = None
    layers: Sequence[int] | None = None
    poolings: Sequence[str] = tuple(POOLED)
    skips: Sequence[str] = tuple(SKIPPED)
    calibrations: Sequence[str] = tuple(CALIBRATIONS)
    geometries: Sequence[str] = tuple(GEOMETRIES)
    targets: int = 4
    attributes: int = 16
    anchors: int = 48
    rate: float = 0.05
    power: float = 0.8

    def __post_init__(self) -> None:
        doses = self.doses
        if not doses or len(set(doses)) < len(doses) or not all(0 < dose < math.inf for dose in doses):
            raise UsageError(f"task.doses={list(doses)}: expected different numbers above 0, such as {DOSES}.")
        object.__setattr__(self, "doses", tuple(sorted(float(dose) for dose in doses)))
        for name, most in (("rate", 0.5), ("power", 1.0)):
            if not 0 < getattr(self, name) < most:
                raise UsageError(f"task.{name}={getattr(self, name)}: expected a share between 0 and {most:g}.")
        for name in ("targets", "attributes", "anchors"):
            if getattr(self, name) < 2:
                raise UsageError(f"task.{name}={getattr(self, name)}: expected 2 sentences or more.")
        for name, known in _KNOWN.items():
            chosen = tuple(dict.fromkeys(getattr(self, name)))
            if not chosen:
                raise UsageError(f"task.{name}=[] leaves nothing to measure. Name at least one.")
            for one in chosen:
                if known is not None and one not in known:
                    raise unknown(f"value of task.{name}", one, known)
            object.__setattr__(self, name, chosen)
        if self.seeds < 2:
            raise UsageError(f"task.seeds={self.seeds}: one half of the seeds chooses, the other is reported.")
        self._check_random()
        if "cka" in self.geometries and self.targets < 4:
            raise UsageError(f"task.targets={self.targets}: geometry=cka needs 4 or more. Use more, or leave cka out.")

    def _check_random(self) -> None:
        # an AUC counts with its mirror image, see Scores.thresholds
        both_ways = 1 if any(family in ONE_WAY for family in self.families) else 2
        least, doses = math.ceil(1 / (both_ways * self.rate) - 1 - 1e-9), len(self.doses)
        if doses * (self.random // 2) < least:
            raise UsageError(
                f"task.random={self.random}: half of the random directions, at {doses} doses, are too few for a "
                f"false-alarm rate of {self.rate:g}. Use task.random={2 * math.ceil(least / doses)} or more, or a "
                "higher task.rate."
            )

    def settings(self) -> dict[str, Any]:
        """The options by the words of the command line."""
        return {f"task.{name}": value for name, value in asdict(self).items()}

    def ways(self, seed: int = 0) -> list[Way]:
        """Every calibration with every geometry of one space; a geometry of two, which is slow, with the first only."""
        made = []
        for geometry in self.geometries:
            for number, name in enumerate(self.calibrations):
                chosen, metric, calibration = choose(geometry, None, name, seed)
                way = Way(calibration, chosen, metric)
                way.check()
                if way.of_one or number == 0:
                    made.append(way)
        return made

    def block_of(self, model: Model) -> int:
        """The edited block."""
        block = round(0.4 * model.layers) if self.block is None else self.block
        if not 0 <= block < model.layers:
            raise UsageError(f"task.block={block}: {model.name} has blocks 0 to {model.layers - 1}.")
        return block

    def sites(self, model: Model) -> list[tuple[int, Pooling]]:
        """Layers × poolings × skips. The last token is never the first one, so that ``last`` needs no skip=sink."""
        block, last = self.block_of(model), model.layers
        layers = list(range(block + 1, last + 1)) if self.layers is None else sorted(parse_layers(self.layers, last))
        if layers[0] <= block:
            raise UsageError(
                f"task.layers holds {layers[0]}: an edit of block {block} shows in layers {block + 1} to {last}."
            )
        skips: list[Any] = list(self.skips)
        kept = [(name, skip) for name in self.poolings for skip in skips]
        if "none" in self.skips:
            kept = [pair for pair in kept if pair != ("last", "sink")]
        return [(layer, built_in(name, skip)) for layer in layers for name, skip in kept]
