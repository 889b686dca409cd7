"""Which hidden states: layer k is Hugging Face's ``hidden_states[k]``, 0 the embeddings, L the last one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from refbias.errors import UsageError

Spec = str | int | Sequence[int]


def parse_layers(spec: Spec, layers: int) -> list[int]:
    """``spec`` as layer numbers 0..``layers``: "last", "all", an integer (also −1 for the last), or a list of them.

    >>> parse_layers([0, -1], 30)
    [0, 30]
    """
    if isinstance(spec, str) and spec == "all":
        return list(range(layers + 1))
    items: list[object] = list(spec) if isinstance(spec, Iterable) and not isinstance(spec, str) else [spec]
    found = [_layer(item, layers) for item in items]
    if not found:
        raise UsageError(f"layer=[] names no layer. {_expected(layers)}")
    if len(set(found)) < len(found):
        raise UsageError(f"layer={spec!r} names one layer twice: {found}. Name each once.")
    return found


def _layer(item: object, layers: int) -> int:
    if isinstance(item, str):
        text = item.strip()
        if text == "last":
            return layers
        if not text.removeprefix("-").isdecimal():
            raise UsageError(f"layer={item!r} is no layer. {_expected(layers)}")
        item = int(text)
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        raise UsageError(f"layer={item!r} is no layer. {_expected(layers)}")
    number = item.__index__()
    if not -layers - 1 <= number <= layers:
        raise UsageError(f"layer={number}: there is no such layer. {_expected(layers)}")
    return number % (layers + 1)


def _expected(layers: int) -> str:
    return f"Expected last, all, an integer from {-layers - 1} to {layers}, or a list: this model has {layers} layers."
