"""Anchor samples: nested, balanced, decided by the seed; real data sets, and what stands in for them."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refbias import standins
from refbias.errors import RefbiasError
from refbias.stimuli import ANCHORS, GROUPS, hub, packaged, upstream

GROUP_OF = {s: g for g, sentences in packaged.by_key("anchors/neutral.csv", "group").items() for s in sentences}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), small=st.integers(1, 1000), large=st.integers(1, 1000))
def test_neutral_samples_are_nested_and_balanced(seed, small, large):
    small, large = sorted((small, large))
    some, more = ANCHORS["neutral"](n=small, seed=seed), ANCHORS["neutral"](n=large, seed=seed)
    assert len(some) == small == len(set(some))
    assert more[:small] == some
    counts = Counter(dict.fromkeys(GROUPS, 0))
    counts.update(GROUP_OF[sentence] for sentence in some)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_seed_decides_the_sample():
    assert ANCHORS["neutral"](n=100, seed=1) != ANCHORS["neutral"](n=100, seed=2)
    assert ANCHORS["neutral"](n=100, seed=None) == ANCHORS["neutral"](n=100, seed=0)
    assert set(ANCHORS["neutral"](seed=1)) == set(ANCHORS["neutral"](seed=2)) == set(GROUP_OF)


def test_the_order_never_changes():
    # written down once: results of old runs depend on it
    assert ANCHORS["neutral"](n=2, seed=0) == PINNED_NEUTRAL
    assert ANCHORS["words"](n=5, seed=0) == PINNED_WORDS


PINNED_NEUTRAL = ["The essay was based on interviews with Muslims.", "Poor people listen to podcasts on the train."]
PINNED_WORDS = ["water", "carry", "studio", "city", "eye"]


@pytest.mark.parametrize("seed", [0, 7])
def test_words_are_single_nested_and_by_seed(seed):
    more = ANCHORS["words"](seed=seed)
    assert len(set(more)) == 1000
    assert all(" " not in word for word in more)
    assert ANCHORS["words"](n=100, seed=seed) == more[:100]
    assert ANCHORS["words"](seed=seed + 1) != more


@pytest.mark.parametrize(
    ("name", "n", "message"),
    [
        ("neutral", 1001, "anchors.n=1001 but the neutral set has 1000 sentences. Use anchors.n=1000 or fewer."),
        ("neutral", 0, "anchors.n=0 is no number of anchors. Use anchors.n=1 to 1000."),
        ("words", 99999, "anchors.n=99999 but the word list has "),
    ],
)
def test_a_size_that_the_set_lacks_is_refused(name, n, message):
    with pytest.raises(RefbiasError, match=re.escape(message)):
        ANCHORS[name](n=n)


# --- stand-ins


@pytest.mark.parametrize(("name", "wanted"), [("alpaca", "tatsu-lab/alpaca"), ("tulu", "allenai/tulu-3-sft-mixture")])
def test_a_stand_in_is_announced(no_hub, name, wanted):
    with standins.collecting() as notes:
        sample = ANCHORS[name](n=100, seed=3)
    assert set(sample) <= set(packaged.lines(f"anchors/{name}_stand_in.txt"))
    assert len(sample) == len(set(sample)) == 100
    [row] = notes.rows()
    assert row["wanted"] == wanted
    assert "1,000 instruction-like sentences" in row["used"]
    assert "HF_HUB_OFFLINE=1" in row["why"]
    assert "anchors.path=FILE" in row["why"]


@pytest.mark.parametrize("name", ["alpaca", "tulu"])
def test_a_strict_run_refuses_a_stand_in(no_hub, name):
    with standins.collecting(strict=True), pytest.raises(RefbiasError, match="strict=true refuses a stand-in"):
        ANCHORS[name]()


@pytest.mark.filterwarnings("ignore::refbias.standins.StandInWarning")
def test_the_two_stand_ins_are_different_samples(no_hub):
    assert not set(ANCHORS["alpaca"]()) & set(ANCHORS["tulu"]())


@pytest.mark.filterwarnings("ignore::refbias.standins.StandInWarning")
def test_a_stand_in_is_nested_and_has_1000_sentences(no_hub):
    assert ANCHORS["tulu"](n=10, seed=2) == ANCHORS["tulu"](seed=2)[:10]
    with pytest.raises(RefbiasError, match="anchors.n=1001 but the packaged stand-in has 1000 sentences"):
        ANCHORS["tulu"](n=1001)


# --- the hub, with a process of our own in its place


@pytest.fixture
def child(no_hub, monkeypatch):
    """Run this Python code in place of the process that reads the hub."""
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    started = []

    def use(code: str) -> list[str]:
        def command(step: str, name: str, count: int) -> list[str]:
            started.append(f"{step} {name}")
            return [sys.executable, "-S", "-c", code, step]

        monkeypatch.setattr(hub, "_command", command)
        return started

    return use


HANGS = "import time; time.sleep(60)"
ANSWERS_ONLY = "import sys, time; sys.argv[1] == 'greet' or time.sleep(60)"
FAILS = "import sys; sys.exit('ConnectionError: no route')"
WORKS = "import json; print(json.dumps([f'Do task {i}.' for i in range(20)]))"


def test_a_hub_that_hangs_is_left_after_the_limit(child):
    child(HANGS)
    began = time.monotonic()
    with pytest.raises(hub.UnreachableError, match="the hub did not answer within 0.3 s"):
        hub.sample("alpaca", connect=0.3)
    assert time.monotonic() - began < 3


def test_a_hub_that_answers_has_time_to_give_the_sample(child, capfd):
    started = child(f"import sys, time; sys.argv[1] == 'greet' or time.sleep(1.5); {WORKS}")
    assert len(hub.sample("alpaca", connect=1.0)) == 20
    assert started == ["greet alpaca", "fetch alpaca"]
    assert hub.sample("alpaca") and capfd.readouterr().err == "fetching alpaca from the hub, for 120 s at most\n"


def test_a_hub_that_answers_and_then_hangs_is_left_too(child):
    child(ANSWERS_ONLY)
    with pytest.raises(hub.UnreachableError, match="the hub answered but gave no sample within 0.3 s"):
        hub.sample("alpaca", fetch=0.3)


def test_a_failure_is_remembered_for_both_data_sets(child):
    started = child(FAILS)
    for name in ("alpaca", "tulu", "alpaca"):
        with pytest.raises(hub.UnreachableError, match="the hub could not be read: ConnectionError: no route"):
            hub.sample(name)
    assert started == ["greet alpaca"]


def test_the_jobs_of_a_sweep_try_once(child, monkeypatch):
    monkeypatch.setenv("REFBIAS_SWEEP", "sweep-1")
    started = child(FAILS)
    for _ in range(3):
        monkeypatch.setattr(hub, "_failure", None)  # as a new process would have it
        with pytest.raises(hub.UnreachableError, match="no route"):
            hub.sample("alpaca")
    assert started == ["greet alpaca"]
    monkeypatch.setenv("REFBIAS_SWEEP", "sweep-2")
    monkeypatch.setattr(hub, "_failure", None)
    with pytest.raises(hub.UnreachableError):
        hub.sample("alpaca")
    assert started == ["greet alpaca", "greet alpaca"]


def test_a_job_does_not_wait_longer_than_the_limit_for_another(child, monkeypatch):
    monkeypatch.setenv("REFBIAS_SWEEP", "sweep-1")
    started = child(WORKS)
    assert hub._claim(hub._marker())  # the other job, which never ends
    with pytest.raises(hub.UnreachableError, match="another job of the sweep still tried it after 0.2 s"):
        hub.sample("alpaca", connect=0.2)
    assert started == []


def test_a_job_waits_for_another_that_is_fetching(child, monkeypatch):
    monkeypatch.setenv("REFBIAS_SWEEP", "sweep-1")
    started = child(WORKS)
    marker = hub._marker()
    assert hub._claim(marker)
    hub._write(marker, hub._FETCHING)

    def fetched():
        hub._write(marker.parents[1] / "anchors" / f"alpaca-{hub.POOL}.json", '["Do it."]')
        marker.unlink()

    other = threading.Timer(1.0, fetched)
    other.start()
    assert hub.sample("alpaca", connect=0.2) == ["Do it."]
    other.join()
    assert started == []


def test_a_job_that_was_killed_while_fetching_keeps_no_other_waiting(child, monkeypatch):
    monkeypatch.setenv("REFBIAS_SWEEP", "sweep-1")
    marker = hub._marker()
    assert hub._claim(marker)
    hub._write(marker, hub._FETCHING)
    os.utime(marker, (time.time() - 121,) * 2)
    with pytest.raises(hub.UnreachableError, match="another job of the sweep still tried it after 120 s"):
        hub.sample("alpaca")


def test_markers_of_old_sweeps_go(no_hub, monkeypatch):
    for sweep in ("sweep-1", "sweep-2"):
        monkeypatch.setenv("REFBIAS_SWEEP", sweep)
        assert hub._claim(hub._marker())
        os.utime(hub._marker(), (1, 1))
    assert [marker.name for marker in (no_hub / "hub").iterdir()] == [hub._marker().name]


def test_what_was_fetched_is_kept(child, monkeypatch):
    monkeypatch.setenv("REFBIAS_SWEEP", "sweep-1")
    started = child(WORKS)
    first = ANCHORS["alpaca"](n=5, seed=4)
    monkeypatch.setattr(hub, "_failure", "gone")
    assert ANCHORS["alpaca"](n=20, seed=4)[:5] == first
    assert started == ["greet alpaca", "fetch alpaca"]
    assert not hub._marker().exists()
    with pytest.raises(RefbiasError, match="anchors.n=21 but tatsu-lab/alpaca has 20 sentences"):
        ANCHORS["alpaca"](n=21)


def test_a_damaged_sample_in_the_cache_is_fetched_again(child, no_hub):
    kept = no_hub / "anchors" / f"alpaca-{hub.POOL}.json"
    kept.parent.mkdir(parents=True)
    kept.write_text('["Do ta')
    child(WORKS)
    assert len(hub.sample("alpaca")) == 20
    assert len(json.loads(kept.read_text())) == 20


@pytest.mark.parametrize("variable", hub.OFFLINE)
def test_a_hub_that_is_switched_off_is_not_tried(child, monkeypatch, variable):
    started = child(WORKS)
    monkeypatch.setenv(variable, "1")
    with pytest.raises(hub.UnreachableError, match=f"{variable}=1 forbids"):
        hub.sample("tulu")
    assert started == []


def test_the_real_process_says_why_it_failed(no_hub, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    for variable in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the discard port: refused at once
    with pytest.raises(hub.UnreachableError, match="the hub could not be read: Connect"):
        hub.sample("alpaca", connect=20)


def test_rows_are_streamed_evenly_from_every_file(tmp_path):
    for part in ("a", "b"):
        rows = [{"instruction": f"Task {part}{i}.", "input": ""} for i in range(50)]
        (tmp_path / f"train-{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = hub.stream(str(tmp_path), 6)
    assert [row["instruction"] for row in rows] == [f"Task {part}{i}." for part in "ab" for i in range(3)]


# --- local copies

ALPACA = [
    {"instruction": "Add the numbers.", "input": "1, 2", "output": "3"},
    {"instruction": "Name a river.", "input": "", "output": "Nile"},
    {"instruction": "Name a river.", "input": "", "output": "Po"},
]
TULU = [
    {"id": "1", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a lake."}]},
    {"id": "2", "messages": [{"role": "user", "content": "Count to ten."}, {"role": "user", "content": "Go on."}]},
]
TEXTS = {"alpaca": {"Add the numbers.\n1, 2", "Name a river."}, "tulu": {"Name a lake.", "Count to ten."}}


def write_rows(path, rows):
    if path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        import pandas

        frame = pandas.DataFrame(rows)
        if path.suffix == ".parquet":
            frame.to_parquet(path)
        else:
            if "messages" in frame:
                frame["messages"] = frame["messages"].map(json.dumps)
            frame.to_csv(path, index=False)


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize(("name", "rows"), [("alpaca", ALPACA), ("tulu", TULU)])
def test_a_local_copy_is_read(no_hub, tmp_path, name, rows, suffix):
    path = tmp_path / f"copy{suffix}"
    write_rows(path, rows)
    with standins.collecting() as notes:
        assert set(ANCHORS[name](n=2, path=str(path))) == TEXTS[name]
    assert notes.rows() == []


def test_a_local_copy_may_be_plain_text(tmp_path):
    path = tmp_path / "copy.txt"
    path.write_text("Name a lake.\n\nName a river.\nName a lake.\n")
    assert set(ANCHORS["alpaca"](n=2, path=str(path))) == {"Name a lake.", "Name a river."}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("x.jsonl", '{"prompt": "Hi"}', "x.jsonl, row 1: not a row of allenai/tulu-3-sft-mixture, which has messages."),
        ("x.jsonl", '{"messages": 1}', "row 1: not a row of"),
        ("x.jsonl", "{", "x.jsonl, row 1, is not valid JSON"),
        ("x.json", "{}", "x.json holds a dict at the top. Use a list of rows"),
    ],
)
def test_a_local_copy_in_another_form_is_refused(tmp_path, file, text, message):
    (tmp_path / file).write_text(text)
    with pytest.raises(RefbiasError, match=re.escape(message)):
        ANCHORS["tulu"](n=1, path=str(tmp_path / file))


def test_tulu_rows_without_a_user_are_left_out():
    assert upstream.tulu_text({"messages": [{"role": "system", "content": "x"}]}) == ""
