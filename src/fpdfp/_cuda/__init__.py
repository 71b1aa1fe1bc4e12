"""The GPU's side of the kernels: the same functions as in :mod:`fpdfp._kernels`, over CuPy arrays."""

from fpdfp._cuda.codes import count_bits, pack_fixed, unpack_fixed
from fpdfp._cuda.quantize import dequantize, fill_words, half, quantize

__all__ = ["count_bits", "dequantize", "fill_words", "half", "pack_fixed", "quantize", "unpack_fixed"]
