"""Vectors saved by gensim (``KeyedVectors.save``), read without running anything that the file names."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refbias.errors import RefbiasError, described

_WORDS = ("index_to_key", "index2word", "index2entity")  # gensim 4, and the names before it


class _Inert:
    """Stands for every function, class and object that a pickle names: keeps what it is handed, and does nothing."""

    origin = ""
    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any, **options: Any) -> _Inert:
        made = super().__new__(cls)
        made.args = args
        return made

    def __init__(self, *args: Any, **options: Any) -> None:
        return None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def append(self, value: Any) -> None:
        return None

    def extend(self, values: Any) -> None:
        return None

    def add(self, value: Any) -> None:
        return None


class _InertUnpickler(pickle.Unpickler):
    """Reads numbers, texts and containers. No global of the file is imported: each becomes a kind of `_Inert`."""

    def find_class(self, module: str, name: str) -> Any:
        return type("_Inert", (_Inert,), {"origin": f"{module}.{name}"})


def read_keyed_vectors(path: Path) -> tuple[list[str], NDArray[Any]]:
    """Words and vectors (n, d) of a file that gensim saved; arrays that lie beside it are mapped into memory.

    Raises `RefbiasError`, which says how to convert the file, for anything else.
    """
    part = ""
    try:
        with path.open("rb") as file:
            state = _InertUnpickler(file).load().state
        if isinstance(state.get("wv"), _Inert):  # a whole Word2Vec or FastText model
            state, part = state["wv"].state, ".wv"
        words = [_word(word) for word in next((state[name] for name in _WORDS if name in state), ())]
        if "vectors" in state.get("__numpys", ()):
            rows = np.load(f"{path}{part}.vectors.npy", mmap_mode="r", allow_pickle=False)
        elif "vectors" in state:
            rows = _array(state["vectors"])
        else:
            raise ValueError("only gensim makes the vectors of its FastText from the parts that are saved")
        if rows.ndim != 2 or len(rows) != len(words):
            raise ValueError(f"{len(words)} words and vectors of shape {rows.shape}")
    except Exception as error:  # a pickle may hold anything at any place
        raise RefbiasError(
            f"{path} is a pickle in which refbias, which runs nothing of it, finds no vectors as gensim's "
            f"KeyedVectors.save writes them ({described(error)}). If you trust the file, convert it once in Python: "
            f"gensim.utils.SaveLoad.load({str(path)!r}){part}.save_word2vec_format('vectors.bin', binary=True); "
            f"and give vectors.bin."
        ) from None
    return words, rows


def _word(value: Any) -> str:
    """A word; older files hold them as numpy's scalars."""
    if isinstance(value, _Inert) and value.origin.endswith(".scalar"):
        dtype, raw = value.args
        if dtype.args[0].startswith("U"):
            return raw.decode("utf-32-be" if dtype.state[1] == ">" else "utf-32-le").rstrip("\0")
    if not isinstance(value, str):
        raise ValueError("its words are no texts")
    return value


def _array(value: Any) -> NDArray[Any]:
    """The array that numpy pickled into the file itself, as gensim has it do for small ones."""
    if not isinstance(value, _Inert) or not value.origin.endswith("._reconstruct"):
        raise ValueError("its vectors are no array")
    _, shape, dtype, fortran, data = value.state
    code, order = dtype.args[0], dtype.state[1]
    if code not in ("f2", "f4", "f8") or not isinstance(data, bytes):
        raise ValueError(f"its vectors are of type {code!r}, not f2, f4 or f8")
    return np.frombuffer(data, np.dtype(code).newbyteorder(order)).reshape(shape, order="F" if fortran else "C")
