"""task=generate: a file with every answer, gone on with where it stopped, and refused where it cannot be right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from refbias.answers import Prompt, Sampling
from refbias.registry import registry
from refbias.schema import result_schema


class Questions:
    """Two questions about each group."""

    name, unit, threshold, judge, units, digest = "questions", "share", 0.1, "none", None, "1"

    def __init__(self, samples: int = 2, temperature: float = 1.0) -> None:
        self.sampling = Sampling(samples, temperature, 1.0, 8)
        self.report = {"source": "our own"}

    def prompts(self, groups):
        return [Prompt(f"{g}-{i}", (("user", f"{g} like tea {i}."),), {"group": g}) for g in groups for i in range(2)]

    def judged(self, prompt, text):
        return text.strip()

    def scores(self, groups, prompts, answers):
        return {}


@pytest.fixture
def words(tiny_llama) -> Iterator[list[str]]:
    """The command up to the file; benchmark=questions exists while the test runs."""
    registry().add("benchmark", "questions", Questions)
    yield ["task=generate", f"reference={tiny_llama}", "benchmark=questions", "groups=[Women,Old people]", "device=cpu"]
    del registry()._parts["benchmark"]["questions"]


def rows_of(name: str) -> list[dict]:
    return [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()]


def test_a_row_for_each_prompt_and_sample(words, command, capsys):
    data = command(*words, "task.out=answers.jsonl")
    jsonschema.validate(data, result_schema())
    rows = rows_of("answers.jsonl")
    assert [(row["prompt"], row["sample"]) for row in rows] == [
        (f"{group}-{i}", s) for group in ("Women", "Old people") for i in (0, 1) for s in (0, 1)
    ]
    assert rows[-1]["about"] == {"group": "Old people"} and rows[-1]["judged"] == rows[-1]["text"].strip()
    (made,) = data["generations"]
    assert (made["prompts"], made["answers"], made["kept_before"]) == (4, 8, 0)
    assert made["truncated"] == sum(row["finish"] == "length" for row in rows)
    assert made["tokens"] == sum(row["tokens"] for row in rows) > 8 and made["tokens_per_second"] > 0
    assert data["figures"]["answers"] == 8 and data["asked"]["sampling"]["samples"] == 2
    assert Path("out/generations.csv").is_file()
    assert "8 answers to 4 prompts of questions" in capsys.readouterr().out


def test_it_goes_on_where_it_stopped(words, command):
    command(*words, "task.out=whole.jsonl")
    lines = Path("whole.jsonl").read_bytes().splitlines(keepends=True)
    Path("cut.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:40])
    data = command(*words, "task.out=cut.jsonl", "generator.batch=3")
    assert Path("cut.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    assert data["generations"][0]["kept_before"] == 3 and data["figures"]["tokens_per_second"] is None
    command(*words, "task.out=cut.jsonl", "seed=1", status=1)
    assert command(*words, "task.out=cut.jsonl", "seed=1", "task.overwrite=true")["generations"][0]["kept_before"] == 0
    assert Path("cut.jsonl").read_bytes() != Path("whole.jsonl").read_bytes()


def test_parquet_is_made_of_the_rows_that_are_kept_beside_it(words, command):
    pytest.importorskip("pyarrow")
    import pyarrow.parquet

    command(*words, "task.out=answers.parquet")
    assert pyarrow.parquet.read_table("answers.parquet").to_pylist() == rows_of("answers.jsonl")


def test_wrong_use_is_refused_before_anything_is_loaded(words, command, capsys):
    command(*words, "task.out=answers.txt", status=2)
    assert "ends in .jsonl or .parquet" in capsys.readouterr().err
    command(*words, "benchmark=likelihood", "task.out=a.jsonl", status=2)
    said = capsys.readouterr().err
    assert "benchmark=likelihood has none" in said and "questions" in said
    command(*words, status=2)
    assert "task.out" in capsys.readouterr().err
    Path("there.parquet").write_bytes(b"something")
    command(*words, "task.out=there.parquet", status=2)
    assert "task.overwrite=true" in capsys.readouterr().err
