"""Sequence classifiers as judges: the probability of the class that means toxic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refbias.answers import Pair, Verdict
from refbias.cache import Cache
from refbias.errors import RefbiasError, UsageError
from refbias.judges.thresholds import EMPTY, check_threshold, verdict
from refbias.models import Loaded, find_model
from refbias.models.base import combined
from refbias.models.files import read_json
from refbias.models.hf import FolderModel, headless, load_tokenizer, load_weights

if TYPE_CHECKING:
    from refbias.context import Context

MODEL = "tomh/toxigen_roberta"

# names that models give to the class that is looked for, without spaces and punctuation
_TOXIC = ("toxic", "toxicity", "hate", "hateful", "hatespeech", "offensive", "harmful", "abusive", "unsafe")


def toxigen_roberta(
    pairs: Sequence[Pair],
    context: Context,
    *,
    model: str = MODEL,
    index: int | None = None,
    threshold: float = 0.5,
    batch: int = 32,
) -> list[Verdict]:
    """Toxic by a sequence classifier: 1 from the threshold on; the probability of the class is kept in detail.

    ``model`` is a folder or hub id with safetensors weights. ``index`` of the class that means toxic: None takes the
    one that config.json names so, or the second of two classes without names. Texts are cut off at the length that the
    model was made for. Only the answer is read; an empty one gets no verdict.
    """
    check_threshold(threshold)
    if batch < 1:
        raise UsageError(f"judge.batch={batch}: expected at least 1.")
    found = find_classifier(model, context)
    toxic = toxic_class(found.name, found.config, index)
    asked = [i for i, pair in enumerate(pairs) if pair.text.strip()]
    verdicts = [EMPTY] * len(pairs)
    if asked:
        with found.open(context.device, context.dtype) as loaded:
            shares = probabilities(loaded, [pairs[i].text for i in asked], toxic.index, batch)
        for i, probability in zip(asked, shares, strict=True):
            verdicts[i] = verdict(probability, threshold, "toxic")
    return verdicts


@dataclass(frozen=True)
class ToxicClass:
    """Which output of a classifier means toxic, and how that is known."""

    index: int
    known_by: str


def toxic_class(name: str, config: Mapping[str, Any], index: int | None) -> ToxicClass:
    """The class of the classifier ``name`` that means toxic, by the names in its configuration or by ``index``.

    Raises `UsageError` for an index that is out of range or contradicts the names, and where neither tells.
    """
    labels = _labels(name, config)
    if index is not None and index not in labels:
        raise UsageError(f"judge.index={index}: {name} has the classes 0 to {len(labels) - 1} ({_listed(labels)}).")
    named = [i for i, label in labels.items() if re.sub(r"[\W_]", "", label.lower()) in _TOXIC]
    if len(named) == 1:
        if index not in (None, named[0]):
            raise UsageError(
                f"judge.index={index} is the class {labels[index or 0]!r} of {name}; the one named "
                f"{labels[named[0]]!r} is {named[0]}. Leave judge.index out, or mend id2label in its config.json."
            )
        return ToxicClass(named[0], f"config.json calls it {labels[named[0]]!r}")
    if index is not None:
        return ToxicClass(index, "judge.index")
    if not named and len(labels) == 2 and all(re.fullmatch(r"LABEL_\d+", label) for label in labels.values()):
        return ToxicClass(1, "assumed: the second of two classes without names, as in ToxiGen's classifiers")
    raise UsageError(
        f"Which class of {name} means toxic? Its config.json has {_listed(labels)}. Give it: judge.index=NUMBER."
    )


def _labels(name: str, config: Mapping[str, Any]) -> dict[int, str]:
    """Name of every class by its index."""
    given = config.get("id2label")
    if not given:
        given = {i: f"LABEL_{i}" for i in range(int(config.get("num_labels") or 2))}
    try:
        labels = {int(key): str(label) for key, label in given.items()}
    except (ValueError, AttributeError):
        labels = {}
    if sorted(labels) != list(range(len(labels))) or len(labels) < 2:
        raise RefbiasError(
            f"{name}: id2label in its config.json is no list of two or more classes, numbered from 0. Give a "
            f"sequence classifier."
        )
    return dict(sorted(labels.items()))


def _listed(labels: Mapping[int, str]) -> str:
    return ", ".join(f"{i}: {label!r}" for i, label in labels.items())


def probabilities(loaded: Loaded, texts: Sequence[str], index: int, batch: int) -> list[float]:
    """Probability of class ``index`` for every text, texts of like length together, longest first."""
    import torch

    limit = _limit(loaded)
    ids = loaded.tokenizer(list(texts), truncation=limit is not None, max_length=limit)["input_ids"]
    order = sorted(range(len(texts)), key=lambda i: -len(ids[i]))
    found = [0.0] * len(texts)
    with torch.inference_mode():
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            padded = loaded.tokenizer.pad({"input_ids": [ids[i] for i in some]}, return_tensors="pt")
            logits = loaded.whole(**padded.to(loaded.whole.device)).logits.float()
            for i, value in zip(some, _shares(loaded, logits)[:, index].tolist(), strict=True):
                found[i] = value
    return found


def _shares(loaded: Loaded, logits: Any) -> Any:
    """Classes that exclude each other share 1; of several labels at once each has a probability of its own."""
    if loaded.whole.config.problem_type == "multi_label_classification":
        return logits.sigmoid()
    return logits.softmax(dim=-1)


def _limit(loaded: Loaded) -> int | None:
    """The longest input that the model was made for, in tokens."""
    limits = [loaded.tokenizer.model_max_length, getattr(loaded.whole.config, "max_position_embeddings", None)]
    table: Any = getattr(getattr(loaded.model, "embeddings", None), "position_embeddings", None)
    if getattr(table, "padding_idx", None) is not None:  # RoBERTa's positions begin behind that of the padding
        limits.append(table.num_embeddings - table.padding_idx - 1)
    return min((int(limit) for limit in limits if limit is not None and 0 < limit < 10**9), default=None)


class ClassifierModel(FolderModel):
    """A folder of a model with a classification head."""

    kind = "classifier"

    def __init__(self, name: str, folder: Path, cache: Cache, notes: tuple[str, ...] = ()) -> None:
        super().__init__(name, folder, cache, notes)
        self.fingerprint = combined("classifier", self.fingerprint)
        self.config = read_json(folder / "config.json")

    def _load(self, device: str, dtype: str) -> Loaded:
        """Load the folder from safetensors; no code of it runs."""
        import transformers

        loader = transformers.AutoModelForSequenceClassification
        failure = f"{self.name} cannot be loaded as a sequence classifier"
        whole, missing = load_weights(loader, self.folder, device, dtype, failure)
        if missing:
            raise RefbiasError(
                f"{self.name} is no trained sequence classifier: its files lack {len(missing)} weights, first "
                f"{missing[0]!r}. Give a model with a classification head."
            )
        self.check_files()
        tokenizer = load_tokenizer(self.name, self.folder)
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        if whole.config.pad_token_id is None:
            whole.config.pad_token_id = tokenizer.pad_token_id
        return Loaded(headless(whole), tokenizer, whole)


def find_classifier(model: str, context: Context) -> ClassifierModel:
    """The classifier that ``model`` means; its weights are not loaded yet."""
    found = find_model(model, cache=context.cache, watch=context.watch)
    if type(found) is not FolderModel:
        raise UsageError(f"judge.model={model} is no folder of a sequence classifier ({found.kind}).")
    return ClassifierModel(found.name, found.folder, context.cache, found.notes)


def about(
    context: Context, *, model: str = MODEL, index: int | None = None, threshold: float = 0.5, batch: int = 32
) -> dict[str, Any]:
    """Which weights judge, and which of their classes."""
    found = find_classifier(model, context)
    toxic = toxic_class(found.name, found.config, index)
    return {
        "model": found.name,
        "fingerprint": found.fingerprint,
        "dtype": context.dtype,
        "index": toxic.index,
        "index_known_by": toxic.known_by,
    }
