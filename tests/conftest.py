from __future__ import annotations

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real mail samples beside the checkout; absent on most machines."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"real mail samples are not at {SHARED_DATA}")
    return SHARED_DATA
