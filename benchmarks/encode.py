"""Speed and memory of encoding, as ratios measured in one run: python benchmarks/encode.py

Encodes the packaged sentences with SmolLM2, all layers × three poolings, fp32, and compares with a plain loop of one
sentence a call with ``output_hidden_states`` and with the rate of a 2048³ matrix product. The three take turns, so
that other work on the machine slows all of them alike. Then: the same through an empty cache on disk, and a model
changed at block 18.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil
import torch

from refbias.cache import Cache, default_directory
from refbias.context import Context
from refbias.encoders import ENCODERS
from refbias.encoding import embed
from refbias.models import DerivedModel, Model, find_model, release, set_weights
from refbias.pipeline import load_stimuli
from refbias.pooling import built_in

POOLINGS = [built_in(name) for name in ("mean", "max", "last")]
BLOCK = 18


def gemm_rate(repeats: int = 8) -> float:
    """FLOP/s of a 2048³ product in fp32."""
    a, b, out = (torch.randn(2048, 2048) for _ in range(3))
    torch.mm(a, b, out=out)
    start = time.perf_counter()
    for _ in range(repeats):
        torch.mm(a, b, out=out)
    return 2 * 2048**3 * repeats / (time.perf_counter() - start)


def plain_rate(model: Model, sentences: Sequence[str]) -> float:
    """Sentences/s of the plain loop: one a call, with the head, all hidden states kept for one call."""
    with model.open_causal() as loaded, torch.inference_mode():
        start = time.perf_counter()
        for sentence in sentences:
            row = loaded.tokenizer(sentence, return_tensors="pt")
            states = loaded.causal(**row, output_hidden_states=True).hidden_states
            for layer in states:
                layer[0].mean(0), layer[0].amax(0), layer[0, -1]
        return len(sentences) / (time.perf_counter() - start)


def encode(model: Model, sentences: Sequence[str], layers: Sequence[int]) -> tuple[float, int]:
    """Seconds and tokens of one pass without a cache."""
    encoder = ENCODERS["hf"](model, Context(Cache(None)))
    start = time.perf_counter()
    for _ in encoder.encode(sentences, layers, POOLINGS):
        pass
    return time.perf_counter() - start, encoder.counts.tokens


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Largest resident size in bytes during the block, sampled every 5 ms, minus the one at its start."""
    process, done, growth = psutil.Process(), threading.Event(), [0]
    before = process.memory_info().rss

    def sample() -> None:
        while not done.wait(0.005):
            growth[0] = max(growth[0], process.memory_info().rss - before)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield growth
    finally:
        done.set()
        thread.join()


def changed(base: Model) -> DerivedModel:
    name = f"model.layers.{BLOCK}.mlp.down_proj.weight"
    return DerivedModel(
        base,
        "changed",
        f"{base.fingerprint}-benchmark",
        lambda module: set_weights(module, {name: module.get_parameter(name) * 1.01}),
        shared_below=BLOCK,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=2400)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = find_model("smollm2", cache=Cache(default_directory()))
    sentences = load_stimuli().sentences()[: options.sentences]
    layers = list(range(model.layers + 1))
    with model.open() as loaded:
        parameters = sum(p.numel() for p in loaded.model.parameters()) - loaded.model.embed_tokens.weight.numel()
    encode(model, sentences[:64], layers)
    plain_rate(model, sentences[:4])

    to_gemm, to_plain, rates, gemms = [], [], [], []
    with peak_memory() as growth:
        for number in range(options.rounds):
            part = sentences[number :: options.rounds]
            before, plain = gemm_rate(), plain_rate(model, part[:30])
            seconds, tokens = encode(model, part, layers)
            gemms.append((before + gemm_rate()) / 2)
            rates.append(len(part) / seconds)
            to_gemm.append(2 * parameters * tokens / seconds / gemms[-1])
            to_plain.append(rates[-1] / plain)

    release()
    derived = changed(model)
    whole, _ = encode(model, sentences, layers)
    upper, _ = encode(derived, sentences, layers[BLOCK + 1 :])
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(folder)
        encoder = ENCODERS["hf"](model, Context(cache))
        with peak_memory() as through:
            cold = embed(encoder, sentences, layers, POOLINGS, cache)
        warm = embed(encoder, sentences, layers, POOLINGS, Cache(folder))
    report = {
        "sentences": len(sentences),
        "tokens": cold.tokens,
        "threads": options.threads,
        "gemm_gflops": statistics.median(gemms) / 1e9,
        "sentences_per_s": statistics.median(rates),
        "times_plain_loop (>= 5)": statistics.median(to_plain),
        "share_of_gemm_rate (>= 0.65)": statistics.median(to_gemm),
        "changed_at_block_18 (<= 0.5)": upper / whole,
        "peak_gib_above_loaded (<= 1)": growth[0] / 2**30,
        "through_cold_cache_times_without": cold.seconds / whole,
        "peak_gib_through_cache, 0.48 of it results": through[0] / 2**30,
        "all_layers_from_cache_s": warm.seconds,
    }
    print(json.dumps({key: round(value, 3) for key, value in report.items()}, indent=2))


if __name__ == "__main__":
    main()
