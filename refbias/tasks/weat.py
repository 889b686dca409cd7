"""``task=weat``: association tests of one model, raw and beside it calibrated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from refbias.report.word_tables import cost_lines, status_lines, suite_lines, suite_tables
from refbias.tasks.subject import VALUES, check_calibration, choices

if TYPE_CHECKING:
    from refbias.result import Tables
    from refbias.tasks.run import Run

CHOSEN = ("encoder", "pooling", "suite", "words", "corpus", "calibration")


def weat(
    run: Run,
    *,
    test: Literal["weat", "sc_weat", "seat", "ceat", "ml_eat"] = "weat",
    also: list[str] | None = None,
    missing: Literal["drop", "balance", "fail"] = "drop",
    templates: list[str] | None = None,
    ddof: int = 1,
    alternative: Literal["greater", "less", "two-sided"] = "greater",
    ties: Literal["inclusive", "strict"] = "inclusive",
    permutations: int = 100_000,
    method: Literal["auto", "exact", "bounded", "sampled", "normal"] = "auto",
    holm: bool = False,
    alpha: float = 0.05,
    samples: int = 1000,
    variance: Literal["scores", "effect"] = "scores",
    sample: int = 100_000,
    vocabulary: Literal["frequent", "random"] = "frequent",
) -> Tables:
    """Association tests of a suite on the reference model, raw and beside it calibrated.

    ``test``: WEAT, or for one target set, sentences, contexts, three levels. ``also``: rnd, ect, rnsb, same.
    ``missing``: what happens to words without a vector. ``templates`` of SEAT hold {word}; ``samples`` and ``variance``
    belong to CEAT; ``sample`` and ``vocabulary`` say what a calibration is fitted on. All is explained in docs/weat.md.
    """
    from refbias.weat_pipeline import association_tests

    result = association_tests(
        str(run.settings["reference"]),
        test=test,
        also=also or (),
        missing=missing,
        templates=templates,
        ddof=ddof,
        alternative=alternative,
        ties=ties,
        permutations=permutations,
        method=method,
        holm=holm,
        alpha=alpha,
        samples=samples,
        variance=variance,
        sample=sample,
        vocabulary=vocabulary,
        **choices(run, CHOSEN, (*VALUES, "draws")),
        cache=run.cache(),
        watch=run.watch,
        command=run.command,
    )
    if not run.watch.brief:
        for table in suite_tables(result.data):
            run.watch.show(table)
    lines = status_lines(result.data) if run.watch.brief else suite_lines(result.data)
    for line in (*lines, *cost_lines(result.data, run.folder)):
        run.watch.say(line)
    return result


def check(run: Run) -> None:
    """Raise for options, lists and combinations that have no meaning, before anything is loaded."""
    from refbias.registry import registry
    from refbias.subject import Reference
    from refbias.weat_pipeline import check as check_choices
    from refbias.weat_pipeline import settings_of

    _, options = run.part("task") or ("weat", {})
    options = dict(options)
    Reference(options.pop("sample"), options.pop("vocabulary"))
    check_choices(
        options.pop("test"), options.pop("also") or (), options.pop("missing"), options.pop("templates"),
        run.settings["layer"],
    )  # fmt: skip
    seed = run.settings["seed"]
    settings_of(seed, run.settings["draws"], options)
    registry().resolve("suite", run.part("suite"), seed)
    check_calibration(run)
