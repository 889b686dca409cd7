from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import refbias

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "peft", "hydra", "mlflow", "sklearn", "scipy", "pandas", "matplotlib")


@pytest.fixture(scope="module")
def project():
    tomllib = pytest.importorskip("tomllib", reason="reading pyproject.toml needs Python 3.11")
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_import_is_quick_and_loads_nothing_heavy(tmp_path):
    code = (
        "import time, sys, json; start = time.perf_counter(); import refbias; "
        "took = time.perf_counter() - start; json.dump([took, sorted(sys.modules)], sys.stdout)"
    )
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    loaded = {module.partition(".")[0] for module in runs[0][1]}
    assert not loaded & set(HEAVY)
    # 0.3 s on a quiet machine; three times that where tests run side by side
    assert min(took for took, _ in runs) < 0.9


def test_version_is_the_same_everywhere(project):
    assert refbias.__version__ == project["project"]["version"] == importlib.metadata.version("refbias")
    assert f"\nversion: {refbias.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_every_package_is_listed(project):
    found = {
        ".".join(folder.relative_to(ROOT).parts)
        for folder in [ROOT / "refbias", *(ROOT / "refbias").rglob("*")]
        if folder.is_dir() and any(folder.glob("*.py"))
    }
    listed = project["tool"]["setuptools"]["packages"]
    assert listed == sorted(set(listed))
    assert set(listed) == found | {"refbias.conf"}
    for package in found:
        assert (ROOT / Path(*package.split(".")) / "__init__.py").is_file(), f"{package} lacks __init__.py"


NOT_INSTALLED_HERE = ("vllm", "lm-eval")  # extras that bring a torch of their own, or a great deal more


def test_pins_are_exact_and_within_the_ranges(project, pins):
    assert all(re.fullmatch(r"==[^*]+", str(pin.specifier)) and not pin.marker for pin in pins)
    names = [canonicalize_name(pin.name) for pin in pins]
    assert len(names) == len(set(names))
    versions = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins}
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    wanted += [line for lines in project["project"]["optional-dependencies"].values() for line in lines]
    for requirement in map(Requirement, wanted):
        if requirement.name not in ("refbias", *NOT_INSTALLED_HERE):
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), str(requirement)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the pins are for Python 3.11 and later")
def test_everything_that_is_installed_on_our_behalf_is_pinned(pins):
    """What the dependencies need in turn, as installed here, has its pin: no install resolves anything freely."""
    pinned = {canonicalize_name(pin.name) for pin in pins}
    seen: set[tuple[str, str]] = set()
    queue = [("refbias", extra) for extra in ("", "test")]
    while queue:
        name, extra = queue.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in importlib.metadata.requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                child = canonicalize_name(requirement.name)
                assert child == "refbias" or child in pinned, f"{name} needs {child}"
                queue += [(child, wanted) for wanted in ("", *requirement.extras)]
    assert len(seen) > 50


def test_wheel_holds_code_presets_and_data(tmp_path):
    tree = tmp_path / "tree"  # a copy, since setuptools builds in the source folder
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("refbias", "conf"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(tmp_path), str(tree)],
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    expected = {str(path.relative_to(tree)) for path in (tree / "refbias").rglob("*") if path.is_file()}
    expected |= {f"refbias/{path.relative_to(tree)}" for path in (tree / "conf").rglob("*.yaml")}
    missing = {path for path in expected if not path.startswith("refbias.egg-info")} - held
    assert not missing
    assert {"refbias/py.typed", "refbias/result.schema.json", "refbias/conf/config.yaml"} <= held
    assert any(name.endswith("entry_points.txt") for name in held)


def test_the_command_is_installed():
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="refbias")
    assert entry.value == "refbias.cli:main"
    assert callable(entry.load())
