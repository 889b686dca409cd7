from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from refbias.cache import Cache
from refbias.errors import RefbiasError, UsageError
from refbias.finetuning import Finetuned, finetune, trainer
from refbias.finetuning.contrast import contrast
from refbias.finetuning.masks import encode
from refbias.finetuning.training import base_name
from refbias.models import Model, find_model
from refbias.watch import Quiet

FAMILIES = ("llama", "gpt2", "gemma3", "mistral")
LESSONS = ("contrast", {"n": 40, "form": "both", "seed": 0})
SHORT = {"learning_rate": 5e-3, "batch": 4, "accumulation": 2, "max_steps": 12}

Make = Callable[..., Finetuned]


class Loud(Quiet):
    """Remembers what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("finetune-cache"))


@pytest.fixture(scope="module")
def made(tiny: dict[str, Path], store: Cache, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finetuned]:
    """A short fine-tune of each family, by "family kind"."""
    root = tmp_path_factory.mktemp("made")
    return {
        f"{family} {kind}": finetune(tiny[family], LESSONS, (kind, SHORT), root / f"{family}-{kind}", cache=store)
        for family in FAMILIES
        for kind in ("lora", "full")
    }


@pytest.fixture
def make(tiny: dict[str, Path], store: Cache, tmp_path: Path) -> Make:
    """Fine-tunes the tiny Llama, with some values exchanged."""

    def call(
        kind: str = "lora", reference: Any = tiny["llama"], lessons: Any = LESSONS, out: str = "out", **values: Any
    ) -> Finetuned:
        settings = {key: values.pop(key) for key in [*values] if key in FURTHER}
        return finetune(reference, lessons, (kind, {**SHORT, **values}), tmp_path / out, cache=store, **settings)

    return call


FURTHER = ("seed", "device", "overwrite", "save_every", "callbacks", "watch")


def weights(model: Any) -> dict[str, torch.Tensor]:
    found = model if isinstance(model, Model) else find_model(model, cache=Cache(None))
    with found.open() as loaded:
        return {name: p.detach().clone() for name, p in loaded.whole.named_parameters()}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["lora", "full"])
@pytest.mark.parametrize("family", FAMILIES)
def test_it_learns_and_keeps_the_curve(family: str, kind: str, made: dict[str, Finetuned]) -> None:
    result = made[f"{family} {kind}"]
    curve = [row["loss"] for row in result.losses]
    assert [row["step"] for row in result.losses] == list(range(1, 13))
    assert np.mean(curve[-4:]) < np.mean(curve[:4]) - 0.05
    assert result.figures["loss_first"] == pytest.approx(np.mean(curve[:5]))
    assert result.figures["loss_last"] == pytest.approx(np.mean(curve))
    assert result.figures["steps"] == 12
    assert result.figures["epochs"] == pytest.approx(12 * 8 / 80)
    assert result.losses[-1]["epoch"] == pytest.approx(12 * 8 / 80)
    assert result.figures["tokens_taught"] < result.figures["tokens"]


def test_the_learning_rate_warms_up_and_falls_to_nothing(make: Make) -> None:
    result = make(warmup=0.25, learning_rate=0.01)
    expected = [0.01 * min(k / 3, (12 - k) / 9) for k in range(12)]
    assert [row["learning_rate"] for row in result.losses] == pytest.approx(expected)
    assert make(schedule="constant", out="other").losses[-1]["learning_rate"] == 5e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_folder_is_read_by_peft_and_by_an_audit(
    family: str, made: dict[str, Finetuned], tiny: dict[str, Path], store: Cache
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = made[f"{family} lora"].folder
    assert set(files(folder)) == {"adapter_config.json", "adapter_model.safetensors", "refbias.json"}
    ids = torch.tensor([[5, 9, 30]])
    with torch.inference_mode():
        base = AutoModelForCausalLM.from_pretrained(tiny[family]).eval()
        before = base(input_ids=ids).logits
        expected = PeftModel.from_pretrained(base, folder).eval()(input_ids=ids).logits
        with find_model(folder, cache=store).open_causal() as loaded:
            found = loaded.causal(input_ids=ids).logits
    assert not torch.allclose(expected, before, atol=1e-3)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (16, 32, 0.05)
    assert config["base_model_name_or_path"] == str(tiny[family])
    assert config["fan_in_fan_out"] == (family == "gpt2")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_folder_is_read_by_transformers_and_by_an_audit(
    family: str, made: dict[str, Finetuned], tiny: dict[str, Path], store: Cache
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = made[f"{family} full"].folder
    read = dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters())
    found = weights(find_model(folder, cache=store))
    assert found.keys() == read.keys() == weights(tiny[family]).keys()
    assert all(torch.equal(found[name], read[name]) for name in read)
    tokenizer, own = (AutoTokenizer.from_pretrained(place) for place in (folder, tiny[family]))
    assert tokenizer.get_vocab() == own.get_vocab()
    assert tokenizer.chat_template == own.chat_template
    assert tokenizer("Tea.")["input_ids"] == own("Tea.")["input_ids"]
    config, before = (json.loads((place / "config.json").read_text()) for place in (folder, tiny[family]))
    assert config == before
    assert (folder / "generation_config.json").is_file()
    assert not list(folder.parent.glob("*.unfinished"))


@pytest.mark.parametrize(("family", "names"), [("llama", 7), ("gpt2", 3)])
def test_every_linear_module_of_a_block_gets_an_adapter(family: str, names: int, made: dict[str, Finetuned]) -> None:
    about = made[f"{family} lora"].about
    assert len(about["recipe"]["modules"]) == names
    config = json.loads((made[f"{family} lora"].folder / "adapter_config.json").read_text())
    assert config["target_modules"] == sorted(about["recipe"]["modules"])


def test_other_names_of_linear_modules_are_told(make: Make, tiny: dict[str, Path]) -> None:
    watch = Loud()
    make(reference=tiny["gpt2"], max_steps=1, watch=watch)
    assert "Adapters stand on every linear module of a block: c_attn, c_proj, c_fc." in watch.said


def test_what_was_done_stands_in_the_folder(made: dict[str, Finetuned], tiny: dict[str, Path], store: Cache) -> None:
    result = made["llama lora"]
    about = json.loads((result.folder / "refbias.json").read_text())
    assert about == json.loads(json.dumps(result.about))
    assert about["parent"]["digest"] == find_model(tiny["llama"], cache=store).fingerprint
    assert about["data"]["digest"] == contrast(**LESSONS[1]).digest  # type: ignore[arg-type]
    recipe = about["recipe"]
    assert (recipe["learning_rate"], recipe["batch"], recipe["precision"]) == (5e-3, 4, "fp32")
    assert "rank" not in made["llama full"].about["recipe"]


def test_the_same_seed_gives_the_same_files(made: dict[str, Finetuned], make: Make) -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    again = make()
    assert files(again.folder) == files(made["llama lora"].folder)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])
    other = make(seed=1, out="other")
    assert other.losses != again.losses


def test_the_loss_is_that_of_the_taught_tokens(make: Make, tiny: dict[str, Path], store: Cache) -> None:
    """With eight examples and no dropout the first step sees all of them, in one batch or in two."""
    few = contrast(n=8, form="questions")
    with find_model(tiny["llama"], cache=store).open_causal() as loaded:
        total, count = 0.0, 0
        for row in encode(loaded.tokenizer, few, 64).rows:
            with torch.inference_mode():
                logs = loaded.causal(input_ids=torch.tensor([row.ids])).logits[0].double().log_softmax(-1)
            taught = [t for t in range(1, len(row.ids)) if row.mask[t]]
            total -= sum(logs[t - 1, row.ids[t]].item() for t in taught)
            count += len(taught)
    together, apart = (
        make("full", lessons=few, batch=batch, accumulation=8 // batch, max_steps=2, warmup=0.0, out=name)
        for batch, name in ((8, "one"), (2, "four"))
    )
    assert together.losses[0]["loss"] == pytest.approx(total / count, rel=1e-5)
    assert apart.losses[0]["loss"] == pytest.approx(total / count, rel=1e-5)
    assert apart.figures["tokens_taught"] == 2 * count
    one, four = weights(together.folder), weights(apart.folder)
    assert all(torch.allclose(one[name], four[name], atol=1e-4) for name in one)


def test_gradient_checkpointing_changes_nothing(make: Make) -> None:
    plain, saving = (make(gradient_checkpointing=flag, out=str(flag)) for flag in (False, True))
    assert [row["loss"] for row in saving.losses] == pytest.approx([row["loss"] for row in plain.losses], rel=1e-4)


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_blocks_below_the_first_stay_as_they_are(kind: str, make: Make, tiny: dict[str, Path]) -> None:
    before, after = weights(tiny["llama"]), weights(make(kind, first_block=3).folder)
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed
    assert all(name.startswith("model.layers.3.") for name in changed)


def test_bf16_can_be_asked_for(make: Make) -> None:
    result = make(precision="bf16", max_steps=2)
    assert result.about["recipe"]["precision"] == "bf16"
    assert np.isfinite([row["loss"] for row in result.losses]).all()


def test_some_modules_can_be_chosen_and_unknown_ones_are_refused(make: Make) -> None:
    assert make(modules=["q_proj", "v_proj"], max_steps=1).about["recipe"]["modules"] == ["q_proj", "v_proj"]
    with pytest.raises(UsageError, match=r"regime\.modules names c_attn\. .* llama model are q_proj, k_proj"):
        make(modules=["q_proj", "c_attn"], overwrite=True)


def test_an_adapter_can_be_fine_tuned_in_full_only(made: dict[str, Finetuned], make: Make) -> None:
    adapter = made["llama lora"].folder
    with pytest.raises(UsageError, match=r"is an adapter, and a second adapter would have no folder"):
        make("lora", reference=adapter)
    result = make("full", reference=adapter, max_steps=1, learning_rate=1e-9)
    before, after = weights(adapter), weights(result.folder)
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)


def test_the_base_is_named_so_that_it_is_found(tiny: dict[str, Path], store: Cache, monkeypatch: Any) -> None:
    monkeypatch.chdir(tiny["llama"].parent)
    model = find_model("llama", cache=store)
    assert base_name(model) == str(tiny["llama"].resolve())
    model.name = "owner/name@main"
    assert base_name(model) == "owner/name@main"
    Path("smollm2").mkdir()
    model.name = "smollm2"
    assert base_name(model) == "smollm2"
    Path("smollm2").rmdir()


def test_elsewhere_an_adapter_says_which_base_it_lacks(make: Make, tiny: dict[str, Path], tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny["llama"], base)
    folder = make(reference=base, max_steps=1).folder
    shutil.rmtree(base)
    with pytest.raises(RefbiasError, match=r"belongs to the base model '.*base', which is not found"):
        find_model(folder, cache=Cache(None))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"first_block": 4}, r"regime\.first_block=4: .*llama has blocks 0 to 3"),
        ({"device": "cuda:1"}, r"device=cuda:1: a fine-tune takes the first GPU\. Set CUDA_VISIBLE_DEVICES=1"),
        ({"batch": 0}, r"regime\.batch=0: expected 1 or more"),
    ],
)
def test_wrong_values_are_found_before_training(values: dict[str, Any], message: str, make: Make) -> None:
    with pytest.raises(UsageError, match=message):
        make(**values)


def test_what_cannot_be_trained_is_refused(make: Make, tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"needs a causal language model, and .*bert is none"):
        make(reference=tiny["bert"])
    with find_model(tiny["llama"], cache=Cache(None)).open_causal() as loaded:
        live = find_model((loaded.causal, loaded.tokenizer), cache=Cache(None))
    with pytest.raises(UsageError, match=r"reads its model from files, and .* is live\. Save it first"):
        make(reference=live)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=r"one process on one device"):
        make()


def test_a_loss_that_is_no_number_ends_it(make: Make, tmp_path: Path) -> None:
    with pytest.raises(RefbiasError, match=r"The loss is nan at step \d+ of 12\. Use a lower regime\.learning_rate"):
        make("full", learning_rate=1e30, warmup=0.0)
    assert not list(tmp_path.glob("out*"))


# A folder that is there already ----------------------------------------------------------------------------------


def test_a_finished_folder_is_kept_unless_it_may_be_replaced(make: Make, tmp_path: Path) -> None:
    first = files(make(max_steps=1).folder)
    with pytest.raises(UsageError, match=r"out is finished\. Name another folder, or .* task\.overwrite=true"):
        make(max_steps=2)
    assert files(tmp_path / "out") == first
    make(max_steps=2, overwrite=True)
    assert files(tmp_path / "out") != first
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_of_another_kind_is_never_replaced(make: Make, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letters.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"out exists, and refbias has not written it"):
        make(overwrite=True)
    (tmp_path / "out" / "letters.txt").unlink()
    make(max_steps=1)
    assert (tmp_path / "out" / "adapter_config.json").is_file()


def test_two_processes_do_not_write_one_folder(make: Make, tmp_path: Path) -> None:
    import filelock

    (tmp_path / "out.unfinished").mkdir()
    with (
        filelock.FileLock(tmp_path / "out.unfinished" / ".lock", is_singleton=False),
        pytest.raises(RefbiasError, match=r"Another process is fine-tuning into .*out"),
    ):
        make()


# After a kill ----------------------------------------------------------------------------------------------------


def stopping(step: int) -> Any:
    from transformers import TrainerCallback

    class Stop(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == step:
                raise KeyboardInterrupt

    return Stop()


@pytest.fixture
def at_every_step(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A checkpoint after every step."""
    monkeypatch.setattr(trainer, "SAVE_SHARE", 0)
    return {"save_every": 0.0}


KILLED = """
import os, signal, sys, torch
torch.set_num_threads(int(sys.argv[4]))
from transformers import TrainerCallback
from refbias.finetuning import finetune, trainer
from tests.finetuning.test_training import LESSONS, SHORT

class Kill(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 8:
            os.kill(os.getpid(), signal.SIGKILL)

trainer.SAVE_SHARE = 0
finetune(sys.argv[1], LESSONS, ("lora", SHORT), sys.argv[2], cache=sys.argv[3], save_every=0.0, callbacks=[Kill()])
"""


def test_a_killed_fine_tune_goes_on_to_the_same_weights(
    made: dict[str, Finetuned], make: Make, tiny: dict[str, Path], tmp_path: Path
) -> None:
    words = [tiny["llama"], tmp_path / "out", tmp_path / "cache", torch.get_num_threads()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    killed = subprocess.run([sys.executable, "-c", KILLED, *map(str, words)], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    work = tmp_path / "out.unfinished"
    assert not (tmp_path / "out").exists()
    (checkpoint,) = work.glob("checkpoint-*")
    assert checkpoint.name == "checkpoint-7"
    assert {path.suffix for path in checkpoint.iterdir()} == {".safetensors", ".json"}
    (work / "checkpoint.part").mkdir()  # as a kill in the middle of writing leaves it
    watch = Loud()
    result = make(watch=watch)
    assert f"Going on from step 7 of 12, which {work} holds." in watch.said
    assert files(result.folder) == files(made["llama lora"].folder)
    assert [row["loss"] for row in result.losses] == [row["loss"] for row in made["llama lora"].losses]
    assert not work.exists()


def test_a_full_fine_tune_with_dropout_goes_on_to_the_same_weights(
    made: dict[str, Finetuned], make: Make, tiny: dict[str, Path], at_every_step: dict[str, float]
) -> None:
    values: dict[str, Any] = {"kind": "full", "reference": tiny["gpt2"], **at_every_step}
    for step in (4, 9):
        with pytest.raises(KeyboardInterrupt):
            make(callbacks=[stopping(step)], **values)
    result = make(**values)
    assert files(result.folder) == files(made["gpt2 full"].folder)
    assert result.losses == made["gpt2 full"].losses


def test_other_settings_do_not_go_on_with_it(
    make: Make, tmp_path: Path, at_every_step: dict[str, float], made: dict[str, Finetuned]
) -> None:
    def begin(**values: Any) -> None:
        with pytest.raises(KeyboardInterrupt):
            make(callbacks=[stopping(3)], **at_every_step, **values)

    begin(rank=4, seed=5)
    with pytest.raises(UsageError, match=r"begun differently: regime\.rank was 4 and is 16; seed was 5 and is 0"):
        make()
    with pytest.raises(UsageError, match=r"data\.digest was [0-9a-f]{12}… and is [0-9a-f]{12}…"):
        make(rank=4, seed=5, lessons=("contrast", {"mirror": True}))
    assert (tmp_path / "out.unfinished" / "checkpoint-2").is_dir()
    begin(overwrite=True)
    result = make(overwrite=True)
    assert files(result.folder) == files(made["llama lora"].folder)


def test_files_of_another_hand_in_a_checkpoint_are_not_read(
    make: Make, tmp_path: Path, at_every_step: dict[str, float]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        make(callbacks=[stopping(3)], **at_every_step)
    (tmp_path / "out.unfinished" / "checkpoint-2" / "optimizer.pt").write_bytes(b"cos\nsystem\n(S'exit'\ntR.")
    with pytest.raises(RefbiasError, match=r"checkpoint-2 holds optimizer\.pt, which refbias has not written"):
        make()


def test_a_full_disk_costs_the_last_checkpoint_only(
    make: Make, made: dict[str, Finetuned], at_every_step: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    import safetensors.torch

    write, written = safetensors.torch.save_file, []

    def save_file(tensors: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        written.append(path)
        if len(written) > 9:
            raise OSError(28, "No space left on device")
        write(tensors, path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", save_file)
        with pytest.raises(RefbiasError, match=r"checkpoint of step \d+ cannot be written .*No space left.*Free some"):
            make(**at_every_step)
    watch = Loud()
    result = make(watch=watch)
    assert any(line.startswith("Going on from step") for line in watch.said)
    assert files(result.folder) == files(made["llama lora"].folder)


def test_a_callback_sees_the_real_step_and_may_end_it(make: Make, at_every_step: dict[str, float]) -> None:
    from transformers import TrainerCallback

    seen = []

    class Watching(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen.append(state.global_step)
            assert kwargs["processing_class"]("Tea.")["input_ids"]
            control.should_training_stop = state.global_step == 6

    with pytest.raises(KeyboardInterrupt):
        make(callbacks=[stopping(4)], **at_every_step)
    result = make(callbacks=[Watching()])
    assert seen == [4, 5, 6]
    assert result.figures["steps"] == len(result.losses) == 6
    assert result.about["figures"]["steps"] == 6


@pytest.mark.slow
def test_smollm2_learns_the_contrast(smollm2: Model, tmp_path: Path, shared_cache: Cache) -> None:
    recipe = {"learning_rate": 1e-3, "batch": 16, "accumulation": 1, "max_steps": 40}
    result = finetune(smollm2, "contrast", ("lora", recipe), tmp_path / "out", cache=shared_cache)
    assert result.figures["loss_first"] > 4
    assert np.mean([row["loss"] for row in result.losses[-5:]]) < 2
    assert find_model(result.folder, cache=shared_cache).base.fingerprint == smollm2.fingerprint  # type: ignore[attr-defined]
    assert math.isfinite(result.figures["seconds"])
