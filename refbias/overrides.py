"""What stands behind the program's name on the command line: flags in the right place, mistakes in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refbias.errors import UsageError, first_line, unknown
from refbias.options import BUNDLES, GROUPS, SETTINGS, config_folders, kinds_of_settings, names, own_folder, presets
from refbias.registry import Registry

# Hydra's flags that take a value, and the values of the one that may
_WITH_VALUE = {
    "--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd",
    "--experimental-rerun",
}  # fmt: skip
_INFO = {"all", "config", "defaults", "defaults-tree", "plugins", "searchpath"}


@dataclass(frozen=True)
class Words:
    """The command line in two: Hydra's flags with their values, and the overrides."""

    flags: list[str]
    overrides: list[str]

    @property
    def in_order(self) -> list[str]:
        return self.flags + self.overrides

    @property
    def folders(self) -> list[Path]:
        """The folders with presets that the user gives."""
        given = zip(self.flags, self.flags[1:], strict=False)
        return [Path(value) for flag, value in given if flag in ("--config-dir", "-cd")]


def split(arguments: Sequence[str]) -> Words:
    """Flags apart from overrides: Hydra understands flags only before the first override.

    >>> split(["seed=1", "-m", "anchors=neutral,alpaca", "--cfg", "job"]).in_order
    ['-m', '--cfg', 'job', 'seed=1', 'anchors=neutral,alpaca']
    """
    flags: list[str] = []
    overrides: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            overrides.append(word)
        elif word in ("--info", "-i"):
            flags.append(f"--info={rest.pop(0) if rest and rest[0] in _INFO else 'all'}")
        else:
            flags.append(word)
            if word in _WITH_VALUE and rest:
                flags.append(rest.pop(0))
    return Words(flags, overrides)


def explain(error: Exception, words: Words, registry: Registry, commands: Iterable[str]) -> UsageError:
    """The reason why Hydra refuses these overrides, found by looking at each; else Hydra's own words."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    parsed = []
    for word in words.overrides:
        if "=" not in word and not word.startswith("~"):
            return UsageError(f"{unknown('command', word, commands)} Settings are written key=value.")
        try:
            parsed.append(parser.parse_override(word))
        except HydraException:
            return UsageError(
                f"{word!r} is not understood. Expected key=value; a value that holds = ( ) {{ }} [ ] , : or quotes "
                f"needs quotes of its own, for instance 'reference=\"a=b\"'."
            )
    chosen = {o.key_or_group: values(o) for o in parsed if o.key_or_group in GROUPS and not o.is_delete()}
    experiment = any(o.key_or_group == "experiment" for o in parsed)
    for override in parsed:
        found = _mistake(override, chosen, registry, words.folders)
        if override.key_or_group in BUNDLES:
            found = _mistaken_bundle(override, experiment, registry, words.folders)
        if found is not None:
            return found
    text = str(error).partition("Config search path:")[0]
    cause = f": {first_line(error.__cause__)}" if error.__cause__ is not None else ""
    return UsageError(f"{' '.join(text.split())}{cause}")


def values(override: Any) -> list[Any]:
    """The value of an override, or each of those that it sweeps over."""
    from hydra.core.override_parser.types import Glob, QuotedString

    if not override.is_sweep_override():
        return [override.value()]
    if isinstance(override.value(), Glob):  # matches only what exists
        return []
    return [v.text if isinstance(v, QuotedString) else v for v in override.sweep_iterator()]


def _mistake(
    override: Any, chosen: Mapping[str, list[Any]], registry: Registry, folders: Sequence[Path]
) -> UsageError | None:
    key = override.key_or_group
    root, _, inner = key.partition(".")
    if root.partition("/")[0] == "hydra" or override.is_delete():
        return None
    if key in GROUPS:
        options = names(registry, key, folders)
        for value in values(override):
            if value is not None and str(value) not in options:
                return unknown(key, value, options)
        return None
    if key in BUNDLES:
        return None
    if override.is_add() and "." not in key:
        return None if key in kinds_of_settings() else _unknown_setting(key)
    if root in GROUPS:
        return _mistaken_option(root, inner, chosen, registry, folders)
    if root not in kinds_of_settings() or (inner and key not in SETTINGS):
        return _unknown_setting(key)
    return None


def _mistaken_bundle(override: Any, experiment: bool, registry: Registry, folders: Sequence[Path]) -> UsageError | None:
    key = override.key_or_group
    known = presets([*config_folders(registry), *folders], key)
    chosen = [name for value in values(override) for name in (value if isinstance(value, list) else [value])]
    for name in chosen:
        if str(name) not in known:
            return unknown(key, name, known)
    if override.is_add() or (experiment and key != "experiment"):
        return None
    example = "+experiment=" if key == "experiment" else f"+experiment=delta_b/table7 {key}="
    return UsageError(f"{key}={chosen[0]} is added to a run as an experiment: {example}{chosen[0]}.")


def _unknown_setting(key: str) -> UsageError:
    return unknown("setting", key, [*GROUPS, *SETTINGS])


def _mistaken_option(
    kind: str, option: str, chosen: Mapping[str, list[Any]], registry: Registry, folders: Sequence[Path]
) -> UsageError | None:
    options = chosen.get(kind) or [default_choice(kind)]
    parts = [part_behind(kind, str(name), registry, folders) for name in options if name is not None]
    if not parts:
        return UsageError(
            f"{kind}.{option} is an option of one {kind}, and none is chosen ({kind}=null). "
            f"Name it too: {kind}=NAME {kind}.{option}=…; NAME is one of {', '.join(names(registry, kind))}."
        )
    for name in parts:
        known = registry.get(kind, name).options if name in registry.parts(kind) else {}
        if option not in known:
            if len(parts) > 1:
                return UsageError(
                    f"{kind}={name} has no option {option!r}, and a sweep over {kind} cannot give an option to some of "
                    f"its choices only. Write one preset for each variant ({kind}/NAME.yaml in a folder given by "
                    f"--config-dir) and sweep over the presets."
                )
            return unknown(f"option of {kind}={name}", option, known)
    if len(parts) > 1:
        return UsageError(
            f"{kind}.{option} cannot be fixed in a sweep over {kind}: Hydra checks it against the default option. "
            f"Write one preset for each variant ({kind}/NAME.yaml in a folder given by --config-dir)."
        )
    return None


def default_choice(kind: str) -> str | None:
    """The option of a group in conf/config.yaml."""
    from omegaconf import OmegaConf

    content: Any = OmegaConf.to_container(OmegaConf.load(own_folder() / "config.yaml"))
    for entry in content["defaults"]:
        if isinstance(entry, dict) and kind in entry:
            return entry[kind]
    return None


def part_behind(kind: str, name: str, registry: Registry, folders: Sequence[Path] = ()) -> str:
    """The part that an option stands for: itself, or what a preset's defaults list begins with."""
    from omegaconf import OmegaConf

    if name in registry.parts(kind):
        return name
    for folder in (*config_folders(registry), *folders):
        file = Path(folder) / kind / f"{name}.yaml"
        if file.is_file():
            content = OmegaConf.to_container(OmegaConf.load(file))
            defaults = content.get("defaults", []) if isinstance(content, dict) else []
            first = next((str(entry) for entry in defaults if isinstance(entry, str) and entry != "_self_"), name)
            return part_behind(kind, first, registry, folders) if first != name else name
    return name
