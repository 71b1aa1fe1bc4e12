"""SCAFFOLD, stochastic controlled averaging."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.methods._forms import Control, SmoothAlgorithm, SmoothMethod, Summing, start_sums
from fpdfp.methods.base import Facts, Traits, Update
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws


class ScaffoldState(NamedTuple):
    """A model and a control variate: the state, what the server sends, and the changes that a client sends."""

    x: Array
    control: Array


@dataclasses.dataclass(frozen=True)
class Scaffold(SmoothMethod):
    """SCAFFOLD: local steps whose drift is corrected by control variates.

    ::

        server:          sends x_k and c to n clients S, drawn uniformly
        client i in S:   y_i,0 = x_k,   y_i,t+1 = y_i,t − γ_k (∇̃f_i(y_i,t) − c_i + c)   for t = 0, …, τ − 1
                         c_i⁺ = c_i − c + (x_k − y_i,τ) / (τγ_k)
                         sends y_i,τ − x_k and c_i⁺ − c_i;   c_i ← c_i⁺
        server:          x_k+1 = x_k + η (1/n) Σ_S (y_i,τ − x_k),   c ← c + (1/N) Σ_S (c_i⁺ − c_i)

    The new control variate is the paper's option II, the mean gradient of the local steps. All control variates begin
    at 0. It minimises f alone, and sends twice as many numbers as :class:`FedAvg`, in both directions. With τ = 1,
    all clients and full gradients it is gradient descent with the step ηγ.

    What is proved. Let f be convex and smooth, and γτη of the order of 1/L and no more than the order of n/(μN). It
    converges without any bound on how clients differ, linearly for f strongly convex and full gradients (Karimireddy et
    al. 2020). ``"auto"`` takes γ = 1/(3τL_max max(1, η)), larger than the paper's constants allow; nothing is proved
    with that.

    Parameters
    ----------
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``, which falls with mini-batches.
    server_step
        η.
    local_steps, batch_size, penalty
        As for :class:`FedAvg`.

    References
    ----------
    S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich and A. T. Suresh, "SCAFFOLD: stochastic controlled
    averaging for federated learning", ICML (2020), Algorithm 1 with option II.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> fpdfp.solve(problem, fpdfp.Scaffold(local_steps=5), rounds=500, clients_per_round=1).x.round(2)
    array([2.86, 2.93, 0.  , 0.07])
    """

    traits: ClassVar[Traits] = Traits(
        title="local steps with control variates, mean of models",
        solves="f",
        sends=("x", "control"),
        uplink="2d",
        compression=False,
        local_steps=True,
        proved="linear for f strongly convex and full gradients, whatever the clients' differences, for small steps",
        reference="Karimireddy et al. 2020",
    )

    step: steps.Step = "auto"
    local_steps: int = 1
    batch_size: int | None = None
    server_step: float = 1.0
    penalty: Literal["refuse", "subgradient", "ignore"] = "refuse"

    def prepare(self, facts: Facts) -> ScaffoldAlgorithm:
        constants = facts.constants
        longer = 3.0 * self.local_steps * max(1.0, self.server_step)
        gamma = 1.0 / (longer * ((constants.lipschitz_max or 1.0) + constants.batch_smoothness))
        schedule = self.schedule_from(gamma, facts, steps_per_round=self.local_steps)
        return ScaffoldAlgorithm(self, facts.model, schedule, constants.n_clients)


@dataclasses.dataclass(frozen=True)
class ScaffoldAlgorithm(Summing, SmoothAlgorithm):
    """Algorithm 1 of Karimireddy et al. with option II; ``n_clients`` is N."""

    double: ClassVar[tuple[str, ...]] = ("control",)
    shared_memory: ClassVar[tuple[str, ...]] = ("control",)

    method: Scaffold
    n_clients: int

    def init(self, x0: Array) -> ScaffoldState:
        return ScaffoldState(x0, np.zeros_like(x0, dtype=np.float64))

    def init_memory(self, n_clients: int) -> Control:
        return Control(start_sums(self.model, n_clients))

    def broadcast(self, state: ScaffoldState) -> ScaffoldState:
        return ScaffoldState(state.x, state.control.astype(self.model.dtype, copy=False))

    def client_update(self, local: LocalLosses, message: ScaffoldState, k: int, draws: Draws) -> Update:
        gamma, tau, c = self.step(k), self.method.local_steps, message.control
        correction = (c - local.memory.control).astype(self.model.dtype, copy=False)
        y = np.repeat(message.x[None], len(local.clients), axis=0)
        for t in range(tau):
            gradients = local.gradients(y, self.method.batch_size, draws.at(t)) + self.slope(y)
            y = y - gamma * (gradients + correction)
        change = y - message.x
        return Update(ScaffoldState(change, -c - change / (tau * gamma)), local.memory)

    def server_update(self, state: ScaffoldState, mean: ScaffoldState, k: int, count: int) -> ScaffoldState:
        x = state.x + self.method.server_step * mean.x
        return ScaffoldState(x, state.control + count / self.n_clients * mean.control)
