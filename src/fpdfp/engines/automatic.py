"""What runs where nothing is asked for: the method, and what messages go through."""

from __future__ import annotations

from typing import Any

from fpdfp.compress import QSGD
from fpdfp.methods.base import Method
from fpdfp.methods.shifted import ShiftedPDFP
from fpdfp.problem import Problem

#: A short message is mostly header and norm, so that finer levels cost little.
SHORT = 64
LEVELS, LEVELS_OF_SHORT, LEVELS_DOWN = 5, 11, 31


def choose(problem: Problem, method: Method | None, compressor: Any, downlink: Any) -> tuple[Method, Any, Any]:
    """Return the method, the compressor and the downlink of a run; what is given is kept.

    ``"auto"`` compresses where the method is automatic as well; a method that was asked for runs as it is.
    """
    for name, value in (("compressor", compressor), ("downlink", downlink)):
        if isinstance(value, str) and value != "auto":
            raise ValueError(f"{name} must be a compressor, 'auto' or None, got {value!r}")
    if method is not None:
        return method, None if compressor == "auto" else compressor, None if downlink == "auto" else downlink
    levels = LEVELS_OF_SHORT if problem.linop.size_in <= SHORT else LEVELS
    return (
        ShiftedPDFP(preconditioner="auto"),
        QSGD(levels, norm="max") if compressor == "auto" else compressor,
        QSGD(LEVELS_DOWN, norm="max") if downlink == "auto" else downlink,
    )
