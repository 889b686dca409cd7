from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from refbias import similarity
from refbias.errors import RefbiasError, UsageError

STS = Path(__file__).resolve().parents[2] / "shared" / "data" / "stsbenchmark"


def test_word_pairs_come_with_gensim_which_is_not_imported():
    before = "gensim" in sys.modules
    wordsim, simlex = similarity.load_pairs("wordsim353"), similarity.load_pairs("simlex999")
    assert (len(wordsim), len(simlex)) == (353, 999)
    at = wordsim.first.index("tiger")
    assert (wordsim.second[at], wordsim.human[at]) == ("cat", 7.35)
    assert (simlex.first[0], simlex.second[0], simlex.human[0]) == ("old", "new", 1.58)
    assert ("gensim" in sys.modules) == before


def test_sts_pairs_have_no_quoting(tmp_path):
    file = tmp_path / "sts-test.csv"
    rows = [
        'main-news\theadlines\t2014\t1\t4.200\t"A quote opens here\tand another" ends here',
        "main-forums\tanswers\t2015\t2\t0.500\tPlain.\tSimple.\tsource 1\tsource 2",
    ]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    pairs = similarity.load_pairs("stsbenchmark", file)
    assert pairs.first == ['"A quote opens here', "Plain."]
    assert pairs.second == ['and another" ends here', "Simple."]
    assert pairs.human.tolist() == [4.2, 0.5]
    assert (pairs.unit, pairs.note) == ("sentences", "sts-test.csv")


@pytest.mark.skipif(not STS.is_dir(), reason="the STS benchmark is not in the shared data")
def test_the_published_sts_files_are_read_whole():
    sizes = [len(similarity.load_pairs("stsbenchmark", STS / f"sts-{part}.csv")) for part in ("dev", "test")]
    assert sizes == [1500, 1379]


@pytest.mark.parametrize(("name", "content", "text"), [
    ("stsbenchmark", "a\tb\tc\td\tx\tOne.\tTwo.\n", "line 1: expected genre, file, year"),
    ("stsbenchmark", "a\tb\tc\td\t1.0\tOne.\n", "line 1: expected genre, file, year"),
    ("wordsim353", "# comment\ntiger\tcat\t7\ntiger\tcat\n", "line 3: expected a word, a word and a number"),
    ("wordsim353", "tiger\t\t7\n", "line 1: expected a word"),
    ("simlex999", "tiger\tcat\tnan\n", "line 1: expected a word"),
    ("simlex999", "# nothing\n", "holds no pair"),
])  # fmt: skip
def test_a_line_that_does_not_do_is_named(tmp_path, name, content, text):
    file = tmp_path / "pairs.csv"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(RefbiasError, match=text):
        similarity.load_pairs(name, file)


def test_pairs_that_are_not_there(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="Did you mean 'wordsim353'"):
        similarity.load_pairs("wordsim")
    with pytest.raises(UsageError, match="stsbenchmark needs its file: sts-dev.csv"):
        similarity.load_pairs("stsbenchmark")
    with pytest.raises(RefbiasError, match="absent.csv cannot be read: No such file"):
        similarity.load_pairs("stsbenchmark", tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes("caf\xe9\tcat\t1\n".encode("latin-1"))
    with pytest.raises(RefbiasError, match="not UTF-8"):
        similarity.load_pairs("wordsim353", tmp_path / "latin.csv")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RefbiasError, match="pip install 'gensim"):
        similarity.load_pairs("wordsim353")


def test_a_data_set_that_cannot_be_fetched_says_the_way_out(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(RefbiasError, match=r"someone/stsb \(dev\) cannot be fetched: .* Give the published file"):
        similarity.load_pairs("stsbenchmark", "someone/stsb:dev")


def test_pairs_without_vectors_are_counted_by_word():
    pairs = similarity.Pairs("own", "words", ["a", "a", "b", "x"], ["b", "x", "z", "y"], np.arange(4.0), "")
    vectors = {"a": [1.0, 0.0], "b": [1.0, 1.0], "z": [0.0, 0.0]}
    found = similarity.find(pairs, vectors)
    assert found.kept.tolist() == [0]
    assert found.lost == {"x": 2, "y": 1, "z": 1}
    np.testing.assert_allclose(similarity.paired_cosines(found.first, found.second), [0.5**0.5])
    with pytest.raises(RefbiasError, match="No pair of own has both its vectors: 4 words are missing"):
        similarity.find(pairs, {"a": [1.0, 0.0]})
    with pytest.raises(RefbiasError, match="of one shape"):
        similarity.paired_cosines([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=30))
def test_rho_shares_ranks_among_ties_as_scipy_does(rows):
    x, y = np.array(rows, float).T
    found = similarity.spearman(x, y)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def data(n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    human = np.round(rng.normal(size=n), 1)  # with ties
    return human, human + rng.normal(size=n), human + 0.5 * rng.normal(size=n)


def test_every_resample_has_the_rho_that_scipy_gives_it():
    human, raw, white = data(12)
    draws = 300
    found = similarity._bootstrap(human, raw, white, draws, seed=3)
    rows = np.random.default_rng(3).integers(12, size=(250, 12))
    for which, other in enumerate((raw, white)):
        expected = [stats.spearmanr(human[r], other[r]).statistic for r in rows]
        np.testing.assert_allclose(found[which, :250], expected, atol=1e-12)


def test_the_interval_of_the_difference_agrees_with_scipys_bootstrap():
    human, raw, white = data()

    def difference(h, r, w):
        return stats.spearmanr(h, w).statistic - stats.spearmanr(h, r).statistic

    theirs = stats.bootstrap(
        (human, raw, white), difference, paired=True, vectorized=False, n_resamples=1500, method="percentile",
        rng=np.random.default_rng(0),
    )  # fmt: skip
    ours = similarity.agreement(human, raw, white)
    assert ours.difference.value == pytest.approx(difference(human, raw, white))
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert ours.difference.ci_low == pytest.approx(theirs.confidence_interval.low, abs=0.1 * width)
    assert ours.difference.ci_high == pytest.approx(theirs.confidence_interval.high, abs=0.1 * width)


def test_the_same_cosines_do_not_differ_and_a_clear_difference_does():
    human, raw, white = data(200)
    same = similarity.agreement(human, raw, raw, draws=500)
    assert (same.difference.value, same.difference.ci_low, same.difference.ci_high) == (0, 0, 0)
    assert same.difference.p_value == 1
    clear = similarity.agreement(human, raw, white, draws=999)
    assert clear.difference.ci_low > 0
    assert clear.difference.p_value == pytest.approx(2 / 1000)
    assert similarity.agreement(human, raw, white, draws=500, seed=1) == similarity.agreement(
        human, raw, white, draws=500, seed=1
    )


def test_p_of_no_difference_is_about_uniform():
    rng = np.random.default_rng(0)
    ps = []
    for _ in range(200):
        human = rng.normal(size=60)
        raw, white = (human + rng.normal(size=60) for _ in range(2))
        ps.append(similarity.agreement(human, raw, white, draws=200).difference.p_value)
    assert 0.01 < np.mean(np.array(ps) < 0.05) < 0.1
    assert 0.4 < np.mean(ps) < 0.6


@pytest.mark.parametrize(("human", "raw", "text"), [
    ([1.0, 2.0, 3.0], [0.1, 0.2, 0.3], "3 pairs: a correlation needs 4"),
    ([1.0, 1.0, 1.0, 1.0], [0.1, 0.2, 0.3, 0.4], "all judgements or all cosines are equal"),
])  # fmt: skip
def test_no_rho_is_none_with_a_reason(human, raw, text):
    found = similarity.agreement(human, raw, raw)
    assert (found.raw, found.difference, found.reason) == (None, None, text)


def test_values_that_are_not_paired():
    with pytest.raises(RefbiasError, match="got 3 judgements, 2 and 3"):
        similarity.agreement([1.0, 2, 3], [1.0, 2], [1.0, 2, 3])
