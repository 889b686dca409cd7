from __future__ import annotations

import pytest
import torch

from refbias.devices import resolve_device, resolve_dtype
from refbias.errors import RefbiasError, UsageError


def test_the_hardware_chooses() -> None:
    device = resolve_device()
    assert device == resolve_device("auto")
    there = [name for name, found in (("cuda", torch.cuda), ("mps", torch.backends.mps)) if found.is_available()]
    assert torch.device(device).type == [*there, "cpu"][0]
    assert resolve_dtype(None, "cpu") == "float32"
    assert resolve_dtype(None, device) in ("float32", "bfloat16")


def test_names() -> None:
    assert resolve_device("cpu") == "cpu"
    assert resolve_dtype("torch.bfloat16", "cpu") == resolve_dtype("bfloat16", "cpu") == "bfloat16"
    with pytest.raises(UsageError, match=r"No dtype 'int8'\. Expected one of float32, bfloat16, float16"):
        resolve_dtype("int8", "cpu")
    with pytest.raises(UsageError, match="No device 'gpu'"):
        resolve_device("gpu")
    with pytest.raises(RefbiasError, match=r"device=cuda:99: this machine shows torch \d+ CUDA devices"):
        resolve_device("cuda:99")
