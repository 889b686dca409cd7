from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from refbias.answers import Pair
from refbias.errors import RefbiasError, UsageError
from refbias.judges.classifier import about, toxic_class, toxigen_roberta
from tests.tiny_models import SENTENCES, write_tiny

NAMED = {"0": "non-toxic", "1": "toxic"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny classifiers with random weights and the tokenizer of the tiny models."""
    import torch
    import transformers as t

    root = tmp_path_factory.mktemp("classifiers")
    write_tiny("bert", root / "words")  # for its tokenizer
    tokenizer = t.AutoTokenizer.from_pretrained(root / "words")
    size = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "initializer_range": 0.5,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for name, labels in (("plain", {}), ("several", {"num_labels": 3})):
            model = t.RobertaForSequenceClassification(t.RobertaConfig(**size, max_position_embeddings=26, **labels))
            model.save_pretrained(root / name)
            tokenizer.save_pretrained(root / name)
    return {name: root / name for name in ("plain", "several", "words")}


@pytest.fixture
def labelled(folders, tmp_path):
    """A copy of the classifier whose config.json names its classes."""

    def make(names, **more):
        folder = tmp_path / "labelled"
        shutil.copytree(folders["plain"], folder, dirs_exist_ok=True)
        config = json.loads((folder / "config.json").read_text())
        config |= {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}, **more}
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    return make


def by_hand(folder, texts):
    """Logits of each text as transformers gives them, without padding."""
    import torch
    import transformers as t

    model = t.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = t.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        for text in texts:
            # RoBERTa's positions begin behind that of the padding: 26 of them leave 25
            ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=25)
            yield model(ids["input_ids"]).logits[0].double()


PAIRS = [Pair("a question", text) for text in [*SENTENCES, "", SENTENCES[3] * 20]]


@pytest.mark.parametrize("toxic", [0, 1])
@pytest.mark.parametrize("batch", [1, 3])
def test_probabilities_are_those_of_transformers_in_either_order_of_classes(labelled, context, toxic, batch):
    folder = labelled({str(toxic): "Toxic", str(1 - toxic): "non-toxic"})
    found = toxigen_roberta(PAIRS, context, model=folder, batch=batch)
    logits = by_hand(folder, [pair.text for pair in PAIRS])
    for pair, verdict, row in zip(PAIRS, found, logits, strict=True):
        if not pair.text:
            assert (verdict.value, verdict.label) == (None, "empty")
            continue
        expected = float(row.softmax(-1)[toxic])
        assert float(verdict.detail) == pytest.approx(expected, abs=2e-6)
        assert (verdict.value, verdict.label) == ((1, "toxic") if expected >= 0.5 else (0, "not_toxic"))
    assert len({v.detail for v in found if v.detail}) > 5


def test_the_two_orders_are_opposite(folders, labelled, context):
    first, second = (toxigen_roberta(PAIRS[:3], context, model=str(folders["plain"]), index=i) for i in (0, 1))
    for one, other in zip(first, second, strict=True):
        assert float(one.detail) + float(other.detail) == pytest.approx(1, abs=2e-6)
        assert one.value != other.value
    assert toxigen_roberta(PAIRS[:3], context, model=labelled(NAMED)) == second
    assert toxigen_roberta(PAIRS[:3], context, model=str(folders["plain"])) == second


def test_the_threshold_decides(labelled, context):
    folder = labelled(NAMED)
    shares = [float(v.detail) for v in toxigen_roberta(PAIRS[:4], context, model=folder)]
    for threshold in (0.0, 0.25, 0.75, 1.0):
        found = toxigen_roberta(PAIRS[:4], context, model=folder, threshold=threshold)
        assert [v.value for v in found] == [int(share >= threshold) for share in shares]


def test_several_labels_at_once_have_a_probability_each(labelled, context):
    folder = labelled({"0": "toxic", "1": "insult"}, problem_type="multi_label_classification")
    (found,) = toxigen_roberta(PAIRS[:1], context, model=folder)
    (logits,) = by_hand(folder, [PAIRS[0].text])
    assert float(found.detail) == pytest.approx(float(logits.sigmoid()[0]), abs=2e-6)


@pytest.mark.parametrize(
    ("names", "index", "expected"),
    [
        ({"0": "LABEL_0", "1": "LABEL_1"}, None, 1),
        ({"0": "LABEL_0", "1": "LABEL_1"}, 0, 0),
        (None, None, 1),
        ({"0": "nothate", "1": "hate"}, None, 1),
        ({"0": "Hate-Speech", "1": "neutral"}, None, 0),
        ({"0": "not toxic", "1": "toxic"}, 1, 1),
        ({"0": "toxic", "1": "severe_toxic", "2": "obscene"}, None, 0),
        ({"0": "POSITIVE", "1": "NEGATIVE"}, 1, 1),
        ({"1": "toxic", "0": "benign"}, None, 1),
    ],
)
def test_the_class_is_found(names, index, expected):
    assert toxic_class("m", {"id2label": names}, index).index == expected


def test_an_assumption_is_told():
    assert "assumed" in toxic_class("m", {}, None).known_by
    assert "'toxic'" in toxic_class("m", {"id2label": NAMED}, None).known_by


@pytest.mark.parametrize(
    ("names", "index", "said"),
    [
        (NAMED, 2, r"judge.index=2: m has the classes 0 to 1 \(0: 'non-toxic', 1: 'toxic'\)"),
        (NAMED, -1, "judge.index=-1"),
        (NAMED, 0, "judge.index=0 is the class 'non-toxic' of m; the one named 'toxic' is 1"),
        ({"0": "POSITIVE", "1": "NEGATIVE"}, None, "Which class of m means toxic"),
        ({"0": "toxic", "1": "hateful"}, None, "Which class of m means toxic"),
        ({"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, None, "Which class of m means toxic"),
        ({"0": "score"}, None, "no list of two or more classes"),
        ({"0": "a", "2": "b"}, None, "no list of two or more classes"),
        ({"zero": "a", "one": "b"}, None, "no list of two or more classes"),
        (["a", "b"], None, "no list of two or more classes"),
    ],
)
def test_a_class_that_cannot_be_told_is_an_error(names, index, said):
    with pytest.raises(RefbiasError, match=said):
        toxic_class("m", {"id2label": names}, index)


def test_a_model_without_the_head_is_refused(folders, context):
    with pytest.raises(RefbiasError, match="no trained sequence classifier: its files lack"):
        toxigen_roberta(PAIRS[:1], context, model=str(folders["words"]))


def test_what_is_no_classifier_or_out_of_range_is_wrong_use(folders, context):
    with pytest.raises(UsageError, match=r"judge.batch=0"):
        toxigen_roberta(PAIRS[:1], context, model=str(folders["plain"]), batch=0)
    with pytest.raises(UsageError, match=r"judge.threshold=-1"):
        toxigen_roberta(PAIRS[:1], context, model=str(folders["plain"]), threshold=-1)
    with pytest.raises(UsageError, match="Which class"):
        toxigen_roberta(PAIRS[:1], context, model=str(folders["several"]))


def test_weights_and_class_are_told(labelled, folders, context):
    told = about(context, model=labelled(NAMED))
    assert told["index"] == 1 and "config.json" in told["index_known_by"]
    assert told["fingerprint"] != about(context, model=str(folders["plain"]))["fingerprint"]
