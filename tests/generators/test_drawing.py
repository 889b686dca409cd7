"""Drawing a token: the right distribution, the nucleus as defined, and a warning where rounding could decide."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from refbias.generators.drawing import BLOCK, _nucleus, draw, noise


def numbers(rows: int, vocabulary: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.stack([noise(np.random.default_rng((seed, i)), vocabulary) for i in range(rows)]))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("vocabulary", [5, BLOCK, BLOCK + 1, 3 * BLOCK - 7])
def test_tokens_come_as_often_as_softmax_says(vocabulary, temperature):
    rows = 4000
    logits = torch.from_numpy(np.random.default_rng(1).normal(0, 2, vocabulary)).float()
    tokens, clear = draw(logits.expand(rows, -1), numbers(rows, vocabulary), temperature, 1.0, None)
    assert clear.all()
    expected = torch.softmax(logits.double() / temperature, 0).numpy() * rows
    found = np.bincount(tokens.numpy(), minlength=vocabulary)
    common = expected > 8  # the rest is counted as one token
    observed, wanted = (np.append(counts[common], counts[~common].sum()) for counts in (found, expected))
    kept = wanted > 8
    statistic = ((observed - wanted)[kept] ** 2 / wanted[kept]).sum()
    assert statistic < kept.sum() + 4 * np.sqrt(2 * kept.sum()) + 4


@pytest.mark.parametrize("top_p", [0.01, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_the_nucleus_is_the_fewest_tokens_with_that_mass(top_p, spread):
    scaled = torch.from_numpy(np.random.default_rng(2).normal(0, spread, (6, 1500))).float()
    inside = _nucleus(scaled, top_p).isfinite()
    probabilities = torch.softmax(scaled.double(), 1)
    for row, kept in zip(probabilities, inside, strict=True):
        mass = row[kept].sum()
        assert mass >= top_p - 1e-6
        assert mass - row[kept].min() < top_p + 1e-6
        assert not (~kept).any() or row[~kept].max() <= row[kept].min()


def test_nothing_outside_the_nucleus_is_drawn():
    logits = torch.tensor([[0.0, 3.0, 2.9, -1.0, 0.5]])
    tokens, _ = draw(logits.expand(500, -1), numbers(500, 5), 1.0, 0.7, None)
    assert set(tokens.tolist()) == {1, 2}


def test_greedy_takes_the_largest_and_says_where_two_are_equal():
    logits = torch.tensor([[1.0, 4.0, 2.0], [5.0, 1.0, 5.0 - 1e-5]])
    tokens, clear = draw(logits, None, 0.0, 1.0, torch.full((2, 1), 1e-3))
    assert tokens.tolist() == [1, 0] and clear.tolist() == [True, False]


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_what_is_called_clear_does_not_change_with_rounding(top_p):
    rng = np.random.default_rng(3)
    logits = torch.from_numpy(rng.normal(0, 2, (3000, 300))).float()
    random, slack = numbers(3000, 300), torch.full((3000, 1), 0.02)
    tokens, clear = draw(logits, random, 0.8, top_p, slack)
    assert 0.9 < clear.float().mean() < 1.0
    changed = 0
    for seed in range(3):
        wobble = torch.from_numpy(np.random.default_rng(seed).uniform(-0.008, 0.008, logits.shape)).float()
        other, _ = draw(logits + wobble, random, 0.8, top_p, None)
        assert (other == tokens)[clear].all()
        changed += int((other != tokens).sum())
    assert changed > 0  # without the warning some would differ
