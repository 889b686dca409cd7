"""A text data set of the hub, or a local one, through the `datasets` library."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from refbias.cache import open_cache
from refbias.corpora.base import Corpus
from refbias.corpora.files import text_corpus
from refbias.corpora.sentences import FORMAT, Form, Limits
from refbias.errors import RefbiasError, UsageError
from refbias.models.base import combined
from refbias.stimuli import hub as asking

FETCH_S = 600.0  # until all is here, once the hub has answered

_TEXT = "text.txt"
_ABOUT = "about.json"


def hub(
    *,
    dataset: str,
    config: str | None = None,
    split: str = "train",
    field: str = "text",
    form: Form = "auto",
    min_tokens: int = 7,
    max_tokens: int = 75,
    most: int = 200_000,
    n: int = 6000,
    seed: int | None = None,
) -> Corpus:
    """A text data set of the hub or a local folder: ``corpus.dataset``, its config, split and text field.

    The first ``most`` rows are taken, evenly from the split's files, and kept in the cache folder; further options are
    those of corpus=file. Raises `RefbiasError` where the hub does not answer within seconds.
    """
    limits = Limits(min_tokens, max_tokens, most, n, seed or 0)
    local = Path(dataset).expanduser()
    if local.is_file():
        raise UsageError(
            f"corpus.dataset={dataset} is a file. Name its folder, or use corpus=file corpus.path={dataset}."
        )
    wanted = {"dataset": dataset, "config": config, "split": split, "field": field, "count": most}
    state = "hub"
    if local.is_dir():
        wanted["dataset"] = str(local.resolve())
        state = str(sorted((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in local.rglob("*") if p.is_file()))
    cache = open_cache(True)
    folder = cache.build_folder(
        f"corpus-{combined(FORMAT, state, json.dumps(wanted))[:16]}",
        lambda making: _fetch(wanted, making, from_hub=state == "hub"),
    )
    about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
    notes = (f"data set {dataset}, config {config}, split {split}, field {field}, {about['revision']}",)
    made = text_corpus(f"hub:{dataset}", folder / _TEXT, form, limits, notes)

    def read() -> Iterator[str]:
        _ = cache  # as long as this may be read, the folder is in use and is not pruned
        return made.read()

    return replace(made, read=read)


def _fetch(wanted: dict[str, Any], making: Path, from_hub: bool) -> None:
    dataset = wanted["dataset"]
    try:
        revision = "of a local folder"
        if from_hub:
            switched_off = [name for name in asking.OFFLINE if asking.is_set(name)]
            if switched_off:
                raise asking.UnreachableError(f"{switched_off[0]}={os.environ[switched_off[0]]} forbids to try the hub")
            greeting = _command("greet", {"dataset": dataset})
            revision = f"revision {asking.ask(greeting, asking.CONNECT_S, 'the hub did not answer').strip()}"
            print(f"fetching {dataset} from the hub, for {FETCH_S:g} s at most", file=sys.stderr)
        arguments = {**wanted, "target": str(making / _TEXT)}
        asking.ask(_command("fetch", arguments), FETCH_S, "its rows did not come")
    except asking.UnreachableError as why:
        raise RefbiasError(
            f"corpus=hub corpus.dataset={dataset} cannot be read: {why}. Check corpus.dataset, corpus.config, "
            f"corpus.split and corpus.field, or name a copy: corpus.dataset=FOLDER, or corpus=file corpus.path=FILE."
        ) from None
    (making / _ABOUT).write_text(json.dumps({**wanted, "revision": revision}), encoding="utf-8")


def _command(step: str, arguments: dict[str, Any]) -> list[str]:
    return [sys.executable, "-m", "refbias.corpora.fetch", step, json.dumps(arguments)]
