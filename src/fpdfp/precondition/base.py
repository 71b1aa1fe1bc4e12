"""What every preconditioner offers."""

from __future__ import annotations

import abc
import hashlib

import numpy as np

from fpdfp._typing import Array
from fpdfp.linops import LinOp


class Preconditioner(abc.ABC):
    """A change of coordinates x = S u.

    Attributes
    ----------
    factor
        S.
    smoothness
        An upper bound of the Lipschitz constant of u ↦ Sᵀ∇f(Su), where one is known.
    """

    factor: LinOp
    smoothness: float | None = None

    @abc.abstractmethod
    def coordinates(self, x: Array) -> Array:
        """Return u with S u = x."""

    @abc.abstractmethod
    def gradient(self, slope: Array) -> Array:
        """Return p with Sᵀ p = slope: a gradient in x from one in u; also over a leading client axis."""

    @property
    @abc.abstractmethod
    def numbers(self) -> Array:
        """What the server sends to everyone once, so that clients know S."""

    def __repr__(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.numbers).tobytes()).hexdigest()[:12]
        return f"{type(self).__name__}({self.factor.size_in} coordinates, {digest})"
