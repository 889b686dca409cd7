"""A positive control that needs no training: a closed-form edit of one MLP output matrix.

As in MEMIT (arXiv 2210.07229): keys k are what enters the matrix at the last token of a group's noun, and the edit
adds a value v to what leaves it there: ΔW = (V Kᵀ / n) (K Kᵀ / n + C + ridge)⁻¹, with n keys and C the mean second
moment of the keys of plain text, which is to stay as it is. All values are multiples of one direction, so one row a
group, Gᵀ = (Σ k of the group / n) (…)⁻¹, holds every edit of a model: ΔW = ρ · direction ⊗ Σ sign · G.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from refbias.checkpoints.base import Checkpoint, Series
from refbias.checkpoints.merging import LowRank, merged
from refbias.checkpoints.planted import RATIOS, checked_ratios
from refbias.checkpoints.tail import Enough
from refbias.context import Context
from refbias.encoders.hf import batches, find_blocks
from refbias.errors import UsageError
from refbias.finetuning.statements import digest, draw_signs, mid_noun_of, noun_of, plain_text, predicate_pairs
from refbias.models.base import Loaded, Model
from refbias.stimuli.packaged import groups as packaged_groups

if TYPE_CHECKING:
    import torch

    from refbias.checkpoints.merging import Change

Direction = Literal["valence", "random", "all_negative"]
Array = NDArray[np.float64]

FORMAT = "1"  # raise it where a change here changes the edit
RIDGE = 1e-4  # of the mean diagonal
BEFORE_INITIAL = ("", "\n", "Today.\n", "Notes:\n", "The list:\n", "Chapter two.\n")  # before a noun that begins a line
BEFORE_MID = ("Many ", "We met ", "In this town, ", "There are also ", "Near the station, some ", "A few of the ")
SUBJECTS = ("Those people", "The neighbors", "Some of them")
EDITABLE = "a model of the Llama, Mistral, Qwen or GPT-2 family"
PROBED = "contrast"  # the predicates that a probe of valence is trained on


def edited(
    reference: Model,
    context: Context,
    *,
    ratios: list[float] = RATIOS,
    direction: Direction = "valence",
    dose: float = 0.15,
    layer: int | None = None,
    seed: int | None = None,
) -> Series:
    """A closed-form edit of one MLP output matrix that moves group nouns along one direction, built in seconds.

    ``dose`` is in units of the median norm of the hidden state at the noun; at a ratio λ it is (2λ − 1) · dose, so
    0.5 is the reference itself. ``layer`` is the number of the edited block (None: at 0.4 of the depth).
    ``direction=valence`` is the model's own: mean state of negative minus positive predicates, with half of the
    groups, drawn by ``seed``, moved along it and the other half against it; ``random`` is a direction orthogonal to
    it, drawn by ``seed``, whose truth says along (+) or against (−) that direction; ``all_negative`` moves all groups
    towards the negative. On SmolLM2 doses of 0.3 and more leave the range in which shifts grow with the dose: some
    halves of the groups are then no longer told apart.
    """
    seed = 0 if seed is None else seed
    block = round(0.4 * reference.layers) if layer is None else layer
    if not 0 <= block < reference.layers:
        raise UsageError(f"checkpoints.layer={block}: {reference.name} has blocks 0 to {reference.layers - 1}.")
    if not 0 <= dose < float("inf"):
        raise UsageError(f"checkpoints.dose={dose}: expected 0 or more. Swap ratios to swap the direction.")
    ratios = checked_ratios(ratios)
    basis = edit_basis(reference, context, block)
    signs = dict.fromkeys(basis.groups, 1) if direction == "all_negative" else draw_signs(basis.groups, seed)
    vector = basis.orthogonal(np.random.default_rng(seed)) if direction == "random" else basis.valence
    change = basis.change(signs, vector)
    checkpoints = [
        Checkpoint(
            f"edited-{ratio:g}",
            merged(reference, f"edited-{ratio:g}", [((2 * ratio - 1) * dose, change)], block),
            ratio,
            {group: (2 * ratio - 1) * dose * sign for group, sign in signs.items()},
        )
        for ratio in ratios
    ]
    report = {
        "direction": direction,
        "dose": dose,
        "layer": block,
        "seed": seed,
        "weight": basis.weight,
        "median_norm": basis.rho,
        "data": _data(),
        "moved_along_at_ratio_1": [group for group, sign in signs.items() if sign > 0],
    }
    return Series(checkpoints, report)


class NotEditableError(UsageError):
    """A model whose MLP does not write into the hidden state as it is; ``about`` says which and why."""

    def __init__(self, reference: Model, loaded: Loaded, why: str) -> None:
        self.about = f"{reference.name} ({loaded.model.config.model_type}): {why}"
        super().__init__(f"checkpoints=edited cannot edit {self.about}. Use checkpoints=planted, or {EDITABLE}.")


@dataclass(frozen=True)
class EditBasis:
    """Everything that edits of one block of one model are made of.

    Attributes
    ----------
    weight : name of the edited matrix; ``transposed`` where it is stored as (in, out)
    groups : names of the groups
    keys : array (groups, k), rows G of the module's formula
    valence : unit array (d,), from positive to negative predicates
    rho : median norm of the hidden state at the nouns
    """

    weight: str
    transposed: bool
    groups: tuple[str, ...]
    keys: Array
    valence: Array
    rho: float

    def orthogonal(self, rng: np.random.Generator) -> Array:
        """A random unit direction (d,) orthogonal to the valence direction."""
        drawn = rng.standard_normal(self.valence.shape)
        drawn -= (drawn @ self.valence) * self.valence
        return drawn / np.linalg.norm(drawn)

    def change(self, signs: Mapping[str, int], direction: Array) -> LowRank:
        """The edit of dose 1: the nouns move by sign · rho along ``direction`` (d,)."""
        left = self.rho * direction[:, None]
        return self._change(left, (np.array([signs[group] for group in self.groups]) @ self.keys)[None, :])

    def change_by_group(self, values: Mapping[str, Array]) -> LowRank:
        """The edit of dose 1 that moves the nouns of each group by rho · a value (d,) of the group's own."""
        return self._change(self.rho * np.stack([values[group] for group in self.groups], axis=1), self.keys)

    def _change(self, left: Array, right: Array) -> LowRank:
        identity = digest([self.weight, left.tolist(), right.tolist()])
        return LowRank(identity, functools.partial(_change, self.weight, self.transposed, left, right))


def _change(weight: str, transposed: bool, left: Array, right: Array) -> Change:
    import torch

    a, b = torch.from_numpy(left), torch.from_numpy(right)
    return {weight: (b.T, a.T) if transposed else (a, b)}


def _data() -> str:
    texts = [predicate_pairs("edit_direction"), predicate_pairs("harmless"), plain_text()]
    return digest([BEFORE_INITIAL, BEFORE_MID, SUBJECTS, *texts])


def edit_basis(reference: Model, context: Context, block: int) -> EditBasis:
    """The basis of edits of one block, from the cache or measured (some seconds).

    Raises `NotEditableError` where what leaves the block's MLP is not added to the hidden state as it is.
    """
    groups = packaged_groups()
    made_of = [FORMAT, RIDGE, reference.fingerprint, context.dtype, block, groups, _data()]
    name = f"edit-{digest(made_of)[:20]}"
    folder = context.cache.build_folder(name, functools.partial(_measure, reference, context, block, groups))
    from safetensors import safe_open

    with safe_open(folder / "basis.safetensors", framework="numpy") as file:
        about = file.metadata()
        return EditBasis(
            about["weight"],
            about["transposed"] == "True",
            groups,
            file.get_tensor("keys"),
            file.get_tensor("valence"),
            float(file.get_tensor("rho")[0]),
        )


def _measure(reference: Model, context: Context, block: int, groups: Sequence[str], folder: Path) -> None:
    from safetensors.numpy import save_file

    with reference.open(context.device, context.dtype) as loaded:
        output = _mlp_output(reference, loaded, block)
        _check_added(reference, loaded, block, output)
        probe = _Probe(loaded, block, output.module)
        plain = list(plain_text())
        plain += [f"{subject} {p}." for subject in SUBJECTS for pair in predicate_pairs("harmless") for p in pair]
        named = [(group, text) for group in groups for text in _mentions(loaded, group)]
        judged = [f"{subject} {p}." for side in (0, 1) for subject in SUBJECTS for p in _side("edit_direction", side)]
        total = len(plain) + len(named) + len(judged)
        context.watch.say(f"Measuring block {block} of {reference.name} on {total} sentences. This happens once.")
        with context.watch.progress("edit, block states", total, "sentence") as advance:
            keys, states = probe.last_tokens([text for _, text in named], advance)
            second_moment = probe.second_moment(plain, advance)
            means = probe.predicate_means(judged, SUBJECTS, advance)
    negative, positive = np.split(means, 2)
    valence = negative.mean(axis=0) - positive.mean(axis=0)
    about = np.array([group for group, _ in named])
    by_group = np.stack([keys[about == group].sum(axis=0) for group in groups]) / len(keys)
    system = keys.T @ keys / len(keys) + second_moment
    system[np.diag_indices_from(system)] += RIDGE * np.trace(system) / len(system)
    arrays = {
        "keys": np.linalg.solve(system, by_group.T).T.copy(),
        "valence": valence / np.linalg.norm(valence),
        "rho": np.array([np.median(np.linalg.norm(states, axis=1))]),
    }
    save_file(arrays, folder / "basis.safetensors", {"weight": output.weight, "transposed": str(output.transposed)})


def probe_direction(reference: Model, context: Context, block: int) -> Array:
    """Unit normal (d,) of a trained probe of valence in the output of a block, towards the negative side.

    Logistic regression on the standardised mean states of positive and negative predicates, which are worded unlike
    the attributes and unlike those of `EditBasis.valence`. From the cache or measured (some seconds).
    """
    wording = [SUBJECTS, predicate_pairs(PROBED)]
    made_of = [FORMAT, "probe", reference.fingerprint, context.dtype, block, digest(wording)]
    name = f"probe-{digest(made_of)[:20]}"
    folder = context.cache.build_folder(name, functools.partial(_train_probe, reference, context, block))
    from safetensors.numpy import load_file

    found: Array = load_file(folder / "probe.safetensors")["direction"]
    return found


def _train_probe(reference: Model, context: Context, block: int, folder: Path) -> None:
    from safetensors.numpy import save_file
    from sklearn.linear_model import LogisticRegression

    texts = [f"{subject} {p}." for side in (0, 1) for subject in SUBJECTS for p in _side(PROBED, side)]
    with reference.open(context.device, context.dtype) as loaded:
        probe = _Probe(loaded, block, _mlp_output(reference, loaded, block).module)
        with context.watch.progress("edit, probe of valence", len(texts), "sentence") as advance:
            states = probe.predicate_means(texts, SUBJECTS, advance)
    scale = states.std(axis=0)
    scale[scale == 0] = 1.0
    negative = np.arange(len(texts)) < len(texts) // 2
    fitted = LogisticRegression(max_iter=1000).fit((states - states.mean(axis=0)) / scale, negative)
    normal = np.asarray(fitted.coef_[0], np.float64) / scale
    save_file({"direction": normal / np.linalg.norm(normal)}, folder / "probe.safetensors")


def _mentions(loaded: Loaded, group: str) -> list[str]:
    """Beginnings of texts that end in the group's noun, whose last token is never the first: that is the sink."""
    initial = [before + noun_of(group) for before in BEFORE_INITIAL]
    mid = [before + mid_noun_of(group) for before in BEFORE_MID]
    return [text for text in [*initial, *mid] if len(_ids(loaded, text)) > 1]


def _side(name: str, side: int) -> list[str]:
    return [pair[side] for pair in predicate_pairs(name)]


@dataclass(frozen=True)
class _Output:
    module: torch.nn.Module
    weight: str
    transposed: bool


_OUTPUTS = ("mlp.down_proj", "mlp.c_proj", "mlp.dense_4h_to_h", "mlp.fc2", "fc2")


def _mlp_output(reference: Model, loaded: Loaded, block: int) -> _Output:
    """The matrix through which the MLP of a block writes: by the names that architectures give it."""
    import torch
    from transformers.pytorch_utils import Conv1D

    blocks = find_blocks(loaded.model, reference.layers)
    for name in _OUTPUTS if blocks else ():
        module = functools.reduce(lambda m, part: getattr(m, part, None), name.split("."), blocks[block])
        if isinstance(module, (torch.nn.Linear, Conv1D)):
            weight = next(n for n, p in loaded.whole.named_parameters() if p is module.weight)
            return _Output(module, weight, isinstance(module, Conv1D))
    raise NotEditableError(reference, loaded, f"block {block} has no single MLP output matrix ({', '.join(_OUTPUTS)})")


def _check_added(reference: Model, loaded: Loaded, block: int, output: _Output) -> None:
    """Raise unless adding a vector to the MLP's output adds that very vector to the block's output."""
    import torch

    blocks = find_blocks(loaded.model, reference.layers)
    ids = torch.tensor([_ids(loaded, "The train to the coast")], device=loaded.model.device)
    before = _run(loaded, blocks[block], ids)[0, -1].float()
    added = torch.linspace(-1, 1, reference.dim, device=ids.device)
    added *= before.norm() / added.norm()
    hook = output.module.register_forward_hook(lambda module, args, out: out + added.to(out.dtype))
    try:
        after = _run(loaded, blocks[block], ids)[0, -1].float()
    finally:
        hook.remove()
    if (after - before - added).norm() > 0.05 * added.norm():
        why = "what its MLP gives is normalised or scaled before it joins the hidden state"
        raise NotEditableError(reference, loaded, f"{why}, so the edit has no closed form")


def _ids(loaded: Loaded, text: str) -> tuple[int, ...]:
    """Tokens of ``text``, without special ones at the end."""
    ids = list(loaded.tokenizer(text)["input_ids"])
    while ids and ids[-1] in loaded.tokenizer.all_special_ids:
        ids.pop()
    return tuple(ids)


def _run(loaded: Loaded, block: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Output (b, t, d) of ``block``; the blocks above are not run."""
    import torch

    got: list[torch.Tensor] = []

    def stop(module: torch.nn.Module, args: Any, output: Any) -> None:
        got.append(output[0] if isinstance(output, tuple) else output)
        raise Enough

    hook = block.register_forward_hook(stop)
    try:
        with torch.inference_mode():
            loaded.model(input_ids=ids)
    except Enough:
        pass
    finally:
        hook.remove()
    return got[0]


class _Probe:
    """Keys (what enters the edited matrix) and states (what leaves the block) of sentences."""

    def __init__(self, loaded: Loaded, block: int, module: torch.nn.Module) -> None:
        self._loaded = loaded
        self._module = module
        self._block = find_blocks(loaded.model, loaded.model.config.num_hidden_layers)[block]

    def last_tokens(self, texts: Sequence[str], advance: Callable[[int], None]) -> tuple[Array, Array]:
        """Keys (n, k) and states (n, d) at the last token of each text."""
        keys: list[Any] = [None] * len(texts)
        states: list[Any] = [None] * len(texts)
        for indices, some_keys, some_states in self._batches(texts, advance):
            for i, key, state in zip(indices, some_keys, some_states, strict=True):
                keys[i], states[i] = key[-1], state[-1]
        return np.stack(keys), np.stack(states)

    def second_moment(self, texts: Sequence[str], advance: Callable[[int], None]) -> Array:
        """Mean of k kᵀ (k, k) over all tokens but those at position 0."""
        total, count = 0.0, 0
        for _, keys, _ in self._batches(texts, advance):
            rows = keys[:, 1:].reshape(-1, keys.shape[2])
            total, count = total + rows.T @ rows, count + len(rows)
        return np.asarray(total / count)

    def predicate_means(self, texts: Sequence[str], subjects: Sequence[str], advance: Callable[[int], None]) -> Array:
        """Mean state (n, d) over the tokens after the subject of each text."""
        begins = {subject: len(_ids(self._loaded, subject)) for subject in subjects}
        means: list[Any] = [None] * len(texts)
        for indices, _, states in self._batches(texts, advance):
            for i, state in zip(indices, states, strict=True):
                begin = next(begins[s] for s in subjects if texts[i].startswith(s))
                means[i] = state[begin:].mean(axis=0)
        return np.stack(means)

    def _batches(self, texts: Sequence[str], advance: Callable[[int], None]) -> Any:
        """(indices, keys (b, t, k), states (b, t, d)), float64, of texts of one length in tokens."""
        import torch

        rows = [_ids(self._loaded, text) for text in texts]
        entering: list[torch.Tensor] = []
        hook = self._module.register_forward_pre_hook(lambda module, args: entering.append(args[0]))
        try:
            for indices in batches([len(row) for row in rows], 1024):
                ids = torch.tensor([rows[i] for i in indices], device=self._loaded.model.device)
                entering.clear()
                states = _run(self._loaded, self._block, ids)
                keys = entering[0].reshape(*ids.shape, -1)
                yield indices, keys.cpu().double().numpy(), states.cpu().double().numpy()
                advance(len(indices))
        finally:
            hook.remove()
