"""Word vectors, and vectors computed elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refbias.cache import Cache
from refbias.context import Context
from refbias.encoders import ENCODERS
from refbias.encoding import embed, encode
from refbias.errors import RefbiasError, UsageError
from refbias.models import find_model
from refbias.pooling import built_in

GLOVE = "the 1 0 0\nsea 0 2 0\ncalm 0 0 4\n. . . 9 9 9\n"


@pytest.fixture(params=["glove", "word2vec"])
def word_vectors(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_text(("4 3\n" if request.param == "word2vec" else "") + GLOVE, encoding="utf-8")
    return path


def test_a_sentence_is_the_mean_of_its_words(word_vectors: Path) -> None:
    found = encode(str(word_vectors), ["The calm sea.", "Sea, the sea!"])
    np.testing.assert_allclose(found, [[1 / 3, 2 / 3, 4 / 3], [1 / 3, 4 / 3, 0]], rtol=1e-6)
    np.testing.assert_allclose(encode(str(word_vectors), ["The calm sea."], pooling="last"), [[0, 2, 0]])


def test_words_without_a_vector_are_counted(word_vectors: Path, context: Context) -> None:
    encoder = ENCODERS["auto"](find_model(word_vectors, cache=context.cache), context)
    found = embed(encoder, ["The wide calm sea.", "Calm waters."], [0], [built_in("mean")], context.cache)
    assert (found.missing_words, found.encoded, found.tokens) == (2, 2, 4)
    with pytest.raises(RefbiasError, match="has a vector for no word of 'Wide waters.'"):
        encode(str(word_vectors), ["Wide waters."])


def test_case_is_an_option_and_recorded(word_vectors: Path, context: Context) -> None:
    model = find_model(word_vectors, cache=context.cache)
    with pytest.raises(RefbiasError, match="for no word of 'SEA'"):
        encode(model, ["SEA"], encoder=("vectors", {"lowercase": False}))
    assert ENCODERS["vectors"](model, context).conventions == {"lowercase": True}


def test_word_vectors_have_layer_0_alone_and_no_model_to_open(word_vectors: Path, cache: Cache) -> None:
    model = find_model(word_vectors, cache=cache)
    assert (model.kind, model.layers, model.dim) == ("vectors", 0, 3)
    with pytest.raises(UsageError, match="layer=3: there is no such layer"):
        encode(model, ["sea"], layer=3)
    with pytest.raises(RefbiasError, match="is a table of vectors"), model.open():
        pass
    with pytest.raises(UsageError, match="encoder=hf needs a transformer model"):
        encode(model, ["sea"], encoder="hf")


def test_a_bad_line_is_named(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "bad.vec").write_text("the 1 0 0\nsea 0 x 0\n")
    with pytest.raises(RefbiasError, match=r"bad\.vec, line 2: expected a word and 3 numbers"):
        encode(str(tmp_path / "bad.vec"), ["the sea"])
    (tmp_path / "prose.txt").write_text("word\n")
    with pytest.raises(RefbiasError, match="expected lines of a word and its numbers"):
        find_model(tmp_path / "prose.txt", cache=cache)


def test_glove_from_its_package() -> None:
    try:
        model = find_model("glove50", cache=Cache(None))
    except RefbiasError as error:
        pytest.skip(str(error))
    joy, happy, tax = encode(model, ["joy", "happiness", "tax"])
    cosine = lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b)  # noqa: E731
    assert cosine(joy, happy) > 0.7 > 0.4 > cosine(joy, tax)


def arrays_file(path: Path, vectors: np.ndarray, sentences: list[str]) -> Path:
    np.savez(path, sentences=np.array(sentences), vectors=vectors)
    return path


def test_arrays_are_looked_up(tmp_path: Path) -> None:
    rows = np.arange(24, dtype=np.float64).reshape(2, 3, 4)
    path = arrays_file(tmp_path / "a.npz", rows, ["one", "two"])
    np.testing.assert_array_equal(encode(str(path), ["two", "one", "two"], layer=1), rows[[1, 0, 1], 1])
    assert encode(str(path), ["one"], layer="all").shape == (1, 3, 4)
    flat = arrays_file(tmp_path / "b.npz", rows[:, 0], ["one", "two"])
    np.testing.assert_array_equal(encode(str(flat), ["two"]), rows[[1], 0])


def test_arrays_lack_a_sentence_or_are_pooled_again(tmp_path: Path) -> None:
    path = arrays_file(tmp_path / "a.npz", np.ones((1, 3)), ["one"])
    with pytest.raises(RefbiasError, match="lacks 1 of 2 sentences, first 'two'"):
        encode(str(path), ["one", "two"])
    with pytest.raises(UsageError, match=r"pooled already: leave pooling=mean, not max"):
        encode(str(path), ["one"], pooling="max")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"sentences": np.array(["a"]), "vectors": np.ones((2, 3))}, r"got shapes \(1,\) and \(2, 3\)"),
        ({"sentences": np.array(["a"]), "vectors": np.full((1, 3), np.nan)}, "holds NaN or infinity"),
        ({"sentences": np.array(["a"], dtype=object), "vectors": np.ones((1, 3))}, "Reading it failed"),
        ({"vectors": np.ones((1, 3))}, "Reading it failed"),
    ],
)
def test_arrays_of_another_form(content: dict[str, np.ndarray], message: str, tmp_path: Path, cache: Cache) -> None:
    np.savez(tmp_path / "a.npz", **content)  # type: ignore[arg-type]
    with pytest.raises(RefbiasError, match=message):
        find_model(tmp_path / "a.npz", cache=cache)
