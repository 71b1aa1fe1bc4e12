"""Numba kernels: their modules are loaded when they are used, so that ``import fpdfp`` does not load a compiler.

Rules they all keep:

* one client's result is computed from that client's data alone, by the same machine code whoever else is in
  the batch and however many threads there are, so its bits depend on neither;
* floating point is strict, but for dense inner products, whose order of summation the compiler may choose;
* outputs are allocated by the caller.
"""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach

if TYPE_CHECKING:
    from fpdfp._kernels import adaptive as adaptive
    from fpdfp._kernels import elias as elias
    from fpdfp._kernels import fdk as fdk
    from fpdfp._kernels import fixed as fixed
    from fpdfp._kernels import half as half
    from fpdfp._kernels import measure as measure
    from fpdfp._kernels import philox as philox
    from fpdfp._kernels import quantize as quantize
    from fpdfp._kernels import rans as rans
    from fpdfp._kernels import rays as rays
    from fpdfp._kernels import select as select
    from fpdfp._kernels import streams as streams
    from fpdfp._kernels import threads as threads
    from fpdfp._kernels import tokens as tokens
    from fpdfp._kernels import xray as xray

__getattr__ = attach(
    __name__,
    {"": "adaptive elias fdk fixed half measure philox quantize rans rays select streams threads tokens xray"},
)
