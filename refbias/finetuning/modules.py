"""Which linear modules of a model get an adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from refbias.encoders.hf import find_blocks
from refbias.errors import RefbiasError, UsageError
from refbias.finetuning.base import PROJECTIONS
from refbias.models.base import Loaded


def depth(loaded: Loaded) -> int:
    """Number of transformer blocks."""
    config = loaded.model.config
    return int(getattr(config, "get_text_config", lambda: config)().num_hidden_layers)


def linear_modules(loaded: Loaded, first_block: int) -> dict[str, bool]:
    """Linear modules of the blocks from ``first_block`` on: name in the causal model -> weight is (in, out)."""
    import torch
    from transformers.pytorch_utils import Conv1D

    blocks = set(find_blocks(loaded.model, depth(loaded))[first_block:])
    found = {}
    for prefix, block in loaded.causal.named_modules():
        if block in blocks:
            for name, module in block.named_modules():
                if isinstance(module, (torch.nn.Linear, Conv1D)):
                    found[f"{prefix}.{name}"] = isinstance(module, Conv1D)
    return found


def shortest_names(loaded: Loaded, chosen: Mapping[str, bool]) -> list[str]:
    """What peft is told: the last words of the names where they mean no other module, else the whole names."""
    last = {name.rpartition(".")[2] for name in chosen}
    meant = {name for name, _ in loaded.causal.named_modules() if name.rpartition(".")[2] in last}
    return sorted(last if meant == set(chosen) else chosen)


def chosen_modules(loaded: Loaded, wanted: Sequence[str], first_block: int) -> dict[str, bool]:
    """The linear modules that are called as ``wanted`` says, as `linear_modules` gives them.

    The paper's seven projections are every linear module of a block of the Llama, Mistral and Gemma families. A family
    that names its own otherwise (GPT-2: c_attn, c_proj, c_fc) gets adapters on every linear module too. Raises
    `UsageError` where a name that the user chose is not found.
    """
    every = linear_modules(loaded, first_block)
    names = list(dict.fromkeys(name.rpartition(".")[2] for name in every))
    if not names:
        raise RefbiasError(
            f"No linear module is found in the blocks of {type(loaded.causal).__name__}, so it cannot get an adapter. "
            f"Use regime=full."
        )
    missing = [name for name in wanted if name not in names]
    if missing and tuple(wanted) == PROJECTIONS:
        return every
    if missing:
        raise UsageError(
            f"regime.modules names {', '.join(missing)}. The linear modules of a block of this "
            f"{loaded.model.config.model_type} model are {', '.join(names)}."
        )
    return {name: transposed for name, transposed in every.items() if name.rpartition(".")[2] in wanted}
