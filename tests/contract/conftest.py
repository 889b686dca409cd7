from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from refbias import options
from refbias.registry import registry


@pytest.fixture
def composed(hydra_restored: None) -> Iterator[Callable[..., dict[str, Any]]]:
    """Composes the configuration with some overrides, missing values left as they are."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    options.store(registry())
    with initialize_config_dir(str(options.own_folder()), version_base="1.3"):
        yield lambda *overrides: options.plain(OmegaConf.to_container(compose("config", list(overrides))))
