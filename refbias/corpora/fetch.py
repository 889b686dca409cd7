"""What `refbias.corpora.hub` runs in a process of its own: asking the hub, and writing rows of a data set to a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from refbias.stimuli.hub import CONNECT_S


def greet(dataset: str) -> str:
    """Revision of a data set. Raises where the hub does not answer at once."""
    import huggingface_hub

    return str(huggingface_hub.HfApi().dataset_info(dataset, timeout=CONNECT_S).sha)


def rows(dataset: str, config: str | None, split: str, count: int) -> Iterator[Mapping[str, Any]]:
    """About ``count`` rows, evenly from the beginning of each file of the split."""
    import datasets

    found = datasets.load_dataset(dataset, config, split=split, streaming=True)
    files = max(1, found.num_shards)
    for i in range(files):
        yield from islice(found.shard(num_shards=files, index=i), -(-count // files))


def fetch(dataset: str, config: str | None, split: str, field: str, count: int, target: str) -> None:
    """Write the texts of the rows to the file ``target``, a line or more each."""
    with Path(target).open("w", encoding="utf-8") as file:
        for row in rows(dataset, config, split, count):
            if field not in row:
                raise LookupError(f"no field {field!r} in its rows: they have {', '.join(row)}")
            if isinstance(row[field], str):
                file.write(f"{row[field].rstrip()}\n")


STEPS: Mapping[str, Callable[..., str | None]] = {"greet": greet, "fetch": fetch}


def main(step: str, arguments: str) -> None:
    try:
        print(STEPS[step](**json.loads(arguments)))
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    sys.stdout.flush()
    os._exit(0)  # threads of the download library may still run


if __name__ == "__main__":
    main(*sys.argv[1:])
