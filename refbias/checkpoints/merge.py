"""The merges of two checkpoints, audited without one of them being written."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refbias.checkpoints.audited import base_notes, say_notes
from refbias.checkpoints.base import Checkpoint, Series
from refbias.checkpoints.ends import (
    End,
    Ends,
    base_of,
    different_settings,
    differing,
    find_ends,
    shared_below,
    tokenizer_of,
)
from refbias.checkpoints.planted import RATIOS, checked_ratios
from refbias.context import Context
from refbias.errors import RefbiasError
from refbias.models.base import DerivedModel, Model, Undo, combined
from refbias.models.blend import Blend
from refbias.models.hf import FolderModel
from refbias.models.layout import configuration
from refbias.models.source import Source
from refbias.models.weights import Files

if TYPE_CHECKING:
    import torch


def merge(reference: Model, context: Context, *, start: str, end: str, ratios: list[float] = RATIOS) -> Series:
    """Merges of two checkpoints, (1 − ratio) · start + ratio · end, none of which is written.

    ``start`` and ``end`` are folders of full models or of adapters of one base, or names of such. Each weight is formed
    in float64 from the files and rounded once to the dtype of the run; ratios 0 and 1 are the ends themselves. LoRA
    changes are added up, exact in ΔW; of adapters that are not linear in ΔW the weights they make are interpolated.
    """
    ratios = checked_ratios(ratios)
    ends = find_ends(start, end, context)
    home = _home(ends, reference)
    notes = [*ends.notes, *_about_the_reference(ends, reference)]
    say_notes(notes, context)
    checkpoints = [Checkpoint(f"merge-{ratio:g}", home.merged(ends, ratio), ratio) for ratio in ratios]
    report = {
        "start": ends.start.name,
        "start_fingerprint": ends.start.fingerprint,
        "end": ends.end.name,
        "end_fingerprint": ends.end.fingerprint,
        "base": ends.base.name if ends.base else None,
        "base_fingerprint": ends.base.fingerprint if ends.base else None,
        "merged": "changes of the base added up" if ends.linear else "weights interpolated",
        "rounded": "once, from float64 to the dtype of the run",
        "set_in": home.model.name,
        "shared_below": home.shared_below,
        "notes": notes,
    }
    return Series(checkpoints, {key: value for key, value in report.items() if value not in (None, [])})


@dataclass(frozen=True)
class _Home:
    """The model in whose loaded weights the merges are set, and which of them that changes."""

    model: End
    source: Source
    changed: tuple[str, ...]
    shared_below: int | None

    def merged(self, ends: Ends, ratio: float) -> DerivedModel:
        return DerivedModel(
            self.model,
            f"merge-{ratio:g}",
            ends.fingerprint(ratio, tokenizer_of(self.model)[1]),
            functools.partial(_set, ends=ends, blend=ends.blend(ratio), home=self),
            self.shared_below,
            ends.notes,
            family=combined("merge", ends.start.fingerprint, ends.end.fingerprint),
            changes=ends.changes(ratio),
        )


def _set(module: torch.nn.Module, ends: Ends, blend: Blend, home: _Home) -> Undo:
    ends.check_files()
    blend.set_in(module, home.changed)
    before = Blend([(1.0, home.source), *((0.0, source) for source in ends.sources)])
    return lambda: before.set_in(module, home.changed)


def _home(ends: Ends, reference: Model) -> _Home:
    """Where most is shared: in the reference or the base of the adapters, or in one of the ends.

    With the former, merges share the lower layers that neither end has changed, with an end those that both have.
    """
    found: list[tuple[End, Source]] = []
    for model in _ancestors(ends, reference):
        source = Source(model.name, ends.sources[0].files if ends.base else Files(model.folder), ends.layout)
        if tokenizer_of(model) == tokenizer_of(ends.start):
            found.append((model, source))
    found += zip((ends.start, ends.end), ends.sources, strict=True)
    wanted = ends.blend(0.5).structure
    homes = [_at_home(ends, model, source) for model, source in found if source.structure == wanted]
    if not homes:
        raise RefbiasError(
            f"{ends.start.name} and {ends.end.name} tie their weights in different ways. Write the merge with "
            f"task=merge, and audit its folder."
        )
    return max(homes, key=lambda home: -1 if home.shared_below is None else home.shared_below)


def _ancestors(ends: Ends, reference: Model) -> list[FolderModel]:
    """The base of adapters, as the reference where it is that; of full models the reference, where it is alike."""
    known = reference if isinstance(reference, FolderModel) and reference.kind == "hf" else None
    if ends.base is not None:
        return [known if known and known.fingerprint == ends.base.fingerprint else ends.base]
    return [known] if known and _is_alike(known, ends) else []


def _is_alike(reference: FolderModel, ends: Ends) -> bool:
    """Whether the ends have the reference's architecture, and weights of the same names and shapes."""
    base = base_of(ends.start)
    configs = (configuration(model.name, model.folder) for model in (reference, base))
    if different_settings(*configs):
        return False
    source = Source(reference.name, Files(reference.folder), ends.layout)
    return all(source.has(name) and source.shape(name) == ends.sources[0].shape(name) for name in ends.names)


def _at_home(ends: Ends, model: End, source: Source) -> _Home:
    changed = tuple(differing(ends.names, (source, *ends.sources)))
    return _Home(model, source, changed, shared_below(changed, ends.names, model.layers))


def _about_the_reference(ends: Ends, reference: Model) -> list[str]:
    if ends.base is not None:
        return base_notes("the ends are adapters", ends.base, reference)
    if isinstance(reference, FolderModel) and _is_alike(reference, ends):
        return []
    return [f"the reference {reference.name} is no model of the architecture of {ends.start.name}"]
