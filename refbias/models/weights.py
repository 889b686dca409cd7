"""Weights piece by piece: read from safetensors files, formed in float64, rounded once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from refbias.errors import RefbiasError
from refbias.models.files import Stored, stored_tensors

if TYPE_CHECKING:
    import torch

PIECE = 2**18  # numbers formed at once: what is computed on the way stays in the processor's cache

# what safetensors calls a dtype -> what torch does; formats of quantised weights are left out
DTYPES: Mapping[str, str] = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
CODES = {name: code for code, name in DTYPES.items()}


class Files:
    """The tensors of a folder. They stay on the disk: what is asked for is read, also by several threads at a time."""

    def __init__(self, folder: Path, stem: str = "model") -> None:
        self.folder = folder
        self.tensors = stored_tensors(folder, stem)
        for name, stored in self.tensors.items():
            if stored.dtype not in DTYPES:
                raise RefbiasError(
                    f"{stored.file} holds {name!r} as {stored.dtype}, a quantised format that is not merged. Load the "
                    f"model in bfloat16, save it with save_pretrained, and give that folder."
                )
            if math.prod(stored.shape) * dtype_of(stored).itemsize != stored.size:
                raise RefbiasError(f"{stored.file} is damaged: {name!r} has {stored.size} bytes. Fetch it again.")
        # looked up for every piece
        self._rows = {name: (dtype_of(stored), *rows_of(stored.shape)) for name, stored in self.tensors.items()}

    def read(self, name: str, start: int = 0, stop: int | None = None) -> torch.Tensor:
        """Rows ``start`` to ``stop`` of a tensor; one without dimensions has one row."""
        import torch

        stored, (dtype, rows, row) = self.tensors[name], self._rows[name]
        stop = rows if stop is None else stop
        found = torch.empty((stop - start, *stored.shape[1:]) if stored.shape else (), dtype=dtype)
        if found.numel():
            offset = stored.offset + start * row * dtype.itemsize
            self._fill(found.view(-1).view(torch.uint8).numpy().data, stored, offset)
        return found

    def _fill(self, buffer: memoryview, stored: Stored, offset: int) -> None:
        with stored.file.open("rb", buffering=0) as file:
            file.seek(offset)
            done = 0
            while done < len(buffer):
                count = file.readinto(buffer[done:])
                if not count:
                    raise RefbiasError(f"{stored.file} was cut short while it was read. Run again once it is whole.")
                done += count


def dtype_of(stored: Stored) -> torch.dtype:
    import torch

    found: torch.dtype = getattr(torch, DTYPES[stored.dtype])
    return found


def rows_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """Number of rows, and of numbers in a row."""
    return (shape[0], math.prod(shape[1:])) if shape else (1, 1)


def pieces(shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Ranges of rows of about `PIECE` numbers."""
    rows, row = rows_of(shape)
    step = max(1, PIECE // max(1, row))
    for start in range(0, rows, step):
        yield start, min(rows, start + step)


def keep_freed_memory() -> None:
    """Let the allocator keep what pieces free for the next ones: to get it from the system again takes longer.

    Linux's malloc takes what was freed in one part as the measure of what is worth keeping.
    """
    import torch

    torch.empty(2**24, dtype=torch.uint8)


def rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """float64 ``values`` in ``dtype``, each rounded once, to nearest, ties to even.

    torch goes to 16 bits by way of float32, which rounds twice; between neighbours on the coarse grid of bfloat16 that
    goes wrong often. So what float32 cannot hold is first cut off, and its last bit set where anything was: no such
    number lies midway between two 16-bit ones (rounding to odd; Boldo and Melquiond 2008). Exact above 2^-126.
    """
    import torch

    if dtype not in (torch.float16, torch.bfloat16):
        return values.to(dtype)
    bits = values.view(torch.int64)
    rest = 2**29 - 1  # the bits of a float64 that a float32 lacks
    odd = (bits & rest).add_(rest).bitwise_or_(bits).bitwise_and_(~rest)
    return odd.view(torch.float64).float().to(dtype)
