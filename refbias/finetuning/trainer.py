"""`transformers.Trainer`, told to save nothing by itself: checkpoints are `refbias.finetuning.checkpoint`'s."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refbias.errors import RefbiasError
from refbias.finetuning import checkpoint
from refbias.finetuning.base import Regime
from refbias.finetuning.checkpoint import Training
from refbias.finetuning.masks import Taught

CLIP = 1.0  # norm at which gradients are clipped
SAVE_SHARE = 20  # a checkpoint is due once training took this many times as long as writing the one before

IGNORED = -100  # label of a token that is not taught
Row = dict[str, float]


@dataclass(frozen=True)
class Session:
    """Where a training runs, what it goes on from, and who is told of each step."""

    work: Path
    plan: Mapping[str, Any]
    begun: Path | None
    seed: int
    device: str
    save_every: float
    tokenizer: Any
    callbacks: Sequence[Any]
    told: Callable[[int, float], None]  # step from 1, loss


def train(
    model: Any, rows: list[Taught], batches: Sequence[list[int]], regime: Regime, session: Session
) -> tuple[list[Row], float]:
    """Train ``model`` in place; returns the loss curve and the seconds, both from the very beginning.

    ``batches`` are those of all epochs; ``regime.accumulation`` of them make a step.
    """
    if importlib.util.find_spec("accelerate") is None:
        raise RefbiasError("task=finetune needs the package accelerate. Run: pip install 'refbias[train]'")
    import torch
    import transformers

    steps = math.ceil(len(batches) / regime.accumulation)
    training = _training(model, regime, steps)

    class FixedOrder(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            data: Any = rows
            return torch.utils.data.DataLoader(data, batch_sampler=batches, collate_fn=_collator(model))

    class Keeper(transformers.TrainerCallback):
        """Puts back what the Trainer does not find in our checkpoints, and writes them."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.before = checkpoint.restore(session.begun, training) if session.begun else 0.0
            self.untouched = session.begun is not None
            self.start = self.saved = time.monotonic()
            self.took = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.untouched and session.begun:
                checkpoint.restore_random_numbers(session.begun)
                self.untouched = False

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **kwargs: Any) -> None:
            if "loss" not in logs:  # the summary at the end
                return
            if not math.isfinite(logs["loss"]):
                raise RefbiasError(
                    f"The loss is {logs['loss']} at step {state.global_step} of {steps}. Use a lower "
                    f"regime.learning_rate, or regime.precision=fp32."
                )
            session.told(state.global_step, logs["loss"])
            now = time.monotonic()
            if state.global_step < steps and now - self.saved >= max(session.save_every, SAVE_SHARE * self.took):
                checkpoint.save(session.work, training, state, session.plan, self.seconds)
                self.saved = time.monotonic()
                self.took = self.saved - now

        @property
        def seconds(self) -> float:
            return self.before + time.monotonic() - self.start

    keeper = Keeper()
    trainer = FixedOrder(
        model=model,
        args=_arguments(regime, steps, session),
        train_dataset=rows,
        processing_class=session.tokenizer,  # for callbacks
        optimizers=(training.optimizer, training.scheduler),
        callbacks=[keeper, *session.callbacks],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=None if session.begun is None else str(session.begun))
    epoch = regime.accumulation / math.ceil(len(rows) / regime.batch)
    return [_row(entry, epoch) for entry in trainer.state.log_history if "loss" in entry], keeper.seconds


def _training(model: Any, regime: Regime, steps: int) -> Training:
    import torch
    import transformers

    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in weights if p.dim() > 1], "weight_decay": regime.weight_decay},
        {"params": [p for p in weights if p.dim() <= 1], "weight_decay": 0.0},  # norms and biases
    ]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=regime.learning_rate)
    scheduler = transformers.get_scheduler(
        "constant_with_warmup" if regime.schedule == "constant" else regime.schedule,
        optimizer,
        num_warmup_steps=math.ceil(regime.warmup * steps),
        num_training_steps=steps,
    )
    return Training(model, optimizer, scheduler)


def _arguments(regime: Regime, steps: int, session: Session) -> Any:
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=str(session.work),
        per_device_train_batch_size=regime.batch,
        gradient_accumulation_steps=regime.accumulation,
        max_steps=steps,
        max_grad_norm=CLIP,
        bf16=regime.precision == "bf16",
        seed=session.seed,
        use_cpu=session.device == "cpu",
        save_strategy="no",
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[],
        log_level="error",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # else the Trainer would copy the model to every GPU that it sees
    return arguments


def _collator(model: Any) -> Callable[[Sequence[Taught]], dict[str, Any]]:
    """Rows as padded tensors; padding stands on the right."""
    import torch

    # older releases of transformers want to be told that no token of Gemma 3 is of an image
    types = model.config.model_type == "gemma3"

    def collate(rows: Sequence[Taught]) -> dict[str, Any]:
        shape = len(rows), max(len(row.ids) for row in rows)
        ids, labels = torch.zeros(shape, dtype=torch.long), torch.full(shape, IGNORED)
        seen = torch.zeros(shape, dtype=torch.long)
        for i, row in enumerate(rows):
            length = len(row.ids)
            ids[i, :length] = torch.tensor(row.ids)
            labels[i, :length] = torch.where(torch.tensor(row.mask), ids[i, :length], IGNORED)
            seen[i, :length] = 1
        batch = {"input_ids": ids, "attention_mask": seen, "labels": labels}
        return {**batch, "token_type_ids": torch.zeros_like(ids)} if types else batch

    return collate


def _row(entry: Mapping[str, Any], epochs: float) -> Row:
    """A row of the loss curve; ``epochs`` is the part of an epoch that a step makes."""
    row = {"step": entry["step"], "epoch": round(entry["step"] * epochs, 4)}
    return row | {key: float(entry[key]) for key in ("loss", "learning_rate", "grad_norm") if key in entry}
