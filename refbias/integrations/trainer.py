"""The shift during training, for `transformers.Trainer` and what is built on it (TRL)."""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import CallbackHandler

from refbias.cache import Cache, open_cache
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from refbias.integrations.live import ModelInTraining, adapters_off, check_readable, undisturbed
from refbias.integrations.monitor import Measured, Monitor
from refbias.models.adapters import PLAIN_STARTS
from refbias.tracking import slugs_of

MEAN, HIGH = "delta_b/mean", "delta_b/mean_ci_high"

logger = logging.getLogger(__name__)


class BiasShiftCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Measures the shift of the model in training every few steps, logs it, and stops the training if asked.

    The stimuli are encoded with the model as it stands, in evaluation mode and in the dtype of its weights (outside of
    autocast), and compared with the reference as `refbias.audit` does. Weights, gradients, modes and random generators
    are left as they were: the trained weights are, bit for bit, those of a training without the callback.

    Figures go where the Trainer's own go, and into ``state.log_history``: ``delta_b/mean`` with ``mean_ci_low`` and
    ``mean_ci_high``, ``delta_b/spread`` (standard deviation over groups), ``delta_b/<group>``, ``delta_b/best_step``
    (where the mean was highest so far), and at the end ``delta_b/overhead_percent``.

    Parameters
    ----------
    reference : a model as `refbias.audit` takes it; None: the model as it is when training begins (for a peft model
        that is resumed, its base)
    every : steps between two measurements; the last step is measured too
    stop_below : stop when the upper end of the 95 % interval of the mean shift over groups lies below this; None never
        stops. Its scale depends on the setting: ΔB grows about with the square root of the number of anchors.
    patience : measurements in a row that must lie below before the training stops
    save_best : ask the Trainer to save a checkpoint whenever the mean is the highest so far
    targets_n, attributes_n : sentences for each group, and for each side of the attributes; None takes all
    tokenizer : None takes the Trainer's ``processing_class``
    encoder, pooling, layer, targets, attributes, anchors, calibration, geometry, metric, groups, strict, seed, draws,
    cache : as of `refbias.audit`, with smaller sets and ``calibration="center"``, since the raw shift falls for every
        group in harmless training. ``cache`` keeps vectors of a reference given by name or path only.

    Notes
    -----
    With several processes the first one measures while the others wait for its verdict; the measurement must take
    less than the time-out of the process group. Weights that are split over processes are refused.

    Raises
    ------
    UsageError for settings without meaning, when it is made; RefbiasError when training begins, for a model that it
    cannot follow
    """

    def __init__(
        self,
        reference: Any = None,
        *,
        every: int = 50,
        stop_below: float | None = None,
        patience: int = 2,
        save_best: bool = False,
        targets_n: int | None = 6,
        attributes_n: int | None = 50,
        tokenizer: Any = None,
        encoder: Any = "auto",
        pooling: Any = "mean",
        layer: Any = "last",
        targets: Any = "base",
        attributes: Any = "base",
        anchors: Any = ("neutral", {"n": 144}),
        calibration: Any = "center",
        geometry: Any = "relative",
        metric: Any = None,
        groups: Sequence[str] | None = None,
        strict: bool = False,
        seed: int = 0,
        draws: int = 2000,
        cache: bool | str | Path | Cache = True,
    ) -> None:
        for name, value in (("every", every), ("patience", patience)):
            if isinstance(value, bool) or value != int(value) or value < 1:
                raise UsageError(f"{name}={value}: expected a whole number, 1 or more.")
        if stop_below is not None and not math.isfinite(stop_below):
            raise UsageError(f"stop_below={stop_below}: expected a number such as -0.1, or None.")
        self.reference, self.every, self.stop_below = reference, int(every), stop_below
        self.patience, self.save_best = int(patience), save_best
        self.evaluations: list[dict[str, float]] = []
        self.stopped_at: int | None = None
        self.overhead_percent: float | None = None
        self._given_tokenizer, self._tokenizer, self._cache = tokenizer, tokenizer, cache
        self._monitor = Monitor(
            targets_n=targets_n,
            attributes_n=attributes_n,
            encoder=encoder,
            pooling=pooling,
            layer=layer,
            targets=targets,
            attributes=attributes,
            anchors=anchors,
            calibration=calibration,
            geometry=geometry,
            metric=metric,
            groups=groups,
            strict=strict,
            seed=seed,
            draws=draws,
            needs_interval=stop_below is not None,
        )
        self._slugs = slugs_of(self._monitor.scored)
        self._began = self._spent = 0.0

    @property
    def best_step(self) -> int | None:
        """The step of the highest mean shift so far, the first of several; None before the first measurement."""
        best = _best(self.evaluations)
        return None if best is None else int(best["step"])

    # Events of the Trainer

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, processing_class: Any = None, **kwargs: Any
    ) -> Any:
        self._began, self._spent = time.perf_counter(), 0.0
        self.stopped_at = self.overhead_percent = None
        self.evaluations = _logged(state)
        check_readable(model)
        if self._given_tokenizer is None:
            self._tokenizer = _tokenizer_of(processing_class)
        resumed = state.global_step > 0
        if self.reference is None and resumed:
            _check_base_is_left(model, state.global_step)
        self._first_process(args, state, lambda: self._encode_reference(model, resumed))
        return control

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> Any:
        if state.global_step % self.every and state.global_step < state.max_steps:
            return control
        stops, saves = self._first_process(args, state, lambda: self._evaluate(args, state, control, model))
        control.should_training_stop |= stops
        control.should_save |= saves
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> Any:
        # the Trainer's last figures: after them the loggers close
        if state.is_world_process_zero and "train_runtime" in (logs or {}):
            whole = time.perf_counter() - self._began
            self.overhead_percent = 100 * self._spent / max(whole - self._spent, 1e-9)
            figures = {"delta_b/seconds": self._spent, "delta_b/overhead_percent": self.overhead_percent}
            _publish(args, state, control, figures)
        return control

    # What the first process does

    def _first_process(self, args: Any, state: Any, work: Callable[[], Any]) -> Any:
        """What ``work`` gives in the first process, in every process; its error stops all of them."""
        import torch.distributed as together

        several = together.is_available() and together.is_initialized() and together.get_world_size() > 1
        answer: list[Any] = [None, None]
        begun = time.perf_counter()
        try:
            if state.is_world_process_zero:
                answer = [work(), None]
        except BaseException as error:
            answer = [None, f"{type(error).__name__}: {error}"]
            raise
        finally:
            self._spent += time.perf_counter() - begun
            if several:
                together.broadcast_object_list(answer, src=0, device=args.device)
        if answer[1] is not None:
            raise RefbiasError(f"The first process could not measure the shift: {answer[1]}")
        return answer[0]

    def _encode_reference(self, model: Any, resumed: bool) -> None:
        from refbias.models import find_model, release

        if self.reference is None:
            with undisturbed(model), adapters_off(model) if resumed else contextlib.nullcontext():
                live = ModelInTraining(model, self._tokenizer)
                self._monitor.set_reference(live, Context(Cache(None), *live.placement("cpu", "float32")))
            return
        device, dtype = ModelInTraining(model, self._tokenizer).placement("cpu", "float32")
        cache = open_cache(self._cache)
        with undisturbed(model):
            self._monitor.set_reference(find_model(self.reference, cache=cache), Context(cache, device, dtype))
        release()  # the training needs the memory

    def _evaluate(self, args: Any, state: Any, control: Any, model: Any) -> tuple[bool, bool]:
        """Measure and log; whether the training should stop, and whether a checkpoint should be saved."""
        _finish_pending_work(model)
        begun = time.perf_counter()
        with undisturbed(model):
            measured = self._monitor.measure(ModelInTraining(model, self._tokenizer))
        figures = {**self._figures(measured), "delta_b/seconds": time.perf_counter() - begun}
        self.evaluations.append({**figures, "step": state.global_step})
        stops = self._stops(state.global_step)
        if self.best_step is not None:
            figures["delta_b/best_step"] = self.best_step
        if stops:
            figures["delta_b/stopped_at"] = state.global_step
        _publish(args, state, control, figures)
        return stops, self.save_best and self.best_step == state.global_step

    def _figures(self, measured: Measured) -> dict[str, Any]:
        mean = measured.mean
        figures = {
            MEAN: mean.value,
            "delta_b/mean_ci_low": mean.ci_low,
            HIGH: mean.ci_high,
            "delta_b/spread": measured.spread,
            **{f"delta_b/{self._slugs[group]}": estimate.value for group, estimate in measured.groups.items()},
        }
        return {name: value for name, value in figures.items() if value is not None and math.isfinite(value)}

    def _stops(self, step: int) -> bool:
        if self.stop_below is None or below_in_a_row(self.evaluations, self.stop_below) < self.patience:
            return False
        self.stopped_at = step
        logger.warning(
            "refbias stops the training at step %d: in %d measurements the upper end of the interval of the mean shift "
            "lay below %g. The mean was highest at step %d.",
            step,
            self.patience,
            self.stop_below,
            self.best_step,
        )
        return True


def below_in_a_row(evaluations: Sequence[Mapping[str, float]], limit: float) -> int:
    """How many measurements at the end of ``evaluations`` have the whole interval of the mean below ``limit``."""
    count = 0
    for evaluation in reversed(evaluations):
        if not evaluation.get(HIGH, math.inf) < limit:
            break
        count += 1
    return count


def _best(evaluations: Sequence[Mapping[str, float]]) -> Mapping[str, float] | None:
    return max((e for e in evaluations if MEAN in e), key=lambda e: e[MEAN], default=None)


def _logged(state: Any) -> list[dict[str, float]]:
    """The measurements of a training that is resumed: the Trainer keeps its history with each checkpoint."""
    return [dict(entry) for entry in state.log_history if MEAN in entry]


def _publish(args: Any, state: Any, control: Any, figures: Mapping[str, Any]) -> None:
    """Log ``figures`` as the Trainer logs its own.

    A callback is given no Trainer, and those of TRL flush their own averages whenever their ``log`` is called. So the
    other callbacks are told directly, by the handler that is calling this one.
    """
    logs = {**figures, "epoch": state.epoch} if state.epoch is not None else dict(figures)
    state.log_history.append({**logs, "step": state.global_step})
    handler = _calling_handler()
    if handler is not None:
        handler.call_event("on_log", args, state, control, logs=logs)  # its own on_log would take back should_log


def _calling_handler() -> Any:
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, CallbackHandler):
            return owner
        frame = frame.f_back
    return None


def _tokenizer_of(processing_class: Any) -> Any:
    found = getattr(processing_class, "tokenizer", processing_class)  # a processor of several kinds of input has one
    if not callable(found) or not hasattr(found, "all_special_ids"):
        raise RefbiasError(
            "BiasShiftCallback needs the tokenizer, and the Trainer has none. Give Trainer(processing_class=tokenizer) "
            "or BiasShiftCallback(tokenizer=tokenizer)."
        )
    return found


def _check_base_is_left(model: Any, step: int) -> None:
    """Raise unless the model before training can be had from the model that is resumed."""
    begun = [getattr(config, "init_lora_weights", True) for config in getattr(model, "peft_config", {}).values()]
    if not begun or not hasattr(model, "disable_adapter") or any(how not in PLAIN_STARTS for how in begun):
        raise RefbiasError(
            f"Training is resumed at step {step}: the model as it was before is not in memory, so there is nothing to "
            f"compare with. Give BiasShiftCallback(reference=…), the folder or name of the model before training."
        )


def _finish_pending_work(model: Any) -> None:
    """Wait for what the training has queued on an accelerator: it is not the measurement's time."""
    if model.device.type == "cuda":
        import torch

        torch.cuda.synchronize(model.device)
