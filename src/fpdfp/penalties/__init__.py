"""Non-smooth penalties g: value, prox, conjugate and prox of the conjugate, over a client axis."""

from fpdfp.penalties.base import Penalty
from fpdfp.penalties.box import Box, NonNegative
from fpdfp.penalties.convert import as_penalty
from fpdfp.penalties.group import GroupL12
from fpdfp.penalties.l1 import L1
from fpdfp.penalties.stacked import Stacked
from fpdfp.penalties.wrapped import Wrapped
from fpdfp.penalties.zero import Zero

__all__ = ["L1", "Box", "GroupL12", "NonNegative", "Penalty", "Stacked", "Wrapped", "Zero", "as_penalty"]
