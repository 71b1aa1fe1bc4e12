"""Non-smooth penalties g: value, prox, conjugate and prox of the conjugate, over a client axis."""

from fpdfp.penalties.base import Penalty, Zero
from fpdfp.penalties.group import GroupL12, SparseGroup
from fpdfp.penalties.separable import L1, Box, ElasticNet, NonNegative
from fpdfp.penalties.wrapped import Stacked, Wrapped, as_penalty

__all__ = [
    "L1", "Box", "ElasticNet", "GroupL12", "NonNegative", "Penalty", "SparseGroup", "Stacked", "Wrapped", "Zero",
    "as_penalty",
]  # fmt: skip
