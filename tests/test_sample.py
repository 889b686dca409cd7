from __future__ import annotations

from pathlib import Path

import jsonschema
import numpy as np
import pytest

import refbias
from refbias.cache import Cache, CacheWarning
from refbias.calibration import ABTT, ZCA, Center, Identity, Saved, load
from refbias.context import Context
from refbias.corpora import Corpus
from refbias.encoding import encode
from refbias.errors import RefbiasError, UsageError
from refbias.models import find_model
from refbias.pooling import built_in
from refbias.registry import registry
from refbias.sample import fitted, fitting, reference_sample, sentence_samples
from refbias.schema import result_schema
from tests.tiny_models import write_tiny

WORDS = ("walk", "speak", "live", "read", "sing", "work", "cook", "play")
TEXT = [f"People {one} and {other} in the {place}." for one in WORDS for other in WORDS for place in ("park", "town")]


def corpus(n: int = 40, text: list[str] = TEXT) -> Corpus:
    return Corpus("own", f"digest of {len(text)}", lambda: iter(text), n)


@pytest.fixture
def encoder(tiny_llama, context):
    return registry().resolve("encoder", "auto").object(find_model(tiny_llama, cache=context.cache), context)


@pytest.fixture(scope="module")
def glove(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("glove") / "tiny.txt"
    lines = (" ".join([f"word{i}", *(f"{x:.4f}" for x in rng.normal(size=6))]) for i in range(300))
    path.write_text("\n".join(lines) + "\n")
    return path


# Samples


def test_sentences_of_a_corpus_as_the_model_sees_them(encoder, context, tiny_llama):
    layer, pooling = encoder.layers, built_in("mean")
    sample = reference_sample(encoder, layer, pooling, corpus(), context)
    assert (sample.kind, sample.n, len(set(sample.items))) == ("sentences", 40, 40)
    assert set(sample.items) <= set(TEXT)
    np.testing.assert_allclose(sample.vectors(), encode(tiny_llama, sample.items), atol=1e-5)
    np.testing.assert_array_equal(sample.read(np.array([3, 1])), sample.vectors()[[3, 1]])
    again = reference_sample(encoder, layer, pooling, corpus(), context)
    assert (again.items, again.digest) == (sample.items, sample.digest)


def test_a_digest_stands_for_model_layer_pooling_corpus_and_seed(encoder, context, tiny):
    def digest(k=1, pooling="mean", text=corpus(), seed=0, made=encoder):  # noqa: B008
        where = Context(context.cache, seed=seed)
        return reference_sample(made, k, built_in(pooling), text, where).digest

    other = registry().resolve("encoder", "auto").object(find_model(tiny["gpt2"], cache=context.cache), context)
    every = [
        digest(), digest(k=2), digest(pooling="max"), digest(text=corpus(30)), digest(text=corpus(40, TEXT[:60])),
        digest(seed=1), digest(made=other),
    ]  # fmt: skip
    assert len(set(every)) == len(every)


def test_all_layers_are_encoded_together(encoder, context):
    costs = []
    samples = sentence_samples(encoder, [1, 4], built_in("mean"), corpus(), context, met=costs.append)
    assert costs == []
    samples[4].vectors()
    samples[1].vectors()
    assert [cost.encoded for cost in costs] == [40]
    assert encoder.counts.sentences == 40


def test_a_small_corpus_and_a_limit(encoder, context):
    assert reference_sample(encoder, 1, built_in("mean"), corpus(999, TEXT + TEXT), context).n == len(TEXT)
    assert reference_sample(encoder, 1, built_in("mean"), corpus(), context, most=7).n == 7
    with pytest.raises(UsageError, match="name them with corpus="):
        reference_sample(encoder, 1, built_in("mean"), None, context)


def test_word_vectors_give_the_head_of_their_vocabulary(glove, context):
    model = find_model(glove, cache=context.cache)
    encoder = registry().resolve("encoder", "auto").object(model, context)
    sample = reference_sample(encoder, 0, built_in("mean"), corpus(), context, most=100)
    assert (sample.kind, sample.n) == ("vocabulary", 100)
    assert list(sample.items[:2]) == ["word0", "word1"]
    np.testing.assert_array_equal(sample.read(np.array([5])), [model.lookup(["word5"])[0]["word5"]])


def test_a_table_of_sentences_gives_its_own(vector_models, context):
    model = find_model(vector_models[0], cache=context.cache)
    encoder = registry().resolve("encoder", "auto").object(model, context)
    sample = reference_sample(encoder, 2, built_in("mean"), None, context, most=50)
    index, rows = model.table
    np.testing.assert_array_equal(sample.vectors(), [rows[index[s], 2] for s in sample.items])
    assert sample.n == 50


def test_held_out_items_are_not_fitted_on(encoder, context):
    whole = reference_sample(encoder, 4, built_in("mean"), corpus(), context)
    rest, held = whole.split(10, seed=2)
    assert (rest.n, held.n) == (30, 10)
    assert set(rest.items) | set(held.items) == set(whole.items)
    assert len({whole.digest, rest.digest, held.digest}) == 3
    at = dict(zip(whole.items, whole.vectors(), strict=True))
    np.testing.assert_array_equal(held.vectors(), [at[item] for item in held.items])
    assert rest.note.endswith("all but 10 held out of 40 by seed 2")


# Fits


def test_a_fit_is_kept_and_found_again(encoder, context, monkeypatch):
    sample = reference_sample(encoder, 4, built_in("mean"), corpus(), context)
    made = fitted(ZCA(), sample, context.cache)
    expected = ZCA().fit(sample.vectors())
    np.testing.assert_allclose(made.transform(sample.vectors()), expected.transform(sample.vectors()), atol=1e-8)
    assert made.describe()["fitted_on"] == sample.note
    (kept,) = context.cache.directory.glob("folders/calibration-zca-*/*.safetensors")
    np.testing.assert_array_equal(load(kept).matrix_, made.matrix_)

    monkeypatch.setattr(ZCA, "_finish", lambda *_: pytest.fail("fitted again"))
    again = fitted(ZCA(), sample, Cache(context.cache.directory))
    np.testing.assert_array_equal(again.matrix_, made.matrix_)
    assert again.describe() == made.describe()


def test_other_options_and_samples_have_their_own_fits(encoder, context):
    one = reference_sample(encoder, 4, built_in("mean"), corpus(), context)
    other = reference_sample(encoder, 3, built_in("mean"), corpus(), context)
    for chosen, sample in ((ZCA(), one), (ZCA(eps=0.1), one), (ZCA(), other), (Center(), one), (ABTT(2), one)):
        made = fitted(chosen, sample, context.cache)
        np.testing.assert_allclose(made.mean_, sample.vectors().mean(0, dtype=float), atol=1e-6)
        assert not hasattr(chosen, "mean_")
    assert len(list(context.cache.directory.glob("folders/calibration-*/*"))) == 5


def test_a_damaged_fit_is_done_again(encoder, context):
    sample = reference_sample(encoder, 4, built_in("mean"), corpus(), context)
    made = fitted(ZCA(), sample, context.cache)
    (kept,) = context.cache.directory.glob("folders/calibration-zca-*/*.safetensors")
    kept.write_bytes(kept.read_bytes()[:100])
    with pytest.warns(CacheWarning, match="no whole saved calibration.*That is done now"):
        again = fitted(ZCA(), sample, context.cache)
    np.testing.assert_array_equal(again.matrix_, made.matrix_)
    np.testing.assert_array_equal(load(kept).matrix_, made.matrix_)


def test_a_cache_that_is_full_keeps_nothing_and_the_fit_goes_on(encoder, context, monkeypatch):
    sample = reference_sample(encoder, 4, built_in("mean"), corpus(), context)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("refbias.result.os.fsync", full)
    with pytest.warns(CacheWarning, match="cannot be written"):
        made = fitted(Center(), sample, context.cache)
    np.testing.assert_allclose(made.mean_, sample.vectors().mean(0), atol=1e-6)
    assert not list(context.cache.directory.glob("folders/calibration-*/*"))


def test_without_a_cache_on_disk_nothing_is_written(encoder, monkeypatch, tmp_path):
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "default"))
    context = Context(Cache(None))
    sample = reference_sample(encoder, 4, built_in("mean"), corpus(), context)
    assert fitted(ZCA(), sample, context.cache).describe()["n"] == 40
    assert not (tmp_path / "default").exists()


def test_calibrations_of_other_kinds(encoder, context, tmp_path):
    class Halved:
        def fit(self, X):
            self.rows = len(X)
            return self

        def transform(self, X):
            return np.asarray(X) / 2

    sample = reference_sample(encoder, 4, built_in("mean"), corpus(), context)
    own = Halved()
    made = fitted(own, sample, context.cache)
    assert (made.rows, hasattr(own, "rows")) == (40, False)
    Center().fit(sample.vectors()).save(tmp_path / "fit.safetensors")
    for as_it_is in (Identity(), Saved(tmp_path / "fit.safetensors")):
        assert fitted(as_it_is, sample, context.cache) is as_it_is
    assert not list(context.cache.directory.glob("folders/calibration-*/*"))


def test_fitting_fits_each_calibration_once(encoder, context):
    sample = reference_sample(encoder, 4, built_in("mean"), corpus(), context)
    told = []
    fit = fitting(sample, context.cache, told.append)
    one, other = Center(), ZCA()
    assert fit(one) is fit(one)
    assert fit(other) is not fit(one)
    assert told == [fit(one), fit(other)]


# ΔB on a corpus


@pytest.fixture(scope="module")
def pair(tiny, tmp_path_factory) -> tuple[Path, Path]:
    return tiny["llama"], write_tiny("llama", tmp_path_factory.mktemp("other") / "llama", seed=8)


STIMULI = {
    "targets": {g: [f"{g} {w} in the town." for w in WORDS[:5]] for g in ("Bakers", "Cyclists")},
    "attributes": ([f"The {w} is lovely." for w in WORDS[:3]], [f"The {w} is dreadful." for w in WORDS[:4]]),
    "anchors": [f"They {w} at home." for w in WORDS],
}


def audit(pair, cache, **options):
    return refbias.audit(pair[0], pair[1], cache=cache, draws=100, benchmark=None, **STIMULI, **options)


def test_an_audit_fits_both_models_on_the_corpus(pair, cache):
    data = audit(pair, cache, calibration="zca", corpus=corpus()).data
    jsonschema.validate(data, result_schema(), jsonschema.Draft202012Validator)
    context = Context(cache)
    spaces = []
    for folder in pair:
        encoder = registry().resolve("encoder", "auto").object(find_model(folder, cache=cache), context)
        sample = reference_sample(encoder, encoder.layers, built_in("mean"), corpus(), context)
        by_hand = ZCA().fit(sample.vectors())
        take = lambda sentences, folder=folder, by_hand=by_hand: by_hand.transform(encode(folder, sentences))  # noqa: E731
        targets = {group: take(sentences) for group, sentences in STIMULI["targets"].items()}
        spaces.append(refbias.Space(targets, *map(take, STIMULI["attributes"]), take(STIMULI["anchors"])))
    expected = refbias.compare_spaces(*spaces)
    (checkpoint,) = data["checkpoints"]
    found = {row["group"]: row["delta_b"] for row in checkpoint["groups"]}
    assert found == pytest.approx(dict(expected), abs=1e-4)
    assert data["settings"]["corpus"] == "own"
    assert data["conventions"]["calibration_sample"].startswith("up to 40 sentences of the corpus own")
    assert data["provenance"]["data_digests"]["corpus"] == corpus().digest


def test_the_second_opinion_and_the_record_are_on_the_corpus_too(pair, cache):
    on_corpus, on_anchors = (audit(pair, cache, corpus=given).data for given in (corpus(), None))
    for data in (on_corpus, on_anchors):
        assert [row["second_opinion"]["calibration"] for row in data["checkpoints"][0]["groups"]] == ["center"] * 2
    one, other = (
        [(row["delta_b"], row["second_opinion"]["delta_b"]) for row in data["checkpoints"][0]["groups"]]
        for data in (on_corpus, on_anchors)
    )
    assert [raw for raw, _ in one] == [raw for raw, _ in other]
    assert all(a != pytest.approx(b) for (_, a), (_, b) in zip(one, other, strict=True))
    rows = on_corpus["calibrations"]
    assert [(row["model"], row["layer"], row["calibration"], row["n"]) for row in rows] == [
        (on_corpus["reference"]["name"], 4, "center", 40),
        (on_corpus["checkpoints"][0]["name"], 4, "center", 40),
    ]
    assert "calibrations" not in on_anchors
    assert on_anchors["conventions"]["calibration_sample"] == "the model's own anchors"
    assert on_anchors["settings"]["corpus"] is None


def test_several_layers_are_fitted_each_and_encoded_once(pair, cache):
    data = audit(pair, cache, calibration="abtt", corpus=corpus(), layer=[2, 4]).data
    first = {(row["model"], row["layer"]) for row in data["calibrations"] if row["calibration"] == "abtt"}
    assert len(first) == 4
    sentences = len(refbias.load_stimuli(**STIMULI).sentences()) + 40
    assert data["timings"]["sentences_encoded"] == 2 * sentences
    again = audit(pair, cache, calibration="abtt", corpus=corpus(), layer=[2, 4]).data
    assert again["timings"]["sentences_encoded"] == 0
    assert [entry["checkpoints"] for entry in again["layers"]] == [entry["checkpoints"] for entry in data["layers"]]


def test_a_corpus_needs_no_anchors_for_a_calibration_and_is_refused_early(pair, cache, tmp_path):
    options = {**STIMULI, "anchors": ["Tea is warm."]}
    found = refbias.audit(
        pair[0], pair[1], cache=cache, draws=50, geometry="absolute", calibration="center", corpus=corpus(), **options
    )
    assert found.data["checkpoints"][0]["mean_delta_b"] is not None
    with pytest.raises(UsageError, match="No corpus 'wikipedai'. Did you mean"):
        audit(pair, cache, corpus="wikipedai")
    with pytest.raises(RefbiasError, match="no such file"):
        audit(pair, cache, corpus=("file", {"path": str(tmp_path / "absent.txt")}))
