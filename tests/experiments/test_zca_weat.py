"""experiments/zca_weat: tables of published and measured figures, resumed, with what a missing row needs."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refbias import cli
from tests.tasks.conftest import SETS

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "zca_weat" / "run.py"


@pytest.fixture
def script(hydra_restored: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script in an empty folder; its jobs run in this process, and are listed in ``script.ran``."""
    spec = importlib.util.spec_from_file_location("zca_weat_experiment", SCRIPT)
    assert spec and spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "cache"))
    module.ran = []

    def run(job: Any) -> None:
        job.folder.mkdir(parents=True, exist_ok=True)
        module.ran.append(job.folder.name)
        cli.main(job._words())

    monkeypatch.setattr(module.Job, "_run", run)
    return module


@pytest.fixture
def vectors(tmp_path: Path) -> Callable[[str], Path]:
    """Word vectors of the words of the small suite and 60 others."""

    def write(name: str) -> Path:
        rng = np.random.default_rng(len(name))
        words = [word for some in SETS.values() for word in some] + [f"w{i}" for i in range(60)]
        shift = {word: rng.normal(size=8) for some in SETS.values() for word in some}
        file = tmp_path / f"{name}.txt"
        rows = (f"{w} {' '.join(map(str, (rng.normal(size=8) + shift.get(w, 0)).round(3)))}\n" for w in words)
        file.write_text("".join(rows))
        return file

    return write


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    file = tmp_path / "suite.csv"
    rows = [f"W2,{key},{word}\n" for key, words in SETS.items() for word in words]
    file.write_text("test,set,word\n" + "".join(rows))
    return file


def rows_of(folder: str, name: str) -> list[dict[str, str]]:
    with open(Path("outputs/zca_weat") / folder / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_published_beside_measured_and_what_a_row_needs(script, vectors, suite, capsys):
    own = vectors("own")
    known = script.Subject("word2vec", "static", str(own), published="word2vec")
    script.KNOWN["word2vec"] = known
    words = ["weat70", "--models", "word2vec", "glove100", "suite=file", f"suite.path={suite}"]
    script.main(words)
    measured, missing = rows_of("weat70", "weat70")
    assert (measured["published raw"], measured["published white"]) == ("1.63", "1.03")
    assert float(measured["difference raw"]) == pytest.approx(float(measured["d raw"]) - 1.63)
    assert "glove.6B.100d.txt" in missing["not run"] and "Needs" in missing["not run"]
    assert {f"weat_{picture}.png" for picture in ("heat_map", "scatter")} <= {
        file.name for file in Path("outputs/zca_weat/weat70").iterdir()
    }
    shown = capsys.readouterr().out
    assert "published, 70 tests: Stable 48, Disappearing 12, Emerging 10; 29 change" in shown
    assert script.ran == ["word2vec", "glove100"]
    script.main(words)
    assert script.ran == ["word2vec", "glove100", "glove100"]  # what is done is not run again
    script.main([*words, "task.ddof=0"])
    assert script.ran[3:] == ["word2vec", "glove100"]  # with another option it is


def test_white_figures_of_a_model_fitted_on_the_tests_own_words_are_not_drawn(script):
    row = {
        "test": "W2",
        "d_raw": 1.6,
        "p_raw": 0.001,
        "d_calibrated": 0.2,
        "p_calibrated": 0.3,
        "status": "Disappearing",
    }
    data = {"suites": [row]}
    (drawn,) = script.comparable(script.Subject("own", "static", "file", raw_only=True), data)
    assert drawn == {**row, "d_calibrated": None, "p_calibrated": None, "status": None}
    assert script.comparable(script.Subject("own", "static", "file"), data) == [row]


def test_isotropy_and_a_model_of_one_s_own(script, vectors):
    script.main(["anisotropy", "--models", str(vectors("own")), "task.n=20"])
    (row,) = rows_of("anisotropy", "anisotropy")
    assert float(row["raw mean cosine"]) > float(row["zca mean cosine"]) - 0.2
    assert row["vectors"] == "20"
    assert Path("outputs/zca_weat/anisotropy/explained_variance.svg").is_file()


def test_each_choice_is_varied_on_its_own(script, vectors, suite, monkeypatch):
    monkeypatch.setattr(script, "EPS", ("1",))
    monkeypatch.setattr(script, "SIZES", {"static": ("40",), "other": ()})
    script.KNOWN["own"] = script.Subject("own", "static", str(vectors("own")))
    script.main(["sensitivity", "--models", "own", "suite=file", f"suite.path={suite}", "draws=200"])
    rows = rows_of("sensitivity", "sensitivity")
    assert [(row["varied"], row["value"]) for row in rows] == [
        ("nothing", ""), ("eps", "1"), ("sample", "40"), ("vocabulary", "random"), ("sample seed", "1"),
        ("sample seed", "2"), ("calibration", "center"), ("calibration", "abtt"),
    ]  # fmt: skip
    assert float(rows[0]["mean move of d zca"]) == 0.0 and float(rows[1]["mean move of d zca"]) > 0.0
    assert all(float(row["mean move of d raw"]) == 0.0 for row in rows)
    every = rows_of("sensitivity", "sensitivity_tests")
    assert len(every) == 8 and every[6]["varied"] == "calibration"
    assert Path("outputs/zca_weat/sensitivity/sensitivity_own.png").is_file()


def test_tables_from_a_sweep(script, vectors, suite):
    files = [vectors("one"), vectors("other")]
    words = ["-m", "+experiment=zca_weat/weat70", f"reference={files[0]},{files[1]}", "calibration=none,zca",
             "suite=file", f"suite.path={suite}", "tracking=none", "hydra.sweep.dir=swept"]  # fmt: skip
    assert cli.main(words) == 0
    script.main(["weat70", "--from", "swept", "--out", "tables"])
    with open("tables/weat70.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == [str(file) for file in files]
    assert script.ran == []
    with pytest.raises(SystemExit, match="no result.json of task=isotropy"):
        script.main(["anisotropy", "--from", "swept"])


def test_published_figures_are_those_of_the_reference(script):
    known = script.PUBLISHED
    assert known["weat"]["glove100"] == {"W3": [0.95, 0.24], "W6": [1.72, 1.63]}
    assert known["similarity"]["gpt2"]["wordsim353"]["white"] == 0.620
    assert set(known["anisotropy"]) == {subject.published for subject in script.PAPER}
    for name, sets in known["similarity"].items():
        for found in sets.values():
            if "raw" in found:
                assert found["white"] - found["raw"] == pytest.approx(found["change"], abs=0.0011), name


def test_words_that_are_no_options_are_refused(script, capsys):
    with pytest.raises(SystemExit):
        script.main(["weat70", "--modles", "here"])
    assert "not understood: --modles" in capsys.readouterr().err
