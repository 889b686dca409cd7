"""The audit as a plain function, on precomputed vectors: fast, and every number can be worked out beside it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import refbias
from refbias.benchmarks import CannotScore
from refbias.errors import RefbiasError, UsageError
from refbias.result import OBSERVATION_COLUMNS, Result
from refbias.schema import result_schema

STIMULI = refbias.Stimuli(
    targets={
        g: [f"{g} walk along {w} street." for w in ("a", "the", "one", "this", "each", "my")]
        for g in ("Bakers", "Cyclists")
    },
    positive=[f"The {n} was lovely." for n in ("day", "song", "walk")],
    negative=[f"The {n} was dreadful." for n in ("day", "song", "walk", "meal")],
    anchors=[f"Sentence number {i} says little." for i in range(12)],
)
OWN = {
    "targets": dict(STIMULI.targets),
    "attributes": (STIMULI.positive, STIMULI.negative),
    "anchors": STIMULI.anchors,
}


def model(folder: Path, name: str, seed: int, d: int = 5, layers: int | None = None) -> str:
    rng = np.random.default_rng(seed)
    sentences = STIMULI.sentences()
    shape = (len(sentences), d) if layers is None else (len(sentences), layers + 1, d)
    path = folder / f"{name}.npz"
    np.savez(path, sentences=np.array(sentences), vectors=rng.normal(size=shape) + 1)
    return str(path)


def vectors_of(path: str) -> dict[str, np.ndarray]:
    with np.load(path) as found:
        return dict(zip(found["sentences"].tolist(), found["vectors"].astype(np.float32), strict=True))


def space_of(path: str) -> refbias.Space:
    at = vectors_of(path)
    take = lambda sentences: np.stack([at[s] for s in sentences])  # noqa: E731
    targets = {g: take(s) for g, s in STIMULI.targets.items()}
    return refbias.Space(targets, take(STIMULI.positive), take(STIMULI.negative), take(STIMULI.anchors))


@pytest.fixture
def pair(tmp_path) -> tuple[str, str]:
    return model(tmp_path, "before", 0), model(tmp_path, "after", 1)


def validate(data: dict) -> None:
    jsonschema.validate(data, result_schema(), jsonschema.Draft202012Validator)


def audit(reference, audited=None, **options) -> Result:
    return refbias.audit(reference, audited, cache=False, draws=300, **{**OWN, **options})


class Signal:
    """A benchmark of known scores."""

    name, unit, threshold = "signal", "points", 0.0

    def __init__(self, scores: dict[str, dict[str, float | None]]) -> None:
        self.scores = scores

    def score(self, checkpoint, groups, context):
        return self.scores[checkpoint.name]


def test_an_audit_reports_the_shifts_of_its_spaces(pair):
    result = audit(*pair)
    expected = refbias.compare_spaces(space_of(pair[0]), space_of(pair[1]))
    centred = refbias.compare_spaces(space_of(pair[0]), space_of(pair[1]), calibration="center")
    (checkpoint,) = result.data["checkpoints"]
    assert {g["group"]: g["delta_b"] for g in checkpoint["groups"]} == dict(expected)
    assert {g["group"]: g["second_opinion"]["delta_b"] for g in checkpoint["groups"]} == pytest.approx(dict(centred))
    assert checkpoint["mean_delta_b"] == pytest.approx(np.mean(list(expected.values())))
    assert result.data["settings"]["metric"] == "delta_b"
    assert result.data["settings"]["pooling.skip"] == "none"
    validate(result.data)


def test_a_model_against_itself_is_exactly_0(pair):
    (checkpoint,) = audit(pair[0], pair[0]).data["checkpoints"]
    for group in checkpoint["groups"]:
        assert (group["delta_b"], group["ci_low"], group["ci_high"], group["p_value"]) == (0, 0, 0, 1)


@pytest.mark.parametrize(("geometry", "metric"), [("absolute", "seat"), ("procrustes", "seat"), ("cka", "cka_drift")])
def test_the_metric_follows_the_geometry(pair, geometry, metric):
    result = audit(*pair, geometry=geometry)
    assert result.data["settings"]["metric"] == metric
    expected = refbias.compare_spaces(space_of(pair[0]), space_of(pair[1]), geometry)
    (checkpoint,) = result.data["checkpoints"]
    assert {g["group"]: g["delta_b"] for g in checkpoint["groups"]} == dict(expected)
    if geometry == "cka":
        assert checkpoint["groups"][0]["b_ref"] is None
        assert checkpoint["groups"][0]["reason"] == "a drift has no direction: no test of 0"
    validate(result.data)


def test_layers_are_kept_apart(tmp_path):
    pair = model(tmp_path, "before", 0, layers=2), model(tmp_path, "after", 1, layers=2)
    result = audit(*pair, layer="all")
    assert [entry["layer"] for entry in result.data["layers"]] == [0, 1, 2]
    single = audit(*pair, layer=1).data
    assert single["layer"] == 1
    groups = result.data["layers"][1]["checkpoints"][0]["groups"]
    assert groups == single["checkpoints"][0]["groups"]
    assert len(result.observations()) == 3 * 2
    validate(result.data)


def test_a_benchmark_is_compared_with_the_shifts(tmp_path):
    paths = [model(tmp_path, f"m{i}", i) for i in range(5)]
    rng = np.random.default_rng(9)
    plain = audit(paths[0], paths[1:]).data
    reference, checkpoints = plain["reference"]["name"], [c["name"] for c in plain["checkpoints"]]
    scores = {name: {g: float(rng.normal()) for g in STIMULI.targets} for name in [reference, *checkpoints]}
    scores[checkpoints[0]]["Bakers"] = None
    found = audit(paths[0], paths[1:], benchmark=Signal(scores))
    rows = [row for row in found.observations() if row["delta_bias"] is not None]
    benchmark = found.data["benchmark"]
    assert benchmark["n_observations"] == len(rows) == 7
    assert benchmark["n_positive"] == sum(row["delta_bias"] > 0 for row in rows)
    expected = np.corrcoef([r["delta_b"] for r in rows], [r["delta_bias"] for r in rows])[0, 1]
    assert benchmark["pearson"] == pytest.approx(expected)
    for row in rows:
        assert row["delta_bias"] == scores[row["checkpoint"]][row["group"]] - scores[reference][row["group"]]
    validate(found.data)


def test_a_model_that_cannot_be_scored_leaves_a_reason(pair):
    class Mute(Signal):
        def score(self, checkpoint, groups, context):
            raise CannotScore("these vectors write no text")

    result = audit(*pair, benchmark=Mute({}))
    assert result.data["benchmark"]["reason"] == "these vectors write no text"
    validate(result.data)


def test_saving_leaves_json_csv_and_pictures(pair, tmp_path):
    result = audit(*pair)
    folder = tmp_path / "out"
    written = result.save(folder)
    assert all(path.stat().st_size > 0 for path in written)
    assert {path.suffix for path in written} == {".json", ".csv", ".png", ".svg"}
    assert Result.load(folder / "result.json").data == result.data
    with open(folder / "observations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == OBSERVATION_COLUMNS
    assert float(rows[0]["delta_b"]) == result.observations()[0]["delta_b"]
    assert list(result.to_frame().columns) == list(OBSERVATION_COLUMNS)


def test_a_file_that_cannot_be_written_leaves_the_old_one(pair, tmp_path, monkeypatch):
    result = audit(*pair)
    result.save(tmp_path / "out", pictures=False)
    before = (tmp_path / "out" / "result.json").read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("refbias.result.os.fsync", full)
    with pytest.raises(RefbiasError, match="No space left on device. What was there before is unchanged"):
        result.save(tmp_path / "out", pictures=False)
    assert (tmp_path / "out" / "result.json").read_bytes() == before
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["observations.csv", "result.json"]


def test_results_of_another_schema_are_refused(tmp_path):
    (tmp_path / "old.json").write_text(json.dumps({"schema_version": "0"}))
    with pytest.raises(RefbiasError, match="schema_version '0'"):
        Result.load(tmp_path / "old.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(RefbiasError, match="not a readable result.json"):
        Result.load(tmp_path / "broken.json")


@pytest.mark.parametrize(("options", "text"), [
    ({"groups": ["Baker"]}, "No target group 'Baker'. Did you mean 'Bakers'"),
    ({"groups": []}, "leaves no target group"),
    ({"pooling": "mena"}, "No pooling 'mena'. Did you mean 'mean'"),
    ({"geometry": "cka", "metric": "seat"}, "leaves the two spaces incomparable"),
    ({"layer": "final"}, "layer='final' is no layer"),
    ({"audited": None}, "give exactly one of them"),
    ({"checkpoints": "planted"}, "give exactly one of them"),
])  # fmt: skip
def test_wrong_use_is_refused_in_words(pair, options, text):
    with pytest.raises(UsageError, match=text):
        audit(pair[0], **{"audited": pair[1], **options})


@pytest.mark.parametrize(("options", "text"), [
    ({"targets": {"Bakers": []}}, "targets of 'Bakers' has no sentence"),
    ({"targets": {"Bakers": ["x", "x"]}}, "holds a sentence twice: 'x'"),
    ({"attributes": (["a"], [])}, "negative attributes has no sentence"),
])  # fmt: skip
def test_stimuli_that_do_not_do(pair, options, text):
    with pytest.raises(RefbiasError, match=text):
        audit(*pair, **options)


def test_widths_that_do_not_fit_are_refused_before_anything_is_encoded(tmp_path):
    pair = model(tmp_path, "before", 0, d=5), model(tmp_path, "after", 1, d=7)
    with pytest.raises(RefbiasError, match="has 5 dimensions, .* 7. Use geometry=relative"):
        audit(*pair, geometry="procrustes")
    assert audit(*pair).data["checkpoints"][0]["mean_delta_b"] != 0


def test_a_seed_makes_a_run_repeatable(pair):
    one, same, other = (audit(*pair, seed=s).data["checkpoints"] for s in (3, 3, 4))
    assert one == same
    assert one[0]["groups"][0]["ci_low"] != other[0]["groups"][0]["ci_low"]
    assert one[0]["groups"][0]["delta_b"] == other[0]["groups"][0]["delta_b"]


def test_groups_can_be_chosen(pair):
    (checkpoint,) = audit(*pair, groups=["Cyclists"]).data["checkpoints"]
    assert [g["group"] for g in checkpoint["groups"]] == ["Cyclists"]


def test_two_models_of_one_name_are_told_apart(pair):
    names = [c["name"] for c in audit(pair[0], [pair[1], pair[1]]).data["checkpoints"]]
    assert len(set(names)) == 2


def test_it_says_how_many_sentences_would_be_enough(pair):
    from refbias.statistics.planning import plan

    found = audit(*pair).data["planning"]
    comparison = refbias.comparison.Comparison(space_of(pair[0]))
    expected = plan(comparison.differences(space_of(pair[1])), found["half_width"], 3)
    assert found["sentence"] == str(expected)
    assert found["shares"] == pytest.approx(expected.shares)
    assert audit(pair[0], pair[0]).data["planning"] is None
    assert audit(*pair, geometry="cka").data["planning"] is None


# A control beside the suspect ------------------------------------------------------------------------------------


def test_a_control_gives_the_difference_of_both_shifts(pair, tmp_path):
    beside = model(tmp_path, "beside", 2)
    result = audit(*pair, control=beside).data
    spaces = {name: space_of(path) for name, path in zip(("ref", "aud", "ctl"), (*pair, beside), strict=True)}
    suspect = refbias.compare_spaces(spaces["ref"], spaces["aud"])
    control = refbias.compare_spaces(spaces["ref"], spaces["ctl"])
    assert {g["group"]: g["delta_b"] for g in result["control"]["groups"]} == dict(control)
    against = result["checkpoints"][0]["against_control"]
    differences = {g["group"]: g["delta_b"] for g in against["groups"]}
    assert differences == pytest.approx({g: suspect[g] - control[g] for g in suspect})
    assert against["correlation"] is None
    assert "3" in against["correlation_reason"]
    for group in against["groups"]:
        assert group["ci_low"] < group["delta_b"] < group["ci_high"]
    assert result["settings"]["control"] == beside
    validate(result)


def test_a_model_as_its_own_control_differs_by_nothing(pair):
    against = audit(*pair, control=pair[1]).data["checkpoints"][0]["against_control"]
    assert [(g["delta_b"], g["p_value"]) for g in against["groups"]] == [(0, 1), (0, 1)]


def test_every_layer_has_its_own_control(tmp_path):
    paths = [model(tmp_path, name, seed, layers=2) for seed, name in enumerate(("ref", "aud", "ctl"))]
    blocks = audit(paths[0], paths[1], control=paths[2], layer=[1, 2]).data["layers"]
    alone = [audit(paths[0], paths[2], layer=k).data["checkpoints"][0]["groups"] for k in (1, 2)]
    assert [block["control"]["groups"] for block in blocks] == alone


@pytest.mark.parametrize("geometry", ["procrustes", "cka"])
def test_a_control_needs_scores_of_each_space(pair, geometry):
    with pytest.raises(UsageError, match=rf"control=….*geometry={geometry}.*Use geometry=relative or"):
        audit(*pair, control=pair[1], geometry=geometry)


def test_an_automatic_control_needs_a_causal_model(pair):
    with pytest.raises(UsageError, match=r"control=auto fine-tunes a causal language model.*control=MODEL"):
        audit(*pair, control="auto")


# What a shift means ----------------------------------------------------------------------------------------------


def calibrator(data: dict, **other) -> Any:
    from refbias.statistics import Calibrator, domain_of

    return Calibrator(
        "logistic", {"intercept": -1.0, "slope": -2.0}, {**domain_of(data), **other}, {"n_runs": 3}, {}, {}
    )


def test_a_calibrator_turns_shifts_into_probabilities(pair, tmp_path):
    plain = audit(*pair).data
    file = tmp_path / "calibrator.json"
    calibrator(plain).save(file)
    data = audit(*pair, calibrator=str(file)).data
    for row in data["checkpoints"][0]["groups"]:
        assert row["p_more_biased"] == pytest.approx(1 / (1 + np.exp(1 + 2 * row["delta_b"])))
    assert data["calibrator"]["file"] == str(file)
    validate(data)


@pytest.mark.parametrize("other", [{"layer": 3}, {"anchors_digest": "else"}, {"reference": "another"}])
def test_a_calibrator_of_another_setting_is_refused(pair, other):
    with pytest.raises(UsageError, match=f"does not fit: its {next(iter(other))} was"):
        audit(*pair, calibrator=calibrator(audit(*pair).data, **other))


def test_a_calibrator_of_another_setting_can_be_used_all_the_same(pair):
    other = calibrator(audit(*pair).data, layer=3)
    data = audit(*pair, calibrator=other, calibrator_anyway=True).data
    assert data["calibrator"]["unlike"] == ["layer"]
    assert all(0 < row["p_more_biased"] < 1 for row in data["checkpoints"][0]["groups"])


def test_a_missing_calibrator_is_named_before_anything_is_loaded(pair):
    with pytest.raises(RefbiasError, match=r"nowhere\.json is no readable calibrator"):
        refbias.pipeline.check(pair[0], pair[1], calibrator="nowhere.json", **OWN)


# Benchmarks whose scores have intervals, and units of several groups -----------------------------------------------


class Told(Signal):
    """Scores with intervals and counts; both groups share one unit."""

    units = property(lambda self: {"Bakers": "people", "Cyclists": "people"})
    report = property(lambda self: {"list_version": "1"})

    def score(self, checkpoint, groups, context):
        from refbias.answers import Score

        value = self.scores[checkpoint.name]
        return {g: Score(value, 0.0, 1.0, n=8, prompts=4, counts={"empty": 1}) for g in groups}


def test_groups_of_one_unit_are_one_observation(pair, tmp_path):
    paths = [pair[1], *(model(tmp_path, f"m{i}", 3 + i) for i in range(3))]
    scores = dict(zip(paths, (0.1, 0.2, 0.4, 0.3), strict=True))
    found = audit(pair[0], paths, benchmark=Told({pair[0]: 0.0, **scores})).data
    block = found["benchmark"]
    assert block["n_observations"] == 4
    means = [c["mean_delta_b"] for c in found["checkpoints"]]
    assert block["pearson"] == pytest.approx(np.corrcoef(means, list(scores.values()))[0, 1])
    assert block["measured"][paths[0]]["Bakers"]["counts"] == {"empty": 1}
    assert block["report"] == {"list_version": "1"}
    assert found["timings"]["benchmark_s"] >= 0
    validate(found)
