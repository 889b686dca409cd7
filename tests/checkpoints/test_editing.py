from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from refbias.cache import Cache
from refbias.checkpoints import Series, edited, editing
from refbias.checkpoints.editing import RIDGE, edit_basis
from refbias.context import Context
from refbias.errors import UsageError
from refbias.finetuning.statements import plain_text, predicate_pairs
from refbias.models import Model, find_model
from refbias.stimuli import GROUPS

OUTPUT = {"llama": "down_proj", "gpt2": "c_proj"}


@pytest.fixture(scope="module")
def built(tiny: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Model, Context]]:
    """Reference and context by family; bases of edits are measured once."""
    cache = Cache(tmp_path_factory.mktemp("edits"))
    return lambda family: (find_model(tiny[family], cache=cache), Context(cache))


def weight_of(model: Model, name: str) -> np.ndarray:
    with model.open() as loaded:
        return dict(loaded.whole.named_parameters())[name].detach().double().numpy().copy()


def ends(series: Series) -> tuple[Model, Model]:
    return series.checkpoints[0].model, series.checkpoints[-1].model


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_edit_is_the_closed_form(
    family: str, built: Callable[[str], tuple[Model, Context]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the formula written out: ΔW = (V Kᵀ / n) (K Kᵀ / n + C + ridge)⁻¹, with keys from hooks of our own."""
    monkeypatch.setattr(editing, "BEFORE_INITIAL", ("", "\n"))
    monkeypatch.setattr(editing, "BEFORE_MID", ("Many ",))
    monkeypatch.setattr(editing, "SUBJECTS", ("Those people",))
    reference, context = built(family)
    series = edited(reference, context, dose=0.3, layer=2, seed=1, ratios=[1.0])
    basis = edit_basis(reference, context, 2)
    sign = series.checkpoints[0].truth
    assert sign is not None
    with reference.open() as loaded:
        module = next(m for n, m in loaded.model.named_modules() if n.endswith(f".2.mlp.{OUTPUT[family]}"))
        seen: list[torch.Tensor] = []
        hook = module.register_forward_pre_hook(lambda m, args: seen.append(args[0].reshape(-1, args[0].shape[-1])))

        def keys(text: str) -> np.ndarray:
            seen.clear()
            ids = [i for i in loaded.tokenizer(text)["input_ids"] if i != loaded.tokenizer.eos_token_id]
            with torch.inference_mode():
                loaded.model(input_ids=torch.tensor([ids]))
            return seen[0].double().numpy()

        mentions = [(group, text) for group in GROUPS for text in editing._mentions(loaded, group)]
        K = np.stack([keys(text)[-1] for _, text in mentions])
        harmless = [p for pair in predicate_pairs("harmless") for p in pair]
        plain = [*plain_text(), *(f"{subject} {p}." for subject in editing.SUBJECTS for p in harmless)]
        P = np.concatenate([keys(text)[1:] for text in plain])
        hook.remove()
    V = np.stack([np.sign(sign[group]) * 0.3 * basis.rho * basis.valence for group, _ in mentions])
    system = K.T @ K / len(K) + P.T @ P / len(P)
    system += RIDGE * np.trace(system) / len(system) * np.eye(len(system))
    expected = np.linalg.solve(system, (V.T @ K / len(K)).T).T
    before, after = weight_of(reference, basis.weight), weight_of(series.checkpoints[0].model, basis.weight)
    found = (after - before).T if family == "gpt2" else after - before
    assert np.abs(found - expected).max() < 2e-4 * np.abs(expected).max() + 2e-7


def test_half_way_is_the_reference_itself(built: Callable[[str], tuple[Model, Context]]) -> None:
    reference, context = built("llama")
    series = edited(reference, context, ratios=[0.0, 0.5, 1.0])
    half = series.checkpoints[1]
    assert half.model is reference
    assert half.truth == dict.fromkeys(GROUPS, 0.0)
    assert edited(reference, context, dose=0.0, ratios=[1.0]).checkpoints[0].model is reference


def test_the_ends_are_mirror_images(built: Callable[[str], tuple[Model, Context]]) -> None:
    reference, context = built("llama")
    series = edited(reference, context)
    assert [c.ratio for c in series.checkpoints] == [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
    weight = series.report["weight"]
    low, high = (weight_of(model, weight) for model in ends(series))
    assert np.allclose(low + high, 2 * weight_of(reference, weight), atol=1e-5)
    assert not np.allclose(low, high, atol=1e-4)
    first, last = series.checkpoints[0].truth, series.checkpoints[-1].truth
    assert first is not None
    assert last is not None
    assert {group: -dose for group, dose in first.items()} == dict(last)
    assert sorted(set(last.values())) == [-0.15, 0.15]


def test_layers_up_to_the_edited_block_are_the_reference_s(built: Callable[[str], tuple[Model, Context]]) -> None:
    reference, context = built("llama")
    model = edited(reference, context, layer=2, ratios=[1.0]).checkpoints[0].model
    ids = torch.tensor([[1, 5, 9, 30, 41]])
    states = []
    for one in (reference, model):
        with one.open() as loaded, torch.inference_mode():
            states.append(loaded.model(input_ids=ids, output_hidden_states=True).hidden_states)
    assert model.shared_below == 2
    assert [torch.equal(a, b) for a, b in zip(*states, strict=True)] == [True, True, True, False, False]


def test_directions(built: Callable[[str], tuple[Model, Context]]) -> None:
    reference, context = built("llama")
    basis = edit_basis(reference, context, 2)
    drawn = [basis.orthogonal(np.random.default_rng(seed)) for seed in (0, 1)]
    for vector in drawn:
        assert abs(vector @ basis.valence) < 1e-12
        assert np.linalg.norm(vector) == pytest.approx(1)
    assert abs(drawn[0] @ drawn[1]) < 0.9
    series = {
        direction: edited(reference, context, layer=2, ratios=[1.0], direction=direction)
        for direction in ("valence", "random", "all_negative")
    }
    assert len({one.checkpoints[0].model.fingerprint for one in series.values()}) == 3
    assert series["all_negative"].checkpoints[0].truth == dict.fromkeys(GROUPS, 0.15)


def test_a_basis_is_measured_once(
    built: Callable[[str], tuple[Model, Context]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, context = built("llama")
    first = edited(reference, context, seed=5)

    def refuse(*args: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(editing, "_measure", refuse)
    again = edited(reference, context, seed=5)
    assert [c.model.fingerprint for c in again.checkpoints] == [c.model.fingerprint for c in first.checkpoints]
    assert edited(reference, context, seed=6).checkpoints[0].truth != first.checkpoints[0].truth


@pytest.mark.parametrize("family", ["gemma2", "gemma3"])
def test_a_norm_behind_the_mlp_is_refused(family: str, built: Callable[[str], tuple[Model, Context]]) -> None:
    reference, context = built(family)
    with pytest.raises(UsageError, match=r"normalised or scaled before it joins the hidden state.*checkpoints=planted"):
        edited(reference, context)


def test_a_model_without_such_a_matrix_is_refused(built: Callable[[str], tuple[Model, Context]]) -> None:
    reference, context = built("bert")
    with pytest.raises(UsageError, match="no single MLP output matrix"):
        edited(reference, context)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 4}, r"checkpoints\.layer=4: .* has blocks 0 to 3"),
        ({"dose": -1.0}, r"checkpoints\.dose=-1\.0: expected 0 or more"),
        ({"ratios": []}, r"checkpoints\.ratios is empty"),
        ({"ratios": [0.0, 1.5]}, r"checkpoints\.ratios holds 1\.5"),
        ({"ratios": [0.5, 0.5]}, "a number twice"),
    ],
)
def test_wrong_options(options: dict, message: str, built: Callable[[str], tuple[Model, Context]]) -> None:
    reference, context = built("llama")
    with pytest.raises(UsageError, match=message):
        edited(reference, context, **options)
