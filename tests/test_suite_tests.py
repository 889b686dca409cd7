"""A suite's tests as flat rows: laws, agreement with the single functions, what happens without figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from refbias.association_tests import ceat, ml_eat, paired_change, rnd, rnsb, same, sc_weat, seat, weat
from refbias.association_tests.ceat import ceat_change
from refbias.association_tests.seat import word_scores
from refbias.association_tests.weat import association_scores
from refbias.errors import RefbiasError, UsageError
from refbias.suite_tests import FURTHER, KINDS, Settings, count_status, run_suite
from refbias.suites import Test, found

SIZES = {"X": 6, "Y": 7, "A": 5, "B": 5}
FAST = Settings(draws=200, samples=50)


def make_test(name: str = "T", category: str = "valence") -> Test:
    words = {key: tuple(f"{key}{i}" for i in range(n)) for key, n in SIZES.items()}
    labels = {key: f"{key} words" for key in SIZES}
    return Test.of(words, labels, id=name, name=f"{name} sets", category=category, source="made", list_version="made")


def make_vectors(rows: int = 1, seed: int = 0, dim: int = 12) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shift = {key: rng.normal(size=dim) for key in SIZES}
    return {
        f"{key}{i}": 0.5 * shift[key] + rng.normal(size=dim) + 0.2 * rng.normal(size=(rows, dim))
        for key, n in SIZES.items()
        for i in range(n)
    }


def stacked(vectors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {key: np.concatenate([vectors[f"{key}{i}"] for i in range(n)]) for key, n in SIZES.items()}


def listed(vectors: dict[str, np.ndarray]) -> list[list[np.ndarray]]:
    return [[vectors[f"{key}{i}"] for i in range(n)] for key, n in SIZES.items()]


def run(vectors, calibrated=None, kind="weat", settings=FAST, also=(), test=None):
    return run_suite([found(test or make_test(), vectors)], vectors, calibrated, kind, settings, also)


@pytest.mark.parametrize("kind", list(KINDS))
def test_no_row_holds_nan_and_every_null_has_a_reason(kind):
    vectors, other = make_vectors(4), make_vectors(4, seed=1)
    made = run(vectors, other, kind, also=list(FURTHER))
    for row in made.rows:
        values = [v for v in row.values() if isinstance(v, float)]
        assert all(map(math.isfinite, values))
        assert row["d_raw"] is not None and row["d_calibrated"] is not None
        assert row["change"] == pytest.approx(row["d_calibrated"] - row["d_raw"])
        assert (row["status"] is None) == ("change_reason" in row)
        assert abs(row["d_raw"]) <= row["d_bound"]
    assert {row["metric"].split()[0] for row in made.further} == set(FURTHER)
    assert bool(made.map) == (kind == "ml_eat")


def test_weat_is_the_function_and_the_change_its_own():
    vectors, other = make_vectors(), make_vectors(seed=1)
    (row,) = run(vectors, other).rows
    before, after = stacked(vectors), stacked(other)
    for space, sets in (("raw", before), ("calibrated", after)):
        test = weat(*sets.values())
        assert row[f"d_{space}"] == test.effect_size and row[f"p_{space}"] == test.p_value
        assert row[f"method_{space}"] == "exact"
    scores = [
        (association_scores(s["X"], s["A"], s["B"]), association_scores(s["Y"], s["A"], s["B"]))
        for s in (before, after)
    ]
    change = paired_change(*scores, row["p_raw"], row["p_calibrated"], draws=200)
    assert (row["change_low"], row["change_high"]) == (change.interval.low, change.interval.high)
    assert (row["status"], row["flip_chance"]) == (change.status, change.flip_chance)


def test_a_rotation_changes_nothing():
    vectors = make_vectors()
    turn, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(12, 12)))
    (row,) = run(vectors, {word: rows @ turn for word, rows in vectors.items()}).rows
    assert row["change"] == pytest.approx(0.0, abs=1e-12)
    assert row["status"] == "Stable" and row["flip_chance"] == 0.0
    assert row["p_raw"] == row["p_calibrated"]


def test_single_target_tests_are_a_row_a_target_with_attributes_as_units():
    vectors = make_vectors()
    rows = run(vectors, kind="sc_weat").rows
    sets = stacked(vectors)
    assert [row["target"] for row in rows] == ["X", "Y"]
    for row in rows:
        test = sc_weat(sets[row["target"]], sets["A"], sets["B"])
        assert (row["d_raw"], row["p_raw"], row["partitions"]) == (test.effect_size, test.p_value, math.comb(10, 5))


def test_seat_keeps_the_sentences_of_a_word_together():
    vectors = make_vectors(rows=4)
    (row,) = run(vectors, kind="seat").rows
    direct = seat(*listed(vectors))
    assert row["partitions"] == math.comb(13, 6)
    assert row["d_raw"] == direct.test.effect_size
    assert row["d_sentences_raw"] == direct.effect_size_sentences
    x, y = word_scores(*listed(vectors))
    assert row["d_raw"] == pytest.approx((x.mean() - y.mean()) / np.concatenate([x, y]).std(ddof=1))
    with pytest.raises(RefbiasError, match="too few words"):
        word_scores([vectors["X0"]], *listed(vectors)[1:])


def test_ceat_has_no_status_but_an_interval_of_the_change():
    vectors = make_vectors(rows=4)
    noise = np.random.default_rng(3)
    other = {word: rows + 0.05 * noise.normal(size=rows.shape) for word, rows in vectors.items()}
    (row,) = run(vectors, other, kind="ceat").rows
    direct = ceat(*listed(vectors), samples=50, draws=1000)
    assert row["d_raw"] == direct.combined.ces
    assert row["p_raw"] == direct.combined.p_one_sided == row["p_one_sided_raw"]
    assert row["status"] is None and "number of samples" in row["change_reason"]
    assert row["change_low"] < row["change"] < row["change_high"]
    wide = row["ci_high_raw"] - row["ci_low_raw"]
    assert row["change_high"] - row["change_low"] < wide / 2  # what both spaces share has cancelled
    (two,) = run(vectors, kind="ceat", settings=Settings(samples=50, alternative="two-sided")).rows
    assert two["p_raw"] == direct.combined.p_two_sided


def test_no_change_of_ceat_between_a_space_and_itself():
    sets = listed(make_vectors(rows=3))
    low, high, reason = ceat_change(sets, sets, samples=50, draws=200)
    assert (low, high, reason) == (pytest.approx(0.0), pytest.approx(0.0), None)
    low, high, reason = ceat_change([sets[0][:1], *sets[1:]], sets, samples=50)
    assert low is None and "too few words" in reason


def test_three_levels_of_ml_eat():
    vectors = make_vectors()
    made = run(vectors, make_vectors(seed=1), kind="ml_eat")
    (row,) = made.rows
    direct = ml_eat(*stacked(vectors).values())
    assert (row["d_x_raw"], row["d_y_raw"]) == tuple(direct.level_2[t].effect_size for t in "XY")
    assert (row["leans_x_raw"], row["leans_y_raw"]) == direct.leans and row["pattern_raw"] == direct.pattern
    quadrants = [{k: v for k, v in q.items() if k not in ("test", "space")} for q in made.map if q["space"] == "raw"]
    assert quadrants == direct.map()
    assert len(made.map) == 8


def test_further_scores_are_those_of_the_functions():
    vectors = make_vectors(rows=3)
    made = run(vectors, also=["rnd", "rnsb", "same"]).further
    sides = {key: np.stack([vectors[f"{key}{i}"].mean(axis=0) for i in range(n)]) for key, n in SIZES.items()}
    scores = {(row["metric"], row["of"]): row["raw"] for row in made}
    assert scores["rnd", "X, Y; B"] == rnd(sides["X"], sides["Y"], sides["B"]).value
    assert scores["rnsb", "X, Y; A, B"] == rnsb([sides["X"], sides["Y"]], sides["A"], sides["B"]).value
    both = same(np.concatenate([sides["X"], sides["Y"]]), sides["A"], sides["B"])
    assert scores["same skew", "X and Y; A, B"] == both.parts["skew"]


def test_too_few_words_a_zero_vector_and_no_spread_are_null_with_a_reason():
    test, vectors = make_test(), make_vectors()
    few = {word: rows for word, rows in vectors.items() if not word.startswith("Y") or word == "Y0"}
    (row,) = run_suite([found(test, few)], few, few, settings=FAST, also=["rnd"]).rows
    assert row["d_raw"] is row["p_calibrated"] is row["status"] is None
    assert "1 of 7 in Y found" in row["reason"] and row["words_lost"] == 6 and row["lost"] == "Y1, Y2, Y3, Y4, Y5, Y6"
    zero = {**vectors, "X0": np.zeros((1, 12))}
    made = run(zero, vectors, also=["rnd"])
    assert "zero vector" in made.rows[0]["reason_raw"] and made.rows[0]["d_calibrated"] is not None
    assert made.rows[0]["change"] is None and made.rows[0]["change_reason"]
    assert made.further[0]["raw"] is None and "zero vector" in made.further[0]["reason_raw"]
    (flat,) = run({word: np.ones((1, 12)) for word in vectors}).rows
    assert flat["d_raw"] is None and "equal" in flat["reason_raw"]


def test_holm_is_over_the_suite_and_leaves_the_status_alone():
    tests = [make_test(f"T{i}") for i in range(4)]
    sets = make_vectors()
    plain = run_suite([found(t, sets) for t in tests], sets, None, settings=FAST)
    made = run_suite([found(t, sets) for t in tests], sets, None, settings=Settings(draws=200, holm=True))
    assert "p_adjusted_raw" not in plain.rows[0]
    for row, adjusted in zip(plain.rows, made.rows, strict=True):
        assert adjusted["p_adjusted_raw"] == pytest.approx(min(1.0, 4 * row["p_raw"]))


def test_counts_of_status():
    rows = [{"status": "Stable"}, {"status": "Stable"}, {"status": "Emerging"}, {"status": None}, {}]
    assert count_status(rows) == {"Stable": 2, "Disappearing": 0, "Emerging": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ddof": 2}, "ddof is 0 or 1: got 2"),
        ({"ties": "loose"}, "ties is one of inclusive, strict: got 'loose'"),
        ({"permutations": 0}, "permutations is at least 1"),
        ({"alpha": 1.0}, "alpha lies between 0 and 1"),
        ({"draws": 5}, "draws is at least 100"),
    ],
)
def test_settings_that_have_no_meaning_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Settings(**options)


def test_unknown_kinds_and_scores_are_refused():
    with pytest.raises(UsageError, match=r"No kind of test 'wat'. Did you mean 'weat'"):
        run(make_vectors(), kind="wat")
    with pytest.raises(UsageError, match=r"No further metric 'rdn'"):
        run(make_vectors(), also=["rdn"])
