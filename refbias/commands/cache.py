"""``refbias cache``: what the cache holds; ``refbias cache prune``: make it smaller."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from refbias.cache import GIB, Cache, Usage, default_directory


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="refbias cache", description="Show or prune the cache.")
    parser.add_argument("action", nargs="?", choices=("show", "prune"), default="show")
    parser.add_argument("--dir", type=Path, default=None, help="folder of the cache (default: the user's)")
    parser.add_argument(
        "--max-gib", type=_size, default=None, help="prune: keep at most this much; 0 empties it (default: the limit)"
    )
    given = parser.parse_args(arguments)
    cache = Cache(given.dir or default_directory())
    if given.action == "prune":
        gone = cache.prune(given.max_gib)
        print("\n".join([*map(line, gone), f"removed {gib(gone)} in {len(gone)} entries"]))
    used = cache.usage()
    if given.action == "show":
        print("\n".join(map(line, used)))
    print(f"{cache.directory}: {gib(used)} in {len(used)} entries; limit {cache.max_gib:g} GiB (cache.max_gib)")
    return 0


def _size(text: str) -> float:
    value = float(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text} is no size: expected 0 or more GiB")
    return value


def line(item: Usage) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(item.used))
    return f"{item.size / 2**20:10.1f} MiB  {when}  {item.kind:8}  {item.name}"


def gib(items: Sequence[Usage]) -> str:
    return f"{sum(item.size for item in items) / GIB:.2f} GiB"
