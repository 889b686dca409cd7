"""A word is found where it stands as a word, and its tokens are those that stand for its characters."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refbias.encoders import HFEncoder
from refbias.encoders.hf import Pieces
from refbias.errors import RefbiasError, UsageError
from refbias.words.alignment import Finder, align
from tests.words.conftest import KINDS, TEXTS

WORDS = ["flute", "Adam", "New York", "York", "peace", "women", "mother", "mother-in-law", "Zoë", "Émile", "é", "a"]
# Words, parts of them, and everything that may stand between two of them.
PIECES = [*WORDS, "adam", "NEW YORK", "New  York", "Yorkshire", "flutes", "don't", "мир", "東京", "x" * 40, "Ünal"]
GLUE = [" ", ", ", "-", "'", "’s ", ".", " (", "“", "— ", "\u00a0", "_", ""]


@st.composite
def sentences(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(GLUE)), min_size=1, max_size=8))
    return "".join(piece + glue for piece, glue in parts)


@pytest.mark.parametrize(
    ("word", "sentence", "place"),
    [
        ("Adam", "Adam came.", (0, 4)),
        ("Adam", "An adam, Adams and McAdam.", None),
        ("York", "In (York) and New York.", (4, 8)),
        ("New York", "In York and New York.", (12, 20)),
        ("mother", "A mother-in-law, her mother.", (21, 27)),
        ("mother-in-law", "A mother-in-law.", (2, 15)),
        ("women", "The women's choir.", (4, 9)),
        ("women", "The women’s choir.", (4, 9)),
        ("don", "They don't.", None),
        ("amour", "A song of l'amour.", None),
        ("love", "“love”—love", (1, 5)),
        ("Zoë", "Zoë's café", (0, 3)),
        ("caf", "Zoë's café", None),
        ("мир", "Это мир.", (4, 7)),
        ("C++", "In C++, then.", (3, 6)),
        ("peace", "peace_time peace1 peace", (18, 23)),
    ],
)
def test_a_word_stands_between_characters_that_are_no_letters(
    word: str, sentence: str, place: tuple[int, int] | None
) -> None:
    finder = Finder([word])
    assert finder.first(word, sentence) == place
    assert ((sentence, word) in finder.candidates([sentence])) or place is None


def test_case_is_as_listed_unless_it_is_folded() -> None:
    assert Finder(["adam"]).first("adam", "Adam and ADAM") is None
    folded = Finder(["adam", "Émile"], case="fold")
    assert folded.first("adam", "Adam and ADAM") == (0, 4)
    assert folded.first("Émile", "ÉMILE") == (0, 5)
    assert list(folded.candidates(["Adam", "ÉMILE"])) == [("Adam", "adam"), ("ÉMILE", "Émile")]


def test_wrong_words_and_cases_are_refused() -> None:
    with pytest.raises(UsageError, match="A word to look up is empty: ' '"):
        Finder(["peace", " "])
    with pytest.raises(UsageError, match="case='any': expected exact or fold"):
        Finder(["peace"], case="any")  # type: ignore[arg-type]
    with pytest.raises(RefbiasError, match="line break"):
        list(Finder(["peace"]).candidates(["a\nb"]))


@settings(max_examples=150, deadline=None)
@given(st.lists(sentences(), max_size=5), st.sampled_from(["exact", "fold"]))
def test_the_pass_over_many_sentences_misses_nothing(texts: list[str], case: str) -> None:
    finder = Finder([*WORDS, "мир", "東京", "x" * 40], case)  # type: ignore[arg-type]
    found = set(finder.candidates(texts))
    for text in texts:
        for word in finder.words:
            assert (text, word) in found or finder.first(word, text) is None


@settings(max_examples=300, deadline=None)
@given(sentences(), st.sampled_from(WORDS))
def test_a_word_that_is_found_is_bounded_on_both_sides(text: str, word: str) -> None:
    place = Finder([word]).first(word, text)
    if place is None:
        assert not re.search(rf"(?:^|\s){re.escape(word)}(?:\s|$)", text)
        return
    start, end = place
    assert text[start:end] == word
    assert not (text[:start] and (text[start - 1].isalnum() or text[start - 1] == "_"))
    assert not (text[end:] and (text[end].isalnum() or text[end] == "_"))


def pieces_of(encoder: HFEncoder, sentence: str) -> Pieces:
    with encoder.model.open() as loaded:
        return encoder._tokenize(loaded, [sentence], located=True)[0].pieces


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_tokens_of_a_word_cover_it_and_no_other_token_touches_it(
    kind: str, encoders: dict[str, HFEncoder], data: st.DataObject
) -> None:
    sentence = data.draw(st.one_of(sentences(), st.sampled_from(TEXTS)).filter(str.strip))
    finder = Finder(WORDS)
    words = [word for word in WORDS if finder.first(word, sentence)]
    pieces = pieces_of(encoders[kind], sentence)
    for word in words:
        start, end = finder.first(word, sentence) or (0, 0)
        found = align((start, end), pieces)
        touching = [i for i, (left, right) in enumerate(pieces.spans) if left < right and left < end and right > start]
        if any(pieces.unknown[i] for i in touching):
            assert found.why == "unknown"
            continue
        assert list(found.tokens) == touching
        covered = {at for i in touching for at in range(*pieces.spans[i])}
        assert {at for at in range(start, end) if not sentence[at].isspace()} <= covered
        left, right = min(covered), max(covered) + 1
        assert found.beyond == ((left, right) != (start, end))
        assert not sentence[left].isspace() and not sentence[right - 1].isspace()


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_has_the_same_tokens_wherever_the_space_before_it_is_counted(
    kind: str, encoders: dict[str, HFEncoder]
) -> None:
    """In the middle of a sentence, at its start, after a quotation mark: exactly the tokens with its letters."""
    for sentence, word in [(TEXTS[0], "New York"), (TEXTS[1], "Adam"), (TEXTS[1], "peace"), (TEXTS[4], "flute")]:
        place = Finder([word]).first(word, sentence)
        assert place is not None
        found = align(place, pieces_of(encoders[kind], sentence))
        spans = [pieces_of(encoders[kind], sentence).spans[i] for i in found.tokens]
        text = "".join(sentence[left:right] for left, right in spans)
        assert text == word.replace(" ", "")
        assert not found.beyond and not found.why


def test_the_mark_of_a_word_start_is_no_token_of_the_word(encoders: dict[str, HFEncoder]) -> None:
    """SentencePiece's ▁ before "Émile" has an offset on its first letter, at the start of the sentence only."""
    encoder = encoders["metaspace"]
    with encoder.model.open() as loaded:
        tokens = loaded.tokenizer.convert_ids_to_tokens(loaded.tokenizer("ßx and ßx")["input_ids"])
    assert tokens[1] == "▁"
    pieces = pieces_of(encoder, "ßx and ßx")
    first, second = align((0, 2), pieces), align((7, 9), pieces)
    assert len(first.tokens) == len(second.tokens) == 3  # two bytes and a letter
    assert first.tokens[0] == 2


def test_a_word_that_is_cut_off_or_unknown_has_no_tokens() -> None:
    spans = ((0, 0), (0, 3), (4, 7), (7, 9))
    assert align((4, 9), Pieces(spans, (False,) * 4, True)).tokens == [2, 3]
    assert align((7, 12), Pieces(spans, (False,) * 4, True)).why == "cut"
    assert align((10, 12), Pieces(spans, (False,) * 4, True)).why == "cut"
    assert align((0, 3), Pieces(((0, 0), (4, 7)), (False,) * 2, True)).why == "cut"  # cut on the left
    assert align((4, 9), Pieces(spans, (False, False, False, True), False)).why == "unknown"
    assert align((10, 12), Pieces(spans, (False,) * 4, False)).why == "unknown"
    assert align((5, 6), Pieces(spans, (False,) * 4, False)).beyond
