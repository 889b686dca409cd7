"""Tables of word vectors in files of arrays: one table, many forms, the same vectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.models import find_model
from refbias.models.vectors import VectorsModel

WORDS = ["the", "sea", "New_York", "été"]
ROWS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def npy_and_text(path: Path) -> Path:
    np.save(path / "v.npy", ROWS)
    (path / "v.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return path / "v.npy"


def npy_and_list(path: Path) -> Path:
    np.save(path / "v.npy", ROWS.astype(np.float64))
    (path / "v.json").write_text(json.dumps(WORDS))
    return path / "v.npy"


def npy_and_rows_by_word(path: Path) -> Path:
    np.save(path / "v.npy", ROWS)
    (path / "v.json").write_text(json.dumps({WORDS[row]: row for row in (2, 0, 3, 1)}))
    return path / "v.npy"


def npz(path: Path) -> Path:
    np.savez(path / "v.npz", words=np.array(WORDS), vectors=ROWS, dates=np.arange(4))
    return path / "v.npz"


def npz_and_text(path: Path) -> Path:
    np.savez(path / "v.npz", ROWS)
    (path / "v.txt").write_text("\n".join(WORDS), encoding="utf-8")
    return path / "v.npz"


def hdf5(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "v.h5", "w") as file:
        file["mat/words"] = np.array([word.encode() for word in WORDS])
        file["mat/values"] = ROWS
    return path / "v.h5"


def hdf5_of_texts(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "v", "w") as file:
        file.create_dataset("vocabulary", data=WORDS, dtype=h5py.string_dtype())
        file["vectors"] = ROWS
        file["counts"] = np.arange(4)
    return path / "v"


def parquet_of_columns(path: Path) -> Path:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pandas.DataFrame({"word": WORDS, "count": [9, 8, 7, 6], **{f"d{i}": ROWS[:, i] for i in range(3)}})
    table.to_parquet(path / "v.parquet")
    return path / "v.parquet"


def parquet_of_lists(path: Path) -> Path:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"word": WORDS, "vector": list(ROWS)}).set_index("word").to_parquet(path / "v.parquet")
    return path / "v.parquet"


def folder(path: Path) -> Path:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    np.save(path / "v_emb.npy", ROWS)
    pandas.DataFrame({"index": WORDS}).to_parquet(path / "v_index.parquet")
    return path


FORMS = [
    npy_and_text,
    npy_and_list,
    npy_and_rows_by_word,
    npz,
    npz_and_text,
    hdf5,
    hdf5_of_texts,
    parquet_of_columns,
    parquet_of_lists,
    folder,
]


def found(path: Path) -> VectorsModel:
    model = find_model(path, cache=Cache(None))
    assert isinstance(model, VectorsModel)
    return model


@pytest.mark.parametrize("write", FORMS)
def test_every_form_holds_the_same_table(write: Callable[[Path], Path], tmp_path: Path) -> None:
    model = found(write(tmp_path))
    assert (model.dim, model.notes, model.lowercased) == (3, (), False)
    index, rows = model.table
    assert dict(index) == {word: row for row, word in enumerate(WORDS)} and rows.dtype == np.float32
    np.testing.assert_array_equal(rows, ROWS)
    vectors, lost = model.lookup(["sea", "New York", "sky"])
    np.testing.assert_array_equal(vectors["New York"], ROWS[2])
    assert list(vectors) == ["sea", "New York"] and list(lost) == ["sky"]
    words, head = model.vocabulary_sample(2)
    assert words == WORDS[:2]
    np.testing.assert_array_equal(head, ROWS[:2])


def test_the_fingerprint_covers_the_words(tmp_path: Path) -> None:
    path = npy_and_text(tmp_path)
    before = found(path).fingerprint
    (tmp_path / "v.txt").write_text("\n".join([*WORDS[:3], "sky"]), encoding="utf-8")
    assert found(path).fingerprint != before


def test_repeated_words_are_counted_and_the_first_is_taken(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", ROWS)
    (tmp_path / "v.txt").write_text("the\nsea\nsea\nsea")
    model = found(tmp_path / "v.npy")
    np.testing.assert_array_equal(model.lookup(["sea"])[0]["sea"], ROWS[1])
    assert model.vocabulary_sample(3)[0] == ["the", "sea"]
    assert model.notes == ("2 words stand in the word vectors more than once: the first of each is taken",)


def test_a_row_that_is_not_finite_is_named(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[2, 1] = np.nan
    np.savez(tmp_path / "v.npz", words=np.array(WORDS), vectors=rows)
    model = found(tmp_path / "v.npz")
    assert list(model.lookup(["sea"])[0]) == ["sea"], "other rows are not looked at"
    for read in (lambda: model.table, lambda: model.lookup(["New York"])):
        with pytest.raises(RefbiasError, match=r"v\.npz, row 3 \('New_York'\): expected finite numbers"):
            read()


def npy_alone(path: Path) -> Path:
    np.save(path / "v.npy", ROWS)
    return path / "v.npy"


def npy_of_one_axis(path: Path) -> Path:
    np.save(path / "v.npy", ROWS[0])
    return path / "v.npy"


def npy_with_too_few_words(path: Path) -> Path:
    np.save(path / "v.npy", ROWS)
    (path / "v.txt").write_text("the\nsea\n")
    return path / "v.npy"


def npy_with_odd_rows(path: Path) -> Path:
    np.save(path / "v.npy", ROWS)
    (path / "v.json").write_text('{"the": 0, "sea": 2}')
    return path / "v.npy"


def npz_of_two_tables(path: Path) -> Path:
    np.savez(path / "v.npz", words=np.array(WORDS), one=ROWS, two=ROWS)
    return path / "v.npz"


def npz_of_objects(path: Path) -> Path:
    np.savez(path / "v.npz", words=np.array(WORDS, object), vectors=ROWS)
    return path / "v.npz"


def archive(path: Path) -> Path:
    np.savez(path / "v.npz", ROWS)
    return (path / "v.npz").rename(path / "v.zip")


def weights(path: Path) -> Path:
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.ones(2)}, path / "pytorch_model.bin")
    return path / "pytorch_model.bin"


def parquet_without_numbers(path: Path) -> Path:
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas").DataFrame({"word": WORDS}).to_parquet(path / "v.parquet")
    return path / "v.parquet"


def parquet_of_uneven_lists(path: Path) -> Path:
    pytest.importorskip("pyarrow")
    lists = [[1.0, 2.0], [1.0], [1.0, 2.0, 3.0], [1.0, 2.0]]
    pytest.importorskip("pandas").DataFrame({"word": WORDS, "vector": lists}).to_parquet(path / "v.parquet")
    return path / "v.parquet"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (npy_alone, r"numbers without words: expected a file v\.txt, one word a line, or v\.json"),
        (npy_of_one_axis, r"expected numbers of shape \(n, d\), got float32 \(3,\)"),
        (npy_with_too_few_words, r"2 words and vectors of shape \(4, 3\) do not fit"),
        (npy_with_odd_rows, "expected the rows 0 to 1, one for each word"),
        (npz_of_two_tables, r"expected one list of words \(n,\) and one table .* got words .*, one .*, two "),
        (npz_of_objects, "expected an npz with sentences"),
        (archive, "is an archive: unpack it"),
        (weights, "A language model is given as its folder"),
        (parquet_without_numbers, "expected a column of words and one column of lists"),
        (parquet_of_uneven_lists, "expected lists of 2 numbers in every row of column 'vector'"),
    ],
)
def test_what_does_not_fit_is_said(write: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    with pytest.raises(RefbiasError, match=message):
        found(write(tmp_path)).lookup(["sea"])
