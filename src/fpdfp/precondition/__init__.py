"""Public preconditioners: coordinates in which a problem is better conditioned.

A preconditioner is a positive definite P = S Sᵀ. With x = S u a method works on f(Su) + g(BSu) instead. Clients send
Sᵀ∇f_i, whose entries are of one size, so that compression spends its bits evenly, and a step in u is a step along P∇f
in x.
"""

from fpdfp.precondition.base import Preconditioner
from fpdfp.precondition.coordinates import Fourier, LowRank, Scaling, Whitening
from fpdfp.precondition.quantized import QuantizedMoments

__all__ = ["Fourier", "LowRank", "Preconditioner", "QuantizedMoments", "Scaling", "Whitening"]
