"""The command line: a Hydra application, and a few commands that are told by their first word.

Exit status: 0 done, 1 the run failed, 2 wrong use, 3 a gate says no.
"""

from __future__ import annotations

import importlib
import json
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refbias.errors import RefbiasError, UsageError
from refbias.options import help_text, own_folder, plain, plugin_folders, store
from refbias.provenance import redacted
from refbias.registry import registry
from refbias.tasks.run import OUTCOME

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from refbias.overrides import Words
    from refbias.report.console import ConsoleWatch
    from refbias.sweep import Launched
    from refbias.tasks.run import Run
    from refbias.tracking import Tracker

# first word -> module with main(arguments) -> exit status
COMMANDS: Mapping[str, str] = {
    "list": "refbias.commands.list",
    "doctor": "refbias.commands.doctor",
    "cache": "refbias.commands.cache",
    "new-plugin": "refbias.commands.new_plugin",
}
DONE, FAILED, MISUSED, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130
TRACE = "REFBIAS_TRACE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks Δ shows ? rather than a traceback
            stream.reconfigure(errors="replace")
    warnings.formatwarning = _one_line
    try:
        if words and words[0] in COMMANDS:
            return int(importlib.import_module(COMMANDS[words[0]]).main(words[1:]))
        return _application(words)
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        return _report(error)


def _one_line(message: Warning | str, *rest: Any, **named: Any) -> str:
    return f"refbias: {message}\n"


def _report(error: Exception) -> int:
    """One message on standard error; the exit status that belongs to it."""
    if _trace_wanted():
        traceback.print_exception(error)
    _complain(message_of(error))
    return MISUSED if isinstance(error, UsageError) else FAILED


def _trace_wanted() -> bool:
    """Whether the user asked for traces. While Hydra runs, HYDRA_FULL_ERROR is ours and TRACE says what it was."""
    return os.environ.get(TRACE, os.environ.get("HYDRA_FULL_ERROR")) == "1"


def message_of(error: Exception) -> str:
    """What the user reads: our own messages as they are, others with their type and the way to the trace."""
    if isinstance(error, RefbiasError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
    return f"{type(error).__name__}: {error}. This was not expected: HYDRA_FULL_ERROR=1 shows where it happened."


def _complain(text: str) -> None:
    sys.stdout.flush()
    print(f"refbias: {redacted(text)}", file=sys.stderr, flush=True)


def _application(words: Sequence[str]) -> int:
    """Compose the configuration and run what it says, once or for every job of a sweep."""
    from refbias import overrides, sweep

    split = overrides.split(words)
    _prepare()
    first = len(sweep.launched)
    _ended.clear()
    try:
        code = _help(split) if {"--help", "-h"} & set(split.flags) else _hydra(split.in_order)
    except BaseException as error:
        for launched in sweep.launched[first:]:
            _close(launched, error)
        if isinstance(error, Exception) and _refused(error):
            raise overrides.explain(error, split, registry(), COMMANDS) from error
        raise
    if code:
        return code
    for launched in sweep.launched[first:]:
        return _end_of_sweep(launched)
    return max(_ended, default=DONE)


def _refused(error: Exception) -> bool:
    """Whether Hydra or OmegaConf refused to compose; jobs report their own errors and raise nothing."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    return isinstance(error, (HydraException, OmegaConfBaseException, ValueError))


def _prepare() -> None:
    """Tell Hydra about every part, and where plug-ins keep their presets."""
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class RefbiasPlugins(SearchPathPlugin):
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            for folder in plugin_folders(registry()):
                search_path.append(provider="refbias plug-in", path=f"file://{Path(folder).resolve()}")

    store(registry())
    Plugins.instance().register(RefbiasPlugins)


def _help(split: Words) -> int:
    """Our help around Hydra's view of the configuration: Hydra's own would load every option there is."""
    before, after = help_text(registry())
    print(before, flush=True)
    flags = [flag for flag in split.flags if flag not in ("--help", "-h")]
    code = _hydra([*flags, "--cfg", "job", *split.overrides])
    print(f"\n{after}")
    return code


def _hydra(arguments: Sequence[str]) -> int:
    """Run Hydra with exceptions on; its flags (``--help`` …) end with a status of their own."""
    import hydra

    from refbias.guard import checked_composition

    application = hydra.main(version_base="1.3", config_path=str(own_folder()), config_name="config")(job)
    argv, environment = sys.argv, dict(os.environ)
    sys.argv = ["refbias", *arguments]
    os.environ[TRACE] = environment.get("HYDRA_FULL_ERROR", "0")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        with checked_composition():
            application()
        return DONE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else DONE
    finally:
        sys.argv = argv
        for name in (TRACE, "HYDRA_FULL_ERROR"):
            os.environ.pop(name)
            if name in environment:
                os.environ[name] = environment[name]


# One job ---------------------------------------------------------------------------------------------------------

_ended: list[int] = []  # exit statuses of the jobs of this process


def job(config: DictConfig) -> None:
    """What Hydra runs. How it ended goes into outcome.json, since Hydra would stop a sweep at the first error."""
    from hydra.core.hydra_config import HydraConfig

    from refbias import resume, sweep
    from refbias.report.console import ConsoleWatch, main_figures

    about = HydraConfig.get()
    folder = Path(about.runtime.output_dir)
    shared = (
        sweep.Sweep.read(Path(about.sweep.dir)) if about.mode is not None and about.mode.name == "MULTIRUN" else None
    )
    overrides = [str(o) for o in about.overrides.task]
    varied = shared.name(overrides) if shared else overrides
    watch = ConsoleWatch(brief=shared is not None)
    record: dict[str, Any] = {"job": 0, "overrides": overrides, "varied": varied, "message": None, "figures": {}}
    if shared is not None:
        os.environ[sweep.ENVIRONMENT] = shared.id
        record["job"] = about.job.num
        watch.say(f"job {about.job.num}: {' '.join(varied)}")

    def run() -> int:
        from refbias.tasks.run import Run

        settings, missing = _settings(config)
        record.update(settings=redacted(settings), mark=resume.mark_of(settings))
        made = Run(settings, folder, watch, _command(overrides), shared.layers if shared else [])
        kept = None
        if shared is None:
            _check_alone(settings)
        else:
            kept = resume.done_before(folder, overrides, record["mark"])
            if kept is None:
                resume.forget(folder)
            else:
                watch.say("done before with these settings: not run again")
        data = perform(made, missing, " ".join(varied), shared.parent if shared else None, kept)
        record["figures"] = main_figures(data)
        refusals = [rule["reason"] for rule in data["gate"]["rules"] if not rule["passed"]]
        if refusals:
            record["message"] = f"the gate says no: {'; '.join(refusals)}"
            _complain(record["message"])
            return REFUSED
        return DONE

    try:
        record["status"] = run()
    except Exception as error:
        record["message"] = message_of(error)
        record["status"] = _report(error)
    _ended.append(record["status"])
    with suppress(OSError):  # a full disk has been reported already
        (folder / OUTCOME).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    resume.forget(folder)


def _check_alone(settings: Mapping[str, Any]) -> None:
    """A summary is made of all jobs of a sweep: one run alone is none."""
    chosen = (settings.get("summary") or {}).get("name", "none")
    if chosen != "none":
        raise UsageError(f"summary={chosen} is made of all jobs of a sweep. Add -m, also where it has one job.")


def _settings(config: DictConfig) -> tuple[dict[str, Any], list[str]]:
    from omegaconf import OmegaConf

    return plain(OmegaConf.to_container(config, resolve=True)), sorted(OmegaConf.missing_keys(config))


def _command(overrides: Sequence[str]) -> str:
    return str(redacted(shlex.join(["python", "-m", "refbias", *overrides])))


def perform(
    run: Run, missing: Sequence[str], name: str, parent: str | None, kept: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Check, measure, save, judge, track, in this order; returns the result with the gate's verdict beside it.

    ``kept`` is the result of an earlier sweep, which is judged and tracked as if it had been measured now.
    """
    from refbias.result import write_whole
    from refbias.tasks.gate import verdict
    from refbias.tasks.run import check_settings, settings_used, tracker_of

    check_settings(run.settings, missing)
    task = registry().resolve("task", run.part("task"))
    if parent is None and "check" in task.traits:  # a job of a sweep is tracked all the same
        task.traits["check"](run)
    tracker = tracker_of(run.settings)
    tracker.start(name[:200] or task.name, settings_used(run.settings, task.traits), parent)
    try:
        if kept is None:
            result = task.object(run)
            result.save(run.folder)
            _tell_plugins(result, run.settings)
        data: dict[str, Any] = result.data if kept is None else kept
        judged = verdict(data, **run.settings["gate"])
        if judged["rules"]:
            write_whole(run.folder / "gate.json", json.dumps(judged, indent=1) + "\n")
    except BaseException as error:
        _quietly(partial(_give_up, tracker, error))
        raise
    try:
        tracker.log(data, run.folder)
        tracker.finish()
    except RefbiasError as error:
        _quietly(partial(_give_up, tracker, error))
        raise RefbiasError(f"The result is saved in {run.folder}, but not tracked. {error}") from error
    return {**data, "gate": judged}


def _tell_plugins(result: Any, settings: Mapping[str, Any]) -> None:
    try:
        registry().manager.hook.refbias_measured(result=result, config=dict(settings))
    except RefbiasError:
        raise
    except Exception as error:
        raise RefbiasError(f"A plug-in failed in refbias_measured: {type(error).__name__}: {error}.") from error


def _give_up(tracker: Tracker, error: BaseException) -> None:
    """Mark a run as failed, or as killed where the user stopped it."""
    if isinstance(error, Exception):
        tracker.fail(message_of(error))
    else:
        tracker.fail("interrupted", killed=True)


def _quietly(action: Callable[[], None]) -> None:
    """Do what can be done for a run that has failed already: its own error is the one to report."""
    try:
        action()
    except RefbiasError as error:
        _complain(str(error))


# A sweep ---------------------------------------------------------------------------------------------------------


def _close(launched: Launched, error: BaseException) -> None:
    """End the parent of a sweep that broke off; forget it where no job had begun."""
    begun = any(launched.folder.glob(f"*/{OUTCOME}")) or isinstance(error, KeyboardInterrupt)
    _quietly(partial(_give_up, launched.tracker, error) if begun else launched.tracker.discard)


def _sum_up(launched: Launched, watch: ConsoleWatch) -> int:
    """Make what the setting ``summary`` says of all jobs: save, show and track it; returns an exit status."""
    from refbias import summaries
    from refbias.tasks.run import part_of

    chosen = part_of(launched.settings, "summary")
    if chosen is None:
        return DONE
    try:
        made = registry().resolve("summary", chosen).object(summaries.read_jobs(launched.folder))
        folder = launched.folder / summaries.FOLDER
        watch.say(summaries.save(made, chosen[0], folder))
        launched.tracker.log(made.data, folder)
    except Exception as error:
        return _report(error)
    return DONE


def _end_of_sweep(launched: Launched) -> int:
    """Close the parent run, show a table of the jobs, and return the exit status of the whole."""
    from refbias.report.console import ConsoleWatch, sweep_table

    jobs = [json.loads(file.read_text(encoding="utf-8")) for file in launched.folder.rglob(OUTCOME)]
    jobs.sort(key=lambda record: record["job"])
    watch = ConsoleWatch()
    watch.show(sweep_table(jobs))
    summed_up = _sum_up(launched, watch)
    watch.say(f"files: {launched.folder.resolve()}")
    statuses = {*(record["status"] for record in jobs), *_ended, summed_up}
    failed = [record for record in jobs if record["status"] in (FAILED, MISUSED)]
    status = next((s for s in (FAILED, MISUSED, REFUSED) if s in statuses), DONE)
    if failed:
        _complain(f"{len(failed)} of {len(jobs)} jobs failed: {', '.join(str(record['job']) for record in failed)}")
        _quietly(partial(launched.tracker.fail, f"{len(failed)} of {len(jobs)} jobs failed"))
    else:
        _quietly(launched.tracker.finish)
    if launched.trouble:
        _complain(f"The sweep has no parent run. {launched.trouble}")
        return status or FAILED
    return status
