from pathlib import Path

import numpy as np
import pytest

from refbias.benchmarks.pairs import pair_log_probs
from refbias.benchmarks.winobias import plain, read, winobias
from refbias.checkpoints import Checkpoint
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from refbias.models import find_model

HOME = "1 [The gardener] walks home because [{}] likes tea.\n"
FRIEND = "2 The gardener met [the cook] 's friend when [{}] spoke.\n"
THANKED = "1 The gardener walks home with [the cook] and thanked [{}] .\n"
PRO = {"type1": HOME.format("she") + FRIEND.format("he"), "type2": THANKED.format("him")}
ANTI = {"type1": HOME.format("he") + FRIEND.format("she"), "type2": THANKED.format("her")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for side, texts in (("pro", PRO), ("anti", ANTI)):
        for kind, text in texts.items():
            (tmp_path / f"{side}_stereotyped_{kind}.txt.dev").write_text(text, encoding="utf-8")
    return tmp_path


def test_lines_become_sentences(folder: Path) -> None:
    pairs = read(folder, ("type1", "type2"), "dev")
    assert [(pair.more, pair.less, pair.unit) for pair in pairs] == [
        ("The gardener walks home because she likes tea.", "The gardener walks home because he likes tea.", "type1"),
        (
            "The gardener met the cook's friend when he spoke.",
            "The gardener met the cook's friend when she spoke.",
            "type1",
        ),
        (
            "The gardener walks home with the cook and thanked him.",
            "The gardener walks home with the cook and thanked her.",
            "type2",
        ),
    ]
    assert plain("[The cook] met 12 friends .") == "The cook met 12 friends."


def test_the_score_is_pro_minus_anti_over_both_types(folder: Path, tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    benchmark = winobias(path=str(folder))
    odds = np.subtract(*pair_log_probs(model, benchmark.pairs, context).T)
    score = benchmark.score(Checkpoint("reference", model), ["Women", "Men", "Jews"], context)
    assert score["Women"] == score["Men"]
    assert score["Women"].value == pytest.approx(odds.mean())
    assert score["Jews"].value is None
    figures = {row["unit"]: row for row in benchmark.report["figures"]}
    assert figures["type1"]["log_odds"] == pytest.approx(odds[:2].mean())
    assert figures["type2"]["share"] == float(odds[2] > 0)
    one = winobias(path=str(folder), type="type2", measure="share").score(Checkpoint("r", model), ["Men"], context)
    assert one["Men"].value == float(odds[2] > 0)


def test_files_that_do_not_belong_together(folder: Path) -> None:
    with pytest.raises(RefbiasError, match=r"no pro_stereotyped_type1.txt.test"):
        winobias(path=str(folder), split="test").pairs  # noqa: B018
    (folder / "anti_stereotyped_type2.txt.dev").write_text("")
    with pytest.raises(RefbiasError, match="type2, dev: 1 sentences on the pro side and 0 on the anti side"):
        winobias(path=str(folder)).pairs  # noqa: B018
    with pytest.raises(UsageError, match="is a file"):
        winobias(path=str(folder / "pro_stereotyped_type1.txt.dev"))
