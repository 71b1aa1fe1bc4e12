"""Functions of the linear predictor of a row that kernels are given: (z, y, p, q) to a number.

They are compiled to machine code by themselves, and kernels call them by their address. So a kernel is compiled once
for all of them, and a new family of losses compiles only its own functions.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import cfunc, float64

from fpdfp._kernels.jit import serial
from fpdfp._typing import Array

#: p and q are parameters, two numbers that are the same for all rows.
SIGNATURE = float64(float64, float64, float64, float64)


class Scalar:
    """A function (z, y, p, q) that is compiled when it is first used; its machine code is kept on disk."""

    def __init__(self, function: Any) -> None:
        self.function = function

    @functools.cached_property
    def compiled(self) -> Any:
        """The compiled function."""
        return cfunc(SIGNATURE, cache=True, error_model="numpy")(self.function)

    def __call__(self, z: Array, y: Array, parameters: tuple[float, float] = (0.0, 0.0)) -> Array:
        """Return the function at each row."""
        out = np.empty(len(z))
        z, y = (np.ascontiguousarray(rows, dtype=np.float64) for rows in (z, y))
        evaluate_rows(self.compiled, z, y, *parameters, out)
        return out

    def bind(self, name: str, others: Mapping[str, Any]) -> Scalar:
        """Return the same function with other compiled functions in place of the names that it refers to."""
        made = types.FunctionType(self.function.__code__, self.function.__globals__ | dict(others))
        made.__name__ = made.__qualname__ = name  # machine code is kept by this name
        made.__module__ = self.function.__module__
        return Scalar(made)


@serial
def evaluate_rows(function: Any, z: Any, y: Any, p: Any, q: Any, out: Any) -> None:
    for j in range(z.size):
        out[j] = function(z[j], y[j], p, q)
