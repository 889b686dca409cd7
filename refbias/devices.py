"""Where to compute and in which number format, chosen by the hardware."""

from __future__ import annotations

from refbias.errors import RefbiasError, UsageError

DTYPES = ("float32", "bfloat16", "float16")


def resolve_device(device: str | None = None) -> str:
    """``device`` as torch names it; None or "auto" gives the first accelerator there is, else "cpu"."""
    import torch

    if device in (None, "auto"):
        if torch.cuda.is_available():
            return "cuda:0"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        wanted = torch.device(str(device))
    except RuntimeError:
        raise UsageError(f"No device {device!r}. Expected cpu, cuda, cuda:0, mps or auto.") from None
    if wanted.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = wanted.index or 0
        if index >= count:
            raise RefbiasError(f"device={device}: this machine shows torch {count} CUDA devices. Use device=cpu.")
        return f"cuda:{index}"
    if wanted.type == "mps" and not torch.backends.mps.is_available():
        raise RefbiasError(f"device={device}: torch finds no MPS device here. Use device=cpu.")
    return str(wanted)


def resolve_dtype(dtype: str | None, device: str) -> str:
    """``dtype`` by name; None or "auto" gives bfloat16 on CUDA devices that compute in it, else float32.

    On CPUs the default is float32: without bfloat16 instructions that format is some 200 times slower.
    """
    import torch

    if dtype in (None, "auto"):
        return "bfloat16" if device.startswith("cuda") and torch.cuda.is_bf16_supported(False) else "float32"
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise UsageError(f"No dtype {dtype!r}. Expected one of {', '.join(DTYPES)}, or auto.")
    return name
