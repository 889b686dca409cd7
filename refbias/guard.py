"""No configuration runs code: what Hydra would import because a file says so is refused before it does.

Parts of the domain are chosen by name from the registry. What is left is Hydra's own section, which can name classes
for launchers, sweepers, callbacks and log handlers; those that come with Hydra, its plug-ins and refbias are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from refbias.errors import UsageError

_TARGETS = ("hydra._internal.", "hydra_plugins.", "refbias.sweep.SweepCallback")
_LOG_CLASSES = ("logging.", "colorlog.")
_STREAMS = ("ext://sys.stdout", "ext://sys.stderr")


def refuse_code(node: Any, path: str = "hydra") -> None:
    """Raise `UsageError` where the configuration ``node`` names something to import that is not allowed."""
    if isinstance(node, dict):
        for key, value in node.items():
            place = f"{path}.{key}"
            if key == "()" or (key == "_target_" and not str(value).startswith(_TARGETS)):
                raise _refusal(place, value)
            if key == "class" and "logging" in path and not str(value).startswith(_LOG_CLASSES):
                raise _refusal(place, value)
            refuse_code(value, place)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            refuse_code(value, f"{path}[{index}]")
    elif isinstance(node, str) and node.startswith(("ext://", "cfg://")) and node not in _STREAMS:
        raise _refusal(path, node)


def _refusal(place: str, value: Any) -> UsageError:
    return UsageError(
        f"{place}={value} would import and run code, which no configuration of refbias may do. Take it out; "
        "a part of your own comes in as a plug-in (docs/plugins.md)."
    )


@contextmanager
def checked_composition() -> Iterator[None]:
    """Meanwhile, every configuration that Hydra composes is checked before anything in it is used."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from omegaconf import OmegaConf

    compose = ConfigLoaderImpl.load_configuration

    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = compose(self, *args, **kwargs)
        refuse_code(OmegaConf.to_container(config.hydra, resolve=False))
        return config

    ConfigLoaderImpl.load_configuration = checked
    try:
        yield
    finally:
        ConfigLoaderImpl.load_configuration = compose
