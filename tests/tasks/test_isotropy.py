"""task=isotropy: figures on held-out vectors, raw and calibrated."""

from __future__ import annotations

import csv
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from refbias import ZCA
from refbias.errors import RefbiasError, UsageError
from refbias.isotropy import measure, split
from refbias.schema import result_schema
from refbias.space_pipeline import isotropy


def write_vectors(folder: Path, n: int = 400, dim: int = 6, seed: int = 0) -> tuple[Path, np.ndarray]:
    """Word vectors that point one way and spread unevenly."""
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(n, dim)) * np.linspace(1, 4, dim) + 3).round(4)
    file = folder / "vectors.txt"
    file.write_text("".join(f"w{i} {' '.join(map(str, row))}\n" for i, row in enumerate(rows)))
    return file, rows.astype(np.float32).astype(np.float64)


def test_what_is_measured_was_held_out_of_the_fit(tmp_path, cache):
    file, rows = write_vectors(tmp_path)
    data = isotropy(file, n=100, calibration="zca", cache=cache, seed=3).data
    (row,) = data["isotropy"]
    rest, held = split(400, 100, 3)
    fit = ZCA().fit(rows[rest])
    for space, vectors in (("raw", rows[held]), ("calibrated", fit.transform(rows[held]))):
        expected = measure(vectors)
        for figure in ("mean_cosine", "sd_cosine", "effective_rank", "iso_score"):
            assert row[f"{figure}_{space}"] == pytest.approx(expected[figure]), figure
        shares = [entry[space] for entry in data["spectrum"]]
        assert shares == pytest.approx(expected["explained_variance"]) and sum(shares) == pytest.approx(1.0)
    assert (row["n"], row["n_fitted"]) == (100, 300)
    assert row["mean_cosine_raw"] > 0.3 > 0.1 > abs(row["mean_cosine_calibrated"])
    assert row["iso_score_calibrated"] > row["iso_score_raw"]
    assert data["figures"]["mean_cosine/raw"] == row["mean_cosine_raw"]
    jsonschema.validate(data, result_schema())


def test_centring_alone_brings_the_mean_cosine_to_zero(tmp_path, cache):
    file, _ = write_vectors(tmp_path)
    (row,) = isotropy(file, n=100, calibration="center", cache=cache).data["isotropy"]
    assert abs(row["mean_cosine_calibrated"]) < 0.05
    assert row["iso_score_calibrated"] == pytest.approx(row["iso_score_raw"])


def test_a_small_sample_gives_half_of_it(tmp_path, cache):
    file, _ = write_vectors(tmp_path, n=60)
    (row,) = isotropy(file, calibration="zca", cache=cache).data["isotropy"]
    assert (row["n"], row["n_fitted"]) == (30, 30)
    few, _ = write_vectors(tmp_path, n=5)
    with pytest.raises(RefbiasError, match="at least 8 vectors"):
        isotropy(few, cache=cache)


def test_frequent_and_random_words_are_two_samples(tmp_path, cache):
    file, _ = write_vectors(tmp_path)
    chosen = {v: isotropy(file, n=50, sample=100, vocabulary=v, cache=cache).data for v in ("frequent", "random")}
    assert chosen["frequent"]["isotropy"][0]["mean_cosine_raw"] != chosen["random"]["isotropy"][0]["mean_cosine_raw"]
    assert "drawn at random" in chosen["random"]["conventions"]["sample"]
    assert chosen["random"]["settings"]["task.vocabulary"] == "random"


def test_every_layer_of_a_language_model(tiny, small_text, cache):
    data = isotropy(
        tiny["llama"], n=80, corpus=("file", {"path": str(small_text)}), calibration="zca", layer=[0, 2, -1],
        cache=cache,
    ).data  # fmt: skip
    assert [row["layer"] for row in data["isotropy"]] == [0, 2, 4]
    assert data["conventions"]["unit"] == "sentences"
    assert data["timings"]["sentences_encoded"] > 200
    assert set(data["figures"]) >= {"mean_cosine/raw/layer_2", "iso_score/zca/layer_4"}


def test_vectors_that_are_all_the_same_are_null_with_a_reason(tmp_path, cache):
    file = tmp_path / "same.txt"
    file.write_text("".join(f"w{i} 1.0 2.0 3.0\n" for i in range(40)))
    data = isotropy(file, n=10, cache=cache).data
    assert data["isotropy"][0]["iso_score_raw"] is None and "the same" in data["isotropy"][0]["reason_raw"]
    jsonschema.validate(data, result_schema())


def test_the_command_leaves_tables_and_pictures(tmp_path, command, capsys):
    file, _ = write_vectors(tmp_path)
    data = command("task=isotropy", f"reference={file}", "calibration=abtt", "task.n=100")
    names = {found.name for found in Path("out").iterdir()}
    assert {"isotropy.csv", "spectrum.csv", "explained_variance.png", "cosine_heat_map.svg"} <= names
    with open("out/isotropy.csv", newline="") as table:
        assert float(next(csv.DictReader(table))["mean_cosine_raw"]) == data["isotropy"][0]["mean_cosine_raw"]
    shown = capsys.readouterr().out
    for text in ("IsoScore", "effective rank", "held-out", "abtt", "items of the vocabulary"):
        assert text in shown


def test_too_few_vectors_are_refused_at_once():
    with pytest.raises(UsageError, match="n=2: isotropy needs at least 4 vectors"):
        isotropy("./no_such_model", n=2)
