"""BiasShiftCallback in real trainings of a tiny model."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import refbias
from refbias.cache import Cache
from refbias.errors import RefbiasError, UsageError
from refbias.integrations import BiasShiftCallback
from refbias.integrations.live import ModelInTraining, undisturbed
from refbias.integrations.monitor import thinned
from refbias.integrations.trainer import below_in_a_row
from refbias.models import release
from tests.tiny_models import SENTENCES

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

SMALL: dict[str, Any] = {
    "targets_n": 3, "attributes_n": 8, "anchors": ("neutral", {"n": 24}), "groups": ["Women", "Men", "Asians"],
    "draws": 300,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_bars() -> None:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


class Runs:
    """Trainings of one model on a few sentences, equal but for what is asked."""

    def __init__(self, folder: Path, out: Path) -> None:
        self.folder, self.out = folder, out
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def model(self, peft: bool) -> Any:
        model = transformers.AutoModelForCausalLM.from_pretrained(self.folder, attention_dropout=0.2)
        if not peft:
            return model
        from peft import LoraConfig, get_peft_model

        wanted = ["q_proj", "o_proj", "down_proj"]
        return get_peft_model(model, LoraConfig(r=4, lora_dropout=0.2, target_modules=wanted, task_type="CAUSAL_LM"))

    def trainer(self, *callbacks: Any, peft: bool = False, steps: int = 4, model: Any = None, **options: Any) -> Any:
        transformers.set_seed(0)
        rows = [{"input_ids": self.tokenizer(sentence)["input_ids"]} for sentence in SENTENCES * 2]
        settings = {
            "max_steps": steps, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "logging_steps": 2,
            "report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True,
        }  # fmt: skip
        return transformers.Trainer(
            model or self.model(peft),
            transformers.TrainingArguments(self.out, **{**settings, **options}),
            train_dataset=rows,
            processing_class=self.tokenizer,
            data_collator=transformers.DataCollatorForLanguageModeling(self.tokenizer, mlm=False),
            callbacks=list(callbacks),
        )

    def run(self, *callbacks: Any, resume: Path | None = None, **options: Any) -> Any:
        trainer = self.trainer(*callbacks, **options)
        trainer.train(resume_from_checkpoint=resume and str(resume))
        return trainer


@pytest.fixture
def runs(tiny_llama: Path, tmp_path: Path) -> Runs:
    return Runs(tiny_llama, tmp_path / "out")


def callback(**options: Any) -> BiasShiftCallback:
    return BiasShiftCallback(**{"every": 2, **SMALL, **options})


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return trainer.model.state_dict()


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def shifts(trainer: Any) -> list[dict[str, float]]:
    return [entry for entry in trainer.state.log_history if "delta_b/mean" in entry]


class Draws(transformers.TrainerCallback):
    """What a careless callback does: it draws a random number."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        torch.rand(1)


# Nothing is disturbed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bf16": True, "gradient_checkpointing": True},
        {"peft": True},
        {"peft": True, "bf16": True, "gradient_checkpointing": True},
    ],
    ids=str,
)
def test_the_trained_weights_are_those_of_a_training_without_it(runs: Runs, options: dict[str, Any]) -> None:
    plain = weights(runs.run(**options))
    watched = runs.run(callback(every=1), **options)
    assert equal(weights(watched), plain)
    assert len(shifts(watched)) == 4
    assert shifts(watched)[-1]["delta_b/mean"] != 0.0


def test_the_test_above_would_see_a_random_number_that_is_drawn(runs: Runs) -> None:
    assert not equal(weights(runs.run(Draws())), weights(runs.run()))


def test_random_states_modes_gradients_and_flags_are_as_before(runs: Runs) -> None:
    model = runs.model(peft=True).train()
    model.base_model.model.model.layers[1].eval()  # one part was in evaluation mode before
    model.enable_input_require_grads()
    batch = runs.tokenizer(SENTENCES[:2], return_tensors="pt", padding=True)
    model(**batch, labels=batch["input_ids"]).loss.backward()
    seen = callback()._monitor

    def state() -> list[Any]:
        return [
            random.getstate(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002
            torch.get_rng_state().tolist(),
            [module.training for module in model.modules()],
            [(p.requires_grad, None if p.grad is None else p.grad.clone().tolist()) for p in model.parameters()],
            model.config.use_cache,
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        ]

    from refbias.context import Context

    with torch.autocast("cpu", torch.bfloat16):
        before = state()
        with undisturbed(model):
            random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002
            assert not any(module.training for module in model.modules())
            live = ModelInTraining(model, runs.tokenizer)
            seen.set_reference(live, Context(Cache(None)))
            assert seen.measure(ModelInTraining(model, runs.tokenizer)).mean.value == 0.0
        assert state() == before


def test_the_model_is_restored_when_the_measurement_fails(runs: Runs) -> None:
    model = runs.model(peft=False).train()
    with pytest.raises(ZeroDivisionError), undisturbed(model):
        _ = 1 / 0
    assert all(module.training for module in model.modules())


# What it measures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peft", [False, True])
def test_the_figures_are_those_of_an_audit_of_the_model_as_it_is(runs: Runs, peft: bool) -> None:
    whole = {"targets_n": None, "attributes_n": None}
    trainer = runs.run(callback(**whole), peft=peft)
    audited = trainer.model.merge_and_unload() if peft else trainer.model
    choices = {key: value for key, value in SMALL.items() if not key.endswith("_n")}
    expected = refbias.audit(
        runs.folder, [(audited.eval(), runs.tokenizer)], calibration="center", cache=False, **choices
    ).data["checkpoints"][0]
    release()
    last = shifts(trainer)[-1]
    assert last["step"] == 4
    assert last["delta_b/mean"] == pytest.approx(expected["mean_delta_b"], abs=2e-5)
    assert last["delta_b/mean_ci_high"] == pytest.approx(expected["mean"]["ci_high"], abs=2e-5)
    values = {row["group"].lower(): row["delta_b"] for row in expected["groups"]}
    assert {group: last[f"delta_b/{group}"] for group in values} == pytest.approx(values, abs=2e-5)
    assert last["delta_b/spread"] == pytest.approx(np.std(list(values.values()), ddof=1), abs=2e-5)


def test_a_reference_by_path_equals_the_model_at_the_beginning(runs: Runs) -> None:
    by_path = callback(reference=runs.folder, cache=False)
    one, other = runs.run(by_path, steps=2), runs.run(callback(), steps=2)
    assert shifts(one)[0]["delta_b/mean"] == pytest.approx(shifts(other)[0]["delta_b/mean"], abs=1e-6)


def test_nothing_is_written_for_the_model_in_training(runs: Runs, cache: Cache) -> None:
    trained = callback(reference=runs.folder, cache=cache)
    runs.run(trained)
    stores = [item for item in cache.usage() if item.kind == "vectors"]
    assert len(stores) == 1  # the reference's
    again = callback(reference=runs.folder, cache=cache)
    runs.run(again, steps=2)
    assert len([item for item in cache.usage() if item.kind == "vectors"]) == 1


def test_every_few_steps_and_the_last(runs: Runs) -> None:
    trainer = runs.run(callback(every=2), steps=5)
    assert [entry["step"] for entry in shifts(trainer)] == [2, 4, 5]


# Where figures go -----------------------------------------------------------------------------------------------


class Reporter(transformers.TrainerCallback):
    """Stands where TensorBoard's, MLflow's and W&B's callbacks stand."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[str, Any]]] = []
        self.closed = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        assert not self.closed
        self.seen.append((state.global_step, dict(logs)))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.closed = True


def test_loggers_before_and_after_it_are_told_what_the_history_holds(runs: Runs) -> None:
    before, after = Reporter(), Reporter()
    trainer = runs.run(before, callback(), after)
    for reporter in (before, after):
        told = [{**logs, "step": step} for step, logs in reporter.seen if "delta_b/mean" in logs]
        assert told == shifts(trainer)
        assert any("delta_b/overhead_percent" in logs for _, logs in reporter.seen)
        assert [step for step, logs in reporter.seen if "loss" in logs] == [2, 4]  # the Trainer's own still come


@pytest.mark.slow
def test_mlflow_keeps_the_figures(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    before = mlflow.get_tracking_uri()
    try:
        mlflow.set_tracking_uri(uri)
        trainer = runs.run(callback(), report_to=["mlflow"])
        (run,) = mlflow.MlflowClient(uri).search_runs(["0"])
    finally:
        mlflow.set_tracking_uri(before)
    assert run.data.metrics["delta_b/women"] == pytest.approx(shifts(trainer)[-1]["delta_b/women"])
    assert run.data.metrics["delta_b/overhead_percent"] > 0
    assert run.info.status == "FINISHED"


def test_the_overhead_is_a_share_of_the_training_time(runs: Runs) -> None:
    watch = callback()
    trainer = runs.run(watch)
    (entry,) = [e for e in trainer.state.log_history if "delta_b/overhead_percent" in e]
    (own,) = [e for e in trainer.state.log_history if "train_runtime" in e]
    spent = entry["delta_b/seconds"]
    assert entry["delta_b/overhead_percent"] == watch.overhead_percent
    assert watch.overhead_percent == pytest.approx(100 * spent / (own["train_runtime"] - spent), rel=0.2)


# Early stopping and the best step -------------------------------------------------------------------------------


def test_it_stops_after_so_many_measurements_below(runs: Runs) -> None:
    watch = callback(every=1, stop_below=1e6, patience=3)  # any shift lies below
    trainer = runs.run(watch, steps=8)
    assert trainer.state.global_step == watch.stopped_at == 3
    assert shifts(trainer)[-1]["delta_b/stopped_at"] == 3
    assert "delta_b/stopped_at" not in shifts(trainer)[0]


def test_the_estimate_alone_does_not_stop(runs: Runs) -> None:
    first = shifts(runs.run(callback(every=4)))[0]
    between = (first["delta_b/mean"] + first["delta_b/mean_ci_high"]) / 2
    watch = callback(every=4, stop_below=between, patience=1)
    assert first["delta_b/mean"] < between < first["delta_b/mean_ci_high"]
    runs.run(watch)
    assert watch.stopped_at is None


@pytest.mark.parametrize(
    ("highs", "count"), [([], 0), ([-0.2, -0.3], 2), ([-0.2, 0.1, -0.3], 1), ([-0.3, -0.1], 0), ([-0.3, None], 0)]
)
def test_measurements_below_in_a_row(highs: list[float | None], count: int) -> None:
    history = [{} if high is None else {"delta_b/mean_ci_high": high} for high in highs]
    assert below_in_a_row(history, -0.1) == count


def test_the_best_step_is_kept_and_saved(runs: Runs) -> None:
    watch = callback(every=1, save_best=True)
    trainer = runs.run(watch, steps=3, learning_rate=5e-2)
    means = [entry["delta_b/mean"] for entry in shifts(trainer)]
    assert watch.best_step == 1 + int(np.argmax(means))
    assert shifts(trainer)[-1]["delta_b/best_step"] == watch.best_step
    highest = [i + 1 for i, mean in enumerate(means) if mean > max([-np.inf, *means[:i]])]
    assert sorted(int(f.name.rpartition("-")[2]) for f in runs.out.glob("checkpoint-*")) == highest


# A training that is resumed -------------------------------------------------------------------------------------


def test_a_resumed_training_goes_on_with_the_history(runs: Runs) -> None:
    whole = runs.run(callback(every=1), steps=4)
    runs.run(callback(every=1), steps=4, save_strategy="steps", save_steps=2)
    watch = callback(every=1, reference=runs.folder, cache=False)
    resumed = runs.run(watch, steps=4, save_strategy="no", resume=runs.out / "checkpoint-2")
    assert [entry["step"] for entry in watch.evaluations] == [1, 2, 3, 4]
    assert shifts(resumed)[-1]["delta_b/mean"] == pytest.approx(shifts(whole)[-1]["delta_b/mean"], abs=1e-5)


def test_a_resumed_adapter_is_compared_with_its_base(runs: Runs) -> None:
    whole = runs.run(callback(), peft=True, steps=4)
    runs.run(peft=True, steps=4, save_strategy="steps", save_steps=2)
    trainer = runs.trainer(callback(), peft=True, steps=4)
    learning = {name: p.requires_grad for name, p in trainer.model.named_parameters()}
    trainer.train(resume_from_checkpoint=str(runs.out / "checkpoint-2"))
    assert shifts(trainer)[-1]["delta_b/mean"] == pytest.approx(shifts(whole)[-1]["delta_b/mean"], abs=1e-5)
    assert {name: p.requires_grad for name, p in trainer.model.named_parameters()} == learning


def test_a_resumed_model_without_its_base_is_refused(runs: Runs) -> None:
    runs.run(steps=4, save_strategy="steps", save_steps=2)
    with pytest.raises(RefbiasError, match=r"resumed at step 2.*reference="):
        runs.run(callback(), steps=4, resume=runs.out / "checkpoint-2")


# What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every=0"),
        ({"patience": 0}, "patience=0"),
        ({"stop_below": float("nan")}, "stop_below=nan"),
        ({"layer": "all"}, "one layer"),
        ({"layer": [1, 2]}, "one layer"),
        ({"targets_n": 0}, "targets_n=0"),
        ({"geometry": "adapter"}, "geometry=relative or absolute in training"),
        ({"geometry": "cka", "metric": "seat"}, "scores one space"),
        ({"groups": ["Womn"]}, "Did you mean 'Women'"),
    ],
)
def test_settings_without_meaning(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        callback(**options)


def test_a_metric_without_an_interval_cannot_stop(runs: Runs) -> None:
    with pytest.raises(UsageError, match="metric=cka_drift has none"):
        runs.run(callback(geometry="cka", calibration="none", targets_n=8, stop_below=-0.1))
    free = callback(geometry="cka", calibration="none", targets_n=8)
    assert shifts(runs.run(free))[-1]["delta_b/mean"] > 0


def test_a_trainer_without_a_tokenizer(runs: Runs) -> None:
    trainer = runs.trainer(callback())
    trainer.processing_class = trainer.callback_handler.processing_class = None
    with pytest.raises(RefbiasError, match="processing_class=tokenizer"):
        trainer.train()


def test_prompt_learning_changes_no_weight(runs: Runs) -> None:
    from peft import PromptTuningConfig, get_peft_model

    model = get_peft_model(runs.model(peft=False), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    with pytest.raises(RefbiasError, match="virtual tokens and no weights"):
        runs.run(callback(), model=model)


def test_split_weights_are_refused(runs: Runs) -> None:
    model = runs.model(peft=False)
    next(model.parameters()).ds_id = 0  # as DeepSpeed marks the parameters that it splits
    with pytest.raises(RefbiasError, match=r"split over processes.*Audit saved checkpoints"):
        ModelInTraining(model, runs.tokenizer)


def test_a_layer_that_the_model_lacks(runs: Runs) -> None:
    with pytest.raises(UsageError, match="no such layer"):
        runs.run(callback(layer=9))


# Sets and imports -----------------------------------------------------------------------------------------------


def test_the_same_rows_are_drawn_for_all_groups_and_both_sides() -> None:
    whole = refbias.load_stimuli()
    few = thinned(whole, 5, 7, seed=3)
    rows = {g: [whole.targets[g].index(s) for s in sentences] for g, sentences in few.targets.items()}
    assert len(set(map(tuple, rows.values()))) == 1 and len(rows["Women"]) == 5
    assert [whole.positive.index(s) for s in few.positive] == [whole.negative.index(s) for s in few.negative]
    assert few.anchors == whole.anchors
    assert thinned(whole, 5, 7, seed=4).targets != few.targets
    assert thinned(whole, None, 1000, seed=3) == whole


def test_importing_integrations_loads_nothing_heavy() -> None:
    code = "import sys, refbias.integrations; print([m for m in ('torch', 'transformers', 'peft') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Several processes ----------------------------------------------------------------------------------------------

_PROGRAM = """
import sys
from pathlib import Path

from refbias.integrations import BiasShiftCallback
from tests.integrations.test_trainer import Runs, callback, shifts

runs = Runs(Path(sys.argv[1]), Path(sys.argv[2]))
watch = callback(every=1, stop_below=1e6, patience=2)
trainer = runs.run(watch, steps=6)
told = f"step {trainer.state.global_step}, measured {len(shifts(trainer))}"
Path(f"{sys.argv[2]}.{trainer.args.process_index}-of-{trainer.args.world_size}").write_text(told)
"""


@pytest.mark.slow
def test_all_processes_stop_together_and_the_first_measures(runs: Runs, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(_PROGRAM)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
            str(script), str(runs.folder), str(runs.out),
        ],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = {file.name: file.read_text() for file in runs.out.parent.glob("out.*")}
    assert told == {"out.0-of-2": "step 2, measured 2", "out.1-of-2": "step 2, measured 0"}
