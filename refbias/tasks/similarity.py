"""``task=similarity``: how far a model's cosines agree with human judgements, raw and beside it calibrated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from refbias.report.word_tables import calibration_lines, cost_lines, reason_lines, similarity_table, words_line
from refbias.tasks.subject import VALUES, check_calibration, choices

if TYPE_CHECKING:
    from refbias.result import Tables
    from refbias.tasks.run import Run

CHOSEN = ("encoder", "pooling", "words", "corpus", "calibration")


def similarity(
    run: Run,
    *,
    sets: list[str] | None = None,
    sts_path: str | None = None,
    sample: int = 100_000,
    vocabulary: Literal["frequent", "random"] = "frequent",
) -> Tables:
    """Spearman's rho on WordSim-353, SimLex-999 and the STS benchmark, raw and calibrated, paired bootstrap.

    ``sets``: of wordsim353, simlex999, stsbenchmark. ``sts_path``: the published sts-dev.csv or sts-test.csv, or a
    data set of the hub (owner/name:split). ``sample``, ``vocabulary``: what a calibration is fitted on.
    """
    from refbias.space_pipeline import similarity as measure

    result = measure(
        str(run.settings["reference"]),
        sets=sets,
        sts_path=sts_path,
        sample=sample,
        vocabulary=vocabulary,
        **choices(run, CHOSEN, (*VALUES, "draws")),
        cache=run.cache(),
        watch=run.watch,
        command=run.command,
    )
    data = result.data
    run.watch.show(similarity_table(data))
    lines = [*reason_lines(data["similarity"], "set")]
    if data["conventions"]["words"]:
        lines.append(words_line(data["conventions"]["words"]))
    if not any(row["set"] == "stsbenchmark" for row in data["similarity"]) and sets is None:
        lines.append("stsbenchmark was left out: it needs task.sts_path=FILE (sts-test.csv as published)")
    for line in (*lines, *calibration_lines(data), *cost_lines(data, run.folder)):
        run.watch.say(line)
    return result


def check(run: Run) -> None:
    """Raise for options that have no meaning, before anything is loaded."""
    from refbias.space_pipeline import check_similarity
    from refbias.subject import Reference

    _, options = run.part("task") or ("similarity", {})
    Reference(options["sample"], options["vocabulary"])
    check_similarity(options["sets"], options["sts_path"], run.settings["layer"], run.settings["draws"])
    check_calibration(run)
