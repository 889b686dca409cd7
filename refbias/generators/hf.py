"""Answers by a transformers model on this machine: many rows at once, each with random numbers of its own."""

from __future__ import annotations

import contextlib
import inspect
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from refbias.answers.base import Answer, Request, Sampling
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from refbias.generators.chat import NEXT_TURN, Template, Writer, check_template, is_raw
from refbias.generators.drawing import draw, noise
from refbias.models.base import Loaded, Model

if TYPE_CHECKING:
    import torch

# What rounding may change in float32 logits, as a share of the largest: measured 2e-6 on 30 layers. Where a choice is
# closer than that, the row is computed alone. In 16-bit formats too many choices would be.
_ROUNDING = 2e-5


def hf(
    model: Model,
    requests: Sequence[Request],
    sampling: Sampling,
    context: Context,
    *,
    batch: int = 32,
    template: Template = "chat",
) -> Iterator[tuple[Request, Answer]]:
    """Answers by the model itself, with transformers on this machine.

    ``batch`` rows are written at once, which in float32 changes no answer. ``template=plain`` writes "User: …" and
    "Assistant:" for a model without a chat template, and ends an answer where the next user turn begins.
    """
    if batch < 1:
        raise UsageError(f"generator.batch={batch}: expected 1 or more.")
    check_template(template)
    return _answers(model, requests, sampling, context, batch, template)


def _answers(
    model: Model, requests: Sequence[Request], sampling: Sampling, context: Context, batch: int, template: Template
) -> Iterator[tuple[Request, Answer]]:
    device, dtype = model.placement(context.device, context.dtype)
    with model.open_causal(device, dtype) as loaded, _out_of_memory(batch):
        writer = Writer(model.name, loaded.tokenizer, template, context.watch.say)
        rows = _rows(model.name, loaded, requests, sampling, writer)
        waiting = deque(sorted(rows, key=lambda row: (-len(row.prompt), row.prompt)))  # samples of a prompt together
        pool = _Pool(loaded, sampling)
        while waiting or pool.rows:
            free = batch - len(pool.rows)
            if waiting and (not pool.rows or free >= max(1, batch // 4)):
                pool.admit([waiting.popleft() for _ in range(min(free, len(waiting)))])
            else:
                pool.step()
            for row in pool.finished():
                yield row.request, _answer(loaded.tokenizer, row, template)


@dataclass
class _Row:
    """One answer on its way: ``prompt`` and ``new`` are token ids."""

    request: Request
    prompt: tuple[int, ...]
    budget: int
    rng: np.random.Generator
    new: list[int] = field(default_factory=list)
    stopped: bool = False

    @property
    def length(self) -> int:
        """Tokens whose keys the cache holds: all but the last new one."""
        return len(self.prompt) + len(self.new) - 1

    @property
    def done(self) -> bool:
        return self.stopped or len(self.new) >= self.budget


def _rows(name: str, loaded: Loaded, requests: Sequence[Request], sampling: Sampling, writer: Writer) -> list[_Row]:
    limit = getattr(loaded.model.config, "max_position_embeddings", None)
    known: dict[Any, tuple[int, ...]] = {}
    rows = []
    for request in requests:
        messages = request.prompt.messages
        if messages not in known:
            known[messages] = tuple(writer.ids(request.prompt))
        ids = known[messages]
        if not ids:
            raise RefbiasError(f"Prompt {request.prompt.id} is empty: {name} has nothing to continue.")
        room = sampling.max_new_tokens if limit is None else min(sampling.max_new_tokens, limit - len(ids))
        if room < 1:
            raise RefbiasError(
                f"Prompt {request.prompt.id} has {len(ids)} tokens, and {name} reads {limit}: nothing can follow. "
                f"Leave the prompt out, or use a model with a longer context."
            )
        rows.append(_Row(request, ids, room, np.random.default_rng(request.seed)))
    return rows


def _answer(tokenizer: Any, row: _Row, template: Template) -> Answer:
    text = tokenizer.decode(row.new, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    stopped = row.stopped
    if template == "plain" and not is_raw(row.request.prompt.messages) and NEXT_TURN in text:
        text, stopped = text.partition(NEXT_TURN)[0], True
    return Answer(text, "stop" if stopped else "length", len(row.new))


class _Pool:
    """The rows that are written together, with their keys and values side by side, padded on the left.

    A row's tokens depend on its prompt and its random numbers alone: logits are those of the row by itself up to
    rounding, and where rounding could decide, they are computed again for the row by itself.
    """

    def __init__(self, loaded: Loaded, sampling: Sampling) -> None:
        import torch

        self.rows: list[_Row] = []
        self._causal = loaded.causal
        self._sampling = sampling
        self._ends = end_tokens(loaded)
        self._exact = loaded.causal.dtype == torch.float32
        takes = inspect.signature(loaded.causal.forward).parameters
        self._cache_name = "cache" if "cache" in takes else "past_key_values"  # by the release
        self._positions = "position_ids" in takes
        self._cache: Any = None
        self._begin: tuple[tuple[int, ...], Any, torch.Tensor] | None = None  # the prompt that was read last

    def finished(self) -> list[_Row]:
        """Take out the rows that are done."""
        import torch

        done = [row for row in self.rows if row.done]
        if done:
            keep = [i for i, row in enumerate(self.rows) if not row.done]
            self.rows = [self.rows[i] for i in keep]
            with torch.inference_mode():
                self._keep(keep)
        return done

    def _keep(self, indices: Sequence[int]) -> None:
        import torch

        longest = max((row.length for row in self.rows), default=0)
        chosen = torch.tensor(indices, dtype=torch.long, device=self._causal.device)
        for layer in self._cache.layers:
            layer.keys = layer.keys[:, :, layer.keys.shape[2] - longest :][chosen]
            layer.values = layer.values[:, :, layer.values.shape[2] - longest :][chosen]

    def admit(self, rows: Sequence[_Row]) -> None:
        """Read the prompts of new rows, draw their first tokens, and let them join."""
        import torch

        with torch.inference_mode():
            joining = []
            logits = []
            for row in rows:
                cache, first = self._read(row.prompt)
                joining.append([(layer.keys, layer.values) for layer in cache.layers])
                logits.append(first)
            self._choose(rows, torch.cat(logits), exact=True)
            self._join(rows, joining)

    def _read(self, prompt: tuple[int, ...]) -> tuple[Any, torch.Tensor]:
        """Cache and last logits (1, v) of a prompt by itself; its samples share one pass."""
        from transformers import DynamicCache

        if self._begin is None or self._begin[0] != prompt:
            cache = DynamicCache()
            logits = self._forward([list(prompt)], logits_to_keep=1, **{self._cache_name: cache})
            keys = [getattr(layer, "keys", None) for layer in cache.layers]
            shapes: list[tuple[int, ...]] = [getattr(key, "shape", ()) for key in keys]
            if not shapes or any(len(shape) != 4 or shape[2] != len(prompt) for shape in shapes):
                raise RefbiasError(
                    f"generator=hf keeps keys and values of attention layers, and {type(self._causal).__name__} has "
                    f"layers of another kind. Serve the model and use generator=openai."
                )
            self._begin = (prompt, cache, logits)
        return self._begin[1], self._begin[2]

    def _join(self, rows: Sequence[_Row], joining: Sequence[Sequence[tuple[torch.Tensor, torch.Tensor]]]) -> None:
        import torch
        from transformers import DynamicCache

        before = [[(layer.keys, layer.values) for layer in self._cache.layers]] if self.rows else []
        self.rows = [*self.rows, *rows]
        merged = DynamicCache()
        for index, parts in enumerate(zip(*before, *joining, strict=True)):
            length = max(keys.shape[2] for keys, _ in parts)
            keys, values = (
                torch.cat([torch.nn.functional.pad(part, (0, 0, length - part.shape[2], 0)) for part in side])
                for side in zip(*parts, strict=True)
            )
            merged.update(keys, values, index)
        self._cache = merged

    def step(self) -> None:
        """One more token for every row."""
        import torch

        with torch.inference_mode():
            device = self._causal.device
            lengths = torch.tensor([row.length for row in self.rows], device=device)[:, None]
            longest = int(lengths.max())
            options: dict[str, Any] = {self._cache_name: self._cache}
            if int(lengths.min()) < longest:
                places = torch.arange(longest + 1, device=device)
                options["attention_mask"] = (places >= longest - lengths).long()
            if self._positions:
                options["position_ids"] = lengths
            self._choose(self.rows, self._forward([[row.new[-1]] for row in self.rows], **options), not self._exact)

    def _forward(self, ids: list[list[int]], **options: Any) -> torch.Tensor:
        """Last logits (b, v) in float32."""
        import torch

        found: torch.Tensor = self._causal(
            input_ids=torch.tensor(ids, device=self._causal.device), use_cache=self._cache_name in options, **options
        ).logits[:, -1]
        return found.float()

    def _choose(self, rows: Sequence[_Row], logits: torch.Tensor, exact: bool) -> None:
        """Append a token to each row; ``exact``: the logits need no second look."""
        sampling = self._sampling
        random = None
        if sampling.temperature > 0:
            random = np.stack([noise(row.rng, logits.shape[1]) for row in rows])
        slack = None if exact else _ROUNDING * logits.abs().amax(1, keepdim=True)
        tokens, clear = self._draw(logits, random, slack)
        chosen = tokens.tolist()
        for i in [i for i, sure in enumerate(clear.tolist()) if not sure and not exact]:
            alone = self._forward([[*rows[i].prompt, *rows[i].new]], logits_to_keep=1)
            chosen[i] = int(self._draw(alone, None if random is None else random[i : i + 1], None)[0])
        for row, token in zip(rows, chosen, strict=True):
            if token in self._ends:
                row.stopped = True
            else:
                row.new.append(token)

    def _draw(self, logits: torch.Tensor, random: Any, slack: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        numbers = None if random is None else torch.from_numpy(random).to(logits.device)
        return draw(logits, numbers, self._sampling.temperature, self._sampling.top_p, slack)


def end_tokens(loaded: Loaded) -> set[int]:
    """Every token that ends an answer: those of the generation config, the configuration and the tokenizer."""
    found: set[int] = set()
    for source in (getattr(loaded.causal, "generation_config", None), loaded.causal.config, loaded.tokenizer):
        value = getattr(source, "eos_token_id", None)
        found.update(value if isinstance(value, (list, tuple)) else [] if value is None else [value])
    return found


@contextlib.contextmanager
def _out_of_memory(batch: int) -> Iterator[None]:
    import torch

    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise RefbiasError(
            f"The device has no memory left for {batch} answers at once. Set a smaller generator.batch: "
            f"answers so far are kept, and those to come do not change."
        ) from error
