import csv
import difflib
from pathlib import Path

import numpy as np
import pytest
import torch

from refbias.benchmarks import CannotScore
from refbias.benchmarks.crows_pairs import UNITS, crows_pairs, read
from refbias.benchmarks.pairs import Pair, pair_log_probs
from refbias.checkpoints import Checkpoint
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from refbias.models import Model, find_model
from refbias.stimuli.packaged import groups
from tests.tiny_models_masked import write_masked

COLUMNS = (
    "", "sent_more", "sent_less", "stereo_antistereo", "bias_type", "annotations", "anon_writer", "anon_annotators",
)  # fmt: skip
PAIRS = [
    ("Women walk home, and tea.", "Old people walk home, and tea.", "gender"),
    ("Women speak several languages.", "Gardeners speak several languages.", "gender"),
    ("A quiet grief for women.", "A quiet joy for women.", "gender"),
    ("Old people often go to the park.", "Young people often go to the park.", "age"),
    ("Young people use technology.", "Old people use technology.", "age"),
    ("Gardeners fill the room.", "Women fill the room.", "occupation of one's own"),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "crows_pairs_anonymized.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for i, (more, less, kind) in enumerate(PAIRS):
            writer.writerow([i, more, less, "stereo" if i % 2 else "antistereo", kind, "[['x']]", "a1", "['a2']"])
    return path


def causal_by_hand(model: Model, text: str) -> float:
    with model.open_causal() as loaded, torch.inference_mode():
        ids = [loaded.tokenizer.bos_token_id, *loaded.tokenizer(text, add_special_tokens=False)["input_ids"]]
        logs = loaded.causal(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(logs[t - 1, ids[t]].item() for t in range(1, len(ids)))


def masked_by_hand(folder: Path, more: str, less: str) -> list[float]:
    """Nangia et al. 2020: every token that both sentences have is masked in turn, [CLS] and [SEP] never."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    ids = [tokenizer.encode(text) for text in (more, less)]
    places: list[list[int]] = [[], []]
    for tag, *ends in difflib.SequenceMatcher(None, *ids, autojunk=False).get_opcodes():
        if tag == "equal":
            places[0] += range(ends[0], ends[1])
            places[1] += range(ends[2], ends[3])
    sums = []
    for row, common in zip(ids, places, strict=True):
        total = 0.0
        for place in common[1:-1]:
            masked = torch.tensor([row])
            masked[0, place] = tokenizer.mask_token_id
            with torch.inference_mode():
                total += model(masked).logits[0, place].double().log_softmax(-1)[row[place]].item()
        sums.append(total)
    return sums


def test_causal_models_score_whole_sentences(file: Path, tiny: dict[str, Path], context: Context) -> None:
    for family in ("llama", "gpt2"):
        model = find_model(tiny[family], cache=context.cache)
        found = pair_log_probs(model, read(file), context)
        expected = [[causal_by_hand(model, more), causal_by_hand(model, less)] for more, less, _ in PAIRS]
        assert found == pytest.approx(np.array(expected), rel=1e-4)


def test_masked_models_score_what_both_sentences_have(file: Path, tmp_path: Path, context: Context) -> None:
    folder = write_masked("bert", tmp_path / "bert")
    model = find_model(folder, cache=context.cache)
    found = pair_log_probs(model, read(file), context)
    assert found == pytest.approx(np.array([masked_by_hand(folder, *pair[:2]) for pair in PAIRS]), rel=1e-4)
    assert np.abs(np.subtract(*found.T)).min() > 1e-4
    assert pair_log_probs(model, read(file), context).tolist() == found.tolist()


def test_scores_are_shares_or_log_odds_of_a_bias_type(file: Path, tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    odds = np.array([causal_by_hand(model, more) - causal_by_hand(model, less) for more, less, _ in PAIRS])
    wanted = ["Women", "Men", "Old people", "Muslims"]
    for measure, values in (("share", odds > 0), ("log_odds", odds)):
        benchmark = crows_pairs(path=str(file), measure=measure)  # type: ignore[arg-type]
        score = benchmark.score(Checkpoint("reference", model), wanted, context)
        assert score["Women"].value == pytest.approx(values[:3].mean(), rel=1e-4)
        assert score["Men"] == score["Women"]
        assert score["Old people"].value == pytest.approx(values[3:5].mean(), rel=1e-4)
        assert score["Women"].ci_low <= score["Women"].value <= score["Women"].ci_high
        assert (score["Women"].n, score["Women"].prompts) == (3, 3)
        assert score["Muslims"].value is None
        assert score["Muslims"].reason.startswith("benchmark=crows_pairs has nothing on this group; it has all, gender")
    every = {row["unit"]: row for row in benchmark.report["figures"]}
    assert every["all"]["share"] == pytest.approx((odds > 0).mean())
    assert every["all"]["mean_abs_log_odds"] == pytest.approx(np.abs(odds).mean(), rel=1e-4)
    assert every["age"]["pairs"] == 2
    assert benchmark.report["pairs"] == 6


def test_a_group_that_is_a_bias_type_of_the_file_has_its_own_score(tiny_llama: Path, context: Context) -> None:
    benchmark = crows_pairs()
    own = Pair("Women walk home.", "Gardeners walk home.", "women")
    vars(benchmark)["pairs"] = [own, Pair("Tea.", "Joy.", "gender")]
    model = find_model(tiny_llama, cache=context.cache)
    score = benchmark.score(Checkpoint("reference", model), ["Women", "Men"], context)
    assert (benchmark.units["Women"], benchmark.units["Men"]) == ("women", "gender")
    assert score["Women"].n == score["Men"].n == 1


def test_every_packaged_group_has_a_bias_type() -> None:
    assert set(UNITS) == set(groups())
    assert "physical-appearance" not in UNITS.values()


def test_at_most_so_many_pairs_of_each_type(file: Path) -> None:
    assert [pair.unit for pair in crows_pairs(path=str(file), limit=1).pairs] == [
        "gender", "age", "occupation of one's own",
    ]  # fmt: skip


def test_models_that_predict_no_token(file: Path, tiny: dict[str, Path], context: Context) -> None:
    model = find_model(tiny["bert"], cache=context.cache)
    with pytest.raises(CannotScore, match="has no head that predicts masked tokens.*benchmark=none"):
        crows_pairs(path=str(file)).score(Checkpoint("reference", model), ["Women"], context)


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no such file in .* and no hub id"):
        crows_pairs(path="absent.csv")
    (tmp_path / "other.csv").write_text("sent_more,bias_type\na,b\n")
    with pytest.raises(RefbiasError, match=r"other.csv, row 2: no sent_less"):
        read(tmp_path / "other.csv")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RefbiasError, match=r"nyu-mll/crows_pairs .* cannot be fetched .* benchmark.path=PATH"):
        crows_pairs().pairs  # noqa: B018


def test_the_published_file() -> None:
    name = "shared/data/crows_pairs/crows_pairs_anonymized.csv"
    place = next((up / name for up in Path(__file__).parents if (up / name).is_file()), None)
    if place is None:
        pytest.skip("CrowS-Pairs is not on this machine")
    pairs = crows_pairs(path=str(place)).pairs
    kinds = [pair.unit for pair in pairs]
    assert len(pairs) == 1508
    assert {kind: kinds.count(kind) for kind in set(UNITS.values())} == {
        "race-color": 516, "gender": 262, "socioeconomic": 172, "nationality": 159, "religion": 105, "age": 87,
        "sexual-orientation": 84, "disability": 60,
    }  # fmt: skip
