"""task=similarity: Spearman's rho on word and sentence pairs, raw and calibrated."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest

from refbias.errors import RefbiasError, UsageError
from refbias.schema import result_schema
from refbias.space_pipeline import similarity


@pytest.fixture
def word_sets():
    if find_spec("gensim") is None:
        pytest.skip("needs gensim, whose test data holds WordSim-353 and SimLex-999")


@pytest.fixture
def sts(tmp_path: Path) -> Path:
    """A few sentence pairs in the form of the STS benchmark."""
    rows = [
        ("A rose stands near the house .", "A rose is near the house .", 4.8),
        ("The war went on .", "Peace came at last .", 1.0),
        ('He said " no " .', 'He said " never " .', 3.9),
        ("Love is a gift .", "Joy is a gift .", 3.5),
        ("The moth sat there .", "Nobody was there .", 0.5),
        ("A bee and a wasp .", "A wasp and a bee .", 5.0),
    ]
    file = tmp_path / "sts.csv"
    file.write_text("".join(f"main\tmade\t2012\t{i}\t{h}\t{a}\t{b}\n" for i, (a, b, h) in enumerate(rows)))
    return file


def test_glove_on_word_pairs(glove, word_sets, cache):
    from scipy.stats import spearmanr

    from refbias.linalg import cosine
    from refbias.models import find_model
    from refbias.similarity import load_pairs

    data = similarity(glove, calibration="zca", draws=500, cache=cache).data
    rows = {row["set"]: row for row in data["similarity"]}
    assert list(rows) == ["wordsim353", "simlex999"]
    assert [row["pairs"] for row in rows.values()] == [353, 999]
    pairs = load_pairs("wordsim353")
    vectors, _ = find_model(glove, cache=cache).lookup(pairs.texts)
    cosines = [cosine(vectors[a][None], vectors[b][None])[0, 0] for a, b in zip(pairs.first, pairs.second, strict=True)]
    assert rows["wordsim353"]["rho_raw"] == pytest.approx(spearmanr(cosines, pairs.human).statistic)
    row = rows["wordsim353"]
    assert row["change"] == pytest.approx(row["rho_calibrated"] - row["rho_raw"])
    assert row["change_low"] < row["change"] < row["change_high"]
    assert row["rho_low_raw"] < row["rho_raw"] < row["rho_high_raw"]
    assert data["figures"]["rho/simlex999/zca"] == rows["simlex999"]["rho_calibrated"]
    jsonschema.validate(data, result_schema())


def test_words_that_are_missing_are_counted(word2vec, word_sets, cache):
    data = similarity(word2vec, sets=["wordsim353"], draws=200, cache=cache).data
    (row,) = data["similarity"]
    assert row["pairs"] + row["pairs_lost"] == 353 and row["pairs_lost"] > 300
    assert "more" in row["lost"] and data["lost_words"]
    assert "rho_calibrated" not in row and "p" not in row


def test_no_pair_at_all_is_null_with_a_reason(tmp_path, word_sets, cache, sts):
    file = tmp_path / "few.txt"
    file.write_text("one 1.0 2.0\nother 2.0 1.0\n")
    data = similarity(file, sts_path=sts, draws=200, cache=cache).data
    assert [row["rho_raw"] for row in data["similarity"]] == [None, None, None]
    assert "No pair of wordsim353" in data["similarity"][0]["reason"]
    assert "has a vector for no word of" in data["similarity"][2]["reason"]


def test_sentences_are_pooled_at_every_layer(tiny, small_text, sts, cache):
    from refbias.encoding import encode
    from refbias.similarity import load_pairs, paired_cosines, spearman

    data = similarity(
        tiny["llama"], sets=["stsbenchmark"], sts_path=sts, corpus=("file", {"path": str(small_text)}),
        calibration="zca", layer=[1, 4], pooling="last", draws=200, cache=cache,
    ).data  # fmt: skip
    pairs = load_pairs("stsbenchmark", sts)
    for row in data["similarity"]:
        one, other = (
            encode(tiny["llama"], side, layer=row["layer"], pooling="last") for side in (pairs.first, pairs.second)
        )
        assert row["rho_raw"] == pytest.approx(spearman(pairs.human, paired_cosines(one, other)))
    assert [row["layer"] for row in data["similarity"]] == [1, 4] and row["unit"] == "sentences"


def test_the_command_leaves_a_table_and_a_picture(glove, word_sets, command, sts, capsys):
    command("task=similarity", f"reference={glove}", "calibration=center", "draws=200", f"task.sts_path={sts}")
    assert {"similarity.csv", "similarity.png", "similarity.svg"} <= {file.name for file in Path("out").iterdir()}
    shown = capsys.readouterr().out
    for text in ("ρ raw", "ρ center", "353/353", "999/999", "stsbenchmark", "paired bootstrap, 200 draws"):
        assert text in shown
    command("task=similarity", f"reference={glove}", "draws=200")
    assert "stsbenchmark was left out: it needs task.sts_path=FILE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sets": ["wordsim"]}, "No set of pairs 'wordsim'. Did you mean 'wordsim353'"),
        ({"sets": ["stsbenchmark"]}, "stsbenchmark needs task.sts_path=FILE"),
        ({"sets": []}, "names no set of pairs"),
        ({"draws": 10}, "draws=10: intervals need at least 100"),
    ],
)
def test_wrong_use_is_refused_at_once(options, message):
    with pytest.raises(UsageError, match=message):
        similarity("./no_such_model", **options)


def test_a_file_that_is_no_such_benchmark_says_the_line(tmp_path):
    file = tmp_path / "bad.csv"
    file.write_text("main\tmade\t2012\t0\tmuch\tone\tother\n")
    with pytest.raises(RefbiasError, match="line 1: expected"):
        similarity("./no_such_model", sets=["stsbenchmark"], sts_path=file)
