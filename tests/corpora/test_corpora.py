"""Corpora: from a file, from the Wikipedia sample, from a data set; what their digest stands for."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from refbias.corpora import CORPORA, Corpus, fetch, file, hub, wikipedia
from refbias.errors import RefbiasError, UsageError

WIKITEXT = Path(__file__).resolve().parents[3] / "shared" / "data" / "wikitext-2" / "valid.txt"
TEXT = "The first sentence of this small text is here. The second sentence is here, too, as promised. Short one.\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_file_is_split_into_sentences(text: Path) -> None:
    corpus = file(path=str(text))
    assert sorted(corpus.sentences()) == [
        "The first sentence of this small text is here.",
        "The second sentence is here, too, as promised.",
    ]
    assert list(corpus.sentences()) == list(corpus.sentences())
    assert corpus.name == "file:text.txt" and corpus.n == 6000
    assert corpus.notes == ("text: sentences of 7 to 75 tokens, 200,000 at most, seed 0",)
    assert list(file(path=str(text), form="sentences").sentences()) == [TEXT.strip()]
    assert len(list(file(path=str(text), min_tokens=1).sentences())) == 3
    assert len(list(file(path=str(text), min_tokens=1, most=2).sentences())) == 2


def test_the_digest_stands_for_content_and_options(text: Path, tmp_path: Path) -> None:
    def digest(**options: object) -> str:
        return file(**{"path": str(text), **options}).digest  # type: ignore[arg-type]

    first = digest()
    copy = tmp_path / "copy.txt"
    copy.write_bytes(text.read_bytes())
    assert digest(path=str(copy)) == digest(n=5) == digest(form="text") == first
    changed = [{"form": "sentences"}, {"min_tokens": 6}, {"max_tokens": 70}, {"most": 5}, {"seed": 1}]
    digests = [digest(**options) for options in changed]
    text.write_text(TEXT + "x", encoding="utf-8")
    assert len({first, *digests, digest()}) == 7


def test_the_seed_draws_where_there_are_more_sentences_than_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "many.txt"
    lines = [f"This is sentence number {i} of one hundred." for i in range(100)]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert list(file(path=str(path), seed=1).sentences()) == lines
    draws = [set(file(path=str(path), most=40, seed=seed).sentences()) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert all(len(draw) == 40 and draw <= set(lines) for draw in draws)
    assert max(lines.index(line) for line in draws[0]) > 80  # from all of the file


def test_wrong_options_and_files_are_refused(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"corpus\.path is not set"):
        file()
    with pytest.raises(UsageError, match=r"corpus\.path=nowhere\.txt: no such file"):
        file(path="nowhere.txt")
    with pytest.raises(UsageError, match=r"corpus\.min_tokens=9, corpus\.max_tokens=8"):
        file(path=str(text), min_tokens=9, max_tokens=8)
    with pytest.raises(UsageError, match=r"is a file\. Name its folder, or use corpus=file"):
        hub(dataset=str(text))
    with pytest.raises(UsageError, match=r"corpus\.most=0: expected 1 or more"):
        file(path=str(text), most=0)
    with pytest.raises(UsageError, match=r"corpus\.form='verse': expected auto, text, sentences, wikitext"):
        file(path=str(text), form="verse")  # type: ignore[arg-type]
    with pytest.raises(RefbiasError, match="holds no sentence of 50 to 75 tokens"):
        list(file(path=str(text), min_tokens=50).sentences())
    latin = tmp_path / "latin.txt"
    latin.write_bytes("plain\ncaf\xe9\n".encode("latin-1"))
    with pytest.raises(RefbiasError, match=r"latin\.txt, line 2 is not UTF-8"):
        file(path=str(latin))


def test_a_byte_order_mark_is_no_text(text: Path) -> None:
    text.write_text(TEXT, encoding="utf-8-sig")
    assert next(file(path=str(text)).sentences()) == "The first sentence of this small text is here."


def test_corpora_are_parts() -> None:
    from refbias.registry import registry

    assert registry().parts("corpus").keys() >= {"wikipedia", "file", "hub"} == CORPORA.keys()


def test_the_wikipedia_sample_is_prose() -> None:
    pytest.importorskip("gensim")
    corpus = wikipedia()
    began = time.perf_counter()
    sentences = list(corpus.sentences())
    assert time.perf_counter() - began < 30
    assert len(sentences) > 15_000
    assert len(set(sentences)) > 0.99 * len(sentences)
    assert all(7 <= len(sentence.split()) <= 75 for sentence in sentences)
    markup = re.compile(r"[\[\]{}|]|''|==|<|>|https?:|&\w+;| ,")
    assert sum(bool(markup.search(sentence)) for sentence in sentences) < 20
    assert all(sentence[-1] in ".!?\"'”’)" for sentence in sentences)
    assert sum("York" in sentence for sentence in sentences) > 50
    assert "CC BY-SA" in corpus.notes[0]
    assert wikipedia(seed=1).digest != corpus.digest == wikipedia(seed=0, n=7).digest


def test_without_gensim_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RefbiasError, match=r"gensim is not installed\. Install it .* corpus=file corpus\.path=FILE"):
        wikipedia()


@pytest.mark.skipif(not WIKITEXT.is_file(), reason="WikiText-2 is not in the shared data")
def test_a_wikitext_file_is_recognised_and_written_as_usual() -> None:
    corpus = file(path=str(WIKITEXT))
    assert corpus.notes[0].startswith("wikitext: ") and "<unk>" in corpus.notes[1]
    sentences = list(corpus.sentences())
    assert len(sentences) > 2000
    odd = re.compile(r"@[-,.]@|<unk>|^=| [.,;:!?)](?: |$)|\( |[“”]")
    assert sum(bool(odd.search(sentence)) for sentence in sentences) < 0.005 * len(sentences)
    size = "It may grow to a length of 60 cm (24 in) and a mass of 6 kilograms (13 lb), and bears"
    assert any(sentence.startswith(size) for sentence in sentences)


# --- data sets


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return tmp_path


def test_a_local_data_set_is_read_once(own_cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("datasets")
    folder = own_cache / "set"
    folder.mkdir()
    rows = [{"body": TEXT.strip()}, {"body": None}, {"body": "A third sentence that is long enough to be kept."}]
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    def read(**options: object) -> Corpus:
        return hub(dataset=str(folder), field="body", **options)  # type: ignore[arg-type]

    corpus = read()
    assert len(list(corpus.sentences())) == 3
    assert corpus.notes[0] == f"data set {folder}, config None, split train, field body, of a local folder"
    began = time.perf_counter()
    assert read().digest == corpus.digest  # kept: no process is started
    assert time.perf_counter() - began < 0.5
    (folder / "train.jsonl").write_text(json.dumps(rows[2]), encoding="utf-8")
    assert len(list(read().sentences())) == 1


def test_a_field_that_the_rows_lack_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "rows", lambda *of: iter([{"body": "A row.", "id": 1}]))
    fetch.fetch("set", None, "train", "body", 5, str(tmp_path / "text.txt"))
    assert (tmp_path / "text.txt").read_text(encoding="utf-8") == "A row.\n"
    with pytest.raises(LookupError, match="no field 'text' in its rows: they have body, id"):
        fetch.fetch("set", None, "train", "text", 5, str(tmp_path / "text.txt"))


def test_a_hub_that_is_out_of_reach_is_given_up_within_seconds(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    began = time.perf_counter()
    with pytest.raises(RefbiasError, match=r"corpus\.dataset=someone/texts cannot be read: .*corpus=file"):
        hub(dataset="someone/texts")
    assert time.perf_counter() - began < 15
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RefbiasError, match="HF_HUB_OFFLINE=1 forbids to try the hub"):
        hub(dataset="someone/texts")
