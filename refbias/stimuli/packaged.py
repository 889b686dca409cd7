"""The packaged data: read when first asked for, then kept."""

from __future__ import annotations

import csv
import hashlib
import re
import unicodedata
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

SUMS = "SHA256SUMS"


def _data() -> Traversable:
    return files("refbias.stimuli").joinpath("data")


@cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """The rows of a packaged CSV file."""
    text = _data().joinpath(name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def lines(name: str) -> tuple[str, ...]:
    """The lines of a packaged text file, without those that begin with #."""
    text = _data().joinpath(name).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def by_key(name: str, key: str) -> dict[str, list[str]]:
    """The sentences of a packaged CSV file by the value of one column, in file order."""
    found: dict[str, list[str]] = {}
    for row in table(name):
        found.setdefault(row[key], []).append(row["sentence"])
    return found


@cache
def groups() -> tuple[str, ...]:
    """The 24 group names, in the order of every result."""
    return tuple(row["group"] for row in table("groups.csv"))


def topic_of(group: str) -> str | None:
    """The topic of a packaged group, one of nine; None for a group of the user's own."""
    return next((row["topic"] for row in table("groups.csv") if row["group"] == group), None)


def slug(group: str) -> str:
    """A name of a-z, 0-9 and _ for any group name: the same name always gives the same slug.

    >>> slug("Able-bodied people"), slug("Québécois")
    ('able_bodied_people', 'quebecois')

    Where letters have no ASCII form, eight digits of a hash keep such names apart.
    """
    decomposed = unicodedata.normalize("NFKD", group)
    plain = re.sub(r"[^a-z0-9]+", "_", decomposed.encode("ascii", "ignore").decode().lower()).strip("_")
    lossy = any(c.isalnum() and not c.isascii() for c in decomposed)
    if plain and not lossy:
        return plain
    return f"{plain or 'group'}_{hashlib.sha256(group.encode()).hexdigest()[:8]}"


@cache
def _digests() -> dict[str, str]:
    found = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                walk(entry, f"{prefix}{entry.name}/")
            elif entry.name != SUMS:
                found[prefix + entry.name] = hashlib.sha256(entry.read_bytes()).hexdigest()

    walk(_data(), "")
    return dict(sorted(found.items()))


def digests() -> dict[str, str]:
    """File of the packaged data -> its SHA-256."""
    return dict(_digests())
