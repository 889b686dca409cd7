"""The documents' commands work, and their links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("experiments/**/*.md")])
TIMEOUT = 600


def name(block: Block) -> str:
    return f"{block.path.relative_to(ROOT)}:{block.line}"


RUNNABLE = [
    pytest.param(block, id=name(block), marks=[pytest.mark.slow] if block.slow else [])
    for document in DOCUMENTS
    for block in blocks(document)
]


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``block`` in ``folder`` with this interpreter's commands first on the path."""
    commands = {"bash": ["bash", "-euo", "pipefail", "-c", block.code], "python": [sys.executable, "-c", block.code]}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return subprocess.run(
        commands[block.language],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    """One empty folder a document, so that a later block finds the files of an earlier one."""
    folders: dict[Path, Path] = {}
    return lambda path: (
        folders.setdefault(path, tmp_path_factory.mktemp(path.stem)) if path not in folders else folders[path]
    )


@pytest.mark.parametrize("block", RUNNABLE)
def test_block_runs(block, folder_of):
    done = run(block, folder_of(block.path))
    assert done.returncode == block.exit_status, f"{name(block)}\n{block.code}\n{done.stdout[-4000:]}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(document):
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1`*$", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)\s]+)\)|<img[^>]*\ssrc=\"([^\"]+)\"", text)
    for target in filter(None, ("".join(link) for link in links)):
        if not re.match(r"[a-z]+:|#", target):
            assert (document.parent / target.partition("#")[0]).exists(), f"{document.name}: {target}"
