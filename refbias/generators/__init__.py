"""How answers are written: by the model on this machine, or by a server."""

from typing import Any

from refbias.generators.hf import hf
from refbias.generators.openai import openai
from refbias.generators.vllm import vllm

# name -> (part, traits); the trait ``speed`` names the options that change no answer, ``remote`` says that the weights
# are not read here
GENERATORS: dict[str, Any] = {
    "hf": (hf, {"speed": ("batch",)}),
    "openai": (openai, {"speed": ("concurrency", "retries", "timeout", "rate", "key_env"), "remote": True}),
    "vllm": (vllm, {"speed": ("chunk", "memory", "gpus")}),
}
