import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from refbias.cache import Cache
from refbias.context import Context
from refbias.errors import RefbiasError
from refbias.finetuning.statements import Statement
from refbias.likelihood import continued, log_likelihoods, rendered, stored_scores, whole
from refbias.models import Model, find_model
from refbias.models.base import combined
from refbias.models.hf import load_tokenizer


def test_a_whole_text_follows_what_texts_begin_with(tiny: dict[str, Path]) -> None:
    for family, first in (("llama", "<s>"), ("gpt2", "<s>")):
        tokenizer = load_tokenizer(family, tiny[family])
        (row,) = whole(tokenizer, ["Tea."])
        assert row.ids == (
            tokenizer.convert_tokens_to_ids(first),
            *tokenizer("Tea.", add_special_tokens=False).input_ids,
        )
        assert row.begin == 1
    with pytest.raises(RefbiasError, match="neither BOS nor EOS"):
        whole(SimpleNamespace(bos_token_id=None, eos_token_id=None), ["Tea."])


def test_what_follows_is_scored(tiny_llama: Path) -> None:
    tokenizer = load_tokenizer("llama", tiny_llama)
    (row,) = continued(tokenizer, [("Tea.", "Tea. Women")])
    assert tokenizer.decode(row.ids[row.begin :]) == " Women"
    assert row.ids[0] == tokenizer.bos_token_id
    (row,) = rendered(tokenizer, [("<s>user: Tea.", "<s>user: Tea. Women")])
    assert tokenizer.decode(row.ids[row.begin :]) == " Women"
    assert list(row.ids).count(tokenizer.bos_token_id) == 1


def test_statements_keep_their_place_in_the_cache(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    log_likelihoods(model, [Statement("", "Women", "nap")], context)
    key = hashlib.sha256(b"Women\nnap").hexdigest()
    assert key in context.cache.store(combined("likelihood", "1", model.fingerprint, "float32")).get([key])


def test_what_is_kept_needs_no_model(tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scores(kept_at_once: int) -> list[list[float]]:
        monkeypatch.setattr("refbias.likelihood._KEPT_AT_ONCE", kept_at_once)
        cache = Cache(tmp_path / str(kept_at_once))
        model = find_model(tiny_llama, cache=cache)
        texts = ["Tea.", "Women walk home.", "A quiet grief.", "Tea."]
        return stored_scores(model, "whole", texts, whole, Context(cache), key=json.dumps).tolist()

    first = scores(2)
    assert np.array(first)[:, 0] == pytest.approx(np.array(scores(100))[:, 0], rel=1e-5)
    assert first[0] == first[3]
    monkeypatch.setattr(Model, "open_causal", lambda *args: pytest.fail("opened again"))
    assert scores(2) == first
