"""Shapes and types are checked in every call while the tests run; prepared examples are kept for one run only."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

install_import_hook("waycode", "beartype.beartype")

# How long an example takes says more about the machine than about the code.
settings.register_profile("waycode", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("waycode")

_CACHE = tempfile.TemporaryDirectory(prefix="waycode-examples-")  # of each worker of pytest; removed at its end
os.environ["WAYCODE_CACHE"] = _CACHE.name

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real scenes that the developers share; tests that use them are marked `real_data`."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real scenes are not here: they may not be redistributed, so they are not in the repository")
    return SHARED_DATA
