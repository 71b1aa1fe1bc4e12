"""BLAS with one thread: it then rounds the same way on any number of cores."""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401 - brings a BLAS of its own, which the controller must find
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread() -> Any:
    """Return a context in which BLAS uses one thread."""
    return _controller().limit(limits=1, user_api="blas")
