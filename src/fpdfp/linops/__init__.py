"""Linear maps B: applied over a leading client axis, with adjoint and an upper bound of ‖B‖²."""

from fpdfp.linops.base import LinOp, adjoint_error
from fpdfp.linops.maps import (
    Compose,
    Diagonal,
    Difference,
    EachRow,
    Gradient,
    Identity,
    MaskedGradient,
    Matrix,
    VStack,
    Wrapped,
    aslinop,
)

__all__ = [
    "Compose",
    "Diagonal",
    "Difference",
    "EachRow",
    "Gradient",
    "Identity",
    "LinOp",
    "MaskedGradient",
    "Matrix",
    "VStack",
    "Wrapped",
    "adjoint_error",
    "aslinop",
]
