"""WEAT 1-10 in the versions that published packages use. Each list file names its source and says what differs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from refbias.suites.words import SETS, Test, selected


@cache
def _read(version: str) -> dict[str, Any]:
    """A list file with those it is based on filled in: ``sets`` by name, ``tests`` by id."""
    import yaml  # type: ignore[import-untyped]

    content = yaml.safe_load(files("refbias.suites").joinpath(f"data/{version}.yaml").read_text(encoding="utf-8"))
    base = _read(content["base"]) if "base" in content else {"sets": {}, "tests": {}}
    own = {test["id"]: test for test in content.get("tests", [])}
    return {
        "source": content["source"],
        "sets": {**base["sets"], **content.get("sets", {})},
        "tests": {**base["tests"], **own},
    }


def version(name: str, tests: list[str] | None = None) -> list[Test]:
    """The ten tests of the packaged list version ``name``, or those with the ids ``tests``."""
    content = _read(name)
    made = []
    for entry in content["tests"].values():
        labels = {key: next(iter(entry[key])) for key in SETS}
        words = {key: tuple(content["sets"][entry[key][labels[key]]]) for key in SETS}
        made.append(
            Test.of(
                words,
                labels,
                id=entry["id"],
                name=f"{labels['X']} / {labels['Y']} × {labels['A'].lower()} / {labels['B'].lower()}",
                category=entry["category"],
                source=content["source"],
                list_version=name,
            )
        )
    return selected(made, tests)


def caliskan2017(*, tests: list[str] | None = None) -> list[Test]:
    """WEAT 1-10 as computed in Caliskan et al. 2017: 32 + 32 names in W3, 16 + 16 in W4 and W5."""
    return version("caliskan2017", tests)


def printed(*, tests: list[str] | None = None) -> list[Test]:
    """WEAT 1-10 with the names that the supplement prints in italics: 50 + 50 in W3, 18 + 18 in W4 and W5."""
    return version("printed", tests)


def wefe(*, tests: list[str] | None = None) -> list[Test]:
    """WEAT 1-10 as in the package WEFE: 18 + 18 names in W4 and W5, "short" in W9, "Bill" in W10."""
    return version("wefe", tests)


def sent_bias(*, tests: list[str] | None = None) -> list[Test]:
    """WEAT 1-10 as in the code of May et al. 2019 (SEAT): 18 + 18 names in W5."""
    return version("sent_bias", tests)


def xweat(*, tests: list[str] | None = None) -> list[Test]:
    """WEAT 1-10 as in XWEAT (Lauscher and Glavas 2019): all printed names, "blue-bell" in W1."""
    return version("xweat", tests)


def ceat(*, tests: list[str] | None = None) -> list[Test]:
    """WEAT 1-10 as in the code of Guo and Caliskan 2021 (CEAT): words that its corpus lacks left out."""
    return version("ceat", tests)


def word2vec(*, tests: list[str] | None = None) -> list[Test]:
    """WEAT 1-10 for word2vec Google News as in the code of Wolfe et al. 2024 (ML-EAT): 24 + 24 words in W2."""
    return version("word2vec", tests)
