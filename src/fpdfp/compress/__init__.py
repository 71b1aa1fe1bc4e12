"""Compressors: messages that stand for arrays, and their exact length in bits."""

from fpdfp.compress.base import Compressed, Compressor, Quantized
from fpdfp.compress.plain import Full, Half, RandK, TopK
from fpdfp.compress.quantizers import NUQSGD, QSGD, Natural, Sign
from fpdfp.compress.wire import decode

__all__ = [
    "NUQSGD",
    "QSGD",
    "Compressed",
    "Compressor",
    "Full",
    "Half",
    "Natural",
    "Quantized",
    "RandK",
    "Sign",
    "TopK",
    "decode",
]
