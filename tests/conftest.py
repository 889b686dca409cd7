"""Fixtures that more than one test file needs."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from refbias.cache import Cache, default_directory
from refbias.context import Context
from refbias.errors import RefbiasError
from refbias.models import Model, find_model, release
from tests.tiny_models import TINY, write_tiny


@pytest.fixture(scope="session", autouse=True)
def _one_thread_a_worker() -> None:
    """Workers of pytest-xdist share the cores; threads that wait for each other would slow all of them down."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        import torch

        torch.set_num_threads(1)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """An empty cache on disk."""
    return Cache(tmp_path / "cache")


@pytest.fixture
def context(cache: Cache) -> Context:
    return Context(cache)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of tiny random models by family."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    root = tmp_path_factory.mktemp("tiny")
    return {family: write_tiny(family, root / family) for family in TINY}


@pytest.fixture(scope="session")
def tiny_llama(tiny: dict[str, Path]) -> Path:
    return tiny["llama"]


@pytest.fixture(scope="session")
def shared_cache() -> Cache:
    """A cache that outlives the test run, for what takes long to make: the converted SmolLM2."""
    return Cache(default_directory())


@pytest.fixture(scope="session")
def smollm2(shared_cache: Cache) -> Model:
    """The real SmolLM2-135M-Instruct; skips where its package is not installed."""
    try:
        return find_model("smollm2", cache=shared_cache)
    except RefbiasError as error:
        if "pip install" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.fixture
def fresh_models() -> Iterator[None]:
    """No model is in memory before and after."""
    release()
    yield
    release()


@pytest.fixture
def hydra_restored() -> Iterator[None]:
    """Hydra keeps its state in singletons: what a test changes there is undone after it."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.core.singleton import Singleton

    Plugins.instance()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    state = {name: copy.copy(instance) for name, instance in Singleton._instances.items()}
    contents = {name: copy.deepcopy(getattr(instance, "repo", None)) for name, instance in Singleton._instances.items()}
    yield
    root.handlers[:], root.level = handlers, level
    GlobalHydra.instance().clear()
    Singleton._instances.clear()
    Singleton._instances.update(state)
    for name, repo in contents.items():
        if repo is not None:
            state[name].repo = repo


@pytest.fixture(scope="session")
def vector_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two "models" for encoder=arrays: random vectors (n, 3, 12) of the packaged sentences, and a changed copy."""
    from refbias.pipeline import load_stimuli

    folder = tmp_path_factory.mktemp("vectors")
    sentences = load_stimuli().sentences()
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(len(sentences), 3, 12))
    changed = vectors + 0.3 * rng.normal(size=vectors.shape)
    files = folder / "reference.npz", folder / "audited.npz"
    for file, rows in zip(files, (vectors, changed), strict=True):
        np.savez(file, sentences=np.array(sentences), vectors=rows.astype(np.float32))
    return files
