"""What is encoded, what comes from the cache, and that both are the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from refbias.cache import Cache, CacheWarning
from refbias.context import Context
from refbias.encoders import ENCODERS
from refbias.encoding import Embedded, embed, encode
from refbias.errors import RefbiasError, UsageError
from refbias.models import DerivedModel, Model, find_model, set_weights
from refbias.pooling import POOLINGS, Pooling, built_in, pooling_from_choice
from refbias.registry import Part, registry
from refbias.watch import Advance, Quiet
from tests.tiny_models import SENTENCES

MEAN, MAX = built_in("mean"), built_in("max")


@pytest.fixture
def model(tiny_llama: Path, cache: Cache) -> Model:
    return find_model(tiny_llama, cache=cache)


def again(model: Model, cache: Cache, sentences: list[str], layers: list[int], poolings: list[Pooling]) -> Embedded:
    """As a new process would: a new cache object on the same folder."""
    fresh = Cache(cache.directory)
    return embed(ENCODERS["auto"](model, Context(fresh)), sentences, layers, poolings, fresh)


def equal(one: Embedded, two: Embedded) -> bool:
    return one.vectors.keys() == two.vectors.keys() and all(
        np.array_equal(rows, two.vectors[key]) for key, rows in one.vectors.items()
    )


def test_a_second_run_encodes_nothing(model: Model, cache: Cache) -> None:
    first = again(model, cache, SENTENCES, [0, 4], [MEAN])
    second = again(model, cache, SENTENCES, [0, 4], [MEAN])
    assert (first.encoded, first.from_cache) == (8, 0) and (second.encoded, second.from_cache) == (0, 8)
    assert first.tokens == first.tokens_encoded == second.tokens > 40 and second.tokens_encoded == 0
    assert equal(first, second)
    assert first.sink_share == pytest.approx(second.sink_share) and set(first.sink_share) == {0, 4}
    assert first.vectors[4, MEAN.key].dtype == np.float32 and first.vectors[4, MEAN.key].shape == (8, 32)


def test_a_sweep_over_poolings_encodes_nothing_twice(model: Model, cache: Cache) -> None:
    again(model, cache, SENTENCES, [4], [MEAN])
    for name in POOLINGS:
        assert again(model, cache, SENTENCES, [4], [built_in(name)]).encoded == 0


def test_only_what_is_missing_is_encoded(model: Model, cache: Cache) -> None:
    again(model, cache, SENTENCES[:5], [4], [MEAN])
    more = again(model, cache, [*SENTENCES[3:], SENTENCES[0]], [4], [MEAN, MAX])
    assert (more.encoded, more.from_cache) == (3, 3)
    whole = again(model, Cache(None), [*SENTENCES[3:], SENTENCES[0]], [4], [MEAN, MAX])
    for key, rows in whole.vectors.items():
        np.testing.assert_allclose(more.vectors[key], rows, rtol=1e-4, atol=1e-5)
    assert again(model, cache, SENTENCES, [3, 4], [MEAN]).encoded == 8


def test_duplicates_are_encoded_once(model: Model, cache: Cache) -> None:
    found = again(model, cache, ["Tea.", "Joy.", "Tea."], [4], [MEAN])
    assert (found.encoded, found.from_cache) == (2, 0)
    rows = found.vectors[4, MEAN.key]
    assert len(rows) == 3 and np.array_equal(rows[0], rows[2]) and not np.array_equal(rows[0], rows[1])


def test_options_that_change_vectors_share_nothing(model: Model, cache: Cache) -> None:
    embed(ENCODERS["hf"](model, Context(cache)), SENTENCES, [4], [MEAN], cache)
    other = embed(ENCODERS["hf"](model, Context(cache), special_tokens=False), SENTENCES, [4], [MEAN], cache)
    assert other.encoded == 8
    same = embed(ENCODERS["hf"](model, Context(cache), batch_tokens=20), SENTENCES, [4], [MEAN], cache)
    assert same.encoded == 0


def test_what_was_encoded_before_a_kill_is_kept(model: Model, cache: Cache) -> None:
    class Killer(Quiet):
        @contextmanager
        def progress(self, label: str, total: int, unit: str = "") -> Iterator[Advance]:
            def advance(n: int) -> None:
                raise KeyboardInterrupt

            yield advance

    encoder = ENCODERS["hf"](model, Context(cache), batch_tokens=1)
    with pytest.raises(KeyboardInterrupt):
        embed(encoder, SENTENCES, [4], [MEAN], cache, Killer())
    found = again(model, cache, SENTENCES, [4], [MEAN])
    assert (found.encoded, found.from_cache) == (7, 1)


def test_a_damaged_row_is_encoded_again(model: Model, cache: Cache) -> None:
    first = again(model, cache, SENTENCES, [4], [MEAN])
    store = cache.store(ENCODERS["auto"](model, Context(cache)).fingerprint)
    store.get(["any"])
    assert store._database is not None
    with store._database as database:
        database.execute("UPDATE vectors SET crc = crc + 1 WHERE rowid = 3")
    with pytest.warns(CacheWarning, match="1 damaged value"):
        second = again(model, cache, SENTENCES, [4], [MEAN])
    assert (second.encoded, second.from_cache) == (1, 7)
    np.testing.assert_allclose(second.vectors[4, MEAN.key], first.vectors[4, MEAN.key], rtol=1e-4, atol=1e-5)


def halves(states: torch.Tensor, mask: torch.Tensor, *, weight: float = 0.5) -> torch.Tensor:
    return (states[:, 0] * weight).float()


def test_a_registered_pooling_is_cached_with_its_options(
    model: Model, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Part("pooling", "halves", halves, {}, "a plug-in")
    monkeypatch.setitem(registry()._parts["pooling"], "halves", part)

    def own(weight: float) -> Pooling:
        return pooling_from_choice(registry().resolve("pooling", ("halves", {"weight": weight})))

    found = again(model, cache, SENTENCES, [4], [own(0.5), built_in("first")])
    np.testing.assert_allclose(found.vectors[4, own(0.5).key], 0.5 * found.vectors[4, built_in("first").key], rtol=1e-6)
    assert again(model, cache, SENTENCES, [4], [own(0.5)]).encoded == 0
    assert again(model, cache, SENTENCES, [4], [own(0.25)]).encoded == 8


def test_poolings_that_captured_other_values_share_no_vectors(model: Model, cache: Cache) -> None:
    def scaled(weight: float) -> Any:
        return lambda states, mask: (states[:, 0] * weight).float()

    one, two = (encode(model, SENTENCES, pooling=scaled(weight), cache=cache) for weight in (1.0, 2.0))
    np.testing.assert_allclose(two, 2 * one, rtol=1e-6)
    np.testing.assert_allclose(one, encode(model, SENTENCES, pooling="first", cache=cache), rtol=1e-4, atol=1e-5)
    own = pooling_from_choice(registry().resolve("pooling", scaled(3.0)))
    encoder = ENCODERS["auto"](model, Context(cache))
    first = embed(encoder, SENTENCES, [4], [own, MEAN], cache)
    assert embed(encoder, SENTENCES, [4], [own, MEAN], cache).encoded == 0  # in memory, while this cache lives
    assert again(model, cache, SENTENCES, [4], [own]).encoded == 8  # and never on disk
    np.testing.assert_allclose(first.vectors[4, own.key], 3 * one, rtol=1e-4, atol=1e-5)
    assert again(model, cache, SENTENCES, [4], [MEAN]).encoded == 0


def test_a_built_in_pooling_may_be_given_as_its_function(model: Model, cache: Cache) -> None:
    wanted = encode(model, SENTENCES, pooling="mean", cache=cache)
    np.testing.assert_array_equal(encode(model, SENTENCES, pooling=POOLINGS["mean"], cache=cache), wanted)


def changed(base: Model, factor: float) -> DerivedModel:
    name = "model.layers.2.mlp.down_proj.weight"
    return DerivedModel(
        base,
        f"x {factor}",
        base.fingerprint if factor == 1.0 else f"{base.fingerprint}*{factor}",
        lambda module: set_weights(module, {name: module.get_parameter(name) * factor}),
        shared_below=2,
    )


def test_layers_below_the_change_are_the_rows_of_the_base(model: Model, cache: Cache) -> None:
    layers = [0, 1, 2, 3, 4]
    base = again(model, cache, SENTENCES, layers, [MEAN])
    one = again(changed(model, 2.0), cache, SENTENCES, layers, [MEAN])
    for layer in layers:
        assert np.array_equal(one.vectors[layer, MEAN.key], base.vectors[layer, MEAN.key]) == (layer <= 2)
    assert set(one.sink_share) == set(layers)
    assert again(changed(model, 3.0), cache, SENTENCES, [0, 2], [MEAN]).encoded == 0
    assert again(changed(model, 2.0), cache, SENTENCES, layers, [MEAN]).encoded == 0


def test_time_is_counted_once_for_a_base_and_its_change(model: Model, cache: Cache, monkeypatch: Any) -> None:
    def slowly(opened: Any) -> Any:
        @contextmanager
        def open_slowly(self: Model, *where: str) -> Iterator[Any]:
            time.sleep(0.2)
            with opened(self, *where) as loaded:
                yield loaded

        return open_slowly

    for kind in (Model, DerivedModel):
        monkeypatch.setattr(kind, "open", slowly(kind.open))
    found = again(changed(model, 2.0), cache, SENTENCES, [2, 4], [MEAN])  # the base's part, and its own
    assert 0.4 < found.load_seconds < found.seconds


def test_no_change_is_the_base_itself(model: Model, cache: Cache) -> None:
    base = again(model, cache, SENTENCES, [4], [MEAN])
    same = again(changed(model, 1.0), cache, SENTENCES, [4], [MEAN])
    assert same.encoded == 0 and equal(base, same)


# encode


def test_encode_shapes(model: Model) -> None:
    every = encode(model, SENTENCES, layer="all")
    assert every.shape == (8, 5, 32) and every.dtype == np.float32
    np.testing.assert_array_equal(encode(model, SENTENCES), every[:, 4])
    np.testing.assert_array_equal(encode(model, SENTENCES, layer=-2), every[:, 3])
    np.testing.assert_array_equal(encode(model, SENTENCES, layer=[4, 0]), every[:, [4, 0]])
    assert encode(model, SENTENCES, layer=[1]).shape == (8, 1, 32)


def test_encode_takes_a_live_pair_and_poolings(tiny_llama: Path, model: Model) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    live = AutoModelForCausalLM.from_pretrained(tiny_llama), AutoTokenizer.from_pretrained(tiny_llama)
    for pooling in ("max", ("mean", {"skip": "sink"})):
        np.testing.assert_allclose(
            encode(live, SENTENCES, pooling=pooling), encode(model, SENTENCES, pooling=pooling), rtol=1e-5, atol=1e-6
        )


def test_encode_keeps_vectors_where_asked(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    one = encode(model, SENTENCES, cache=folder)
    assert list((folder / "vectors").glob("*.sqlite"))
    np.testing.assert_array_equal(encode(model, SENTENCES, cache=Cache(folder)), one)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [("one string", "needs a list of sentences: got str"), ([1, 2], "needs a list"), ([], "at least one sentence")],
)
def test_encode_refuses(sentences: Any, message: str, model: Model) -> None:
    with pytest.raises((UsageError, RefbiasError), match=message):
        encode(model, sentences)
