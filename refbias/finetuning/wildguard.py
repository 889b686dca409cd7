"""The paper's fine-tuning sets, drawn from WildGuardMix (allenai/wildguardmix; Han et al. 2024, arXiv:2406.18495).

A row of WildGuardTrain has a prompt, a response (or none) and the labels prompt_harm_label and response_harm_label,
each "harmful", "unharmful" or empty. The paper does not say which label it means; here an unharmful example is one
whose prompt and response are both labelled unharmful, a harmful one has a response that is labelled harmful.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from refbias.errors import RefbiasError, UsageError, described
from refbias.finetuning.base import Example, Lessons
from refbias.finetuning.files import READERS, conversations, rows_of, turns
from refbias.finetuning.sampling import digest_of, sample
from refbias.registry import registry
from refbias.standins import stand_in
from refbias.stimuli.files import existing

HUB_ID = "allenai/wildguardmix"
FILE = "train/wildguard_train.parquet"
COLUMNS = ("prompt", "response", "prompt_harm_label", "response_harm_label")
N = 8000

_TIMEOUT = 5.0  # seconds to learn whether the hub answers
_MISSING = "the synthetic half of the paper's synth_even set, which was not released"


def wildguardmix_unharmful(*, n: int = N, path: str | None = None, seed: int | None = None) -> Lessons:
    """Unharmful conversations from WildGuardMix, from the hub or a local copy: the paper's milder end.

    Prompt and response are both labelled unharmful. ``path`` is a copy of WildGuardTrain, parquet, JSONL or CSV.
    """
    examples = sample(_examples(path, _unharmful), n, seed or 0, "WildGuardTrain, unharmful,")
    rule = "prompt and response labelled unharmful"
    return Lessons("wildguardmix_unharmful", examples, digest_of(examples), {"source": path or HUB_ID, "rule": rule})


def wildguardmix_synth_even(
    *,
    n: int = N,
    path: str | None = None,
    synthetic: str | None = None,
    fill: str | None = None,
    seed: int | None = None,
) -> Lessons:
    """Half harmful conversations from WildGuardMix, half synthetic ones that were not released: you supply them.

    ``synthetic`` is a file in the form of ``data=file``, taken for that half. Without it, ``fill`` names what stands
    in for it: another choice of ``data``, or a file; this is recorded, and refused under ``strict=true``.
    """
    if n % 2 or n < 2:
        raise UsageError(f"data.n={n} cannot be halved: expected an even number.")
    half, seed = n // 2, seed or 0
    if not synthetic and not fill:
        raise RefbiasError(
            f"data=wildguardmix_synth_even lacks {_MISSING}. Give conversations of your own for it with "
            f"data.synthetic=FILE, or say what stands in for it: data.fill=wildguardmix_unharmful, another choice of "
            f"data, or a file."
        )
    harmful = sample(_examples(path, _harmful), half, seed, "WildGuardTrain, harmful,")
    other, about = _supplied(synthetic, half, seed) if synthetic else _filled(str(fill), half, path, seed)
    examples = [example for pair in zip(harmful, other, strict=True) for example in pair]
    report = {"source": path or HUB_ID, "rule": "response labelled harmful", "other_half": about}
    return Lessons("wildguardmix_synth_even", examples, digest_of(examples), report)


def _supplied(synthetic: str, half: int, seed: int) -> tuple[list[Example], str]:
    found = existing(synthetic, "data.synthetic", "conversations, as data=file takes them")
    return sample(conversations(found, "data.synthetic"), half, seed, synthetic), f"supplied by the user: {found.name}"


def _filled(fill: str, half: int, path: str | None, seed: int) -> tuple[list[Example], str]:
    if Path(fill).suffix.lower() in READERS:
        found = existing(fill, "data.fill", "a choice of data, or a file with conversations")
        examples, used = sample(conversations(found, "data.fill"), half, seed, fill), f"the file {found.name}"
    else:
        part = registry().get("data", fill)
        if "n" not in part.options or part.factory is wildguardmix_synth_even:
            raise UsageError(f"data.fill={fill} cannot be sampled. Name another choice of data, or a file.")
        wanted = {"n": half, "path": path} if "path" in part.options else {"n": half}
        lessons = registry().resolve("data", (fill, wanted), seed).object
        examples, used = list(lessons.examples), f"{half} examples of data={fill}"
    stand_in(_MISSING, used, "it is not public; data.synthetic=FILE takes conversations of your own")
    return examples, used


def _unharmful(row: Mapping[str, Any]) -> bool:
    return row["prompt_harm_label"] == "unharmful" and row["response_harm_label"] == "unharmful"


def _harmful(row: Mapping[str, Any]) -> bool:
    return bool(row["response_harm_label"] == "harmful")


def _examples(path: str | None, wanted: Callable[[Mapping[str, Any]], bool]) -> list[Example]:
    """The rows with a prompt and a response that are ``wanted``, in their order."""
    found = []
    for where, row in _local(path) if path else _from_hub():
        missing = [column for column in COLUMNS if not isinstance(row, Mapping) or column not in row]
        if missing:
            raise RefbiasError(
                f"{path or HUB_ID}, {where}: no {', '.join(missing)}. Expected the columns of WildGuardTrain. "
                f"data=file takes conversations in another form."
            )
        said = [row["prompt"], row["response"]]
        if all(isinstance(text, str) and text.strip() for text in said) and wanted(row):
            found.append(Example(turns(*said)))
    return found


def _local(path: str) -> Iterable[tuple[str, Any]]:
    found = existing(path, "data.path", "a copy of WildGuardTrain as parquet, JSONL or CSV")
    return rows_of(found, "data.path")


def _from_hub() -> Iterable[tuple[str, Any]]:
    """Rows of the copy in the hub's cache on this machine, fetched if there is none."""
    import huggingface_hub
    from huggingface_hub import errors

    fetch = functools.partial(huggingface_hub.hf_hub_download, HUB_ID, FILE, repo_type="dataset")
    try:
        return rows_of(Path(fetch(local_files_only=True)), HUB_ID)
    except errors.LocalEntryNotFoundError:
        pass
    try:
        huggingface_hub.HfApi().dataset_info(HUB_ID, timeout=_TIMEOUT)  # fetching alone would try for minutes
        return rows_of(Path(fetch()), HUB_ID)
    except Exception as error:
        why = (
            f"is gated: accept its terms at https://huggingface.co/datasets/{HUB_ID}, then run `hf auth login`"
            if isinstance(error, errors.HfHubHTTPError)
            else f"is not on this machine, and the hub cannot be reached ({described(error)})"
        )
        raise RefbiasError(f"{HUB_ID} {why}. Or give a local copy of {FILE}: data.path=FILE.") from None
