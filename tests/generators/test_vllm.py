"""generator=vllm: what the package would be given, and what is said where it cannot run."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from refbias.answers import Prompt, Request, Sampling
from refbias.errors import RefbiasError, UsageError
from refbias.generators.vllm import vllm
from refbias.models import find_model
from refbias.models.base import DerivedModel

SAMPLING = Sampling(2, 0.7, 0.9, 50)
REQUESTS = [Request(Prompt(f"p{i}", (("user", f"Tea {i}."),)), 0, 40 + i) for i in range(3)]


@pytest.fixture
def model(tiny_llama, cache):
    return find_model(tiny_llama, cache=cache)


def test_where_the_package_is_absent_it_says_how_to_get_it(model, context, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(RefbiasError, match=r"pip install refbias\[vllm\].*or use generator=hf or openai"):
        list(vllm(model, REQUESTS, SAMPLING, context))


def test_what_the_package_is_given(model, context, monkeypatch):
    given = SimpleNamespace(engine=None, prompts=[], ways=[])

    class Engine:
        def __init__(self, **settings):
            given.engine = settings

        def generate(self, prompts, sampling_params, use_tqdm):
            assert use_tqdm is False
            given.prompts.append(prompts)
            given.ways += sampling_params
            done = [("stop", (1, 2)), ("length", (1, 2, 3))]
            return [
                SimpleNamespace(outputs=[SimpleNamespace(text=f"t{i}", finish_reason=why, token_ids=ids)])
                for i, (why, ids) in zip(range(len(prompts)), done, strict=False)
            ]

    package = ModuleType("vllm")
    package.LLM, package.SamplingParams = Engine, lambda **settings: settings
    monkeypatch.setitem(sys.modules, "vllm", package)
    found = list(vllm(model, REQUESTS, SAMPLING, context, chunk=2, gpus=2, memory=0.5, max_length=512))
    assert [(r.prompt.id, a.text, a.finish, a.tokens) for r, a in found] == [
        ("p0", "t0", "stop", 2), ("p1", "t1", "length", 3), ("p2", "t0", "stop", 2)
    ]  # fmt: skip
    assert given.engine == {
        "model": str(model.folder), "dtype": "float32", "gpu_memory_utilization": 0.5, "tensor_parallel_size": 2,
        "max_model_len": 512, "trust_remote_code": False,
    }  # fmt: skip
    assert given.ways[1] == {"temperature": 0.7, "top_p": 0.9, "max_tokens": 50, "seed": 41}
    with model.open() as loaded:
        assert loaded.tokenizer.decode(given.prompts[1][0]["prompt_token_ids"]) == "<s>user: Tea 2.</s>"


def test_a_model_made_in_memory_is_refused_with_the_way_out(model, context):
    derived = DerivedModel(model, "half", "f" * 64, lambda module: lambda: None)
    with pytest.raises(RefbiasError, match=r"half is derived: it is made in memory.*task=merge task.out=DIR"):
        vllm(derived, REQUESTS, SAMPLING, context)


@pytest.mark.parametrize("options", [{"chunk": 0}, {"gpus": 0}, {"memory": 1.5}, {"template": "none"}])
def test_options_without_a_meaning_are_refused_at_once(model, context, options):
    with pytest.raises(UsageError, match=f"generator.{next(iter(options))}="):
        vllm(model, [], SAMPLING, context, **options)
