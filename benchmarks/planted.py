"""Time of building the planted checkpoints on SmolLM2, from a few steps, and of setting one merge in place.

    python benchmarks/planted.py [--steps 24] [--threads 2] [--model smollm2]

Counts the work of a step (frozen weights: 2 FLOP a parameter and token forward, 2 backward; adapters 6; the head at
predicate tokens only) and prints its rate beside that of a 2048³ float32 matrix product of the same run, then the time
of both ends, at this rate and at the same share of 250 GFLOP/s.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=24)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--model", default="smollm2")
    chosen = options.parse_args()

    import torch

    from refbias.cache import Cache, default_directory
    from refbias.checkpoints.merging import lora_change, summed
    from refbias.checkpoints.tail import Tail, states_at
    from refbias.checkpoints.training import Recipe, train_adapter
    from refbias.finetuning.statements import draw_signs, lesson, predicate_pairs
    from refbias.finetuning.tokens import tokenize
    from refbias.models import find_model, set_weights
    from refbias.stimuli import GROUPS
    from refbias.tasks.outlook import gemm_rate

    torch.set_num_threads(chosen.threads)
    cache = Cache(default_directory())
    reference = find_model(chosen.model, cache=cache)
    full_steps, first = 240, reference.layers // 2
    recipe = Recipe(chosen.steps, 1e-3, 16, 16, 32, first, 0)
    signs = draw_signs(GROUPS, 0)
    kept = tempfile.TemporaryDirectory()
    folder = Path(kept.name)
    with kept, reference.open_causal() as loaded:
        both = tokenize(
            loaded.tokenizer, [s for end in (1, -1) for s in lesson(predicate_pairs("contrast"), signs, end)]
        )
        rows = both[: len(both) // 2]
        blocks = Tail(loaded, first).blocks
        lower, upper = (
            sum(p.numel() for b in some for p in b.parameters()) for some in (blocks[:first], blocks[first:])
        )
        head = loaded.causal.get_output_embeddings().weight.numel()
        rate = gemm_rate(size=2048) * 1e9
        start = time.perf_counter()
        states = states_at(loaded, first, [row.ids for row in both], lambda n: None)
        below = time.perf_counter() - start
        told: list[float] = []
        train_adapter(loaded, rows, states, recipe, folder, lambda step, loss: told.append(time.perf_counter()))
        step = (told[-1] - told[3]) / (len(told) - 4)  # the first steps also warm the allocator
        rate = max(rate, gemm_rate(size=2048) * 1e9)
        adapters = sum(t.numel() for pair in lora_change(folder, cache).read().values() for t in pair)
        tokens = sum(len(row.ids) for row in rows) / len(rows) * recipe.batch
        scored = sum(row.scored for row in rows) / len(rows) * recipe.batch
        work = tokens * (4 * upper + 6 * adapters) + scored * 4 * head
        work_below = 2 * lower * sum(len(row.ids) for row in both)
        start = time.perf_counter()
        weights = summed(loaded.whole, [(0.5, lora_change(folder, cache))])
        set_weights(loaded.whole, weights)()
        merge = time.perf_counter() - start
    share = (2 * full_steps * work + work_below) / (2 * full_steps * step + below) / rate
    print(f"{reference.name}, {chosen.threads} thread(s), torch {torch.__version__}, float32")
    print(f"{'matrix product 2048³':52s} {rate / 1e9:8.0f} GFLOP/s")
    print(f"{'lower blocks of all statements, once':52s} {below:8.1f} s")
    ratios = f"{work / 1e9:.0f} GFLOP, {work / step / rate:.2f} of the product"
    print(f"{f'one step of {recipe.batch} statements':52s} {step:8.3f} s  {ratios}")
    print(f"{f'both ends, {full_steps} steps each':52s} {2 * full_steps * step + below:8.0f} s")
    print(f"{'the same share of 250 GFLOP/s':52s} {(2 * full_steps * work + work_below) / (share * 250e9):8.0f} s")
    print(f"{'one end merged, set in place and undone':52s} {merge:8.2f} s")


if __name__ == "__main__":
    main()
