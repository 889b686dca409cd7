"""Where figures go. A tracker keeps one run; the parent of a sweep is a run of its own, kept by a second tracker.

MLflow is imported when a run starts, and never with ``tracking=none``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from refbias.errors import RefbiasError
from refbias.provenance import redacted
from refbias.reading import below_zero, benchmarks_of, groups_of, layers_of, several_layers

MOST_METRICS, MOST_PARAMS = 900, 100  # MLflow takes 1,000 entries at once, of which 100 parameters


class Tracker(Protocol):
    """Keeps the figures of one run: ``start``, then ``log`` once, then ``finish`` or ``fail``.

    Every method but ``start`` does nothing before a run has started.
    """

    def start(self, name: str, settings: Mapping[str, Any], parent: str | None = None) -> str | None:
        """Begin a run, below the run ``parent``; return its id."""

    def log(self, data: Mapping[str, Any], folder: Path) -> None:
        """Keep the figures of result.json and the files in ``folder``."""

    def finish(self) -> None:
        """The run is done."""

    def fail(self, reason: str, killed: bool = False) -> None:
        """The run failed, or was stopped by the user."""

    def discard(self) -> None:
        """Forget a run in which nothing happened."""


class Nowhere:
    """The tracker behind ``tracking=none``."""

    def start(self, name: str, settings: Mapping[str, Any], parent: str | None = None) -> str | None:
        return None

    def log(self, data: Mapping[str, Any], folder: Path) -> None:
        return None

    def finish(self) -> None:
        return None

    def fail(self, reason: str, killed: bool = False) -> None:
        return None

    def discard(self) -> None:
        return None


class MLflowTracker:
    """Runs in MLflow. Any trouble with the store becomes a `RefbiasError` that says which store it was."""

    def __init__(self, uri: str, experiment: str) -> None:
        self.uri = uri
        self.experiment = experiment
        self.run_id: str | None = None
        self._client: Any = None
        self._settings: Mapping[str, Any] = {}

    def start(self, name: str, settings: Mapping[str, Any], parent: str | None = None) -> str | None:
        with self._trouble():
            client = self._connect()
            tags = {"mlflow.runName": redacted(name), "mlflow.source.name": "refbias"}
            if parent:
                tags["mlflow.parentRunId"] = parent
            self._settings = redacted(settings)
            self.run_id = client.create_run(self._experiment_id(client), tags=tags).info.run_id
            self._file("settings.json", self._settings)
        return self.run_id

    def log(self, data: Mapping[str, Any], folder: Path) -> None:
        if self.run_id is None:
            return
        with self._trouble():
            slugs = slugs_of(groups_of(data))
            self._batch(figures(data, slugs))
            if slugs:
                self._file("group_slugs.json", {slug: group for group, slug in slugs.items()})
            for file in sorted(folder.rglob("*")):
                inside = file.relative_to(folder)
                if file.is_file() and not inside.parts[0].startswith("."):
                    parent = "" if inside.parent == Path(".") else inside.parent.as_posix()
                    self._client.log_artifact(self.run_id, str(file), parent or None)

    def finish(self) -> None:
        self._end("FINISHED")

    def fail(self, reason: str, killed: bool = False) -> None:
        if self.run_id is not None:
            with self._trouble():
                self._client.set_tag(self.run_id, "mlflow.note.content", reason[:5000])
        self._end("KILLED" if killed else "FAILED")

    def discard(self) -> None:
        if self.run_id is not None:
            with self._trouble():
                self._client.delete_run(self.run_id)
            self.run_id = None

    def _end(self, status: str) -> None:
        if self.run_id is not None:
            with self._trouble():
                if self._settings:
                    self._batch(())
                self._client.set_terminated(self.run_id, status=status)
            self.run_id = None

    def _connect(self) -> Any:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        from mlflow import MlflowClient

        for noisy in ("alembic", "mlflow"):  # after the import, which sets levels of its own
            logging.getLogger(noisy).setLevel(logging.WARNING)
        if self.uri.startswith("sqlite:///"):
            Path(self.uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(self.uri)
        return self._client

    def _experiment_id(self, client: Any) -> str:
        from mlflow.exceptions import MlflowException

        found = client.get_experiment_by_name(self.experiment)
        if found is not None:
            if found.lifecycle_stage == "deleted":
                raise RefbiasError(
                    f"MLflow experiment {self.experiment!r} was deleted in {self.uri}. "
                    f"Restore it (mlflow experiments restore), or choose tracking.experiment=NAME."
                )
            return str(found.experiment_id)
        try:
            return str(client.create_experiment(self.experiment, artifact_location=self._artifacts()))
        except MlflowException:  # another process was quicker
            found = client.get_experiment_by_name(self.experiment)
            if found is None:
                raise
            return str(found.experiment_id)

    def _artifacts(self) -> str | None:
        """Beside a database file; a server says itself where artifacts go."""
        if not self.uri.startswith("sqlite:///"):
            return None
        return (Path(self.uri.removeprefix("sqlite:///")).resolve().parent / "mlartifacts").as_uri()

    def _batch(self, metrics: Iterable[tuple[str, float, int]]) -> None:
        """Parameters and figures in one ``log_batch``; in several where there are more than MLflow takes at once."""
        import time

        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        measured = [Metric(key, value, now, step) for key, value, step in metrics]
        chosen = [Param(key, value) for key, value in list(params(self._settings).items())[:MOST_PARAMS]]
        for first in range(0, max(len(measured), 1), MOST_METRICS):
            self._client.log_batch(
                self.run_id,
                metrics=measured[first : first + MOST_METRICS],
                params=chosen if first == 0 else [],
            )
        self._settings = {}

    def _file(self, name: str, content: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / name
            file.write_text(json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
            self._client.log_artifact(self.run_id, str(file))

    def _trouble(self) -> _Trouble:
        return _Trouble(self.uri)


class _Trouble:
    """Turns what MLflow, its database and the disk raise into one message."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, RefbiasError):
            first = str(error).strip().partition("\n")[0]
            raise RefbiasError(
                redacted(f"MLflow at {self.uri} failed: {type(error).__name__}: {first}. ")
                + "Choose another store with tracking.uri=…, or tracking=none."
            ) from error


def mlflow(*, uri: str | None = None, experiment: str = "refbias") -> MLflowTracker:
    """Figures, parameters and files of every run in MLflow, by default in mlflow.db of the current folder."""
    return MLflowTracker(uri or f"sqlite:///{Path.cwd().resolve() / 'mlflow.db'}", experiment)


def none() -> Nowhere:
    """No tracking: the files of the run folder are all there is."""
    return Nowhere()


TRACKERS = {"mlflow": mlflow, "none": none}


# What is logged -------------------------------------------------------------------------------------------------


def slugs_of(names: Iterable[str]) -> dict[str, str]:
    """Each name as ASCII words joined by underscores, which MLflow takes in a key; no two alike."""
    slugs: dict[str, str] = {}
    for name in names:
        ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        slug = re.sub(r"[^a-z0-9]+", "_", ascii_name).strip("_")[:80]
        if not slug or slug == "mean" or slug in slugs.values():
            slug = f"{slug or 'group'}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        slugs[name] = slug
    return slugs


def slug_of_key(key: str) -> str:
    """The key of a figure in the characters that MLflow takes.

    >>> slug_of_key("d/W3/raw (ddof 1)")
    'd/W3/raw _ddof 1_'
    """
    return re.sub(r"[^A-Za-z0-9_./ -]+", "_", key)


def figures(data: Mapping[str, Any], slugs: Mapping[str, str]) -> Iterator[tuple[str, float, int]]:
    """(key, value, step) of every figure of a result; the step is the index of the checkpoint."""
    several = several_layers(data)

    def suffix(layer: int) -> str:
        return f"/layer_{layer}" if several else ""

    for layer, checkpoints in layers_of(data):
        at = suffix(layer)
        for step, checkpoint in enumerate(checkpoints):
            rows = {f"delta_b/{slugs[row['group']]}{at}": row["delta_b"] for row in checkpoint["groups"]}
            rows[f"delta_b/mean{at}"] = checkpoint["mean_delta_b"]
            rows[f"below_zero{at}"] = len(below_zero(checkpoint))
            yield from ((key, float(value), step) for key, value in rows.items() if value is not None)
            if checkpoint.get("ratio") is not None and checkpoint["mean_delta_b"] is not None:
                yield f"delta_b_at_{checkpoint['ratio']:g}/mean{at}", float(checkpoint["mean_delta_b"]), 0
    for layer, benchmark in benchmarks_of(data):
        at = suffix(layer)
        for figure in ("pearson", "auc", "mae"):
            if benchmark.get(figure) is not None:
                yield f"{figure}/{benchmark['name']}{at}", float(benchmark[figure]), 0
            within = (benchmark.get("within") or {}).get(figure)
            if within is not None:
                yield f"{figure}_within/{benchmark['name']}{at}", float(within), 0
    for key, value in (data.get("figures") or {}).items():
        if value is not None:
            yield slug_of_key(key), float(value), 0
    for name, value in (data.get("timings") or {}).items():
        if isinstance(value, (int, float)):
            yield f"timings/{name}", float(value), 0


def params(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings as short parameters: a part by its name, its options with a dot; long values as their digest."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            inner = dict(value)
            if not prefix and "name" in inner:
                flat[key] = str(inner.pop("name"))
            flat |= params(inner, f"{prefix}{key}.")
        else:
            text = json.dumps(value) if isinstance(value, (list, tuple)) else str(value)
            long = len(text) > 250
            flat[prefix + key] = f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}" if long else text
    return flat
