"""FedAvg, federated averaging (Algorithm 1); FedPAQ, the same with compressed differences (Algorithm 2); and FedSGD."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.methods._forms import (
    Gradient,
    Primal,
    SmoothAlgorithm,
    SmoothMethod,
    gradients_are_noisy,
    is_noisy,
    largest_local_step,
)
from fpdfp.methods.base import Facts, Traits, Update
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws


class LocalSGD(SmoothMethod):
    """A method whose clients take τ steps of stochastic gradient descent on their own: FedAvg, FedPAQ and FedProx."""

    averaging: str

    def smoothness(self, constants: steps.Constants) -> float:
        """The largest smoothness of what a client minimises."""
        return constants.own_lipschitz_max if self.averaging == "weighted" else constants.lipschitz_max

    def choose_step(self, facts: Facts) -> steps.Schedule:
        """Return γ_k for what the user gave."""
        constants, tau = facts.constants, self.local_steps
        differ = is_noisy if tau > 1 else gradients_are_noisy
        noisy = differ(self.batch_size, constants) or self.uses_subgradients(facts.model)
        smoothness = self.smoothness(constants)
        return steps.resolve(self.step, constants, noisy=noisy, local_steps=tau, local_smoothness=smoothness)

    def largest_step(self, facts: Facts) -> float:
        return largest_local_step(facts.constants, self.local_steps, smoothness=self.smoothness(facts.constants))


@dataclasses.dataclass(frozen=True)
class FedAvg(LocalSGD):
    """Federated averaging: τ steps of stochastic gradient descent at each client, then the mean of their models.

    ::

        server:          sends x_k to n clients S, drawn uniformly
        client i in S:   x_i,0 = x_k,   x_i,t+1 = x_i,t − γ_k ∇̃f_i(x_i,t)   for t = 0, …, τ − 1,   sends x_i,τ
        server:          x_k+1 = (1/n) Σ_S x_i,τ

    For clients of unequal weights w_i with sum 1, ``averaging="weighted"`` gives
    x_k+1 = x_k + (1/n) Σ_S N w_i (x_i,τ − x_k), which is Σ w_i x_i,τ where all clients take part; ``"plain"`` keeps the
    plain mean, and client i descends on N w_i f_i. Both are the paper's algorithm for w_i = 1/N. (Weights with another
    sum W count as w_i/W, with W f_i for f_i.) It minimises f alone, and sends whole models: for compressed differences
    see :class:`FedPAQ`.

    McMahan et al. divide by the weights of those who take part, Σ_S w_i x_i,τ / Σ_S w_i. With all clients, or with
    equal weights, that is the same. Otherwise it is not Σ w_i x_i,τ on average over draws (with n = 1 all clients would
    count alike), so that the method would minimise another mean of the f_i. What is here is right on average, and the
    server need not know the weights.

    What is proved: with τ = 1 it is stochastic gradient descent. For τ > 1 and clients that differ, its fixed point
    at a constant step is not the minimiser. For f strongly convex and steps of the order of 1/k,
    E f(x_k) − f* = O(τ²/k) (X. Li et al., "On the convergence of FedAvg on non-IID data", ICLR 2020).

    Parameters
    ----------
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``.
    local_steps
        τ.
    batch_size
        The size of the mini-batches; None uses all samples.
    averaging
        ``"weighted"`` or ``"plain"``.
    penalty
        What to do with a penalty: ``"refuse"`` it, add a ``"subgradient"`` of g∘B to every gradient (FedAvg(∂) of
        Yuan et al. 2021), or ``"ignore"`` it and minimise f.

    References
    ----------
    B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Agüera y Arcas, "Communication-efficient learning of deep
    networks from decentralized data", AISTATS (2017); Algorithm 1 of the FPDFP paper.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> fpdfp.solve(problem, fpdfp.FedAvg(local_steps=5), rounds=3000).x.round(2)
    array([2.86, 2.93, 0.  , 0.07])
    """

    traits: ClassVar[Traits] = Traits(
        title="local SGD, mean of models",
        solves="f",
        sends=("x",),
        compression=False,
        compressed_form="FedPAQ",
        local_steps=True,
        proved="O(1/k) for f strongly convex and decreasing steps; biased at a constant step if τ > 1",
        reference="McMahan et al. 2017; Algorithm 1",
    )

    step: steps.Step = "auto"
    local_steps: int = 1
    batch_size: int | None = None
    averaging: Literal["weighted", "plain"] = "weighted"
    penalty: Literal["refuse", "subgradient", "ignore"] = "refuse"

    def prepare(self, facts: Facts) -> FedPAQAlgorithm:
        return FedAvgAlgorithm(self, facts.model, self.choose_step(facts))


@dataclasses.dataclass(frozen=True)
class FedPAQ(FedAvg):
    """Federated periodic averaging with quantization: FedAvg whose clients send compressed differences.

    ::

        server:          sends x_k to n clients S, drawn uniformly
        client i in S:   x_i,0 = x_k,   x_i,t+1 = x_i,t − γ_k ∇̃f_i(x_i,t)   for t = 0, …, τ − 1
                         sends Q(x_i,τ − x_k)
        server:          x_k+1 = x_k + (1/n) Σ_S Q(x_i,τ − x_k)

    For clients of unequal weights w_i, ``averaging="weighted"`` sends Q(N w_i (x_i,τ − x_k)); with ``"plain"`` client
    i descends on N w_i f_i. It minimises f alone.

    What is proved: for f strongly convex, an unbiased Q, clients with identically distributed data and steps of the
    order of 1/k, E‖x_k − x*‖² = O(1/k) (Reisizadeh et al. 2020).

    Parameters
    ----------
    step, local_steps, batch_size, averaging, penalty
        As for :class:`FedAvg`.

    References
    ----------
    A. Reisizadeh, A. Mokhtari, H. Hassani, A. Jadbabaie and R. Pedarsani, "FedPAQ: a communication-efficient
    federated learning method with periodic averaging and quantization", AISTATS (2020); Algorithm 2 of the FPDFP
    paper.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> method = fpdfp.FedPAQ(local_steps=5)
    >>> fpdfp.solve(problem, method, rounds=2000, compressor=fpdfp.QSGD(levels=50)).x.round(1)
    array([2.9, 2.9, 0. , 0.1])
    """

    traits: ClassVar[Traits] = dataclasses.replace(
        FedAvg.traits,
        title="local SGD, mean of compressed differences",
        compression=True,
        compressed_form=None,
        proved="O(1/k) for f strongly convex, decreasing steps and clients with identically distributed data",
        reference="Reisizadeh et al. 2020; Algorithm 2",
    )

    def prepare(self, facts: Facts) -> FedPAQAlgorithm:
        return FedPAQAlgorithm(self, facts.model, self.choose_step(facts))


@dataclasses.dataclass(frozen=True)
class FedPAQAlgorithm(SmoothAlgorithm):
    """Algorithm 2 of the paper; the algorithms of FedAvg and FedProx derive from it."""

    method: LocalSGD

    def weigh(self, local: LocalLosses, change: Array) -> Array:
        """Return what a client's change counts for in the mean: N w_i / W of it, or all of it."""
        return local.weigh(change, local.total) if self.method.averaging == "weighted" else change

    def gradients(self, local: LocalLosses, x: Array, draws: Draws) -> Array:
        """Return the stochastic gradient of what each client minimises."""
        of = local.own_gradients if self.method.averaging == "weighted" else local.gradients
        return of(x, self.method.batch_size, draws) + self.slope(x)

    def descend(self, local: LocalLosses, x: Array, gamma: float, draws: Draws) -> Array:
        """Return x_τ of x_t+1 = x_t − γ ∇̃f_i(x_t), x_0 = x, for each client."""
        for t in range(self.method.local_steps):
            x = x - gamma * self.gradients(local, x, draws.at(t))
        return x

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        change = self.descend(local, message.x, self.step(k), draws) - message.x
        return Update(Primal(self.weigh(local, change)))


@dataclasses.dataclass(frozen=True)
class FedAvgAlgorithm(FedPAQAlgorithm):
    """Algorithm 1 of the paper."""

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        x = self.descend(local, message.x, self.step(k), draws)
        if self.method.averaging == "weighted" and local.scaling is not None:
            x = message.x + self.weigh(local, x - message.x)
        return Update(Primal(x))

    def server_update(self, state: Primal, mean: Primal, k: int, count: int) -> Primal:
        return Primal(mean.x)


@dataclasses.dataclass(frozen=True)
class FedSGD(SmoothMethod):
    """Distributed synchronous stochastic gradient descent.

    ::

        server:          sends x_k to n clients S, drawn uniformly
        client i in S:   sends Q(∇̃f_i(x_k))
        server:          x_k+1 = x_k − γ_k (1/n) Σ_S Q(∇̃f_i(x_k))

    It minimises f alone, without a prox.

    What is proved: with all clients, full gradients and no compressor it is gradient descent, which converges for
    γ < 2/L, linearly for f strongly convex. With noise, E f(x_k) − f* = O(1/k) for f strongly convex and steps of
    the order of 1/k (for instance Gower et al., ICML 2019).

    Parameters
    ----------
    step, batch_size
        As for :class:`FedAvg`.
    penalty
        What to do with a penalty: ``"refuse"`` it, have the server add a ``"subgradient"`` of g∘B to the mean
        gradient, or ``"ignore"`` it and minimise f.

    References
    ----------
    J. Chen, X. Pan, R. Monga, S. Bengio and R. Jozefowicz, "Revisiting distributed synchronous SGD",
    arXiv:1604.00981 (2016).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1])
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> fpdfp.solve(problem, fpdfp.FedSGD(), rounds=200).x.round(2)
    array([4. , 4.1, 0. , 0.1])
    """

    traits: ClassVar[Traits] = Traits(
        title="gradient descent, one gradient a round",
        solves="f",
        sends=("gradient",),
        unequal_sampling=True,
        proved="linear rate without noise, O(1/k) with noise, for f strongly convex",
        reference="Chen et al. 2016",
    )

    step: steps.Step = "auto"
    batch_size: int | None = None
    penalty: Literal["refuse", "subgradient", "ignore"] = "refuse"

    def prepare(self, facts: Facts) -> FedSGDAlgorithm:
        noisy = gradients_are_noisy(self.batch_size, facts.constants) or self.uses_subgradients(facts.model)
        return FedSGDAlgorithm(self, facts.model, steps.resolve(self.step, facts.constants, noisy=noisy))


@dataclasses.dataclass(frozen=True)
class FedSGDAlgorithm(SmoothAlgorithm):
    """A gradient step on the server."""

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        return Update(Gradient(local.gradients(message.x, self.method.batch_size, draws)))

    def server_update(self, state: Primal, mean: Gradient, k: int, count: int) -> Primal:
        return Primal(state.x - self.step(k) * (mean.gradient + self.slope(state.x)))
