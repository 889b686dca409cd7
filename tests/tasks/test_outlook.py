from __future__ import annotations

from pathlib import Path

import pytest

from refbias.cache import Cache
from refbias.tasks.outlook import gemm_rate, is_cold, outlook, planned

PLANTED = ("planted", {"kind": "contrast", "steps": 240, "batch": 16, "ratios": [0.0, 0.5, 1.0]})


def test_a_first_run_says_what_takes_how_long() -> None:
    lines = outlook(planned(30, 576, 2400, PLANTED, 7, scored=True), 250.0)
    assert lines[0].startswith("Nothing of this is in the cache yet. It takes about ")
    assert [line.split(":")[0].strip() for line in lines[1:4]] == [
        "two small fine-tunes, kept for later runs",
        "2,400 sentences with 8 models",
        "likelihood of 576 statements with each",
    ]


def test_twice_the_rate_takes_half_the_time() -> None:
    work = planned(30, 576, 2400, PLANTED, 7, scored=True)
    slow, fast = (sum(step.seconds(rate) for step in work) for rate in (100.0, 200.0))
    assert slow == pytest.approx(2 * fast)
    assert 180 < sum(step.seconds(250.0) for step in work) < 720


def test_what_is_quick_is_not_announced() -> None:
    assert outlook(planned(2, 64, 2400, None, 1, scored=False), 250.0) == []


def test_a_cache_with_built_checkpoints_is_not_cold(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert is_cold(cache, PLANTED)
    cache.build_folder("planted-contrast-0123-a", lambda folder: None)
    assert not is_cold(cache, PLANTED)
    assert is_cold(cache, ("planted", {"kind": "harmless"}))


def test_the_rate_is_measured() -> None:
    assert 0.01 < gemm_rate(size=256) < 1e7  # GFLOP/s: a wrong unit would be off by 10⁶ at least
