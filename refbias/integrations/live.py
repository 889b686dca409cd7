"""A model that is being trained: read as it is at this moment, and left exactly as it was."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from refbias.errors import RefbiasError
from refbias.models.base import Loaded, Model
from refbias.models.hf import headless

_numbers = itertools.count(1)


class ModelInTraining(Model):
    """A transformers model in memory, with or without peft around it, whose weights change all the time.

    Nothing that was computed with it holds for long, so its fingerprint is never twice the same, and nothing keeps a
    hold of it. Open it within `undisturbed`.
    """

    kind = "live"

    def __init__(self, model: Any, tokenizer: Any) -> None:
        check_readable(model)
        if hasattr(model, "get_base_model"):  # peft's wrapper; the adapters within it stay active
            model = model.get_base_model()
        self._loaded = Loaded(headless(model), tokenizer, model)
        text = self._loaded.model.config
        self.name = getattr(model, "name_or_path", "") or type(model).__name__
        self.layers, self.dim = int(text.num_hidden_layers), int(text.hidden_size)
        self.fingerprint = f"in training {next(_numbers)}"

    def placement(self, device: str, dtype: str) -> tuple[str, str]:
        whole = self._loaded.whole
        return str(whole.device), str(whole.dtype).removeprefix("torch.")

    @contextmanager
    def open(self, device: str = "cpu", dtype: str = "float32") -> Iterator[Loaded]:
        yield self._loaded

    def _load(self, device: str, dtype: str) -> Loaded:
        return self._loaded


def check_readable(model: Any) -> None:
    """Raise `RefbiasError` for a model whose hidden states one process cannot compute, or would not change."""
    if not hasattr(model, "config") or not hasattr(model, "base_model"):
        raise RefbiasError(f"The shift can be followed for models of transformers: got {type(model).__name__}.")
    if any(hasattr(p, "ds_id") or hasattr(p, "device_mesh") for p in model.parameters()) or any(
        type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()
    ):
        raise RefbiasError(
            "The weights are split over processes (FSDP, DeepSpeed ZeRO-3 or tensor parallelism), and the shift is "
            "measured by the first process alone. Audit saved checkpoints instead: refbias.audit(reference, "
            "[checkpoint folders])."
        )
    active: Any = getattr(model, "active_peft_config", None)
    if getattr(active, "is_prompt_learning", False):
        raise RefbiasError(
            f"peft's {active.peft_type} trains virtual tokens and no weights: the hidden states of a sentence alone "
            f"never change. The shift can be followed for LoRA and its relatives, and for full fine-tuning."
        )


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Within the block ``model`` is in evaluation mode, outside of autocast; afterwards everything is as before.

    Kept are the mode of each module and the states of Python's, numpy's and torch's random generators, on the CPU and
    on the model's devices. Gradients and weights are not touched by reading.
    """
    import torch

    training = [module for module in model.modules() if module.training]
    kind, indices = _accelerators(model)
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (whoever trains may use it)
    try:
        for module in training:  # not model.eval(): that runs code of the model's
            module.training = False
        with torch.random.fork_rng(indices, device_type=kind), torch.autocast(kind, enabled=False):
            yield
    finally:
        for module in training:
            module.training = True
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


def _accelerators(model: Any) -> tuple[str, list[int]]:
    """The kind of accelerator that holds weights, with the numbers of those; ("cpu", []) where none does."""
    devices = {p.device for p in model.parameters() if p.device.type in ("cuda", "xpu")}
    kind = next((device.type for device in devices), "cpu")
    return kind, sorted(device.index or 0 for device in devices)


@contextmanager
def adapters_off(model: Any) -> Iterator[None]:
    """The peft-wrapped ``model`` without its adapters; which parameters learn stays as it was."""
    learning = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        with model.disable_adapter():
            yield
    finally:
        for parameter, learns in learning:
            parameter.requires_grad_(learns)
