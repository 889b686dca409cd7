"""``task=audit``: how far the audited models moved against each group, compared with the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refbias.report.console import closing_lines, layers_table, report_lines

if TYPE_CHECKING:
    from refbias.cache import Cache
    from refbias.result import Result
    from refbias.tasks.run import Run

CHOSEN = (
    "encoder", "pooling", "targets", "attributes", "anchors", "calibration", "corpus", "geometry", "metric",
    "benchmark", "generator", "judge", "topics",
)  # fmt: skip
PARTS = (*CHOSEN, "checkpoints")
VALUES = (
    "layer", "control", "calibrator", "calibrator_anyway", "sensitivity", "device", "dtype", "strict", "seed", "draws",
)  # fmt: skip


def audit(run: Run) -> Result:
    """Measure the representational bias shift of each audited model against the reference."""
    from refbias import pipeline

    check(run)
    chosen, cache = choices(run), run.cache()
    for line in first_words(run, cache):
        run.watch.say(line)
    result = pipeline.audit(reference(run), **chosen, cache=cache, watch=run.watch, command=run.command)
    if "layers" in result.data:
        run.watch.show(layers_table(result.data))
    for line in report_lines(result.data.get("series", {})):
        run.watch.say(line)
    for line in closing_lines(result.data, run.folder):
        run.watch.say(line)
    return result


def check(run: Run) -> None:
    """Raise `UsageError` for choices that have no meaning together, before anything is loaded."""
    from refbias import pipeline

    pipeline.check(reference(run), **choices(run))


def reference(run: Run) -> str:
    return str(run.settings["reference"])


def choices(run: Run) -> dict[str, Any]:
    """The settings as `refbias.pipeline.audit` takes them."""
    audited = run.names("audited")
    chosen: dict[str, Any] = {kind: run.part(kind) for kind in CHOSEN}
    chosen |= {key: run.settings[key] for key in VALUES}
    return chosen | {
        "audited": audited,
        "checkpoints": run.part("checkpoints") if audited is None else None,
        "groups": run.names("groups"),
        "also_layers": list(run.swept_layers) or None,
    }


def first_words(run: Run, cache: Cache) -> list[str]:
    """What a first run will do and how long it takes; nothing where it is quick, or on an accelerator."""
    from refbias.devices import resolve_device
    from refbias.models import find_model
    from refbias.tasks.outlook import gemm_rate, is_cold, outlook, planned

    audited = run.names("audited")
    series = run.part("checkpoints") if audited is None else None
    if resolve_device(run.settings["device"]) != "cpu" or not is_cold(cache, series):
        return []
    model = find_model(reference(run), cache=cache)
    if not model.causal and series:
        return []
    models = len(audited) if audited is not None else len(series[1].get("ratios") or [0]) if series else 0
    benchmark = run.part("benchmark")
    _, of_anchors = run.part("anchors") or ("", {})
    sentences = 50 * len(run.names("groups") or range(24)) + 200 + (of_anchors.get("n") or 1000)
    _, of_corpus = run.part("corpus") or ("", {})
    sentences += 2 * (of_corpus.get("n") or 0)  # running text: about twice as long as the others
    work = planned(model.layers, model.dim, sentences, series, models, benchmark is not None and model.causal)
    return outlook(work, gemm_rate())
