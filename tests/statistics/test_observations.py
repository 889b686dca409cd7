"""Reading tables of observations: what is taken, what is left out, what is refused and how it is named."""

from __future__ import annotations

import json

import numpy as np
import pytest

from refbias.errors import RefbiasError, UsageError
from refbias.statistics.observations import find_files, read_observations

HEADER = "checkpoint,group,delta_b,delta_bias"


@pytest.fixture
def write(tmp_path):
    def write(*rows: str, header: str = HEADER, name: str = "observations.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        return path

    return write


def test_four_columns_are_enough(write):
    found = read_observations([write("m1,Women,-0.1,0.2", "m1,Men,0.1,", "m2,Women,nan,0.3", "m2,Men,0.2,-0.1")])
    assert found.x.tolist() == [-0.1, 0.2] and found.y.tolist() == [0.2, -0.1]
    assert found.group == ["Women", "Men"] and found.blocks == ["m1", "m2"]
    assert (found.left_out, found.name, found.error) == (2, "delta_b", None)


def test_malformed_rows_are_named_by_number(write):
    rows = ["m1,Women,x,0.1", "m1,Men,0.1,inf", ",Men,0.1,0.1"]
    with pytest.raises(RefbiasError) as error:
        read_observations([write("m1,Asians,0.1,0.1", *rows)])
    said = str(error.value)
    assert "row 3: delta_b is 'x', no number" in said
    assert "row 4: delta_bias is 'inf', no finite number" in said
    assert "row 5: checkpoint is empty" in said
    with pytest.raises(RefbiasError, match="and 4 more rows"):
        read_observations([write(*[f"m{i},Women,x,0.1" for i in range(9)])])


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        ("checkpoint,group,delta_b", "a,b,1", "no column 'delta_bias'"),
        (f"{HEADER},layer", "a,b,1,1,2.5", "layer is '2.5', no whole number"),
        (f"{HEADER},delta_bias_se", "a,b,1,1,-2", "delta_bias_se is '-2', below 0"),
        (HEADER, "a,b,1", "row 2: 3 fields where the first row has 4"),
    ],
)
def test_other_faults_are_named(write, header, row, said):
    with pytest.raises(RefbiasError, match=said):
        read_observations([write(row, header=header)])


def test_a_pair_that_comes_twice_names_both_rows(write):
    with pytest.raises(RefbiasError, match=r"row 2 and .*row 4: checkpoint 'm1' and group 'Women' .* come twice"):
        read_observations([write("m1,Women,0,0", "m1,Men,0,0", "m1,Women,1,0")])


def test_an_empty_table_is_refused(write):
    with pytest.raises(RefbiasError, match="has no row below its header"):
        read_observations([write()])


def test_runs_come_from_the_column_or_from_the_files(write):
    own = read_observations([write("a,m,g,1,1", "b,m,g,1,1", header=f"run,{HEADER}")])
    assert own.run == ["a", "b"] and own.blocks == ["a / m", "b / m"]
    files = [write("m,g,1,1", name=f"seed{i}/observations.csv") for i in range(2)]
    found = read_observations(files)
    assert found.run == ["seed0", "seed1"]
    assert read_observations(files[:1]).blocks == ["m"]


def test_other_layers_become_alternatives(write):
    header = f"{HEADER},layer"
    rows = [f"m,g{i},{layer + i / 10},{i},{layer}" for i in range(3) for layer in (10, 20, 30)]
    found = read_observations([write(*rows, header=header)])
    assert found.name == "layer 30" and found.x.tolist() == [30, 30.1, 30.2]
    assert set(found.alternatives) == {"layer 10", "layer 20"}
    assert found.alternatives["layer 20"].tolist() == [20, 20.1, 20.2]
    assert read_observations([write(*rows, header=header)], layer=10).x.tolist() == [10, 10.1, 10.2]
    with pytest.raises(UsageError, match=r"task.layer=5: the file has 10, 20, 30"):
        read_observations([write(*rows, header=header)], layer=5)


def test_further_columns_are_alternatives_turned_where_they_rise(write):
    path = write("m,a,1,1,2,3", "m,b,1,1,,4", header=f"{HEADER},seat,cka")
    found = read_observations([path], ["seat", "-cka"])
    assert found.alternatives["cka"].tolist() == [-3, -4]
    assert found.alternatives["seat"][0] == 2 and np.isnan(found.alternatives["seat"][1])
    with pytest.raises(UsageError, match="no column 'saet'. Did you mean 'seat'"):
        read_observations([path], ["saet"])


def test_the_result_beside_the_file_is_read(write, audited):
    path = write("m,a,1,1")
    (path.parent / "result.json").write_text(json.dumps(audited))
    found = read_observations([path]).context
    assert found["threshold"] == 0.0 and found["benchmark"] == "likelihood" and found["domain"]["layer"] == 30
    other = write("m,a,1,1", name="other/observations.csv")
    audited["benchmark"]["threshold"] = 0.1
    (other.parent / "result.json").write_text(json.dumps(audited))
    both = read_observations([path, other]).context
    assert both["threshold"] is None and both["thresholds_differ"] and both["domain"]["layer"] == 30
    (path.parent / "result.json").write_text("{")
    assert read_observations([path]).context["domain"]["layer"] is None


def test_a_drift_is_known_by_its_missing_scores(write):
    header = "checkpoint,group,b_ref,delta_b,delta_bias"
    assert not read_observations([write("m,a,,1,1", header=header)]).context["directed"]
    assert read_observations([write("m,a,0.1,1,1", header=header)]).context["directed"]


def test_a_path_is_a_file_a_folder_or_a_pattern(write, tmp_path):
    files = [write("m,g,1,1", name=f"s{i}/observations.csv") for i in range(3)]
    assert find_files(str(files[0])) == [files[0]]
    assert find_files(str(tmp_path)) == files
    assert find_files(f"{tmp_path}/s[01]/*.csv") == files[:2]
    with pytest.raises(UsageError, match="nor does the pattern fit one"):
        find_files(str(tmp_path / "none.csv"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="is a folder without observations.csv"):
        find_files(str(tmp_path / "empty"))


def test_a_pattern_may_be_relative(write, tmp_path, monkeypatch):
    write("m,g,1,1", name="s0/observations.csv")
    monkeypatch.chdir(tmp_path)
    assert [str(file) for file in find_files("s*/observations.csv")] == ["s0/observations.csv"]
