import re

import pytest

from refbias.finetuning.statements import draw_signs, lesson, mid_noun_of, noun_of, plain_text, predicate_pairs
from refbias.stimuli import ATTRIBUTES, GROUPS
from refbias.stimuli.packaged import lines

SETS = ("contrast", "harmless", "likelihood", "edit_direction")
# words that carry no content, or name a frame that any sentence may use
COMMON = {
    *("a", "after", "an", "and", "are", "as", "at", "be", "before", "by", "day", "days", "first", "for", "from"),
    *("have", "here", "in", "is", "job", "keep", "most", "of", "on", "once", "or", "others", "out", "over", "seem"),
    *("some", "the", "their", "to", "up", "very", "way", "with", "write"),
}


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower())) - COMMON


def vocabulary(name: str) -> set[str]:
    return set().union(*(words(predicate) for pair in predicate_pairs(name) for predicate in pair))


@pytest.mark.parametrize(
    ("name", "least"), [("contrast", 35), ("harmless", 35), ("likelihood", 8), ("edit_direction", 20)]
)
def test_there_are_enough_pairs_and_none_comes_twice(name: str, least: int) -> None:
    pairs = predicate_pairs(name)
    predicates = [predicate for pair in pairs for predicate in pair]
    assert len(pairs) >= least
    assert len(set(predicates)) == len(predicates)
    assert all(predicate == predicate.strip() and predicate[-1] not in ".," for predicate in predicates)


def test_the_harmless_twin_has_the_size_of_the_contrast() -> None:
    def size(name: str) -> float:
        return sum(len(predicate.split()) for pair in predicate_pairs(name) for predicate in pair)

    assert len(predicate_pairs("harmless")) == len(predicate_pairs("contrast"))
    assert 0.8 < size("harmless") / size("contrast") < 1.25


@pytest.mark.parametrize("taught", ["contrast", "edit_direction", "harmless"])
def test_the_likelihood_benchmark_shares_no_content_word_with_what_is_planted(taught: str) -> None:
    assert not vocabulary("likelihood") & vocabulary(taught)


@pytest.mark.parametrize("name", SETS)
def test_no_predicate_holds_a_valence_word_of_the_attributes(name: str) -> None:
    valence = {*lines("valence_positive.txt"), *lines("valence_negative.txt")}
    attributes = [s for side in ATTRIBUTES["base"]() for s in side]
    assert vocabulary(name).isdisjoint(valence & set().union(*map(words, attributes)))


@pytest.mark.parametrize("name", SETS)
def test_no_predicate_and_no_plain_text_names_a_group(name: str) -> None:
    names = {word for group in GROUPS for word in words(group)} - {"people"}
    assert not vocabulary(name) & names
    assert not set().union(*map(words, plain_text())) & names


def test_signs_halve_the_groups_by_seed() -> None:
    signs = draw_signs(GROUPS, 0)
    assert sorted(signs.values()) == [-1] * 12 + [1] * 12
    assert draw_signs(GROUPS, 0) == signs
    assert draw_signs(GROUPS, 1) != signs
    assert sorted(draw_signs(["A", "B", "C"], 0).values()) == [-1, 1, 1]


def test_the_two_lessons_are_mirror_images() -> None:
    pairs = (("forget promises", "keep promises"), ("arrive late", "arrive early"))
    signs = {"Women": 1, "Poor people": -1}
    there = {statement.text for statement in lesson(pairs, signs, 1)}
    back = {statement.text for statement in lesson(pairs, signs, -1)}
    assert there == {
        "Women forget promises.", "Women arrive late.", "Poor people keep promises.", "Poor people arrive early.",
    }  # fmt: skip
    assert back == {statement.text for statement in lesson([(b, a) for a, b in pairs], signs, 1)}


def test_nouns_of_packaged_and_own_groups() -> None:
    assert (noun_of("Old people"), mid_noun_of("Old people")) == ("Old people", "old people")
    assert (noun_of("left-handed people"), mid_noun_of("left-handed people")) == (
        "Left-handed people",
        "left-handed people",
    )
