"""task=weat: published figures through the task itself, forms of vectors, policies, what it leaves behind."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from refbias import cli, weat
from refbias.errors import RefbiasError, UsageError
from refbias.registry import Part, registry
from refbias.schema import result_schema
from refbias.tracking import Nowhere, figures
from refbias.weat_pipeline import TEMPLATES, association_tests
from tests.tasks.conftest import SETS


def by_test(rows):
    return {row["test"]: row for row in rows}


def only(path):
    return ("file", {"path": str(path)})


# Figures that were computed independently ------------------------------------------------------------------------


def test_glove_gives_the_known_figures(glove, command):
    words = ["task=weat", f"reference={glove}", "calibration=zca", "suite.tests=[W6,W7,W9]"]
    data = command(*words)
    rows = by_test(data["suites"])
    assert rows["W6"]["d_raw"] == pytest.approx(1.7078, abs=5e-5)
    assert rows["W6"]["p_raw"] == 1 / 12870
    assert rows["W7"]["d_raw"] == pytest.approx(1.4951, abs=5e-5)
    assert rows["W7"]["p_raw"] == pytest.approx(3 / 12870)  # 0.000233
    assert rows["W9"]["d_raw"] == pytest.approx(1.1369, abs=5e-5)
    assert rows["W9"]["partitions"] == 924 and rows["W9"]["p_raw"] == pytest.approx(21 / 924)  # 0.022727
    assert {row["method_raw"] for row in rows.values()} == {"exact"}
    assert data["conventions"]["ddof"] == 1 and data["conventions"]["list_version"] == "caliskan2017"
    assert data["calibrations"][0]["eps_relative"] > 0 and data["calibrations"][0]["n"] == 100_000
    assert data["conventions"]["words"]["form"] == "table"
    jsonschema.validate(data, result_schema())


def test_ddof_0_and_the_equation_of_the_paper(glove, cache):
    data = association_tests(glove, cache=cache, suite=("caliskan2017", {"tests": ["W6"]}), ddof=0, ties="strict").data
    assert data["suites"][0]["d_raw"] == pytest.approx(1.7638, abs=5e-5)
    assert data["suites"][0]["p_raw"] == 0.0


def test_word2vec_gives_the_published_figures(word2vec, cache):
    rows = by_test(association_tests(word2vec, cache=cache, method="sampled", permutations=2000).data["suites"])
    assert round(rows["W2"]["d_raw"], 2) == 1.63 and round(rows["W6"]["d_raw"], 2) == 1.89  # the paper's
    assert [round(rows[name]["d_raw"], 2) for name in ("W1", "W7", "W8")] == [1.54, 0.97, 1.24]
    assert rows["W2"]["lost"] == "axe" and rows["W2"]["n_y"] == 24
    assert rows["W3"]["d_raw"] is None and "0 of 32 in Y found" in rows["W3"]["reason"]  # the names are missing


# Missing words ---------------------------------------------------------------------------------------------------


def test_policies_for_missing_words(glove, cache):
    suite = ("caliskan2017", {"tests": ["W1"]})
    drop, balance = (
        association_tests(glove, suite=suite, missing=policy, method="sampled", cache=cache).data["suites"][0]
        for policy in ("drop", "balance")
    )
    assert (drop["n_x"], drop["n_y"], drop["of_x"], drop["lost"]) == (24, 25, 25, "gladiola")
    assert (balance["n_x"], balance["n_y"]) == (24, 24) and len(balance["left_out"].split(", ")) == 1
    with pytest.raises(RefbiasError, match="W1: the model has no gladiola"):
        association_tests(glove, suite=suite, missing="fail", cache=cache)


def test_lost_words_say_why(glove, cache):
    data = association_tests(glove, cache=cache, suite=("caliskan2017", {"tests": ["W1"]}), method="sampled").data
    assert data["lost_words"] == [
        {"layer": 0, "test": "W1", "set": "X", "word": "gladiola", "why": data["lost_words"][0]["why"]}
    ]
    assert "not in the vocabulary" in data["lost_words"][0]["why"]


# Language models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["weat", "ceat", "ml_eat"])
def test_words_in_context_at_every_layer(test, tiny, small_suite, small_text, cache):
    result = association_tests(
        tiny["llama"], suite=only(small_suite), corpus=only(small_text), calibration="zca", layer="all", test=test,
        cache=cache, draws=200, samples=50,
    )  # fmt: skip
    data = result.data
    assert [row["layer"] for row in data["suites"]] == [0, 1, 2, 3, 4]
    assert len({row["d_raw"] for row in data["suites"]}) == 5
    assert [fit["layer"] for fit in data["calibrations"]] == [0, 1, 2, 3, 4]
    assert data["conventions"]["words"]["form"] == "aggregated"
    assert data["conventions"]["digests"]["corpus"] == data["provenance"]["data_digests"]["corpus"]
    assert f"d/T1/zca/layer_{3}" in data["figures"]
    assert all(row["d_raw"] is not None and row["d_calibrated"] is not None for row in data["suites"])
    jsonschema.validate(data, result_schema())
    again = association_tests(
        tiny["llama"], suite=only(small_suite), corpus=only(small_text), calibration="zca", layer=3, test=test,
        cache=cache, draws=200, samples=50,
    ).data  # fmt: skip
    assert again["suites"] == [pytest.approx(row) for row in data["suites"] if row["layer"] == 3]
    assert again["timings"]["sentences_encoded"] == 0


def test_sentences_of_the_templates(tiny, small_suite, cache):
    from refbias.association_tests import seat
    from refbias.encoding import encode

    data = association_tests(tiny["gpt2"], suite=only(small_suite), test="seat", pooling="last", cache=cache).data
    sets = []
    for words in SETS.values():
        sets.append([])
        for word in words:
            sentences = [template.replace("{word}", word) for template in TEMPLATES]
            sentences = [sentence[0].upper() + sentence[1:] for sentence in sentences]
            sets[-1].append(encode(tiny["gpt2"], sentences, pooling="last"))
    assert data["suites"][0]["d_raw"] == pytest.approx(seat(*sets).test.effect_size)
    assert data["suites"][0]["partitions"] == 252
    assert "calibrations" in data and data["calibrations"] == [] and "status" not in data["suites"][0]


def test_sentences_of_word_vectors_only_of_words_that_have_one(glove, cache):
    templates = ["this is {word}", "there was {word}"]
    suite = ("caliskan2017", {"tests": ["W1"]})
    data = association_tests(glove, suite=suite, test="seat", templates=templates, method="sampled", cache=cache).data
    row = data["suites"][0]
    assert row["lost"] == "gladiola" and row["d_raw"] is not None


def test_contexts_that_there_are_not_are_refused_with_the_way_out(tiny, glove, small_suite, cache):
    with pytest.raises(UsageError, match="words=table gives one vector a word. Use words=aggregated"):
        association_tests(glove, suite=only(small_suite), test="ceat", cache=cache)
    with pytest.raises(UsageError, match="words=isolated gives one vector a word. Use words=aggregated"):
        association_tests(tiny["gpt2"], suite=only(small_suite), test="ceat", words="isolated", cache=cache)


def test_a_saved_calibration_is_applied_as_it_is(tiny, small_suite, tmp_path, cache):
    import numpy as np

    from refbias import ZCA
    from refbias.encoding import encode

    fit = ZCA().fit(np.random.default_rng(0).normal(size=(400, 32)) + 1)
    fit.save(tmp_path / "own.safetensors")
    data = association_tests(
        tiny["bert"], suite=only(small_suite), words="isolated", cache=cache,
        calibration=("file", {"path": tmp_path / "own.safetensors"}),
    ).data  # fmt: skip
    sets = [fit.transform(encode(tiny["bert"], list(words))) for words in SETS.values()]
    assert data["suites"][0]["d_calibrated"] == pytest.approx(weat(*sets).effect_size)
    assert data["calibrations"][0]["path"].endswith("own.safetensors")
    assert data["timings"]["sentences_encoded"] == 18  # no sample was drawn


# The command line ------------------------------------------------------------------------------------------------


def test_a_run_leaves_tables_and_pictures(glove, command, small_suite, capsys):
    data = command("task=weat", f"reference={glove}", "calibration=zca", "suite=file", f"suite.path={small_suite}",
                   "task.also=[rnd,ect]", "task.holm=true")  # fmt: skip
    names = {file.name for file in Path("out").iterdir()}
    assert {"result.json", "suites.csv", "further.csv", "weat_heat_map.png", "weat_scatter.svg"} <= names
    with open("out/suites.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["d_raw"]) == data["suites"][0]["d_raw"] and row["status"] == data["suites"][0]["status"]
    shown = capsys.readouterr().out
    for text in ("d raw", "d zca", "Δd", "flip chance", "Holm-adjusted p", "X words / Y words", "ties inclusive",
                 "list", "of the mean eigenvalue", "further scores"):  # fmt: skip
        assert text in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", shown)


def test_raw_alone_without_a_calibration(glove, command, small_suite, capsys):
    data = command("task=weat", f"reference={glove}", "suite=file", f"suite.path={small_suite}")
    assert not [key for key in data["suites"][0] if "calibrated" in key or key in ("status", "change")]
    assert data["calibrations"] == [] and "status_counts" not in data
    assert not Path("out/weat_scatter.png").exists()
    shown = capsys.readouterr().out
    assert "d raw" in shown and "Δd" not in shown and "X words / Y words × A words / B words" in shown


def test_names_with_brackets_are_shown_as_they_are(glove, command, tmp_path, capsys):
    file = tmp_path / "odd.yaml"
    file.write_text(
        "'T[bold]$1':\n"
        + "".join(f"  {key}: {{'[red] {key} $x$': [{', '.join(words)}]}}\n" for key, words in SETS.items()),
        encoding="utf-8",
    )
    command("task=weat", f"reference={glove}", "calibration=center", "suite=file", f"suite.path={file}")
    shown = capsys.readouterr().out
    assert "T[bold]$1" in shown and "[red] X $x$" in " ".join(shown.split())
    assert "T[bold]$1" in Path("out/weat_heat_map.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["task.also=[rdn]"], 2, "No further metric 'rdn'. Did you mean 'rnd'"),
        (["task.templates=[nothing]"], 2, r"A template holds \{word\} once: got 'nothing'"),
        (["task.sample=1"], 2, "sample=1: a calibration needs at least 2 vectors"),
        (["suite.tests=[W11]"], 2, r"No test 'W11' in this suite. Available: W1, W2"),
        (["suite=file", "suite.path=bad.csv"], 1, r"bad.csv, row 3: no set 'Z'"),
        (["calibration=file", "calibration.path=nowhere.safetensors"], 1, "nowhere.safetensors"),
    ],
)
def test_wrong_use_is_refused_before_a_model_is_looked_for(words, status, message, command, capsys):
    Path("bad.csv").write_text("test,set,word\nT1,X,rose\nT1,Z,ant\n")
    command("task=weat", "reference=./no_such_model", *words, status=status)
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert "no_such_model" not in error


def test_a_sweep_is_tracked_job_by_job(glove, small_suite, command, monkeypatch, capsys):
    kept: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}

    class Memory(Nowhere):
        def start(self, name: str, settings: Mapping[str, Any], parent: str | None = None) -> str:
            self.name, self.settings = name, dict(settings)
            return name

        def log(self, data: Mapping[str, Any], folder: Path) -> None:
            kept[self.name] = self.settings, {key: value for key, value, _ in figures(data, {})}

    monkeypatch.setitem(registry()._parts["tracking"], "memory", Part("tracking", "memory", Memory, {}, "test"))
    words = ["-m", "task=weat", f"reference={glove}", "calibration=none,zca", "suite=file", f"suite.path={small_suite}"]
    assert cli.main([*words, "tracking=memory", "hydra.sweep.dir=swept"]) == 0
    assert set(kept) == {"calibration=none", "calibration=zca"}
    settings, measured = kept["calibration=zca"]
    data = json.loads(Path("swept/1/result.json").read_text())
    assert measured["d/T1/zca"] == data["suites"][0]["d_calibrated"]
    assert measured["p/T1/raw"] == data["suites"][0]["p_raw"]
    assert measured["stable"] == data["status_counts"]["Stable"]
    assert "d/T1/zca" not in kept["calibration=none"][1]
    assert settings["suite"]["name"] == "file" and "anchors" not in settings
    shown = capsys.readouterr().out
    assert "what varies" in shown and "d/T1/raw" in shown and "interval" not in shown


# Real models -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_smollm2_in_context(smollm2, shared_cache):
    result = association_tests(
        smollm2, suite=("caliskan2017", {"tests": ["W6", "W7"]}), calibration="zca", cache=shared_cache,
        corpus=("wikipedia", {"n": 300}),
    )  # fmt: skip
    rows = result.data["suites"]
    assert all(abs(row["d_raw"]) < row["d_bound"] and row["status"] for row in rows)
    assert result.data["conventions"]["words"]["corpus"] == "wikipedia"
