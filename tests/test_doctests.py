"""The examples in docstrings are right."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import refbias

MODULES = [
    module.name
    for module in pkgutil.walk_packages(refbias.__path__, "refbias.")
    if module.name not in ("refbias.__main__", "refbias.conf")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
