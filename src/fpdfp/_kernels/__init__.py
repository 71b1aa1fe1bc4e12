"""Numba kernels: imported where they are used, so that ``import fpdfp`` does not load a compiler.

Rules they all keep:

* one client's result is computed from that client's data alone, by the same machine code whoever else is in
  the batch and however many threads there are, so its bits depend on neither;
* floating point is strict, but for dense inner products, whose order of summation the compiler may choose;
* outputs are allocated by the caller.
"""
