"""Text to sentences, WikiText as it is written, and even samples."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refbias.corpora.sentences import detokenized, form_of, paragraph, sample, split, wikitext


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rains.", "The sun shines!", "Does it?", "It does."],
        ["Mr. Smith met Dr. J. R. Jones in St. Albans.", "They spoke of Vol. 3."],
        ["He said: “Come in.”", "She came.", '"So?"', "(It was late.)", "So they left."],
        ["It cost 3.5 million, e.g. for Prof. A. Lee et al. in 1999.", "2000 was better."],
        ["It grew ca. 3 cm.", "É. Zola wrote it… and left.", "Über alles."],
        ["no capital. here, nor end"],
    ],
)
def test_paragraphs_are_split_where_sentences_end(sentences: list[str]) -> None:
    assert list(paragraph(" ".join(sentences))) == sentences


@given(st.lists(st.sampled_from(["It is.", "Mr. X said so!", '"No."', "a", "B. C", "Why (so)?"]), max_size=8))
def test_splitting_loses_nothing(parts: list[str]) -> None:
    text = " ".join(parts)
    assert " ".join(paragraph(text)) == text


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("= = Life cycle = =", []),
        ("It is red @-@ tipped , 2 @.@ 7 kg ( 6 lb ) , 1 @,@ 000 m .", ["It is red-tipped, 2.7 kg (6 lb), 1,000 m."]),
        ('He is " lobster red " . He said : " I am . " So it is .', None),
        ("Mr. Lee 's Beatles ' songs don 't cost $ 5 [ sic ] ; do they ? Yes !", None),
        ("H. gammarus is <unk> here . H. americanus is not .", ["H. americanus is not."]),
        ('" Why ? " he asked . " No . No . "', ['"Why?" he asked.', '"No.', 'No."']),
        ("It ends here . and goes on .", ["It ends here. and goes on."]),
    ],
)
def test_wikitext_is_written_as_usual(line: str, sentences: list[str] | None) -> None:
    expected = sentences or {
        "H": ['He is "lobster red".', 'He said: "I am."', "So it is."],
        "M": ["Mr. Lee's Beatles' songs don't cost $5 [sic]; do they?", "Yes!"],
        "=": [],
    }.get(line[0], [])
    assert [detokenized(sentence) for sentence in wikitext(line)] == expected


def test_the_form_shows_in_the_text() -> None:
    assert form_of(" \n = Homarus gammarus = \n \n Text .") == "wikitext"
    assert form_of("a hard @-@ shelled male") == "wikitext"
    assert form_of("An equation: a = b = c.\nMail me @ home - please.") == "text"


def test_lengths_are_counted_in_tokens_as_they_stand() -> None:
    lines = ["One two three four. Five six.\n", "  \t\n", "Seven \t eight  nine.\r\n"]
    assert list(split(lines, "text", 3, 4)) == ["One two three four.", "Seven eight nine."]
    assert list(split(lines, "sentences", 1, 9)) == ["One two three four. Five six.", "Seven eight nine."]
    assert list(split(["It is , yes .\n"], "wikitext", 5, 5)) == ["It is , yes ."]
    assert not list(split(["It is , yes .\n"], "wikitext", 6, 9))


@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 5))
def test_a_sample_holds_what_there_is_once(count: int, most: int, seed: int) -> None:
    items = [str(i) for i in range(count)]
    found = sample(iter(items), most, seed)
    assert len(found) == len(set(found)) == min(count, most)
    assert set(found) <= set(items)
    assert sample(iter(items), most, seed) == found


def test_a_sample_is_even_and_in_random_order() -> None:
    items = [str(i) for i in range(20)]
    samples = [sample(items, 5, seed) for seed in range(2000)]
    spread = (2000 * 0.25 * 0.75) ** 0.5
    counts = Counter(item for found in samples for item in found)
    assert max(abs(counts[item] - 500) for item in items) < 4 * spread
    firsts = Counter(found[0] for found in samples)
    assert max(abs(firsts[item] - 100) for item in items) < 4 * 100**0.5
