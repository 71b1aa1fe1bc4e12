"""The device of arrays: the CPU or a GPU."""

from __future__ import annotations

import functools
import logging
import os
from types import ModuleType
from typing import Literal

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._typing import Array

Device = Literal["auto", "cpu", "cuda"]
DEVICES: tuple[str, ...] = ("auto", "cpu", "cuda")

_log = logging.getLogger("fpdfp.ct")


@functools.cache
def missing_gpu() -> str | None:
    """Return why no GPU can be used; None if one can."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CUDA does not answer ({error})"
    return None if count else "there is no CUDA device"


def module_for(device: str) -> ModuleType:
    """Return ``numpy`` or ``cupy`` for a user's choice; ``"auto"`` without a GPU logs a warning.

    >>> module_for("cpu").__name__
    'numpy'
    """
    _checks.choice("device", device, DEVICES)
    if device == "cpu":
        return np
    reason = missing_gpu()
    if reason is None:
        import cupy

        module: ModuleType = cupy
        return module
    if device == "cuda":
        raise RuntimeError(f"device='cuda' needs a GPU, but {reason}; 'auto' and 'cpu' run on the CPU")
    _log.warning("no GPU can be used, since %s: running on the CPU", reason)
    return np


def device_name(module: ModuleType) -> str:
    """Return the name of the device: the GPU's name, or the number of CPU cores.

    >>> device_name(np).startswith("CPU, ")
    True
    """
    if module is np:
        return f"CPU, {os.cpu_count()} cores"
    name: bytes = module.cuda.runtime.getDeviceProperties(0)["name"]
    return name.decode()


def move_to(array: Array, module: ModuleType) -> Array:
    """Return an array in the memory that a module works on; itself if it is there."""
    if module is np:
        return to_host(array)
    there: Array = module.asarray(array)
    return there
