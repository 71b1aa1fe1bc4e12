"""Linear maps B: applied over a leading client axis, with adjoint and an upper bound of ‖B‖²."""

from fpdfp.linops.base import LinOp, adjoint_error
from fpdfp.linops.compose import Compose
from fpdfp.linops.convert import aslinop
from fpdfp.linops.diagonal import Diagonal
from fpdfp.linops.difference import Difference, Gradient
from fpdfp.linops.identity import Identity
from fpdfp.linops.matrix import Matrix
from fpdfp.linops.rows import EachRow
from fpdfp.linops.stack import VStack
from fpdfp.linops.wrapped import Wrapped

__all__ = [
    "Compose",
    "Diagonal",
    "Difference",
    "EachRow",
    "Gradient",
    "Identity",
    "LinOp",
    "Matrix",
    "VStack",
    "Wrapped",
    "adjoint_error",
    "aslinop",
]
