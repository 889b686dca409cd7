"""Any task of lm-evaluation-harness (EleutherAI) as an external signal."""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from refbias.answers.base import Score
from refbias.benchmarks.base import CannotScore
from refbias.benchmarks.crows_pairs import UNITS as BIAS_TYPES
from refbias.benchmarks.pairs import by_unit, for_groups, mean_score, units_of
from refbias.errors import RefbiasError, UsageError, described, did_you_mean
from refbias.stimuli.packaged import groups as packaged_groups

if TYPE_CHECKING:
    from refbias.checkpoints.base import Checkpoint
    from refbias.context import Context
    from refbias.models.base import Model

FORMAT = "1"  # raise it where a change here changes figures: cached ones are then computed again

_TASK = re.compile(r"[\w.-]+")
_CORE = "tag:yaml.org,2002:"
_RUNS_CODE = ("pandas", "webdataset")  # loaders of `datasets` that unpickle
_INSTALL = "pip install 'lm-eval>=0.4.13' accelerate, or pip install 'refbias[lm-eval]'"


class HarnessTask:
    """The mean of a metric over a task's documents, all of them or by what one column of theirs says."""

    name = "lm_eval"

    def __init__(
        self,
        task: str,
        include: Path | None,
        metric: str | None,
        sign: int,
        column: str | None,
        units: Mapping[str, str],
        options: Mapping[str, Any],
        allow_code: bool,
        threshold: float,
    ) -> None:
        self._task, self._include, self._metric, self._sign, self._column = task, include, metric, sign, column
        self._options, self._allow_code = dict(options), allow_code
        self.threshold = threshold
        self.unit = f"{metric or 'metric'} of {task}"
        self.units: Mapping[str, str] = units
        self._rows: list[dict[str, Any]] = []
        self._version: str | None = None

    @property
    def report(self) -> dict[str, Any]:
        """The settings, and ``figures``: a row for each model scored so far and each unit, "all" for all documents."""
        return {
            "task": self._task,
            "include": self._include and self._include.name,
            "metric": self._metric,
            "higher_is": "more" if self._sign > 0 else "less",
            "group_column": self._column,
            **self._options,
            "lm_eval": self._version,
            "interval": "bootstrap over documents",
            "figures": list(self._rows),
        }

    def score(self, checkpoint: Checkpoint, groups: Sequence[str], context: Context) -> Mapping[str, Score]:
        model = checkpoint.model
        if not model.causal:
            raise CannotScore(
                f"{model.name} is no causal language model, which benchmark=lm_eval needs. Use benchmark=none, or "
                f"crows_pairs, stereoset or winobias for masked models."
            )
        if self._include is not None and not self._allow_code:
            check_folder(self._include)  # again: the folder may have changed since the options were read
        documents = self._documents(model, context)
        given = list(documents[0]["metrics"])
        metric = self._metric or next(iter(given), "any")
        if self._metric is None and len(given) > 1 and checkpoint.untouched:
            context.watch.say(f"benchmark=lm_eval: the metric is {metric}; {self._task} gives {', '.join(given)}")
        values = self._sign * np.array([_value(document, metric, self._task) for document in documents])
        self.unit = f"{metric} of {self._task}"
        found = {"all": mean_score(values, context.seed)}
        if self._column is not None:
            found |= {u: mean_score(values[of], context.seed) for u, of in by_unit(self._labels(documents)).items()}
        for unit, score in found.items():
            self._rows.append(
                {"model": checkpoint.name, "unit": unit, "documents": score.n, metric: score.value}
                | {"ci_low": score.ci_low, "ci_high": score.ci_high}
            )
        own = self._column is None
        self.units = dict.fromkeys([*packaged_groups(), *groups], "all") if own else units_of(groups, self.units, found)
        return for_groups(groups, self.units, found, f"benchmark=lm_eval benchmark.task={self._task}")

    def _labels(self, documents: Sequence[Mapping[str, Any]]) -> list[str]:
        missing = [document for document in documents if document["label"] is None]
        if missing:
            columns = ", ".join(sorted(missing[0]["columns"]))
            raise UsageError(
                f"benchmark.group_column={self._column}: a document of {self._task} has no such column. It has "
                f"{columns}."
            )
        return [document["label"] for document in documents]

    def _documents(self, model: Model, context: Context) -> list[dict[str, Any]]:
        """Label, columns and metrics of each document; kept in the cache."""
        lm_eval = _harness()
        self._version = lm_eval.__version__
        _, dtype = model.placement(context.device, context.dtype)
        about = [FORMAT, self._version, self._task, self._column, self._options, context.seed, model.fingerprint, dtype]
        files = _digests(self._include) if self._include else {}
        key = json.dumps(["lm_eval", *about, files], sort_keys=True)
        found: list[dict[str, Any]] = json.loads(
            context.cache.remember(key, lambda: json.dumps(self._run(model, context)))
        )
        if not found:
            raise RefbiasError(f"benchmark=lm_eval: the task {self._task} has no document.")
        return found

    def _run(self, model: Model, context: Context) -> list[dict[str, Any]]:
        lm_eval = _harness()
        manager = _tasks(self._task, self._include)
        context.watch.say(f"lm-evaluation-harness: {self._task} with {model.name}")
        safe = self._include is not None and not self._allow_code
        with model.open_causal(context.device, context.dtype) as loaded, _templates_sandboxed(safe):
            try:
                results = lm_eval.simple_evaluate(
                    model=_model(loaded, int(self._options["batch_size"])),
                    tasks=[self._task],
                    task_manager=manager,
                    num_fewshot=self._options["num_fewshot"],
                    limit=self._options["limit"],
                    apply_chat_template=self._options["chat_template"],
                    bootstrap_iters=0,
                    log_samples=True,
                    random_seed=None,
                    numpy_random_seed=None,
                    torch_random_seed=None,
                    fewshot_random_seed=context.seed,
                )
            except RefbiasError:
                raise
            except Exception as error:
                raise RefbiasError(f"lm-evaluation-harness cannot run {self._task}: {described(error)}.") from error
        # a document comes once for each filter of its task: the first one counts
        return [
            _document(sample, self._column)
            for of_task in results["samples"].values()
            for sample in of_task
            if sample["filter"] == of_task[0]["filter"]
        ]


def _document(sample: Mapping[str, Any], column: str | None) -> dict[str, Any]:
    label = sample["doc"].get(column) if column else None
    numbers = (bool, int, float, np.number, np.bool_)
    metrics = {name: sample[name] for name in sample["metrics"] if isinstance(sample[name], numbers)}
    return {
        "label": None if label is None else str(label),
        "columns": list(sample["doc"]),
        "metrics": {name: float(value) for name, value in metrics.items()},
    }


def _value(document: Mapping[str, Any], metric: str, task: str) -> float:
    metrics = document["metrics"]
    if metric not in metrics:
        raise UsageError(
            f"benchmark.metric={metric}: {task} does not give it as a number for each document. It gives "
            f"{', '.join(metrics) or 'none'}."
        )
    return float(metrics[metric])


def _harness() -> Any:
    try:
        import lm_eval
    except ImportError as error:
        raise RefbiasError(f"benchmark=lm_eval needs lm-evaluation-harness ({error}). Run {_INSTALL}.") from None
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    return lm_eval


def _tasks(task: str, include: Path | None) -> Any:
    """The harness's tasks with those of ``include``; these alone, which takes no time, where ``task`` is among them."""
    from lm_eval.tasks import TaskManager

    if include is not None:
        own = TaskManager(include_path=str(include), include_defaults=False)
        if task in own.all_tasks:
            return own
    manager = TaskManager(include_path=None if include is None else str(include))
    if task not in manager.all_tasks:
        raise UsageError(
            f"lm-evaluation-harness has no task {task!r}.{did_you_mean(task, manager.all_tasks)} A folder with tasks "
            f"of your own is given with benchmark.include=FOLDER."
        )
    return manager


def _model(loaded: Any, batch_size: int) -> Any:
    """The loaded model as the harness's own kind of model."""
    from lm_eval.models.huggingface import HFLM

    class Loaded(HFLM):
        def get_model_info(self) -> dict[str, Any]:
            return {}  # the harness would ask the hub for it

    tokenizer = copy.deepcopy(loaded.tokenizer)  # the harness changes its padding
    return Loaded(pretrained=loaded.causal, tokenizer=tokenizer, backend="causal", batch_size=batch_size)


@contextmanager
def _templates_sandboxed(safe: bool) -> Iterator[None]:
    """Templates of tasks are rendered without access to Python's internals."""
    import lm_eval.utils as utils
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    before = utils.env
    if safe:
        utils.env = ImmutableSandboxedEnvironment(
            loader=before.loader, undefined=before.undefined, keep_trailing_newline=before.keep_trailing_newline
        )
        utils.env.filters.update(before.filters)
    try:
        yield
    finally:
        utils.env = before


def check_folder(folder: Path) -> None:
    """Raise `UsageError` where a folder of tasks would run code: Python files, YAML tags, loaders that unpickle."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".py":
            _refuse(folder, path, "is Python")
        if path.suffix in (".yaml", ".yml"):
            for reason in _reasons(path, folder):
                _refuse(folder, path, reason)


def _refuse(folder: Path, path: Path, reason: str) -> None:
    raise UsageError(
        f"benchmark.include={folder}: {path.relative_to(folder)} {reason}, so the folder can run code on this machine. "
        f"Read it, and say benchmark.allow_code=true if you trust it."
    )


def _reasons(path: Path, folder: Path) -> Iterator[str]:
    import yaml  # type: ignore[import-untyped]

    try:
        with path.open("rb") as file:
            root = yaml.compose(file, Loader=yaml.SafeLoader)
    except (OSError, yaml.YAMLError) as error:
        raise RefbiasError(f"{path} cannot be read as YAML: {described(error)}.") from None
    waiting = [] if root is None else [root]
    while waiting:
        node = waiting.pop()
        tag = node.tag.removeprefix(_CORE)
        if tag == node.tag or tag.startswith("python"):
            yield f"has a tag {node.tag!r}"
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                waiting += [key, value]
                yield from _reasons_of_entry(str(key.value), value, path, folder)


def _reasons_of_entry(key: str, value: Any, path: Path, folder: Path) -> Iterator[str]:
    texts = [v.value for v in value.value] if isinstance(value.value, list) and key == "include" else [value.value]
    if key == "include":
        for text in texts:
            inside = (path.parent / str(text)).resolve().is_relative_to(folder.resolve())
            if not inside or Path(str(text)).suffix not in (".yaml", ".yml"):
                yield f"includes {text}"
    if key in ("hf_evaluate", "unsafe_code") and str(value.value).lower() != "false":
        yield f"sets {key}"
    if key == "dataset_path" and (value.value in _RUNS_CODE or str(value.value).endswith(".py")):
        yield f"reads data with {value.value}"


def _digests(folder: Path) -> dict[str, str]:
    import hashlib

    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def lm_eval(
    *,
    task: str,
    include: str | None = None,
    metric: str | None = None,
    higher_is: Literal["more", "less"] = "more",
    group_column: str | None = None,
    group_values: list[str] | None = None,
    limit: int | None = None,
    num_fewshot: int | None = None,
    chat_template: bool = False,
    batch_size: int = 16,
    allow_code: bool = False,
    threshold: float = 0.0,
) -> HarnessTask:
    """A task of lm-evaluation-harness: the mean of one metric over its documents, by group where they carry one.

    ``include`` is a folder with tasks of your own, ``metric`` the first that the task gives unless it is named,
    ``higher_is`` whether a higher value means more or less bias. ``group_column`` names a column of the documents;
    its values are groups, bias types of CrowS-Pairs, or what ``group_values`` says: a list of GROUP=VALUE.
    """
    if not _TASK.fullmatch(task):
        raise UsageError(f"benchmark.task={task}: expected the name of one task; a file or pattern is none.")
    folder = None if include is None else Path(include).expanduser()
    if folder is not None and not folder.is_dir():
        raise UsageError(f"benchmark.include={include}: no such folder in {Path.cwd()}.")
    if folder is not None and not allow_code:
        check_folder(folder)
    if group_values and group_column is None:
        raise UsageError("benchmark.group_values says which values belong to a group: name benchmark.group_column too.")
    units = dict(BIAS_TYPES) if group_column else dict.fromkeys(packaged_groups(), "all")
    for entry in group_values or []:
        group, separator, value = entry.partition("=")
        if not separator or not group or not value:
            raise UsageError(f"benchmark.group_values: {entry!r} is not of the form GROUP=VALUE.")
        units[group] = value
    options = {
        "limit": limit,
        "num_fewshot": num_fewshot,
        "chat_template": chat_template,
        "batch_size": batch_size,
    }
    sign = 1 if higher_is == "more" else -1
    return HarnessTask(task, folder, metric, sign, group_column, units, options, allow_code, threshold)
