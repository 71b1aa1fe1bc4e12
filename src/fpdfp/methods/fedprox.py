"""FedProx, federated averaging with a proximal term in the local objective."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import numpy as np

from fpdfp import _checks, steps
from fpdfp._array import norms
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.methods._forms import Primal
from fpdfp.methods.base import Facts, Traits, Update
from fpdfp.methods.fedavg import FedPAQAlgorithm, LocalSGD
from fpdfp.problem import LocalLosses
from fpdfp.quadratic.statement import Work
from fpdfp.rng import Draws


@dataclasses.dataclass(frozen=True)
class FedProx(LocalSGD):
    """FedAvg with a proximal term that keeps clients near the server's model.

    ::

        server:          sends x_k to n clients S, drawn uniformly
        client i in S:   x_i ≈ argmin_x h_i(x) = f_i(x) + (ρ/2) ‖x − x_k‖²,   by at most τ steps
                         x_i,t+1 = x_i,t − γ_k (∇̃f_i(x_i,t) + ρ (x_i,t − x_k)),   x_i,0 = x_k
                         sends Q(x_i − x_k)
        server:          x_k+1 = x_k + (1/n) Σ_S Q(x_i − x_k)

    With an ``inexactness`` η a client stops as soon as ‖∇h_i(x)‖ ≤ η ‖∇h_i(x_k)‖, as the paper defines an inexact
    solution. The history counts steps as inner steps and solves that took τ of them without getting there as
    unsolved; without η, it takes τ steps. ρ = 0 is FedAvg. It minimises f alone.

    What is proved: for an exact or η-inexact local solve, bounded dissimilarity of the clients and ρ large enough,
    the expected objective decreases by a multiple of ‖∇f(x_k)‖² each round (Li et al. 2020, Theorem 4); not for
    compressed messages. For clients that differ, its fixed point is not the minimiser of f.

    Parameters
    ----------
    rho
        ρ, the weight of the proximal term.
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``, which is 1/(L_max + ρ) with ``inexactness``.
    local_steps
        τ, the most steps of a local solve.
    inexactness
        η between 0 and 1, for full gradients; None takes all τ steps.
    batch_size, averaging, penalty
        As for :class:`FedAvg`.

    References
    ----------
    T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar and V. Smith, "Federated optimization in heterogeneous
    networks", MLSys (2020).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> method = fpdfp.FedProx(rho=0.5, local_steps=20, inexactness=0.1)
    >>> fpdfp.solve(problem, method, rounds=300).x.round(2)  # f alone is least at (2.86, 2.93, 0, 0.07)
    array([2.61, 2.68, 0.  , 0.07])
    """

    traits: ClassVar[Traits] = Traits(
        title="local solves with a proximal term",
        solves="f",
        sends=("x",),
        local_steps=True,
        strong_convexity="not needed",
        proved="decrease in every round for clients of bounded dissimilarity and ρ large enough, uncompressed",
        reference="Li et al. 2020",
    )

    rho: float
    step: steps.Step = "auto"
    local_steps: int = 10
    inexactness: float | None = None
    batch_size: int | None = None
    averaging: Literal["weighted", "plain"] = "weighted"
    penalty: Literal["refuse", "subgradient", "ignore"] = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inexactness is None:
            return
        inexactness = _checks.real("inexactness", self.inexactness)
        if not 0.0 < inexactness < 1.0:
            raise ArgumentError("inexactness", f"must be above 0 and below 1, got {inexactness:g}")
        object.__setattr__(self, "inexactness", inexactness)
        if self.batch_size is not None:
            raise ArgumentError(
                "inexactness", "must be None with batch_size: mini-batches do not show the progress of a solve"
            )

    def smoothness(self, constants: steps.Constants) -> float:
        return super().smoothness(constants) + self.rho

    def choose_step(self, facts: Facts) -> steps.Schedule:
        if self.inexactness is not None and self.step == "auto":
            # A falling step would never solve the local problems as exactly as asked.
            return steps.Constant(1.0 / (self.smoothness(facts.constants) or 1.0))
        return super().choose_step(facts)

    def prepare(self, facts: Facts) -> FedProxAlgorithm:
        return FedProxAlgorithm(self, facts.model, self.choose_step(facts))


@dataclasses.dataclass(frozen=True)
class FedProxAlgorithm(FedPAQAlgorithm):
    """Inexact local solves with a proximal term."""

    method: FedProx

    @property
    def has_inner_solve(self) -> bool:
        return self.method.inexactness is not None

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        x_k, gamma, inexactness = message.x, self.step(k), self.method.inexactness
        x = np.repeat(x_k[None], len(local.clients), axis=0)
        todo = np.ones(len(x), dtype=bool)
        enough: Array = np.zeros(len(x))
        work = Work()
        for t in range(self.method.local_steps):
            slope = self.slopes(local, x, x_k, draws.at(t))
            if inexactness is not None:
                enough = inexactness * norms(slope) if t == 0 else enough
                todo &= ~_within(norms(slope), enough)
                if not todo.any():
                    break
                work += Work(int(todo.sum()))
            x = np.where(todo.reshape(-1, *[1] * len(self.model.shape)), x - gamma * slope, x)
        if inexactness is not None and todo.any():
            todo &= ~_within(norms(self.slopes(local, x, x_k, draws)), enough)
            work += Work(unsolved=int(todo.sum()))
        return Update(Primal(self.weigh(local, x - x_k)), work=work)

    def slopes(self, local: LocalLosses, x: Array, x_k: Array, draws: Draws) -> Array:
        """Return ∇̃h_i(x) = ∇̃f_i(x) + ρ(x − x_k) for each client."""
        return self.gradients(local, x, draws) + self.method.rho * (x - x_k)


def _within(lengths: Array, enough: Array) -> Array:
    """Return which solves are exact enough; one without finite numbers is not, until the engine sees it."""
    within: Array = (lengths <= enough) & np.isfinite(lengths)
    return within
