"""Smooth losses, one for each client: values, gradients over a client axis, Lipschitz constants."""

from fpdfp.losses.base import Losses
from fpdfp.losses.cox import Cox
from fpdfp.losses.custom import Custom
from fpdfp.losses.glm import GLM
from fpdfp.losses.least_squares import LeastSquares
from fpdfp.losses.logistic import Logistic
from fpdfp.losses.operators import OperatorLeastSquares
from fpdfp.losses.softmax import Softmax

__all__ = ["GLM", "Cox", "Custom", "LeastSquares", "Logistic", "Losses", "OperatorLeastSquares", "Softmax"]
