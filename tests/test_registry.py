from __future__ import annotations

import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refbias import registry as module
from refbias.errors import RefbiasError, UsageError
from refbias.hookspecs import Register
from refbias.registry import Registry, register


def scale(space: dict[str, float], *, alpha: float = 1.0, seed: int | None = None) -> dict[str, float]:
    """Scores times alpha.

    More about it.
    """
    return {group: alpha * value for group, value in space.items()}


def plugin(**hooks: Callable[..., Any]) -> types.SimpleNamespace:
    return types.SimpleNamespace(**hooks)


def fresh(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Registry:
    for name in ("REFBIAS_PLUGINS", "REFBIAS_DISABLED_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = Registry()
    made.load()
    return made


def distribution(folder: Path, name: str, code: str, entries: tuple[str, ...] = ("part",)) -> None:
    """An installed distribution with a module of its own, as importlib.metadata sees it."""
    stem = name.replace("-", "_")
    (folder / f"{stem}.py").write_text(textwrap.dedent(code))
    info = folder / f"{stem}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[refbias]\n" + "".join(f"{entry} = {stem}\n" for entry in entries))


METRIC = '''
def quiet(space, *, alpha: float = 1.0):
    """A metric."""
    return {}

def refbias_metrics(register):
    register("quiet", quiet)
'''


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", "")).startswith(str(tmp_path))]:
        del sys.modules[name]


def test_options_are_bound_and_inputs_are_left() -> None:
    parts = Registry()
    parts.add("metric", "scale", scale)
    part = parts.get("metric", "scale")
    assert part.inputs == ["space"]
    assert list(part.options) == ["alpha", "seed"]
    assert part.summary == "Scores times alpha."
    assert part.build({"alpha": 2.0})({"a": 3.0}) == {"a": 6.0}


def test_a_part_without_inputs_is_called() -> None:
    parts = Registry()

    def names(*, n: int = 2, seed: int | None = None) -> list[str]:
        return [f"sentence {seed}"] * n

    parts.add("anchors", "names", names)
    assert parts.get("anchors", "names").build({"n": 1}, seed=7) == ["sentence 7"]
    choice = parts.resolve("anchors", ("names", {}), seed=3)
    assert (choice.object, choice.params) == (["sentence 3"] * 2, {"n": 2, "seed": 3})


def test_every_parameter_of_a_class_is_an_option() -> None:
    class Shrink:
        def __init__(self, by: float = 0.5) -> None:
            self.by = by

    parts = Registry()
    parts.add("calibration", "shrink", Shrink)
    assert parts.get("calibration", "shrink").build({"by": 0.1}).by == 0.1


def test_unknown_names_come_with_a_suggestion() -> None:
    parts = Registry()
    parts.add("metric", "scale", scale)
    with pytest.raises(UsageError, match=r"No metric 'scal'. Did you mean 'scale'\? Available: scale."):
        parts.get("metric", "scal")
    with pytest.raises(UsageError, match="Did you mean 'metric'"):
        parts.get("metrik", "scale")
    with pytest.raises(UsageError, match=r"No option of metric=scale 'alhpa'. Did you mean 'alpha'\?"):
        parts.get("metric", "scale").build({"alhpa": 1.0})


def test_a_required_option_is_named() -> None:
    def part(*, path: str) -> list[str]:
        return [path]

    parts = Registry()
    parts.add("anchors", "mine", part)
    with pytest.raises(UsageError, match=r"anchors=mine needs anchors.path=…"):
        parts.resolve("anchors", "mine")


def test_objects_of_one_s_own_pass_through() -> None:
    choice = Registry().resolve("metric", scale)
    assert (choice.name, choice.object) == ("scale", scale)


def test_a_name_that_is_taken_names_both_distributions() -> None:
    parts = Registry()
    parts.add("metric", "scale", scale, distribution="one")
    with pytest.raises(RefbiasError, match=r"metric 'scale': one of 'one', one of 'two'"):
        parts.add("metric", "scale", scale, distribution="two")


def test_the_option_name_is_reserved() -> None:
    def part(space: Any, *, name: str = "x") -> dict[str, float]:
        return {}

    with pytest.raises(RefbiasError, match="'name' is reserved"):
        Registry().add("metric", "mine", part)


def test_annotations_of_inputs_need_not_resolve() -> None:
    def part(states: Tensor, *, power: float = 1.0) -> Tensor:  # type: ignore[name-defined]  # noqa: F821
        return states

    parts = Registry()
    parts.add("pooling", "power", part)
    assert parts.get("pooling", "power").options["power"].annotation is float


def test_an_annotation_of_an_option_must_resolve() -> None:
    def part(space: Any, *, power: Strength = 1.0) -> dict[str, float]:  # type: ignore[name-defined]  # noqa: F821
        return {}

    with pytest.raises(RefbiasError, match=r"metric 'mine' of 'this process': .*Strength"):
        Registry().add("metric", "mine", part)


def test_an_installed_plug_in_is_found(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(site, "refbias-quiet", METRIC)
    assert fresh(monkeypatch).get("metric", "quiet").distribution == "refbias-quiet"


@pytest.mark.parametrize("name", ["part", "refbias-quiet"])
def test_a_plug_in_is_switched_off_by_either_name(site: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    distribution(site, "refbias-quiet", METRIC)
    assert "quiet" not in fresh(monkeypatch, REFBIAS_DISABLED_PLUGINS=f"other, {name}").parts("metric")


def test_a_broken_plug_in_is_named_with_the_way_to_switch_it_off(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(site, "refbias-broken", "import no_such_module_anywhere")
    with pytest.raises(RefbiasError, match=r"'part' of distribution 'refbias-broken'.*REFBIAS_DISABLED_PLUGINS=part"):
        fresh(monkeypatch)
    assert "delta_b" in fresh(monkeypatch, REFBIAS_DISABLED_PLUGINS="part").parts("metric")


def test_one_distribution_may_have_several_entry_points(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(site, "refbias-quiet", METRIC)
    (site / "loud_module.py").write_text(METRIC.replace("quiet", "loud"))
    entries = site / "refbias_quiet-1.0.dist-info" / "entry_points.txt"
    entries.write_text(entries.read_text() + "other = loud_module\n")
    assert {"quiet", "loud"} <= set(fresh(monkeypatch).parts("metric"))


@pytest.mark.parametrize(
    "hooks",
    [
        {"refbias_metrik": lambda register: None},  # misspelt
        {"refbias_metrics": lambda registr: None},  # another argument
    ],
)
def test_a_hook_that_does_not_fit_is_named(hooks: dict[str, Callable[..., Any]]) -> None:
    with pytest.raises(RefbiasError, match=r"Plug-in 'odd' has a hook that does not exist or takes other arguments"):
        Registry().add_plugin(plugin(**hooks), "odd")


def test_a_hook_that_fails_is_named() -> None:
    def refbias_metrics(register: Register) -> None:
        raise KeyError("lost")

    with pytest.raises(RefbiasError, match=r"Plug-in 'odd' fails in refbias_metrics: KeyError: 'lost'"):
        Registry().add_plugin(plugin(refbias_metrics=refbias_metrics), "odd")


FILE = '''
from refbias import register

@register.metric
def from_file(space, *, alpha: float = 1.0):
    """A metric of one file."""
    return {}

@register.anchors(name="short")
def some(*, n: int = 1):
    """Anchors."""
    return ["A sentence."] * n
'''


def test_a_single_file_is_a_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    parts = fresh(monkeypatch, REFBIAS_PLUGINS=str(file))
    assert parts.get("metric", "from_file").distribution == str(file)
    assert parts.resolve("anchors", ("short", {"n": 2})).object == ["A sentence."] * 2


@pytest.mark.parametrize(("content", "message"), [(None, "which is not a file"), ("1 / 0", "fails: ZeroDivisionError")])
def test_a_file_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, message: str
) -> None:
    file = tmp_path / "mine.py"
    if content is not None:
        file.write_text(content)
    with pytest.raises(RefbiasError, match=message):
        fresh(monkeypatch, REFBIAS_PLUGINS=str(file))


def test_a_decorated_function_joins_the_registry_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = module.registry()
    monkeypatch.setitem(parts._parts, "metric", dict(parts._parts["metric"]))

    @register.metric
    def just_now(space: Any, *, alpha: float = 1.0) -> dict[str, float]:
        return {}

    assert module.registry().get("metric", "just_now").factory is just_now
    with pytest.raises(AttributeError, match="no kind of part 'metrik'"):
        register.metrik  # noqa: B018
