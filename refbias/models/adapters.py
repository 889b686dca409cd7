"""What a PEFT adapter does to weights, read from its files: W′ = scale ⊙ (W + L R), computed in float64."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refbias.errors import RefbiasError
from refbias.models.files import read_json, stored_tensors

if TYPE_CHECKING:
    import torch

    from refbias.models.layout import Layout

PREFIX = "base_model.model."
# ways to begin a LoRA that leave the base's weights as they are; others (PiSSA, OLoRA …) subtract from them
PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
# options of LoRA that do more than add B A to a weight
_MORE = ("lora_bias", "layer_replication", "use_qalora", "target_parameters", "alora_invocation_tokens")


@dataclass(frozen=True, eq=False)
class Effect:
    """The change of one weight, in the orientation in which it is stored.

    Attributes
    ----------
    left, right : (out, r) and (r, in), float64: their product is added
    scale : (out, 1) or (1, in), float64, of IA³: multiplies the sum
    magnitude : as ``scale``, of DoRA: the norm that each row or column of the sum gets
    value : takes the place of the base's weight
    """

    left: torch.Tensor | None = None
    right: torch.Tensor | None = None
    scale: torch.Tensor | None = None
    magnitude: torch.Tensor | None = None
    value: torch.Tensor | None = None

    @property
    def nothing(self) -> bool:
        return self.linear and self.left is None

    @property
    def linear(self) -> bool:
        """Whether it only adds ``left`` @ ``right``."""
        return self.scale is None and self.magnitude is None and self.value is None


def scaling(config: Mapping[str, Any], module: str, rank: int) -> float:
    """What multiplies B A of one module: alpha / r, or alpha / √r of rank-stabilised LoRA."""
    patterns = config.get("alpha_pattern") or {}
    found = next((key for key in patterns if re.match(rf"(.*\.)?({key})$", module)), None)
    alpha = config["lora_alpha"] if found is None else patterns[found]
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def is_plain(config: Mapping[str, Any]) -> bool:
    """Whether the adapter's method is LoRA, rsLoRA, DoRA or IA³ without further parts."""
    if config.get("peft_type") == "IA3":
        return True
    begins_plainly = config.get("init_lora_weights", True) in PLAIN_STARTS
    return config.get("peft_type") == "LORA" and begins_plainly and not any(config.get(option) for option in _MORE)


def effects(folder: Path, layout: Layout) -> dict[str, Effect] | None:
    """The change of each weight that the adapter in ``folder`` makes, by the names of ``layout``.

    None where its method is another one than `is_plain` tells, or its files hold something unknown. Raises
    `RefbiasError` where it changes a weight that the model lacks, or one of another shape.
    """
    from safetensors.torch import load_file

    config = read_json(folder / "adapter_config.json")
    if not is_plain(config):
        return None
    found: dict[str, Effect] = {}
    tensors = load_file(folder / "adapter_model.safetensors")
    for key, tensor in tensors.items():
        name = _plain_name(key)
        module, _, kind = name.rpartition(".lora_")
        part = _lora_part(kind, tensor)
        if not module:
            module, _, kind = name.rpartition(".ia3_")
            part = _ia3_part(kind, tensor)
        if not module:
            module, _, kind = name.rpartition(".")
            part = {"value": tensor} if kind in ("weight", "bias") else None
        if part is None:
            return None
        weight = _known(f"{module}.{'bias' if kind == 'bias' else 'weight'}", layout, folder)
        found[weight] = replace(found.get(weight, Effect()), **part)
    return {name: _oriented(name, effect, config, layout, folder) for name, effect in _with_biases(found, layout)}


def saved_vocabulary(folder: Path, layout: Layout) -> int | None:
    """Rows of an embedding that the adapter in ``folder`` holds, where the base has another number."""
    for key, stored in stored_tensors(folder, "adapter_model").items():
        name = layout.find(_plain_name(key))
        if name in layout.vocabulary and stored.shape != layout.shapes[name]:
            return stored.shape[0]
    return None


def _plain_name(key: str) -> str:
    return key.removeprefix(PREFIX).replace(".modules_to_save.", ".").replace(".base_layer.", ".")


def _lora_part(kind: str, tensor: torch.Tensor) -> dict[str, torch.Tensor] | None:
    if kind == "A.weight" and tensor.dim() == 2:
        return {"right": tensor.double()}
    if kind == "B.weight" and tensor.dim() == 2:
        return {"left": tensor.double()}
    if kind == "embedding_A":  # its output is a row of the embedding, so the product is stored transposed
        return {"left": tensor.double().T}
    if kind == "embedding_B":
        return {"right": tensor.double().T}
    if kind in ("magnitude_vector", "magnitude_vector.weight") and tensor.dim() == 1:
        return {"magnitude": tensor.double()[:, None]}
    return None


def _ia3_part(kind: str, tensor: torch.Tensor) -> dict[str, torch.Tensor] | None:
    return {"scale": tensor.double()} if kind == "l" and tensor.dim() == 2 else None


def _known(name: str, layout: Layout, folder: Path) -> str:
    found = layout.find(name)
    if found is None:
        raise RefbiasError(
            f"Adapter {folder} does not fit its base: it changes {name!r}, which the base does not have. "
            f"Look at base_model_name_or_path in its adapter_config.json."
        )
    return found


def _with_biases(found: Mapping[str, Effect], layout: Layout) -> list[tuple[str, Effect]]:
    """The effects, and those on biases: IA³ scales what leaves a module, and so its bias too."""
    biases = {}
    for name, effect in found.items():
        bias = f"{name.removesuffix('weight')}bias"
        if effect.scale is not None and effect.scale.shape[1] == 1 and bias in layout.shapes:
            biases[bias] = Effect(scale=effect.scale)
    return [*found.items(), *biases.items()]


def _oriented(name: str, effect: Effect, config: Mapping[str, Any], layout: Layout, folder: Path) -> Effect:
    """``effect`` with its scaling in ``left``, in the orientation of the weight; checked to fit."""
    left, right, scale, magnitude = effect.left, effect.right, effect.scale, effect.magnitude
    if (left is None) != (right is None) or (magnitude is not None and left is None):
        raise RefbiasError(f"Adapter {folder} is damaged: of its change of {name!r} a part is missing. Fetch it again.")
    if left is not None and right is not None:
        left = left * scaling(config, name.rpartition(".")[0], len(right))
    if name in layout.transposed:
        if left is not None and right is not None:
            left, right = right.T, left.T
        scale = scale.T if scale is not None else None
        magnitude = magnitude.T if magnitude is not None else None
    if name.endswith("bias") and scale is not None:
        scale = scale.flatten()
    made = Effect(left, right, scale, magnitude, effect.value)
    _check_fits(name, made, layout, folder)
    return made


def _check_fits(name: str, effect: Effect, layout: Layout, folder: Path) -> None:
    had = layout.shapes[name]
    shape = had if effect.value is None else tuple(effect.value.shape)
    grown = name in layout.vocabulary and shape[1:] == had[1:]
    changes = [tuple(t.shape) for t in (effect.scale, effect.magnitude) if t is not None]
    if effect.left is not None and effect.right is not None:
        changes.append((effect.left.shape[0], effect.right.shape[1]))
    for change in changes:
        if len(change) != len(shape) or any(n not in (1, wanted) for n, wanted in zip(change, shape, strict=True)):
            shape, grown = change, False
    if shape != had and not grown:
        raise RefbiasError(
            f"Adapter {folder} does not fit its base: it changes {name!r} as if it had shape {shape}, and the base has "
            f"{had}. Look at base_model_name_or_path in its adapter_config.json."
        )
