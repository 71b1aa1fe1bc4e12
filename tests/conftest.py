"""Settings and fixtures for all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # before NumPy and Numba are loaded: workers share the cores
    for variable in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

# Tests that were started in the background may have been told to ignore Ctrl-C, and tell the processes they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import numpy as np
import pytest
from hypothesis import settings

# The same examples every time: a failure in CI can be seen again anywhere.
settings.register_profile("fpdfp", deadline=None, derandomize=True, max_examples=40, database=None)
settings.load_profile("fpdfp")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(12345)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets; tests that need it skip where it is absent."""
    directory = SHARED / "data"
    if not directory.is_dir():
        pytest.skip(f"needs the data sets of {directory}, which are not part of the package")
    return directory
