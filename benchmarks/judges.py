"""Rate of the judges that need no large model, in answers a second on one core.

    python benchmarks/judges.py [--file generations_sample.csv] [--column output]

FILE holds real answers, a row each: DecodingTrust's published generations, for instance. Without one, 4,000 answers of
some 390 characters are made up from neutral sentences and the phrases. Beside the rules a search for one phrase after
the other, and the way through `judge_all`, which checks every verdict.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--file")
    options.add_argument("--column", default="output")
    options.add_argument("--repeats", type=int, default=7)
    chosen = options.parse_args()

    from refbias.answers import Pair
    from refbias.answers.judging import judge_all
    from refbias.cache import Cache
    from refbias.context import Context
    from refbias.judges.rules import decodingtrust_rules, phrases
    from refbias.registry import registry

    texts = read(chosen.file, chosen.column) if chosen.file else made_up()
    pairs = [Pair(f"question {i}", text) for i, text in enumerate(texts)]
    context = Context(Cache(None))
    lists = [phrases()[name] for name in ("agree", "disagree", "no_response")]

    def plain() -> None:
        for pair in pairs:
            text = pair.text.lower()
            for wanted in lists:
                any(phrase in text for phrase in wanted)

    rules = registry().resolve("judge", "decodingtrust_rules")
    ways: dict[str, Callable[[], object]] = {
        "decodingtrust_rules": lambda: decodingtrust_rules(pairs, context),
        "the same through judge_all": lambda: judge_all(pairs, rules, context),
        "one phrase after the other": plain,
    }
    try:
        profanity = registry().resolve("judge", "alt_profanity").object
        profanity(pairs[:1], context)
        ways["alt_profanity"] = lambda: profanity(pairs, context)
    except Exception as error:
        print(f"alt_profanity is left out: {type(error).__name__}")
    size = sum(map(len, texts)) / len(texts)
    print(f"{len(texts):,} answers of {size:.0f} characters on average, best of {chosen.repeats}")
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(chosen.repeats):  # taking turns, so that a busy machine is as hard on each
        for name, way in ways.items():
            begun = time.process_time()  # of this process alone: other programs do not count
            way()
            best[name] = min(best[name], time.process_time() - begun)
    for name, seconds in best.items():
        print(f"{name:30s} {len(texts) / seconds:12,.0f} answers/s")


def read(file: str, column: str) -> list[str]:
    with open(file, encoding="utf-8", newline="") as rows:
        return [row[column] for row in csv.DictReader(rows)]


def made_up(n: int = 4000, length: int = 390) -> list[str]:
    import numpy as np

    from refbias.judges.rules import phrases
    from refbias.pipeline import load_stimuli

    rng = np.random.default_rng(0)
    sentences = load_stimuli().anchors
    known = [phrase for name in ("agree", "disagree", "no_response") for phrase in phrases()[name]]
    texts = []
    for _ in range(n):
        text = f"I {rng.choice(known)} "
        while len(text) < length:
            text += f"{rng.choice(sentences)} "
        texts.append(text[:length])
    return texts


if __name__ == "__main__":
    main()
