"""The two ends of a merge: what they are, and whether they can be merged at all."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refbias.checkpoints.merging import LowRank
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from refbias.models import find_model
from refbias.models.adapters import Effect
from refbias.models.base import combined
from refbias.models.blend import Blend
from refbias.models.hf import AdapterModel, FolderModel, load_tokenizer, tokenizer_digest, tokenizer_table
from refbias.models.layout import Layout, configuration, layout, skeleton
from refbias.models.source import Piece, Source
from refbias.models.weights import Files, rounded

if TYPE_CHECKING:
    from refbias.checkpoints.merging import Change

End = FolderModel | AdapterModel

# settings of a configuration on which no hidden state depends
_FREE = re.compile(
    r"_name_or_path|transformers_version|(torch_)?dtype|use_cache|tie_word_embeddings|(bos|eos|pad)_token_id|id2label|"
    r"label2id|problem_type|task_specific_params|return_dict|output_.*|_?attn_implementation.*|initializer_.*|"
    r"pretraining_tp|auto_map|.*dropout.*|.*pdrop|quantization_config"
)
# tensors that older releases of transformers saved and that every release computes by itself
_COMPUTED = re.compile(r"(.*\.)?(inv_freq|masked_bias|attn\.bias|attention\.bias|position_ids)")
_BLOCK = re.compile(r"(?:.*\.)?(?:layers|layer|h|blocks|block)\.(\d+)\..+")
_AFTER = re.compile(r"(?:.*\.)?(?:norm|ln_f|final_norm|final_layer_norm|final_layernorm)\.(?:weight|bias)")


@dataclass(frozen=True)
class Ends:
    """Two checkpoints that fit each other.

    ``names`` are the weights of which a merge consists; ``linear`` says that both are changes of one base that add up;
    ``notes`` what a reader of the result must know.
    """

    start: End
    end: End
    sources: tuple[Source, Source]
    names: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def layout(self) -> Layout:
        return self.sources[0].layout

    @property
    def base(self) -> FolderModel | None:
        """The base of the ends; None for two full models."""
        return next((end.base for end in (self.start, self.end) if isinstance(end, AdapterModel)), None)

    @property
    def linear(self) -> bool:
        return self.base is not None and all(e.linear for source in self.sources for e in source.effects.values())

    def blend(self, ratio: float) -> Blend:
        """(1 − ratio) · start + ratio · end."""
        return Blend([(1 - ratio, self.sources[0]), (ratio, self.sources[1])])

    def changes(self, ratio: float) -> list[tuple[float, LowRank]] | None:
        """The merge as a sum of changes of the base, where it is one."""
        if not self.linear:
            return None
        parts = zip((1 - ratio, ratio), (self.start, self.end), self.sources, strict=True)
        return [
            (coefficient, LowRank(model.fingerprint, functools.partial(_factors, source.effects)))
            for coefficient, model, source in parts
            if coefficient and source.effects
        ]

    def check_files(self) -> None:
        self.start.check_files()
        self.end.check_files()

    def fingerprint(self, ratio: float, tokenizer: str) -> str:
        """Of a merge with a tokenizer of this digest; an end with its own tokenizer has its own fingerprint."""
        end = {0.0: self.start, 1.0: self.end}.get(ratio)
        if end is not None and tokenizer_of(end)[1] == tokenizer:
            return end.fingerprint
        return combined("merge 1", self.start.fingerprint, self.end.fingerprint, repr(float(ratio)), tokenizer)


def _factors(effects: Mapping[str, Effect]) -> Change:
    return {n: (e.left, e.right) for n, e in effects.items() if e.left is not None and e.right is not None}


def find_ends(start: Any, end: Any, context: Context) -> Ends:
    """The ends that ``start`` and ``end`` name, as `refbias.models.find_model` takes them.

    Raises `UsageError` for what is no model folder or adapter, and `RefbiasError` where the two cannot be merged; the
    message names what differs.
    """
    first, second = (_end(spec, role, context) for spec, role in ((start, "start"), (end, "end")))
    notes: list[str] = []
    _check_bases(first, second)
    module = _common_skeleton(first, second)
    check_tokenizers(first, second)
    files = Files(base_of(first).folder)
    adapted = any(isinstance(model, AdapterModel) for model in (first, second))
    one = _source(first, files, module, context, notes)
    two = _source(second, files if adapted else Files(second.folder), module, context, notes)
    return Ends(first, second, (one, two), tuple(_checked_names(one, two)), tuple(dict.fromkeys(notes)))


def _end(spec: Any, role: str, context: Context) -> End:
    model = find_model(spec, cache=context.cache, watch=context.watch)
    if not isinstance(model, (FolderModel, AdapterModel)) or model.kind not in ("hf", "adapter"):
        raise UsageError(
            f"The {role} of a merge is a model folder or the folder of an adapter: {model.name} is {model.kind}."
        )
    return model


def base_of(model: End) -> FolderModel:
    return model.base if isinstance(model, AdapterModel) else model


def _check_bases(start: End, end: End) -> None:
    if not any(isinstance(model, AdapterModel) for model in (start, end)):
        return
    one, two = base_of(start), base_of(end)
    if one.fingerprint != two.fingerprint:
        raise RefbiasError(
            f"{_described(start)}, and {_described(end)}: an adapter is merged with an adapter of the same base, or "
            f"with that base. Make a full model of it first: task=merge task.start=BASE task.end=ADAPTER task.ratio=1."
        )


def _described(model: End) -> str:
    if isinstance(model, AdapterModel):
        return f"{model.name} is an adapter of {model.base.name}"
    return f"{model.name} is a full model"


def _common_skeleton(start: End, end: End) -> Layout:
    """The layout of both. Raises `RefbiasError` where their configurations are those of different models."""
    one, two = base_of(start), base_of(end)
    configs = [configuration(model.name, model.folder) for model in (one, two)]
    for model, config in zip((one, two), configs, strict=True):
        if getattr(config, "quantization_config", None):
            raise RefbiasError(
                f"{model.name} is quantised ({config.quantization_config}), and such weights are not merged. Load it "
                f"in bfloat16, save it with save_pretrained, and give that folder."
            )
    differing = different_settings(configs[0], configs[1])
    if differing:
        raise RefbiasError(
            f"{start.name} and {end.name} are models of different shapes: {'; '.join(differing[:4])}. Merge two "
            f"checkpoints of one architecture."
        )
    # of two that differ in whether the head is tied to the embeddings, the one that ties them knows both names
    tying = two if getattr(configs[1], "tie_word_embeddings", False) else one
    return layout(skeleton(tying.name, tying.folder, tying.causal))


def different_settings(one: Any, two: Any) -> list[str]:
    """Settings in which two configurations differ, if a hidden state may depend on them."""
    first, second = (dict(_flat(config.to_dict())) for config in (one, two))
    keys = sorted(key for key in {**first, **second} if not _FREE.fullmatch(key.rpartition(".")[2]))
    keys.sort(key=lambda key: key not in ("architectures", "model_type"))
    return [f"{key} {first.get(key)!r} and {second.get(key)!r}" for key in keys if first.get(key) != second.get(key)]


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and not _FREE.fullmatch(str(key)):
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner


def tokenizer_of(model: End) -> tuple[dict[str, Any], str]:
    """Table and digest of the tokenizer of ``model``: an adapter may have one of its own."""
    own = isinstance(model, AdapterModel) and model.has_tokenizer
    place = model if own else base_of(model)
    return _read_tokenizer(place.name, place.folder, place.fingerprint)


@functools.lru_cache(maxsize=4)
def _read_tokenizer(name: str, folder: Path, fingerprint: str) -> tuple[dict[str, Any], str]:
    tokenizer = load_tokenizer(name, folder)
    return tokenizer_table(tokenizer), tokenizer_digest(tokenizer)


def check_tokenizers(start: End, end: End) -> None:
    """Raise `RefbiasError` unless both make the same token ids of a text."""
    (one, _), (two, _) = tokenizer_of(start), tokenizer_of(end)
    differing = [part for part in {**one, **two} if one.get(part) != two.get(part)]
    if differing:
        raise RefbiasError(
            f"{start.name} and {end.name} have different tokenizers: {_difference(differing, one, two)}. Merge two "
            f"checkpoints with one tokenizer."
        )


def _difference(parts: list[str], one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    ids = [table.get("vocabulary") or table.get("model", {}).get("vocab") for table in (one, two)]
    if all(isinstance(vocabulary, Mapping) for vocabulary in ids) and ids[0] != ids[1]:
        first, second = ids
        token = next(t for t in {**first, **second} if first.get(t) != second.get(t))
        where = [f"number {v[token]}" if token in v else "not there" for v in (first, second)]
        return (
            f"vocabularies of {len(first):,} and {len(second):,} tokens; {token!r} is {where[0]} in the first and "
            f"{where[1]} in the second"
        )
    return f"{', '.join(parts).replace('_', ' ')} of tokenizer.json"


def _source(model: End, files: Files, found: Layout, context: Context, notes: list[str]) -> Source:
    if isinstance(model, FolderModel):
        return Source(model.name, files, found)
    source = model.source(files, found)
    if source is None:
        notes.append(f"peft merged {model.name} into its base, in {context.dtype}, and its weights stay in memory")
        source = _merged_by_peft(model, files, found, context)
    if not all(effect.linear for effect in source.effects.values()):
        notes.append(
            f"what {model.name} does is not linear in ΔW: the weights that it makes are interpolated, each formed in "
            f"float64"
        )
    return source


def _merged_by_peft(model: AdapterModel, files: Files, found: Layout, context: Context) -> Source:
    """An adapter of a method that only peft merges: every weight that it changes, as peft makes it."""
    import torch

    plain = Source(model.base.name, files, found)
    values: dict[str, Effect] = {}
    with model.open(context.device, context.dtype) as loaded:
        there, state = layout(loaded.whole), loaded.whole.state_dict()
        for name in plain.names:
            key = name if name in state else there.find(plain.file_name(name))
            if key is None:
                continue
            made = state[key].cpu()
            had = rounded(plain.form(Piece(name, 0, max(1, *plain.shape(name)[:1]))), made.dtype)
            if not torch.equal(made, had):
                values |= dict.fromkeys(found.twins.get(name, (name,)), Effect(value=made.clone()))
    return Source(model.name, files, found, values)


def _checked_names(one: Source, two: Source) -> Iterator[str]:
    """The weights of a merge. Raises `RefbiasError` for one that the other end lacks or has otherwise."""
    for name in Blend([(0.5, one), (0.5, two)]).names:
        if _COMPUTED.fullmatch(name) and name not in one.layout.shapes:
            continue
        for has, lacks in ((one, two), (two, one)):
            if not lacks.has(name):
                raise RefbiasError(f"{has.name} has a weight {name!r}, and {lacks.name} has none. {_ONE_KIND}")
        if one.shape(name) != two.shape(name):
            raise RefbiasError(
                f"Weight {name!r} has shape {one.shape(name)} in {one.name} and {two.shape(name)} in {two.name}. "
                f"{_ONE_KIND}"
            )
        if not (one.dtype(name).is_floating_point and two.dtype(name).is_floating_point) and not _same(one, two, name):
            raise RefbiasError(
                f"{name!r} holds whole numbers that differ between {one.name} and {two.name}: they cannot be merged."
            )
        yield name


_ONE_KIND = "Merge two checkpoints of one model."


def _same(one: Source, two: Source, name: str) -> bool:
    """Whether a weight is the same in both, bit for bit."""
    import torch

    if one.effect(name) is not two.effect(name):
        return False
    if one.stored(name) == two.stored(name):
        return True
    if one.dtype(name) != two.dtype(name) or one.shape(name) != two.shape(name):
        return False
    return all(torch.equal(one.read(name, p.start, p.stop), two.read(name, p.start, p.stop)) for p in one.pieces(name))


def differing(names: Iterable[str], sources: Iterable[Source]) -> list[str]:
    """The weights that are not the same in all sources."""
    first, *others = sources
    return [name for name in names if not all(_same(first, other, name) for other in others)]


def shared_below(changed: Iterable[str], names: Iterable[str], layers: int) -> int | None:
    """Number of the first block that holds one of the weights ``changed``: the hidden states up to it are shared.

    None where an embedding is among them, or where the blocks cannot be told from ``names``.
    """
    blocks = {name: int(found[1]) for name in names if (found := _BLOCK.fullmatch(name)) and "vision" not in name}
    if set(blocks.values()) != set(range(layers)):
        return None
    first = layers - 1  # the last layer is read after a norm, which may have changed
    for name in changed:
        if name in blocks:
            first = min(first, blocks[name])
        elif not (_AFTER.fullmatch(name) or name.startswith("lm_head.")):
            return None
    return first
