"""Messages, states, memory and the choice of steps, for methods of the same form."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.errors import StepTooLargeWarning
from fpdfp.methods.base import Algorithm, Facts, Method, Remembering, Solves, Update
from fpdfp.penalties.base import Zero
from fpdfp.problem import LocalLosses, Model
from fpdfp.quadratic.solve import needs_inner
from fpdfp.quadratic.statement import InnerSolve, Work
from fpdfp.rng import Draws


class Primal(NamedTuple):
    """The primal variable: a state, what the server sends, or the change of it that a client sends."""

    x: Array


class PrimalDual(NamedTuple):
    """The primal and the dual variable: a state, or what the server or a client sends."""

    x: Array
    v: Array


class Gradient(NamedTuple):
    """A client's reply: its gradient."""

    gradient: Array


class ServerSolves(Algorithm):
    """The server solves a problem in every round; its state counts the steps in ``work``."""

    @property
    def has_inner_solve(self) -> bool:
        return True

    def server_work(self, state: Any) -> Work:
        return Work(int(state.work[0]))


class Difference(NamedTuple):
    """A client's reply: the difference of its gradient to its shift or control variate, which the server knows."""

    difference: Array


class DualChange(NamedTuple):
    """A client's reply: the change of its model before the prox."""

    z: Array


class Control(NamedTuple):
    """A client's memory: its control variate."""

    control: Array


class PrimalAlgorithm(Algorithm):
    """The server sends x, clients send changes of it, and the server adds their mean."""

    def init(self, x0: Array) -> Any:
        return Primal(x0)

    def broadcast(self, state: Any) -> Any:
        return Primal(state.x)

    def server_update(self, state: Any, mean: Any, k: int, count: int) -> Any:
        return Primal(state.x + mean.x)

    def solution(self, state: Any) -> tuple[Array, Array | None]:
        return state.x, None


class PrimalDualAlgorithm(Algorithm):
    """The server keeps x and v. It sends x, clients send gradients, and the server takes a primal-dual step."""

    def init(self, x0: Array) -> PrimalDual:
        return PrimalDual(x0, self.model.xp.zeros(self.model.dual_shape, dtype=x0.dtype))

    def broadcast(self, state: PrimalDual) -> Any:
        return Primal(state.x)

    def client_update(self, local: LocalLosses, message: Any, k: int, draws: Draws) -> Update:
        return Update(Gradient(local.gradients(message.x, self.method.batch_size, draws)))

    def solution(self, state: PrimalDual) -> tuple[Array, Array | None]:
        return state.x, state.v


class LocalMethod(Method):
    """A method whose clients take τ local steps; η is 1 where a method has no such hyper-parameter."""

    local_steps: int
    server_step: float = 1.0

    def schedule(self, constants: steps.Constants, step: steps.Step | None = None) -> steps.Schedule:
        """Return γ_k of local steps on N w_i f_i, for what the user gave or for ``step``."""
        # A server step above 1 makes a round that much longer.
        longer = max(1.0, self.server_step)
        constants = constants._replace(
            lipschitz_mean=longer * constants.lipschitz_mean,
            lipschitz_max=longer * constants.lipschitz_max,
            batch_smoothness=longer * constants.batch_smoothness,
        )
        return steps.resolve(
            self.step if step is None else step,
            constants,
            noisy=is_noisy(self.batch_size, constants),
            local_steps=self.local_steps,
            local_smoothness=constants.lipschitz_max,
        )

    def largest_step(self, facts: Facts) -> float:
        return largest_local_step(facts.constants, self.local_steps) / max(1.0, self.server_step)


class SmoothMethod(LocalMethod):
    """A method that minimises f alone, and what it does where there is a penalty after all."""

    penalty: str

    @property
    def solves(self) -> Solves:
        return "f + g∘B" if self.penalty == "subgradient" else self.traits.solves

    def check(self, model: Model) -> None:
        name = type(self).__name__
        if isinstance(model.penalty, Zero) or self.penalty == "ignore":
            return
        if self.penalty == "refuse":
            raise ValueError(
                f"the problem's penalty must be Zero() for {name}, which minimises f alone, got {model.penalty!r}; "
                f"{name}(penalty='subgradient') takes steps along subgradients of f + g∘B, and "
                f"{name}(penalty='ignore') minimises f all the same"
            )
        if not model.penalty.finite:
            raise ValueError(f"penalty='subgradient' needs a penalty that is finite everywhere, got {model.penalty!r}")
        try:
            model.penalty.subgradient(np.zeros(model.dual_shape, dtype=model.dtype))
        except NotImplementedError as error:
            raise ValueError(f"penalty='subgradient': {error}") from None

    def uses_subgradients(self, model: Model) -> bool:
        """Whether steps go along subgradients of f + g∘B, which do not vanish at the solution."""
        return self.penalty == "subgradient" and not isinstance(model.penalty, Zero)

    def schedule_from(self, gamma: float, facts: Facts, *, steps_per_round: int = 1) -> steps.Schedule:
        """Return γ_k for what the user gave: ``"auto"`` is γ, which falls where gradients do not vanish."""
        step = self.step
        if step == "auto":
            noisy = self.batch_size is not None or self.uses_subgradients(facts.model)
            convexity = steps_per_round * facts.constants.strong_convexity
            step = steps.Automatic(gamma, convexity) if noisy else steps.Constant(gamma)
        return steps.resolve(step, facts.constants, noisy=False)


class SmoothAlgorithm(PrimalAlgorithm):
    """The algorithm of such a method."""

    method: SmoothMethod

    def slope(self, x: Array) -> Array | float:
        """Return Bᵀs with s in ∂g(Bx), or 0 where the penalty is excluded."""
        if not self.method.uses_subgradients(self.model):
            return 0.0
        return self.model.linop.adjoint(self.model.penalty.subgradient(self.model.linop.apply(x)))


class ProximalMethod(LocalMethod):
    """A method whose clients take local steps with the prox of g∘B, by an inner solve where B is not the identity."""

    inner: InnerSolve | None

    @property
    def solves(self) -> Solves:
        return "f + g" if self.inner is None else "f + g∘B"

    def inner_for(self, model: Model) -> InnerSolve | None:
        """Return how exactly the prox of g∘B is computed; None where it has a closed form."""
        return self.inner if needs_inner(model) else None


@dataclasses.dataclass(frozen=True)
class ProximalAlgorithm(PrimalAlgorithm):
    """The algorithm of such a method; ``inner`` is None where the prox of g∘B has a closed form."""

    inner: InnerSolve | None

    @property
    def has_inner_solve(self) -> bool:
        return self.inner is not None

    @property
    def client_steps(self) -> int:
        return super().client_steps * (1 if self.inner is None else self.inner.max_steps)

    def dual_points(self, rows: int) -> Array:
        """Return dual points for inner solves to start from; empty ones for methods without them."""
        shape = self.model.dual_shape if self.has_inner_solve else (0,)
        points: Array = self.model.xp.zeros((rows, *shape), dtype=self.model.dtype)
        return points

    def server_work(self, state: Any) -> Work:
        return Work(*map(int, state.work))


class Summing(Remembering):
    """Clients send changes of what they keep, under the same name; they and the server add up what was decoded."""

    def remember(self, shared: dict[str, Array], sent: Any, k: int) -> dict[str, Array]:
        return {name: array + getattr(sent, name).astype(np.float64, copy=False) for name, array in shared.items()}


def start_sums(model: Model, n_clients: int) -> Array:
    """Return sums of nothing yet, one of the shape of x for each client, in float64: rounding would add up."""
    zeros: Array = model.xp.zeros((n_clients, *model.shape), dtype=np.float64)
    return zeros


def start_points(model: Model, n_clients: int) -> Array:
    """Return a zero of the shape of x for each client; fresh, since memory that is not written to takes no room."""
    zeros: Array = model.xp.zeros((n_clients, *model.shape), dtype=model.dtype)
    return zeros


def is_noisy(batch_size: int | None, constants: steps.Constants) -> bool:
    """Whether the clients' mean step can differ from a step for the mean: then a constant γ stalls."""
    return batch_size is not None or constants.omega > 0 or constants.n_clients > 1


def gradients_are_noisy(batch_size: int | None, constants: steps.Constants) -> bool:
    """Whether the mean of what clients send can differ from the gradient of f: then a constant γ stalls."""
    return batch_size is not None or constants.omega > 0 or constants.clients_per_round < constants.n_clients


def largest_local_step(constants: steps.Constants, local_steps: int, *, smoothness: float | None = None) -> float:
    """Return the largest constant step that is safe for clients that take local steps."""
    if local_steps == 1:
        return constants.largest_safe_step
    smoothness = constants.lipschitz_max if smoothness is None else smoothness
    return 2.0 / smoothness if smoothness > 0 else float("inf")


def choose_within(name: str, value: float | None, largest: float, bound: str) -> float:
    """Return a hyper-parameter, by default the largest that the theory allows; warn of a larger one."""
    if value is None:
        return largest
    # Bounds of ‖B‖² and L may be a few per cent above the truth: a user's own value of the bound is no mistake.
    if value > 1.1 * largest:
        warn(
            f"{name}={value:g} exceeds {bound}: the iterates may diverge; the largest safe {name} is {largest:.6g}",
            StepTooLargeWarning,
        )
    return value


def choose_lambda(lam: float | None, model: Model) -> float:
    """Return λ of the dual step of PDFP, by default 1/ρ_max(BBᵀ)."""
    return choose_within("lam", lam, model.largest_lambda, "1/ρ_max(BBᵀ)")


def constant_momentum(q: float) -> float:
    """Return (1 − √q)/(1 + √q), the momentum of gradient steps of length q/τ on what is strongly convex with τ.

    >>> constant_momentum(0.25)
    0.3333333333333333
    """
    root = math.sqrt(q)
    return (1.0 - root) / (1.0 + root)
