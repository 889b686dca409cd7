"""Suites of the user's own from CSV or YAML, with errors that say where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from refbias.errors import RefbiasError
from refbias.stimuli.files import csv_rows, existing, read_text
from refbias.suites.words import SETS, Test, selected

FORMATS = (
    "CSV with the columns test,set,word, where set is X, Y, A or B (columns label, category and name may follow), or "
    "YAML {test: {X: {label: [words]}, Y: …, A: …, B: …, category: …, name: …}}, labels as you like"
)


class Entry(NamedTuple):
    where: str  # "row 5", "line 12"
    test: str
    key: str  # X, Y, A, B
    label: str
    word: str


def file(*, path: str | None = None, tests: list[str] | None = None) -> list[Test]:
    """Tests from a CSV or YAML file of your own; ``suite.path=FILE``."""
    found = existing(path, "suite.path", FORMATS)
    suffix = found.suffix.lower()
    if suffix == ".csv":
        entries, notes = _from_csv(found)
    elif suffix in (".yaml", ".yml"):
        entries, notes = _from_yaml(found)
    else:
        raise RefbiasError(f"suite.path={path} ends in {found.suffix!r}. Use .csv, .yaml or .yml: {FORMATS}.")
    return selected(_tests(found, entries, notes), tests)


def _tests(path: Path, entries: list[Entry], notes: dict[str, dict[str, str]]) -> list[Test]:
    grouped: dict[str, dict[str, dict[str, str]]] = {}  # test -> set -> word -> where
    labels: dict[tuple[str, str], str] = {}
    for where, test, key, label, word in entries:
        if key not in SETS:
            raise RefbiasError(f"{path}, {where}: no set {key!r}. Sets are X, Y (targets) and A, B (attributes).")
        if not test or not word:
            raise RefbiasError(f"{path}, {where}: the {'word' if test else 'test'} is empty. Fill it in or drop it.")
        sets = grouped.setdefault(test, {name: {} for name in SETS})
        for other in (key, {"X": "Y", "Y": "X", "A": "B", "B": "A"}[key]):
            if word in sets[other]:
                raise RefbiasError(
                    f"{path}, {where}: {word!r} stands in set {other} of test {test} already ({sets[other][word]}). "
                    "Take one out."
                )
        sets[key][word] = where
        if label and labels.setdefault((test, key), label) != label:
            raise RefbiasError(
                f"{path}, {where}: set {key} of test {test} is labelled {labels[test, key]!r} before and {label!r} "
                "here. Give it one label."
            )
    if not grouped:
        raise RefbiasError(f"{path} has no tests. Expected {FORMATS}.")
    made = []
    for test, sets in grouped.items():
        for key, words in sets.items():
            if not words:
                raise RefbiasError(f"{path}: test {test} has no words in set {key}. Add rows with set {key}.")
        names = {key: labels.get((test, key), key) for key in SETS}
        about = notes.get(test, {})
        made.append(
            Test.of(
                {key: tuple(words) for key, words in sets.items()},
                names,
                id=test,
                name=about.get("name") or f"{names['X']} / {names['Y']} × {names['A']} / {names['B']}",
                category=about.get("category") or "other",
                source=path.name,
                list_version=f"file:{path.name}",
            )
        )
    return made


def _from_csv(path: Path) -> tuple[list[Entry], dict[str, dict[str, str]]]:
    entries: list[Entry] = []
    notes: dict[str, dict[str, str]] = {}
    for where, row in csv_rows(path, ("test", "set", "word")):
        row = {column: value.strip() for column, value in row.items()}
        entries.append(Entry(where, row["test"], row["set"], row.get("label", ""), row["word"]))
        about = notes.setdefault(row["test"], {"category": "", "name": ""})
        for column in about:
            about[column] = about[column] or row.get(column, "")
    return entries, notes


def _from_yaml(path: Path) -> tuple[list[Entry], dict[str, dict[str, str]]]:
    import yaml  # type: ignore[import-untyped]

    try:
        root = yaml.compose(read_text(path), Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise RefbiasError(f"{path} is not valid YAML: {error}. Mend it there.") from None
    entries: list[Entry] = []
    notes: dict[str, dict[str, str]] = {}
    for test, content in _pairs(path, root, "a mapping of tests"):
        notes[test] = {}
        for key, node in _pairs(path, content, f"a mapping with the sets of test {test}"):
            if key in ("category", "name"):
                notes[test][key] = _text(path, node)
            elif isinstance(node, yaml.MappingNode):
                for label, words in _pairs(path, node, "one label with its words"):
                    entries += [Entry(_at(n), test, key, label, _text(path, n)) for n in _items(path, words)]
            else:
                entries += [Entry(_at(n), test, key, "", _text(path, n)) for n in _items(path, node)]
    return entries, notes


# YAML nodes keep the line they stand on, which the loaded values do not.
def _at(node: Any) -> str:
    return f"line {node.start_mark.line + 1}"


def _pairs(path: Path, node: Any, expected: str) -> Iterator[tuple[str, Any]]:
    if node is None or node.id != "mapping":
        where = "" if node is None else f", {_at(node)}"
        raise RefbiasError(f"{path}{where}: expected {expected}. The form is {FORMATS}.")
    seen: dict[str, str] = {}
    for key, value in node.value:
        name = _text(path, key)
        if name in seen:
            raise RefbiasError(f"{path}, {_at(key)}: {name!r} stands on {seen[name]} already. Take one out.")
        seen[name] = _at(key)
        yield name, value


def _items(path: Path, node: Any) -> list[Any]:
    if node.id != "sequence":
        raise RefbiasError(f"{path}, {_at(node)}: expected a list of words, as in [aster, clover].")
    return list(node.value)


def _text(path: Path, node: Any) -> str:
    if node.id != "scalar":
        raise RefbiasError(f"{path}, {_at(node)}: expected one word or name, not a {node.id}.")
    if node.tag != "tag:yaml.org,2002:str":  # yes, no, on, 7 and the like
        raise RefbiasError(f"{path}, {_at(node)}: {node.value!r} is not text in YAML. Put it in quotes.")
    return str(node.value).strip()
