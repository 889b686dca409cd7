"""Tiny random masked language models in the hub's layout."""

from __future__ import annotations

from pathlib import Path

from tests.tiny_models import SENTENCES


def write_masked(family: str, folder: Path, seed: int = 7) -> Path:
    """A model of two layers with its head and a tokenizer of whole words and letters ("bert", "roberta", …)."""
    import torch
    import transformers as t
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer(lowercase=True)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=150, special_tokens=special, initial_alphabet=letters, show_progress=False
    )
    words.train_from_iterator(
        [*SENTENCES, *(" ".join(letters + ["x" + c for c in letters]) for _ in range(3))], trainer
    )
    marks = [(token, words.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=marks
    )
    tokenizer = t.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=64,
    )  # fmt: skip
    size = {"vocab_size": len(tokenizer), "pad_token_id": 0, "max_position_embeddings": 70}
    usual = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    make = {
        "bert": lambda: t.BertForMaskedLM(t.BertConfig(**size, **usual)),
        "roberta": lambda: t.RobertaForMaskedLM(t.RobertaConfig(**size, **usual)),
        "distilbert": lambda: t.DistilBertForMaskedLM(
            t.DistilBertConfig(**size, dim=32, hidden_dim=48, n_layers=2, n_heads=4)
        ),
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make[family]().eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.normal_(0, 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
