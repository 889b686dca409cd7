"""Merges that are set in place: against the written ones, the dense sums, and the ends."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import refbias
from refbias.cache import Cache
from refbias.checkpoints import Series
from refbias.checkpoints.audited import audited_series
from refbias.checkpoints.ends import find_ends
from refbias.checkpoints.merge import merge
from refbias.checkpoints.writing import write
from refbias.context import Context
from refbias.encoders import ENCODERS
from refbias.encoding import embed
from refbias.errors import RefbiasError, UsageError
from refbias.models import DerivedModel, Model, find_model
from refbias.models.base import _slots
from refbias.models.hf import FolderModel
from refbias.models.weights import rounded
from refbias.pooling import built_in
from refbias.watch import Quiet
from tests.tiny_adapters import write_adapter
from tests.tiny_models import SENTENCES, write_tiny

FAMILIES = ("llama", "mistral", "gemma3", "gpt2", "sharded")  # tied: llama, gemma3, gpt2; in several files: sharded
IDS = torch.tensor([[1, 5, 9, 30, 41, 7]])
Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A second model of each family."""
    root = tmp_path_factory.mktemp("others")
    return {family: write_tiny(family, root / family, seed=8) for family in FAMILIES}


def weights(model: Model, dtype: str = "float32") -> Weights:
    with model.open(dtype=dtype) as loaded:
        return {name: value.clone() for name, value in loaded.whole.state_dict().items()}


def layers(model: Model, dtype: str = "float32") -> list[torch.Tensor]:
    with model.open_causal(dtype=dtype) as loaded, torch.inference_mode():
        output = loaded.causal(input_ids=IDS, output_hidden_states=True)
    return [*output.hidden_states, output.logits]


def same(one: Any, two: Any) -> bool:
    pairs = [(one[k], two[k]) for k in two] if isinstance(two, dict) else list(zip(one, two, strict=True))
    return all(torch.equal(a, b) for a, b in pairs)


def series_of(reference: Path, start: Path, end: Path, ratios: list[float], context: Context) -> Series:
    return merge(find_model(reference, cache=context.cache), context, start=str(start), end=str(end), ratios=ratios)


def pair(kind: str, family: str, tiny: dict[str, Path], others: dict[str, Path], place: Path) -> tuple[Path, Path]:
    """The two ends of a merge of one kind."""
    if kind == "full":
        return tiny[family], others[family]
    options: dict[str, dict[str, Any]] = {
        "dora": {"use_dora": True},
        "norms": {"modules_to_save": ["ln_f" if family == "gpt2" else "norm"]},
    }
    more = options.get(kind, {})
    method = "IA3" if kind == "ia3" else "LORA"
    two = write_adapter(tiny[family], place / "two", 2, method, family, **more)
    if kind == "lora and base":
        return tiny[family], two
    return write_adapter(tiny[family], place / "one", 1, method, family, **more), two


KINDS = ("full", "lora", "lora and base", "dora", "ia3", "norms")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_in_place_written_and_dense_sums_agree_bit_for_bit(
    kind: str, family: str, tiny: dict[str, Path], others: dict[str, Path], tmp_path: Path, context: Context
) -> None:
    start, end = pair(kind, family, tiny, others, tmp_path)
    cache = context.cache
    series = series_of(tiny[family], start, end, [0.0, 0.3, 1.0], context)
    write(find_ends(str(start), str(end), context), 0.3, tmp_path / "written")
    written = find_model(tmp_path / "written", cache=cache)
    ends = [find_model(folder, cache=cache) for folder in (start, end)]
    for checkpoint, wanted in zip(series.checkpoints, (ends[0], written, ends[1]), strict=True):
        assert same(weights(checkpoint.model), weights(wanted))
        assert same(layers(checkpoint.model), layers(wanted))
    one, two = map(weights, ends)
    found = weights(series.checkpoints[1].model)
    for name in found:
        dense = 0.7 * one[name].double() + 0.3 * two[name].double()
        if kind == "full":
            assert torch.equal(found[name], dense.float())
        else:  # the ends that are loaded have been rounded already
            torch.testing.assert_close(found[name].double(), dense, rtol=3e-7, atol=1e-7)
    assert not same(layers(series.checkpoints[1].model), layers(find_model(tiny[family], cache=cache)))


@pytest.mark.parametrize("kind", ["full", "lora", "dora"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_in_16_bits_each_weight_is_rounded_once(
    kind: str, family: str, tiny: dict[str, Path], others: dict[str, Path], tmp_path: Path, context: Context
) -> None:
    start, end = pair(kind, family, tiny, others, tmp_path)
    write(find_ends(str(start), str(end), context), 0.3, tmp_path / "written", dtype="bfloat16")
    written = weights(find_model(tmp_path / "written", cache=context.cache), "bfloat16")
    series = series_of(tiny[family], start, end, [0.0, 0.3, 1.0], context)
    assert same(weights(series.checkpoints[1].model, "bfloat16"), written)
    for folder, checkpoint in ((start, series.checkpoints[0]), (end, series.checkpoints[2])):
        assert same(weights(checkpoint.model, "bfloat16"), weights(find_model(folder, cache=context.cache), "bfloat16"))
    if kind == "full":
        one, two = (weights(find_model(folder, cache=context.cache)) for folder in (start, end))
        for name, value in written.items():
            dense = 0.7 * one[name].double() + 0.3 * two[name].double()
            assert torch.equal(value, rounded(dense, torch.bfloat16))


def test_low_rank_changes_are_added_up_exactly(tiny: dict[str, Path], tmp_path: Path, context: Context) -> None:
    """W + 0.7 ΔW₁ + 0.3 ΔW₂ in float64, rounded once; mixing the factors A and B would give something else."""
    one, two = (write_adapter(tiny["llama"], tmp_path / str(seed), seed, r=3) for seed in (1, 2))
    checkpoint = series_of(tiny["llama"], one, two, [0.3], context).checkpoints[0]
    found, base = weights(checkpoint.model), weights(find_model(tiny["llama"], cache=context.cache))
    name = "model.layers.2.mlp.down_proj"
    factors = [load_file(folder / "adapter_model.safetensors") for folder in (one, two)]
    a, b = ([f[f"base_model.model.{name}.lora_{x}.weight"].double() for f in factors] for x in "AB")
    scale = 4 / 3
    dense = base[f"{name}.weight"].double() + 0.7 * scale * (b[0] @ a[0]) + 0.3 * scale * (b[1] @ a[1])
    assert torch.equal(found[f"{name}.weight"], dense.float())
    mixed = (0.7 * b[0] + 0.3 * b[1]) @ (0.7 * a[0] + 0.3 * a[1])
    assert (base[f"{name}.weight"] + scale * mixed - dense).abs().max() > 0.01


def test_methods_that_only_peft_merges(tiny: dict[str, Path], tmp_path: Path, context: Context) -> None:
    one = write_adapter(tiny["llama"], tmp_path / "one", 1, "HRA", r=2, target_modules=["q_proj"])
    two = write_adapter(tiny["llama"], tmp_path / "two", 2, "LOHA", r=2, target_modules=["v_proj"])
    series = series_of(tiny["llama"], one, two, [0.0, 0.5, 1.0], context)
    ends = [weights(find_model(folder, cache=context.cache)) for folder in (one, two)]
    assert same(weights(series.checkpoints[0].model), ends[0]) and same(weights(series.checkpoints[2].model), ends[1])
    half = weights(series.checkpoints[1].model)
    assert all(torch.equal(half[n], (0.5 * ends[0][n].double() + 0.5 * ends[1][n].double()).float()) for n in half)
    assert len(series.report["notes"]) == 4


def test_states_follow_each_other_and_the_reference_comes_back(
    tiny: dict[str, Path], others: dict[str, Path], tmp_path: Path, context: Context, fresh_models: None
) -> None:
    reference = find_model(tiny["llama"], cache=context.cache)
    before = weights(reference)
    for kind in ("full", "lora", "dora"):
        start, end = pair(kind, "llama", tiny, others, tmp_path / kind)
        series = series_of(tiny["llama"], start, end, [0.0, 0.5, 1.0], context)
        first = [weights(checkpoint.model) for checkpoint in series.checkpoints]
        assert same(weights(reference), before)
        assert all(same(weights(series.checkpoints[k].model), first[k]) for k in (2, 0, 1))
        assert same(weights(reference), before)
    assert len(_slots) == 1  # one model is in memory, and all of these were set in it


@pytest.fixture
def half_tuned(tiny: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """Llamas with other weights from block 2 on ("a", "b"), and from block 1 on in a way of their own ("c", "d")."""
    found = {}
    generator = torch.Generator().manual_seed(4)
    common: Weights = {}
    for name, first in (("a", 2), ("b", 2), ("c", 1), ("d", 1)):
        folder = found[name] = Path(shutil.copytree(tiny["llama"], tmp_path / name))
        tensors = load_file(folder / "model.safetensors")
        for key, tensor in tensors.items():
            block = int(key.split(".")[2]) if ".layers." in key else -1
            if block >= first:
                moved = tensor + 0.05 * torch.randn(tensor.shape, generator=generator)
                tensors[key] = common.setdefault(key, moved) if block < 2 else moved
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return found


@pytest.mark.parametrize(("start", "end", "home", "below"), [("a", "b", "llama", 2), ("c", "d", "c", 2)])
def test_lower_layers_that_the_ends_share_are_encoded_once(
    start: str, end: str, home: str, below: int, tiny: dict[str, Path], half_tuned: dict[str, Path], context: Context
) -> None:
    """With the reference where both equal it that far, else with each other."""
    series = series_of(tiny["llama"], half_tuned[start], half_tuned[end], [0.0, 0.4, 1.0], context)
    assert series.report["set_in"] == str({**half_tuned, **tiny}[home])
    assert [checkpoint.model.shared_below for checkpoint in series.checkpoints] == [below] * 3
    cache = context.cache
    models = [find_model(half_tuned[start], cache=cache), None, find_model(half_tuned[end], cache=cache)]
    for checkpoint, alone in zip(series.checkpoints, models, strict=True):
        encoder = ENCODERS["hf"](checkpoint.model, context)
        assert encoder.shared is not None and encoder.shared[0] == below
        found = embed(encoder, SENTENCES, range(5), [built_in("mean")], Cache(None)).vectors
        if alone is not None:
            whole = embed(ENCODERS["hf"](alone, context), SENTENCES, range(5), [built_in("mean")], Cache(None)).vectors
            for key, rows in whole.items():
                assert (found[key] == rows).all()


def test_the_ends_keep_their_fingerprints(tiny: dict[str, Path], others: dict[str, Path], context: Context) -> None:
    """So that vectors of an end that was audited by itself are not encoded again."""
    series = series_of(tiny["llama"], tiny["llama"], others["llama"], [0.0, 0.3, 0.7, 1.0], context)
    prints = [checkpoint.model.fingerprint for checkpoint in series.checkpoints]
    assert prints[0] == find_model(tiny["llama"], cache=context.cache).fingerprint
    assert prints[3] == find_model(others["llama"], cache=context.cache).fingerprint
    assert len(set(prints)) == 4
    again = series_of(others["llama"], tiny["llama"], others["llama"], [0.3], context)
    assert again.checkpoints[0].model.fingerprint == prints[1]  # whatever the reference is


def test_an_end_with_another_chat_template_is_not_taken_for_itself(
    tiny: dict[str, Path], others: dict[str, Path], tmp_path: Path, context: Context
) -> None:
    end = Path(shutil.copytree(others["llama"], tmp_path / "end"))
    (end / "chat_template.jinja").write_text("{{ messages }}")
    series = series_of(tiny["llama"], tiny["llama"], end, [0.0, 1.0], context)
    assert series.checkpoints[0].model.fingerprint == find_model(tiny["llama"], cache=context.cache).fingerprint
    assert series.checkpoints[1].model.fingerprint != find_model(end, cache=context.cache).fingerprint


def test_changes_are_told_where_they_are_a_sum(
    tiny: dict[str, Path], others: dict[str, Path], tmp_path: Path, context: Context
) -> None:
    def of(kind: str) -> Any:
        start, end = pair(kind, "llama", tiny, others, tmp_path / kind)
        model = series_of(tiny["llama"], start, end, [0.3], context).checkpoints[0].model
        assert isinstance(model, DerivedModel)
        return model.changes

    assert of("full") is None and of("dora") is None
    assert [coefficient for coefficient, _ in of("lora")] == [0.7, 0.3]
    assert [coefficient for coefficient, _ in of("lora and base")] == [0.3]


class Listening(Quiet):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_base_that_is_not_the_reference_is_said(
    tiny: dict[str, Path], others: dict[str, Path], tmp_path: Path, cache: Cache
) -> None:
    watch = Listening()
    context = Context(cache, watch=watch)
    start, end = pair("lora", "llama", tiny, others, tmp_path)
    copy = Path(shutil.copytree(tiny["llama"], tmp_path / "copy"))
    assert "notes" not in series_of(copy, start, end, [0.5], context).report and not watch.said
    (note,) = series_of(others["llama"], start, end, [0.5], context).report["notes"]
    assert note.startswith(f"the ends are adapters of {tiny['llama']}, which is not the reference {others['llama']}")
    assert watch.said == [f"T{note[1:]}."]
    series = series_of(tiny["gpt2"], tiny["llama"], others["llama"], [0.5], context)
    assert series.report["notes"] == [
        f"the reference {tiny['gpt2']} is no model of the architecture of {tiny['llama']}"
    ]


def test_an_audited_adapter_is_loaded_on_its_own_base(
    tiny: dict[str, Path], others: dict[str, Path], tmp_path: Path, cache: Cache
) -> None:
    watch = Listening()
    context = Context(cache, watch=watch)
    adapter = str(write_adapter(tiny["llama"], tmp_path / "adapter"))
    copy = Path(shutil.copytree(tiny["llama"], tmp_path / "copy"))
    for reference in (tiny["llama"], copy):  # the base itself, and the same by another path
        series = audited_series(find_model(reference, cache=cache), [adapter, str(others["llama"])], context)
        assert series.report == {} and not watch.said
    series = audited_series(find_model(others["llama"], cache=cache), [adapter, adapter], context)
    assert [checkpoint.name for checkpoint in series.checkpoints] == [f"{adapter} (1)", f"{adapter} (2)"]
    note = f"{adapter} is an adapter of {tiny['llama']}, which is not the reference {others['llama']}"
    assert all(text.startswith(note) for text in series.report["notes"]) and watch.said[0].startswith(note)
    with pytest.raises(UsageError, match="names no model"):
        audited_series(find_model(tiny["llama"], cache=cache), [], context)


def gemma3_with_eyes(folder: Path, seed: int) -> Path:
    """A tiny Gemma 3 that also takes images: its files call the weights otherwise than its module does."""
    import transformers as t

    write_tiny("gemma3", folder)
    text = t.AutoConfig.from_pretrained(folder)
    text.vocab_size += 8
    looks = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = t.SiglipVisionConfig(**looks, image_size=28, patch_size=14)
    last = text.vocab_size - 1
    numbers = {"image_token_index": last, "boi_token_index": last - 1, "eoi_token_index": last - 2}
    torch.manual_seed(seed)
    config = t.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, **numbers)
    model = t.Gemma3ForConditionalGeneration(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.3)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_files_that_call_their_weights_otherwise(kind: str, tmp_path: Path, context: Context) -> None:
    base = gemma3_with_eyes(tmp_path / "base", 1)
    assert "language_model.model.norm.weight" in load_file(base / "model.safetensors")
    if kind == "full":
        start, end = base, gemma3_with_eyes(tmp_path / "end", 2)
    else:
        names = r".*language_model.*(q_proj|down_proj)"
        start, end = (write_adapter(base, tmp_path / str(seed), seed, target_modules=names) for seed in (1, 2))
    series = series_of(base, start, end, [0.0, 0.3, 1.0], context)
    write(find_ends(str(start), str(end), context), 0.3, tmp_path / "written")
    for checkpoint, folder in zip(series.checkpoints, (start, tmp_path / "written", end), strict=True):
        assert same(weights(checkpoint.model), weights(find_model(folder, cache=context.cache)))


def test_ends_that_tie_their_heads_in_different_ways(tiny: dict[str, Path], tmp_path: Path, context: Context) -> None:
    """One with a head of its own: the merges have one too, and are set in the end that has it."""
    from transformers import AutoModelForCausalLM

    untied = Path(shutil.copytree(tiny["llama"], tmp_path / "untied"))
    model = AutoModelForCausalLM.from_pretrained(tiny["llama"])
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach() * 1.5)
    model.save_pretrained(untied)
    for start, end in ((tiny["llama"], untied), (untied, tiny["llama"])):
        series = series_of(tiny["llama"], start, end, [0.0, 0.5, 1.0], context)
        assert series.report["set_in"] == str(untied)
        place = tmp_path / f"written from {start.name}"
        write(find_ends(str(start), str(end), context), 0.5, place)
        half = layers(series.checkpoints[1].model)
        assert same(half, layers(find_model(place, cache=context.cache)))
        for checkpoint, folder in zip(series.checkpoints[::2], (start, end), strict=True):
            assert same(layers(checkpoint.model), layers(find_model(folder, cache=context.cache)))


@pytest.mark.parametrize("family", ["llama", "sharded"])
def test_vocabularies_that_have_grown(family: str, tiny: dict[str, Path], tmp_path: Path, context: Context) -> None:
    folders = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        grown = write_adapter(
            tiny[family],
            tmp_path / str(seed),
            seed,
            prepare=lambda model: model.resize_token_embeddings(280, mean_resizing=False),
        )
        folders.append(grown)
    series = series_of(tiny[family], folders[0], folders[1], [0.0, 0.4, 1.0], context)
    write(find_ends(*map(str, folders), context), 0.4, tmp_path / "written")
    written = find_model(tmp_path / "written", cache=context.cache)
    wanted = (find_model(folders[0], cache=context.cache), written, find_model(folders[1], cache=context.cache))
    for checkpoint, model in zip(series.checkpoints, wanted, strict=True):
        assert same(weights(checkpoint.model), weights(model)) and weights(model)["lm_head.weight"].shape[0] == 280


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_ends_that_change_after_they_were_found(
    kind: str, tiny: dict[str, Path], others: dict[str, Path], tmp_path: Path, context: Context, fresh_models: None
) -> None:
    start, end = pair(kind, "llama", tiny, others, tmp_path)
    end = Path(shutil.copytree(end, tmp_path / "end"))
    series = series_of(tiny["llama"], start, end, [0.5], context)
    file = next(end.glob("*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(RefbiasError, match="changed while it was read"), series.checkpoints[0].model.open():
        pass


def test_a_weight_that_is_no_number(
    tiny: dict[str, Path], others: dict[str, Path], tmp_path: Path, context: Context
) -> None:
    end = Path(shutil.copytree(others["llama"], tmp_path / "end"))
    tensors = load_file(end / "model.safetensors")
    tensors["model.layers.2.mlp.up_proj.weight"][5, 3] = float("nan")
    save_file(tensors, end / "model.safetensors", {"format": "pt"})
    before = weights(find_model(tiny["llama"], cache=context.cache))
    model = series_of(tiny["llama"], tiny["llama"], end, [0.5], context).checkpoints[0].model
    message = r"Weight 'model\.layers\.2\.mlp\.up_proj\.weight' of .*end holds NaN or infinity"
    with pytest.raises(RefbiasError, match=message), model.open():
        pass
    assert same(weights(find_model(tiny["llama"], cache=context.cache)), before)


@pytest.mark.parametrize("ratios", [[0.5, 1.5], [-0.1], [], [0.5, 0.5]])
def test_ratios_outside_of_the_line(
    ratios: list[float], tiny: dict[str, Path], others: dict[str, Path], context: Context
) -> None:
    with pytest.raises(UsageError, match=r"checkpoints\.ratios"):
        series_of(tiny["llama"], tiny["llama"], others["llama"], ratios, context)


def test_an_audit_of_a_spectrum_writes_no_weights(
    tiny: dict[str, Path], others: dict[str, Path], tmp_path: Path
) -> None:
    result = refbias.audit(
        str(tiny["llama"]),
        checkpoints=("merge", {"start": str(tiny["llama"]), "end": str(others["llama"])}),
        groups=["Women", "Men"],
        anchors=[*SENTENCES],
        cache=str(tmp_path / "cache"),
        draws=100,
    )
    entries = result.data["checkpoints"]
    assert [entry["ratio"] for entry in entries] == [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
    assert entries[0]["mean_delta_b"] == 0 and entries[-1]["mean_delta_b"] != 0
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lora", "full"])
def test_the_spectrum_of_a_real_model(kind: str, smollm2: Model, tmp_path: Path, shared_cache: Cache) -> None:
    """In place and written agree on every weight of SmolLM2, and the reference comes back."""
    context = Context(shared_cache)
    base = find_model("smollm2", cache=shared_cache)
    assert isinstance(base, FolderModel)
    before = weights(base)
    if kind == "lora":
        start, end = (write_adapter(base.folder, tmp_path / str(seed), seed, r=16) for seed in (1, 2))
    else:
        start, end = base.folder, Path(shutil.copytree(base.folder, tmp_path / "end"))
        tensors = load_file(end / "model.safetensors")
        generator = torch.Generator().manual_seed(1)
        moved = {n: t + 0.01 * t.std() * torch.randn(t.shape, generator=generator) for n, t in tensors.items()}
        save_file(moved, end / "model.safetensors", {"format": "pt"})
    series = merge(base, context, start=str(start), end=str(end), ratios=[0.0, 0.3, 1.0])
    write(find_ends(str(start), str(end), context), 0.3, tmp_path / "written")
    folders = (start, tmp_path / "written", end)
    for checkpoint, folder in zip(series.checkpoints, folders, strict=True):
        assert same(weights(checkpoint.model), weights(find_model(folder, cache=shared_cache)))
    assert same(weights(base), before)
