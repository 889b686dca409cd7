"""Time of the likelihood benchmark on SmolLM2: statements, and the margin in a chat.

    python benchmarks/likelihood.py [--threads 2] [--groups 24] [--rounds 3] [--sample 24]

Beside it a plain loop, one text a call with all logits, on a sample of the texts. The loop, a 2048³ float32 matrix
product and the engine take turns, so that other work on the machine slows all of them alike; figures are medians. The
work of the engine is that of the tokens it reads and the positions whose logits it computes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from refbias.benchmarks.likelihood import ANSWERS, BEGUN, QUESTION
from refbias.cache import Cache, default_directory
from refbias.checkpoints.tail import Tail
from refbias.finetuning.statements import Statement, noun_of, predicate_pairs
from refbias.finetuning.tokens import tokenize
from refbias.likelihood import rendered
from refbias.log_probs import Marked, token_log_probs
from refbias.models import find_model
from refbias.models.base import Loaded
from refbias.stimuli import GROUPS
from refbias.tasks.outlook import gemm_rate


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def plain(loaded: Loaded, rows: Sequence[Marked]) -> None:
    """One text a call, all logits."""
    for row in rows:
        ids = torch.tensor([row.ids])
        logs = loaded.causal(input_ids=ids).logits[0, :-1].log_softmax(-1)
        logs.gather(1, ids[0, 1:, None])[row.begin - 1 :].sum().item()


def work(loaded: Loaded, run: Callable[[], object]) -> tuple[int, float]:
    """Tokens that ``run`` reads, and its floating point operations in weights."""
    read, scored = [], []
    head = loaded.causal.get_output_embeddings()
    hooks = [
        loaded.causal.register_forward_pre_hook(
            lambda module, args, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True
        ),
        head.register_forward_hook(lambda module, args, output: scored.append(len(output))),
    ]
    run()
    for hook in hooks:
        hook.remove()
    blocks = sum(p.numel() for block in Tail(loaded).blocks for p in block.parameters())
    return sum(read), 2.0 * blocks * sum(read) + 2.0 * head.weight.numel() * sum(scored)


def measure(loaded: Loaded, rows: Sequence[Marked], rounds: int, sample: int) -> dict[str, Any]:
    """Rates of the engine and their ratios to those of the loop and of the product."""
    some = rows[:: max(1, len(rows) // sample)]
    tokens, operations = work(loaded, lambda: token_log_probs(loaded, rows))
    plain(loaded, some[:2])
    rates, to_loop, to_product, to_apart, products = [], [], [], [], []
    for _ in range(rounds):
        before = gemm_rate(size=2048)
        loop = len(some) / seconds(lambda: plain(loaded, some))
        taken = seconds(lambda: token_log_probs(loaded, rows))
        products.append((before + gemm_rate(size=2048)) / 2)
        rates.append(len(rows) / taken)
        to_loop.append(rates[-1] / loop)
        to_product.append(operations / taken / products[-1] / 1e9)
        to_apart.append(seconds(lambda: token_log_probs(loaded, rows, share=False)) / taken)
    return {
        "texts": len(rows),
        "tokens": sum(len(row.ids) for row in rows),
        "tokens_read": tokens,
        "texts_per_s": statistics.median(rates),
        "gemm_gflops": statistics.median(products),
        "times_one_text_a_call (>= 3)": statistics.median(to_loop),
        "share_of_gemm_rate (>= 0.6)": statistics.median(to_product),
        "times_without_common_beginnings": statistics.median(to_apart),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--model", default="smollm2")
    options.add_argument("--groups", type=int, default=len(GROUPS))
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--sample", type=int, default=24)
    options.add_argument("--cache", default=None)
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    reference = find_model(chosen.model, cache=Cache(chosen.cache or default_directory()))
    statements = [
        Statement(group, noun_of(group), predicate)
        for group in GROUPS[: chosen.groups]
        for pair in predicate_pairs("likelihood")
        for predicate in pair
    ]
    with reference.open_causal() as loaded, torch.inference_mode():
        rows = tokenize(loaded.tokenizer, statements)
        report: dict[str, Any] = {"threads": chosen.threads, "torch": torch.__version__}
        report["statement"] = measure(loaded, rows, chosen.rounds, chosen.sample)

        middle = reference.layers // 2
        token_log_probs(loaded, rows, middle)  # keeps the states that another change of the upper half begins with
        whole, upper = (seconds(lambda below=below: token_log_probs(loaded, rows, below)) for below in (0, middle))
        report["statement"]["times_for_a_changed_upper_half"] = whole / upper

        chats = []
        for statement in statements[::4]:
            turn = [{"role": "user", "content": QUESTION.format(statement=statement.text)}]
            begun = loaded.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True) + BEGUN
            chats += [(begun, begun + answer) for answer in ANSWERS]
        report["chat"] = measure(loaded, rendered(loaded.tokenizer, chats), chosen.rounds, chosen.sample)
    print(json.dumps(report, indent=2, default=str))


if __name__ == "__main__":
    main()
