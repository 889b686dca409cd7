"""The sensitivity map of one model as a plain function: edits are planted, and it is counted which are found.

model -> planted edits, random directions -> shifts at every setting -> thresholds and power -> a setting to recommend
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from refbias.cache import Cache, open_cache
from refbias.context import Context
from refbias.devices import resolve_device, resolve_dtype
from refbias.encoders import Encoder
from refbias.models import Model, find_model
from refbias.pipeline import load_stimuli
from refbias.provenance import digest, provenance
from refbias.registry import Choice, registry
from refbias.result import Tables, plain, task_data
from refbias.sensitivity.design import Design
from refbias.sensitivity.grid import Setting, Way
from refbias.sensitivity.measuring import Measuring, reduced
from refbias.sensitivity.plants import garden, plan
from refbias.sensitivity.saved import SensitivityMap
from refbias.sensitivity.tables import judged
from refbias.standins import collecting
from refbias.subject import Cost
from refbias.types import Stimuli
from refbias.watch import Quiet, Watch

TABLES = ("sensitivity", "recommended", "power", "scores")


def sensitivity(
    model: Any,
    design: Design | None = None,
    *,
    encoder: Any = "auto",
    targets: Any = "base",
    attributes: Any = "base",
    anchors: Any = "neutral",
    groups: Sequence[str] | None = None,
    device: str | None = None,
    dtype: str | None = None,
    cache: bool | str | Path | Cache = True,
    strict: bool = False,
    seed: int = 0,
    watch: Watch | None = None,
    command: str | None = None,
) -> tuple[Tables, SensitivityMap]:
    """Which settings find edits that were planted in ``model``, how large they must be, and how often chance alarms.

    Parameters
    ----------
    model : a causal language model whose MLPs add to the hidden state: a registered name, a path, a hub id
    design : which edits and which settings
    encoder, targets, attributes, anchors, groups, device, dtype, cache, strict, seed, watch, command :
        as in `refbias.audit`

    Returns
    -------
    Tables: ``sensitivity`` (a row a setting), ``recommended`` (a row a geometry), ``power`` and ``scores`` of those;
    and the map that an audit can use

    Raises
    ------
    UsageError for a model that cannot be edited, and for layers and groups that it does not have
    """
    design, watch = design or Design(), watch or Quiet()
    ways = design.ways(seed)
    with collecting(strict) as notes:
        made = registry().resolve("encoder", encoder, seed)
        every = load_stimuli(targets, attributes, anchors, groups=groups, strict=strict, seed=seed)
    stimuli = reduced(every, design.targets, design.attributes, design.anchors, seed)
    where = resolve_device(device)
    context = Context(open_cache(cache), where, resolve_dtype(dtype, where), seed, watch)
    reference = find_model(model, cache=context.cache, watch=watch)
    sites = design.sites(reference)
    grown = garden(reference, stimuli.groups, context, design.block_of(reference))
    plants = plan(design.families, design.doses, design.seeds, design.random)

    def opened(one: Model) -> Encoder:
        opened: Encoder = made.object(one, context)
        return opened

    cost = Cost()
    shifts = Measuring(grown, opened, stimuli, sites, ways, context).shifts(plants, cost)
    settings = [
        Setting(layer, pooling.name, pooling.skip, way.calibration.name, way.geometry.name, way.metric.name)
        for layer, pooling in sites
        for way in ways
    ]
    signs = np.array([[grown.signs(plant)[group] for group in stimuli.groups] for plant in plants])
    with cost.scoring():
        flat = shifts.reshape(len(plants), len(settings), -1)
        directed = [way.directed for way in ways]
        blocks = judged(plants, signs, flat, settings, reference.layers, directed, design.rate, design.power)
    data = task_data(
        "sensitivity",
        {
            "reference": reference.name, "encoder": made.name,
            **{f"encoder.{name}": value for name, value in made.params.items()},
            **design.settings(), "groups": groups, "strict": strict,
        },
        seed,
        reference=_about(reference, context),
        edit={"block": grown.block, "weight": grown.basis.weight, "median_norm": grown.basis.rho},
        about={
            "layers": sorted({layer for layer, _ in sites}), "settings": len(settings), "models": len(plants),
            "sentences": _counts(stimuli), "doses": design.doses, "rate": design.rate, "wanted_power": design.power,
            "geometries": design.geometries,
        },
        **blocks,
        figures=_figures(blocks["recommended"], design.geometries[0]),
        conventions={**CONVENTIONS, **dict(opened(reference).conventions)},
        stand_ins=notes.rows(),
        timings=cost.timings(),
        provenance=provenance(_digests(stimuli), command),
    )  # fmt: skip
    return Tables(data, TABLES, _pictures), _saved(data, design, _options(made, ways))


def _about(model: Model, context: Context) -> dict[str, Any]:
    return {
        "name": model.name, "fingerprint": model.fingerprint, "layers": model.layers, "dim": model.dim,
        "dtype": context.dtype, "device": context.device,
    }  # fmt: skip


def _saved(data: Mapping[str, Any], design: Design, options: dict[str, Any]) -> SensitivityMap:
    return SensitivityMap(
        model=data["reference"],
        edit=data["edit"],
        doses=list(design.doses),
        families=list(design.families),
        rate=design.rate,
        wanted_power=design.power,
        stimuli={**data["about"]["sentences"], **data["provenance"]["data_digests"]},
        options=plain(options),
        settings=data["sensitivity"],
        recommended=data["recommended"],
        conventions=data["conventions"],
    )


CONVENTIONS = {
    "dose": "of the median norm of the hidden state at the groups' nouns, in the edited block's output",
    "score": "AUC of -shift for the half of the groups that was moved towards the negative; all_one_way: mean of "
    "-shift over groups, per unit of dose; a metric without a direction counts with +",
    "threshold": "score that random directions of the same norms exceed at the wanted rate: conformal, all doses "
    "together, from the half of the random directions that chooses; AUCs with their mirror images 1 - AUC, for which "
    "way along a random direction counts as found is arbitrary",
    "smallest_dose": "the smallest from which on every dose has the wanted power",
    "halves": "the first half of seeds and random directions chooses (thresholds, recommended setting), the second is "
    "reported",
    "interval": "Wilson, 95 %; the unit is the edited model",
    "recommended": "highest mean power over doses and families in the half that chooses; ties: fewest departures from "
    "the last layer, pooling mean, skip none, calibration none, then the layer nearest the last",
    "own": "half valence, half a random direction of the group's own, in equal parts of a unit value",
    "geometries": "not ranked against each other: the plant is nearly the direction that SEAT projects on",
    "last": "pooling=last reads the same token with skip=none and skip=sink: it stands once, as none",
}


def _figures(recommended: Sequence[Mapping[str, Any]], geometry: str) -> dict[str, Any]:
    """What a tracker keeps: of the first geometry."""
    found: dict[str, Any] = {}
    for row in recommended:
        if row["geometry"] == geometry:
            for name in ("power", "false_alarm_rate", "smallest_dose"):
                found[f"{row['role']}/{name}"] = row[name]
    return found


def _options(encoder: Choice, ways: Sequence[Way]) -> dict[str, Any]:
    """Options of every part, by the words of the command line with the part's name: "calibration=abtt.k"."""
    found = {f"encoder.{name}": value for name, value in encoder.params.items()}
    for way in ways:
        found[f"{way.geometry.name}.metric"] = way.metric.name
        for part in vars(way).values():
            found.update({f"{part.kind}={part.name}.{name}": value for name, value in part.params.items()})
    return found


def _counts(stimuli: Stimuli) -> dict[str, int]:
    return {
        "groups": len(stimuli.groups),
        "targets": sum(map(len, stimuli.targets.values())),
        "attributes": len(stimuli.positive) + len(stimuli.negative),
        "anchors": len(stimuli.anchors),
    }


def _digests(stimuli: Stimuli) -> dict[str, str]:
    return {
        "targets": digest(f"{group}\t{s}" for group, sentences in stimuli.targets.items() for s in sentences),
        "attributes": digest([*(f"+\t{s}" for s in stimuli.positive), *(f"-\t{s}" for s in stimuli.negative)]),
        "anchors": digest(stimuli.anchors),
    }


def _pictures(data: Mapping[str, Any]) -> Mapping[str, Any]:
    from refbias.report.sensitivity_figures import sensitivity_figures

    return sensitivity_figures(data)
