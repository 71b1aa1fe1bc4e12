"""Step-size schedules γ_0, γ_1, … and the automatic choice."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Literal, NamedTuple, TypeAlias

from fpdfp import _checks
from fpdfp._numbers import round_up
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError


class Schedule(abc.ABC):
    """A sequence of step sizes: ``schedule(k)`` is the step γ_k of round k = 0, 1, …."""

    @abc.abstractmethod
    def __call__(self, k: int) -> float:
        """Return γ_k."""


@dataclasses.dataclass(frozen=True)
class Constant(Schedule):
    """γ_k = γ.

    >>> Constant(0.1)(1000)
    0.1
    """

    gamma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", _checks.real("gamma", self.gamma, positive=True))

    def __call__(self, k: int) -> float:
        return self.gamma


@dataclasses.dataclass(frozen=True)
class Decreasing(Schedule):
    """γ_k = γ_0 / (1 + c k)^p, with p = 1 unless said otherwise.

    For c > 0 and ½ < p ≤ 1 the steps have an infinite sum and a finite sum of squares, as Theorem 1 asks.

    >>> Decreasing(2.0, 0.01)(100)
    1.0
    """

    gamma0: float
    c: float
    power: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma0", _checks.real("gamma0", self.gamma0, positive=True))
        object.__setattr__(self, "c", _checks.real("c", self.c, at_least=0.0))
        power = _checks.real("power", self.power, positive=True)
        if power > 1:
            raise ArgumentError("power", f"must be at most 1, or the steps have a finite sum; got {power:g}")
        object.__setattr__(self, "power", power)

    def __call__(self, k: int) -> float:
        return float(self.gamma0 / (1.0 + self.c * k) ** self.power)


@dataclasses.dataclass(frozen=True)
class Theorem2(Schedule):
    """γ_k = 2 / (D₁k + 1), the schedule of the paper's Theorem 2, with 0 < D₁ < 2μ.

    >>> Theorem2(0.5)(2)
    1.0
    """

    d1: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "d1", _checks.real("d1", self.d1, positive=True))

    def __call__(self, k: int) -> float:
        return 2.0 / (self.d1 * k + 1.0)


@dataclasses.dataclass(frozen=True)
class Automatic(Schedule):
    """γ_k = γ_0 / max(1 + γ_0 μ k/2, (1 + k/500)^⅔), what ``"auto"`` chooses where there is noise.

    The first is the schedule of Theorem 2 with D₁ = μ, started at γ_0; on ill-conditioned problems it hardly
    falls within any run, and the second, which satisfies Theorem 1, takes over.

    >>> Automatic(0.5, 0.1)(0), Automatic(0.5, 0.1)(400)
    (0.5, 0.045454545454545456)
    """

    gamma0: float
    strong_convexity: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma0", _checks.real("gamma0", self.gamma0, positive=True))
        mu = _checks.real("strong_convexity", self.strong_convexity, at_least=0.0)
        object.__setattr__(self, "strong_convexity", mu)

    def __call__(self, k: int) -> float:
        theorem2 = 1.0 + 0.5 * self.gamma0 * self.strong_convexity * k
        return float(self.gamma0 / max(theorem2, (1.0 + k / 500.0) ** (2.0 / 3.0)))


#: What a user may give for a step: a number, a schedule, or ``"auto"``.
Step: TypeAlias = float | Schedule | Literal["auto"]


class Drawn(NamedTuple):
    """The effect of unequal probabilities p_i on steps.

    Attributes
    ----------
    excess
        The largest L_i (2(1 − p_i) + ω)/(N p_i): what drawing and compression add to the smoothness in the mean square.
    spread
        Σ L_i²/(N p_i) / Σ L_i, which is the ``client_spread`` divided by n where clients are drawn uniformly.
    wait
        Σ (L_i/p_i) / Σ L_i: after how many rounds a client takes part again, in the mean by Lipschitz constants.
    """

    excess: float
    spread: float
    wait: float

    @classmethod
    def by(cls, probabilities: Array, lipschitz: Array, omega: float) -> Drawn:
        """Return what follows from p_i, L_i and ω."""
        share = 1.0 / (len(lipschitz) * probabilities)
        excess = float((lipschitz * (2.0 * (1.0 - probabilities) + omega) * share).max())
        total = float(lipschitz.sum()) or 1.0
        spread, wait = float((lipschitz**2 * share).sum()) / total, float((lipschitz / probabilities).sum()) / total
        return cls(round_up(excess), round_up(spread), round_up(wait))


class Constants(NamedTuple):
    """The constants from which a step is chosen; clients send their part once.

    Attributes
    ----------
    lipschitz_mean, lipschitz_max
        Mean and maximum of the clients' Lipschitz constants.
    lipschitz_rms
        Root mean square of the clients' Lipschitz constants.
    strong_convexity
        μ, or 0 where none is known.
    n_clients, clients_per_round
        N and n.
    omega
        The compressor's variance bound: E‖Q(x) − x‖² ≤ ω‖x‖²; 0 without one.
    typical_omega
        The same for typical instead of the worst x.
    client_spread
        Σ L_i²/Σ L_i over clients: what a client's constant is where clients are drawn by how much they matter.
    downlink_omega
        The typical relative error of the server's messages; 0 where they are exact.
    unbiased
        Whether what the server decodes has the right mean.
    least_convexity
        The mean over clients of the constants with which N w_i f_i are strongly convex; 0 where none are known.
    batch_smoothness
        What mini-batches add to the smoothness of a client's gradient in the mean square; 0 for full gradients.
    own_lipschitz_max
        Maximum of the clients' Lipschitz constants, each with the sum of all weights instead of N times its own.
    drawn
        What follows from unequal probabilities; None where clients are drawn uniformly.
    """

    lipschitz_mean: float
    lipschitz_max: float
    strong_convexity: float
    n_clients: int
    clients_per_round: int
    omega: float
    batch_smoothness: float
    own_lipschitz_max: float
    typical_omega: float
    least_convexity: float
    unbiased: bool
    client_spread: float
    lipschitz_rms: float
    downlink_omega: float = 0.0
    drawn: Drawn | None = None

    @property
    def largest_safe_step(self) -> float:
        """2/L: with a larger constant step PDFP need not converge even without noise."""
        return 2.0 / self.lipschitz_mean if self.lipschitz_mean > 0 else float("inf")

    @property
    def noisy_smoothness(self) -> float:
        """The smoothness constant that a mean over n of N clients, each compressed, has in the mean square.

        (N(n − 1) L + (N − n) L_max) / (n(N − 1)) is the expected smoothness of uniform sampling (R. M. Gower
        et al., "SGD: general analysis and improved rates", ICML 2019), mini-batches add their own part divided
        by n, and compression adds ω/n times the largest of a client. For unequal probabilities see
        ``docs/mathematics.md``.
        """
        if self.drawn is not None:
            batches = (1.0 + self.omega) * self.batch_smoothness / self.clients_per_round
            return self.lipschitz_mean + self.drawn.excess + batches
        count, n = self.n_clients, self.clients_per_round
        sampled = self.lipschitz_mean
        if n < count:
            sampled = (count * (n - 1) * self.lipschitz_mean + (count - n) * self.lipschitz_max) / (n * (count - 1))
        return sampled + (self.batch_smoothness + self.omega * (self.lipschitz_max + self.batch_smoothness)) / n


def check(step: Any, *, constant: bool = False) -> Step:
    """Return what a user gave for a step: a schedule, a positive number, or ``"auto"``; a constant one where asked."""
    accepted = "a number greater than 0" + ("" if constant else ", a schedule of fpdfp.steps") + " or 'auto'"
    if isinstance(step, Constant) or (isinstance(step, Schedule) and not constant):
        return step
    if isinstance(step, str) and step == "auto":
        return "auto"
    if isinstance(step, str | Schedule | type) or not hasattr(step, "__float__"):
        shown = repr(step) if isinstance(step, str | Schedule) else _checks.kind(step)
        raise (ValueError if isinstance(step, str | Schedule) else TypeError)(f"step must be {accepted}, got {shown}")
    return _checks.real("step", step, positive=True)


def resolve(
    step: Step, constants: Constants, *, noisy: bool, local_steps: int = 1, local_smoothness: float = 0.0
) -> Schedule:
    """Return the schedule for what a user gave: a schedule, a number, or ``"auto"``.

    ``"auto"`` without noise is the constant 1/L. With noise (quantization, mini-batches, partial
    participation, or clients that differ) it is :class:`Automatic` from 1.5/L', with L' from
    ``noisy_smoothness``.

    With τ > 1 local steps a client that continues alone needs a step of at most 1/L_i. The noise of a round acts
    on τ steps at once. So γ_0 = 1/(L_loc + τ(L' − L)), with ``local_smoothness`` the largest smoothness L_loc of
    what a client minimises, and what is meant to fall with the rounds falls τ times as fast.
    """
    step = check(step)
    if isinstance(step, Schedule):
        return step
    if step != "auto":
        return Constant(step)
    if local_steps > 1:
        excess = constants.noisy_smoothness - constants.lipschitz_mean if noisy else 0.0
        gamma0 = 1.0 / ((local_smoothness or 1.0) + local_steps * excess)
        return Automatic(gamma0, local_steps * constants.strong_convexity) if noisy else Constant(gamma0)
    if not noisy:
        return Constant(1.0 / (constants.lipschitz_mean or 1.0))
    return Automatic(1.5 / (constants.noisy_smoothness or 1.0), constants.strong_convexity)


def resolve_constant(step: Step, automatic: float) -> Constant:
    """Return the constant step for what a user gave: a number or ``"auto"``."""
    step = check(step, constant=True)
    if isinstance(step, Constant):
        return step
    return Constant(automatic if isinstance(step, str) else float(step))  # type: ignore[arg-type]


def shift_step(typical: float, bound: float) -> float:
    """Return how much of a decoded difference is added to a shift: 1/(1 + ω̂), at most 1.5/(1 + ω).

    ω̂ is the typical relative error of an unbiased compressor, ω its bound. Below 2/(1 + ω) a shift comes nearer in the
    mean square whatever is sent, and 1/(1 + ω̂) is best for what usually is.

    >>> shift_step(0.0, 0.0), shift_step(0.25, 2.0)
    (1.0, 0.5)
    """
    return min(1.0 / (1.0 + typical), 1.5 / (1.0 + bound))
