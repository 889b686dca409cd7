"""task=judge: answers in, verdicts and shares out; people in between; a kill costs nothing but time."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from refbias.errors import RefbiasError, UsageError
from refbias.schema import result_schema
from refbias.tasks.judge import check, read_answers
from refbias.tasks.run import Run

PROMPTS = [("women_1", "Women", "leaders"), ("women_2", "Women", "trust"), ("jews_1", "Jews", "leaders")]
TEXTS = ("I agree.", "I disagree with that.", "As an AI, I cannot fulfill this.", "", "I agree.")


def answers(file, prompts=PROMPTS, **more):
    rows = [
        {"prompt": prompt, "sample": sample, "text": text, "question": f"Question {prompt}?", "finish": finish,
         "about": {"group": group, "topic": topic}, "model": "m", **more}
        for prompt, group, topic in prompts
        for sample, text in enumerate(TEXTS)
        for finish in ["length" if sample == 1 else "stop"]
    ]  # fmt: skip
    Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows


def verdicts(file):
    return [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]


def test_answers_become_verdicts_and_shares(command, capsys):
    rows = answers("a.jsonl")
    data = command("task=judge", "task.path=a.jsonl", "judge=decodingtrust_rules")
    jsonschema.validate(data, result_schema())
    found = verdicts("out/verdicts.jsonl")
    assert [(v["prompt"], v["sample"]) for v in found] == [(row["prompt"], row["sample"]) for row in rows]
    assert [v["value"] for v in found] == [1, -1, 0, 0, 1] * 3
    assert found[0]["about"] == {"group": "Women", "topic": "leaders"} and "text" not in found[0]
    figures = data["figures"]
    assert figures["share"] == pytest.approx(0.4) and figures["answers"] == figures["judged"] == 15
    assert (figures["empty"], figures["truncated"], figures["refusals"], figures["unparsed"]) == (3, 3, 3, 0)
    assert {row["label"]: row["answers"] for row in data["labels"]} == {
        "agree": 6, "disagree": 3, "no_response": 3, "unclear": 3,
    }  # fmt: skip
    shares = {(row["by"], row["unit"]): row for row in data["shares"]}
    assert list(shares) == [
        ("all", "all"), ("group", "Women"), ("group", "Jews"), ("topic", "leaders"), ("topic", "trust"),
    ]  # fmt: skip
    assert shares["group", "Women"]["prompts"] == 2 and shares["group", "Women"]["judged"] == 10
    assert shares["group", "Women"]["ci_low"] < 0.4 < shares["group", "Women"]["ci_high"]
    assert data["judge"]["licence"] == "CC BY-SA 4.0"
    assert Path("out/shares.csv").read_text().splitlines()[1].startswith("m,all,all,3,15,0.4,")
    said = capsys.readouterr().out
    assert "15 answers, 15 with a verdict of judge=decodingtrust_rules" in said
    assert "group Women: 0.400" in said
    assert not any(text in said for text in TEXTS if text) and "Question" not in said


def test_the_part_that_is_marked_is_judged(command):
    answers("a.jsonl", judged="I disagree.")
    command("task=judge", "task.path=a.jsonl", "judge=decodingtrust_rules", "task.out=v.jsonl")
    assert {v["value"] for v in verdicts("v.jsonl")} == {-1}


def test_parquet_is_read_and_models_are_told_apart(command):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows = [*answers("a.jsonl", PROMPTS[:1]), *answers("b.jsonl", PROMPTS[:1], model="n")]
    pandas.DataFrame(rows).to_parquet("both.parquet")
    data = command("task=judge", "task.path=both.parquet", "judge=decodingtrust_rules")
    assert [(row["model"], row["by"]) for row in data["shares"]] == [
        (model, by) for model in "mn" for by in ("all", "group", "topic")
    ]
    assert data["figures"]["share"] is None and data["figures"]["models"] == 2


def test_people_judge_a_table(command, capsys):
    rows = answers("a.jsonl")
    data = command("task=judge", "task.path=a.jsonl", "task.export=t.csv", "seed=3")
    assert data["figures"]["exported"] == len({(row["question"], row["text"]) for row in rows}) == 12
    with open("t.csv", encoding="utf-8-sig", newline="") as file:
        table = list(csv.DictReader(file))
    for name, wrong in (("ann", ()), ("ben", (0, 1))):
        with open(f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            for i, row in enumerate(table):
                verdict = int(row["text"].startswith("I agree"))
                writer.writerow({**row, "verdict": 1 - verdict if i in wrong else verdict, "annotator": name})
    data = command("task=judge", "task.path=a.jsonl", "judge=csv", "judge.path='[ab]*.csv'")
    agreement = data["agreement"]
    assert len(agreement) == 1 and agreement[0]["n"] == 12
    assert data["figures"]["kappa"] == agreement[0]["kappa"] < 1
    assert {row["label"] for row in data["labels"]} == {"yes", "no", "tie"}
    assert data["figures"]["judged"] < 15
    assert [row["judged"] for row in data["annotators"]] == [12, 12]


def test_wrong_use_is_found_at_once(command, capsys):
    command("task=judge", "judge=decodingtrust_rules", status=2)
    assert "task.path" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "judge", "said"),
    [
        ({"path": "a.jsonl"}, None, "task=judge needs a judge: judge=NAME, one of decodingtrust_rules"),
        ({"path": "none.jsonl"}, "decodingtrust_rules", "task.path=none.jsonl: no such file"),
        ({"path": "a.jsonl", "out": "a.jsonl"}, "decodingtrust_rules", "task.out=a.jsonl is there already"),
        ({"path": "a.jsonl", "export": "a.jsonl"}, None, "task.export=a.jsonl is there already"),
        ({"path": "a.jsonl", "export": "t.csv"}, "decodingtrust_rules", "leave judge and task.out out"),
        ({"path": "a.jsonl", "export": "t.csv", "out": "v.jsonl"}, None, "leave judge and task.out out"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_loaded(tmp_path, monkeypatch, options, judge, said):
    monkeypatch.chdir(tmp_path)
    answers("a.jsonl")
    task = {"name": "judge", "out": None, "export": None, "overwrite": False, **options}
    run = Run({"task": task, "judge": {"name": judge} if judge else None}, tmp_path, None, "")
    with pytest.raises(UsageError, match=said):
        check(run)
    if "already" in said:
        check(replace(run, settings={**run.settings, "task": {**task, "overwrite": True}}))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1]", "row 2: a list is no row"),
        ("{", "row 2 is not valid JSON"),
        ('{"prompt": "p", "sample": 0, "text": "secret words"}', "row 2 lacks question"),
        ('{"prompt": "p", "sample": "x", "text": "secret words", "question": "q"}', "row 2: sample is no integer"),
        ('{"prompt": "1", "sample": 0, "text": "secret words", "question": "q"}', "'1', sample 0 stands in row 1"),
    ],
)
def test_rows_that_are_none_are_named_and_not_shown(tmp_path, line, said):
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "1", "sample": 0, "text": "secret words", "question": "q"}\n' + line + "\n")
    with pytest.raises(RefbiasError) as caught:
        read_answers(file)
    assert said in str(caught.value) and "secret" not in str(caught.value)


def test_a_file_without_rows_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(RefbiasError, match="has no rows"):
        read_answers(tmp_path / "a.jsonl")


JUDGE = """
import os
import time

from refbias import register


@register.judge
def slow(pairs, context) -> list:
    \"\"\"1 for an even length; counts what it is shown.\"\"\"
    with open(os.environ["SEEN"], "a") as file:
        file.writelines(f"{len(pair.text)}\\n" for pair in pairs)
    time.sleep(float(os.environ["PAUSE"]))
    return [int(len(pair.text) % 2 == 0) for pair in pairs]
"""


def test_a_run_that_is_killed_goes_on_where_it_stopped(tmp_path):
    (tmp_path / "slow.py").write_text(JUDGE)
    rows = [{"prompt": f"p{i}", "sample": 0, "question": "q", "text": "x" * i} for i in range(500)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen = tmp_path / "seen.txt"

    def start(pause):
        words = ["task=judge", "task.path=a.jsonl", "judge=slow", "task.out=v.jsonl"]
        return subprocess.Popen(
            [sys.executable, "-m", "refbias", *words, "tracking=none", "hydra.run.dir=out", "cache.dir=cache"],
            cwd=tmp_path, env={**os.environ, "REFBIAS_PLUGINS": "slow.py", "SEEN": str(seen), "PAUSE": str(pause)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    first = start(1)
    until = time.monotonic() + 120
    while (not seen.exists() or len(seen.read_text().splitlines()) < 256) and time.monotonic() < until:
        assert first.poll() is None, first.communicate()[0]
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert not (tmp_path / "v.jsonl").exists()
    second = start(0)
    said, _ = second.communicate(timeout=120)
    assert second.returncode == 0, said
    found = verdicts(tmp_path / "v.jsonl")
    assert [(v["prompt"], v["value"]) for v in found] == [(f"p{i}", int(i % 2 == 0)) for i in range(500)]
    shown = [int(line) for line in seen.read_text().splitlines()]
    assert sorted(set(shown)) == list(range(500))
    assert 500 < len(shown) <= 500 + 128  # the chunk that was under way, and no more
