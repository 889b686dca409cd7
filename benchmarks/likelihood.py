"""Time of the likelihood benchmark: 24 groups x 24 predicates on SmolLM2.

    python benchmarks/likelihood.py [--threads 2] [--model smollm2] [--sample 96]

Beside it a plain loop, one statement a call with all logits, on a sample of the statements; both as statements a
second, and ours as a share of the rate of a 2048³ float32 matrix product in the same run.
"""

from __future__ import annotations

import argparse
import time


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--model", default="smollm2")
    options.add_argument("--sample", type=int, default=96)
    chosen = options.parse_args()

    import torch

    from refbias.cache import Cache, default_directory
    from refbias.checkpoints.tail import Tail
    from refbias.finetuning.statements import Statement, noun_of, predicate_pairs
    from refbias.finetuning.tokens import tokenize
    from refbias.likelihood import predicate_log_probs
    from refbias.models import find_model
    from refbias.stimuli import GROUPS
    from refbias.tasks.outlook import gemm_rate

    torch.set_num_threads(chosen.threads)
    reference = find_model(chosen.model, cache=Cache(default_directory()))
    statements = [
        Statement(group, noun_of(group), predicate)
        for group in GROUPS
        for pair in predicate_pairs("likelihood")
        for predicate in pair
    ]
    with reference.open_causal() as loaded, torch.inference_mode():
        rows = tokenize(loaded.tokenizer, statements)
        sample = rows[:: max(1, len(rows) // chosen.sample)]

        def plain() -> None:
            for row in sample:
                ids = torch.tensor([row.ids])
                logs = loaded.causal(input_ids=ids).logits[0, :-1].log_softmax(-1)
                logs.gather(1, ids[0, 1:, None])[row.begin - 1 :].sum().item()

        def seconds(run: object) -> float:
            start = time.perf_counter()
            run()  # type: ignore[operator]
            return time.perf_counter() - start

        rate = gemm_rate(size=2048) * 1e9
        predicate_log_probs(loaded, rows[:32])
        loop = len(sample) / seconds(plain)
        ours = len(rows) / min(seconds(lambda: predicate_log_probs(loaded, rows)) for _ in range(2))
        middle = reference.layers // 2
        predicate_log_probs(loaded, rows, middle)  # keeps the states that the next one begins with
        resumed = len(rows) / seconds(lambda: predicate_log_probs(loaded, rows, middle))
        rate = max(rate, gemm_rate(size=2048) * 1e9)
        blocks = sum(p.numel() for block in Tail(loaded).blocks for p in block.parameters())
        head = loaded.causal.get_output_embeddings().weight.numel()
    work = 2 * blocks * sum(len(row.ids) for row in rows) + 2 * head * sum(row.scored for row in rows)
    share = work / len(rows) * ours / rate
    print(f"{reference.name}, {chosen.threads} thread(s), torch {torch.__version__}, float32, {len(rows)} statements")
    print(f"{'matrix product 2048³':52s} {rate / 1e9:8.0f} GFLOP/s")
    print(f"{'one statement a call, all logits':52s} {loop:8.1f} statements/s")
    ratios = f"{ours / loop:.1f} x, {share:.2f} of the product"
    print(f"{'batches of one length, head where needed':52s} {ours:8.1f} statements/s  {ratios}")
    print(f"{'another change of the same upper half':52s} {resumed:8.1f} statements/s  {resumed / ours:.1f} x that")


if __name__ == "__main__":
    main()
