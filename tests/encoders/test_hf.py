"""Hidden states as Hugging Face defines them, whatever the batch; bad rows; shared lower layers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from refbias.context import Context
from refbias.encoders import ENCODERS, HFEncoder
from refbias.encoders.hf import batches, find_blocks, side_by_side
from refbias.errors import RefbiasError, UsageError
from refbias.models import DerivedModel, LiveModel, Model, find_model, set_weights
from refbias.pooling import POOLINGS, Pooling, built_in
from tests.tiny_models import CAUSAL, SENTENCES, TINY

ALL = [built_in(name) for name in POOLINGS]
MEAN = built_in("mean")


def vectors(encoder: Any, sentences: list[str], layers: list[int], poolings: list[Pooling]) -> dict[Any, np.ndarray]:
    """Vectors in the order of the sentences."""
    out = {(k, p.key): np.full((len(sentences), encoder.dim), np.nan) for k in layers for p in poolings}
    for batch in encoder.encode(sentences, layers, poolings):
        for key, rows in batch.vectors.items():
            out[key][list(batch.indices)] = rows
    return out


def hidden_states(model: Model, sentence: str) -> list[np.ndarray]:
    """``output_hidden_states`` of one sentence alone: L+1 arrays (t, d)."""
    with model.open() as loaded, torch.inference_mode():
        ids = loaded.tokenizer(sentence, return_tensors="pt")["input_ids"]
        return [h[0].numpy() for h in loaded.model(input_ids=ids, output_hidden_states=True).hidden_states]


@pytest.mark.parametrize("family", TINY)
def test_layers_are_those_of_output_hidden_states(family: str, tiny: dict[str, Path], context: Context) -> None:
    model = find_model(tiny[family], cache=context.cache)
    found = vectors(ENCODERS["auto"](model, context), SENTENCES, list(range(model.layers + 1)), ALL)
    expected = [hidden_states(model, sentence) for sentence in SENTENCES]
    pooled: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "mean": lambda h: h.mean(0),
        "max": lambda h: h.max(0),
        "last": lambda h: h[-1],
        "first": lambda h: h[0],
    }
    assert len(expected[0]) == model.layers + 1 == 5
    for layer in range(model.layers + 1):
        for pooling in ALL:
            wanted = np.stack([pooled[pooling.name](states[layer]) for states in expected])
            np.testing.assert_allclose(found[layer, pooling.key], wanted, rtol=1e-4, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("family", TINY)
def test_batch_order_and_padding_side_change_nothing(family: str, tiny: dict[str, Path], context: Context) -> None:
    model = find_model(tiny[family], cache=context.cache)
    encoder = ENCODERS["hf"](model, context)
    layers = [0, 2, model.layers]
    one = vectors(encoder, SENTENCES, layers, ALL)
    order = [3, 7, 1, 0, 6, 2, 5, 4]
    with model.open() as loaded:
        side = loaded.tokenizer.padding_side
        loaded.tokenizer.padding_side = "right" if side == "left" else "left"
        try:
            small = replace(encoder, batch_tokens=1)
            other = vectors(small, [SENTENCES[i] for i in order], layers, ALL)
        finally:
            loaded.tokenizer.padding_side = side
    for key, rows in one.items():
        scale = np.linalg.norm(rows, axis=1, keepdims=True)
        assert (np.abs(other[key] - rows[order]) / scale[order]).max() < 1e-5


def test_pre_norm_is_the_last_block_before_the_final_norm(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    before = vectors(ENCODERS["hf"](model, context, layer_site="pre_norm"), SENTENCES, [3, 4], [built_in("last")])
    after = vectors(ENCODERS["hf"](model, context), SENTENCES, [3, 4], [built_in("last")])
    key = built_in("last").key
    with model.open() as loaded, torch.inference_mode():
        normed = loaded.model.norm(torch.tensor(before[4, key], dtype=torch.float32)).numpy()
    np.testing.assert_allclose(normed, after[4, key], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(before[3, key], after[3, key])
    assert not np.allclose(before[4, key], after[4, key])


def test_skip_leaves_out_special_tokens_or_the_sink(tiny: dict[str, Path], context: Context) -> None:
    model = find_model(tiny["bert"], cache=context.cache)
    poolings = [built_in("mean", "special"), built_in("mean", "sink"), built_in("first", "special")]
    found = vectors(ENCODERS["hf"](model, context), SENTENCES, [4], poolings)
    states = [hidden_states(model, sentence)[4] for sentence in SENTENCES]  # <s> … </s>
    expected = [[h[1:-1].mean(0) for h in states], [h[1:].mean(0) for h in states], [h[1] for h in states]]
    for pooling, rows in zip(poolings, expected, strict=True):
        np.testing.assert_allclose(found[4, pooling.key], np.stack(rows), rtol=1e-4, atol=1e-5)


def test_special_tokens_and_chat_template_are_options(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)

    def ids(**options: Any) -> list[int]:
        encoder = ENCODERS["hf"](model, context, **options)
        with model.open() as loaded:
            return list(encoder._tokenize(loaded, ["Tea."])[0].ids)

    with_bos, plain, chat = ids(), ids(special_tokens=False), ids(chat_template=True)
    assert with_bos == [1, *plain]
    with model.open() as loaded:
        assert loaded.tokenizer.decode(chat) == "<s>user: Tea.</s>"
    fingerprints = {
        ENCODERS["hf"](model, context, **options).fingerprint
        for options in (
            {},
            {"special_tokens": False},
            {"chat_template": True},
            {"max_length": 5},
            {"layer_site": "pre_norm"},
        )
    }
    assert len(fingerprints) == 5


def test_truncation_is_counted(tiny_llama: Path, context: Context) -> None:
    encoder = ENCODERS["hf"](find_model(tiny_llama, cache=context.cache), context, max_length=4)
    found = list(encoder.encode(["Tea.", SENTENCES[3], SENTENCES[0]], [4], [MEAN]))
    assert encoder.counts.truncated == 2
    assert max(count for batch in found for count in batch.tokens) == 4
    assert encoder.counts.tokens == sum(count for batch in found for count in batch.tokens)


def test_the_norm_share_of_position_0(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    for batch in ENCODERS["hf"](model, context).encode(SENTENCES, [0, 3], [MEAN]):
        for row, index in enumerate(batch.indices):
            norms = (hidden_states(model, SENTENCES[index])[3] ** 2).sum(1)
            assert batch.sink_share[3][row] == pytest.approx(norms[0] / norms.sum(), rel=1e-4)


@pytest.mark.parametrize("sentence", ["", "  \n"])
def test_an_empty_sentence_is_named(sentence: str, tiny_llama: Path, context: Context) -> None:
    encoder = ENCODERS["hf"](find_model(tiny_llama, cache=context.cache), context)
    with pytest.raises(RefbiasError, match="sentence number 1 is empty"):
        list(encoder.encode(["Tea.", sentence], [4], [MEAN]))


def test_a_sentence_without_tokens_is_named(tiny: dict[str, Path], context: Context) -> None:
    model = find_model(tiny["gpt2"], cache=context.cache)
    encoder = ENCODERS["hf"](model, context)
    with pytest.raises(RefbiasError, match=r"skip=sink leaves no token of 'a' \(1 in all\)"):
        list(encoder.encode(["Tea time.", "a"], [4], [built_in("mean", "sink")]))


def test_nan_in_a_layer_names_model_layer_and_sentence(tiny_llama: Path, context: Context) -> None:
    base = find_model(tiny_llama, cache=context.cache)
    name = "model.layers.1.mlp.down_proj.weight"

    def spoil(module: torch.nn.Module) -> Callable[[], None]:
        return set_weights(module, {name: torch.full_like(module.get_parameter(name), float("nan"))})

    broken = DerivedModel(base, "broken", "f", spoil)
    with pytest.raises(RefbiasError, match=r"broken gives NaN or infinity at layer 2, .* 'Tea\.'"):
        list(ENCODERS["hf"](broken, context).encode(["Tea."], [0, 1, 2, 3, 4], [MEAN]))


def test_wrong_options_are_refused(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    with pytest.raises(UsageError, match=r"encoder\.max_length=0: expected 1 or more"):
        ENCODERS["hf"](model, context, max_length=0)
    with pytest.raises(UsageError, match=r"layer_site='mid'"):
        ENCODERS["hf"](model, context, layer_site="mid")


def test_batches_hold_one_length_within_the_budget() -> None:
    lengths = [7] * 30 + [9] * 5 + [200]
    found = list(batches(lengths, 64))
    assert sorted(i for part in found for i in part) == list(range(36))
    assert all(len({lengths[i] for i in part}) == 1 for part in found)
    assert all(len(part) * lengths[part[0]] <= 64 or len(part) == 1 for part in found)
    assert found[0] == [35]


def test_passes_side_by_side_keep_their_order_and_the_number_of_threads() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        started = threading.Barrier(3, timeout=30)  # three passes must be under way at once

        def work(item: int) -> tuple[int, int]:
            if item < 3:
                started.wait()
            return item, torch.get_num_threads()

        assert list(side_by_side(work, range(9), workers=3)) == [(item, 1) for item in range(9)]
        assert [count for _, count in side_by_side(work, range(3, 9), workers=2)] == [2] * 6
        assert list(side_by_side(work, range(3, 5), workers=1)) == [(3, 4), (4, 4)]
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(threads)


def test_an_error_in_one_pass_ends_them_all() -> None:
    done: list[int] = []

    def work(item: int) -> int:
        if item == 2:
            raise RefbiasError("no")
        done.append(item)
        return item

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(RefbiasError, match="no"):
            list(side_by_side(work, range(100), workers=2))
    finally:
        torch.set_num_threads(threads)
    assert len(done) < 10


def edited(base: Model, block: int, factor: float) -> DerivedModel:
    """``base`` with the output matrix of one MLP multiplied by ``factor``."""
    name = {"gpt2": f"transformer.h.{block}.mlp.c_proj.weight"}.get(
        Path(base.name).name, f"model.layers.{block}.mlp.down_proj.weight"
    )
    return DerivedModel(
        base,
        f"edited {factor}",
        f"{base.fingerprint}-{block}-{factor}",
        lambda module: set_weights(module, {name: module.get_parameter(name) * factor}),
        shared_below=block,
    )


@pytest.mark.parametrize("family", CAUSAL)
def test_a_changed_model_begins_at_its_first_changed_block(
    family: str, tiny: dict[str, Path], context: Context, fresh_models: None
) -> None:
    base = find_model(str(tiny[family]), cache=context.cache)
    models = [edited(base, 2, factor) for factor in (3.0, -1.0)]
    whole = [without_shared(model) for model in models]
    expected = [vectors(ENCODERS["hf"](model, context), SENTENCES, [3, 4], ALL) for model in whole]
    with base.open() as loaded:
        blocks = find_blocks(loaded.model, base.layers)
    seen: list[int] = []
    hooks = [b.mlp.register_forward_hook(lambda *a, k=k: seen.append(k)) for k, b in enumerate(blocks)]
    try:
        for number, model in enumerate(models):
            seen.clear()
            found = vectors(ENCODERS["hf"](model, context), SENTENCES, [3, 4], ALL)
            for key, rows in expected[number].items():
                np.testing.assert_allclose(found[key], rows, rtol=1e-4, atol=1e-5 * np.abs(rows).max())
            assert set(seen) == ({0, 1, 2, 3} if number == 0 else {2, 3})
        assert not np.allclose(expected[0][4, MEAN.key], expected[1][4, MEAN.key])
    finally:
        for hook in hooks:
            hook.remove()


def without_shared(model: DerivedModel) -> DerivedModel:
    return DerivedModel(model.base, model.name, model.fingerprint + "-whole", model._apply)


def test_the_base_keeps_the_states_that_its_changed_models_begin_at(
    tiny_llama: Path, context: Context, fresh_models: None
) -> None:
    base = find_model(tiny_llama, cache=context.cache)
    changed = edited(base, 2, 2.0)
    list(ENCODERS["hf"](base, context).encode(SENTENCES, [4], [MEAN]))
    seen: list[int] = []
    with base.open() as loaded:
        hook = loaded.model.layers[0].mlp.register_forward_hook(lambda *args: seen.append(0))
    list(ENCODERS["hf"](changed, context).encode(SENTENCES, [4], [MEAN]))
    hook.remove()
    assert not seen


def test_a_forward_that_others_have_set_on_a_block_stays(
    tiny_llama: Path, context: Context, fresh_models: None
) -> None:
    base = find_model(tiny_llama, cache=context.cache)
    seen: list[int] = []
    with base.open() as loaded:
        block, other = loaded.model.layers[0], loaded.model.layers[1]
    compute = block.forward

    def hooked(*args: Any, **kwargs: Any) -> Any:  # as accelerate does
        seen.append(0)
        return compute(*args, **kwargs)

    block.forward = hooked
    list(ENCODERS["hf"](edited(base, 2, 2.0), context).encode(["Tea."], [4], [MEAN]))
    assert seen == [0] and block.forward is hooked and "forward" not in vars(other)


def test_layers_above_the_last_asked_one_are_not_computed(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    seen: list[int] = []
    with model.open() as loaded:
        hooks = [b.register_forward_hook(lambda *a, k=k: seen.append(k)) for k, b in enumerate(loaded.model.layers)]
    list(ENCODERS["hf"](model, context).encode(["Tea."], [2], [MEAN]))
    for hook in hooks:
        hook.remove()
    assert seen == [0, 1]


def test_a_live_model_is_encoded_as_its_files_are(tiny_llama: Path, context: Context) -> None:
    folder = find_model(tiny_llama, cache=context.cache)
    with folder.open() as loaded:
        live = find_model((loaded.whole, loaded.tokenizer), cache=context.cache)
        assert isinstance(live, LiveModel) and live.causal and (live.layers, live.dim) == (4, 32)
        one = vectors(ENCODERS["auto"](live, context), SENTENCES, [4], [MEAN])
    two = vectors(ENCODERS["auto"](folder, context), SENTENCES, [4], [MEAN])
    np.testing.assert_array_equal(one[4, MEAN.key], two[4, MEAN.key])


def test_smollm2_equals_a_plain_forward_pass(smollm2: Model, context: Context) -> None:
    encoder = ENCODERS["auto"](smollm2, context)
    assert isinstance(encoder, HFEncoder)
    found = vectors(encoder, SENTENCES[:3], [0, 12, 30], [MEAN])
    for row, sentence in enumerate(SENTENCES[:3]):
        states = hidden_states(smollm2, sentence)
        for layer in (0, 12, 30):
            wanted = states[layer].mean(0)
            error = np.linalg.norm(found[layer, MEAN.key][row] - wanted) / np.linalg.norm(wanted)
            assert error < 1e-5
