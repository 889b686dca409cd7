"""A tiny model behind a tokenizer of each kind that differs in what its offsets say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from refbias.cache import Cache
from refbias.context import Context
from refbias.corpora import Corpus
from refbias.encoders import ENCODERS, HFEncoder
from refbias.models import LiveModel
from refbias.pooling import built_in
from refbias.words import Lookup

TEXTS = [
    "The flute and the violin play in New York, where Adam lives.",
    "Adam said: peace, love and harmony; a flute is no drum.",
    "In York the women's choir sings of well-being and of a mother-in-law.",
    "Émile and Zoë met at the café — “peace” was the word.",
    "Peace! PEACE and peace; the drum, the flute (and the harp).",
    "Nobody in that long and slow procession of old friends knew what Adam had in mind for them.",
]
KINDS = ("byte_level", "byte_level_trimmed", "wordpiece", "metaspace", "unigram")


def tokenizer_of(kind: str) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", "<s>", "</s>"]
    options: dict[str, Any] = {"vocab_size": 330, "special_tokens": special, "show_progress": False}
    bytes_ = pre_tokenizers.ByteLevel.alphabet()
    if kind.startswith("byte_level"):
        trimmed = kind.endswith("trimmed")  # as RoBERTa: offsets without the space; else as GPT-2, with it
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=trimmed)
        tokenizer.decoder = decoders.ByteLevel()
        trainer: Any = trainers.BpeTrainer(initial_alphabet=bytes_, **options)
        if trimmed:
            tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), trim_offsets=True)
        else:
            tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    elif kind == "wordpiece":  # as uncased BERT
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(**options)
    elif kind == "metaspace":  # as Llama 2: no words, spaces as marks, bytes for the rest
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        # in training only, so that no token goes across a space or takes in a comma
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
        byte_tokens = [f"<0x{i:02X}>" for i in range(256)]
        trainer = trainers.BpeTrainer(
            **{**options, "vocab_size": 500, "special_tokens": [*special, *byte_tokens]}, limit_alphabet=50
        )
    else:  # as T5
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(unk_token="<unk>", **{**options, "vocab_size": 120})
    tokenizer.train_from_iterator(TEXTS[:5], trainer)
    if kind == "metaspace":
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if kind in ("wordpiece", "metaspace"):
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>" if kind == "wordpiece" else "<s> $A", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def model_of(kind: str) -> LiveModel:
    import torch
    import transformers as t

    tokenizer = tokenizer_of(kind)
    size = {"vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    config = t.LlamaConfig(**size, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=256)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = t.LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.normal_(0, 0.3)
    return LiveModel(model, tokenizer, name=kind)


@pytest.fixture(scope="session")
def models() -> dict[str, LiveModel]:
    return {kind: model_of(kind) for kind in KINDS}


@pytest.fixture(scope="session")
def encoders(models: dict[str, LiveModel]) -> dict[str, HFEncoder]:
    context = Context(Cache(None))
    return {kind: ENCODERS["hf"](model, context) for kind, model in models.items()}


def corpus_of(texts: list[str], digest: str = "of a test") -> Corpus:
    return Corpus("own", digest + str(texts), lambda: iter(texts))


@pytest.fixture
def lookup(context: Context) -> Callable[..., Lookup]:
    """A lookup of words in sentences, in an empty cache."""

    def make(encoder: Any, words: list[str], texts: list[str] | None = TEXTS, layer: int = 2) -> Lookup:
        corpus = None if texts is None else corpus_of(texts)
        return Lookup(encoder, words, layer, built_in("mean"), corpus, context)

    return make
