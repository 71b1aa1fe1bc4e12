"""The GPU's side of the kernels: the same functions as in :mod:`fpdfp._kernels`, over CuPy arrays."""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach

if TYPE_CHECKING:
    from fpdfp._cuda import fdk as fdk
    from fpdfp._cuda import rays as rays
    from fpdfp._cuda import xray as xray

__getattr__ = attach(
    __name__,
    {
        "": "fdk rays xray",
        "codes": "count_bits live_levels pack_fixed unpack_fixed",
        "rounding": "dequantize fill_words half multiply quantize",
    },
)
