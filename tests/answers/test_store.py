"""Answers are kept as they come: found again, never doubled, never lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from refbias.answers import Answer, Prompt, Sampling
from refbias.answers.store import collect, read, seed_of, write_parquet
from refbias.cache import Cache
from refbias.context import Context
from refbias.errors import RefbiasError
from refbias.models import find_model
from refbias.registry import Choice, registry

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = [Prompt(f"p{i}", (("user", f"What is number {i}?"),), {"group": "Gardeners"}) for i in range(6)]
SAMPLING = Sampling(2, 1.0, 1.0, 12)


class Counting:
    """A generator that says what it was asked, in another order than it was asked in."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.asked: list[tuple[str, int]] = []
        self.stop_after = stop_after

    def __call__(self, model, requests, sampling, context):
        for request in reversed(requests):
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                return
            self.asked.append((request.prompt.id, request.sample))
            finish = "length" if request.seed % 2 else "stop"
            yield request, Answer(f"{request.prompt.question} – {request.seed}", finish, 3)


def chosen(generator, traits=(), **params):
    return Choice("generator", "counting", params, generator, {"speed": traits})


@pytest.fixture
def model(tiny_llama, cache):
    return find_model(tiny_llama, cache=cache)


def test_an_answer_is_generated_once(model, context, tmp_path):
    first, second = Counting(), Counting()
    found = collect(model, PROMPTS, SAMPLING, chosen(first), context)
    assert set(found) == {(p.id, s) for p in PROMPTS for s in (0, 1)} == set(first.asked)
    assert collect(model, PROMPTS, SAMPLING, chosen(second), context) == found
    assert second.asked == []
    more = Counting()
    wider = collect(model, [*PROMPTS[:3], Prompt("new", (("user", "And this?"),))], replace(SAMPLING, samples=3),
                    chosen(more), context)  # fmt: skip
    assert set(more.asked) == {(p.id, 2) for p in PROMPTS[:3]} | {("new", s) for s in range(3)}
    assert all(wider[key] == found[key] for key in found if key in wider)


@pytest.mark.parametrize(
    "change", [{"temperature": 0.5}, {"top_p": 0.9}, {"max_new_tokens": 9}, {"seed": 1}, {"style": "b"}]
)
def test_what_changes_answers_changes_where_they_lie(model, context, change):
    before, after = Counting(), Counting()
    collect(model, PROMPTS, SAMPLING, chosen(before, style="a"), context)
    drawn = {key: value for key, value in change.items() if key not in ("seed", "style")}
    collect(model, PROMPTS, replace(SAMPLING, **drawn), chosen(after, style=change.get("style", "a")),
            replace(context, seed=change.get("seed", 0)))  # fmt: skip
    assert len(after.asked) == 12


def test_what_changes_only_the_speed_finds_them_again(model, context):
    collect(model, PROMPTS, SAMPLING, chosen(Counting(), ("batch",), batch=1), context)
    again = Counting()
    collect(model, PROMPTS, SAMPLING, chosen(again, ("batch",), batch=64), context)
    assert again.asked == []


def test_seeds_depend_on_the_text_not_on_the_id_or_place(model, context, tmp_path):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    collect(model, PROMPTS, SAMPLING, chosen(Counting()), context, file=first)
    renamed = [replace(p, id=f"other-{p.id}") for p in PROMPTS[::-1]]
    collect(model, renamed, SAMPLING, chosen(Counting()), context, file=second)
    seeds = [{(row["question"], row["sample"]): row["seed"] for row in read(file)} for file in (first, second)]
    assert seeds[0] == seeds[1] and len(set(seeds[0].values())) == 12
    assert seed_of(0, "a", 1) != seed_of(0, "a", 11) != seed_of(1, "a", 11)


def test_the_file_says_all_there_is_to_say(model, context, tmp_path):
    file = tmp_path / "answers.jsonl"
    found = collect(model, PROMPTS, SAMPLING, chosen(Counting(), ("batch",), batch=4, style="a"), context, file=file,
                    judged=lambda prompt, text: text.upper())  # fmt: skip
    rows = read(file)
    assert [(row["prompt"], row["sample"]) for row in rows] == [(p.id, s) for p in PROMPTS for s in (0, 1)]
    row = rows[5]
    assert row["text"] == found["p2", 1].text and row["judged"] == row["text"].upper()
    assert row["question"] == "What is number 2?" and row["about"] == {"group": "Gardeners"}
    assert row["messages"] == [["user", "What is number 2?"]]
    assert row["fingerprint"] == model.fingerprint
    assert row["generator"] == {
        "name": "counting", "style": "a", "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 12, "run_seed": 0,
        "dtype": "float32",
    }  # fmt: skip
    write_parquet(rows, tmp_path / "answers.parquet")
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(tmp_path / "answers.parquet").to_pylist() == rows


def test_two_prompts_with_one_text_share_an_answer_and_keep_their_rows(model, context, tmp_path):
    twins = [Prompt("a", (("user", "Tea?"),)), Prompt("b", (("user", "Tea?"),))]
    counting = Counting()
    found = collect(model, twins, SAMPLING, chosen(counting), context, file=tmp_path / "x.jsonl")
    assert len(counting.asked) == 2 and found["a", 1] == found["b", 1]
    assert [row["prompt"] for row in read(tmp_path / "x.jsonl")] == ["a", "a", "b", "b"]
    with pytest.raises(RefbiasError, match="Two prompts have the id 'a'"):
        collect(model, [twins[0], twins[0]], SAMPLING, chosen(counting), context)


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_row_is_cut_off_and_generated_again(model, context, tmp_path, cut):
    whole, torn = tmp_path / "whole.jsonl", tmp_path / "torn.jsonl"
    collect(model, PROMPTS, SAMPLING, chosen(Counting()), context, file=whole)
    torn.write_bytes(whole.read_bytes()[:-cut])
    again = Counting()
    collect(model, PROMPTS, SAMPLING, chosen(again), context, file=torn)
    assert again.asked == [("p5", 1)] and torn.read_bytes() == whole.read_bytes()


def test_a_generator_that_stops_early_loses_nothing(model, context, tmp_path):
    file = tmp_path / "x.jsonl"
    with pytest.raises(RefbiasError, match="left 7 of 12 prompts without an answer, first p0"):
        collect(model, PROMPTS, SAMPLING, chosen(Counting(stop_after=5)), context, file=file)
    rest = Counting()
    collect(model, PROMPTS, SAMPLING, chosen(rest), context, file=file)
    whole = tmp_path / "whole.jsonl"
    collect(model, PROMPTS, SAMPLING, chosen(Counting()), context, file=whole)
    assert len(rest.asked) == 7 and file.read_bytes() == whole.read_bytes()


def test_a_file_of_something_else_is_refused(model, context, tmp_path, tiny):
    file = tmp_path / "x.jsonl"
    collect(model, PROMPTS, SAMPLING, chosen(Counting()), context, file=file)
    with pytest.raises(RefbiasError, match="other settings: temperature 1.0 there, 0.5 now. Name another file"):
        collect(model, PROMPTS, replace(SAMPLING, temperature=0.5), chosen(Counting()), context, file=file)
    with pytest.raises(RefbiasError, match="answers of another model"):
        other = find_model(tiny["gpt2"], cache=context.cache)
        collect(other, PROMPTS, SAMPLING, chosen(Counting()), context, file=file)
    with pytest.raises(RefbiasError, match="another text of prompt p0"):
        changed = [Prompt("p0", (("user", "Something else?"),))]
        collect(model, changed, SAMPLING, chosen(Counting()), context, file=file)
    file.write_text("no row\n" + file.read_text())
    with pytest.raises(RefbiasError, match="Line 1 of .* is no row of answers"):
        collect(model, PROMPTS, SAMPLING, chosen(Counting()), context, file=file)


def test_rows_of_other_prompts_stay(model, context, tmp_path):
    file = tmp_path / "x.jsonl"
    collect(model, PROMPTS, SAMPLING, chosen(Counting()), context, file=file)
    collect(model, PROMPTS[3:4], SAMPLING, chosen(Counting()), context, file=file)
    assert len(read(file)) == 12 and read(file)[0]["prompt"] == "p3"


def test_two_at_once_take_turns(model, context, tmp_path):
    file, generators, said = tmp_path / "x.jsonl", [Counting(), Counting()], []

    class Slow(Counting):
        def __call__(self, *arguments):
            for found in super().__call__(*arguments):
                time.sleep(0.05)
                yield found

    generators = [Slow(), Slow()]
    threads = [
        threading.Thread(target=collect, args=(model, PROMPTS, SAMPLING, chosen(g), context), kwargs={"file": file})
        for g in generators
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(g.asked) for g in generators) == [0, 12] and len(read(file)) == 12, said


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process")
def test_a_full_disk_is_said_once_and_keeps_what_was_written(model, context, tmp_path):
    import resource

    file = tmp_path / "x.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(RefbiasError, match="cannot be written: File too large.*Free some space and run again"):
            collect(model, PROMPTS, SAMPLING, chosen(Counting()), context, file=file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kept = len(read(file))
    rest = Counting()
    collect(model, PROMPTS, SAMPLING, chosen(rest), context, file=file)
    assert kept > 0 and len(rest.asked) == 12 - kept and len(read(file)) == 12


def test_the_cache_shows_and_prunes_them(model, tmp_path):
    collect(model, PROMPTS, SAMPLING, chosen(Counting()), Context(Cache(tmp_path)))
    cache = Cache(tmp_path)
    (entry,) = [item for item in cache.usage() if item.kind == "answers"]
    assert entry.size > 1000
    assert entry in cache.prune(0) and not entry.path.exists()


def test_without_a_cache_they_are_generated_each_time(model):
    for _ in range(2):
        counting = Counting()
        assert len(collect(model, PROMPTS, SAMPLING, chosen(counting), Context(Cache(None)))) == 12
        assert len(counting.asked) == 12


SCRIPT = """
import sys
from pathlib import Path
from refbias.answers import Prompt, Sampling
from refbias.answers.store import collect
from refbias.cache import Cache
from refbias.context import Context
from refbias.models import find_model
from refbias.registry import registry

folder, cache, out = sys.argv[1:]
context = Context(Cache(cache))
prompts = [Prompt(f"p{i}", (("", "Gardeners walk home. " * (1 + i % 3) + str(i)),)) for i in range(20)]
choice = registry().resolve("generator", ("hf", {"batch": 4}))
collect(find_model(folder, cache=context.cache), prompts, Sampling(3, 1.0, 0.95, 16), choice, context, file=Path(out))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_killed_in_the_middle_and_resumed_it_is_the_same_byte_for_byte(tiny_llama, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    cache = tmp_path / "cache"

    def start(out):
        words = [sys.executable, "-c", SCRIPT, str(tiny_llama), str(cache), str(out)]
        return subprocess.Popen(words, env=environment, stderr=subprocess.PIPE)

    killed = tmp_path / "killed.jsonl"
    process = start(killed)
    while process.poll() is None and (not killed.exists() or killed.read_bytes().count(b"\n") < 12):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stderr.close()
    before = killed.read_bytes().count(b"\n")
    assert 12 <= before < 60
    context = Context(Cache(cache))
    prompts = [Prompt(f"p{i}", (("", "Gardeners walk home. " * (1 + i % 3) + str(i)),)) for i in range(20)]
    model, sampling = find_model(tiny_llama, cache=context.cache), Sampling(3, 1.0, 0.95, 16)
    files = killed, tmp_path / "whole.jsonl"
    for file, batch in zip(files, (4, 7), strict=True):
        choice = registry().resolve("generator", ("hf", {"batch": batch}))
        collect(model, prompts, sampling, choice, context, file=file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes().count(b"\n") == 60
    assert len({json.loads(line)["text"] for line in files[0].read_text().splitlines()}) > 50
