import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from refbias.benchmarks.stereoset import Example, filling, percentages, read, sentence_scores, stereoset
from refbias.checkpoints import Checkpoint
from refbias.context import Context
from refbias.errors import RefbiasError
from refbias.models import Model, find_model
from tests.tiny_models_masked import write_masked

INTRA = [
    ("gender", "gardener", "The gardener likes BLANK.", ("tea", "home", "several")),
    ("gender", "gardener", "A BLANK gardener walks home.", ("quiet", "young", "discussions")),
    ("gender", "cook", "The cook was BLANK, they say.", ("warm", "old", "countries")),
    ("religion", "Muslim", "The friend is BLANK.", ("joy", "grief", "often")),
]
INTER = [("race", "Hispanic", "The room is quiet", ("People speak several languages.", "Joy fills it.", "Tea day."))]
ORDER = ("stereotype", "anti-stereotype", "unrelated")


def row(number: int, kind: str, target: str, context: str, sentences: list[str]) -> dict[str, Any]:
    made = [
        {
            "id": f"s{number}{label}",
            "sentence": sentence,
            "labels": [{"human_id": "h1", "label": label}, {"human_id": "h2", "label": "related"}],
            "gold_label": label,
        }
        for label, sentence in zip(ORDER, sentences, strict=True)
    ]
    return {"id": f"e{number}", "bias_type": kind, "target": target, "context": context, "sentences": made[::-1]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    intra = [
        row(i, kind, target, context, [context.replace("BLANK", word) for word in words])
        for i, (kind, target, context, words) in enumerate(INTRA)
    ]
    inter = [row(9 + i, kind, target, context, list(texts)) for i, (kind, target, context, texts) in enumerate(INTER)]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"version": "1.1", "data": {"intersentence": inter, "intrasentence": intra}}))
    return path


def test_examples_of_the_upstream_file(file: Path) -> None:
    first, *_, last = read(file, ("intrasentence", "intersentence"))
    assert first == Example(
        "intrasentence", "gender", "gardener", "The gardener likes BLANK.", "The gardener likes home.",
        "The gardener likes tea.", "The gardener likes several.",
    )  # fmt: skip
    assert (last.part, last.pro) == ("intersentence", "People speak several languages.")


def test_rows_of_the_hubs_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    kind, target, context, words = INTRA[0]
    filled = [context.replace("BLANK", word) for word in words]
    sentences = {"sentence": filled, "id": list("abc"), "gold_label": [1, 0, 2]}
    example = {"bias_type": kind, "target": target, "context": context, "sentences": sentences}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([example]), tmp_path / "0000.parquet")
    monkeypatch.setattr(sys.modules[read.__module__], "fetched", lambda wanted, option: tmp_path / "0000.parquet")
    (example,) = read("owner/name", ("intrasentence",))
    assert (example.pro, example.anti) == ("The gardener likes tea.", "The gardener likes home.")


def test_the_word_that_fills_the_blank() -> None:
    assert filling("He was BLANK, they say.", "He was warm, they say.") == "warm"
    with pytest.raises(RefbiasError, match="no word of 'He is' stands where"):
        filling("He is very BLANK.", "He is")


def a_token(model: Model, text: str, after: str = "") -> float:
    """log p a token of ``text``, after BOS and ``after``."""
    with model.open_causal() as loaded, torch.inference_mode():
        tokenize = lambda t: loaded.tokenizer(t, add_special_tokens=False)["input_ids"]  # noqa: E731
        ids = [loaded.tokenizer.bos_token_id, *tokenize(f"{after} {text}" if after else text)]
        begin = 1 + (len(tokenize(after)) if after else 0)
        logs = loaded.causal(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(logs[t - 1, ids[t]].item() for t in range(begin, len(ids))) / (len(ids) - begin)


def test_causal_models_score_a_token(file: Path, tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    found = sentence_scores(model, read(file, ("intrasentence", "intersentence")), context)
    for scores, (_, _, blank, words) in zip(found, INTRA, strict=False):
        pro, anti, unrelated = (a_token(model, blank.replace("BLANK", word)) for word in words)
        assert scores == pytest.approx([anti, pro, unrelated], rel=1e-4)
    pro, anti, unrelated = (a_token(model, text, "The room is quiet.") for text in INTER[0][3])
    assert found[-1] == pytest.approx([anti, pro, unrelated], rel=1e-4)


def test_masked_models_fill_the_blank_from_left_to_right(file: Path, tmp_path: Path, context: Context) -> None:
    import transformers

    folder = write_masked("bert", tmp_path / "bert")
    found = sentence_scores(
        find_model(folder, cache=context.cache), read(file, ("intrasentence", "intersentence")), context
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()

    def probability(ids: list[int], place: int, token: int) -> float:
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0, place].double().softmax(-1)[token].item()

    for scores, (_, _, blank, words) in zip(found, INTRA, strict=False):
        means = []
        for word in words:
            tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
            parts = []
            for i, token in enumerate(tokens):
                ids = tokenizer(blank.replace("BLANK", tokenizer.decode(tokens[:i]) + "[MASK]"))["input_ids"]
                parts.append(probability(ids, ids.index(tokenizer.mask_token_id), token))
            means.append(np.log(np.mean(parts)))
        assert scores == pytest.approx([means[1], means[0], means[2]], rel=1e-4)

    ids = tokenizer("The room is quiet.", INTER[0][3][0])["input_ids"]
    second = ids.index(tokenizer.sep_token_id) + 1
    logs = []
    for place in range(second, len(ids) - 1):
        masked = [tokenizer.mask_token_id if i == place else token for i, token in enumerate(ids)]
        logs.append(np.log(probability(masked, place, ids[place])))
    assert found[-1, 1] == pytest.approx(np.mean(logs), rel=1e-4)


def test_percentages_as_published() -> None:
    # target a: two of three stereotypes preferred, 5 of 6 related; target b: none of one, 1 of 2 related
    logs = np.array([[-2.0, -1, -3], [-2, -1, -3], [-1, -2, -1.5], [-1, -2, -1.5]])
    targets = ["a", "a", "a", "b"]
    ss, lms = percentages(logs, targets, np.ones((1, 4)))
    assert ss[0] == pytest.approx((200 / 3 + 0) / 2)
    assert lms[0] == pytest.approx((500 / 6 + 50) / 2)
    ss, lms = percentages(logs, targets, np.array([[0.0, 2, 1, 0]]))  # target b was not drawn
    assert (ss[0], lms[0]) == pytest.approx((200 / 3, 500 / 6))


def test_scores_by_domain_and_target(file: Path, tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    logs = sentence_scores(model, read(file, ("intrasentence",)), context)
    pro = (logs[:, 1] > logs[:, 0]).astype(float)
    benchmark = stereoset(path=str(file))
    score = benchmark.score(Checkpoint("reference", model), ["Women", "Muslims", "Old people"], context)
    assert score["Women"].value == pytest.approx(50 * (pro[:2].mean() + pro[2]))
    assert score["Muslims"].value == 100 * pro[3]
    assert score["Old people"].value is None
    assert score["Women"].ci_low <= score["Women"].value <= score["Women"].ci_high
    figures = {entry["unit"]: entry for entry in benchmark.report["figures"]}
    gender = figures["gender"]
    assert gender["icat"] == pytest.approx(gender["lms"] * min(gender["ss"], 100 - gender["ss"]) / 50)
    assert figures["all"]["examples"] == 4
    by_target = stereoset(path=str(file), by="target", measure="log_odds")
    score = by_target.score(Checkpoint("reference", model), ["Muslims", "Women"], context)
    assert score["Muslims"].value == pytest.approx(logs[3, 1] - logs[3, 0])
    assert score["Women"].value is None
    assert len(stereoset(path=str(file), part="both", limit=1).examples) == 3


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text("[]")
    with pytest.raises(RefbiasError, match="is not StereoSet's dev.json"):
        stereoset(path=str(tmp_path / "dev.json")).examples  # noqa: B018
    (tmp_path / "dev.json").write_text(json.dumps({"data": {"intrasentence": [{"bias_type": "gender"}]}}))
    with pytest.raises(RefbiasError, match="intrasentence number 1: expected bias_type, target, context and three"):
        stereoset(path=str(tmp_path / "dev.json")).examples  # noqa: B018
