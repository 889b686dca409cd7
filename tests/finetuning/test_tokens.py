from pathlib import Path

import pytest

from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.finetuning.statements import Statement
from refbias.finetuning.tokens import tokenize
from refbias.models import find_model


@pytest.mark.parametrize(("family", "extra"), [("llama", 1), ("gpt2", 0)])
def test_the_predicate_begins_behind_the_noun(family: str, extra: int, tiny: dict[str, Path], cache: Cache) -> None:
    with find_model(tiny[family], cache=cache).open_causal() as loaded:
        tokenizer = loaded.tokenizer
        (row,) = tokenize(tokenizer, [Statement("Women", "Women", "keep promises")])
        noun, rest = row.ids[: row.begin], row.ids[row.begin :]
    assert tokenizer.decode(noun, skip_special_tokens=True) == "Women"
    assert tokenizer.decode(rest) == " keep promises."
    assert (noun[0] == tokenizer.bos_token_id) == bool(extra)
    assert row.scored == len(rest)


def test_special_tokens_behind_the_text_are_left_out(tiny: dict[str, Path], cache: Cache) -> None:
    with find_model(tiny["bert"], cache=cache).open() as loaded:
        (row,) = tokenize(loaded.tokenizer, [Statement("Women", "Women", "keep promises")])
        assert row.ids[-1] not in loaded.tokenizer.all_special_ids


def test_a_statement_without_a_noun_cannot_be_scored(tiny: dict[str, Path], cache: Cache) -> None:
    with (
        find_model(tiny["gpt2"], cache=cache).open_causal() as loaded,
        pytest.raises(RefbiasError, match="none can be scored"),
    ):
        tokenize(loaded.tokenizer, [Statement("", "", "keep promises")])
