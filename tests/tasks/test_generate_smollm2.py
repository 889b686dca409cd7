"""Real answers of SmolLM2 to a cut of DecodingTrust, killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refbias.cache import Cache


@pytest.mark.slow
def test_killed_and_resumed_it_is_the_same_byte_for_byte(smollm2: object, shared_cache: Cache, tmp_path: Path) -> None:
    data = next(
        (p / "shared" / "data" for p in Path(__file__).resolve().parents if (p / "shared" / "data").is_dir()), None
    )
    if data is None:
        pytest.skip("the published prompts are not here")
    words = [sys.executable, "-m", "refbias", "task=generate", "benchmark=decodingtrust",
             f"benchmark.path={data / 'decodingtrust'}", "benchmark.limit=24", "benchmark.samples=1",
             "benchmark.max_new_tokens=24", "tracking=none", f"cache.dir={shared_cache.directory}"]  # fmt: skip

    def begin(name: str, batch: int) -> subprocess.Popen[bytes]:
        own = [f"task.out={tmp_path / name}.jsonl", f"generator.batch={batch}", f"hydra.run.dir={tmp_path / 'run'}"]
        return subprocess.Popen([*words, *own], stdout=subprocess.DEVNULL, start_new_session=True)

    assert begin("whole", 32).wait() == 0
    whole = (tmp_path / "whole.jsonl").read_bytes()
    assert len(whole.splitlines()) == 24
    assert len({json.loads(line)["about"]["group"] for line in whole.splitlines()}) == 24

    killed, cut = begin("cut", 4), tmp_path / "cut.jsonl"
    until = time.monotonic() + 120
    while not cut.is_file() or cut.read_bytes().count(b"\n") < 5:
        assert killed.poll() is None and time.monotonic() < until, "it ended, or wrote nothing"
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert 5 <= cut.read_bytes().count(b"\n") < 24
    assert begin("cut", 32).wait() == 0
    assert cut.read_bytes() == whole
