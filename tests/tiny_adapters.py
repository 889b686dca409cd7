"""Adapters with random weights on tiny models, as peft saves them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

TARGETS = {"gpt2": ["c_attn", "c_proj", "c_fc"]}
LLAMA_TARGETS = ["q_proj", "v_proj", "down_proj"]


def write_adapter(
    base: Path,
    folder: Path,
    seed: int = 1,
    method: str = "LORA",
    family: str = "llama",
    prepare: Callable[[Any], None] = lambda model: None,
    **options: Any,
) -> Path:
    """An adapter with its weights moved by random numbers; ``prepare`` is given the base before."""
    adapted = adapter_on(base, seed, method, family, prepare, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted.save_pretrained(folder)
    return folder


def adapter_on(
    base: Path,
    seed: int = 1,
    method: str = "LORA",
    family: str = "llama",
    prepare: Callable[[Any], None] = lambda model: None,
    **options: Any,
) -> Any:
    """The model of peft that `write_adapter` saves, its adapter not merged."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    targets = TARGETS.get(family, LLAMA_TARGETS)
    standard: dict[str, Any] = {"target_modules": targets}
    if method == "LORA":
        standard |= {"r": 2, "lora_alpha": 4}
    if method == "IA3":
        standard["feedforward_modules"] = [targets[-1]]
    config = peft.PEFT_TYPE_TO_CONFIG_MAPPING[method](**{**standard, **options})
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    prepare(model)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        adapted = peft.get_peft_model(model, config).eval()
        with torch.no_grad():
            for weight in adapted.parameters():
                if weight.requires_grad:
                    weight.add_(0.2 * torch.randn_like(weight))
    return adapted
