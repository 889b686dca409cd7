"""Names of a model's weights: in its module, and in its files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refbias.errors import RefbiasError, described

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Layout:
    """The tensors of a module.

    Attributes
    ----------
    shapes : of parameters and lasting buffers, by name
    twins : all names of a tensor that has several, as tied embeddings have, by each of them
    transposed : weights of shape (in, out), as GPT-2's are
    vocabulary : names of the input embedding and of the head, where there is one
    tied : whether these two are one tensor
    find : the module's name of a tensor that a file calls so, or None
    """

    shapes: Mapping[str, tuple[int, ...]]
    twins: Mapping[str, tuple[str, ...]]
    transposed: frozenset[str]
    vocabulary: tuple[str, ...]
    tied: bool
    find: Callable[[str], str | None]


def layout(module: Any) -> Layout:
    """The layout of a transformers model, loaded or not."""
    from transformers.pytorch_utils import Conv1D

    state = module.state_dict(keep_vars=True)
    names: dict[int, list[str]] = {}
    for name, tensor in state.items():
        names.setdefault(id(tensor), []).append(name)
    ends = [module.get_input_embeddings(), module.get_output_embeddings()]
    weights = [id(end.weight) for end in ends if end is not None and hasattr(end, "weight")]
    return Layout(
        {name: tuple(tensor.shape) for name, tensor in state.items()},
        {name: tuple(some) for some in names.values() if len(some) > 1 for name in some},
        frozenset(f"{name}.weight" for name, part in module.named_modules() if isinstance(part, Conv1D)),
        tuple(name for key in dict.fromkeys(weights) for name in names.get(key, ())),
        len(set(weights)) < len(weights),
        _finder(module, state),
    )


def _finder(module: Any, state: Mapping[str, Any]) -> Callable[[str], str | None]:
    rename = _renaming(module)
    prefix = f"{module.base_model_prefix}."

    def find(name: str) -> str | None:
        new = rename(name)
        if new is None:
            return None
        return next((n for n in (new, prefix + new, new.removeprefix(prefix)) if n in state), None)

    return find


def _renaming(module: Any) -> Callable[[str], str | None]:
    """How transformers renames tensors of older files; None where it makes one tensor of several."""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightRenaming
    except ImportError:  # releases before 5
        patterns: Mapping[str, str] = getattr(module, "_checkpoint_conversion_mapping", {})

        def substitute(name: str) -> str | None:
            for old, new in patterns.items():
                name = re.sub(old, new, name)
            return name

        return substitute
    steps = get_model_conversion_mapping(module)

    def convert(name: str) -> str | None:
        for step in steps:
            new, matched = step.rename_source_key(name)
            if matched is not None and not isinstance(step, WeightRenaming):
                return None
            name = new
        return name

    return convert


def skeleton(name: str, folder: Path, causal: bool) -> torch.nn.Module:
    """The module of the configuration in ``folder``, without memory for its weights. No code of the folder runs."""
    import torch
    import transformers

    from refbias.models.hf import quiet

    config = configuration(name, folder)
    named = getattr(transformers, (config.architectures or ["-"])[0], None)
    try:
        with quiet(), torch.device("meta"):
            if isinstance(named, type) and issubclass(named, transformers.PreTrainedModel):
                return named(config).eval()
            loader = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
            made: torch.nn.Module = loader.from_config(config, trust_remote_code=False).eval()
            return made
    except Exception as error:
        raise RefbiasError(f"Model {name}: transformers cannot build it from {folder}: {described(error)}.") from error


def configuration(name: str, folder: Path) -> Any:
    """The configuration in ``folder`` with every default filled in."""
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise RefbiasError(
            f"Model {name}: transformers does not understand its configuration: {described(error)}. Merges need an "
            f"architecture that the installed release knows."
        ) from error
