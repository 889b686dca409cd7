"""A saved sensitivity map, and what it lets an audit say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from refbias.errors import RefbiasError, UsageError
from refbias.layers import parse_layers
from refbias.sensitivity.judging import share_of

KIND, SCHEMA_VERSION = "refbias sensitivity map", "1"
KINDS = ("encoder", "calibration", "geometry", "metric")
WITHOUT_EFFECT = ("encoder.batch_tokens",)


@dataclass(frozen=True)
class SensitivityMap:
    """What task=sensitivity found on one model.

    ``model`` is its name, fingerprint, layers, dim and dtype; ``stimuli`` how many sentences there were, with their
    digests; ``options`` the options of every part by the words of the command line; ``settings`` has a row a setting,
    with how many held-out edits of each dose were found; ``recommended`` a row a geometry and role.
    """

    model: dict[str, Any]
    edit: dict[str, Any]
    doses: list[float]
    families: list[str]
    rate: float
    wanted_power: float
    stimuli: dict[str, Any]
    options: dict[str, Any]
    settings: list[dict[str, Any]]
    recommended: list[dict[str, Any]]
    conventions: dict[str, Any]

    def statement(
        self, setting: Mapping[str, Any], *, layer: int | None = None, fingerprint: str | None = None
    ) -> str | None:
        """What an audit at ``setting`` may say about what it would have found; None where the map does not cover it.

        Parameters
        ----------
        setting : choices by the words of the command line, as in the block ``settings`` of an audit's result.json;
            what is left out is the default
        layer : in place of ``setting["layer"]``, for an audit of several layers
        fingerprint : of the audit's reference model

        Notes
        -----
        `reason` says why there is none.
        """
        row = self._row(setting, layer, fingerprint)
        if isinstance(row, str):
            return None
        shares = [(dose, share_of(row[f"found_{dose:g}"], row["n_planted"])) for dose in self.doses]
        said = "; ".join(
            f"dose {dose:g}: {found['share']:.2f} [{found['ci_low']:.2f}, {found['ci_high']:.2f}]"
            for dose, found in shares
        )
        return (
            f"A planted edit of this size, in this model, would have been found with probability {said} (dose: of the "
            f"norm of the hidden state at the group's noun; {row['n_planted']} edits each, 95 % intervals). Other "
            f"kinds of change may be missed."
        )

    def reason(
        self, setting: Mapping[str, Any], *, layer: int | None = None, fingerprint: str | None = None
    ) -> str | None:
        """Why `statement` has nothing to say; None where it has."""
        row = self._row(setting, layer, fingerprint)
        return row if isinstance(row, str) else None

    def _row(self, setting: Mapping[str, Any], layer: int | None, fingerprint: str | None) -> dict[str, Any] | str:
        if fingerprint is not None and fingerprint != self.model["fingerprint"]:
            return f"the map is of {self.model['name']}, and the audit's reference is another model"
        if setting.get("corpus"):
            return "the map fits calibrations on the anchors, and the audit fits them on a corpus"
        wanted = setting.get("layer", "last") if layer is None else layer
        try:
            layers = parse_layers(wanted, self.model["layers"])
        except UsageError as error:
            return str(error)
        if len(layers) != 1:
            return f"layer={wanted} are several layers: ask for each"
        pooling, geometry = setting.get("pooling") or "mean", setting.get("geometry") or "relative"
        skip = setting.get("pooling.skip") or "none"
        if pooling == "last" and skip == "sink":
            skip = "none"  # the last token is never the first one
        metric = setting.get("metric") or self.options.get(f"{geometry}.metric")
        calibration = setting.get("calibration") or "none"
        cell = {"layer": layers[0], "pooling": pooling, "skip": skip, "calibration": calibration, "geometry": geometry,
                "metric": metric}  # fmt: skip
        row = next((row for row in self.settings if all(row[key] == value for key, value in cell.items())), None)
        if row is None:
            return f"the map has no {' '.join(f'{key}={value}' for key, value in cell.items())}"
        names = {"calibration": calibration, "geometry": geometry, "metric": metric, "encoder": None}
        for key, value in setting.items():
            kind, _, option = key.partition(".")
            if not option or kind not in KINDS or key in WITHOUT_EFFECT:
                continue
            known = self.options.get(f"{kind}.{option}" if kind == "encoder" else f"{kind}={names[kind]}.{option}")
            if known != value:
                return f"the map was made with {key}={known}, the audit with {value}"
        if row["reason"]:
            return str(row["reason"])
        return row

    def to_json(self) -> str:
        return json.dumps({"kind": KIND, "schema_version": SCHEMA_VERSION, **asdict(self)}, indent=1) + "\n"


def load(file: str | Path) -> SensitivityMap:
    """Read the sensitivity.json that task=sensitivity left; RefbiasError where it is anything else."""
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RefbiasError(f"{file} is no readable sensitivity map: {error}.") from error
    if not isinstance(data, dict) or data.get("kind") != KIND or data.get("schema_version") != SCHEMA_VERSION:
        raise RefbiasError(
            f"{file} is no sensitivity map of this refbias. task=sensitivity writes one: sensitivity.json."
        )
    fields = SensitivityMap.__dataclass_fields__
    if not all(name in data for name in fields) or not _whole(data["settings"], data["doses"]):
        raise RefbiasError(f"{file} is a damaged sensitivity map: write it again with task=sensitivity.")
    return SensitivityMap(**{name: data[name] for name in fields})


def _whole(rows: Any, doses: Sequence[float]) -> bool:
    keys = {"layer", "pooling", "skip", "calibration", "geometry", "metric", "n_planted", "reason"}
    keys |= {f"found_{dose:g}" for dose in doses}
    return isinstance(rows, list) and all(isinstance(row, dict) and keys <= row.keys() for row in rows)
