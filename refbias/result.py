"""The result of a run: what stands in result.json, and the tables and pictures made from it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.errors import RefbiasError
from refbias.reading import layers_of

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = "1"

OBSERVATION_COLUMNS = (
    "checkpoint", "ratio", "group", "b_ref", "b_aud", "delta_b", "ci_low", "ci_high", "p_value", "p_adjusted",
    "bias_score_ref", "bias_score_aud", "delta_bias", "more_biased", "layer",
)  # fmt: skip


def plain(value: Any) -> Any:
    """``value`` as plain JSON: numpy scalars become numbers, NaN and infinity null, keys strings."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(v) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str):
        return value
    return str(value)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it is either the old one or the new one, whatever happens on the way."""
    data = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise RefbiasError(
            f"{path} cannot be written: {error.strerror or error}. What was there before is unchanged. "
            "Free some space or choose another folder."
        ) from error


def as_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def as_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """``rows`` as CSV; a column that a row lacks stays empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: row.get(column) for column in columns} for row in rows)
    return text.getvalue()


@dataclass(frozen=True)
class Tables:
    """The result of a task other than an audit.

    ``data`` is the content of result.json, see `task_data`; ``tables`` says which of its keys hold flat rows, each
    saved as ``KEY.csv``; ``draw`` makes the pictures from ``data``, by file name without ending.
    """

    data: dict[str, Any]
    tables: Sequence[str] = ()
    draw: Callable[[Mapping[str, Any]], Mapping[str, Any]] = field(default=lambda data: {})

    def rows(self, table: str) -> list[dict[str, Any]]:
        return list(self.data[table])

    def to_frame(self, table: str | None = None) -> pandas.DataFrame:
        """One of the tables as a pandas data frame; the first where none is named."""
        import pandas

        return pandas.DataFrame(self.rows(table or self.tables[0]))

    def figures(self) -> Mapping[str, Any]:
        """The pictures as matplotlib figures, by file name without ending."""
        return self.draw(self.data)

    def to_json(self) -> str:
        return as_json(self.data)

    def save(self, folder: str | Path, pictures: bool = True) -> list[Path]:
        """Write result.json, the tables and the pictures into ``folder``; figures come first on the disk."""
        folder = Path(folder)
        written = [folder / "result.json"]
        write_whole(written[0], self.to_json())
        for table in self.tables:
            rows = self.rows(table)
            columns = list(dict.fromkeys(column for row in rows for column in row))
            written.append(folder / f"{table}.csv")
            write_whole(written[-1], as_csv(rows, columns))
        if pictures:
            from refbias.report.figures import save_pictures

            written += save_pictures(self.figures(), folder)
        return written


def task_data(
    task: str,
    settings: Mapping[str, Any],
    seed: int,
    *,
    figures: Mapping[str, float | None],
    conventions: Mapping[str, Any],
    stand_ins: Sequence[Mapping[str, Any]],
    timings: Mapping[str, Any],
    provenance: Mapping[str, Any],
    **blocks: Any,
) -> dict[str, Any]:
    """The content of result.json of a task other than an audit, as plain values.

    ``figures`` are the few that a tracker keeps and a sweep's table shows, the main ones first; ``blocks`` the tables
    and whatever else the task measured.
    """
    none = {"load_s": 0.0, "encode_s": 0.0, "score_s": 0.0, "sentences_encoded": 0, "sentences_from_cache": 0}
    content = {
        "schema_version": SCHEMA_VERSION,
        "task": task,
        "settings": settings,
        "seed": seed,
        **blocks,
        "figures": figures,
        "conventions": conventions,
        "stand_ins": stand_ins,
        "timings": {**none, "tokens": 0, **timings},
        "provenance": provenance,
    }
    made: dict[str, Any] = plain(content)
    return made


@dataclass(frozen=True)
class Result:
    """``data`` is the content of result.json, plain values throughout; `docs/result.md` explains each key."""

    data: dict[str, Any]

    def observations(self) -> list[dict[str, Any]]:
        """One row a checkpoint × group (× layer), with the columns of observations.csv."""
        scores = self.data["benchmark"].get("scores", {})
        rows = []
        for layer, checkpoints in layers_of(self.data):
            for checkpoint in checkpoints:
                measured = scores.get(checkpoint["name"], {})
                for group in checkpoint["groups"]:
                    external = measured.get(group["group"], {})
                    row = {"checkpoint": checkpoint["name"], "ratio": checkpoint["ratio"], "layer": layer}
                    rows.append({c: {**group, **external, **row}.get(c) for c in OBSERVATION_COLUMNS})
        return rows

    def to_frame(self) -> pandas.DataFrame:
        """The observations as a pandas data frame."""
        import pandas

        return pandas.DataFrame(self.observations(), columns=list(OBSERVATION_COLUMNS))

    def figures(self) -> dict[str, Any]:
        """The pictures of this result as matplotlib figures, by file name without ending."""
        from refbias.report.figures import figures

        return figures(self.data, self.observations())

    def plot(self, name: str = "delta_b_by_group") -> Any:
        """One picture as a matplotlib figure; `figures` has them all."""
        made = self.figures()
        if name not in made:
            raise RefbiasError(f"This result has no picture {name!r}. There are: {', '.join(made)}.")
        return made[name]

    def save(self, folder: str | Path, pictures: bool = True) -> list[Path]:
        """Write result.json, observations.csv and the pictures into ``folder``; figures come first on the disk."""
        folder = Path(folder)
        written = [folder / "result.json", folder / "observations.csv"]
        write_whole(written[0], self.to_json())
        write_whole(written[1], self.to_csv())
        if pictures:
            from refbias.report.figures import save_all

            written += save_all(self.data, self.observations(), folder)
        return written

    def to_json(self) -> str:
        return as_json(self.data)

    def to_csv(self) -> str:
        return as_csv(self.observations(), OBSERVATION_COLUMNS)

    @classmethod
    def load(cls, file: str | Path) -> Result:
        """Read a result.json that an earlier run has left."""
        try:
            data = json.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RefbiasError(f"{file} is not a readable result.json: {error}.") from error
        if data.get("schema_version") != SCHEMA_VERSION:
            raise RefbiasError(
                f"{file} has schema_version {data.get('schema_version')!r}: this refbias reads {SCHEMA_VERSION!r}."
            )
        return cls(data)
