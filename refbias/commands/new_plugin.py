"""``refbias new-plugin NAME KIND``: a distribution that adds one part, ready to install and to change."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from refbias.commands.templates import MODULE, PARTS, PYPROJECT, README, TEST
from refbias.errors import RefbiasError, UsageError, unknown
from refbias.registry import HOOKS, registry


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="refbias new-plugin", description="Write a distribution that adds one part to refbias."
    )
    parser.add_argument("name", help="what users will type: lower-case letters, digits, _")
    parser.add_argument("kind", help=f"one of {', '.join(HOOKS)}")
    parser.add_argument("--in", dest="folder", type=Path, default=Path(), help="where to put it (default: here)")
    given = parser.parse_args(arguments)
    made = write(given.name, given.kind, given.folder)
    print(f"{made} is ready. Try it:\n  pip install -e {made}\n  pytest {made}\n  refbias list {given.kind}")
    return 0


def write(name: str, kind: str, folder: Path) -> Path:
    """Write the distribution below ``folder`` and return its path. Nothing that exists is overwritten."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UsageError(
            f"{name!r} is no name for a part. Expected lower-case letters, digits and _, for instance my_part."
        )
    if kind not in HOOKS:
        raise unknown("kind of part", kind, HOOKS)
    if name in registry().parts(kind):
        raise UsageError(f"There is a {kind} {name!r} already, of {registry().get(kind, name).distribution!r}.")
    root = folder / f"refbias-{name.replace('_', '-')}"
    if root.exists():
        raise RefbiasError(f"{root} exists already. Choose another name, or another folder with --in.")
    module = f"refbias_{name}"
    part = PARTS[kind]
    words = {
        "IMPORTS": part.imports, "CODE": part.code, "TEST": part.test, "NAME": name, "KIND": kind,
        "HOOK": HOOKS[kind], "MODULE": module, "DISTRIBUTION": root.name,
    }  # fmt: skip
    files = {
        "pyproject.toml": PYPROJECT,
        "README.md": README,
        f"src/{module}/__init__.py": MODULE,
        f"tests/test_{name}.py": TEST,
    }
    for path, text in files.items():
        for word, value in words.items():
            text = text.replace(f"@{word}@", value.strip())
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text.strip() + "\n", encoding="utf-8")
    return root
