"""Tokens a second of generator=hf on SmolLM2, beside `model.generate` with one prompt at a time.

    python benchmarks/generate.py [--threads 2] [--prompts 16] [--samples 4] [--tokens 64] [--batch 32]

Both draw at temperature 1 and stop at the model's end tokens; they take turns, the plain loop on a sample of the
prompts. It also counts rows that were computed a second time because rounding could have decided them, and answers
that differ between two batch sizes.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

SUBJECTS = (
    "tea", "gardens in spring", "the history of maps", "how a bicycle stays upright when it turns a corner",
    "old bridges", "why rivers bend", "bread", "the first railways and what they changed for small towns",
)  # fmt: skip
FRAMES = ("What do you know about {}?", "Write two or three plain sentences about {} for a school newspaper, please.")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("threads", 2), ("prompts", 16), ("samples", 4), ("tokens", 64), ("batch", 32), ("loop", 4)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--model", default="smollm2")
    options.add_argument("--cache", default=None)
    options.add_argument("--other-batch", type=int, default=None, help="compare the answers with those of this batch")
    chosen = options.parse_args()

    import torch

    from refbias.answers import Answer, Prompt, Request, Sampling
    from refbias.cache import Cache, default_directory
    from refbias.context import Context
    from refbias.generators.hf import _Pool, end_tokens, hf
    from refbias.models import find_model

    torch.set_num_threads(chosen.threads)
    cache = Cache(chosen.cache or default_directory())
    model = find_model(chosen.model, cache=cache)
    context = Context(cache)
    texts = [frame.format(subject) for frame in FRAMES for subject in SUBJECTS][: chosen.prompts]
    prompts = [Prompt(str(i), (("user", text),)) for i, text in enumerate(texts)]
    sampling = Sampling(chosen.samples, 1.0, 1.0, chosen.tokens)
    requests = [Request(p, s, 1000 * i + s) for i, p in enumerate(prompts) for s in range(chosen.samples)]
    again = count_second_looks(_Pool)

    def ours(batch: int) -> tuple[dict[tuple[str, int], Answer], float]:
        start = time.perf_counter()
        found = {(r.prompt.id, r.sample): a for r, a in hf(model, requests, sampling, context, batch=batch)}
        return found, sum(a.tokens for a in found.values()) / (time.perf_counter() - start)

    with model.open_causal() as loaded, torch.inference_mode():
        ends = sorted(end_tokens(loaded))

        def plain(some: list[Request]) -> float:
            start, tokens = time.perf_counter(), 0
            for request in some:
                ids = loaded.tokenizer.apply_chat_template(
                    [{"role": "user", "content": request.prompt.messages[0][1]}], tokenize=True, return_dict=False,
                    add_generation_prompt=True, return_tensors="pt",
                )  # fmt: skip
                made = loaded.causal.generate(
                    ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0,
                    max_new_tokens=chosen.tokens, eos_token_id=ends, pad_token_id=ends[0],
                )  # fmt: skip
                tokens += made.shape[1] - ids.shape[1]
            return tokens / (time.perf_counter() - start)

        plain(requests[:1])
        step = max(1, len(requests) // chosen.loop)
        loops = [plain(requests[::step][: chosen.loop])]
        found, rate = ours(chosen.batch)
        loops.append(plain(requests[::step][: chosen.loop]))
    loop = max(loops)
    tokens = sum(a.tokens for a in found.values())
    print(f"{model.name}, {chosen.threads} thread(s), torch {torch.__version__}, float32, {len(requests)} answers")
    print(f"{'model.generate, one prompt at a time':40s} {loop:8.1f} tokens/s")
    print(f"{f'generator=hf, batch {chosen.batch}':40s} {rate:8.1f} tokens/s  {rate / loop:.1f} x")
    print(f"{'rows computed a second time':40s} {again():8d} of {tokens} tokens")
    if chosen.other_batch:
        other, _ = ours(chosen.other_batch)
        differ = sum(other[key] != answer for key, answer in found.items())
        print(f"{f'answers that batch {chosen.other_batch} changes':40s} {differ:8d} of {len(found)}")


def count_second_looks(pool: Any) -> Any:
    """A function that says how many rows were computed alone after their prompt was read, since this call."""
    forward, looks = pool._forward, []

    def counted(self: Any, ids: list[list[int]], **options: Any) -> Any:
        if options == {"logits_to_keep": 1}:
            looks.append(len(ids))
        return forward(self, ids, **options)

    pool._forward = counted
    return lambda: sum(looks)


if __name__ == "__main__":
    main()
