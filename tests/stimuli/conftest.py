from __future__ import annotations

from pathlib import Path

import pytest

from refbias.stimuli import hub


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache folder, nothing remembered, and a hub that may not be tried."""
    monkeypatch.setenv("REFBIAS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("REFBIAS_SWEEP", raising=False)
    monkeypatch.setattr(hub, "_failure", None)
    return tmp_path / "cache"
