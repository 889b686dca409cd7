from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Optional

import pytest

from refbias import options
from refbias.errors import RefbiasError
from refbias.registry import HOOKS, Registry, registry

pytestmark = pytest.mark.usefixtures("hydra_restored")

Mode = Literal["slow-and-safe", "fast"]


def everything(
    space: Unresolvable,  # type: ignore[name-defined]  # noqa: F821
    *,
    needed: int,
    alpha: float = 1.0,
    on: bool = False,
    mode: Mode = "fast",
    maybe_mode: Mode | None = None,
    level: Literal[1, 2] = 2,
    either: int | str = "last",
    maybe: Optional[int] = None,  # noqa: UP045
    path: Path | None = None,
    implied: str = None,  # type: ignore[assignment]  # noqa: RUF013
    weights: list[float] = (0.5, 0.5),  # type: ignore[assignment]
    steps: list[int | str] | None = None,
    seed: int | None = None,
) -> dict[str, float]:
    """A metric with an option of every kind."""
    return {}


@pytest.fixture
def parts() -> Registry:
    made = Registry()
    made.load()
    made.add("metric", "everything", everything, distribution="refbias-test")
    return made


def compose(parts: Registry, *overrides: str) -> dict[str, Any]:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    options.store(parts)
    with initialize_config_dir(str(options.own_folder()), version_base="1.3"):
        config = compose("config", list(overrides))
        return options.plain(OmegaConf.to_container(config, throw_on_missing=True))


def test_every_hook_but_the_one_for_models_is_a_group() -> None:
    assert set(options.GROUPS) == set(HOOKS) - {"model"}


def test_a_signature_becomes_typed_options(parts: Registry) -> None:
    config = compose(parts, "metric=everything", "metric.needed=3")
    assert config["metric"] == {
        "name": "everything", "needed": 3, "alpha": 1.0, "on": False, "mode": "fast", "maybe_mode": None, "level": 2,
        "either": "last", "maybe": None, "path": None, "implied": None, "weights": [0.5, 0.5], "steps": None,
        "seed": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("alpha=2", 2.0),
        ("on=true", True),
        ("mode=slow-and-safe", "slow-and-safe"),
        ("maybe_mode=fast", "fast"),
        ("level=1", 1),
        ("either=7", 7),
        ("either=all", "all"),
        ("maybe=4", 4),
        ("path=a/b.txt", "a/b.txt"),
        ("implied=12", "12"),
        ("weights=[1,2.5]", [1.0, 2.5]),
        ("steps=[1,last]", [1, "last"]),
    ],
)
def test_values_take_their_types(parts: Registry, override: str, value: object) -> None:
    config = compose(parts, "metric=everything", "metric.needed=3", f"metric.{override}")
    found = config["metric"][override.partition("=")[0]]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("override", ["alpha=much", "on=perhaps", "mode=quick", "level=3", "maybe=x", "weights=[a]"])
def test_wrong_types_are_refused(parts: Registry, override: str) -> None:
    from hydra.errors import ConfigCompositionException

    with pytest.raises(ConfigCompositionException):
        compose(parts, "metric=everything", "metric.needed=3", f"metric.{override}")


def test_a_required_option_is_missing_until_given(parts: Registry) -> None:
    from omegaconf.errors import MissingMandatoryValue

    with pytest.raises(MissingMandatoryValue, match="needed"):
        compose(parts, "metric=everything")


@pytest.mark.parametrize("annotation", [Callable, Sequence[float], float | list[float], dict[str, int], Any])
def test_what_a_configuration_cannot_hold_is_refused_at_registration(annotation: Any) -> None:
    def part(space, *, odd=None): ...  # type: ignore[no-untyped-def]

    part.__annotations__["odd"] = annotation
    with pytest.raises(RefbiasError, match=r"metric 'mine' of 'refbias-mine': a configuration cannot hold .*'odd'"):
        Registry().add("metric", "mine", part, distribution="refbias-mine")


def test_an_option_without_annotation_is_refused() -> None:
    with pytest.raises(RefbiasError, match="no annotation"):
        Registry().add("metric", "mine", lambda space, *, odd=1: {}, distribution="refbias-mine")


def test_a_default_of_the_wrong_type_is_refused(parts: Registry) -> None:
    def part(space: Any, *, size: int = "large") -> dict[str, float]:  # type: ignore[assignment]
        return {}

    parts.add("metric", "mine", part, distribution="refbias-mine")
    with pytest.raises(RefbiasError, match="metric 'mine' of 'refbias-mine' has a default that does not fit"):
        options.store(parts)


def test_a_preset_sets_values_and_keeps_the_part_s_name(parts: Registry) -> None:
    config = compose(parts, "pooling=mean_nosink")
    assert config["pooling"] == {"name": "mean", "skip": "sink"}


@pytest.mark.parametrize("file", sorted(options.own_folder().glob("*/*.yaml")), ids=lambda file: file.stem)
def test_presets_begin_with_a_part_and_hold_no_import_paths(file: Path) -> None:
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(OmegaConf.load(file))
    assert isinstance(content, dict)
    assert "_target_" not in file.read_text()
    if file.parent.name in HOOKS:
        first = content["defaults"][0]
        assert first in registry().parts(file.parent.name)
        assert first != file.stem


def test_plug_ins_bring_folders_of_presets(parts: Registry, tmp_path: Path) -> None:
    plugin = types.SimpleNamespace(refbias_config_paths=lambda: [tmp_path])
    parts.manager.register(plugin)
    (tmp_path / "metric").mkdir()
    (tmp_path / "metric" / "half.yaml").write_text("defaults: [everything]\nalpha: 0.5\n")
    assert options.plugin_folders(parts) == [tmp_path]
    assert "half" in options.names(parts, "metric")


def test_none_is_an_option_where_no_part_has_the_name(parts: Registry) -> None:
    assert compose(parts, "benchmark=none")["benchmark"]["name"] == "none"


def test_plain_keeps_values_and_drops_types() -> None:
    from enum import Enum

    mode = Enum("mode", {"a-b": "a-b"})
    assert options.plain({"x": mode("a-b"), "y": [Path("p"), (1, None)]}) == {"x": "a-b", "y": ["p", [1, None]]}
