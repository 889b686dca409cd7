from __future__ import annotations

from typing import Any

import pytest

from refbias.errors import UsageError
from refbias.layers import parse_layers


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("last", [30]),
        ("all", list(range(31))),
        (0, [0]),
        (-1, [30]),
        (-31, [0]),
        ("24", [24]),
        ("-2", [29]),
        ([0, 15, -1], [0, 15, 30]),
        (("last", 3), [30, 3]),
    ],
)
def test_layers(spec: Any, expected: list[int]) -> None:
    assert parse_layers(spec, 30) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (31, r"layer=31: there is no such layer\. Expected .* from -31 to 30, or a list: this model has 30 layers"),
        (-32, "layer=-32: there is no such layer"),
        ("first", "layer='first' is no layer"),
        (1.5, "layer=1.5 is no layer"),
        (True, "layer=True is no layer"),
        ([], "names no layer"),
        ([3, 30, -1], r"names one layer twice: \[3, 30, 30\]"),
    ],
)
def test_what_is_no_layer(spec: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_layers(spec, 30)


def test_models_without_layers_have_layer_0_only() -> None:
    assert parse_layers("last", 0) == parse_layers("all", 0) == parse_layers(-1, 0) == [0]
