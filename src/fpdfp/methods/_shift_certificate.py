"""The duality gap that clients certify with their shifts, by two numbers each."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fpdfp._array import norms, to_host
from fpdfp._typing import Array
from fpdfp.methods._preconditioned import PreconditionedAlgorithm
from fpdfp.methods.base import Certifying, Question
from fpdfp.precondition.base import Announced
from fpdfp.problem import LocalLosses

#: The part of the slack that rounding may take, as a length.
SHARE = 0.1


class ShiftQuestion(NamedTuple):
    """The server's question for a certificate: its iterate, and the correction of the shifts to a dual point.

    ``drift`` is what rounding may add to that.
    """

    x: Array
    lack: Array
    drift: Array


class ShiftCertificate(PreconditionedAlgorithm, Certifying):
    """For an algorithm whose clients keep shifts h_i, the mean of which the server knows."""

    convexity: float

    def question(self, state: Any, *, fine: bool, slack: float = 0.0) -> Question:
        x = self.model.make_feasible(self.solution(state)[0])
        drift = state.drift if self.coordinates is None else state.drift * self.stretch
        dtype = np.dtype(self.model.dtype if fine else np.float32)
        lack = Announced.within(SHARE * math.sqrt(2.0 * self.convexity * slack), self.lack(state), dtype)
        messages = (Announced.plain(x.astype(dtype)), lack, Announced.plain(drift))
        return Question(ShiftQuestion(*(message.array for message in messages)), messages)

    def dual_point(self, state: Any) -> Array:
        """Return v: the algorithm's, or where B is the identity the one with the least gap as far as the server knows.

        That minimises g*(v) − ⟨x, v⟩ + ‖h̄ + v‖²/2μ. For l1 norms h̄ then lacks nothing to be −v where x is zero, unless
        it is too large.
        """
        v: Array = state.v[0]
        if not self.model.linop.is_identity or self.convexity <= 0:
            return v
        x = self.model.make_feasible(self.solution(state)[0])
        return self.model.penalty.conjugate_prox(self.convexity * x - self.plain(state.shift), self.convexity)

    def lack(self, state: Any) -> Array:
        """The difference between −Bᵀv and the mean of the shifts."""
        lack: Array = self.plain(state.shift) + self.model.linop.adjoint(self.dual_point(state))
        return lack

    def estimate_slope(self, state: Any) -> Array:
        return self.plain(state.slope)

    def answer(self, local: LocalLosses, question: ShiftQuestion) -> Array:
        """N w_i f_i(x), and ‖∇f_i(x) − p_i‖²/2μ_i with p_i the shift less what all shifts lack.

        The p_i have the mean −Bᵀv, so f*(−Bᵀv) is at most the mean of f_i*(p_i), and f_i strongly convex with μ_i has
        f_i(x) + f_i*(p_i) ≤ ⟨x, p_i⟩ + ‖∇f_i(x) − p_i‖²/2μ_i.
        """
        gradients = local.gradients(question.x)
        points = self.plain(local.memory.shift) - question.lack
        sizes = to_host(norms(gradients) + norms(points)) + local.lipschitz() * float(np.linalg.norm(question.x))
        mismatch = to_host(norms(gradients - points)) + self.model.rounding * sizes
        mismatch = mismatch + float(question.drift[0])
        return np.stack([local.values(question.x), mismatch**2 / (2.0 * local.least_convexities())], axis=1)

    def conclude(self, state: Any, question: ShiftQuestion, answers: Array) -> tuple[float, float | None]:
        """F(x), and g(Bx) + g*(v) − ⟨Bx, v⟩ + the mean of the clients' parts.

        The p_i have the mean −Bᵀv but for an error e from rounding the question. Clients could take it on by their
        weights: then the mean of their parts is at most (√M + ‖e‖/√2μ)², with M the mean of the parts that they have
        sent.
        """
        image = self.model.linop.apply(question.x.astype(self.model.dtype))
        value = self.model.penalty.value(image)
        if not np.isfinite(value):
            return np.inf, None
        error = float(np.linalg.norm(question.lack.astype(np.float64) - self.lack(state)))
        part = (math.sqrt(float(answers[1])) + error / math.sqrt(2.0 * self.convexity)) ** 2
        return float(answers[0]) + value, self.model.fenchel_gap(image, self.dual_point(state)) + part

    @property
    def stretch(self) -> float:
        """A bound of how much longer a gradient in x is than in u, from a sample."""
        shape = self.model.shape
        sample = np.cos(np.arange(1.0, 1.0 + math.prod(shape))).reshape(shape)
        return 10.0 * float(np.linalg.norm(self.plain(sample)) / np.linalg.norm(sample))

    def plain(self, slopes: Array) -> Array:
        """Gradients in x from gradients in the coordinates of the algorithm."""
        return slopes if self.coordinates is None else self.coordinates.gradient(slopes)
