"""Word vectors from sentences: equal to a computation by hand, each sentence encoded once, and never twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from refbias.cache import Cache
from refbias.context import Context
from refbias.encoders import ENCODERS, HFEncoder
from refbias.errors import RefbiasError, UsageError
from refbias.models import DerivedModel, LiveModel, Model, find_model, set_weights
from refbias.pooling import built_in
from refbias.watch import Quiet
from refbias.words import WORDS, Lookup, aggregated, isolated
from tests.words.conftest import KINDS, TEXTS, corpus_of, model_of

Make = Callable[..., Lookup]
SOUGHT = ["flute", "Adam", "New York", "peace", "women", "mother-in-law", "York"]


def by_hand(model: Model, sentence: str, word: str, layer: int) -> np.ndarray:
    """Mean state of the tokens of ``word``, which stands once, by transformers alone."""
    start = sentence.index(word)
    with model.open() as loaded, torch.inference_mode():
        encoding = loaded.tokenizer(sentence, return_tensors="pt")
        letters = [start + i for i, letter in enumerate(word) if letter != " "]
        tokens = sorted({encoding.char_to_token(at) for at in letters})
        states = loaded.model(input_ids=encoding["input_ids"], output_hidden_states=True).hidden_states[layer]
    return states[0, tokens].double().mean(0).numpy()


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "t5"])
def test_a_context_is_the_mean_state_of_the_words_tokens(
    family: str, tiny: dict[str, Path], lookup: Make, context: Context
) -> None:
    model = find_model(tiny[family], cache=context.cache)
    sentence = TEXTS[2]
    for layer in (0, 2, 4):
        found = aggregated(lookup(ENCODERS["auto"](model, context), ["women", "York", "mother-in-law"], layer=layer))
        for word in ("women", "mother-in-law"):
            assert found.sentences[word] == [sentence]
            expected = by_hand(model, sentence, word, layer)
            np.testing.assert_allclose(found.vectors[word], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
            np.testing.assert_array_equal(found.contexts[word], [found.vectors[word]])


@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_is_the_mean_over_its_sentences(kind: str, encoders: dict[str, HFEncoder], lookup: Make) -> None:
    encoder = encoders[kind]
    found = aggregated(lookup(encoder, SOUGHT))
    for word in ("flute", "New York", "women"):
        texts = [text for text in TEXTS if word in text]
        assert sorted(found.sentences[word]) == sorted(texts)
        rows = np.stack([by_hand(encoder.model, text, word, 2) for text in found.sentences[word]])
        np.testing.assert_allclose(found.contexts[word], rows, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.vectors[word], rows.mean(0), rtol=1e-4, atol=1e-5)
    assert len(found.contexts["York"]) == 2  # in "New York" too: it stands there as a word
    assert found.report["pairs_beyond_the_word"] == found.report["pairs_cut_off"] == 0


def test_a_word_counts_where_it_first_stands(encoders: dict[str, HFEncoder], lookup: Make) -> None:
    encoder, sentence = encoders["byte_level"], "A drum is a drum, and a drum."
    found = aggregated(lookup(encoder, ["drum"], [sentence]))
    expected = by_hand(encoder.model, sentence.replace("drum, and a drum", "flute"), "drum", 2)
    np.testing.assert_allclose(found.vectors["drum"], expected, rtol=1e-4, atol=1e-5)  # what follows has no say
    assert found.report["causal"] and found.report["occurrence"] == "first"


def test_each_sentence_is_encoded_once_for_all_its_words(encoders: dict[str, HFEncoder], lookup: Make) -> None:
    encoder = replace(encoders["byte_level"], counts=type(encoders["byte_level"].counts)())
    asked = lookup(encoder, SOUGHT)
    found = aggregated(asked)
    distinct = {text for texts in found.sentences.values() for text in texts}
    assert encoder.counts.sentences == found.report["sentences_encoded"] == len(distinct) == 6
    assert found.report["pairs"] == sum(map(len, found.sentences.values())) == 14
    tokens = found.report["tokens_encoded"]
    assert tokens == encoder.counts.tokens > 0

    again = aggregated(replace(asked, context=Context(Cache(asked.context.cache.directory))))
    assert encoder.counts.sentences == 6
    assert again.report["sentences_encoded"] == again.report["tokens_encoded"] == 0
    assert again.report["sentences_from_cache"] == 6
    for word in SOUGHT:
        np.testing.assert_array_equal(again.contexts[word], found.contexts[word])

    more = aggregated(replace(asked, words=[*SOUGHT, "friends", "violin"]))  # one sentence new, one word in an old one
    assert more.report["sentences_encoded"] == 2
    assert aggregated(replace(asked, layer=1)).report["sentences_encoded"] == 6


def test_layers_that_will_be_asked_for_are_encoded_together(encoders: dict[str, HFEncoder], lookup: Make) -> None:
    encoder = encoders["metaspace"]
    asked = replace(lookup(encoder, SOUGHT), layers=(0, 1, 2))
    for form, counted in ((aggregated, "sentences_encoded"), (isolated, "words_encoded")):
        found = {layer: form(replace(asked, layer=layer)) for layer in asked.layers}
        assert [found[layer].report[counted] > 0 for layer in asked.layers] == [True, False, False]
        for layer in asked.layers:
            alone = form(replace(lookup(encoder, SOUGHT, layer=layer), context=Context(Cache(None))))
            for word in SOUGHT:
                np.testing.assert_allclose(found[layer].vectors[word], alone.vectors[word], rtol=1e-5, atol=1e-6)


def test_batches_change_nothing(encoders: dict[str, HFEncoder], context: Context) -> None:
    for kind in KINDS:
        results = []
        for tokens, order in ((1, 1), (4096, -1)):
            encoder = replace(encoders[kind], batch_tokens=tokens)
            asked = Lookup(
                encoder, SOUGHT[::order], 2, built_in("mean"), corpus_of(TEXTS[::order]), Context(Cache(None))
            )
            results.append(aggregated(asked))
        for word in SOUGHT:
            assert results[0].sentences[word] == results[1].sentences[word]
            np.testing.assert_allclose(results[0].contexts[word], results[1].contexts[word], rtol=1e-4, atol=1e-5)


class Stopping(Quiet):
    """Ends the run after the first batch."""

    @contextmanager
    def progress(self, label: str, total: int, unit: str = "") -> Iterator[Any]:
        def advance(n: int) -> None:
            raise KeyboardInterrupt

        yield advance


def test_what_is_done_survives_a_kill(encoders: dict[str, HFEncoder], lookup: Make) -> None:
    encoder = replace(encoders["wordpiece"], batch_tokens=1)
    asked = lookup(encoder, SOUGHT)
    with pytest.raises(KeyboardInterrupt):
        aggregated(replace(asked, context=replace(asked.context, watch=Stopping())))
    found = aggregated(replace(asked, context=Context(Cache(asked.context.cache.directory))))
    assert found.report["sentences_from_cache"] == 1
    assert found.report["sentences_encoded"] == 5


def test_the_seed_draws_the_sentences_and_the_case_finds_them(encoders: dict[str, HFEncoder], lookup: Make) -> None:
    texts = [f"Sentence {i} has a drum." for i in range(30)] + ["A DRUM."]
    asked = lookup(encoders["byte_level"], ["drum"], texts)
    draws = [aggregated(asked, sentences=5, seed=seed).sentences["drum"] for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert len(draws[0]) == 5
    seeded = replace(asked, context=replace(asked.context, seed=1))
    assert aggregated(seeded, sentences=5).sentences["drum"] == draws[2]
    assert len(aggregated(asked, sentences=99).contexts["drum"]) == 30
    assert len(aggregated(asked, sentences=99, case="fold").contexts["drum"]) == 31


def test_words_without_a_vector_say_why(models: dict[str, Any], encoders: dict[str, HFEncoder], lookup: Make) -> None:
    short = replace(encoders["byte_level"], max_length=8)
    found = aggregated(lookup(short, ["drum", "harp", "Adam", "nowhere"]))
    assert found.lost == {
        "harp": "cut off in every sentence that was drawn for it: raise encoder.max_length",
        "drum": "cut off in every sentence that was drawn for it: raise encoder.max_length",
        "nowhere": "in no sentence of corpus own",
    }
    assert found.sentences["Adam"] == [TEXTS[1]]  # where it comes first; elsewhere it is cut off
    assert found.report["pairs_cut_off"] > 2
    unknown = aggregated(lookup(encoders["wordpiece"], ["東京"], ["It is called 東京 there."]))
    assert unknown.lost == {"東京": "unknown to the tokenizer in every sentence that was drawn for it"}
    again = aggregated(lookup(encoders["wordpiece"], ["東京"], ["It is called 東京 there."]))
    assert again.lost == unknown.lost and again.report["sentences_encoded"] == 0


def test_a_changed_model_takes_the_layers_it_shares_from_its_base(
    tiny_llama: Path, context: Context, lookup: Make
) -> None:
    base = find_model(tiny_llama, cache=context.cache)

    def apply(module: torch.nn.Module) -> Callable[[], None]:
        name = "model.layers.2.mlp.down_proj.weight"
        return set_weights(module, {name: 2 * dict(module.named_parameters())[name]})

    changed = DerivedModel(base, "changed", base.fingerprint + "*", apply, shared_below=2)
    first = aggregated(lookup(ENCODERS["hf"](base, context), SOUGHT, layer=2))
    below = aggregated(lookup(ENCODERS["hf"](changed, context), SOUGHT, layer=2))
    above = aggregated(lookup(ENCODERS["hf"](changed, context), SOUGHT, layer=3))
    assert first.report["sentences_encoded"] == above.report["sentences_encoded"] == 6
    assert below.report["sentences_encoded"] == 0
    plain = aggregated(lookup(ENCODERS["hf"](base, context), SOUGHT, layer=3))
    assert not np.allclose(plain.vectors["Adam"], above.vectors["Adam"])


def test_a_chat_template_moves_the_words(tiny_llama: Path, context: Context, lookup: Make) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    sentence = TEXTS[1]
    found = aggregated(lookup(ENCODERS["hf"](model, context, chat_template=True), ["harmony"], [sentence]))
    with model.open() as loaded, torch.inference_mode():
        text = f"<s>user: {sentence}</s>"
        encoding = loaded.tokenizer(text, return_tensors="pt", add_special_tokens=False)
        at = text.index("harmony")
        tokens = sorted({encoding.char_to_token(i) for i in range(at, at + len("harmony"))})
        states = loaded.model(input_ids=encoding["input_ids"], output_hidden_states=True).hidden_states[2]
    expected = states[0, tokens].mean(0).numpy()
    np.testing.assert_allclose(found.vectors["harmony"], expected, rtol=1e-4, atol=1e-5)


def test_wrong_use_is_refused(encoders: dict[str, HFEncoder], lookup: Make, vector_models: Any) -> None:
    with pytest.raises(UsageError, match=r"words\.sentences=0: expected 1 or more"):
        aggregated(lookup(encoders["byte_level"], ["drum"]), sentences=0)
    arrays = find_model(vector_models[0], cache=Cache(None))
    with pytest.raises(UsageError, match="words=aggregated needs the states of tokens"):
        aggregated(lookup(ENCODERS["auto"](arrays, Context(Cache(None))), ["drum"]))


def test_a_tokenizer_without_offsets_is_refused(lookup: Make) -> None:
    import transformers

    live = LiveModel(model_of("byte_level")._model, transformers.ByT5Tokenizer(), name="bytes")
    with pytest.raises(RefbiasError, match=r"its tokenizer \(ByT5Tokenizer\) does not say which characters"):
        aggregated(lookup(ENCODERS["hf"](live, Context(Cache(None))), ["drum"]))


def test_infinity_is_found(lookup: Make) -> None:
    made = model_of("byte_level")
    with torch.no_grad():
        made._model.model.layers[1].mlp.down_proj.weight.fill_(torch.inf)
    encoder = ENCODERS["hf"](LiveModel(made._model, made._tokenizer, name="broken"), Context(Cache(None)))
    aggregated(lookup(encoder, ["drum"], layer=1))
    with pytest.raises(RefbiasError, match="Model broken gives NaN or infinity at layer 2, mean of a word, for '"):
        aggregated(lookup(encoder, ["drum"], layer=2))


# --- the other forms


def test_isolated_words_are_sentences_of_one_word(encoders: dict[str, HFEncoder], lookup: Make) -> None:
    encoder = encoders["wordpiece"]
    asked = lookup(encoder, ["flute", "Adam", "flute"], None)
    found = isolated(asked)
    with encoder.model.open() as loaded, torch.inference_mode():
        ids = loaded.tokenizer("flute", return_tensors="pt")["input_ids"]
        expected = loaded.model(input_ids=ids, output_hidden_states=True).hidden_states[2][0].mean(0).numpy()
    np.testing.assert_allclose(found.vectors["flute"], expected, rtol=1e-4, atol=1e-5)
    assert found.form == "isolated" and not found.lost
    assert found.report["words_encoded"] == 2 and found.report["pooling"] == built_in("mean").key
    assert isolated(asked).report["words_encoded"] == 0


def test_auto_takes_the_form_that_fits_the_model(
    encoders: dict[str, HFEncoder], lookup: Make, tmp_path: Path, vector_models: Any
) -> None:
    assert WORDS["auto"](lookup(encoders["wordpiece"], ["flute"])).form == "aggregated"
    file = tmp_path / "words.txt"
    file.write_text("flute 1 0\ndrum 0 1\n", encoding="utf-8")
    context = Context(Cache(None))
    table = ENCODERS["auto"](find_model(file, cache=context.cache), context)
    found = WORDS["auto"](lookup(table, ["flute"], layer=0))
    assert found.form == "table"
    np.testing.assert_array_equal(found.vectors["flute"], [1, 0])
    with pytest.raises(UsageError, match="Use words=table"):
        isolated(lookup(table, ["flute"], layer=0))


def test_minilm_is_looked_up_word_by_word(lookup: Make) -> None:
    try:
        model = find_model("minilm", cache=Cache(None))
    except RefbiasError as error:
        pytest.skip(str(error))
    asked = lookup(ENCODERS["auto"](model, Context(Cache(None))), ["music", "dance", "rifle"], layer=model.layers)
    found = WORDS["auto"](asked)
    assert found.form == "isolated"
    music, dance, rifle = (found.vectors[word] for word in ("music", "dance", "rifle"))
    np.testing.assert_allclose(np.linalg.norm(music), 1, rtol=1e-5)
    assert music @ dance > music @ rifle + 0.1


class Heard(Quiet):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_the_wikipedia_sample_is_taken_where_no_corpus_is_named(encoders: dict[str, HFEncoder], lookup: Make) -> None:
    pytest.importorskip("gensim")
    asked = lookup(encoders["byte_level"], ["flute", "New York"], None)
    heard = Heard()
    found = aggregated(replace(asked, context=replace(asked.context, watch=heard)), sentences=2)
    assert found.report["corpus"] == "wikipedia" and len(found.contexts["New York"]) == 2
    assert heard.said[0] == "no corpus is named: words in context come from corpus=wikipedia"


@pytest.mark.slow
def test_smollm2_knows_words_by_their_contexts(smollm2: Model, context: Context, lookup: Make) -> None:
    """Centred, the vectors of two arts are more alike than those of an art and a month."""
    pytest.importorskip("gensim")
    words = ["poetry", "dance", "music", "August", "March", "June"]
    asked = lookup(ENCODERS["auto"](smollm2, context), words, None, layer=15)
    found = aggregated(asked, sentences=8)
    assert not found.lost
    rows = found.matrix(words) - found.matrix(words).mean(0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    alike = rows @ rows.T
    assert min(alike[0, 1], alike[3, 4], alike[4, 5]) > alike[:3, 3:].max()
    word = "dance"
    for text, row in zip(found.sentences[word], found.contexts[word], strict=True):
        if text.count(word) == 1:
            np.testing.assert_allclose(row, by_hand(smollm2, text, word, 15), rtol=1e-3, atol=1e-3)
