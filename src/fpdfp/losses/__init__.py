"""Smooth losses, one for each client: values, gradients over a client axis, Lipschitz constants."""

from fpdfp.losses.base import Losses
from fpdfp.losses.classes import Multinomial, Ordinal, Softmax
from fpdfp.losses.cox import Cox
from fpdfp.losses.custom import Custom, OperatorLeastSquares
from fpdfp.losses.glm import GLM, LeastSquares, Logistic

__all__ = [
    "GLM",
    "Cox",
    "Custom",
    "LeastSquares",
    "Logistic",
    "Losses",
    "Multinomial",
    "OperatorLeastSquares",
    "Ordinal",
    "Softmax",
]
