"""Settings and fixtures for all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

if "PYTEST_XDIST_WORKER" in os.environ:  # before NumPy and Numba are loaded: workers share the cores
    for variable in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

# Tests that were started in the background may have been told to ignore Ctrl-C, and tell the processes they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import numpy as np
import pytest
from hypothesis import settings

from tests import warm

# The same examples every time: a failure in CI can be seen again anywhere.
settings.register_profile("fpdfp", deadline=None, derandomize=True, max_examples=40, database=None)
settings.load_profile("fpdfp")

#: Files whose tests share what is dear to make (a federation, a cluster, a browser, a site, experiments), and tests
#: that belong to one of them: with several test processes they stay in one.
TOGETHER = {
    "test_ct_experiment.py", "test_declarative.py", "test_ray.py",
    "test_reconstruct.py", "test_report.py", "test_report_browser.py", "test_reproduce.py", "test_site.py",
}  # fmt: skip
BESIDE = {"test_the_code_of_a_page_with_a_cluster_runs": "tests/test_ray.py"}


def pytest_configure(config: pytest.Config) -> None:
    """Compile kernels before several test processes would do it, each for itself."""
    if config.getoption("numprocesses", None) and "PYTEST_XDIST_WORKER" not in os.environ and warm.is_cold():
        print("compiling kernels, once …", flush=True)
        warm.compile_all()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal tests out one by one, but for those that belong together."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            return BESIDE.get(test.partition("[")[0], file if Path(file).name in TOGETHER else nodeid)

    return Together(config, log)


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
