"""Poolings by mask: against the same in numpy, under both padding sides."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refbias.errors import UsageError
from refbias.pooling import POOLINGS, SPECIAL, TOKEN, Pooling, built_in, kept, pooling_from_choice
from refbias.registry import Choice, Part, registry

BY_HAND: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda h: h.mean(0),
    "max": lambda h: h.max(0),
    "last": lambda h: h[-1],
    "first": lambda h: h[0],
}


def padded(rows: list[np.ndarray], marks: list[list[int]], left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """``rows`` (t_i, d) as one tensor; what stands at padding is far off, so that it shows where it is read."""
    longest = max(map(len, rows))
    states = np.full((len(rows), longest, rows[0].shape[1]), 1e6, np.float32)
    mask = np.zeros((len(rows), longest), np.int64)
    for i, (row, mark) in enumerate(zip(rows, marks, strict=True)):
        place = slice(longest - len(row), None) if left else slice(len(row))
        states[i, place], mask[i, place] = row, mark
    return torch.from_numpy(states), torch.from_numpy(mask)


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("skip", ["none", "special", "sink"])
@pytest.mark.parametrize("left", [False, True])
@given(lengths=st.lists(st.integers(3, 9), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_poolings_read_the_mask(name: str, skip: str, left: bool, lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(t, 5)).astype(np.float32) for t in lengths]
    marks = [[SPECIAL, *[TOKEN] * (t - 2), SPECIAL] for t in lengths]
    cut = {"none": slice(None), "special": slice(1, -1), "sink": slice(1, None)}[skip]
    expected = np.stack([BY_HAND[name](row[cut]) for row in rows])
    found = built_in(name, skip).function(*padded(rows, marks, left))  # type: ignore[arg-type]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", POOLINGS)
def test_half_precision_is_pooled_in_fp32(name: str) -> None:
    states = torch.full((1, 4096, 2), 1.001, dtype=torch.bfloat16)
    found = POOLINGS[name](states, torch.ones(1, 4096))
    assert found.dtype == torch.float32
    assert found[0, 0].item() == pytest.approx(float(states[0, 0, 0]), rel=1e-6)


def test_a_plain_mask_of_ones_is_understood() -> None:
    mask = torch.tensor([[False, True, True]])
    assert kept(mask, "sink").tolist() == [[False, False, True]]
    assert kept(mask.int()).tolist() == [[False, True, True]]


def test_keys_tell_options_apart() -> None:
    assert built_in("mean").key == "mean(skip=none)"
    assert len({built_in(name, skip).key for name in POOLINGS for skip in ("none", "special", "sink")}) == 12


def halves(states: torch.Tensor, mask: torch.Tensor, *, weight: float = 0.5) -> torch.Tensor:
    return states[:, 0] * weight


class Halves:
    def __init__(self, weight: float = 0.5) -> None:
        self.weight = weight

    def __call__(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return states[:, 0] * self.weight


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """`halves` and `Halves` as poolings of a plug-in."""
    for factory in (halves, Halves):
        part = Part("pooling", factory.__name__, factory, {}, "a plug-in")
        monkeypatch.setitem(registry()._parts["pooling"], factory.__name__, part)


def chosen(choice: Any) -> Pooling:
    return pooling_from_choice(registry().resolve("pooling", choice))


@pytest.mark.parametrize("name", ["halves", "Halves"])
def test_a_registered_pooling_is_named_by_its_options_and_its_file(
    name: str, registered: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pooling = chosen((name, {"weight": 0.25}))
    assert pooling.lasting and not pooling.parameter_free and pooling.skip == "none"
    assert pooling.key.startswith(f"{name}(weight=0.25)@") and pooling.key == chosen((name, {"weight": 0.25})).key
    assert chosen(name).lasting and chosen(name).key != pooling.key
    changed = tmp_path / "plugin.py"
    changed.write_text(Path(__file__).read_text(encoding="utf-8") + "\n", encoding="utf-8")
    monkeypatch.setattr(sys.modules[halves.__module__], "__file__", str(changed))
    assert chosen((name, {"weight": 0.25})).key != pooling.key


def scaled(weight: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda states, mask: states[:, 0] * weight


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (scaled(1.0), scaled(2.0)),
        (Halves(1.0), Halves(2.0)),
        (functools.partial(halves, weight=1.0), functools.partial(halves, weight=2.0)),
        (halves, halves),
    ],
)
def test_objects_of_ones_own_share_no_key_and_do_not_last(one: Any, two: Any, registered: None) -> None:
    poolings = [chosen(one), chosen(two)]
    assert poolings[0].key != poolings[1].key and not any(pooling.lasting for pooling in poolings)


def test_a_registered_closure_does_not_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        registry()._parts["pooling"],
        "scaled",
        Part("pooling", "scaled", scaled(2.0), {}, "a plug-in"),
    )
    assert not chosen("scaled").lasting


def test_a_built_in_pooling_may_be_given_as_its_function() -> None:
    assert chosen(POOLINGS["mean"]).key == built_in("mean").key


def test_a_name_alone_does_not_make_a_pooling_built_in() -> None:
    fake = Choice("pooling", "mean", {}, halves)
    assert not pooling_from_choice(fake).parameter_free
    real = Choice("pooling", "mean", {"skip": "sink"}, functools.partial(POOLINGS["mean"], skip="sink"))
    assert pooling_from_choice(real).parameter_free
    assert pooling_from_choice(real).key == built_in("mean", "sink").key


def test_an_unknown_skip_is_refused() -> None:
    with pytest.raises(UsageError, match=r"pooling\.skip='bos': expected none, special or sink"):
        pooling_from_choice(Choice("pooling", "mean", {"skip": "bos"}, POOLINGS["mean"]))
