"""Functions of the linear predictor of a row that kernels are given: (z, y, p, q) to a number.

They are compiled to machine code by themselves, and kernels call them by their address, which is a number. So a kernel
is compiled once for all of them, and a new family of losses compiles only its own functions.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float64, int64
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from fpdfp._kernels.jit import KeptCode, serial
from fpdfp._typing import Array

#: p and q are parameters, two numbers that are the same for all rows.
SIGNATURE = float64(float64, float64, float64, float64)


class Scalar:
    """A function (z, y, p, q) that is compiled when it is first used; its machine code is kept on disk."""

    def __init__(self, function: Any) -> None:
        self.function = function

    @functools.cached_property
    def _compiled(self) -> Any:
        compiled: Any = CFunc(self.function, (SIGNATURE.args, SIGNATURE.return_type), {}, {"error_model": "numpy"})
        compiled._cache = KeptCode(self.function)
        compiled.compile()
        return compiled

    @property
    def address(self) -> int:
        """The address of the compiled function, valid as long as this object."""
        return int(self._compiled.address)

    def __call__(self, z: Array, y: Array, parameters: tuple[float, float] = (0.0, 0.0)) -> Array:
        """Return the function at each row."""
        out = np.empty(len(z))
        z, y = (np.ascontiguousarray(rows, dtype=np.float64) for rows in (z, y))
        evaluate_rows(self.address, z, y, *parameters, out)
        return out

    def bind(self, name: str, others: Mapping[str, Any]) -> Scalar:
        """Return the same function with other compiled functions in place of the names that it refers to."""
        made = types.FunctionType(self.function.__code__, self.function.__globals__ | dict(others))
        made.__name__ = made.__qualname__ = name  # machine code is kept by this name
        made.__module__ = self.function.__module__
        return Scalar(made)


@intrinsic  # type: ignore[untyped-decorator]
def call(typing: Any, address: Any, z: Any, y: Any, p: Any, q: Any) -> Any:
    """Call the function at an address."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        double = ir.DoubleType()
        pointer = builder.inttoptr(given[0], ir.FunctionType(double, [double] * 4).as_pointer())
        return builder.call(pointer, given[1:])

    return float64(int64, float64, float64, float64, float64), generate


@serial
def evaluate_rows(address: Any, z: Any, y: Any, p: Any, q: Any, out: Any) -> None:
    for j in range(z.size):
        out[j] = call(address, z[j], y[j], p, q)
