"""What ``refbias new-plugin`` writes works: its own tests pass, and installed it is found from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from refbias.commands.new_plugin import write
from refbias.commands.templates import PARTS
from refbias.registry import HOOKS

ROOT = Path(__file__).resolve().parents[2]


def python(*words: str, path: list[Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # many small products on a busy machine
    environment = {**os.environ, **one_thread, "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT]))}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=cwd, env=environment, timeout=300
    )


def test_there_is_an_example_of_every_kind() -> None:
    assert set(PARTS) == set(HOOKS)


def test_the_tests_it_writes_pass(tmp_path: Path) -> None:
    made = [write(f"my_{kind}", kind, tmp_path) for kind in HOOKS]
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, made), path=[p / "src" for p in made],
                  cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert f"{len(HOOKS)} passed" in done.stdout


def test_what_it_writes_is_tidy(tmp_path: Path) -> None:
    made = [str(write(f"my_{kind}", kind, tmp_path)) for kind in HOOKS]
    ruff = ["-m", "ruff", "check", "--isolated", "--line-length", "120", "--select", "E,F,W,UP", *made]
    done = python(*ruff, path=[], cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    for file in Path(tmp_path).rglob("*"):
        assert "@" not in file.name
        if file.suffix in (".toml", ".md"):
            assert "@" not in file.read_text()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which a new plug-in and plugins/refbias-energy were installed with pip."""
    work, site = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "plugins" / "refbias-energy", work / "refbias-energy")
    sources = [str(work / "refbias-energy"), str(write("my_score", "metric", work))]
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--no-compile", "--target", str(site)]
    done = python("-m", "pip", "install", *options, *sources, path=[], cwd=work)
    assert done.returncode == 0, done.stderr
    return site


def test_an_installed_plug_in_is_listed_with_its_options(installed: Path, tmp_path: Path) -> None:
    done = python("-m", "refbias", "list", "metric", path=[installed], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "metric.alpha: float = 1.0" in done.stdout
    assert "[refbias-my-score]" in done.stdout
    assert "metric.power: float = 1.0" in done.stdout
    assert "presets: energy_sqrt" in done.stdout


def test_its_options_are_checked_and_its_presets_found(installed: Path, tmp_path: Path) -> None:
    def metric(*words: str) -> tuple[int, str]:
        shown = python("-m", "refbias", *words, "--cfg", "job", "-p", "metric", path=[installed], cwd=tmp_path)
        return shown.returncode, shown.stdout + shown.stderr

    assert metric("metric=my_score", "metric.alpha=0.3") == (0, "# @package metric\nname: my_score\nalpha: 0.3\n")
    assert metric("metric=energy_sqrt") == (0, "# @package metric\nname: energy\npower: 0.5\n")
    status, text = metric("metric=energy", "metric.power=strong")
    assert status == 2
    assert "metric.power=strong: Value 'strong' of type 'str' could not be converted to Float" in text


def test_an_installed_metric_scores_an_audit(installed: Path, vector_models: tuple[Path, Path], tmp_path: Path) -> None:
    reference, audited = vector_models
    words = [f"reference={reference}", f"audited={audited}", "benchmark=none", "tracking=none", "groups=[Women,Men]"]
    words += ["anchors.n=96"]
    done = python("-m", "refbias", *words, "metric=energy", "metric.power=0.5", path=[installed], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "audited.npz: mean energy shift" in done.stdout
