"""Words in context: the pass over a corpus, and how often a sentence is encoded.

    python benchmarks/words.py [--size 50] [--sentences 20] [--reference smollm2]

First the speed of finding the words of WEAT 1-10 in the Wikipedia sample, repeated to --size MB: in sentences that are
in memory, and with reading and splitting of the file; seconds of one core, the best of three. Then their vectors from
the sample itself with --reference: how many words are found, and sentences encoded against pairs of word and sentence.
An empty --reference leaves the second part out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from refbias.cache import Cache, default_directory
from refbias.context import Context
from refbias.corpora import file, wikipedia
from refbias.encoders import ENCODERS
from refbias.models import find_model
from refbias.pooling import built_in
from refbias.suites import SUITES
from refbias.words import Lookup, aggregated
from refbias.words.alignment import Finder
from refbias.words.drawing import draw


def seconds(run: Callable[[], object]) -> float:
    """Of the processor, so that other programs on the machine count little."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


def finding(words: list[str], size: float, most: int) -> None:
    sample = sorted(wikipedia().sentences())
    every = sample * (int(size * 1e6 / sum(len(s.encode()) + 1 for s in sample)) + 1)
    finder = Finder(words)
    with tempfile.TemporaryDirectory() as folder:
        files = {"sentences": Path(folder) / "sentences.txt", "text": Path(folder) / "text.txt"}
        files["sentences"].write_text("".join(f"{sentence}\n" for sentence in every), encoding="utf-8")
        paragraphs = (" ".join(every[i : i + 5]) for i in range(0, len(every), 5))
        files["text"].write_text("".join(f"{paragraph}\n" for paragraph in paragraphs), encoding="utf-8")
        megabytes = files["sentences"].stat().st_size / 1e6
        print(f"{len(words)} words, {len(every):,} sentences, {megabytes:.1f} MB; MB/s of one core")
        taken = seconds(lambda: draw(finder, every, 20, 0))
        print(f"{'finding, sentences in memory':55s} {megabytes / taken:6.0f}")
        for form, path in files.items():
            for limit in (len(every) + 1, most):

                def whole(path: Path = path, form: str = form, limit: int = limit) -> None:
                    draw(finder, file(path=str(path), form=form, most=limit).sentences(), 20, 0)  # type: ignore[arg-type]

                named = f"reading, form={form}, most={limit:,}, and finding"
                print(f"{named:55s} {megabytes / seconds(whole):6.0f}")


def encoding(words: list[str], reference: str, sentences: int) -> None:
    model = find_model(reference, cache=Cache(default_directory()))
    with tempfile.TemporaryDirectory() as folder:
        context = Context(Cache(folder))
        lookup = Lookup(ENCODERS["auto"](model, context), words, model.layers, built_in("mean"), wikipedia(), context)
        for run in ("first", "second"):
            start = time.perf_counter()
            found = aggregated(lookup, sentences=sentences)
            taken, report = time.perf_counter() - start, found.report
            print(
                f"{run} run, {reference}: {taken:.1f} s; {report['pairs']:,} pairs of word and sentence in "
                f"{report['distinct_sentences']:,} sentences, of which encoded {report['sentences_encoded']:,} "
                f"({report['tokens_encoded']:,} tokens)"
            )
    counts = [len(found.contexts.get(word, ())) for word in words]
    shares = ", ".join(f"{sum(c >= least for c in counts)} with {least} or more" for least in (1, 5, sentences))
    print(f"of {len(words)} words: {shares}; tokens that reach beyond a word: {report['pairs_beyond_the_word']}")
    for test in SUITES["caliskan2017"]():
        sizes = {name: sum(word in found.vectors for word in some) for name, some in test.sets().items()}
        print(f"  {test.id}: " + ", ".join(f"{name} {sizes[name]}/{len(test.sets()[name])}" for name in sizes))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--size", type=float, default=50, help="MB of text")
    options.add_argument("--sentences", type=int, default=20)
    options.add_argument("--reference", default="smollm2")
    chosen = options.parse_args()
    words = list(dict.fromkeys(word for test in SUITES["caliskan2017"]() for word in test.words()))
    finding(words, chosen.size, most=200_000)
    if chosen.reference:
        encoding(words, chosen.reference, chosen.sentences)


if __name__ == "__main__":
    main()
