"""What the adapter of a checkpoint changes and writes, read from its factors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.adapters import output_directions, thin_svd
from refbias.checkpoints.merging import lora_change
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from refbias.models import DerivedModel, Model
from refbias.models.hf import AdapterModel
from refbias.types import Array

if TYPE_CHECKING:
    from refbias.cache import Cache
    from refbias.models import Loaded

Factors = Mapping[str, tuple[Array, Array]]  # weight -> (left, right): ΔW = left @ right, in its stored orientation

# modules whose output is added to the residual stream, by the last word of their name
WRITERS = ("o_proj", "down_proj", "c_proj", "out_proj", "fc2", "dense", "dense_4h_to_h")

_OTHERWISE = "Give an adapter folder, or use geometry=relative or absolute, which take any model."
_PLACE = re.compile(r"(?:[^.]+\.)*?(\d+)\.(.+)\.weight")


@dataclass(frozen=True)
class Place:
    """A weight by its block, counted from 0, and the module within it: (14, "mlp.down_proj")."""

    block: int
    module: str

    @property
    def writes(self) -> bool:
        return self.module.rpartition(".")[2] in WRITERS


def place(weight: str) -> Place | None:
    """Where a weight stands; None outside of the blocks.

    >>> place("model.layers.14.mlp.down_proj.weight")
    Place(block=14, module='mlp.down_proj')
    """
    found = _PLACE.fullmatch(weight)
    return Place(int(found[1]), found[2]) if found else None


def factors_of(model: Model, cache: Cache) -> Factors:
    """Each weight that ``model`` changes against its base, with the factors of the change, in float64.

    Those of a merge have the ranks of its parts added up. Raises `UsageError` where ``model`` is neither a plain LoRA
    adapter nor a merge of some.
    """
    parts = model.changes if isinstance(model, DerivedModel) else None
    if isinstance(model, AdapterModel):
        try:
            parts = [(1.0, lora_change(model.folder, cache))]
        except RefbiasError as error:
            raise UsageError(f"Adapter space needs plain LoRA, and {model.name} is more. {_OTHERWISE}") from error
    if parts is None:
        raise UsageError(
            f"Adapter space needs LoRA: {model.name} is neither a LoRA adapter nor a merge of some ({model.kind}). "
            f"{_OTHERWISE}"
        )
    read = [(coefficient, change.read()) for coefficient, change in parts]
    found = {}
    for name in dict.fromkeys(name for _, change in read for name in change):
        some = [(coefficient, *change[name]) for coefficient, change in read if name in change]
        left = np.hstack([coefficient * left.numpy() for coefficient, left, _ in some])
        found[name] = left, np.vstack([right.numpy() for _, _, right in some])
    return found


def base_of(model: Model) -> Model:
    """The model that an adapter or a merge of adapters changes; merges may be set in the weights of one of them."""
    while isinstance(model, (AdapterModel, DerivedModel)):
        model = model.base
    return model


@dataclass(frozen=True)
class Structure:
    """What must be known of a base beside its adapters.

    ``transposed`` are weights of shape (in, out); ``after`` is what an output passes through before it is added to the
    residual stream, where it passes through anything; ``final`` is what the final norm makes of a change.
    """

    transposed: frozenset[str]
    after: Mapping[str, Callable[[Array], Array]]
    final: Callable[[Array], Array]


def structure(loaded: Loaded, model: Model) -> Structure:
    """The structure of a loaded decoder. Raises `RefbiasError` where it is not understood."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    names = {module: name for name, module in loaded.whole.named_modules()}
    transposed = {f"{name}.weight" for module, name in names.items() if isinstance(module, Conv1D)}
    for holder in loaded.model.modules():
        blocks = next((c for c in holder.children() if isinstance(c, nn.ModuleList) and len(c) == model.layers), None)
        if blocks is None:
            continue
        norms = [c for c in holder.children() if getattr(getattr(c, "weight", None), "shape", None) == (model.dim,)]
        if len(norms) != 1:
            break
        after = {}
        for block in blocks:
            of_mlp = getattr(block, "post_feedforward_layernorm", None)  # Gemma 2 and 3: outputs are normed
            for module in block.modules() if of_mlp is not None else ():
                name = f"{names[module]}.weight"
                here = place(name)
                if here is not None and here.writes:
                    norm = block.post_attention_layernorm if "attn" in here.module else of_mlp
                    after[name] = through_norm(norm, model.dim)
        return Structure(frozenset(transposed), after, through_norm(norms[0], model.dim))
    raise RefbiasError(
        f"geometry=adapter knows decoders with one list of blocks and one norm behind it: {base_of(model).name} is "
        f"built otherwise. Use geometry=relative."
    )


def through_norm(norm: Any, dim: int) -> Callable[[Array], Array]:
    """What an RMS norm or a layer norm makes of small changes (dim, n) of its input.

    That is its gain in each dimension, after taking the mean out where it does. Left out are the common factor and
    the part of a change along the input itself, which depend on the input.
    """
    import torch

    weight = norm.weight
    signs = torch.ones(dim, dtype=weight.dtype, device=weight.device)
    signs[1::2] = -1
    with torch.inference_mode():
        plus, minus, moved = (norm(x.view(1, 1, dim)).view(dim).double().cpu() for x in (signs, -signs, signs + 1))
    gain = ((plus - minus) / 2 * signs.double().cpu()).numpy()
    centres = bool(torch.allclose(moved, plus, rtol=0.05, atol=0.05 * float(plus.abs().max())))

    def through(changes: Array) -> Array:
        if centres:
            changes = changes - changes.mean(axis=0)
        return changes * gain[:, None]

    return through


class Directions:
    """The output directions of the adapters of an audit's checkpoints, for ``geometry=adapter``.

    Parameters
    ----------
    reference : an audited model with the same weights has changed nothing
    site : of the encoder, "post_norm" or "pre_norm"
    """

    def __init__(self, reference: Model, site: str, context: Context) -> None:
        self._reference, self._site, self._context = reference, site, context
        self._structures: dict[str, Structure] = {}

    def check(self, model: Model, layer: int) -> None:
        """Raise where ``model`` has no adapter, or none that writes into ``layer``. Loads no model."""
        if self._is_untouched(model):
            return
        if not any(_writes_into(name, layer) for name in factors_of(model, self._context.cache)):
            raise UsageError(
                f"geometry=adapter: the adapter of {model.name} changes no module that writes into layer {layer} "
                f"({', '.join(WRITERS)} of the blocks below it). Use a higher layer, or geometry=relative."
            )

    def of(self, model: Model, layer: int) -> Array:
        """Directions (n, d) of ``model`` at ``layer``, orthonormal, the strongest first.

        They are what its adapters write in all blocks below, taken together. At the last layer after its norm they
        are what that norm makes of them.
        """
        if self._is_untouched(model):
            return np.eye(model.dim)
        known = self._structure(model)
        blocks = []
        for name, (left, right) in factors_of(model, self._context.cache).items():
            if not _writes_into(name, layer):
                continue
            change = thin_svd(left, right)
            change = change.transposed if name in known.transposed else change
            if change.rank:
                blocks.append(known.after.get(name, _as_it_is)(change.left * change.values))
        if not blocks:  # an adapter that was never trained
            return np.eye(model.dim)
        if layer == model.layers and self._site == "post_norm":
            blocks = [known.final(block) for block in blocks]
        return output_directions(blocks)

    def _is_untouched(self, model: Model) -> bool:
        return model.fingerprint == self._reference.fingerprint

    def _structure(self, model: Model) -> Structure:
        base = base_of(model)
        if base.fingerprint not in self._structures:
            with base.open(self._context.device, self._context.dtype) as loaded:
                self._structures[base.fingerprint] = structure(loaded, base)
        return self._structures[base.fingerprint]


def _writes_into(weight: str, layer: int) -> bool:
    """Whether the weight writes into ``layer``, which is what blocks 0 to ``layer`` − 1 have added up to."""
    here = place(weight)
    return here is not None and here.writes and here.block < layer


def _as_it_is(changes: Array) -> Array:
    return changes
