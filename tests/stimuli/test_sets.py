"""What the packaged sentences promise: sizes, lengths, grammar, and no word where it must not be."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from statistics import mean

import pytest

from refbias.stimuli import ANCHORS, ATTRIBUTES, GROUPS, TARGETS, packaged, topic_of

TARGET_SETS = [name for name in TARGETS if name not in ("control", "file")]
ATTRIBUTE_SETS = [name for name in ATTRIBUTES if name != "file"]
STAND_INS = ["anchors/alpaca_stand_in.txt", "anchors/tulu_stand_in.txt"]
TOPICS = {
    "Sexual orientation": ["Homosexuals"],
    "Religion": ["Muslims", "Christians", "Jews", "Buddhists", "Atheists"],
    "Race": ["Black people", "White people", "Asians", "Caucasians"],
    "Ethnicity": ["Mexicans", "Latin Americans"],
    "Gender": ["Women", "Men"],
    "Age": ["Old people", "Young people"],
    "Disability": ["Physically disabled people", "Able-bodied people"],
    "Socioeconomic status": ["Poor people", "Rich people"],
    "Nationality": ["Immigrants", "Canadians", "Americans", "Europeans"],
}
NAMES = {row["group"]: row for row in packaged.table("groups.csv")} | {
    row["control"]: row for row in packaged.table("controls.csv")
}
GROUP_PARTS = (
    {part for group in GROUPS for part in re.split(r"[ -]", group.lower())}
    | {"woman", "man", "muslim", "christian", "jew", "jewish", "buddhist", "atheist", "asian", "caucasian", "mexican"}
    | {"homosexual", "american", "immigrant", "canadian", "european", "disability", "poverty", "wealth", "gay", "race"}
)


def words_of(sentences: Iterable[str]) -> set[str]:
    return {word for sentence in sentences for word in re.findall(r"[a-z]+", sentence.lower())}


def length(sentences: Iterable[str]) -> float:
    return mean(len(sentence.split()) for sentence in sentences)


def named(group: str) -> re.Pattern[str]:
    """The name as a whole word, in both its forms."""
    return re.compile(rf"\b({NAMES[group]['noun']}|{NAMES[group]['mid']})\b")


def flat(targets: dict[str, list[str]]) -> list[str]:
    return [sentence for sentences in targets.values() for sentence in sentences]


def all_anchors() -> dict[str, list[str]]:
    made = {name: list(packaged.lines(name)) for name in [*STAND_INS, "words.txt"]}
    return made | {"neutral": ANCHORS["neutral"]()}


def test_groups_and_topics_are_those_of_the_paper():
    assert list(GROUPS) == [group for groups in TOPICS.values() for group in groups]
    assert {group: topic_of(group) for group in GROUPS} == {g: topic for topic, gs in TOPICS.items() for g in gs}
    assert topic_of("Gardeners") is None


@pytest.mark.parametrize("name", [*TARGET_SETS, "control"])
def test_targets_have_50_sentences_for_each_of_24_names(name):
    targets = TARGETS[name]()
    assert {group: len(sentences) for group, sentences in targets.items()} == dict.fromkeys(targets, 50)
    assert len(targets) == 24
    assert name == "control" or tuple(targets) == GROUPS
    assert len(set(flat(targets))) == 1200


def test_control_names_have_as_many_words_as_the_group_names():
    control = TARGETS["control"]()
    assert Counter(len(name.split()) for name in control) == Counter(len(group.split()) for group in GROUPS)
    assert not words_of(control) & GROUP_PARTS
    assert length(flat(control)) == length(flat(TARGETS["base"]()))


@pytest.mark.parametrize("name", [*TARGET_SETS, "control"])
def test_mean_length_of_targets_is_about_seven_words(name):
    # a passive needs two words more, "are … by"
    longest = 8.5 if name.startswith("passive") else 7.5
    assert 6.5 <= length(flat(TARGETS[name]())) <= longest


@pytest.mark.parametrize("name", [*TARGET_SETS, "control"])
def test_row_i_is_the_same_template_for_every_group(name):
    def template(group: str, sentence: str) -> str:
        return named(group).sub("@", sentence)

    targets = TARGETS[name]()
    rows = {tuple(template(group, s) for s in sentences) for group, sentences in targets.items()}
    assert len(rows) == 1
    assert all(row.count("@") == 1 for row in rows.pop())


def test_variants_are_aligned_with_base_by_their_template_rows():
    columns = packaged.table("templates/targets.csv")
    for name in TARGET_SETS:
        expected = [row[name].replace("{G}", "Women").replace("{g}", "women") for row in columns]
        assert TARGETS[name]()["Women"] == expected


@pytest.mark.parametrize("name", ["passive", "passive_rephrased"])
def test_passive_sentences_name_the_group_after_the_verb(name):
    starts = [s for group, sentences in TARGETS[name]().items() for s in sentences if s.startswith(group)]
    assert starts == []


def named_sentences() -> list[tuple[str, str]]:
    sets = [TARGETS[name]() for name in [*TARGET_SETS, "control"]] + [packaged.by_key("anchors/neutral.csv", "group")]
    return [(group, s) for targets in sets for group, sentences in targets.items() for s in sentences]


@pytest.mark.parametrize("group", list(NAMES))
def test_each_name_is_written_as_its_place_in_the_sentence_asks(group):
    noun, mid = NAMES[group]["noun"], NAMES[group]["mid"]
    assert noun[0].isupper()
    assert noun == group
    assert mid in (noun, noun[0].lower() + noun[1:])
    sentences = [s for g, s in named_sentences() if g == group]
    assert len(sentences) >= 50
    for sentence in sentences:
        assert (sentence.startswith(f"{noun} ")) != (re.search(rf" {re.escape(mid)}\b", sentence) is not None)
        assert len(named(group).findall(sentence)) == 1


@pytest.mark.parametrize(
    ("group", "mid"),
    [("Muslims", "Muslims"), ("Black people", "Black people"), ("White people", "White people"), ("Women", "women"),
     ("Latin Americans", "Latin Americans"), ("Atheists", "atheists"), ("Old people", "old people"),
     ("Able-bodied people", "able-bodied people"), ("Immigrants", "immigrants")],
)  # fmt: skip
def test_names_of_faiths_races_and_nations_keep_their_capital(group, mid):
    assert NAMES[group]["mid"] == mid


def test_every_sentence_is_one_clean_sentence():
    attributes = [s for name in ATTRIBUTE_SETS for side in ATTRIBUTES[name]() for s in side]
    stand_ins = [s for name in STAND_INS for s in packaged.lines(name)]
    for sentence in [s for _, s in named_sentences()] + attributes + stand_ins:
        assert sentence == sentence.strip()
        assert sentence[0].isupper() or sentence[0] == '"'
        assert sentence[-1] in ".?"
        assert not re.search(r"[{}]|  | [.,]|\b(\w+) \1\b", sentence), sentence
        assert not re.search(r"\ba (?!one\b)[aeiou]|\ban (?!hour)[^aeiou]", sentence), sentence


@pytest.mark.parametrize("name", ATTRIBUTE_SETS)
def test_attributes_are_100_and_100_and_unique(name):
    positive, negative = ATTRIBUTES[name]()
    assert (len(positive), len(negative)) == (100, 100)
    assert len({*positive, *negative}) == 200


@pytest.mark.parametrize("name", ATTRIBUTE_SETS)
def test_mean_length_of_attributes_is_about_seven_words(name):
    # "The person's gift" has a word more than "The gift"
    longest = 8.0 if name == "subject_person" else 7.5
    for side in ATTRIBUTES[name]():
        assert 6.5 <= length(side) <= longest


@pytest.mark.parametrize("name", ATTRIBUTE_SETS)
def test_positive_and_negative_differ_in_one_word_of_valence_only(name):
    positive_words, negative_words = (set(packaged.lines(f"valence_{v}.txt")) for v in ("positive", "negative"))
    for positive, negative in zip(*ATTRIBUTES[name](), strict=True):
        pairs = zip(positive.rstrip(".").split(), negative.rstrip(".").split(), strict=True)
        [(good, bad)] = [(a, b) for a, b in pairs if a != b]
        assert good in positive_words
        assert bad in negative_words


@pytest.mark.parametrize("name", ATTRIBUTE_SETS)
def test_attributes_name_no_group(name):
    allowed = {"people"} if name == "subject_person" else set()
    assert words_of(s for side in ATTRIBUTES[name]() for s in side) & GROUP_PARTS <= allowed


@pytest.mark.parametrize(
    ("name", "starts"),
    [("base", ("The ",)), ("subject_they", ("They ", "Their ")), ("subject_person", ("The person", "The people "))],
)
def test_subjects_of_attributes(name, starts):
    sentences = [s for side in ATTRIBUTES[name]() for s in side]
    assert all(s.startswith(starts) for s in sentences)
    assert {start for start in starts if any(s.startswith(start) for s in sentences)} == set(starts)


@pytest.mark.parametrize("name", [n for n in ATTRIBUTE_SETS if n != "base"])
def test_attribute_variants_change_every_row(name):
    for base, variant in zip(ATTRIBUTES["base"](), ATTRIBUTES[name](), strict=True):
        assert all(a != b for a, b in zip(base, variant, strict=True))


@pytest.mark.parametrize("name", [*TARGET_SETS, "control", "neutral", *STAND_INS, "words.txt"])
def test_no_word_of_valence_outside_the_attributes(name):
    valence = {word for v in ("positive", "negative") for word in packaged.lines(f"valence_{v}.txt")}
    assert len(valence) > 400
    sentences = flat(TARGETS[name]()) if name in TARGETS else all_anchors()[name]
    assert words_of(sentences) & valence == set()


def test_no_word_is_both_positive_and_negative():
    assert not set(packaged.lines("valence_positive.txt")) & set(packaged.lines("valence_negative.txt"))


def test_no_sentence_stands_in_two_sets():
    sets = {f"targets {name}": flat(TARGETS[name]()) for name in [*TARGET_SETS, "control"]}
    sets |= all_anchors()
    sets["attributes"] = list({s for name in ATTRIBUTE_SETS for side in ATTRIBUTES[name]() for s in side})
    counts = Counter(s for sentences in sets.values() for s in sentences)
    assert [s for s, count in counts.items() if count > 1] == []


def test_neutral_anchors_name_the_groups_evenly_in_many_frames():
    by_group = packaged.by_key("anchors/neutral.csv", "group")
    assert tuple(by_group) == GROUPS
    assert Counter(map(len, by_group.values())) == {42: 16, 41: 8}
    frames = {group: [named(group).sub("@", s) for s in sentences] for group, sentences in by_group.items()}
    uses = Counter(frame.lower() for sentences in frames.values() for frame in sentences)
    assert len(uses) >= 200
    assert set(uses.values()) == {4}
    assert len({frozenset(sentences) for sentences in frames.values()}) == 24
    assert 6.5 <= length(flat(by_group)) <= 7.5


@pytest.mark.parametrize("name", STAND_INS)
def test_stand_ins_are_instruction_like(name):
    sentences = packaged.lines(name)
    assert len(set(sentences)) == 1000
    assert 17 <= length(sentences) <= 23
    assert words_of(sentences) & (GROUP_PARTS - {"people"}) == set()
    fillers = [
        f for line in packaged.lines("templates/instruction_fillers.txt") for f in line.split(": ")[1].split("; ")
    ]
    fillers.sort(key=len, reverse=True)
    frames = {re.sub("|".join(map(re.escape, fillers)), "@", sentence, count=1) for sentence in sentences}
    assert len(frames) >= 150


def test_word_anchors_are_1000_words_at_least_with_their_source():
    listed = packaged.lines("words.txt")
    assert len(listed) >= 1000
    assert len(set(listed)) == len(listed)
    assert all(re.fullmatch("[a-z]{2,}", word) for word in listed)
    assert not set(listed) & GROUP_PARTS


def test_a_caller_that_changes_a_set_changes_only_its_own():
    TARGETS["base"]()["Women"].clear()
    ATTRIBUTES["base"]()[0].clear()
    assert len(TARGETS["base"]()["Women"]) == 50
    assert len(ATTRIBUTES["base"]()[0]) == 100


def test_slugs_of_the_table_are_those_of_the_function():
    for table, key in (("groups.csv", "group"), ("controls.csv", "control")):
        for row in csv.DictReader((packaged._data() / table).read_text(encoding="utf-8").splitlines()):
            assert packaged.slug(row[key]) == row["slug"]
