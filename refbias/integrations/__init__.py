"""refbias inside the training loops of others. Each name is loaded, with its library, when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refbias.integrations.trainer import BiasShiftCallback

_HOME = {"BiasShiftCallback": "trainer"}

__all__ = ["BiasShiftCallback"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'refbias.integrations' has no attribute {name!r}")
    return getattr(importlib.import_module(f"refbias.integrations.{_HOME[name]}"), name)
