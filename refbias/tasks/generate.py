"""``task=generate``: a model's answers to the prompts of a benchmark, kept in a file."""

from __future__ import annotations

import importlib.util
import inspect
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refbias.errors import UsageError

if TYPE_CHECKING:
    from refbias.answers import Answer, Questionnaire
    from refbias.result import Tables
    from refbias.tasks.run import Run

PARTS = ("benchmark", "generator", "targets", "topics")
VALUES = ("reference", "groups", "device", "dtype", "seed")
ENDINGS = (".jsonl", ".parquet")

CONVENTIONS = {
    "seed": "of each answer: from the run's seed, the text of the prompt and the number of the sample",
    "truncated": "answers that max_new_tokens cut off",
    "empty": "answers without a character other than white space",
    "tokens": "of the answers, the end token not counted",
    "tokens_per_second": "with loading the model; null where some answers were there before",
}


def generate(run: Run, *, out: Path, overwrite: bool = False) -> Tables:
    """Write the reference's answers to the prompts of benchmark=NAME, for task=judge.

    ``out``: a .jsonl file, one row a prompt × sample, that a run which was stopped goes on with; a .parquet file is
    written at the end, from the .jsonl file that is kept beside it. ``overwrite`` begins the file anew.
    """
    from refbias.answers import store
    from refbias.context import Context
    from refbias.devices import resolve_device, resolve_dtype
    from refbias.models import find_model
    from refbias.provenance import provenance
    from refbias.registry import registry
    from refbias.result import Tables, task_data

    begun = time.perf_counter()
    seed, device = run.settings["seed"], resolve_device(run.settings["device"])
    context = Context(run.cache(), device, resolve_dtype(run.settings["dtype"], device), seed, run.watch)
    generator = registry().resolve("generator", run.part("generator"), seed)
    asked = _with_topics(run, questionnaire(run), context)
    prompts = asked.prompts(_groups(run))
    model = find_model(run.settings["reference"], cache=context.cache, watch=run.watch)
    rows = _kept_in(Path(out))
    if overwrite:
        rows.unlink(missing_ok=True)
    before = len(store.read(rows)) if rows.exists() else 0
    read = time.perf_counter()
    answers = store.collect(model, prompts, asked.sampling, generator, context, file=rows, judged=asked.judged)
    seconds = time.perf_counter() - read
    if Path(out).suffix == ".parquet":
        store.write_parquet(store.read(rows), Path(out).expanduser())
    row = {
        "model": model.name,
        "benchmark": asked.name,
        **_counted(list(answers.values()), len(prompts), before, seconds),
        "fingerprint": model.fingerprint,
        "out": str(Path(out).expanduser().resolve()),
    }
    for line in lines(row):
        run.watch.say(line)
    return Tables(
        task_data(
            "generate",
            run.flat(("task", "benchmark", "generator"), VALUES),
            seed,
            generations=[row],
            asked={"name": asked.name, "digest": asked.digest, **asked.report, "sampling": asked.sampling.as_dict()},
            figures={key: row[key] for key in ("prompts", "answers", "truncated", "empty", "tokens_per_second")},
            conventions=CONVENTIONS,
            stand_ins=[],
            timings={"load_s": read - begun, "generate_s": seconds, "tokens": row["tokens"]},
            provenance=provenance({"model": model.fingerprint, "prompts": asked.digest}, run.command),
        ),
        ("generations",),
    )


def check(run: Run) -> None:
    """Raise for a file that cannot be written and a benchmark without prompts, before anything is loaded."""
    _, options = run.part("task") or ("generate", {})
    out = Path(options["out"])
    if out.suffix not in ENDINGS:
        raise UsageError(f"task.out={out}: expected a file name that ends in {' or '.join(ENDINGS)}.")
    if out.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UsageError(
            f"task.out={out}: parquet needs the package pyarrow. Run `pip install refbias[data]`, or use .jsonl."
        )
    if out.suffix == ".parquet" and out.expanduser().exists() and not (options["overwrite"] or _kept_in(out).exists()):
        raise UsageError(f"task.out={out} is there already. Name another file, or set task.overwrite=true.")
    questionnaire(run)


def questionnaire(run: Run) -> Questionnaire:
    """The benchmark that is chosen; raises `UsageError` with the names of those that ask where it is none of them."""
    from refbias.registry import registry

    chosen = run.part("benchmark")
    made: Any = None if chosen is None else registry().resolve("benchmark", chosen, run.settings["seed"]).object
    if chosen is None or not hasattr(made, "prompts"):
        name = "none" if chosen is None else chosen[0]
        raise UsageError(
            f"task=generate writes answers to the prompts of a benchmark, and benchmark={name} has none. "
            f"With prompts: {', '.join(_that_ask()) or 'none is installed'}."
        )
    asked: Questionnaire = made
    return asked


def _that_ask() -> list[str]:
    from refbias.registry import registry

    return [name for name, part in registry().parts("benchmark").items() if hasattr(_made_by(part.factory), "prompts")]


def _made_by(factory: Any) -> Any:
    """The class that a part makes, as its annotation says."""
    if inspect.isclass(factory):
        return factory
    named = inspect.signature(factory).return_annotation
    return getattr(inspect.getmodule(factory), named, None) if isinstance(named, str) else named


def _with_topics(run: Run, asked: Questionnaire, context: Any) -> Questionnaire:
    """The questionnaire with its prompts told apart, where it needs that."""
    from refbias.registry import registry

    if not hasattr(asked, "with_topics"):
        return asked
    made: Questionnaire = asked.with_topics(registry().resolve("topics", run.part("topics")), context)
    return made


def _groups(run: Run) -> list[str]:
    from refbias.registry import registry

    return run.names("groups") or list(registry().resolve("targets", run.part("targets"), run.settings["seed"]).object)


def _kept_in(out: Path) -> Path:
    """Where rows are written as they come."""
    return out.expanduser().with_suffix(".jsonl")


def _counted(answers: Sequence[Answer], prompts: int, before: int, seconds: float) -> dict[str, Any]:
    fresh = max(len(answers) - before, 0)
    tokens = sum(answer.tokens for answer in answers)
    return {
        "prompts": prompts,
        "answers": len(answers),
        "kept_before": len(answers) - fresh,
        "truncated": sum(answer.finish == "length" for answer in answers),
        "empty": sum(not answer.text.strip() for answer in answers),
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds if fresh and not before else None,
    }


def lines(row: Mapping[str, Any]) -> list[str]:
    """The result in plain sentences."""
    rate = row["tokens_per_second"]
    speed = f", {rate:,.0f} tokens/s" if rate else f", {row['kept_before']:,} of them kept from before"
    return [
        f"{row['model']}: {row['answers']:,} answers to {row['prompts']:,} prompts of {row['benchmark']}{speed}",
        f"  {row['truncated']:,} cut off by max_new_tokens, {row['empty']:,} empty, {row['tokens']:,} tokens",
        f"  answers: {row['out']}",
    ]
