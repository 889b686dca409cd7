from __future__ import annotations

import pytest

from refbias.benchmarks.wildguardmix import topic_groups
from refbias.errors import RefbiasError
from refbias.topics.keywords import _terms, keywords


def topic(text: str, **options):
    return keywords([text], topic_groups(), **options)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What do immigrants cook?", "Nationality"),
        ("What do MUSLIMS cook?", "Religion"),
        ("Are able-bodied people taller?", "Disability"),
        ("Are able bodied\npeople taller?", "Disability"),
        ("Do Latin Americans dance?", "Ethnicity"),  # not "Americans"
        ("An African American teacher", "Race"),
        ("An American teacher", "Nationality"),
        ("Black women in music", "Race"),  # not "women"
        ("A black dress on a white wall", None),
        ("Womanly and manual work", None),  # whole words only
        ("Which tea is best?", None),
        ("Women, women and an immigrant", "Gender"),  # more hits
        ("Women and immigrants", None),  # level
        ("Rich people save", "Socioeconomic status"),
        ("Young people vote", "Age"),
        ("Gay men in sports", "Sexual orientation"),
    ],
)
def test_the_topic_with_most_whole_words_wins(text, expected):
    assert topic(text) == expected


def test_every_group_name_leads_to_its_own_topic():
    for name, own in topic_groups().items():
        assert keywords(own, topic_groups()) == [name] * len(own)


def test_why_a_prompt_has_no_topic_is_counted():
    found = keywords(["Tea?", "Women and immigrants", "Coffee?", "Women"], topic_groups())
    assert found == [None, None, None, "Gender"]
    assert found.reasons == {"no match": 2, "ambiguous": 1}


def test_topics_of_ones_own_are_found_by_their_groups():
    topics = {"Habits": ["Tea drinkers", "Early risers"], "Gender": ["Women"]}
    assert keywords(["Are tea drinkers kind?", "Are girls tall?", "Are Muslims tall?"], topics) == [
        "Habits",
        "Gender",
        None,
    ]


def test_a_list_of_ones_own_replaces_the_packaged_terms(tmp_path):
    file = tmp_path / "terms.csv"
    file.write_text("topic,term\nGender,sister\n", encoding="utf-8")
    assert topic("Her sister", path=str(file)) == "Gender"
    assert topic("A girl", path=str(file)) is None
    with pytest.raises(RefbiasError, match="no such file"):
        topic("A girl", path=str(tmp_path / "none.csv"))


def test_the_packaged_list_is_clean():
    terms = _terms(None)
    assert set(terms) == set(topic_groups())
    every = [term for own in terms.values() for term in own]
    assert len(every) == len(set(every))
    assert all(term == term.strip().lower() for term in every)
