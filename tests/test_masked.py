from pathlib import Path

import pytest
import torch
import transformers

from refbias.context import Context
from refbias.errors import RefbiasError
from refbias.masked import Masked, content_places, masked_log_probs, open_masked
from refbias.models import find_model
from refbias.models.hf import load_tokenizer
from tests.tiny_models import SENTENCES
from tests.tiny_models_masked import write_masked

FAMILIES = ("bert", "roberta", "distilbert")


@pytest.mark.parametrize("family", FAMILIES)
def test_each_token_is_scored_with_itself_masked_alone(family: str, tmp_path: Path, context: Context) -> None:
    folder = write_masked(family, tmp_path / family)
    model = find_model(folder, cache=context.cache)
    with open_masked(model, context) as (whole, tokenizer):
        rows = []
        for sentence in SENTENCES[:4]:
            ids = tuple(tokenizer(sentence)["input_ids"])
            rows.append(Masked(ids, tuple(content_places(tokenizer, ids))))
        rows.append(Masked(rows[0].ids, ()))
        done: list[int] = []
        found = masked_log_probs(whole, tokenizer.mask_token_id, rows, done.append)
    assert sum(done) == len(rows)
    own = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    for row, values in zip(rows, found, strict=True):
        assert 0 not in row.places and len(row.ids) - 1 not in row.places
        assert len(values) == len(row.places)
        for place, value in zip(row.places, values, strict=True):
            ids = torch.tensor([row.ids])
            ids[0, place] = tokenizer.mask_token_id
            with torch.inference_mode():
                logs = own(input_ids=ids).logits[0, place].double().log_softmax(-1)
            assert value == pytest.approx(logs[row.ids[place]].item(), rel=1e-4)


def test_a_model_in_memory(tmp_path: Path, context: Context) -> None:
    folder = write_masked("bert", tmp_path / "bert")
    own = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    model = find_model((own, load_tokenizer("bert", folder)), cache=context.cache)
    with open_masked(model, context) as (whole, _):
        assert whole is own


def test_models_without_a_masked_head(tiny: dict[str, Path], context: Context) -> None:
    with (
        pytest.raises(RefbiasError, match=r"bert has no head that predicts masked tokens: its files lack \d+ weights"),
        open_masked(find_model(tiny["bert"], cache=context.cache), context),
    ):
        pass
