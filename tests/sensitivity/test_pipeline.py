"""The map of a tiny model: what it holds, that it resumes, and what it lets an audit say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import refbias
from refbias.cache import Cache
from refbias.errors import RefbiasError
from refbias.models import find_model
from refbias.sensitivity import SensitivityMap, load
from refbias.sensitivity import measuring as measuring_module
from refbias.sensitivity.measuring import reduced
from refbias.types import Stimuli
from tests.sensitivity.conftest import GROUPS, Measure


@pytest.fixture(scope="module")
def saved(maps: Measure) -> SensitivityMap:
    return maps()[1]


@pytest.fixture(scope="module")
def bases(saved: SensitivityMap, kept: Cache) -> Path:
    """The folder of what edits of the tiny model are made of: it takes longer to measure than the map."""
    return kept.folder("basis").parent


def test_every_setting_has_a_row(maps: Measure) -> None:
    data = maps()[0].data
    rows = data["sensitivity"]
    # 2 layers × (mean, mean without the sink, last) × (relative with both calibrations, cka with the first)
    assert len(rows) == 2 * 3 * 3 == data["about"]["settings"]
    assert len({tuple(row[k] for k in ("layer", "pooling", "skip", "calibration", "geometry")) for row in rows}) == 18
    assert data["about"]["models"] == 4 * 2 * 2 + 2 * 2 * 2
    assert [row["geometry"] for row in data["recommended"] if row["role"] == "recommended"] == ["relative", "cka"]
    assert set(data["figures"]) >= {"recommended/power", "recommended/false_alarm_rate"}


def test_shifts_are_those_of_an_audit(tiny_llama: Path, bases: Path, tmp_path: Path) -> None:
    """The same edit, encoded and compared by the public functions."""
    shutil.copytree(bases, tmp_path / "folders")
    from refbias.comparison import choose
    from refbias.context import Context
    from refbias.pooling import built_in
    from refbias.registry import registry
    from refbias.sensitivity.grid import Way
    from refbias.sensitivity.measuring import Measuring
    from refbias.sensitivity.plants import Plant, garden
    from refbias.subject import Cost

    context = Context(Cache(tmp_path))
    model = find_model(tiny_llama, cache=context.cache)
    stimuli = reduced(refbias.load_stimuli(groups=GROUPS), 4, 4, 10, 0)
    grown, plant = garden(model, GROUPS, context, 2), Plant("own", 0.3, 0, True)
    geometry, metric, calibration = choose("relative", None, "center")
    encoder = registry().resolve("encoder", "auto").object
    measuring = Measuring(
        grown, lambda one: encoder(one, context), stimuli, [(3, built_in("mean", "sink"))],
        [Way(calibration, geometry, metric)], context,
    )  # fmt: skip
    found = measuring.shifts([plant], Cost())[0, 0, 0]

    def space(one: object) -> refbias.Space:
        def take(some: list[str]) -> np.ndarray:
            return refbias.encode(one, some, layer=3, pooling=("mean", {"skip": "sink"})).astype(np.float64)

        named = {group: take(some) for group, some in stimuli.targets.items()}
        return refbias.Space(named, take(stimuli.positive), take(stimuli.negative), take(stimuli.anchors))

    shifts = refbias.compare_spaces(space(model), space(grown.model(plant)), calibration="center")
    assert found == pytest.approx([shifts[group] for group in GROUPS], abs=2e-5)
    assert np.abs(found).max() > 1e-3


def test_a_killed_run_resumes_and_leaves_the_same_file(
    maps: Measure, saved: SensitivityMap, bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(bases, tmp_path / "folders")
    cache, encode = Cache(tmp_path), measuring_module.encode
    calls = []

    def interrupted(*args: object) -> object:
        calls.append(args)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return encode(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring_module, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        maps(cache=cache)
    monkeypatch.setattr(measuring_module, "encode", encode)
    tables, again = maps(cache=Cache(tmp_path))
    sentences = sum(tables.data["about"]["sentences"][kind] for kind in ("targets", "attributes", "anchors"))
    assert tables.data["timings"]["sentences_from_cache"] == 6 * sentences  # 8 passes: reference, 6 kept, 1 lost
    assert again.to_json() == saved.to_json()


def test_everything_comes_from_the_cache_the_second_time(maps: Measure, saved: SensitivityMap) -> None:
    tables, again = maps()
    assert tables.data["timings"]["sentences_encoded"] == 0
    assert again == saved


def test_an_audit_may_say_what_was_measured_there(saved: SensitivityMap, tmp_path: Path) -> None:
    file = tmp_path / "sensitivity.json"
    file.write_text(saved.to_json())
    read = load(file)
    assert read == saved
    setting = {"layer": "last", "pooling": "mean", "pooling.skip": "sink", "calibration": "center",
               "geometry": "relative", "metric": "delta_b"}  # fmt: skip
    said = read.statement(setting, fingerprint=saved.model["fingerprint"])
    row = next(
        r for r in saved.settings if (r["layer"], r["pooling"], r["skip"]) == (4, "mean", "sink")
        and (r["calibration"], r["geometry"]) == ("center", "relative")
    )  # fmt: skip
    assert said is not None
    assert said.startswith(
        "A planted edit of this size, in this model, would have been found with probability dose 0.1"
    )
    assert f"dose 0.3: {row['found_0.3'] / row['n_planted']:.2f} [" in said
    assert said.endswith("Other kinds of change may be missed.")
    assert read.statement({}) == read.statement({**setting, "pooling.skip": "none", "calibration": "none"})
    assert read.statement({"pooling": "last", "pooling.skip": "sink"}) == read.statement({"pooling": "last"})
    assert read.statement(setting, layer=3) != said


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"layer": 2}, "the map has no layer=2"),
        ({"layer": "all"}, "several layers"),
        ({"layer": 99}, "there is no such layer"),
        ({"pooling": "max"}, "the map has no layer=4 pooling=max"),
        ({"metric": "delta_b_contrast"}, "metric=delta_b_contrast"),
        ({"calibration": "center", "corpus": "wikipedia"}, "fits them on a corpus"),
        (
            {"geometry": "procrustes"},
            "skip=none calibration=none geometry=procrustes",
        ),
        ({"geometry": "cka", "metric.debiased": False}, "made with metric.debiased=True, the audit with False"),
        ({"encoder.chat_template": True}, "made with encoder.chat_template=False"),
    ],
)
def test_an_audit_elsewhere_says_nothing(saved: SensitivityMap, setting: dict, why: str) -> None:
    assert saved.statement(setting) is None
    assert why in (saved.reason(setting) or "")
    assert saved.statement({"encoder.batch_tokens": 7}) == saved.statement({})


def test_another_model_says_nothing(saved: SensitivityMap) -> None:
    assert saved.statement({}, fingerprint="other") is None
    assert "another model" in (saved.reason({}, fingerprint="other") or "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no readable sensitivity map"),
        ("{}", "no sensitivity map of this refbias"),
        (json.dumps({"kind": "refbias sensitivity map", "schema_version": "1"}), "damaged sensitivity map"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(RefbiasError, match=message):
        load(tmp_path / "x.json")


def test_the_draw_keeps_templates_and_pairs_together() -> None:
    targets = {group: [f"{group} {i}" for i in range(9)] for group in "AB"}
    stimuli = Stimuli(targets, [f"p{i}" for i in range(8)], [f"n{i}" for i in range(8)], [f"a{i}" for i in range(7)])
    few = reduced(stimuli, 3, 4, 5, 1)
    assert [s[2:] for s in few.targets["A"]] == [s[2:] for s in few.targets["B"]]
    assert [s[1:] for s in few.positive] == [s[1:] for s in few.negative]
    assert (len(few.targets["A"]), len(few.positive), len(few.anchors)) == (3, 4, 5)
    assert reduced(stimuli, 3, 4, 5, 1) == few != reduced(stimuli, 3, 4, 5, 2)
    assert reduced(stimuli, 99, 99, 99, 0) == stimuli


def test_an_audit_says_what_it_would_have_found(saved: SensitivityMap) -> None:
    from refbias.pipeline import add_sensitivity

    row = next(row for row in saved.settings if not row["reason"])
    settings = {key: row[key] for key in ("pooling", "calibration", "geometry", "metric")}
    reference = {"fingerprint": saved.model["fingerprint"]}
    data = {"settings": {**settings, "pooling.skip": row["skip"]}, "reference": reference, "checkpoints": []}
    here, other = dict(data, layer=row["layer"]), dict(data, layer=row["layer"], reference={"fingerprint": "another"})
    add_sensitivity(here, saved)
    assert here["sensitivity"][0]["sentence"].startswith("A planted edit of this size, in this model, would have been")
    add_sensitivity(other, saved)
    assert other["sensitivity"][0]["sentence"] is None
    assert "the audit's reference is another model" in other["sensitivity"][0]["reason"]
