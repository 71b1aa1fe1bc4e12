"""Numbers with their units, as people read them."""

from __future__ import annotations


def format_bits(bits: float) -> str:
    """Write a number of bits with a unit.

    >>> format_bits(12_345_678)
    '12.3 Mbit'
    """
    for unit in ("bit", "kbit", "Mbit", "Gbit", "Tbit"):
        if bits < 1000 or unit == "Tbit":
            return f"{bits:.0f} {unit}" if unit == "bit" else f"{bits:.3g} {unit}"
        bits /= 1000
    raise AssertionError("unreachable")
