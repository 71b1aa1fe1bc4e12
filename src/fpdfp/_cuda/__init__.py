"""The GPU's side of the kernels: the same functions as in :mod:`fpdfp._kernels`, over CuPy arrays."""

from fpdfp._cuda.codes import count_bits, live_levels, pack_fixed, unpack_fixed
from fpdfp._cuda.rounding import dequantize, fill_words, half, multiply, quantize

__all__ = [
    "count_bits",
    "dequantize",
    "fill_words",
    "half",
    "live_levels",
    "multiply",
    "pack_fixed",
    "quantize",
    "unpack_fixed",
]
