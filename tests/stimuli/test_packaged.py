"""The data are what the script makes, what the recorded digests say, and read only when asked for."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refbias.stimuli import digests, packaged, slug

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "build_stimuli.py"


def test_the_script_makes_the_checked_in_files():
    made = runpy.run_path(str(SCRIPT))["build"]()
    assert len(made) > 15
    data = ROOT / "refbias" / "stimuli" / "data"
    assert [name for name, text in made.items() if (data / name).read_bytes() != text.encode()] == []


def test_check_says_which_file_differs(tmp_path, monkeypatch, capsys):
    import shutil

    script = tmp_path / "scripts" / "build_stimuli.py"
    script.parent.mkdir()
    shutil.copy(SCRIPT, script)
    shutil.copytree(ROOT / "refbias" / "stimuli" / "data", tmp_path / "refbias" / "stimuli" / "data")
    changed = tmp_path / "refbias" / "stimuli" / "data" / "targets" / "base.csv"
    good = changed.read_bytes()
    changed.write_text("group,sentence\n")
    monkeypatch.setattr(sys, "argv", ["build_stimuli.py", "--check"])
    with pytest.raises(SystemExit) as status:
        runpy.run_path(str(script), run_name="__main__")
    assert status.value.code == 1
    assert "targets/base.csv" in capsys.readouterr().out
    assert changed.read_text() == "group,sentence\n"
    monkeypatch.setattr(sys, "argv", ["build_stimuli.py"])
    with pytest.raises(SystemExit) as status:
        runpy.run_path(str(script), run_name="__main__")
    assert status.value.code == 0
    assert changed.read_bytes() == good


def test_digests_are_the_recorded_ones():
    recorded = dict(reversed(line.split("  ")) for line in packaged.lines("SHA256SUMS"))
    assert digests() == recorded
    assert "targets/base.csv" in recorded
    assert "words.txt" in recorded


def test_importing_reads_nothing_and_loads_the_standard_library_only():
    code = """
import builtins, io, sys
import refbias.errors, refbias.standins
before = set(sys.modules)
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import refbias.stimuli
new = {name.partition(".")[0] for name in set(sys.modules) - before} - {"refbias"}
print(sorted(new - set(sys.stdlib_module_names)))
print([name for name in opened if "data" in name and name.endswith((".csv", ".txt"))])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


@given(st.text())
def test_a_slug_is_plain_and_always_the_same(name):
    assert re.fullmatch("[a-z0-9_]+", slug(name))
    assert slug(name) == slug(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Able-bodied people", "able_bodied_people"), ("Québécois", "quebecois"), ("  A/B [x] ", "a_b_x")],
)
def test_slugs(name, expected):
    assert slug(name) == expected


def test_names_without_ascii_letters_stay_apart():
    assert slug("女性") != slug("男性")
    assert slug("女 A") != slug("男 A")


def test_unknown_attributes_of_the_package_raise():
    import refbias.stimuli

    with pytest.raises(AttributeError, match="GROUP"):
        refbias.stimuli.GROUP  # noqa: B018
