from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from refbias.cache import Cache
from refbias.checkpoints.tail import Tail, states_at
from refbias.models import Loaded, find_model
from tests.tiny_models import CAUSAL

ROWS = [(5, 9, 30, 41, 7, 12, 60), (5, 80, 31, 33, 20, 14, 61)]


@contextmanager
def opened(folder: Path, cache: Cache) -> Iterator[Loaded]:
    with find_model(folder, cache=cache).open_causal() as loaded:
        yield loaded


def last_three(ids: torch.Tensor) -> torch.Tensor:
    keep = torch.zeros_like(ids, dtype=torch.bool)
    keep[:, -4:-1] = True
    return keep


@pytest.mark.parametrize("family", CAUSAL)
def test_logits_at_kept_positions_are_those_of_the_whole_model(
    family: str, tiny: dict[str, Path], cache: Cache
) -> None:
    ids = torch.tensor(ROWS)
    keep = last_three(ids)
    with opened(tiny[family], cache) as loaded, torch.inference_mode():
        whole = loaded.causal(input_ids=ids).logits
        with Tail(loaded) as tail:
            assert torch.allclose(tail(ids, keep), whole[keep], atol=1e-5)
        assert torch.equal(loaded.causal(input_ids=ids).logits, whole)


@pytest.mark.parametrize("family", CAUSAL)
def test_beginning_at_a_block_with_the_states_there_changes_nothing(
    family: str, tiny: dict[str, Path], cache: Cache
) -> None:
    ids = torch.tensor(ROWS)
    keep = last_three(ids)
    with opened(tiny[family], cache) as loaded, torch.inference_mode():
        whole = loaded.causal(input_ids=ids).logits
        found = states_at(loaded, 2, ROWS, lambda n: None)
        with Tail(loaded, 2) as tail:
            first = tail(ids, keep)
            assert torch.allclose(tail.states(), torch.stack([found[row] for row in ROWS]), atol=1e-6)
            resumed = tail(ids, keep, torch.stack([found[row] for row in ROWS]))
        assert torch.allclose(first, whole[keep], atol=1e-5)
        assert torch.allclose(resumed, whole[keep], atol=1e-5)
        assert torch.equal(loaded.causal(input_ids=ids).logits, whole)


def test_the_lower_blocks_are_not_run(tiny_llama: Path, cache: Cache) -> None:
    ids = torch.tensor(ROWS)
    with opened(tiny_llama, cache) as loaded, torch.inference_mode(), Tail(loaded, 2) as tail:
        other = torch.randn(2, 7, 32)
        changed = tail(ids, last_three(ids), other)
        assert not torch.allclose(changed, tail(ids, last_three(ids)), atol=0.1)


def test_an_error_in_a_call_leaves_the_model_as_it_was(tiny_llama: Path, cache: Cache) -> None:
    ids = torch.tensor(ROWS)
    with opened(tiny_llama, cache) as loaded, torch.inference_mode():
        whole = loaded.causal(input_ids=ids).logits
        with pytest.raises(RuntimeError), Tail(loaded, 2) as tail:
            tail(ids, last_three(ids), torch.randn(2, 7, 31))
        assert torch.equal(loaded.causal(input_ids=ids).logits, whole)
