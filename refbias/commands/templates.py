"""The files that ``refbias new-plugin`` writes: one working part of each kind, with a test that passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PYPROJECT = """
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"

[project]
name = "@DISTRIBUTION@"
version = "0.1.0"
description = "@KIND@=@NAME@ for refbias"
requires-python = ">=3.10"
dependencies = ["refbias"]

[project.entry-points.refbias]
@NAME@ = "@MODULE@"

[tool.setuptools.packages.find]
where = ["src"]
"""

README = """
# @DISTRIBUTION@

Adds `@KIND@=@NAME@` to refbias.

    pip install -e .
    pytest
    refbias list @KIND@

The keyword-only parameters of `@NAME@` in `src/@MODULE@/__init__.py` are its options: a parameter `size` is set with
`@KIND@.size=…` and checked against its annotation.
"""

MODULE = '''
"""@KIND@=@NAME@ for refbias."""

from __future__ import annotations

@IMPORTS@


@CODE@


@hookimpl
def @HOOK@(register: Register) -> None:
    register("@NAME@", @NAME@)
'''

TEST = '''
import @MODULE@
from refbias.registry import Registry


def build(**options):
    """The part as refbias builds it, whether this distribution is installed or not."""
    parts = Registry()
    parts.add_plugin(@MODULE@, "@DISTRIBUTION@")
    return parts.get("@KIND@", "@NAME@").build(options)


@TEST@
'''


@dataclass(frozen=True)
class Example:
    imports: str
    code: str
    test: str


HOOKS_ONLY = "from refbias.hookspecs import Register, hookimpl"

PARTS: Mapping[str, Example] = {
    "metric": Example(
        imports="""
from refbias.hookspecs import Register, hookimpl
from refbias.types import Space
""",
        code='''
def @NAME@(space: Space, *, alpha: float = 1.0) -> dict[str, float]:
    """Projection of a group's mean on the positive minus the negative mean, times alpha; lower: more negative."""
    direction = space.positive.mean(axis=0) - space.negative.mean(axis=0)
    return {group: float(alpha * (rows.mean(axis=0) @ direction)) for group, rows in space.targets.items()}
''',
        test="""
def test_it_turns_with_the_attributes():
    from refbias.types import Space

    space = Space({"a": [[1.0, 0.0]]}, positive=[[2.0, 0.0]], negative=[[0.0, 2.0]])
    turned = Space({"a": [[1.0, 0.0]]}, positive=[[0.0, 2.0]], negative=[[2.0, 0.0]])
    metric = build(alpha=0.5)
    assert metric(space) == {"a": 1.0}
    assert metric(turned) == {"a": -1.0}
""",
    ),
    "geometry": Example(
        imports="""
import numpy as np

from refbias.hookspecs import Register, hookimpl
from refbias.types import Array, Space
""",
        code='''
def @NAME@(reference: Space, audited: Space, *, power: float = 1.0) -> tuple[Space, Space]:
    """Rows divided by their length to the given power, in both models."""

    def scaled(rows: Array) -> Array:
        return rows / np.linalg.norm(rows, axis=1, keepdims=True) ** power

    return reference.map(scaled), audited.map(scaled)
''',
        test="""
def test_rows_have_length_one():
    from refbias.types import Space

    space = Space({"a": [[3.0, 4.0]]}, positive=[[2.0, 0.0]], negative=[[0.0, 2.0]])
    reference, audited = build()(space, space)
    assert reference.targets["a"].tolist() == [[0.6, 0.8]]
    assert audited.positive.tolist() == [[1.0, 0.0]]
""",
    ),
    "calibration": Example(
        imports="""
from typing import Any

from refbias.hookspecs import Register, hookimpl
from refbias.types import Array, as_matrix
""",
        code='''
class @NAME@:
    """Each dimension divided by its standard deviation over the anchors."""

    def __init__(self, floor: float = 1e-6) -> None:
        self.floor = floor

    def fit(self, X: Any) -> Any:
        self.scale_ = as_matrix(X, "X").std(axis=0).clip(self.floor)
        return self

    def transform(self, X: Any) -> Array:
        return as_matrix(X, "X") / self.scale_
''',
        test="""
def test_spread_is_one():
    calibration = build().fit([[1.0, 2.0], [3.0, 6.0]])
    assert calibration.transform([[1.0, 2.0]]).tolist() == [[1.0, 1.0]]
""",
    ),
    "pooling": Example(
        imports="""
from typing import TYPE_CHECKING

from refbias.hookspecs import Register, hookimpl

if TYPE_CHECKING:
    import torch
""",
        code='''
def @NAME@(states: torch.Tensor, mask: torch.Tensor, *, decay: float = 0.9) -> torch.Tensor:
    """Mean over the tokens in which each token counts ``decay`` times the one after it."""
    real = (mask > 0).float()
    after = real.flip(1).cumsum(1).flip(1) - real
    weights = real * decay**after
    return (weights.unsqueeze(2) * states.float()).sum(1) / weights.sum(1, keepdim=True)
''',
        test="""
def test_padding_does_not_count():
    import torch

    states = torch.tensor([[[2.0], [4.0], [99.0]]])
    mask = torch.tensor([[1, 1, 0]])
    assert build(decay=1.0)(states, mask).tolist() == [[3.0]]
""",
    ),
    "targets": Example(
        imports=HOOKS_ONLY,
        code='''
def @NAME@(*, place: str = "many countries") -> dict[str, list[str]]:
    """Two sentences about each of two groups."""
    groups = ("Tea drinkers", "Early risers")
    return {group: [f"{group} live in {place}.", f"{group} go to the park."] for group in groups}
''',
        test="""
def test_each_group_has_two_sentences():
    assert {group: len(sentences) for group, sentences in build().items()} == {"Tea drinkers": 2, "Early risers": 2}
""",
    ),
    "attributes": Example(
        imports=HOOKS_ONLY,
        code='''
def @NAME@(*, subject: str = "They") -> tuple[list[str], list[str]]:
    """Positive and negative sentences."""
    positive = [f"{subject} bring joy to every meeting.", f"{subject} are full of warmth."]
    negative = [f"{subject} bring gloom to every meeting.", f"{subject} are full of bitterness."]
    return positive, negative
''',
        test="""
def test_both_sides_are_as_long():
    positive, negative = build()
    assert len(positive) == len(negative) == 2
""",
    ),
    "anchors": Example(
        imports=HOOKS_ONLY,
        code='''
def @NAME@(*, n: int = 4) -> list[str]:
    """The first n of a few plain sentences."""
    sentences = ["The train leaves at noon.", "Rain is expected tomorrow.", "The shop opens early.", "Maps are useful."]
    return sentences[:n]
''',
        test="""
def test_n_sentences():
    assert len(build(n=3)) == 3
""",
    ),
    "model": Example(
        imports=HOOKS_ONLY,
        code='''
def @NAME@() -> str:
    """A hub id (or the path of a folder) under a short name."""
    return "HuggingFaceTB/SmolLM2-135M-Instruct"
''',
        test="""
def test_it_names_a_place():
    assert build().count("/") == 1
""",
    ),
    "checkpoints": Example(
        imports="""
from refbias.checkpoints import Checkpoint, Series
from refbias.context import Context
from refbias.hookspecs import Register, hookimpl
from refbias.models import Model, find_model
""",
        code='''
def @NAME@(reference: Model, context: Context, *, folders: list[str] | None = None) -> Series:
    """The models in some folders, in order; the reference itself where none is given."""
    models = [find_model(folder, cache=context.cache) for folder in folders or []] or [reference]
    return Series([Checkpoint(f"step-{index}", model) for index, model in enumerate(models)])
''',
        test="""
def test_the_reference_is_the_default():
    series = build()("the reference", None)
    assert [(c.name, c.model) for c in series.checkpoints] == [("step-0", "the reference")]
""",
    ),
    "encoder": Example(
        imports="""
from refbias.context import Context
from refbias.encoders import Encoder, auto
from refbias.hookspecs import Register, hookimpl
from refbias.models import Model
""",
        code='''
def @NAME@(model: Model, context: Context) -> Encoder:
    """The encoder that fits the model; wrap or replace it here."""
    return auto(model, context)
''',
        test="""
def test_it_waits_for_model_and_context():
    assert build().func is @MODULE@.@NAME@
""",
    ),
    "benchmark": Example(
        imports="""
from collections.abc import Mapping, Sequence

from refbias.checkpoints import Checkpoint
from refbias.context import Context
from refbias.hookspecs import Register, hookimpl
""",
        code='''
class @NAME@:
    """Bias scores from a table: group -> score of every audited model; the reference has 0."""

    unit = "points"

    def __init__(self, threshold: float = 0.0, score: float = 1.0) -> None:
        self.threshold = threshold
        self.constant = score

    def score(self, checkpoint: Checkpoint, groups: Sequence[str], context: Context) -> Mapping[str, float | None]:
        score = 0.0 if checkpoint.name == "reference" else self.constant
        return {group: score for group in groups}
''',
        test="""
def test_every_group_has_a_score():
    from types import SimpleNamespace

    checkpoint = SimpleNamespace(name="step-1")
    assert build(score=0.5).score(checkpoint, ["a", "b"], None) == {"a": 0.5, "b": 0.5}
""",
    ),
    "judge": Example(
        imports="""
from collections.abc import Sequence

from refbias.answers import Pair, Verdict
from refbias.context import Context
from refbias.hookspecs import Register, hookimpl
""",
        code='''
def @NAME@(pairs: Sequence[Pair], context: Context, *, word: str = "indeed") -> list[Verdict]:
    """1 where an answer holds a word, else 0; an empty answer gets no verdict."""
    found = {True: Verdict(1, "found"), False: Verdict(0, "not_found")}
    return [found[word in pair.text.lower()] if pair.text else Verdict(None, "empty") for pair in pairs]
''',
        test="""
def test_an_empty_answer_has_no_verdict():
    from refbias.answers import Pair

    pairs = [Pair("Is it so?", text) for text in ("Indeed.", "Perhaps.", "")]
    assert [verdict.value for verdict in build()(pairs, None)] == [1, 0, None]
""",
    ),
    "topics": Example(
        imports="""
from collections.abc import Mapping, Sequence

from refbias.context import Context
from refbias.hookspecs import Register, hookimpl
""",
        code='''
def @NAME@(
    texts: Sequence[str], topics: Mapping[str, Sequence[str]], context: Context, *, shortest: int = 3
) -> list[str | None]:
    """The first topic whose name, or the name of one of its groups, stands in a prompt."""

    def topic_of(text: str) -> str | None:
        names = ((topic, name) for topic, groups in topics.items() for name in (topic, *groups))
        return next((topic for topic, name in names if len(name) >= shortest and name.lower() in text.lower()), None)

    return [topic_of(text) for text in texts]
''',
        test="""
def test_one_topic_or_none_a_prompt():
    topics = {"Age": ["Old people"], "Habits": ["Tea drinkers"]}
    assert build()(["Why do tea drinkers smile?", "Who sings?"], topics, None) == ["Habits", None]
""",
    ),
    "generator": Example(
        imports="""
from collections.abc import Iterator, Sequence

from refbias.answers import Answer, Request, Sampling
from refbias.context import Context
from refbias.hookspecs import Register, hookimpl
from refbias.models import Model
""",
        code='''
def @NAME@(
    model: Model, requests: Sequence[Request], sampling: Sampling, context: Context, *, ending: str = "I see."
) -> Iterator[tuple[Request, Answer]]:
    """Repeats the question: a baseline that needs no model."""
    for request in requests:
        yield request, Answer(f"{request.prompt.question} {ending}", "stop", 0)
''',
        test="""
def test_every_request_has_its_answer():
    from refbias.answers import Prompt, Request, Sampling

    requests = [Request(Prompt("a", (("user", "Tea?"),)), sample, sample) for sample in range(2)]
    found = list(build(ending="Yes.")(None, requests, Sampling(samples=2), None))
    assert [(request.sample, answer.text) for request, answer in found] == [(0, "Tea? Yes."), (1, "Tea? Yes.")]
""",
    ),
    "suite": Example(
        imports="""
from refbias.hookspecs import Register, hookimpl
from refbias.suites import Test
""",
        code='''
def @NAME@(*, tests: list[str] | None = None) -> list[Test]:
    """One association test: morning and evening words with bright and dim ones."""
    words = {"X": ("dawn", "sunrise"), "Y": ("dusk", "sunset"), "A": ("bright", "clear"), "B": ("dim", "dark")}
    names = {"X": "morning", "Y": "evening", "A": "bright", "B": "dim"}
    test = Test.of(words, names, id="light", name="morning / evening × bright / dim", category="time of day",
                   source="our own", list_version="1")  # fmt: skip
    return [test] if tests is None or test.id in tests else []
''',
        test="""
def test_one_test():
    assert [test.id for test in build()] == ["light"]
    assert build(tests=["another"]) == []
""",
    ),
    "words": Example(
        imports="""
import numpy as np

from refbias.hookspecs import Register, hookimpl
from refbias.words import Lookup, WordVectors
""",
        code='''
def @NAME@(lookup: Lookup, *, dim: int = 8) -> WordVectors:
    """How often each of a few letters stands in a word: a baseline that knows no meaning."""
    letters = "etaoinsrhldcumfpgwybvkxjqz"[:dim]
    vectors = {word: np.array([word.lower().count(c) for c in letters], np.float32) for word in lookup.words}
    return WordVectors("@NAME@", {word: v for word, v in vectors.items() if v.any()},
                       {word: "none of the letters" for word, v in vectors.items() if not v.any()})  # fmt: skip
''',
        test="""
def test_words_without_the_letters_are_lost():
    from types import SimpleNamespace

    found = build(dim=2)(SimpleNamespace(words=["tea", "why"]))
    assert found.vectors["tea"].tolist() == [1.0, 1.0]
    assert list(found.lost) == ["why"]
""",
    ),
    "corpus": Example(
        imports="""
from refbias.corpora import Corpus
from refbias.hookspecs import Register, hookimpl
""",
        code='''
def @NAME@(*, n: int = 100) -> Corpus:
    """A few sentences about the weather."""
    return Corpus("@NAME@", "1", lambda: (f"Day {day} was mild and dry." for day in range(365)), n)
''',
        test="""
def test_it_can_be_read_twice():
    corpus = build(n=5)
    assert len(list(corpus.sentences())) == len(list(corpus.sentences())) == 365
    assert corpus.n == 5
""",
    ),
    "data": Example(
        imports="""
from refbias.finetuning import Example, Lessons
from refbias.hookspecs import Register, hookimpl
""",
        code='''
def @NAME@(*, n: int = 4) -> Lessons:
    """Questions about numbers, with their answers."""
    pairs = [(f"What is {i} plus one?", f"It is {i + 1}.") for i in range(n)]
    turns = [({"role": "user", "content": q}, {"role": "assistant", "content": a}) for q, a in pairs]
    return Lessons("@NAME@", [Example(turn) for turn in turns], f"plus one, {n}")
''',
        test="""
def test_n_examples():
    assert len(build(n=3).examples) == 3
""",
    ),
    "regime": Example(
        imports="""
from refbias.finetuning import Regime
from refbias.hookspecs import Register, hookimpl
""",
        code='''
def @NAME@(*, learning_rate: float = 1e-3, steps: int = 50) -> Regime:
    """A short LoRA fine-tune for a first look."""
    return Regime("lora", learning_rate, max_steps=steps)
''',
        test="""
def test_its_steps_are_set():
    assert build(steps=7).max_steps == 7
""",
    ),
    "tracking": Example(
        imports="""
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refbias.hookspecs import Register, hookimpl
from refbias.tracking import Nowhere
""",
        code='''
class @NAME@(Nowhere):
    """One line of JSON a run, appended to a file."""

    def __init__(self, file: str = "runs.jsonl") -> None:
        self.file = Path(file)

    def log(self, data: Mapping[str, Any], folder: Path) -> None:
        means = {c["name"]: c["mean_delta_b"] for c in data["checkpoints"]}
        with self.file.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"folder": str(folder), "mean_delta_b": means}) + "\\n")
''',
        test="""
def test_a_line_a_run(tmp_path):
    import json

    file = tmp_path / "runs.jsonl"
    build(file=str(file)).log({"checkpoints": [{"name": "one", "mean_delta_b": -0.25}]}, tmp_path)
    assert json.loads(file.read_text())["mean_delta_b"] == {"one": -0.25}
""",
    ),
    "summary": Example(
        imports="""
from collections.abc import Sequence

from refbias.hookspecs import Register, hookimpl
from refbias.provenance import provenance
from refbias.result import Tables, task_data
from refbias.summaries import Job
""",
        code='''
def @NAME@(jobs: Sequence[Job], *, title: str = "Seconds") -> Tables:
    """How long each job of a sweep took to score."""
    rows = [
        {"job": job.number, "seconds": job.data["timings"]["score_s"] if job.data else None, "remark": job.reason}
        for job in jobs
    ]
    total = sum(row["seconds"] or 0.0 for row in rows)
    data = task_data("summary", {"summary": "@NAME@"}, 0, figures={"seconds": total}, conventions={}, stand_ins=[],
                     timings={}, provenance=provenance({}, None), title=title, seconds=rows)  # fmt: skip
    return Tables(data, ("seconds",))
''',
        test="""
def test_a_row_a_job_also_where_one_failed():
    from pathlib import Path

    from refbias.summaries import Job, markdown

    done = Job(0, ["seed=0"], {}, Path(), {"timings": {"score_s": 2.0}})
    made = build(title="Time")([done, Job(1, ["seed=1"], {}, Path(), None, "no disk")])
    assert made.data["figures"] == {"seconds": 2.0}
    assert "# Time" in markdown(made)
    assert "no disk" in markdown(made)
""",
    ),
    "task": Example(
        imports="""
from refbias.hookspecs import Register, hookimpl
from refbias.result import Result
from refbias.tasks import audit
from refbias.tasks.run import Run
""",
        code='''
def @NAME@(run: Run, *, greeting: str = "Here we go.") -> Result:
    """An audit that says something first."""
    run.watch.say(greeting)
    return audit(run)
''',
        test="""
def test_it_waits_for_a_run():
    assert build(greeting="Hello.").keywords == {"greeting": "Hello."}
""",
    ),
}
