"""The primal-dual method of Chambolle and Pock."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.errors import ArgumentTypeError
from fpdfp.methods._forms import Primal, PrimalDual, PrimalDualAlgorithm, choose_within, constant_momentum
from fpdfp.methods.base import Facts, Method, Traits, Update
from fpdfp.problem import LocalLosses
from fpdfp.quadratic.statement import InnerSolve, Work
from fpdfp.rng import Draws

#: Errors of the prox must be summable; these are next to nothing.
PROX_OF_F = InnerSolve(tol=1e-9, max_steps=10_000)


class ChambollePockMessage(NamedTuple):
    """The message of the server: the point whose prox is wanted, and where to start looking for it."""

    y: Array
    x: Array


@dataclasses.dataclass(frozen=True)
class ChambollePock(Method):
    """The first-order primal-dual method of Chambolle and Pock, a centralised reference.

    ::

        v_k+1 = prox_{σ g*}( v_k + σ B (2x_k − x_k−1) )
        x_k+1 = prox_{γ f}( x_k − γ Bᵀv_k+1 )

    Other than PDFP it needs the prox of f, which the one client that holds all data computes by accelerated gradient
    steps to a tolerance. The history counts these steps as inner steps.

    Converges for γσ‖B‖² < 1 and any γ, if the proxes are exact or their errors are summable; with exact proxes also
    for γσ‖B‖² = 1 (Condat 2013).

    Parameters
    ----------
    step
        γ: a number or ``"auto"``, which is 1/L.
    sigma
        σ; by default 1/(γ‖B‖²).
    inner
        How exactly the prox of f is computed.

    References
    ----------
    A. Chambolle and T. Pock, "A first-order primal-dual algorithm for convex problems with applications to imaging",
    Journal of Mathematical Imaging and Vision 40 (2011), Algorithm 1 with θ = 1.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> fpdfp.solve(problem, fpdfp.ChambollePock(), rounds=500).x.round(2)
    array([2.75, 2.75, 0.18, 0.18])
    """

    traits: ClassVar[Traits] = Traits(
        title="primal-dual splitting with the prox of f",
        solves="f + g∘B",
        sends=("x",),
        partial_participation=False,
        compression=False,
        mini_batches=False,
        needs_one_client=True,
        strong_convexity="not needed",
        proved="convergence for γσ‖B‖² ≤ 1, any γ",
        constant_step=True,
        reference="Chambolle and Pock 2011",
    )

    step: steps.Step = "auto"
    sigma: float | None = None
    inner: InnerSolve = PROX_OF_F

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner is None:
            raise ArgumentTypeError("inner", "must be an InnerSolve, got None: the prox of f has no closed form")

    def prepare(self, facts: Facts) -> ChambollePockAlgorithm:
        step = steps.resolve_constant(self.step, 1.0 / (facts.constants.lipschitz_mean or 1.0))
        sigma = choose_within("sigma", self.sigma, facts.model.largest_lambda / step.gamma, "1/(γ‖B‖²)")
        return ChambollePockAlgorithm(self, facts.model, step, sigma)

    def largest_step(self, facts: Facts) -> float:
        return float("inf")


@dataclasses.dataclass(frozen=True)
class ChambollePockAlgorithm(PrimalDualAlgorithm):
    """Algorithm 1 of Chambolle and Pock, ``sigma`` being σ; in a state, v is one step ahead of x."""

    method: ChambollePock
    sigma: float

    @property
    def has_inner_solve(self) -> bool:
        return True

    @property
    def client_steps(self) -> int:
        return self.method.inner.max_steps

    def init(self, x0: Array) -> PrimalDual:
        x, v = super().init(x0)
        return PrimalDual(x, self.dual_step(v, x))

    def broadcast(self, state: PrimalDual) -> ChambollePockMessage:
        return ChambollePockMessage(state.x - self.step(0) * self.model.linop.adjoint(state.v), state.x)

    def client_update(self, local: LocalLosses, message: ChambollePockMessage, k: int, draws: Draws) -> Update:
        x, work = smooth_prox(local, message.y, self.step(k), message.x, self.method.inner)
        return Update(Primal(x), work=work)

    def server_update(self, state: PrimalDual, mean: Primal, k: int, count: int) -> PrimalDual:
        return PrimalDual(mean.x, self.dual_step(state.v, 2.0 * mean.x - state.x))

    def dual_step(self, v: Array, x: Array) -> Array:
        """Return prox_{σ g*}(v + σBx)."""
        return self.model.penalty.conjugate_prox(v + self.sigma * self.model.linop.apply(x), self.sigma)


def smooth_prox(local: LocalLosses, y: Array, t: float, x: Array, inner: InnerSolve) -> tuple[Array, Work]:
    """Return argmin_u f(u) + ‖u − y‖²/2t of one client, from x, by accelerated gradient steps.

    The objective is smooth with L + 1/t and strongly convex with 1/t, so ‖u − prox(y)‖ ≤ t times its gradient's norm.
    The tolerance is never below what rounding lets the gradient show.
    """
    smoothness = float(local.lipschitz()[0]) + 1.0 / t
    momentum = constant_momentum(1.0 / (t * smoothness))
    tol = max(inner.tol, 16 * float(np.finfo(x.dtype).eps) * t * smoothness)
    point = previous = x[None]
    for steps_done in range(inner.max_steps):
        slope = local.gradients(point) + (point - y) / t
        reach = np.linalg.norm(point) + np.linalg.norm(point - y)
        if t * np.linalg.norm(slope) <= tol * reach:
            return point, Work(steps_done)
        current = point - slope / smoothness
        point = current + momentum * (current - previous)
        previous = current
    return point, Work(inner.max_steps, 1)
