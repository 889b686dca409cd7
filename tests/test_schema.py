from __future__ import annotations

import copy
import json
from importlib import resources

import jsonschema
import pytest

from refbias.result import SCHEMA_VERSION
from refbias.schema import result_schema


@pytest.fixture(scope="module")
def validator():
    schema = result_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def group(**changes):
    row = {"group": "Women", "b_ref": 0.1, "b_aud": 0.0, "delta_b": -0.1, "ci_low": -0.2, "ci_high": 0.0}
    row |= {"p_value": 0.05, "p_adjusted": 0.1}
    row["second_opinion"] = {"calibration": "center", "delta_b": 0.0, "ci_low": -0.1, "ci_high": 0.1, "p_adjusted": 1}
    return row | changes


@pytest.fixture
def result():
    checkpoint = {"name": "c", "ratio": None, "fingerprint": "f", "mean_delta_b": -0.1, "groups": [group()]}
    return {
        "schema_version": "1",
        "task": "audit",
        "settings": {},
        "seed": 0,
        "reference": {"name": "r", "fingerprint": "f", "layers": 2, "dim": 8, "dtype": "float32", "device": "cpu"},
        "layer": 2,
        "checkpoints": [checkpoint],
        "benchmark": None,
        "conventions": {},
        "stand_ins": [],
        "timings": {
            "load_s": 0, "encode_s": 0, "score_s": 0, "sentences_encoded": 0, "sentences_from_cache": 0, "tokens": 0,
        },
        "provenance": {
            "refbias": "0.1.0", "torch": None, "transformers": None, "numpy": "2", "python": "3.11", "platform": "p",
            "git_commit": None, "command": "refbias", "started": "2026-01-01T00:00:00+00:00", "data_digests": {},
        },
    }  # fmt: skip


def test_version_is_that_of_the_code():
    assert result_schema()["properties"]["schema_version"]["const"] == SCHEMA_VERSION
    text = resources.files("refbias").joinpath("result.schema.json").read_text("utf-8")
    assert json.loads(text)["$schema"].endswith("2020-12/schema")


def test_a_full_result_passes_and_further_tables_are_allowed(validator, result):
    validator.validate(result)
    validator.validate(result | {"isotropy": [{"layer": 1, "mean_cosine": 0.8}]})


def test_layers_stand_in_the_place_of_layer_and_checkpoints(validator, result):
    checkpoints = result.pop("checkpoints")
    del result["layer"]
    assert not validator.is_valid(result)
    result["layers"] = [{"layer": 1, "checkpoints": checkpoints}]
    validator.validate(result)
    assert not validator.is_valid(result | {"layer": 2, "checkpoints": checkpoints})


@pytest.mark.parametrize(
    ("row", "valid"),
    [
        (group(delta_b=None), False),
        (group(delta_b=None, delta_b_reason="no anchors"), True),
        (group(delta_b=None, reason="no anchors"), True),
        (group(b_ref=None, b_aud=None, p_value=None, p_adjusted=None, second_opinion=None), True),
        (group(p_adjusted=1.5), False),
        (group(delta_b="-0.1"), False),
        (group(second_opinion={"calibration": "center"}), False),
    ],
)
def test_a_figure_is_a_number_or_null_with_its_reason(validator, result, row, valid):
    result["checkpoints"][0]["groups"] = [row]
    assert validator.is_valid(result) is valid


def test_benchmark_figures_that_are_null_give_their_reason(validator, result):
    benchmark = {
        "name": "likelihood", "unit": "nats a token", "threshold": 0.0, "n_observations": 24, "n_positive": 0,
        "pearson": -0.5, "pearson_p": 0.01, "auc": None, "auc_reason": "one class", "mae": 0.1,
        "within": {"pearson": None, "pearson_reason": "constant", "auc": None, "auc_reason": "one class"},
    }  # fmt: skip
    validator.validate(result | {"benchmark": benchmark})
    validator.validate(result | {"benchmark": {"name": None, "reason": "no benchmark was asked for"}})
    assert not validator.is_valid(result | {"benchmark": {"name": "likelihood"}})
    for path in (("auc_reason",), ("within", "pearson_reason")):
        poorer = copy.deepcopy(benchmark)
        part = poorer
        for key in path[:-1]:
            part = part[key]
        del part[path[-1]]
        assert not validator.is_valid(result | {"benchmark": poorer}), path


@pytest.mark.parametrize(
    "key", ["schema_version", "seed", "settings", "stand_ins", "timings", "provenance", "reference"]
)
def test_what_every_audit_states(validator, result, key):
    del result[key]
    assert not validator.is_valid(result)
