"""Weighted sums of weight changes, exact in ΔW: formed in float64, rounded once, set in place and undone."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.models.adapters import PREFIX, is_plain, scaling
from refbias.models.base import DerivedModel, Model, combined, set_weights
from refbias.models.files import file_digest, read_json, stored_tensors
from refbias.models.weights import rounded

if TYPE_CHECKING:
    import torch

    Change = Mapping[str, tuple[torch.Tensor, torch.Tensor]]  # weight -> (left, right): ΔW = left @ right, float64

_FACTORS = (".lora_A.weight", ".lora_B.weight")


@dataclass(frozen=True)
class LowRank:
    """A change of some weights by products of two thin matrices, known by its digest and read when needed."""

    digest: str
    read: Callable[[], Change]


def lora_change(folder: Path, cache: Cache) -> LowRank:
    """The change that a plain LoRA adapter folder makes: ΔW = s · B A (transposed for Conv1D).

    The scaling s is alpha / r, or alpha / √r of rank-stabilised LoRA. Raises `RefbiasError` for an adapter that does
    more than add such products.
    """
    weights = folder / "adapter_model.safetensors"
    config = read_json(folder / "adapter_config.json")
    others = [name for name in stored_tensors(folder, "adapter_model") if not name.endswith(_FACTORS)]
    if others or config.get("use_dora") or not is_plain(config):
        raise RefbiasError(
            f"Adapter {folder} is no plain LoRA{f': it holds {others[0]!r}' if others else ''}, so its change is no "
            f"product of two thin matrices. Merge it into its base with task=merge first."
        )
    scale = config["lora_alpha"] / config["r"]
    transposed = bool(config["fan_in_fan_out"])
    special = {key: config[key] for key in ("use_rslora", "alpha_pattern", "rank_pattern") if config.get(key)}
    more = [json.dumps(special, sort_keys=True)] if special else []
    digest = combined(file_digest(weights, cache), repr(scale), repr(transposed), *more)
    return LowRank(digest, functools.partial(_read_lora, weights, config, transposed))


def _read_lora(weights: Path, config: Mapping[str, Any], transposed: bool) -> Change:
    from safetensors.torch import load_file

    tensors = load_file(weights)
    change = {}
    for key, a in tensors.items():
        if key.endswith(_FACTORS[0]):
            module = key.removeprefix(PREFIX).removesuffix(_FACTORS[0])
            b = tensors[key.replace(".lora_A.", ".lora_B.")].double() * scaling(config, module, len(a))
            change[f"{module}.weight"] = (a.double().T, b.T) if transposed else (b, a.double())
    return change


def merged(
    base: Model, name: str, parts: Sequence[tuple[float, LowRank]], shared_below: int, notes: tuple[str, ...] = ()
) -> Model:
    """``base`` with Σ coefficient · change added to its weights; ``base`` itself where every coefficient is 0.

    Nothing is written: the sum is set in place in the loaded base whenever the model is opened.
    """
    parts = [(coefficient, change) for coefficient, change in parts if coefficient != 0]
    if not parts:
        return base
    recipe = [f"{coefficient!r} {change.digest}" for coefficient, change in parts]
    return DerivedModel(
        base,
        name,
        combined("merge", base.fingerprint, *recipe),
        functools.partial(_apply, parts=parts),
        shared_below,
        notes,
        changes=parts,
    )


def _apply(module: torch.nn.Module, parts: Sequence[tuple[float, LowRank]]) -> Callable[[], None]:
    return set_weights(module, summed(module, parts))


def summed(module: torch.nn.Module, parts: Sequence[tuple[float, LowRank]]) -> dict[str, torch.Tensor]:
    """W + Σ coefficient · left @ right for every weight that changes, computed in float64 and rounded once."""
    import torch

    changes = [(coefficient, change.read()) for coefficient, change in parts]
    parameters = dict(module.named_parameters())
    names = list(dict.fromkeys(name for _, change in changes for name in change))
    missing = [name for name in names if name not in parameters]
    if missing:
        raise RefbiasError(f"The change does not fit the model: it has no weight {missing[0]!r}.")
    sums = {}
    for name in names:
        some = [(coefficient * change[name][0], change[name][1]) for coefficient, change in changes if name in change]
        # one product of the stacked factors: rank 2r, as in a concatenated adapter
        left = torch.cat([left for left, _ in some], dim=1)
        right = torch.cat([right for _, right in some], dim=0)
        weight = parameters[name].detach()
        sums[name] = rounded(torch.addmm(weight.cpu().double(), left, right), weight.dtype)
    return sums
