"""Which parts exist, by kind and name: the one source of truth for the command line, Python and MLflow.

Built-ins and plug-ins register through the same hooks (`refbias.hookspecs`). A part is a function or a class.
**Keyword-only parameters are its options; positional parameters are what it is given when it runs.** For a class,
every parameter of ``__init__`` is an option. `Part.build` binds the options and leaves the rest:

- ``def delta_b(space, *, alpha=1.0)`` built with ``alpha=0.3`` is a function of ``space``;
- ``def neutral(*, n=1000)`` built with ``n=100`` has nothing left to wait for, so it is called: a list of sentences.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pluggy

from refbias import hookspecs
from refbias.errors import RefbiasError, UsageError, unknown

# kind (the word on the command line) -> hook
HOOKS: Mapping[str, str] = {
    "task": "refbias_tasks",
    "model": "refbias_models",
    "checkpoints": "refbias_checkpoints",
    "encoder": "refbias_encoders",
    "pooling": "refbias_poolings",
    "targets": "refbias_targets",
    "attributes": "refbias_attributes",
    "anchors": "refbias_anchors",
    "calibration": "refbias_calibrations",
    "geometry": "refbias_geometries",
    "metric": "refbias_metrics",
    "benchmark": "refbias_benchmarks",
    "generator": "refbias_generators",
    "judge": "refbias_judges",
    "topics": "refbias_topics",
    "suite": "refbias_suites",
    "words": "refbias_words",
    "corpus": "refbias_corpora",
    "data": "refbias_data",
    "regime": "refbias_regimes",
    "tracking": "refbias_trackers",
    "summary": "refbias_summaries",
}

BUILT_INS = "refbias.builtins"
ENTRY_POINTS = "refbias"


@dataclass(frozen=True)
class Option:
    """One parameter of a part that a user can set."""

    name: str
    annotation: Any
    default: Any  # inspect.Parameter.empty where a value is required

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True)
class Part:
    """A registered function or class with its options."""

    kind: str
    name: str
    factory: Callable[..., Any]
    traits: Mapping[str, Any]
    distribution: str

    @functools.cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return [
            p
            for p in inspect.signature(self.factory).parameters.values()
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]

    @functools.cached_property
    def inputs(self) -> list[str]:
        """Names of the positional parameters: what the part is given when it runs."""
        if inspect.isclass(self.factory):
            return []
        return [p.name for p in self._parameters if p.kind is not p.KEYWORD_ONLY]

    @functools.cached_property
    def options(self) -> dict[str, Option]:
        given = [p for p in self._parameters if p.name not in self.inputs]
        hints = _resolved({p.name: p.annotation for p in given if p.annotation is not p.empty}, self.factory)
        return {p.name: Option(p.name, hints.get(p.name, Any), p.default) for p in given}

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.factory) or "").partition("\n")[0]

    def build(self, params: Mapping[str, Any] | None = None, seed: int = 0) -> Any:
        """The part with its options bound. An option ``seed`` that is left at None takes ``seed``."""
        params = dict(params or {})
        for name in params:
            if name not in self.options:
                raise unknown(f"option of {self.kind}={self.name}", name, self.options)
        for option in self.options.values():
            if option.required and params.get(option.name) is None:
                raise UsageError(f"{self.kind}={self.name} needs {self.kind}.{option.name}=…: no value was given.")
        if "seed" in self.options and params.get("seed") is None:
            params["seed"] = seed
        return functools.partial(self.factory, **params) if self.inputs else self.factory(**params)


@dataclass(frozen=True)
class Choice:
    """A part that was chosen and built, with the name and options that the result records."""

    kind: str
    name: str
    params: dict[str, Any]
    object: Any
    traits: Mapping[str, Any] = field(default_factory=dict)


class Registry:
    """All parts of one process. `registry()` gives the one that everything uses."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, Part]] = {kind: {} for kind in HOOKS}
        self.manager = _Manager("refbias")
        self.manager.add_hookspecs(hookspecs)

    def load(self) -> None:
        """Load built-ins, installed plug-ins (entry points) and the files named in REFBIAS_PLUGINS."""
        own = list(_decorated)  # marked in a script before anything was loaded
        _decorated.clear()
        _loading.append(self)
        try:
            self._load_all()
        finally:
            _loading.remove(self)
        _decorated.extend(own)
        self._adopt("this process")

    def _load_all(self) -> None:
        self.add_plugin(importlib.import_module(BUILT_INS), "refbias")
        disabled = {name.strip() for name in os.environ.get("REFBIAS_DISABLED_PLUGINS", "").split(",")}
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            distribution = entry.dist.name if entry.dist else entry.name
            if {entry.name, distribution} & disabled:
                continue
            try:
                plugin = entry.load()
            except Exception as error:
                raise RefbiasError(
                    f"Plug-in {entry.name!r} of distribution {distribution!r} cannot be loaded: "
                    f"{type(error).__name__}: {error}. Mend it, uninstall it, or set "
                    f"REFBIAS_DISABLED_PLUGINS={entry.name}."
                ) from error
            self.add_plugin(plugin, distribution, entry.name)
        for file in filter(None, os.environ.get("REFBIAS_PLUGINS", "").split(os.pathsep)):
            self.add_plugin(_load_file(Path(file)), file)

    def _adopt(self, distribution: str) -> None:
        """Register what decorators have marked since the last call."""
        marked, _decorated[:] = list(_decorated), []
        for part in marked:
            self.add(part.kind, part.name, part.factory, distribution=distribution, **part.traits)

    def add_plugin(self, plugin: Any, distribution: str, entry: str = "") -> None:
        """Register the parts of one plug-in: its hooks, and functions marked with `refbias.register`."""
        name = f"{distribution}:{entry}" if entry else distribution
        try:
            self.manager.register(plugin, name=name)
            self.manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise RefbiasError(
                f"Plug-in {name!r} has a hook that does not exist or takes other arguments: {error}. "
                f"The hooks are listed in refbias.hookspecs."
            ) from error
        for kind, hook in HOOKS.items():
            implementation = getattr(plugin, hook, None)
            if implementation is None:
                continue
            try:
                implementation(register=functools.partial(self.add, kind, distribution=distribution))
            except RefbiasError:
                raise
            except Exception as error:
                raise RefbiasError(f"Plug-in {name!r} fails in {hook}: {type(error).__name__}: {error}.") from error
        self._adopt(distribution)

    def add(
        self, kind: str, name: str, factory: Callable[..., Any], *, distribution: str = "this process", **traits: Any
    ) -> None:
        """Register one part. A name that is taken raises and names both distributions."""
        if kind not in HOOKS:
            raise unknown("kind of part", kind, HOOKS)
        taken = self._parts[kind].get(name)
        if taken is not None:
            raise RefbiasError(
                f"Two parts are called {kind} {name!r}: one of {taken.distribution!r}, one of {distribution!r}. "
                f"Rename one, or set REFBIAS_DISABLED_PLUGINS to the name of one."
            )
        part = Part(kind, name, factory, traits, distribution)
        _check_options(part)
        self._parts[kind][name] = part

    def parts(self, kind: str) -> Mapping[str, Part]:
        if kind not in HOOKS:
            raise unknown("kind of part", kind, HOOKS)
        return self._parts[kind]

    def get(self, kind: str, name: str) -> Part:
        parts = self.parts(kind)
        if name not in parts:
            raise unknown(kind, name, parts)
        return parts[name]

    def resolve(self, kind: str, choice: Any, seed: int = 0) -> Choice:
        """Build what ``choice`` says: a name, a pair (name, {options}), or an object of one's own."""
        if isinstance(choice, Choice):
            return choice
        if isinstance(choice, str):
            choice = (choice, {})
        if isinstance(choice, (tuple, list)) and len(choice) == 2 and isinstance(choice[1], Mapping):
            name, params = choice
            part = self.get(kind, name)
            defaults = {o.name: o.default for o in part.options.values() if not o.required}
            resolved = {**defaults, **params}
            if "seed" in part.options and resolved.get("seed") is None:
                resolved["seed"] = seed
            return Choice(kind, name, resolved, part.build(params, seed), part.traits)
        name = getattr(choice, "name", None) or getattr(choice, "__name__", None) or type(choice).__name__
        return Choice(kind, str(name), {}, choice, getattr(choice, "traits", {}))


class _Manager(pluggy.PluginManager):
    """Takes every function called ``refbias_…`` as a hook, so that a misspelt one is found, marked or not."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        marked = super().parse_hookimpl_opts(plugin, name)
        if marked is None and name.startswith("refbias_") and inspect.isroutine(getattr(plugin, name)):
            return pluggy.HookimplOpts(
                wrapper=False, hookwrapper=False, optionalhook=False, tryfirst=False, trylast=False, specname=None
            )
        return marked


def _resolved(annotations: Mapping[str, Any], factory: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of options as types. Those of other parameters may name what is imported for checking only."""
    function: Any = factory.__init__ if inspect.isclass(factory) else factory
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)

    def carrier() -> None: ...

    carrier.__annotations__ = dict(annotations)
    return typing.get_type_hints(carrier, globalns=getattr(function, "__globals__", {}))


def _check_options(part: Part) -> None:
    """Raise where an option cannot be set from a configuration."""
    where = f"{part.kind} {part.name!r} of {part.distribution!r}"
    try:
        options = part.options
    except NameError as error:
        raise RefbiasError(f"{where}: an option's annotation cannot be resolved: {error}.") from error
    if "name" in options:
        raise RefbiasError(f"{where}: the option name 'name' is reserved.")
    for option in options.values():
        if not _holds(option.annotation):
            shown = "no annotation" if option.annotation is Any else str(option.annotation)
            raise RefbiasError(
                f"{where}: a configuration cannot hold option {option.name!r} ({shown}). "
                f"Annotate it with bool, int, float, str, Path, Literal[...], a union of plain ones, "
                f"list[...] of plain ones, or one of these | None."
            )


_PLAIN = (bool, int, float, str)


def _holds(annotation: Any) -> bool:
    """Whether OmegaConf can hold values of this type."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return all(type(value) in (str, int) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in arguments if a is not type(None)]
        return _holds(rest[0]) if len(rest) == 1 else all(a in _PLAIN for a in rest)
    if origin is list:
        return typing.get_origin(arguments[0]) is not list and arguments[0] is not Path and _holds(arguments[0])
    return annotation in (*_PLAIN, Path)


def arity(part: Callable[..., Any]) -> int:
    """How many positional arguments a built part waits for: 1 for a metric of one space, 2 for one of two."""
    parameters = inspect.signature(part).parameters.values()
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)


@functools.cache
def registry() -> Registry:
    """The registry of this process, loaded at its first use."""
    made = Registry()
    made.load()
    return made


@dataclass(frozen=True)
class _Marked:
    kind: str
    name: str
    factory: Callable[..., Any]
    traits: Mapping[str, Any]


_decorated: list[_Marked] = []
_loading: list[Registry] = []


class _Decorators:
    """``@register.metric``, ``@register.geometry`` …: one decorator for each kind of part.

    In a plug-in the part joins when the plug-in is loaded; in a script or notebook at once, or with the registry.
    """

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        if kind not in HOOKS:
            raise AttributeError(f"no kind of part {kind!r}; there are: {', '.join(HOOKS)}")

        def mark(factory: Callable[..., Any] | None = None, *, name: str | None = None, **traits: Any) -> Any:
            if factory is None:
                return functools.partial(mark, name=name, **traits)
            part = _Marked(kind, name or factory.__name__, factory, traits)
            if registry.cache_info().currsize and not _loading:
                registry().add(part.kind, part.name, part.factory, **part.traits)
            else:
                _decorated.append(part)
            return factory

        return mark

    def __dir__(self) -> list[str]:
        return list(HOOKS)


register = _Decorators()


def _load_file(path: Path) -> Any:
    """A plug-in that is one Python file, named in REFBIAS_PLUGINS (never in a configuration)."""
    if not path.is_file():
        raise RefbiasError(f"REFBIAS_PLUGINS names {str(path)!r}, which is not a file. Give paths of .py files.")
    name = f"refbias_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RefbiasError(f"REFBIAS_PLUGINS names {str(path)!r}, which Python cannot import. Give a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RefbiasError(f"Plug-in file {str(path)!r} fails: {type(error).__name__}: {error}.") from error
    return module
