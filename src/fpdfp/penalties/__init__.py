"""Non-smooth penalties g: value, prox, conjugate and prox of the conjugate, over a client axis."""

from fpdfp.penalties.base import Penalty, Zero
from fpdfp.penalties.box import Box, NonNegative
from fpdfp.penalties.elastic_net import ElasticNet
from fpdfp.penalties.group import GroupL12
from fpdfp.penalties.l1 import L1
from fpdfp.penalties.sparse_group import SparseGroup
from fpdfp.penalties.stacked import Stacked
from fpdfp.penalties.wrapped import Wrapped, as_penalty

__all__ = [
    "L1", "Box", "ElasticNet", "GroupL12", "NonNegative", "Penalty", "SparseGroup", "Stacked", "Wrapped", "Zero",
    "as_penalty",
]  # fmt: skip
