"""One run as the tasks see it: settings, run folder, who watches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refbias.errors import UsageError, unknown
from refbias.options import GROUPS, SETTINGS, kinds_of_settings
from refbias.registry import registry
from refbias.tracking import Tracker

if TYPE_CHECKING:
    from refbias.cache import Cache
    from refbias.report.console import ConsoleWatch

OUTCOME = "outcome.json"  # in the run folder: how the job ended


@dataclass(frozen=True)
class Run:
    """``settings`` is the composed configuration as plain values; ``swept_layers`` what a sweep visits beside."""

    settings: Mapping[str, Any]
    folder: Path
    watch: ConsoleWatch
    command: str
    swept_layers: Sequence[Any] = field(default=())

    def part(self, kind: str) -> tuple[str, dict[str, Any]] | None:
        """The choice for ``kind`` as the pipeline takes it: (name, options); None where nothing is chosen."""
        return part_of(self.settings, kind)

    def flat(self, kinds: Iterable[str], values: Iterable[str] = ()) -> dict[str, Any]:
        """Choices and values by the words of the command line (``words``, ``words.sentences`` …), for the result."""
        flat: dict[str, Any] = {}
        for kind in kinds:
            name, options = self.part(kind) or (None, {})
            flat[kind] = name
            flat.update({f"{kind}.{option}": value for option, value in options.items()})
        return flat | {key: self.settings[key] for key in values}

    def names(self, key: str) -> list[str] | None:
        """A setting that holds one name or several, as a list."""
        value = self.settings.get(key)
        if value is None:
            return None
        if isinstance(value, Mapping):
            raise UsageError(f"{key} takes a name or a list of names: got {dict(value)}.")
        return [str(item) for item in (value if isinstance(value, list) else [value])]

    def cache(self) -> Cache:
        from refbias.cache import Cache, default_directory

        chosen = self.settings.get("cache") or {}
        limit = {} if chosen.get("max_gib") is None else {"max_gib": float(chosen["max_gib"])}
        return Cache(Path(chosen["dir"]).expanduser() if chosen.get("dir") else default_directory(), **limit)


def part_of(settings: Mapping[str, Any], kind: str) -> tuple[str, dict[str, Any]] | None:
    chosen = settings.get(kind)
    if chosen is None or (chosen["name"] == "none" and "none" not in registry().parts(kind)):
        return None
    return chosen["name"], {key: value for key, value in chosen.items() if key != "name"}


def settings_used(settings: Mapping[str, Any], traits: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without the parts that a task with these traits does not use; all where it does not say.

    The trait ``parts`` of a task lists the kinds of parts that it uses.
    """
    used = {"task", "tracking", *traits.get("parts", GROUPS)}
    return {key: value for key, value in settings.items() if key not in GROUPS or key in used}


def tracker_of(settings: Mapping[str, Any]) -> Tracker:
    """The tracker that the settings choose, not yet started."""
    tracker: Tracker = registry().resolve("tracking", part_of(settings, "tracking") or "none").object
    return tracker


def check_settings(settings: Mapping[str, Any], missing: Sequence[str]) -> None:
    """Raise where a value is missing or a setting is unknown, before anything is loaded."""
    if missing:
        raise UsageError(f"No value for {', '.join(sorted(missing))}. Give it: {sorted(missing)[0]}=….")
    for key in settings:
        if key not in kinds_of_settings():
            raise unknown("setting", key, [*GROUPS, *SETTINGS])
    layer = settings["layer"]
    for item in layer if isinstance(layer, list) else [layer]:
        if isinstance(item, (bool, float)) or item is None:
            raise UsageError(f"layer={item!r} is no layer. Expected last, all, an integer, or a list of integers.")
    if settings["draws"] < 100:
        raise UsageError(f"draws={settings['draws']}: intervals need at least 100 draws; 10000 is the default.")
