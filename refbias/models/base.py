"""What a model is to refbias: a name, a fingerprint, a shape, and weights that are opened when they are needed."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from refbias.errors import RefbiasError

if TYPE_CHECKING:
    import torch

Undo = Callable[[], None]
Apply = Callable[["torch.nn.Module"], Undo]

KEEP_BYTES = 2 * 2**30  # idle models above this are dropped before another one is loaded


@dataclass
class Loaded:
    """An open model.

    ``model`` is the part that makes hidden states: no language-model head, the encoder side of an encoder–decoder.
    ``whole`` is what the files hold; ``causal`` is the same object where it scores text, else None.
    """

    model: Any
    tokenizer: Any
    whole: Any
    causal: Any = None
    token_states: TokenStates = field(default_factory=lambda: TokenStates())

    def size(self) -> int:
        """Bytes of weights."""
        return sum(p.numel() * p.element_size() for p in self.whole.parameters())


class TokenStates:
    """Token states at a few layers of a loaded base, by token ids, so that a changed model need not begin at 0."""

    def __init__(self, limit: int = 2**29) -> None:
        self._limit = limit
        self._size = 0
        self._rows: dict[int, dict[tuple[int, ...], torch.Tensor]] = {}

    def put(self, layer: int, ids: Sequence[tuple[int, ...]], states: torch.Tensor) -> None:
        """Keep ``states`` (b, t, d) of the sentences with token ``ids``, while there is room for them."""
        rows = self._rows.setdefault(layer, {})
        size = states.numel() * states.element_size()
        if self._size + size > self._limit or all(key in rows for key in ids):
            return
        self._size += size
        rows.update(zip(ids, states.clone(), strict=True))

    def get(self, layer: int, ids: Sequence[tuple[int, ...]]) -> list[torch.Tensor] | None:
        """States (t, d) of every sentence, or None where one is missing."""
        rows = self._rows.get(layer, {})
        found = [rows[key] for key in ids if key in rows]
        return found if len(found) == len(ids) else None


class Model(ABC):
    """A model by its files.

    Attributes
    ----------
    name : as typed, or the registered name
    kind : "hf", "sentence_transformers", "adapter", "live", "derived", "vectors" or "arrays"
    fingerprint : digest of weights, configuration and tokenizer, known without loading the weights
    notes : what a reader of results must know about these weights
    layers, dim : number of blocks L and hidden width d
    causal : whether it scores text, so that `open_causal` works
    shared_below : for a changed model, hidden states 0..shared_below are exactly the base's
    captured : layers whose token states a pass over this model keeps in memory, for changed models to begin at
    """

    name: str
    kind: str
    fingerprint: str
    notes: tuple[str, ...] = ()
    layers: int
    dim: int
    causal: bool = False
    shared_below: int | None = None

    @functools.cached_property
    def captured(self) -> set[int]:
        return set()

    @abstractmethod
    def _load(self, device: str, dtype: str) -> Loaded:
        """Load the weights."""

    def placement(self, device: str, dtype: str) -> tuple[str, str]:
        """Device and dtype that the model takes where it is asked for these."""
        return device, dtype

    @contextmanager
    def open(self, device: str = "cpu", dtype: str = "float32") -> Iterator[Loaded]:
        """The loaded model, on ``device`` in ``dtype``. It stays in memory for the next time while there is room."""
        with self._open(device, dtype) as loaded:
            yield loaded

    @contextmanager
    def _open(self, device: str, dtype: str, change: State | None = None) -> Iterator[Loaded]:
        """The loaded model, changed or as it is."""
        with _slot(self, *self.placement(device, dtype)).state(change) as loaded:
            yield loaded

    @contextmanager
    def open_causal(self, device: str = "cpu", dtype: str = "float32") -> Iterator[Loaded]:
        """As `open`, where ``causal`` must be there. Raises `RefbiasError` where the model scores no text."""
        with self.open(device, dtype) as loaded:
            if loaded.causal is None:
                raise RefbiasError(
                    f"Model {self.name} has no language-model head, so it cannot score text. "
                    f"Use a causal language model, or benchmark=none."
                )
            yield loaded

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.kind} L={self.layers} d={self.dim} {self.fingerprint[:12]}>"


class DerivedModel(Model):
    """A model that differs from ``base`` in some weights, set in place in the loaded base and undone from a copy.

    Parameters
    ----------
    base : the model whose weights are changed
    name, fingerprint : of the changed model
    apply : given the loaded module (``Loaded.whole``), changes it in place and returns a function that restores it
        bit for bit; `set_weights` does both. Where the base is live, it must change nothing if it raises.
    shared_below : hidden states 0..shared_below equal the base's exactly: the first changed block is number
        ``shared_below`` counted from 0. None where nothing is known.
    family : models of one base with one ``family`` set the very same weights, whatever those are before, so that one
        is set over another without undoing that first
    changes : the change as [(coefficient, `refbias.checkpoints.merging.LowRank`)], where it is such a sum
    """

    kind = "derived"
    base: Model

    def __init__(
        self,
        base: Model,
        name: str,
        fingerprint: str,
        apply: Apply,
        shared_below: int | None = None,
        notes: tuple[str, ...] = (),
        family: str | None = None,
        changes: Sequence[tuple[float, Any]] | None = None,
    ) -> None:
        if isinstance(base, DerivedModel):
            raise TypeError(f"the base of {name} is itself a derived model: derive both from {base.base.name}")
        self.base = base
        self.name = name
        self.fingerprint = fingerprint
        self.notes = (*base.notes, *notes)
        self.layers, self.dim, self.causal = base.layers, base.dim, base.causal
        self.shared_below = shared_below
        self.changes = changes
        self._apply = apply
        self._family = family
        if shared_below:
            base.captured.add(shared_below)

    def _load(self, device: str, dtype: str) -> Loaded:
        return self.base._load(device, dtype)

    def placement(self, device: str, dtype: str) -> tuple[str, str]:
        return self.base.placement(device, dtype)

    @contextmanager
    def open(self, device: str = "cpu", dtype: str = "float32") -> Iterator[Loaded]:
        with self.base._open(device, dtype, State(self.fingerprint, self._apply, self._family)) as loaded:
            yield loaded


@dataclass(frozen=True)
class State:
    """What turns a loaded base into a changed model."""

    name: str
    apply: Apply
    family: str | None


def set_weights(module: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> Undo:
    """Set parameters of ``module`` by name, in place; returns the function that puts the old values back.

    ``weights`` are cast to the dtype and device of the parameters. Raises `RefbiasError` for a name that the module
    lacks and for a shape that does not fit, before anything is changed.
    """
    import torch

    parameters = dict(module.named_parameters())
    for name, value in weights.items():
        if name not in parameters:
            raise RefbiasError(f"The model has no weight {name!r}. It has {', '.join(list(parameters)[:3])}, …")
        if parameters[name].shape != value.shape:
            raise RefbiasError(
                f"Weight {name!r} has shape {tuple(parameters[name].shape)}, the new one {tuple(value.shape)}."
            )
    before = {name: parameters[name].detach().clone() for name in weights}

    def put(values: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, value in values.items():
                parameters[name].copy_(value)

    put(weights)
    return lambda: put(before)


class _Slot:
    """One loaded base and the change, if any, that is applied to it."""

    def __init__(self, loaded: Loaded, restore_at_once: bool) -> None:
        self.loaded = loaded
        self.users = 0
        self._applied: State | None = None
        self._undo: Undo = lambda: None
        self._restore_at_once = restore_at_once

    @contextmanager
    def state(self, wanted: State | None) -> Iterator[Loaded]:
        with _lock:
            self._turn_into(wanted)
            self.users += 1
        try:
            yield self.loaded
        finally:
            with _lock:
                self.users -= 1
                if self._restore_at_once and not self.users:
                    self._turn_into(None)

    def _turn_into(self, wanted: State | None) -> None:
        before = self._applied
        if (wanted and wanted.name) == (before and before.name):
            return
        if self.users:
            raise RuntimeError("this model is open in another state: close that one first")
        try:
            if not (before and wanted and wanted.family and before.family == wanted.family):
                self._undo()
                self._undo, self._applied = lambda: None, None
            if wanted is not None:
                self._undo, self._applied = wanted.apply(self.loaded.whole), wanted
        except BaseException:  # the weights may be neither these nor those: the next one to ask loads them afresh
            _forget(self)
            raise


_lock = threading.RLock()
_slots: dict[tuple[str, str, str], _Slot] = {}


def _slot(model: Model, device: str, dtype: str) -> _Slot:
    key = (model.fingerprint, device, dtype)
    with _lock:
        if key not in _slots:
            _drop_idle(KEEP_BYTES)
            _slots[key] = _Slot(model._load(device, dtype), restore_at_once=model.kind == "live")
        _slots[key] = _slots.pop(key)  # used last stands last
        return _slots[key]


def _forget(slot: _Slot) -> None:
    for key in [key for key, other in _slots.items() if other is slot]:
        del _slots[key]


def _drop_idle(keep: int) -> None:
    """Drop idle models, used longest ago first, until those left take ``keep`` bytes at most."""
    idle = {key: slot.loaded.size() for key, slot in _slots.items() if not slot.users}
    for key, size in idle.items():
        if sum(idle[k] for k in idle if k in _slots) <= keep:
            return
        del _slots[key], size


def release() -> None:
    """Drop every model that is loaded and not in use."""
    with _lock:
        _drop_idle(-1)


def combined(*parts: str) -> str:
    """One digest of several texts; where one ends and the next begins matters."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
