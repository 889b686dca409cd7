"""What the jobs of one sweep share: a file in the sweep folder, written once by the process that launches them."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from refbias.errors import RefbiasError
from refbias.options import plain
from refbias.overrides import values
from refbias.resume import set_aside
from refbias.tasks.run import tracker_of
from refbias.tracking import Tracker

FILE = "sweep.json"
ENVIRONMENT = "REFBIAS_SWEEP"


@dataclass(frozen=True)
class Sweep:
    """``parent`` is the id of the tracker's parent run.

    ``varied`` holds the keys that differ between the jobs, ``layers`` every layer that the sweep visits.
    """

    id: str
    parent: str | None
    varied: list[str]
    layers: list[Any]

    def name(self, overrides: Iterable[str]) -> list[str]:
        """Of a job's overrides those that tell it from the other jobs; all where there are none."""
        every = list(overrides)
        return [o for o in every if o.partition("=")[0].lstrip("+") in self.varied] or every

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Sweep | None:
        file = folder / FILE
        return cls(**json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None


@dataclass
class Launched:
    """The sweep that this process has launched, for the end of it."""

    folder: Path
    tracker: Tracker
    settings: Mapping[str, Any] = field(default_factory=dict)
    trouble: str | None = None


# Hydra makes the callback itself and swallows what it raises: this is where it leaves what it has done
launched: list[Launched] = []


class SweepCallback(Callback):
    """Before the first job of a sweep: experiment, schema and parent run, once and in one process."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        set_aside(folder)
        overrides = [str(o) for o in config.hydra.overrides.task]
        identity = os.environ[ENVIRONMENT] = uuid.uuid4().hex
        own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        settings = plain(OmegaConf.to_container(own, resolve=True))
        state = Launched(folder, tracker_of(settings), settings)
        launched.append(state)
        parent = None
        try:
            parent = state.tracker.start(
                f"sweep {' '.join(overrides)}"[:200], {"overrides": overrides, "folder": str(folder.resolve())}
            )
        except RefbiasError as error:
            state.trouble = str(error)
        varied = swept([*overrides, *_of_sweeper(config)])
        layers = [k for value in varied.get("layer", []) for k in (value if isinstance(value, list) else [value])]
        Sweep(identity, parent, list(varied), list(dict.fromkeys(layers))).write(folder)


def _of_sweeper(config: DictConfig) -> list[str]:
    params = OmegaConf.select(config, "hydra.sweeper.params") or {}
    return [f"{key}={value}" for key, value in params.items()]


def swept(overrides: Iterable[str]) -> dict[str, list[Any]]:
    """What a sweep varies: key -> values.

    >>> swept(["seed=1", "layer=last,15,-3"])
    {'layer': ['last', 15, -3]}
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return {o.key_or_group: values(o) for o in parsed if o.is_sweep_override()}
