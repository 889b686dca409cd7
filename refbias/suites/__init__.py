"""Word lists of association tests. Standard library only (and PyYAML, when lists are read).

``SUITES`` says which there are: name -> function, whose keyword-only parameters are the options and which returns a
list of `Test`. ``found`` keeps the words that a model has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from refbias.suites import packaged
from refbias.suites.files import file
from refbias.suites.words import Found, Test, found

__all__ = ["SUITES", "Found", "Test", "file", "found"]

SUITES: Mapping[str, Callable[..., list[Test]]] = {
    "caliskan2017": packaged.caliskan2017,
    "printed": packaged.printed,
    "wefe": packaged.wefe,
    "sent_bias": packaged.sent_bias,
    "xweat": packaged.xweat,
    "ceat": packaged.ceat,
    "word2vec": packaged.word2vec,
    "file": file,
}
