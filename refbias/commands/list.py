"""``refbias list [KIND]``: every registered part with its options."""

from __future__ import annotations

import argparse
import typing
from collections.abc import Sequence
from typing import Any

from refbias.errors import unknown
from refbias.options import GROUPS, config_folders, presets
from refbias.registry import HOOKS, Option, Part, Registry, registry


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="refbias list", description="Every registered part with its options.")
    parser.add_argument("kind", nargs="?", help=f"one of {', '.join(HOOKS)}; all where it is left out")
    kind = parser.parse_args(arguments).kind
    if kind is not None and kind not in HOOKS:
        raise unknown("kind of part", kind, HOOKS)
    print("\n".join(line for k in ([kind] if kind else HOOKS) for line in describe(registry(), k)))
    return 0


def describe(parts: Registry, kind: str) -> list[str]:
    """The lines about one kind: its parts with their options, then its presets."""
    meaning = GROUPS.get(kind, "names for `reference` and `audited`")
    lines = [f"{kind}: {meaning}"]
    width = max((len(name) for name in parts.parts(kind)), default=0)
    for part in parts.parts(kind).values():
        lines.append(f"  {part.name:{width}}  {part.summary}  [{part.distribution}]")
        lines += [f"  {'':{width}}    {shown(part, option)}" for option in part.options.values()]
    found = presets(config_folders(parts), kind)
    return [*lines, *([f"  presets: {', '.join(found)}"] if found else []), ""]


def shown(part: Part, option: Option) -> str:
    """One option as it is typed: ``pooling.skip: none | special | sink = none``."""
    default = "(required)" if option.required else f"= {_value(option.default)}"
    return f"{part.kind}.{option.name}: {type_name(option.annotation)} {default}"


def type_name(annotation: Any) -> str:
    """A type as users read it.

    >>> type_name(int | None), type_name(typing.Literal["a", "b"]), type_name(list[float])
    ('int | null', 'a | b', 'list[float]')
    """
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return " | ".join(str(value) for value in arguments)
    if origin is list:
        return f"list[{type_name(arguments[0])}]"
    if arguments:
        return " | ".join(type_name(a) for a in arguments)
    return "null" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))


def _value(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
