"""Checks that need a GPU, run one after the other: in a test, or without pytest by ``python -m``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Checks = Mapping[str, Callable[[], None]]


def run(checks: Checks) -> None:
    """Print the name and the seconds of each check as soon as it has ended, and how many passed."""
    failed = []
    for name, check in checks.items():
        began = time.perf_counter()
        try:
            check()
        except Exception as error:
            failed.append(name)
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
        else:
            print(f"{time.perf_counter() - began:8.2f} s  {name}", flush=True)
    print(f"{len(checks) - len(failed)} passed, {len(failed)} failed", flush=True)
    if failed:
        raise SystemExit(1)


def run_in_test(checks: Checks) -> None:
    """Do the same in a test, which is skipped where there is no GPU."""
    import pytest

    cupy = pytest.importorskip("cupy", reason="needs CuPy and a GPU")
    if cupy.cuda.runtime.getDeviceCount() == 0:
        pytest.skip("needs a GPU")
    for check in checks.values():
        check()
