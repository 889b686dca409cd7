"""Reading pieces of safetensors files, and rounding once."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from refbias.errors import RefbiasError
from refbias.models import weights
from refbias.models.weights import Files, pieces, rounded

SIXTEEN = [torch.bfloat16, torch.float16]
DIGITS = {torch.bfloat16: 8, torch.float16: 11}


def nearest(value: float, digits: int) -> float:
    """``value`` to ``digits`` binary digits, ties to even, by exact arithmetic."""
    mantissa, exponent = np.frexp(value)
    scaled = Fraction(float(mantissa)) * 2**digits
    return float(np.ldexp(round(scaled), exponent - digits))  # Python rounds fractions to even


@pytest.mark.parametrize("dtype", SIXTEEN)
@given(
    st.integers(-(2**11) + 1, 2**11 - 1).filter(bool),
    st.sampled_from([0.0, 2**-52, -(2**-53), 1e-12, -1e-12, 1e-9, 3e-8, -3e-8, 1e-4]),
    st.integers(-6, 3),
)
def test_rounding_to_16_bits_happens_once(dtype: torch.dtype, number: int, beside: float, power: int) -> None:
    """Numbers midway between two of 16 bits, and right beside them."""
    value = float(number) * (1 + beside) * 2.0**power
    digits = DIGITS[dtype]
    midway = (nearest(value, digits) * (1 + 2.0**-digits)) * (1 + beside)
    for x in (value, midway):
        assert rounded(torch.tensor([[x]], dtype=torch.float64), dtype).item() == nearest(x, digits)


def test_torch_itself_would_round_twice() -> None:
    just_above_midway = torch.tensor([1 + 2**-8 + 2**-40], dtype=torch.float64)
    assert just_above_midway.bfloat16().item() == 1
    assert rounded(just_above_midway, torch.bfloat16).item() == 1 + 2**-7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *SIXTEEN])
def test_what_a_dtype_holds_is_kept(dtype: torch.dtype) -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    values[:4] = torch.tensor([0.0, -0.0, 1.0, -2.5])
    made = rounded(values.double(), dtype)
    assert torch.equal(made, values) and torch.equal(made.signbit(), values.signbit())


@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 3), (4, 2, 3), (3, 2**18)])
def test_pieces_cover_every_row_once(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (4, 2**17):
        monkeypatch.setattr(weights, "PIECE", size)
        rows = [row for start, stop in pieces(shape) for row in range(start, stop)]
        assert rows == list(range(shape[0] if shape else 1))


def test_pieces_are_what_safetensors_reads(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    dtypes = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool]
    stored = {str(dtype): (10 * torch.randn(6, 4, generator=generator)).to(dtype) for dtype in dtypes}
    stored |= {"one": torch.tensor(3.5), "none": torch.zeros(0, 4), "flat": torch.arange(5)}
    save_file(stored, tmp_path / "model.safetensors")
    files = Files(tmp_path)
    assert set(files.tensors) == set(stored)
    for name, tensor in stored.items():
        assert torch.equal(files.read(name), tensor) and files.read(name).dtype == tensor.dtype
    for name in map(str, dtypes):
        assert torch.equal(files.read(name, 2, 5), stored[name][2:5])


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(2, 2).to(torch.float8_e4m3fn)}, tmp_path / "model.safetensors")
    with pytest.raises(RefbiasError, match=r"holds 'w' as F8_E4M3, a quantised format.*save_pretrained"):
        Files(tmp_path)


def test_a_header_that_promises_other_sizes(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(RefbiasError, match=r"model\.safetensors is damaged: 'w' has 8 bytes"):
        Files(tmp_path)


def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(100)}, tmp_path / "model.safetensors")
    files = Files(tmp_path)
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.truncate(200)
    with pytest.raises(RefbiasError, match="was cut short while it was read"):
        files.read("w")
