"""``task=finetune``: teach a model, with a recipe, into a folder that an audit can read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from refbias.errors import UsageError

if TYPE_CHECKING:
    from refbias.finetuning import Finetuned
    from refbias.result import Tables
    from refbias.tasks.run import Run

PARTS = ("data", "regime")


def finetune(run: Run, *, out: str, overwrite: bool = False, save_every: float = 60.0) -> Tables:
    """Fine-tune the reference on ``data`` by the recipe ``regime`` into the folder ``task.out``.

    ``overwrite`` replaces a finished folder, or an unfinished one that was begun with other settings. A fine-tune that
    was stopped goes on when the same command is given again; it is kept every ``save_every`` seconds.
    """
    from refbias.finetuning import training
    from refbias.provenance import provenance
    from refbias.registry import registry
    from refbias.result import Tables, task_data
    from refbias.standins import collecting

    _check_format(run)
    seed = run.settings["seed"]
    with collecting(run.settings["strict"]) as notes:
        chosen = registry().resolve("data", run.part("data"), seed)
    for note in notes.items:
        run.watch.say(note.sentence())
    made = training.finetune(
        run.settings["reference"],
        chosen.object,
        run.part("regime"),
        out,
        seed=seed,
        device=run.settings["device"],
        overwrite=overwrite,
        save_every=save_every,
        cache=run.cache(),
        watch=run.watch,
    )
    for line in last_words(made, run.settings["reference"]):
        run.watch.say(line)
    data = task_data(
        "finetune",
        run.flat(PARTS, ("reference", "device", "strict"))
        | {f"data.{option}": value for option, value in chosen.params.items()}
        | {"task.out": out, "task.overwrite": overwrite},
        seed,
        losses=made.losses,
        finetune={"folder": str(made.folder), **made.about},
        figures=made.figures,
        conventions={
            "loss": "mean negative log-likelihood of the taught tokens, in nats",
            "loss_first": "mean over the first 5 steps",
            "loss_last": "mean over the last 20 steps",
        },
        stand_ins=notes.rows(),
        timings={"train_s": made.figures["seconds"], "tokens": made.figures["tokens"]},
        provenance=provenance({"data": chosen.object.digest}, run.command),
    )
    return Tables(data, ("losses",))


def check(run: Run) -> None:
    """Raise `UsageError` for choices that have no meaning, before anything is loaded."""
    from refbias.finetuning.training import check_machine
    from refbias.finetuning.workplace import check_out
    from refbias.registry import registry
    from refbias.standins import collecting

    _check_format(run)
    _, options = run.part("task") or ("", {})
    check_out(Path(options["out"]).expanduser().absolute(), options["overwrite"])
    check_machine(run.settings["device"])
    registry().resolve("regime", run.part("regime"))
    with collecting(run.settings["strict"]):
        registry().resolve("data", run.part("data"), run.settings["seed"])


def _check_format(run: Run) -> None:
    if run.settings["dtype"] is not None:
        raise UsageError("dtype=… is the number format of an audit. A fine-tune takes regime.precision=bf16 or fp32.")


def last_words(made: Finetuned, reference: str) -> list[str]:
    figures = made.figures
    return [
        f"loss {figures['loss_first']:.3f} at first, {figures['loss_last']:.3f} at last, in nats a token",
        f"{made.about['form']} in {made.folder}; audit it with refbias reference={reference} audited={made.folder}",
    ]
