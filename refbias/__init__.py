"""refbias: did fine-tuning move a language model's hidden states towards social bias, and how sure is that?

Importing this module loads numpy and nothing heavier; each name below is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refbias.answers.judging import judge
    from refbias.association_tests.weat import weat
    from refbias.calibration import ABTT, ZCA, Center
    from refbias.comparison import compare_spaces
    from refbias.encoding import encode
    from refbias.errors import RefbiasError, UsageError
    from refbias.linalg import cka, procrustes, relative
    from refbias.metrics import Association
    from refbias.pipeline import audit, load_stimuli
    from refbias.registry import register
    from refbias.result import Result
    from refbias.types import Shifts, Space, Stimuli

__version__ = "0.1.0"

_HOME = {
    "ABTT": "calibration",
    "ZCA": "calibration",
    "Center": "calibration",
    "compare_spaces": "comparison",
    "encode": "encoding",
    "RefbiasError": "errors",
    "UsageError": "errors",
    "cka": "linalg",
    "procrustes": "linalg",
    "relative": "linalg",
    "Association": "metrics",
    "audit": "pipeline",
    "judge": "answers.judging",
    "load_stimuli": "pipeline",
    "weat": "association_tests",
    "register": "registry",
    "Result": "result",
    "Shifts": "types",
    "Space": "types",
    "Stimuli": "types",
}

__all__ = [
    "ABTT",
    "ZCA",
    "Association",
    "Center",
    "RefbiasError",
    "Result",
    "Shifts",
    "Space",
    "Stimuli",
    "UsageError",
    "audit",
    "cka",
    "compare_spaces",
    "encode",
    "judge",
    "load_stimuli",
    "procrustes",
    "register",
    "relative",
    "weat",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'refbias' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"refbias.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
