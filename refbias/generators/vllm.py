"""Answers by vLLM in this process: for large models on a GPU."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from refbias.answers.base import Answer, Request, Sampling
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from refbias.generators.chat import Template, Writer, check_template
from refbias.models.base import Model


def vllm(
    model: Model,
    requests: Sequence[Request],
    sampling: Sampling,
    context: Context,
    *,
    template: Template = "chat",
    chunk: int = 1024,
    memory: float = 0.9,
    gpus: int = 1,
    max_length: int | None = None,
) -> Iterator[tuple[Request, Answer]]:
    """Answers by vLLM on a GPU, for a model in a folder or on the hub.

    ``chunk`` answers are written, then kept; ``memory`` is the share of the GPU's memory that vLLM takes, ``gpus`` over
    how many the model is spread, ``max_length`` the longest prompt with its answer, in tokens (None: the model's own).
    """
    check_template(template)
    for name, value in (("chunk", chunk), ("gpus", gpus)):
        if value < 1:
            raise UsageError(f"generator.{name}={value}: expected 1 or more.")
    if not 0 < memory <= 1:
        raise UsageError(f"generator.memory={memory}: expected a share of the GPU's memory, above 0 and up to 1.")
    if model.kind != "hf":
        raise RefbiasError(
            f"generator=vllm reads a model from a folder, and {model.name} is {model.kind}: it is made in memory. "
            f"Write it with task=merge task.out=DIR and give the folder, or use generator=hf."
        )
    settings = engine_settings(model, context.dtype, memory, gpus, max_length)
    return _answers(model, requests, sampling, context, template, chunk, settings)


def engine_settings(model: Any, dtype: str, memory: float, gpus: int, max_length: int | None) -> dict[str, Any]:
    """What `vllm.LLM` is given."""
    return {
        "model": str(model.folder),
        "dtype": dtype,
        "gpu_memory_utilization": memory,
        "tensor_parallel_size": gpus,
        "max_model_len": max_length,
        "trust_remote_code": False,
    }


def sampling_settings(request: Request, sampling: Sampling) -> dict[str, Any]:
    """What `vllm.SamplingParams` is given for one answer."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_new_tokens,
        "seed": request.seed,
    }


def _answers(
    model: Any,
    requests: Sequence[Request],
    sampling: Sampling,
    context: Context,
    template: Template,
    chunk: int,
    settings: dict[str, Any],
) -> Iterator[tuple[Request, Answer]]:
    library = _library()
    from refbias.models.hf import load_tokenizer

    writer = Writer(model.name, load_tokenizer(model.name, model.folder), template, context.watch.say)
    prompts = [{"prompt_token_ids": writer.ids(request.prompt)} for request in requests]
    engine = library.LLM(**settings)
    try:
        for begin in range(0, len(requests), chunk):
            some = requests[begin : begin + chunk]
            ways = [library.SamplingParams(**sampling_settings(request, sampling)) for request in some]
            found = engine.generate(prompts[begin : begin + chunk], ways, use_tqdm=False)
            for request, output in zip(some, found, strict=True):
                first = output.outputs[0]
                yield (
                    request,
                    Answer(first.text, "length" if first.finish_reason == "length" else "stop", len(first.token_ids)),
                )
    finally:
        del engine
        gc.collect()


def _library() -> Any:
    try:
        library = importlib.import_module("vllm")
    except ImportError as error:
        raise RefbiasError(
            f"generator=vllm needs the package vllm, which is not installed here ({error}). Run `pip install "
            f"refbias[vllm]` on a machine with a GPU, or use generator=hf or openai."
        ) from None
    return library
