"""Numba kernels: their modules are loaded when they are used, so that ``import fpdfp`` does not load a compiler.

Rules they all keep:

* one client's result is computed from that client's data alone, by the same machine code anyone who else is in
  the batch and however many threads there are, so its bits depend on neither;
* floating point is strict, but for dense inner products, whose order of summation the compiler may choose;
* outputs are allocated by the caller.
"""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach

if TYPE_CHECKING:
    from fpdfp._kernels import fdk as fdk
    from fpdfp._kernels import jit as jit
    from fpdfp._kernels import philox as philox
    from fpdfp._kernels import quantize as quantize
    from fpdfp._kernels import rays as rays
    from fpdfp._kernels import streams as streams
    from fpdfp._kernels import xray as xray

__getattr__ = attach(__name__, {"": "fdk jit philox quantize rays streams xray"})
