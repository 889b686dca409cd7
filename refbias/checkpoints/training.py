"""LoRA fine-tuning of the upper blocks of a causal model on short statements.

The lower blocks stay as they are, so their states are computed once and every step begins at the first trained
block; the head is run at the predicate's tokens only. Both save more than half of the work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.checkpoints.tail import Ids, Tail
from refbias.finetuning.batches import schedule
from refbias.finetuning.modules import linear_modules
from refbias.finetuning.tokens import Row
from refbias.models.base import Loaded

if TYPE_CHECKING:
    import torch

    States = Mapping[Ids, "torch.Tensor"]


@dataclass(frozen=True)
class Recipe:
    """How an adapter is trained: AdamW without weight decay, linear warm-up and decay, gradients clipped at norm 1.

    ``first_block`` is the lowest block that gets an adapter; every linear module from there on gets one of rank
    ``rank``, scaled by ``alpha`` / ``rank``.
    """

    steps: int
    learning_rate: float
    batch: int
    rank: int
    alpha: int
    first_block: int
    seed: int
    warm_up: float = 0.05

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        rising = (step + 1) / max(1.0, self.warm_up * self.steps)
        return self.learning_rate * min(1.0, rising) * (1 - step / self.steps)


Told = Callable[[int, float], None]  # step from 1, mean loss so far of the latest tenth of the steps


def train_adapter(
    loaded: Loaded, rows: Sequence[Row], states: States, recipe: Recipe, folder: Path, told: Told
) -> list[float]:
    """Train one adapter on ``rows``, save it to ``folder`` as PEFT does, and leave the model as it was.

    ``states`` holds the input of block ``recipe.first_block`` for every row. Returns the loss of every step, in nats
    a predicate token.
    """
    import torch

    losses: list[float] = []
    recent = max(1, recipe.steps // 10)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        with _adapted(loaded, recipe) as adapted, Tail(loaded, recipe.first_block) as tail:
            weights = [p for p in adapted.parameters() if p.requires_grad]
            optimizer = torch.optim.AdamW(weights, lr=recipe.learning_rate, weight_decay=0.0)
            plan = schedule([len(row.ids) for row in rows], recipe.batch, np.random.default_rng(recipe.seed))
            for step in range(recipe.steps):
                for group in optimizer.param_groups:
                    group["lr"] = recipe.rate(step)
                loss = _loss(tail, [rows[i] for i in next(plan)], states)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                losses.append(loss.item())
                told(step + 1, float(np.mean(losses[-recent:])))
            adapted.save_pretrained(folder, save_embedding_layers=False)
    return losses


def _loss(tail: Tail, rows: Sequence[Row], states: States) -> torch.Tensor:
    """Mean negative log-likelihood of the predicates' tokens."""
    import torch

    device = tail.causal.device
    longest = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    keep = torch.zeros(len(rows), longest, dtype=torch.bool)
    first = states[rows[0].ids]
    below = first.new_zeros(len(rows), longest, first.shape[1])
    for i, row in enumerate(rows):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        keep[i, row.begin - 1 : len(row.ids) - 1] = True
        below[i, : len(row.ids)] = states[row.ids]
    wanted = ids[:, 1:][keep[:, :-1]]
    # padding stands on the right, where a causal model does not look, so no attention mask is needed
    logits = tail(ids.to(device), keep.to(device), below)
    return torch.nn.functional.cross_entropy(logits.float(), wanted.to(device))


@contextmanager
def _adapted(loaded: Loaded, recipe: Recipe) -> Iterator[Any]:
    """The model with fresh LoRA modules in place; they are taken out again at the end, whatever happens."""
    from peft import LoraConfig, get_peft_model

    wanted = linear_modules(loaded, recipe.first_block)
    config = LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        target_modules=list(wanted),
        fan_in_fan_out=any(wanted.values()),
        task_type="CAUSAL_LM",
    )
    learning = {name: p.requires_grad for name, p in loaded.causal.named_parameters()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers in a way that will change
        adapted = get_peft_model(loaded.causal, config)
    try:
        yield adapted
    finally:
        adapted.unload()
        for name, parameter in loaded.causal.named_parameters():
            parameter.requires_grad_(learning[name])
        loaded.causal.eval()
