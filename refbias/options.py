"""From the registry to typed Hydra options: a part's signature is its configuration.

Nothing here names a part: what the registry holds becomes ``group=option`` with ``group.parameter=value``, and the
values are checked against the annotations. Hydra and OmegaConf are imported when `store` is called.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, make_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from refbias.errors import RefbiasError
from refbias.registry import Part, Registry

# kind of part -> what the choice means; the order is that of the help
GROUPS: Mapping[str, str] = {
    "task": "what to do",
    "checkpoints": "series of audited models; `audited` beats it",
    "encoder": "how text becomes hidden states",
    "pooling": "token states to one vector",
    "targets": "sentences about the groups",
    "attributes": "positive and negative sentences",
    "anchors": "neutral sentences that fix the frame",
    "calibration": "fitted per model, before the geometry",
    "geometry": "makes two models comparable",
    "metric": "scores a space, or two; null follows the geometry",
    "benchmark": "external signal beside the shift",
    "generator": "how the model's answers are written, for benchmarks that need them",
    "judge": "how answers are read; null follows the benchmark",
    "topics": "how prompts that name no group are told apart",
    "suite": "association tests of task=weat",
    "words": "how words become vectors",
    "corpus": "running text: words in context, and what a calibration is fitted on",
    "data": "what task=finetune teaches",
    "regime": "how task=finetune teaches",
    "tracking": "where the figures go",
    "summary": "what is made of all jobs of a sweep",
}

# setting -> meaning, for the help and for messages
SETTINGS: Mapping[str, str] = {
    "reference": "the trusted model: hub id, folder, or a registered name",
    "audited": "what is audited: one model or a list; null: `checkpoints` says",
    "groups": "target groups, a list; null: all",
    "control": "a harmless fine-tune to audit beside the suspect: a model, or auto; null: none",
    "calibrator": "a calibrator.json of task=validate: what the shifts mean as probabilities; null: none",
    "calibrator_anyway": "true uses a calibrator that was fitted at another setting, and says so",
    "sensitivity": "a sensitivity.json of task=sensitivity: what planted edits would have been found; null: none",
    "layer": "which hidden state: last, an integer, a list, or all",
    "seed": "seed of every random choice",
    "draws": "draws of the bootstrap",
    "strict": "true refuses every stand-in",
    "device": "cpu, cuda, …; null: by what is there",
    "dtype": "float32, bfloat16, …; null: by the device",
    "cache.dir": "folder of the cache; null: the user's cache folder",
    "cache.max_gib": "size at which least recently used entries go",
    "gate.max_below_zero": "fail (exit 3) where more groups than this are below zero beyond doubt",
    "gate.min_auc": "fail (exit 3) where the benchmark's AUC is below this",
}

EXAMPLES: Mapping[str, str] = {
    "refbias": "seven planted checkpoints of the embedded model",
    "refbias reference=DIR audited=DIR benchmark=none": "any two models",
    "refbias -m anchors=neutral,alpaca pooling=mean,max,last": "a sweep of six jobs",
    "refbias +experiment=delta_b/table7": "a table of the paper, published beside measured",
    "refbias list | doctor | cache | new-plugin": "what there is; what works here; helpers",
}

# folders of presets that set several parts at once: they belong to no part, and are chosen with an experiment
BUNDLES = ("models", "experiment")

# options that stand for "nothing" where no part is registered under the name
ABSENT = ("benchmark", "summary")

MISSING: Any = "???"


@dataclass
class CacheSettings:
    dir: str | None = None
    max_gib: float | None = None


@dataclass
class GateSettings:
    max_below_zero: int | None = None
    min_auc: float | None = None


@dataclass
class Settings:
    """Types of the settings that are no parts. Their values stand in conf/config.yaml."""

    reference: str = MISSING
    audited: Any = None  # a model or a list of models
    groups: list[str] | None = None
    control: str | None = None
    calibrator: str | None = None
    calibrator_anyway: bool = MISSING
    sensitivity: str | None = None
    layer: Any = MISSING  # an integer, a word or a list: checked after composing
    seed: int = MISSING
    draws: int = MISSING
    strict: bool = MISSING
    device: str | None = None
    dtype: str | None = None
    cache: CacheSettings = field(default_factory=CacheSettings)
    gate: GateSettings = field(default_factory=GateSettings)


def dataclass_of(part: Part) -> type:
    """The options of ``part`` as a dataclass that OmegaConf accepts; ``name`` holds the part's name."""
    fields: list[tuple[str, Any, Any]] = [("name", str, field(default=part.name))]
    for option in part.options.values():
        default = MISSING if option.required else option.default
        kind = _field_type(option.annotation, f"{part.kind}_{part.name}_{option.name}", optional=default is None)
        fields.append((option.name, kind, _default(default, kind)))
    made = make_dataclass(f"{part.kind}_{part.name}".replace("-", "_"), fields)
    made.__doc__ = part.summary
    return made


def _field_type(annotation: Any, name: str, optional: bool = False) -> Any:
    """The annotation of an option as OmegaConf takes it: a Literal becomes an Enum called ``name``."""
    arguments = typing.get_args(annotation)
    kind: Any = annotation
    if typing.get_origin(annotation) is typing.Literal:
        make: Any = Enum
        kind = make(name, {str(value): value for value in arguments})
    elif type(None) in arguments:
        rest = tuple(a for a in arguments if a is not type(None))
        kind, optional = _field_type(typing.Union[rest], name), True  # noqa: UP007
    elif typing.get_origin(annotation) is list:
        kind = list[_field_type(arguments[0], name)]  # type: ignore[misc]
    return typing.Optional[kind] if optional else kind  # noqa: UP045


def _default(value: Any, kind: Any) -> Any:
    enums = [k for k in (kind, *typing.get_args(kind)) if isinstance(k, type) and issubclass(k, Enum)]
    if enums and value is not None and value != MISSING:
        return field(default=enums[0](value))
    if isinstance(value, (list, tuple)):
        return field(default_factory=lambda: list(value))
    return field(default=value)


def store(registry: Registry) -> None:
    """Put every part into Hydra's ConfigStore, and the types of the settings."""
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    configs = ConfigStore.instance()
    groups = [(kind, Any, field(default=None)) for kind in GROUPS]  # replaced by the options that are chosen
    configs.store(name="settings", node=make_dataclass("Settings", groups, bases=(Settings,)), provider="refbias")
    for kind in GROUPS:
        for part in registry.parts(kind).values():
            try:
                node = OmegaConf.structured(dataclass_of(part))
            except (OmegaConfBaseException, ValueError) as error:
                first = str(error).partition("\n")[0]
                raise RefbiasError(
                    f"{kind} {part.name!r} of {part.distribution!r} has a default that does not fit "
                    f"its annotation: {first}."
                ) from error
            configs.store(group=kind, name=part.name, node=node, provider=part.distribution)
        if kind in ABSENT and "none" not in registry.parts(kind):
            configs.store(group=kind, name="none", node={"name": "none"}, provider="refbias")


def help_text(registry: Registry) -> tuple[str, str]:
    """The help of the program: what stands before the composed configuration, and what after it."""
    width = max(map(len, (*SETTINGS, *GROUPS)))
    lines = [
        "refbias measures how far a changed language model's hidden states moved against social groups,",
        "compared with a trusted reference.",
        "",
        *(f"  {example:55}  {meaning}" for example, meaning in EXAMPLES.items()),
        "",
        "`python -m refbias` is the same program.",
        "",
        "Parts (group=option; options of a part: group.parameter=value; `refbias list GROUP` shows them)",
    ]
    for kind, meaning in GROUPS.items():
        lines += [f"  {kind:{width}}  {meaning}", f"  {'':{width}}    {', '.join(names(registry, kind))}"]
    lines += ["", "Settings (key=value)", *(f"  {key:{width}}  {meaning}" for key, meaning in SETTINGS.items())]
    after = (
        "--cfg job prints the configuration, --info how it was composed, -m sweeps, --hydra-help all flags.\n"
        'Tab completion: eval "$(refbias -sc install=bash)", also zsh and fish.\n'
        "Exit status: 0 done, 1 failed, 2 wrong use, 3 a gate says no."
    )
    return "\n".join([*lines, "", "This configuration", ""]), after


def presets(folders: Iterable[Path], kind: str) -> list[str]:
    """Names of the preset files of one group in configuration folders, those in folders of it as FOLDER/NAME."""
    return sorted(
        {
            file.relative_to(folder / kind).with_suffix("").as_posix()
            for folder in folders
            for file in (folder / kind).rglob("*.yaml")
        }
    )


def names(registry: Registry, kind: str, more_folders: Iterable[Path] = ()) -> list[str]:
    """Every option of a group: its parts and its presets."""
    absent = ["none"] if kind in ABSENT and "none" not in registry.parts(kind) else []
    return [*registry.parts(kind), *absent, *presets([*config_folders(registry), *more_folders], kind)]


def own_folder() -> Path:
    """conf/ as installed (the package refbias.conf), or beside the package in a checkout."""
    from importlib.util import find_spec

    spec = find_spec("refbias.conf")
    for location in (spec.submodule_search_locations or []) if spec else []:
        if (Path(location) / "config.yaml").is_file():
            return Path(location).resolve()
    beside = Path(__file__).resolve().parent.parent / "conf"
    if (beside / "config.yaml").is_file():
        return beside
    raise RefbiasError(
        f"The presets of refbias are missing: neither the package refbias.conf nor {beside} holds config.yaml. "
        f"Install refbias again."
    )


def plugin_folders(registry: Registry) -> list[Path]:
    """Folders with presets that plug-ins ship."""
    return [Path(p) for answer in registry.manager.hook.refbias_config_paths() for p in answer or []]


def config_folders(registry: Registry) -> list[Path]:
    return [own_folder(), *plugin_folders(registry)]


def kinds_of_settings() -> list[str]:
    """Every word that may stand left of the first dot or equals sign."""
    return [*GROUPS, *dict.fromkeys(key.partition(".")[0] for key in SETTINGS)]


def plain(value: Any) -> Any:
    """A composed configuration as dicts, lists and plain values: enums by value, paths as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value
