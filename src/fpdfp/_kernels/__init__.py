"""Numba kernels: imported where they are used, so that ``import fpdfp`` does not load a compiler.

Rules they all keep:

* strict floating point (no ``fastmath``), so that the bits do not depend on how a loop was compiled,
  on the number of threads, or on which clients share a batch;
* one client's result is computed from that client's data alone;
* outputs are allocated by the caller.
"""
