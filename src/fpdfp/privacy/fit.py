r"""Models from noisy sums: Newton steps, sufficient statistics, proximal gradients, and intervals.

All of them minimise (1/n) Σ ℓ(⟨a_i, x⟩, y_i) + ½ ridge ‖x‖² + g(Bx). They see the data through :class:`Release` alone,
so ridge, penalty and constraints cost no privacy. Matrices with noise are made positive: eigenvalues are raised to
the edge of the noise's spectrum, σ√(2d).

=================  ===================================================================================
``newton``         Σaaᵀ (a tenth of μ²), one weighted Hessian midway (a fifth), gradients (the rest)
``statistics``     Σaaᵀ and Σya once; every penalty after that is free
``gradients``      one gradient a round; for many features
=================  ===================================================================================
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fpdfp import linops
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.linops import LinOp
from fpdfp.penalties.base import Penalty, Zero
from fpdfp.privacy.accounting import Spent, epsilon_of
from fpdfp.privacy.releases import LongRows, Loss, Release, full_matrix
from fpdfp.problem import Model
from fpdfp.quadratic.solve import minimise, needs_inner
from fpdfp.quadratic.statement import Distance, InnerSolve, Quadratic

#: Shares of μ² for Σaaᵀ and for the weighted Hessian; the gradients have the rest.
MOMENTS, HESSIAN = 0.1, 0.2
#: The fewest and most Newton steps and gradient rounds.
STEPS, ROUNDS = (2, 8), (5, 200)
#: By how much the step of noisy gradients is longer than 1/L with L a bound from the radius.
SPEED = 3.0
#: The range of ⟨a, x⟩ on which a parabola is fitted to the logistic loss.
RANGE = 4.0
#: How accurately penalised quadratics are minimised.
EXACT = InnerSolve(1e-9, 100_000)
#: Intervals need eigenvalues of the Hessian this many times above the edge of its noise.
CLEAR = 4.0


class NoisySum(NamedTuple):
    """A sum over sites as it was sent, and the standard deviation of the noise in each entry."""

    values: Array
    deviation: float


Ask = Callable[[Release], NoisySum]


@dataclasses.dataclass(frozen=True)
class PrivateFit:
    """A model from noisy sums.

    Attributes
    ----------
    x
        The coefficients.
    privacy
        What they cost.
    covariance
        Of the coefficients, with the noise counted; None where the noise dominates, or with a ridge or a penalty.
    """

    x: Array
    privacy: Spent
    covariance: Array | None
    reason: str = ""

    def intervals(self, level: float = 0.95) -> Array:
        """Return the lower and upper ends of intervals, one row a coefficient; refuse where they would be wrong."""
        from scipy.stats import norm

        if not 0 < level < 1:
            raise ArgumentError("level", f"must be between 0 and 1, got {level}")
        if self.covariance is None:
            raise RuntimeError(f"intervals are not available: {self.reason}")
        reach = norm.ppf((1 + level) / 2) * np.sqrt(np.diag(self.covariance))
        return np.column_stack([self.x - reach, self.x + reach])


@dataclasses.dataclass(frozen=True)
class Goal:
    """The objective of a private fit, and its public parts.

    Parameters
    ----------
    rows
        The number of rows over all sites, declared or bought.
    features
        The number of columns.
    radius
        The length of the longest row that counts.
    mu, delta
        The price that may be paid, and the δ at which its ε is reported.
    ridge
        The weight of ½‖x‖².
    penalty, linop
        g and B; by default none and the identity.
    loss, long_rows
        As in :class:`Release`.
    outcome
        The centre and the scale of outcomes with squares; the model is of outcomes less the one, by the other.
    """

    rows: float
    features: int
    radius: float
    mu: float
    delta: float
    ridge: float = 0.0
    penalty: Penalty | None = None
    linop: LinOp | None = None
    loss: Loss = "logistic"
    long_rows: LongRows = "drop"
    outcome: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        for name in ("rows", "radius", "mu"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ArgumentError(name, f"must be positive, got {getattr(self, name)}")
        if not (math.isfinite(self.ridge) and self.ridge >= 0):
            raise ArgumentError("ridge", f"must not be negative, got {self.ridge}")

    @property
    def signal(self) -> float:
        """The signal in the noise: n μ/(10 √d)."""
        return self.rows * self.mu / (10 * math.sqrt(self.features))

    @property
    def steps(self) -> int:
        """How many Newton steps the budget pays for: log₂ of the signal and 1, at most 8; fewer than 3 do not pay."""
        return min(round(math.log2(max(self.signal, 1.0))) + 1, STEPS[1])

    def release(self, kind: Any, share: float, x: Array | None = None) -> Release:
        """Return a release that costs a share of μ²."""
        return Release(kind, self.mu * math.sqrt(share), self.loss, self.long_rows, x, *self.outcome)

    def minimise(self, hessian: Array, slope: Array, centre: Array) -> Array:
        """Return where the quadratic ½(u − c)ᵀH(u − c) + ⟨s, u − c⟩ of sums over rows plus all penalties is least."""
        ridge = self.rows * self.ridge
        matrix = (hessian + ridge * np.eye(len(centre))) / self.rows
        linear = (slope + ridge * centre) / self.rows
        if self.penalty is None:
            solved: Array = centre - np.linalg.solve(matrix, linear)
            return solved
        model = self._model()
        q = Quadratic(matrix, centre, linear)
        return minimise(model, q, np.zeros(model.dual_shape), EXACT).u

    def prox(self, y: Array, t: float) -> Array:
        """Return the prox of t g∘B at y."""
        if self.penalty is None:
            return y
        model = self._model()
        inner = EXACT if needs_inner(model) else None
        v = np.zeros(model.dual_shape)
        return minimise(model, Distance(y[None], t), v[None], inner).u[0] if inner else minimise(
            model, Distance(y, t), v, None
        ).u  # fmt: skip

    def _model(self) -> Model:
        linop = self.linop or linops.Identity((self.features,))
        penalty = (self.penalty or Zero()).bind(linop.out_shape)
        return Model(penalty, linop, (self.features,), np.dtype(np.float64))


def positive(matrix: Array, deviation: float) -> tuple[Array, float]:
    """Return a noisy matrix with eigenvalues at least at the edge of the noise's spectrum, and the least one before.

    Entries off the diagonal have noise of the standard deviation σ/√2, so the spectrum of the noise ends at σ√(2d).
    """
    values, vectors = np.linalg.eigh(matrix)
    edge = deviation * math.sqrt(2 * len(matrix))
    raised = (vectors * np.maximum(values, edge)) @ vectors.T
    return (raised + raised.T) / 2, float(values[0]) / max(edge, 1e-300)


def newton(ask: Ask, goal: Goal, steps: int | None = None) -> PrivateFit:
    """Take noisy Newton steps for a logistic loss.

    With H₁ = ¼Σaaᵀ and, from step K/2 on, H₂ the weighted Hessian there, both with noise and made positive::

        x ← argmin_u ⟨g(x), u⟩ + ½ (u − x)ᵀH(u − x) + n (½ ridge ‖u‖² + penalty(Bu)),   g(x) the noisy gradient

    K = clip(log₂(nμ/10√d) + 1, 2, 8) by default (:attr:`Goal.steps`). Standard errors come from H₂⁻¹ + σ²H₂⁻², σ the
    noise of the last gradient.

    Parameters
    ----------
    ask
        Asks the sites for a release.
    goal
        What is minimised.
    steps
        K.
    """
    if goal.loss != "logistic":
        raise ArgumentError("loss", f"must be 'logistic' for Newton steps, got {goal.loss!r}; use statistics")
    if steps is None:
        steps = max(goal.steps, STEPS[0])
    if steps < STEPS[0]:
        raise ArgumentError("steps", f"must be at least {STEPS[0]}, got {steps}")
    asked = _Asked(ask)
    half, share = max(1, steps // 2), (1 - MOMENTS - HESSIAN) / steps
    moments = asked(goal.release("moments", MOMENTS))
    hessian, clear = positive(full_matrix(moments.values, goal.features), moments.deviation)
    hessian, x, deviation = hessian / 4, np.zeros(goal.features), 0.0
    for k in range(steps):
        if k == half:
            weighted = asked(goal.release("hessian", HESSIAN, x))
            hessian, clear = positive(full_matrix(weighted.values, goal.features), weighted.deviation)
        gradient = asked(goal.release("gradient", share, x))
        x, deviation = goal.minimise(hessian, gradient.values, x), gradient.deviation
    privacy = asked.spent(goal)
    if goal.ridge or goal.penalty is not None or goal.long_rows == "scale":
        return PrivateFit(x, privacy, None, "they are for models without ridge, penalty and scaled rows")
    if clear < CLEAR:
        reason = f"the noise dominates: the least eigenvalue of the Hessian is {clear:.2g} times the edge of its noise"
        return PrivateFit(x, privacy, None, f"{reason}, and must be {CLEAR:g} times. Use more rows or a larger budget")
    inverse = np.linalg.inv(hessian)
    return PrivateFit(x, privacy, inverse + deviation**2 * inverse @ inverse)


def statistics(ask: Ask, goal: Goal) -> Callable[..., PrivateFit]:
    """Release sufficient statistics once; return a function of ridge, penalty and linop, each call of which is free.

    Squares are fitted unchanged. For a logistic loss log(1 + exp(−z)) ≈ c₀ + c₁z + c₂z² on [−4, 4] (least squares).

    Parameters
    ----------
    ask
        Asks the sites for a release.
    goal
        What is minimised; its ridge, penalty and linop are as in a call without any.
    """
    asked, d = _Asked(ask), goal.features
    found = asked(goal.release("statistics", 1.0))
    privacy = asked.spent(goal)
    triangle = d * (d + 1) // 2
    if goal.loss == "squares":
        joint = full_matrix(found.values, d + 1)
        hessian, slope = positive(joint[:d, :d], found.deviation)[0], -joint[:d, d]
    else:
        constant, linear, square = _parabola()
        del constant
        moments = positive(full_matrix(found.values[:triangle], d), found.deviation)[0]
        hessian, slope = 2 * square * moments, linear * found.values[triangle:] / goal.radius

    def fit(
        ridge: float = goal.ridge, penalty: Penalty | None = goal.penalty, linop: LinOp | None = goal.linop
    ) -> PrivateFit:
        """Return the model for a ridge and a penalty."""
        chosen = dataclasses.replace(goal, ridge=ridge, penalty=penalty, linop=linop)
        x = chosen.minimise(hessian, slope, np.zeros(d))
        return PrivateFit(x, privacy, None, "they need three Newton steps or more, which release gradients")

    return fit


def gradients(ask: Ask, goal: Goal, rounds: int | None = None) -> PrivateFit:
    """Take noisy proximal gradient steps for a logistic loss; return the mean of the second half of them.

    ::

        x ← prox_{tg}(x − t (g(x)/n + ridge x)),   1/t = R²/12 + ridge

    T = clip(nμ/10√d, 5, 200) by default.
    """
    if goal.loss != "logistic":
        raise ArgumentError("loss", f"must be 'logistic' for gradients, got {goal.loss!r}; use statistics")
    if rounds is None:
        rounds = int(np.clip(goal.signal, *ROUNDS))
    asked, x, total = _Asked(ask), np.zeros(goal.features), np.zeros(goal.features)
    t = 1 / (goal.radius**2 / 4 / SPEED + goal.ridge)
    for k in range(rounds):
        gradient = asked(goal.release("gradient", 1 / rounds, x)).values / goal.rows + goal.ridge * x
        x = goal.prox(x - t * gradient, t)
        total += x if k >= rounds // 2 else 0.0
    mean = total / (rounds - rounds // 2)
    return PrivateFit(mean, asked.spent(goal), None, "they need Newton steps, which release a Hessian")


class _Asked:
    """Asks, and remembers what was released."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._releases: list[tuple[str, float]] = []

    def __call__(self, release: Release) -> NoisySum:
        found = self._ask(release)
        self._releases.append((release.kind, release.mu))
        return found

    def spent(self, goal: Goal) -> Spent:
        mu = math.sqrt(math.fsum(one**2 for _, one in self._releases))
        return Spent(epsilon_of(mu, goal.delta), goal.delta, mu, tuple(self._releases))


def _parabola() -> Array:
    """Return c of the least-squares fit c₀ + c₁z + c₂z² of log(1 + exp(−z))."""
    z = np.linspace(-RANGE, RANGE, 401)
    powers = np.column_stack([np.ones_like(z), z, z**2])
    coefficients: Array = np.linalg.lstsq(powers, np.logaddexp(0, -z), rcond=None)[0]
    return coefficients
