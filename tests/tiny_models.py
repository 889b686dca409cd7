"""Tiny random models in the hub's layout, one of each family, and sentences for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SENTENCES = [
    "Women live in many countries around the world.",
    "Old people often go to the park.",
    "Tea.",
    "Young people use technology and take part in online discussions every single day.",
    "Gardeners walk home.",
    "Joy and warmth fill the room.",
    "A quiet grief.",
    "People speak several languages.",
]

TINY = ("llama", "mistral", "gemma2", "gemma3", "gpt2", "bert", "t5", "sharded")
CAUSAL = ("llama", "mistral", "gemma2", "gemma3", "gpt2", "sharded")


def write_tiny(family: str, folder: Path, seed: int = 7) -> Path:
    """A model of 4 layers and 32 dimensions with its tokenizer; "sharded" is a Llama in several files."""
    import torch
    import transformers as t

    tokenizer = _tokenizer(family)
    tokenizer.save_pretrained(folder)
    special = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    size = {
        **special,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
    }
    gemma = {"head_dim": 8, "num_key_value_heads": 2, "sliding_window": 8}
    gpt2 = {"n_embd": 32, "n_inner": 48, "n_layer": 4, "n_head": 4, "n_positions": 64}
    t5 = {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 4, "num_heads": 4, "decoder_start_token_id": 0}
    make = {
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**size, num_key_value_heads=2, tie_word_embeddings=True)),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**size, num_key_value_heads=2, sliding_window=6)),
        "gemma2": lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**size, **gemma)),
        "gemma3": lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**size, **gemma)),
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(**special, **gpt2)),
        "bert": lambda: t.BertModel(t.BertConfig(**size)),
        "t5": lambda: t.T5ForConditionalGeneration(t.T5Config(**special, **t5)),
        "sharded": lambda: t.LlamaForCausalLM(t.LlamaConfig(**size, num_key_value_heads=4)),
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make[family]().eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                # the usual initial weights make all layers nearly alike; with these every layer matters
                if weight.dim() > 1:
                    weight.normal_(0, 0.3)
                elif "norm" in name or "ln_" in name:
                    weight.add_(0.2 * torch.randn_like(weight))
    model.save_pretrained(folder, max_shard_size="10KB" if family == "sharded" else "1GB")
    return folder


def _tokenizer(family: str) -> Any:
    """Byte-level BPE trained on the sentences; as in the real families, GPT-2 adds no special token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<s>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    template = {"gpt2": None, "bert": "<s> $A </s>", "t5": "$A </s>"}.get(family, "<s> $A")
    if template is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        padding_side="left" if family in ("llama", "gpt2") else "right",
        model_max_length=64,
        chat_template="{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}",
    )
