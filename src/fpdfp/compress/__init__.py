"""Compressors: what is sent instead of an array, and exactly how many bits that takes."""

from fpdfp.compress.base import Compressed, Compressor, Full
from fpdfp.compress.qsgd import QSGD, Quantized

__all__ = ["QSGD", "Compressed", "Compressor", "Full", "Quantized"]
