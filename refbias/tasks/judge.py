"""``task=judge``: verdicts on answers that were generated before, or the table in which people give theirs."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from refbias.answers.base import Answer, Pair, Prompt, Verdict
from refbias.errors import RefbiasError, UsageError

if TYPE_CHECKING:
    from refbias.result import Tables
    from refbias.tasks.run import Run

PARTS = ("judge",)
VALUES = ("device", "dtype")
SAVED = "verdicts.jsonl"
MOST_SAID = 40  # shares that the console shows
FORM = "the answers of task=generate, JSONL or parquet with prompt, sample, question and text"

CONVENTIONS = {
    "interval": "95 %, Clopper-Pearson of as many independent answers as a bootstrap over prompts says they are worth",
    "share": "answers with verdict 1 among those with a verdict",
    "judged_once": "answers with one question and one text share one verdict",
}


def judge(run: Run, *, path: str, out: str | None = None, export: str | None = None, overwrite: bool = False) -> Tables:
    """Judge generated answers without generating them again, or write them as a table for people to judge.

    ``path`` holds the answers: the file of task=generate. Verdicts go to ``out`` (verdicts.jsonl in the run folder),
    one row an answer; a run that was stopped goes on where it stopped. ``export`` writes a blinded CSV table instead,
    to be filled in and read with judge=csv. ``overwrite`` replaces such a file.
    """
    if export is not None:
        return _export(run, path, Path(export).expanduser())
    return _judge(run, path, run.folder / SAVED if out is None else Path(out).expanduser())


def check(run: Run) -> None:
    """Raise `UsageError` for files that are not there, or are there already, and where no judge is chosen."""
    from refbias.registry import registry
    from refbias.stimuli.files import existing

    _, options = run.part("task") or ("judge", {})
    existing(options["path"], "task.path", FORM)
    chosen = run.part("judge")
    if options["export"] is None and chosen is None:
        names = ", ".join(registry().parts("judge"))
        raise UsageError(f"task=judge needs a judge: judge=NAME, one of {names}; or task.export=FILE for people.")
    if options["export"] is not None and (chosen is not None or options["out"] is not None):
        raise UsageError("task.export=FILE writes a table for people and judges nothing: leave judge and task.out out.")
    for name in ("out", "export"):
        file = options[name]
        if file is not None and Path(file).expanduser().exists() and not options["overwrite"]:
            raise UsageError(f"task.{name}={file} is there already. Choose another file, or task.overwrite=true.")


@dataclass(frozen=True)
class Row:
    """One answer that was generated: who gave it to what, and what a judge is shown."""

    model: str
    prompt: Prompt
    sample: int
    answer: Answer
    pair: Pair


def read_answers(path: Path) -> list[Row]:
    """The answers in a file of task=generate; raises `RefbiasError` with the row for what is none."""
    from refbias.finetuning.files import rows_of

    rows: list[Row] = []
    seen: dict[tuple[str, str, int], str] = {}
    for where, fields in rows_of(path, "task.path"):
        row = _row(fields, f"{path}, {where}")
        key = row.model, row.prompt.id, row.sample
        if key in seen:
            raise RefbiasError(
                f"{path}, {where}: prompt {row.prompt.id!r}, sample {row.sample} stands in {seen[key]} already. "
                f"Every answer counts once: take one out."
            )
        seen[key] = where
        rows.append(row)
    if not rows:
        raise RefbiasError(f"{path} has no rows. Expected {FORM}.")
    return rows


def _row(fields: Any, where: str) -> Row:
    if not isinstance(fields, Mapping):
        raise RefbiasError(f"{where}: a {type(fields).__name__} is no row. Expected {FORM}.")
    missing = [name for name in ("prompt", "sample", "question", "text") if fields.get(name) is None]
    if missing:
        raise RefbiasError(f"{where} lacks {', '.join(missing)}. Expected {FORM}.")
    try:
        sample = int(fields["sample"])
    except (TypeError, ValueError):
        raise RefbiasError(f"{where}: sample is no integer. Expected {FORM}.") from None
    text, question = str(fields["text"]), str(fields["question"])
    judged = text if fields.get("judged") is None else str(fields["judged"])
    finish: Literal["stop", "length"] = "length" if fields.get("finish") == "length" else "stop"
    about = {str(k): None if v is None else str(v) for k, v in (fields.get("about") or {}).items()}
    prompt = Prompt(str(fields["prompt"]), (("user", question),), about)
    answer = Answer(text, finish, int(fields.get("tokens") or 0))
    return Row(str(fields.get("model") or ""), prompt, sample, answer, Pair(question, judged))


def _judge(run: Run, path: str, out: Path) -> Tables:
    from refbias.answers.judging import context_for, facts, judge_all
    from refbias.registry import registry
    from refbias.result import Tables, write_whole

    begun = time.perf_counter()
    chosen = registry().resolve("judge", run.part("judge"), run.settings["seed"])
    device, dtype = run.settings["device"], run.settings["dtype"]
    context = context_for(chosen, run.cache(), device, dtype, run.settings["seed"])
    context = replace(context, watch=run.watch)
    rows = read_answers(Path(path).expanduser())
    told = facts(chosen, context)
    verdicts = judge_all([row.pair for row in rows], chosen, context)
    write_whole(out, b"".join(_line(row, verdict) for row, verdict in zip(rows, verdicts, strict=True)))
    labels, shares, counts = _labels(verdicts), _shares(rows, verdicts, run.settings["seed"]), _counts(rows, verdicts)
    judged = counts["judged"]
    whole = next((row["share"] for row in shares if row["by"] == "all"), None) if counts["models"] == 1 else None
    tables = {name: value for name, value in told.items() if _is_table(value)}
    data = _data(
        run,
        path,
        time.perf_counter() - begun,
        figures={"share": whole, **counts, **_kappa(told)},
        judge={name: value for name, value in told.items() if name not in tables},
        labels=labels,
        shares=shares,
        **tables,
    )
    run.watch.say(f"{len(rows)} answers, {judged} with a verdict of judge={chosen.name}: {_counted(counts)}")
    for row in labels:
        run.watch.say(f"  {row['label']:16s} {_signed(row['value']):>4s} {row['answers']:8d}  {row['share']:6.1%}")
    for row in shares[:MOST_SAID]:
        run.watch.say(f"  {_named(row)}: {_shown(row)}")
    if len(shares) > MOST_SAID:
        run.watch.say(f"  … and {len(shares) - MOST_SAID} more in shares.csv")
    run.watch.say(f"verdicts: {out}")
    return Tables(data, [name for name in ("shares", "labels", *tables) if data[name]])


def _export(run: Run, path: str, file: Path) -> Tables:
    from refbias.judges.people import export
    from refbias.result import Tables

    begun = time.perf_counter()
    rows = read_answers(Path(path).expanduser())
    written = export([row.pair for row in rows], file, run.settings["seed"])
    run.watch.say(
        f"{written} different pairs of {len(rows)} answers are in {file}, in random order and without model names. "
        f"Fill in the column verdict, then: task=judge judge=csv judge.path={file}"
    )
    figures: dict[str, float | None] = {"answers": len(rows), "exported": written}
    return Tables(_data(run, path, time.perf_counter() - begun, figures=figures))


def _data(run: Run, path: str, seconds: float, *, figures: Mapping[str, float | None], **blocks: Any) -> dict[str, Any]:
    import hashlib

    from refbias.provenance import provenance
    from refbias.result import task_data

    file = Path(path).expanduser()
    return task_data(
        "judge",
        run.flat(("task", "judge"), VALUES),
        run.settings["seed"],
        figures=figures,
        conventions=CONVENTIONS,
        stand_ins=[],
        timings={"score_s": seconds},
        provenance=provenance({str(file): hashlib.sha256(file.read_bytes()).hexdigest()}, run.command),
        **blocks,
    )


def _line(row: Row, verdict: Verdict) -> bytes:
    """One row of the verdicts; the text stays where it is."""
    content = {
        "model": row.model,
        "prompt": row.prompt.id,
        "sample": row.sample,
        "about": dict(row.prompt.about),
        "value": verdict.value,
        "label": verdict.label,
        "detail": verdict.detail,
    }
    return json.dumps(content, ensure_ascii=False).encode(errors="replace") + b"\n"


def _labels(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    found = Counter((verdict.label, verdict.value) for verdict in verdicts)
    return [
        {"label": label, "value": value, "answers": n, "share": n / len(verdicts)}
        for (label, value), n in found.most_common()
    ]


def _counts(rows: Sequence[Row], verdicts: Sequence[Verdict]) -> dict[str, int]:
    labels = Counter(verdict.label for verdict in verdicts)
    return {
        "answers": len(rows),
        "judged": sum(verdict.value is not None for verdict in verdicts),
        "models": len({row.model for row in rows}),
        "prompts": len({row.prompt.id for row in rows}),
        "pairs": len({row.pair for row in rows}),
        "empty": sum(not row.pair.text.strip() for row in rows),
        "truncated": sum(row.answer.finish == "length" for row in rows),
        "refusals": labels["refusal"] + labels["no_response"],
        "unparsed": labels["unparsed"],
    }


def _shares(rows: Sequence[Row], verdicts: Sequence[Verdict], seed: int) -> list[dict[str, Any]]:
    """Share of verdict 1 for every model: of all its answers, and by every value of every key of ``about``."""
    from refbias.answers import scoring

    by_model: dict[str, list[tuple[Row, Verdict]]] = {}
    for row, verdict in zip(rows, verdicts, strict=True):
        by_model.setdefault(row.model, []).append((row, verdict))
    found = []
    for model, judged in by_model.items():
        prompts = {row.prompt.id: replace(row.prompt, about={"all": "all", **row.prompt.about}) for row, _ in judged}
        answers = {(row.prompt.id, row.sample): (row.answer, verdict) for row, verdict in judged}
        keys = dict.fromkeys(key for prompt in prompts.values() for key in prompt.about)
        for key in keys:
            for unit, score in scoring.scores(list(prompts.values()), answers, key, seed=seed).items():
                entry = {"model": model, "by": key, "unit": unit, "prompts": score.prompts, "judged": score.n}
                entry |= {"share": score.value, "ci_low": score.ci_low, "ci_high": score.ci_high}
                found.append(entry if score.value is not None else {**entry, "share_reason": score.reason})
    return found


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, Mapping) for row in value)


def _kappa(told: Mapping[str, Any]) -> dict[str, float | None]:
    """Agreement beyond chance of all people together, where several judged."""
    rows = told.get("agreement")
    return {"kappa": rows[-1]["kappa"]} if rows else {}


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in ("empty", "truncated", "refusals", "unparsed"))


def _signed(value: int | None) -> str:
    return "–" if value is None else f"{value:+d}" if value else "0"


def _named(row: Mapping[str, Any]) -> str:
    place = "all" if row["by"] == "all" else f"{row['by']} {row['unit']}"
    return f"{row['model']}, {place}" if row["model"] else place


def _shown(row: Mapping[str, Any]) -> str:
    if row["share"] is None:
        return f"–  ({row['share_reason']})"
    ends = "" if row["ci_low"] is None else f"  95 % [{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
    return f"{row['share']:.3f}{ends}  of {row['judged']} answers to {row['prompts']} prompts"
