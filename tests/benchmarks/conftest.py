from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def published() -> Path:
    """Published files that are not part of the project, in a folder beside it; skips where there are none."""
    for parent in Path(__file__).resolve().parents:
        found = parent / "shared" / "data"
        if found.is_dir():
            return found
    pytest.skip("the published benchmark files are not here")
