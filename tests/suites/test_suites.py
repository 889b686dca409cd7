"""The packaged lists: sizes, differences between versions, agreement with WEFE's data; words that a model lacks."""

from __future__ import annotations

import json
import os
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from refbias.errors import RefbiasError, UsageError
from refbias.suites import SUITES, Test, found

VERSIONS = sorted(set(SUITES) - {"file"})

# test -> set -> (words only in caliskan2017, words only in the version)
ITALIC_16 = {"X": (set(), {"Jay", "Kristen"}), "Y": (set(), {"Tremayne", "Latonya"})}
ITALIC_32 = {
    "X": (set(), {
        "Chip", "Ian", "Fred", "Jed", "Todd", "Brandon", "Hank", "Wilbur", "Sara", "Amber", "Crystal", "Meredith",
        "Shannon", "Donna", "Bobbie-Sue", "Peggy", "Sue-Ellen", "Wendy",
    }),
    "Y": (set(), {
        "Lerone", "Percell", "Rasaan", "Rashaun", "Everol", "Terryl", "Aiesha", "Lashelle", "Temeka", "Tameisha",
        "Teretha", "Latonya", "Shanise", "Sharise", "Tashika", "Lashandra", "Shavonn", "Tawanda",
    }),
}  # fmt: skip
SHORT = {"A": ({"short-term"}, {"short"})}
DIFFERENCES = {
    "caliskan2017": {},
    "printed": {"W3": ITALIC_32, "W4": ITALIC_16, "W5": ITALIC_16},
    "wefe": {"W4": ITALIC_16, "W5": ITALIC_16, "W9": SHORT, "W10": {"X": ({"Billy"}, {"Bill"})}},
    "sent_bias": {"W5": ITALIC_16},
    "xweat": {"W1": {"X": ({"bluebell"}, {"blue-bell"})}, "W3": ITALIC_32, "W4": ITALIC_16, "W5": ITALIC_16},
    "ceat": {
        "W1": {"X": ({"gladiola"}, set()), "Y": ({"blackfly"}, set())},
        "W3": {
            "X": ({"Betsy", "Justin", "Frank", "Josh", "Heather"}, set()),
            "Y": ({"Jamel", "Shereen", "Latisha", "Lakisha", "Malika"}, set()),
        },
        "W4": {"X": ({"Neil"}, set()), "Y": ({"Lakisha"}, set())},
        "W5": {"X": ({"Neil"}, set()), "Y": ({"Lakisha"}, set())},
        "W9": SHORT,
    },
    "word2vec": {"W2": {"X": ({"banjo"}, set()), "Y": ({"axe"}, set())}, "W5": ITALIC_16, "W9": SHORT},
}

# test -> names of X, Y, A and B in WEFE's data
WEFE = {
    "W1": ("flowers", "insects", "pleasant_5", "unpleasant_5a"),
    "W2": ("instruments", "weapons", "pleasant_5", "unpleasant_5a"),
    "W3": ("european_american_names_5", "african_american_names_5", "pleasant_5", "unpleasant_5b"),
    "W4": ("european_american_names_7", "african_american_names_7", "pleasant_5", "unpleasant_5b"),
    "W5": ("european_american_names_7", "african_american_names_7", "pleasant_9", "unpleasant_9"),
    "W6": ("male_names", "female_names", "career", "family"),
    "W7": ("math", "arts", "male_terms", "female_terms"),
    "W8": ("science", "arts_2", "male_terms_2", "female_terms_2"),
    "W9": ("mental_disease", "physical_disease", "temporary", "permanent"),
    "W10": ("young_people_names", "old_people_names", "pleasant_9", "unpleasant_9"),
}


def by_id(version: str) -> dict[str, Test]:
    return {test.id: test for test in SUITES[version]()}


def test_sizes_and_categories():
    tests = by_id("caliskan2017")
    assert list(tests) == [f"W{i}" for i in range(1, 11)]
    sizes = {name: tuple(map(len, test.sets().values())) for name, test in tests.items()}
    assert sizes["W1"] == sizes["W2"] == (25, 25, 25, 25)
    assert (sizes["W3"], sizes["W4"], sizes["W5"]) == ((32, 32, 25, 25), (16, 16, 25, 25), (16, 16, 8, 8))
    assert sizes["W6"] == sizes["W7"] == sizes["W8"] == sizes["W10"] == (8, 8, 8, 8)
    assert sizes["W9"] == (6, 6, 7, 7)
    assert Counter(t.category for t in tests.values()) == {
        "valence": 2, "race": 3, "gender": 3, "health": 1, "age": 1,
    }  # fmt: skip
    assert tests["W3"].B != tests["W1"].B  # bomb and evil for agony and prison
    assert tests["W6"].name == "Male names / Female names × career / family"


def test_every_version_is_listed_here():
    assert set(DIFFERENCES) == set(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_differences_from_caliskan2017_are_exactly_these(version):
    base = by_id("caliskan2017")
    differences = {
        name: {key: (set(here), set(there)) for key, (here, there) in base[name].differences(test).items()}
        for name, test in by_id(version).items()
    }
    assert {name: sets for name, sets in differences.items() if sets} == DIFFERENCES[version]
    for test in SUITES[version]():
        assert test.list_version == version and test.source


def test_the_lists_of_wefe():
    spec = find_spec("wefe")
    folder = os.environ.get("REFBIAS_WEFE") or (str(Path(spec.origin).parent) if spec else "")
    path = Path(folder, "datasets/data/WEAT.json")
    if not folder or not path.is_file():
        pytest.skip("needs the package wefe, or REFBIAS_WEFE=its folder")
    lists = json.loads(path.read_text(encoding="utf-8"))
    for name, test in by_id("wefe").items():
        assert tuple(test.sets().values()) == tuple(tuple(lists[key]) for key in WEFE[name])


def test_tests_by_id():
    assert [test.id for test in SUITES["wefe"](tests=["W9", "W1"])] == ["W9", "W1"]
    with pytest.raises(UsageError, match="No test 'W11' in this suite. Available: W1, W2"):
        SUITES["wefe"](tests=["W11"])


def made(X="a b c d e", Y="f g h", A="p q", B="r s") -> Test:
    words = {key: tuple(text.split()) for key, text in zip("XYAB", (X, Y, A, B), strict=True)}
    return Test.of(words, {key: key for key in "XYAB"}, id="T", name="", category="", source="", list_version="")


def test_drop_reports_what_is_lost():
    left = found(made(), set("abcfghpqr"))
    assert left.words == {"X": ("a", "b", "c"), "Y": ("f", "g", "h"), "A": ("p", "q"), "B": ("r",)}
    assert left.lost == {"X": ("d", "e"), "Y": (), "A": (), "B": ("s",)}
    assert left.sizes == {"X": (5, 3), "Y": (3, 3), "A": (2, 2), "B": (2, 1)}
    assert (left.n_found, left.n_lost, left.reason) == (9, 3, None)
    assert left.report() == "T: lost d, e, s (X 5 → 3, B 2 → 1)."
    assert found(made(), set("abcdefghpqrs")).report() == "T: all 12 words found."


def test_fail_names_the_words():
    with pytest.raises(RefbiasError, match="the model has no e, s. Use the policy drop or balance"):
        found(made(), set("abcdfghpqr"), "fail")
    assert found(made(), set("abcdefghpqrs"), "fail").n_lost == 0


def test_balance_takes_words_out_of_the_larger_target_set():
    every = set("abcdefghpqrs")
    left = found(made(), every - {"h"}, "balance", seed=1)
    assert len(left.words["X"]) == len(left.words["Y"]) == 2
    assert len(left.trimmed["X"]) == 3 and left.trimmed["Y"] == ()
    assert "left out for balance" in left.report()
    assert left.words["X"] == tuple(sorted(left.words["X"]))  # the order stays
    assert found(made(), every - {"h"}, "balance", seed=1) == left
    assert len({found(made(), every, "balance", seed=s).words["X"] for s in range(20)}) > 3


@pytest.mark.parametrize(("vocabulary", "reason"), [
    ("a fgh pqrs", "too few words: 1 of 5 in X found, at least 2 needed"),
    ("abc fgh pq", "too few words: 0 of 2 in B found, at least 1 needed"),
])  # fmt: skip
def test_too_few_words_give_the_reason(vocabulary, reason):
    assert found(made(), vocabulary).reason == reason


def test_unknown_policy():
    with pytest.raises(UsageError, match="one of drop, fail, balance: got 'ignore'"):
        found(made(), set(), "ignore")


@pytest.mark.parametrize(("sets", "message"), [
    ({"A": ""}, "set A is empty"),
    ({"X": "a a b"}, "set X holds 'a' twice"),
    ({"Y": "f a"}, "'a' is in both X and Y"),
    ({"B": "q z"}, "'q' is in both A and B"),
])  # fmt: skip
def test_lists_are_checked(sets, message):
    with pytest.raises(RefbiasError, match=message):
        made(**sets)
