from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refbias.checkpoints import edited
from refbias.context import Context
from refbias.errors import RefbiasError
from refbias.log_probs import Ids, Span, shared_beginnings, sum_log_probs, token_log_probs
from refbias.models import find_model
from refbias.models.base import Loaded
from tests.tiny_models import CAUSAL

# beginnings shared by none, two, all of four and all texts; longer than the sliding windows; one within another
ROWS = [
    Span((7, 20, 30), 1, 3),
    Span((7, *range(40, 56), 20, 31, 32), 17, 20),
    Span((7, *range(40, 56), 20, 33, 34, 35), 17, 21),
    Span((7, *range(40, 56), 21, 36), 5, 8),
    Span((7, *range(40, 56), 22, 36, 37), 18, 20),
    Span((7, 20, 30, 31, 32), 2, 4),
    Span((7, 20, 30), 1, 3),
    Span((9, 10, 11), 2, 3),
]


def by_hand(loaded: Loaded, rows: Sequence[Span]) -> list[list[float]]:
    """log p of the marked tokens, one text a call, from all logits."""
    found = []
    for row in rows:
        with torch.inference_mode():
            logs = loaded.causal(input_ids=torch.tensor([row.ids])).logits[0].double().log_softmax(-1)
        found.append([logs[t - 1, row.ids[t]].item() for t in range(row.begin, row.end)])
    return found


@contextmanager
def inputs_of(loaded: Loaded) -> Iterator[list[Any]]:
    """The token ids of every call of the model within the block."""
    seen: list[Any] = []
    hook = loaded.causal.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].tolist()), with_kwargs=True
    )
    yield seen
    hook.remove()


@pytest.mark.parametrize("share", [True, False, None])
@pytest.mark.parametrize("family", CAUSAL)
def test_it_is_the_sum_over_the_models_own_logits(
    family: str, share: bool | None, tiny: dict[str, Path], context: Context
) -> None:
    model = find_model(tiny[family], cache=context.cache)
    with model.open_causal() as loaded:
        found = token_log_probs(loaded, ROWS, share=share)
        expected = by_hand(loaded, ROWS)
    assert [len(values) for values in found] == [row.scored for row in ROWS]
    for values, wanted in zip(found, expected, strict=True):
        assert values == pytest.approx(wanted, rel=1e-4)


def test_the_sums_are_those_of_the_tokens(tiny_llama: Path, context: Context) -> None:
    with find_model(tiny_llama, cache=context.cache).open_causal() as loaded:
        assert sum_log_probs(loaded, ROWS) == pytest.approx([sum(values) for values in by_hand(loaded, ROWS)], rel=1e-4)


def test_a_common_beginning_is_read_once_and_a_last_token_never(tiny_llama: Path, context: Context) -> None:
    head = tuple(range(40, 50))
    rows = [Span((*head, end, last), len(head), len(head) + 2) for end in (60, 61) for last in (70, 71)]
    with find_model(tiny_llama, cache=context.cache).open_causal() as loaded:
        with inputs_of(loaded) as seen:
            token_log_probs(loaded, rows, share=True)
        assert seen == [[list(head)], [[60], [61]]]
        with inputs_of(loaded) as seen:
            token_log_probs(loaded, rows)  # ten tokens saved are not worth a batch
        assert seen == [[[*head, 60], [*head, 61]]]


def test_long_beginnings_are_shared_unasked(tiny_llama: Path, context: Context) -> None:
    head = tuple(range(40, 70))
    rows = [Span((*head, 100 + i, 200), len(head) + 1, len(head) + 2) for i in range(30)]
    with find_model(tiny_llama, cache=context.cache).open_causal() as loaded, inputs_of(loaded) as seen:
        token_log_probs(loaded, rows)
    assert seen == [[list(head)], [[100 + i] for i in range(30)]]


def test_progress_counts_every_row_once(tiny_llama: Path, context: Context) -> None:
    with find_model(tiny_llama, cache=context.cache).open_causal() as loaded:
        for share in (True, False):
            steps: list[int] = []
            token_log_probs(loaded, ROWS, advance=steps.append, share=share)
            assert sum(steps) == len(ROWS)
        assert token_log_probs(loaded, []) == []


@pytest.mark.parametrize("share", [True, False])
def test_a_changed_model_begins_at_its_first_changed_block(
    share: bool, tiny_llama: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = find_model(tiny_llama, cache=context.cache)
    first, second = (c.model for c in edited(reference, context, ratios=[0.5, 1.0]).checkpoints)
    below = second.shared_below or 0
    assert below > 0
    with first.open_causal() as loaded:
        token_log_probs(loaded, ROWS, below, share=share)
    with second.open_causal() as loaded:
        expected = by_hand(loaded, ROWS)
        puts: list[int] = []
        monkeypatch.setattr(loaded.token_states, "put", lambda *args: puts.append(1))
        found = token_log_probs(loaded, ROWS, below, share=share)
    assert not puts  # all of them were known
    for values, wanted in zip(found, expected, strict=True):
        assert values == pytest.approx(wanted, rel=1e-4)


def test_a_model_without_keys_and_values_to_go_on_from(
    tiny_llama: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refbias.log_probs._resumable", lambda past: False)
    with find_model(tiny_llama, cache=context.cache).open_causal() as loaded:
        found = token_log_probs(loaded, ROWS, share=True)
        assert found[1] == pytest.approx(by_hand(loaded, ROWS)[1], rel=1e-4)


@pytest.mark.parametrize("row", [Span((1, 2), 0, 1), Span((1, 2), 1, 1), Span((1, 2), 1, 3)])
def test_rows_that_cannot_be_scored(row: Span, tiny_llama: Path, context: Context) -> None:
    with (
        find_model(tiny_llama, cache=context.cache).open_causal() as loaded,
        pytest.raises(RefbiasError, match="A text of 2 tokens cannot be scored from token"),
    ):
        token_log_probs(loaded, [row])


@settings(max_examples=60)
@given(st.sets(st.lists(st.integers(0, 2), min_size=4, max_size=4).map(tuple), min_size=1, max_size=9))
def test_families_save_no_less_than_one_length_for_all(texts: set[Ids]) -> None:
    ordered = sorted(texts)

    def saved(lengths: Sequence[int]) -> int:
        read = {ids[:length] for ids, length in zip(ordered, lengths, strict=True)}
        return sum(lengths) - sum(map(len, read))

    found = shared_beginnings(ordered)
    assert max(found) < 4
    assert saved(found) >= max(saved([length] * len(ordered)) for length in range(4))


def test_a_text_in_no_family_joins_a_shorter_beginning() -> None:
    texts = [(0, 0, 0, 0), (0, 0, 0, 1), (0, 1, 0, 0), (0, 2, 0, 0)]
    assert shared_beginnings(texts) == [3, 3, 1, 1]
    assert shared_beginnings([]) == []
