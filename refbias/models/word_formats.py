"""Word-vector files, recognised by what they hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refbias.errors import RefbiasError, described
from refbias.models.keyed_vectors import read_keyed_vectors
from refbias.models.word_sources import ArraySource
from refbias.models.word_streams import Stream, recognised_stream

ENDINGS = (".txt", ".vec", ".bin", ".kv", ".npy", ".h5", ".hdf5", ".parquet", ".gz")  # by custom
_VOCABULARIES = (".txt", ".json")


def recognised(path: Path) -> ArraySource | Stream | None:
    """The word vectors at ``path``, by their content; None where it holds something else.

    Raises `RefbiasError` for what is nearly word vectors: an archive, an array without its words.
    """
    if path.is_dir():
        return _folder(path)
    with path.open("rb") as file:
        begins = file.read(8)
    for sign, reader in _BY_CONTENT.items():
        if begins.startswith(sign):
            return reader(path)
    return recognised_stream(path)


def _folder(path: Path) -> ArraySource:
    numbers, words = sorted(path.glob("*_emb.npy")), sorted(path.glob("*_index.parquet"))
    if len(numbers) != 1 or len(words) != 1:
        raise RefbiasError(f"{path}: expected one *_emb.npy and one *_index.parquet file of word vectors.")
    rows = _mapped(numbers[0])

    def load() -> tuple[Sequence[str], NDArray[Any]]:
        return _parquet().read_table(words[0]).column(0).to_pylist(), rows

    return ArraySource(str(path), rows.shape[-1], load, [numbers[0], words[0]])


def _npy(path: Path) -> ArraySource:
    rows = _mapped(path)
    vocabulary = _vocabulary_beside(path)
    if vocabulary is None:
        raise RefbiasError(
            f"{path} holds numbers without words: expected a file {path.stem}.txt, one word a line, or "
            f"{path.stem}.json, a list of words or an object of rows by word, beside it."
        )
    return ArraySource(str(path), rows.shape[-1], lambda: (_vocabulary(vocabulary), rows), [path, vocabulary])


def _npz(path: Path) -> ArraySource | None:
    """None for an archive without words, in it or beside it."""
    if path.suffix == ".zip":
        raise RefbiasError(f"{path} is an archive: unpack it, and give the file of word vectors that it holds.")
    if path.suffix != ".npz":  # torch's weights are such archives too
        return None
    files = [path]
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files} if "sentences" not in file.files else {}
    except (OSError, ValueError, EOFError):
        return None
    vocabulary = _vocabulary_beside(path)
    if arrays and vocabulary is not None and not any(_are_words(array) for array in arrays.values()):
        arrays["words"] = np.array(_vocabulary(vocabulary))
        files.append(vocabulary)
    if not any(_are_words(array) for array in arrays.values()):
        return None
    words, rows = _pair(path, arrays)
    return ArraySource(str(path), rows.shape[1], lambda: (words, rows), files)


def _hdf5(path: Path) -> ArraySource:
    try:
        import h5py  # type: ignore[import-untyped]
    except ImportError:
        raise RefbiasError(f"{path}: reading HDF5 needs h5py. Run `pip install refbias[words]`.") from None

    arrays: dict[str, Any] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.ndim in (1, 2):
            arrays[name] = item[()]

    try:
        with h5py.File(path, "r") as file:
            file.visititems(take)
    except (OSError, RuntimeError) as error:
        raise RefbiasError(f"{path} cannot be read as HDF5: {described(error)}.") from None
    words, rows = _pair(path, arrays)
    return ArraySource(str(path), rows.shape[1], lambda: (words, rows), [path])


def _pair(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[Sequence[str], NDArray[Any]]:
    """The one list of words and the one table of numbers among ``arrays``."""
    words = [name for name, array in arrays.items() if _are_words(array)]
    tables = [name for name, array in arrays.items() if array.ndim == 2 and array.dtype.kind in "fiu"]
    if len(words) != 1 or len(tables) != 1:
        shapes = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items())
        raise RefbiasError(
            f"{path}: expected one list of words (n,) and one table of numbers (n, d), got {shapes or 'neither'}."
        )
    texts = [word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in arrays[words[0]]]
    return texts, arrays[tables[0]]


def _are_words(array: NDArray[Any]) -> bool:
    return array.ndim == 1 and array.dtype.kind in "USO"


def _parquet_table(path: Path) -> ArraySource:
    parquet = _parquet()
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    import pyarrow.types as kinds  # type: ignore[import-untyped]

    try:
        file = parquet.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise RefbiasError(f"{path} cannot be read as parquet: {described(error)}.") from None
    fields = [field for field in file.schema_arrow if not field.name.startswith("__")]  # pandas' own row numbers

    def columns(*tests: Callable[[Any], bool]) -> list[str]:
        return [field.name for field in fields if any(test(field.type) for test in tests)]

    words = columns(kinds.is_string, kinds.is_large_string)
    lists = columns(kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
    numbers = columns(kinds.is_floating) or columns(kinds.is_integer)
    if not words or not (len(lists) == 1 or (not lists and numbers)):
        raise RefbiasError(
            f"{path}: expected a column of words and one column of lists of numbers, or columns of numbers, "
            f"got {', '.join(f'{f.name} ({f.type})' for f in fields)}."
        )

    def load() -> tuple[Sequence[str], NDArray[Any]]:
        table = file.read([words[0], *(lists or numbers)])
        texts = table.column(words[0]).to_pylist()
        if not lists:
            return texts, np.stack([table.column(name).to_numpy() for name in numbers], axis=1)
        column = table.column(lists[0]).combine_chunks()
        flat = column.flatten().to_numpy(zero_copy_only=False)
        if column.null_count or pc.unique(pc.list_value_length(column)).to_pylist() != [dim]:
            raise RefbiasError(f"{path}: expected lists of {dim} numbers in every row of column {lists[0]!r}.")
        return texts, flat.reshape(len(texts), dim)

    first = next(file.iter_batches(1, columns=lists), None) if lists else None
    dim = len(first.column(0)[0]) if first is not None else len(numbers)
    return ArraySource(str(path), dim, load, [path])


def _parquet() -> Any:
    try:
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError:
        raise RefbiasError("Reading parquet needs pyarrow. Run `pip install refbias[words]`.") from None
    return pyarrow.parquet


def _keyed(path: Path) -> ArraySource:
    words, rows = read_keyed_vectors(path)
    beside = [file for file in (Path(f"{path}.vectors.npy"), Path(f"{path}.wv.vectors.npy")) if file.is_file()]
    return ArraySource(str(path), rows.shape[1], lambda: (words, rows), [path, *beside])


def _mapped(path: Path) -> NDArray[Any]:
    try:
        rows: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RefbiasError(f"{path} cannot be read as an array: {described(error)}.") from None
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise RefbiasError(f"{path}: expected numbers of shape (n, d), got {rows.dtype} {rows.shape}.")
    return rows


def _vocabulary_beside(path: Path) -> Path | None:
    return next((file for end in _VOCABULARIES if (file := path.with_suffix(end)).is_file()), None)


def _vocabulary(path: Path) -> list[str]:
    """The words of a .txt file, one a line, or of a .json file: a list, or an object of rows by word."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".txt":
            return text.removesuffix("\n").split("\n")
        found = json.loads(text)
    except ValueError as error:
        raise RefbiasError(f"{path} cannot be read as a list of words: {described(error)}.") from None
    if isinstance(found, dict):
        if sorted(found.values(), key=repr) != sorted(range(len(found)), key=repr):
            raise RefbiasError(f"{path}: expected the rows 0 to {len(found) - 1}, one for each word.")
        found = sorted(found, key=found.__getitem__)
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise RefbiasError(f"{path}: expected a list of words, or an object of rows by word.")
    return found


_BY_CONTENT: Mapping[bytes, Callable[[Path], ArraySource | None]] = {
    b"PAR1": _parquet_table,
    b"\x89HDF": _hdf5,
    b"\x93NUMPY": _npy,
    b"PK\x03\x04": _npz,
    **{b"\x80" + bytes([protocol]): _keyed for protocol in range(2, 6)},
}
