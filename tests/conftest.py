from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How fast an example is drawn or tried says how busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real mail samples beside the checkout; absent on most machines."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"real mail samples are not at {SHARED_DATA}")
    return SHARED_DATA
