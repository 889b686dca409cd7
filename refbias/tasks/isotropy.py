"""``task=isotropy``: how evenly a model's vectors fill their space, raw and beside it calibrated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from refbias.report.word_tables import calibration_lines, cost_lines, isotropy_table, reason_lines
from refbias.tasks.subject import check_calibration, choices

if TYPE_CHECKING:
    from refbias.result import Tables
    from refbias.tasks.run import Run

CHOSEN = ("encoder", "pooling", "corpus", "calibration")


def isotropy(
    run: Run, *, n: int = 2000, sample: int = 100_000, vocabulary: Literal["frequent", "random"] = "frequent"
) -> Tables:
    """Mean cosine, explained variance, effective rank and IsoScore of held-out vectors, raw and calibrated.

    ``n``: how many vectors are held out of the reference sample and measured; the calibration is fitted on the rest.
    ``sample``, ``vocabulary``: its size, and for word vectors whether its words are the most frequent or random ones.
    """
    from refbias.space_pipeline import isotropy as measure

    result = measure(
        str(run.settings["reference"]),
        n=n,
        sample=sample,
        vocabulary=vocabulary,
        **choices(run, CHOSEN),
        cache=run.cache(),
        watch=run.watch,
        command=run.command,
    )
    data = result.data
    run.watch.show(isotropy_table(data))
    for line in (*reason_lines(data["isotropy"], "layer"), f"vectors: {data['conventions']['sample']}"):
        run.watch.say(line)
    for line in (*calibration_lines(data), *cost_lines(data, run.folder)):
        run.watch.say(line)
    return result


def check(run: Run) -> None:
    """Raise for options that have no meaning, before anything is loaded."""
    from refbias.space_pipeline import check_isotropy
    from refbias.subject import Reference

    _, options = run.part("task") or ("isotropy", {})
    Reference(options["sample"], options["vocabulary"])
    check_isotropy(options["n"], run.settings["layer"])
    check_calibration(run)
