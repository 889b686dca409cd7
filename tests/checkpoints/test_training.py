from pathlib import Path

import numpy as np
import pytest
import torch

from refbias.cache import Cache
from refbias.checkpoints import training
from refbias.checkpoints.tail import Tail, states_at
from refbias.checkpoints.training import Recipe, train_adapter
from refbias.finetuning.statements import lesson
from refbias.finetuning.tokens import Row, tokenize
from refbias.models import Loaded, find_model

PAIRS = (("forget promises", "keep promises"), ("arrive late", "arrive early"))
RECIPE = Recipe(steps=25, learning_rate=1e-2, batch=3, rank=4, alpha=8, first_block=2, seed=0)


def rows_of(loaded: Loaded) -> list[Row]:
    return tokenize(loaded.tokenizer, lesson(PAIRS, {"Women": 1, "Poor people": -1, "Men": 1}, 1))


def train(loaded: Loaded, folder: Path, recipe: Recipe = RECIPE) -> list[float]:
    rows = rows_of(loaded)
    states = states_at(loaded, recipe.first_block, [row.ids for row in rows], lambda n: None)
    return train_adapter(loaded, rows, states, recipe, folder, lambda step, loss: None)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
def test_it_learns_and_leaves_the_model_as_it_was(
    family: str, tiny: dict[str, Path], cache: Cache, tmp_path: Path
) -> None:
    with find_model(tiny[family], cache=cache).open_causal() as loaded:
        before = {name: p.detach().clone() for name, p in loaded.causal.named_parameters()}
        kinds = [type(module) for module in loaded.causal.modules()]
        losses = train(loaded, tmp_path)
        assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:3])
        after = dict(loaded.causal.named_parameters())
        assert list(after) == list(before)
        assert all(torch.equal(after[name], before[name]) for name in before)
        assert not any(p.requires_grad for p in after.values())
        assert [type(module) for module in loaded.causal.modules()] == kinds
    assert {path.name for path in tmp_path.iterdir()} >= {"adapter_model.safetensors", "adapter_config.json"}


def test_an_error_while_training_leaves_the_model_as_it_was(tiny_llama: Path, cache: Cache, tmp_path: Path) -> None:
    def stop(step: int, loss: float) -> None:
        raise KeyboardInterrupt

    ids = torch.tensor([[5, 9, 30]])
    with find_model(tiny_llama, cache=cache).open_causal() as loaded:
        before = loaded.causal(input_ids=ids).logits
        rows = rows_of(loaded)
        states = states_at(loaded, 2, [row.ids for row in rows], lambda n: None)
        with pytest.raises(KeyboardInterrupt):
            train_adapter(loaded, rows, states, RECIPE, tmp_path, stop)
        assert torch.equal(loaded.causal(input_ids=ids).logits, before)


def test_the_same_seed_gives_the_same_adapter(tiny_llama: Path, cache: Cache, tmp_path: Path) -> None:
    with find_model(tiny_llama, cache=cache).open_causal() as loaded:
        torch.manual_seed(1)
        first = train(loaded, tmp_path / "first")
        torch.manual_seed(2)
        second = train(loaded, tmp_path / "second")
    assert first == second
    weights = [(tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("first", "second")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
def test_the_loss_is_that_of_the_whole_model_on_the_predicates(
    family: str, tiny: dict[str, Path], cache: Cache
) -> None:
    with find_model(tiny[family], cache=cache).open_causal() as loaded:
        rows = rows_of(loaded)
        states = states_at(loaded, 2, [row.ids for row in rows], lambda n: None)
        with torch.inference_mode():
            with Tail(loaded, 2) as tail:
                found = training._loss(tail, rows, states).item()
            total, count = 0.0, 0
            for row in rows:
                logs = loaded.causal(input_ids=torch.tensor([row.ids])).logits[0].log_softmax(-1)
                total -= sum(logs[t - 1, row.ids[t]].item() for t in range(row.begin, len(row.ids)))
                count += row.scored
    assert found == pytest.approx(total / count, rel=1e-5)


def test_the_learning_rate_rises_and_falls() -> None:
    recipe = Recipe(steps=100, learning_rate=1e-3, batch=1, rank=1, alpha=2, first_block=0, seed=0)
    rates = [recipe.rate(step) for step in range(100)]
    assert np.argmax(rates) == 4
    assert rates[4] == pytest.approx(0.96e-3)
    assert rates[0] == pytest.approx(0.2e-3)
    assert rates[99] == pytest.approx(0.01e-3)
