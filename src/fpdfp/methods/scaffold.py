"""SCAFFOLD, stochastic controlled averaging."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array, Shape
from fpdfp.methods._common import check_hyper_parameters, largest_local_step, mean
from fpdfp.methods._smooth import SmoothMethod
from fpdfp.methods.base import Update
from fpdfp.methods.traits import Traits
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws


class State(NamedTuple):
    """The model and the server's control variate, which is also what the server sends."""

    x: Array
    control: Array


class Reply(NamedTuple):
    """What a client sends: the changes of its model and of its control variate."""

    x: Array
    control: Array


class Memory(NamedTuple):
    """What a client keeps: its control variate c_i."""

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
    everyone and full gradients it is gradient descent with the step ηγ.

    What is proved: for f convex and smooth, γτη of the order of 1/L and no more than that of n/(μN), convergence
    without any bound on how clients differ, linear for f strongly convex and full gradients (Karimireddy et al. 2020,
    Theorem III). ``"auto"`` takes γ = 1/(3τL_max max(1, η)), larger than the paper's constants allow; nothing is proved
    with that.

    Parameters
    ----------
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``, which falls with mini-batches.
    local_steps
        τ.
    batch_size
        The size of the mini-batches; None uses all samples.
    server_step
        η.
    penalty
        What to do with a penalty: ``"refuse"`` it, add a ``"subgradient"`` of g∘B to every gradient, or ``"ignore"``
        it and minimise f.
    n_clients
        Filled in by ``solve``.

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
    shared_memory: ClassVar[tuple[str, ...]] = ("control",)

    step: steps.Step = "auto"
    local_steps: int = 1
    batch_size: int | None = None
    server_step: float = 1.0
    penalty: Literal["refuse", "subgradient", "ignore"] = "refuse"
    n_clients: int | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_hyper_parameters(self)

    def prepare(self, model: Model, constants: steps.Constants) -> Scaffold:
        schedule = steps.check(self.step)
        if schedule == "auto":
            longer = 3.0 * self.local_steps * max(1.0, self.server_step)
            gamma = 1.0 / (longer * ((constants.lipschitz_max or 1.0) + constants.batch_smoothness))
            noisy = self.batch_size is not None or self.uses_subgradients(model)
            per_round = self.local_steps * constants.strong_convexity
            schedule = steps.Automatic(gamma, per_round) if noisy else steps.Constant(gamma)
        return dataclasses.replace(
            self, step=steps.resolve(schedule, constants, noisy=False), n_clients=constants.n_clients
        )

    def largest_step(self, model: Model, constants: steps.Constants) -> float:
        return largest_local_step(constants, self.local_steps) / max(1.0, self.server_step)

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        return {"x": model.shape, "control": model.shape}

    def init(self, model: Model, x0: Array) -> State:
        return State(x0, np.zeros_like(x0, dtype=np.float64))

    def init_memory(self, model: Model, n_clients: int) -> Memory:
        return Memory(model.xp.zeros((n_clients, *model.shape), dtype=np.float64))

    def broadcast(self, model: Model, state: State) -> State:
        return State(state.x, state.control.astype(model.dtype, copy=False))

    def client_update(self, model: Model, local: LocalLosses, message: State, k: int, draws: Draws) -> Update:
        gamma = self.schedule()(k)
        correction = (message.control - local.memory.control).astype(model.dtype, copy=False)
        y = np.repeat(message.x[None], len(local.clients), axis=0)
        for t in range(self.local_steps):
            gradients = local.gradients(y, self.batch_size, draws._replace(step=t)) + self.slope(model, y)
            y = y - gamma * (gradients + correction)
        change = y - message.x
        return Update(Reply(change, -message.control - change / (self.local_steps * gamma)), local.memory)

    def remember(self, model: Model, shared: dict[str, Array], sent: Reply, k: int) -> dict[str, Array]:
        return {"control": shared["control"] + sent.control.astype(np.float64)}

    def server_update(self, model: Model, state: State, reply: Reply, k: int) -> State:
        assert self.n_clients is not None
        share = len(reply.control) / self.n_clients
        return State(
            state.x + self.server_step * mean(reply.x), state.control + share * mean(reply.control.astype(np.float64))
        )

    def solution(self, state: State) -> tuple[Array, Array | None]:
        return state.x, None
