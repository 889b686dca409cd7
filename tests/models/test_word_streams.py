"""Text and binary files of word vectors, as their writers leave them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from refbias.errors import RefbiasError
from refbias.models.word_streams import BinaryFile, Stream, TextFile, recognised_stream, utf8_only

# what real vocabularies hold: quotes, several words, a BOM, no-break space, a carriage return, numbers, a comment sign
WORDS = ["the", '"', "New York", ". . .", "\ufeffsea", "\xa0", "a\rb", "2000", "#", "nan", "été", "\u2028", "NA"]
ROWS = np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32)


def text_of(words: list[str], rows: np.ndarray, header: bool = False, between: str = " ", end: str = "\n") -> bytes:
    lines = [
        f"{word}{between}{between.join(map(str, row.tolist()))}{end}" for word, row in zip(words, rows, strict=True)
    ]
    first = f"{len(words)} {rows.shape[1]}\n" if header else ""
    return (first + "".join(lines)).encode()


def binary_of(words: list[str], rows: np.ndarray, end: bytes = b"") -> bytes:
    records = [word.encode() + b" " + row.astype("<f4").tobytes() + end for word, row in zip(words, rows, strict=True)]
    return f"{len(words)} {rows.shape[1]}\n".encode() + b"".join(records)


def stream_of(path: Path, content: bytes) -> Stream:
    path.write_bytes(content)
    found = recognised_stream(path)
    assert found is not None
    return found


def read(stream: Stream, size: int = 2**24) -> tuple[list[str], np.ndarray]:
    blocks = list(stream.blocks(size))
    return [word.decode() for words, _ in blocks for word in words], np.concatenate([rows for _, rows in blocks])


FORMS = {
    "glove": text_of(WORDS, ROWS),
    "word2vec": text_of(WORDS, ROWS, header=True),
    "fasttext": text_of(WORDS, ROWS, header=True, end=" \n"),
    "windows": text_of(WORDS, ROWS, end="\r\n"),
    "tabs": text_of(WORDS, ROWS, between="\t"),
    "gzip": gzip.compress(text_of(WORDS, ROWS)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_text_gives_the_same_words_and_numbers(form: str, tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "vectors", FORMS[form])
    assert isinstance(stream, TextFile) and stream.dim == 5
    words, rows = read(stream)
    assert words == WORDS and rows.dtype == np.float32
    np.testing.assert_array_equal(rows, ROWS)
    assert [word.decode() for word in stream.first_words(4)] == WORDS[:4]


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_binary_files_with_and_without_ends_of_lines(end: bytes, pack: type[bytes], tmp_path: Path) -> None:
    words = [word for word in WORDS if " " not in word]
    stream = stream_of(tmp_path / "vectors.bin", pack(binary_of(words, ROWS[: len(words)], end)))
    assert isinstance(stream, BinaryFile)
    found, rows = read(stream)
    assert found == words
    np.testing.assert_array_equal(rows, ROWS[: len(words)])
    assert [word.decode() for word in stream.first_words(3)] == words[:3]


@pytest.mark.parametrize("form", ["text", "binary"])
def test_blocks_of_any_size_and_a_choice_of_words_agree(form: str, tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(200)]
    rows = np.random.default_rng(1).normal(size=(200, 4)).astype(np.float32)
    stream = stream_of(tmp_path / "v", text_of(words, rows, header=True) if form == "text" else binary_of(words, rows))
    for size in (1, 300, 2**20):
        found, numbers = read(stream, size)
        assert found == words
        np.testing.assert_array_equal(numbers, rows)
    chosen = dict(stream.only({b"w199", b"w3", b"w", b"absent"}))
    assert set(chosen) == {b"w3", b"w199"}
    np.testing.assert_array_equal(chosen[b"w199"], rows[199])


def test_several_words_in_one_entry_are_chosen_whole(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "v.txt", text_of(WORDS, ROWS))
    assert [word for word, _ in stream.only({b"New York", b"New", b"."})] == [b"New York"]


@pytest.mark.parametrize("form", ["text", "binary"])
def test_gensims_own_files(form: str, tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    words = ["the", "sea", "New_York", "été"]
    vectors = models.KeyedVectors(7)
    vectors.add_vectors(words, np.random.default_rng(2).normal(size=(4, 7)).astype(np.float32))
    vectors.save_word2vec_format(str(tmp_path / "v"), binary=form == "binary")
    stream = recognised_stream(tmp_path / "v")
    assert isinstance(stream, BinaryFile if form == "binary" else TextFile)
    found, rows = read(stream)
    assert found == words
    np.testing.assert_array_equal(rows, vectors.vectors)


def test_the_word2vec_words_that_wefe_ships() -> None:
    wefe = pytest.importorskip("wefe.datasets")
    stream = recognised_stream(Path(wefe.__file__).parent / "data" / "weat_w2v____old.txt")
    assert stream is not None and stream.dim == 300
    words, rows = read(stream)
    assert (len(words), rows.shape, words[0]) == (347, (347, 300), "management")
    np.testing.assert_allclose(rows[0, :3], [-0.15332031, 0.103515625, -0.08984375])


def test_words_that_are_not_utf8_are_left_out_and_counted(tmp_path: Path) -> None:
    content = b"the 1 2 3\ncaf\xe9 4 5 6\nsea 7 8 9\n"
    (block,) = stream_of(tmp_path / "v.txt", content).blocks()
    (words, rows), odd = utf8_only(block)
    assert (words, odd) == ([b"the", b"sea"], 1)
    np.testing.assert_array_equal(rows, [[1, 2, 3], [7, 8, 9]])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("w150 1 2 3", "a number is missing"),
        ("w150 1 2 x 4", "one is no number"),
        ("w150 1 2 nan 4", "NaN"),
        ("w150 1 2 1e39 4", "infinite in four bytes"),
        ("w150 1 2 1e400 4", "infinite"),
        ("w150 1  3 4", "a gap"),
        ("", "an empty line"),
    ],
)
def test_a_bad_line_is_named(line: str, why: str, tmp_path: Path) -> None:
    lines = [f"w{i} 1 2 3 4" for i in range(200)]
    lines[150] = line
    stream = stream_of(tmp_path / "bad.txt", "\n".join(lines).encode())
    for size in (64, 2**24):
        with pytest.raises(RefbiasError, match=r"bad\.txt, line 151: expected a word and 4 numbers, all of them fin"):
            list(stream.blocks(size))
    assert len(list(stream.only({b"w1", b"w199"}))) == 2, "other lines are not looked at"
    if line:
        with pytest.raises(RefbiasError, match="line 151"):
            list(stream.only({b"w150"}))


def test_a_file_cut_short_is_said(tmp_path: Path) -> None:
    text = text_of(["a", "b", "c"], ROWS[:3], header=True)
    stream = stream_of(tmp_path / "v.txt", text[: text.rindex(b"c ")])
    for reading in (stream.blocks(), stream.only({b"a"})):
        with pytest.raises(RefbiasError, match=r"first line says 3 words, and 2 follow"):
            list(reading)
    binary = binary_of(["a", "b", "c"], ROWS[:3])
    with pytest.raises(RefbiasError, match=r"word 3 of 3: expected .* the file ends there"):
        list(stream_of(tmp_path / "v.bin", binary[:-1]).blocks())
    with pytest.raises(RefbiasError, match="says 3 words, and more bytes follow"):
        list(stream_of(tmp_path / "v.bin", binary + b"x").blocks())
    with pytest.raises(RefbiasError, match="damaged or cut short"):
        list(stream_of(tmp_path / "v.gz", gzip.compress(text_of(WORDS * 50, np.tile(ROWS, (50, 1))))[:-20]).blocks())


@pytest.mark.parametrize("word", ["New York", "New Ye", "a b"])
def test_a_word_with_a_space_in_a_binary_file_is_refused(word: str, tmp_path: Path) -> None:
    """gensim writes such files and reads them back wrongly."""
    rows = np.random.default_rng(3).normal(size=(3, 50)) * 0.1
    with pytest.raises(RefbiasError, match=r"word 2 of 3: expected a word without spaces .* shifts them"):
        list(stream_of(tmp_path / "v.bin", binary_of(["the", word, "sea"], rows)).blocks())


def test_what_holds_no_word_vectors(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for content in (b"", b"word\n", b"a line of prose\n", b"0 3\n", b"\x00\x01\x02" * 50, b"word 1\n"):
        path.write_bytes(content)
        assert recognised_stream(path) is None
    path.write_bytes((793712314).to_bytes(4, "little") + bytes(100))
    with pytest.raises(RefbiasError, match=r"fastText's own format\. Give its \.vec file"):
        recognised_stream(path)
