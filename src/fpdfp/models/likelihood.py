"""The log-likelihood of a model as a function of all its coefficients: Firth's estimates, and profile intervals.

Each evaluation is an exchange with all sites, who send the score and the information
(:class:`fpdfp.cohorts.losses.Informations`); with Firth's penalty a second one for the gradient of ½ log det I
(:class:`fpdfp.cohorts.losses.Jeffreys`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.losses import Informations, Jeffreys
from fpdfp.engines import Result
from fpdfp.engines.solve import run
from fpdfp.errors import ArgumentError, DivergenceError
from fpdfp.inference.estimability import find_alias
from fpdfp.inference.information import invert
from fpdfp.inference.intervals import quantile_of
from fpdfp.inference.table import format_number, format_p, text_table
from fpdfp.methods import ProximalNewton
from fpdfp.models.penalty import Firth
from fpdfp.penalties.base import Zero
from fpdfp.precondition.base import full
from fpdfp.problem import Certificate, Problem, Residual

if TYPE_CHECKING:
    from fpdfp.models.design import Design
    from fpdfp.models.fitting import Fitting
    from fpdfp.models.result import FitResult

#: A Newton step of this length, in standard errors, is the last.
SHORT = 1e-8
#: The most Newton steps to a maximum or to a limit, and the most times that a step is halved.
MOST, HALVINGS = 100, 30
#: A likelihood that is lower by this share of itself is so by rounding.
ROUNDING = 1e-11
#: Data whose deviance differs by more than this share are not the data of the fit.
OTHER = 1e-5
#: A limit that is this many standard errors away, while the likelihood is still too high, is infinite.
FAR = 1e3


class Place:
    """The log-likelihood at a point, with its gradient and its curvature in the coefficients that are free.

    Attributes
    ----------
    x, free
        The point, and which of its coefficients may change.
    value
        The log-likelihood, with half the logarithm of the determinant of the information for Firth's penalty.
    deviance
        Minus twice the log-likelihood without it.
    dispersion, df
        Pearson's estimate of the dispersion, and its degrees of freedom.
    information
        The information of all coefficients, times the dispersion.
    """

    def __init__(self, x: Array, free: Array, numbers: Array, score: Array, information: Array, ask: Any) -> None:
        self.x, self.free, self.information = x, free, information
        self._score, self._ask = score, ask
        rows, _, _, self.deviance, pearson = map(float, numbers)
        self.df = rows - len(free)
        self.dispersion = pearson / self.df if self.df > 0 else math.nan
        self.value = -0.5 * self.deviance
        if ask is not None:
            sign, logarithm = np.linalg.slogdet(information[np.ix_(free, free)])
            self.value += 0.5 * float(logarithm) if sign > 0 else -math.inf

    @functools.cached_property
    def score(self) -> Array:
        """The gradient, by an exchange of its own with Firth's penalty."""
        return self._score if self._ask is None else self._score + self._ask(self)


class Likelihood:
    """The log-likelihood of the problem of a model, without a penalty or with Firth's.

    Newton steps use the information and a symmetric rank-one correction from each pair of scores. With Firth's penalty
    or a link that is not canonical, the information is not minus the second derivative of the log-likelihood.

    Parameters
    ----------
    problem
        The losses of the model, as a problem; nothing else of it counts.
    firth
        Whether ½ log det I(x) is added, I the information: the penalty of D. Firth (1993), Jeffreys' prior.
    back, shift
        The coefficients that are meant here are a matrix times the sum of the problem's point and a shift.
    """

    def __init__(self, problem: Problem, *, firth: bool, back: Array | None = None, shift: Array | float = 0.0) -> None:
        self._clients, self._shape, self._firth = clients_of(problem), problem.losses.shape, firth
        size = math.prod(self._shape)
        self._inverse, self._shift = np.eye(size) if back is None else np.linalg.inv(back), shift
        self.free: Array = np.arange(size)
        self.exchanges = self.up = self.down = 0
        self._correction: Array = np.zeros((size, size))
        self._last: Place | None = None

    def at(self, x: Array) -> Place:
        """Return the log-likelihood at coefficients, by an exchange."""
        told = self._clients.ask(Informations(self._point(x), robust=False))
        self._count(told)
        score = self._inverse.T @ told.sums.score
        information = self._inverse.T @ full(told.sums.hessian) @ self._inverse
        return Place(x, self.free, told.sums.numbers, score, information, self._jeffreys if self._firth else None)

    def _jeffreys(self, place: Place) -> Array:
        """Return the gradient of ½ log det I."""
        square = np.ix_(place.free, place.free)
        inverse = np.zeros_like(place.information)
        inverse[square] = invert(place.information[square])
        told = self._clients.ask(Jeffreys(self._point(place.x), self._inverse @ inverse @ self._inverse.T))
        self._count(told)
        gradient: Array = self._inverse.T @ told.sums.gradient
        return gradient

    def _point(self, x: Array) -> Array:
        """Return coefficients as the problem has them."""
        point: Array = (self._inverse @ x - self._shift).reshape(self._shape)
        return point

    def _count(self, told: Any) -> None:
        self.exchanges, self.up, self.down = self.exchanges + 1, self.up + told.up, self.down + told.down

    def curvature(self, place: Place) -> Array:
        """Return minus the second derivative in the free coefficients, about; it is positive definite."""
        last = self._last
        if last is not None and last is not place:
            step = place.x - last.x
            middle = 0.5 * (last.information + place.information)
            error = last.score - place.score - middle @ step - self._correction @ step
            error[np.setdiff1d(np.arange(len(step)), place.free)] = 0.0
            length = float(error @ step)
            if abs(length) > 1e-8 * np.linalg.norm(error) * np.linalg.norm(step):
                self._correction += np.outer(error, error) / length
        self._last = place
        square = np.ix_(place.free, place.free)
        plain: Array = place.information[square]
        corrected: Array = plain + self._correction[square]
        scale = 1.0 / np.sqrt(np.maximum(np.diag(plain), 1e-300))
        least = np.linalg.eigvalsh(corrected * np.outer(scale, scale))[0]
        return corrected if least > 1e-3 * np.linalg.eigvalsh(plain * np.outer(scale, scale))[0] else plain

    def maximise(self, place: Place, *, fixed: Sequence[int] = ()) -> Place:
        """Return the maximum, from a place on, with some coefficients held."""
        for _ in range(MOST):
            moving = [k for k, j in enumerate(place.free.tolist()) if j not in fixed]
            if not moving:
                return place
            gradient = place.score[place.free][moving]
            step = np.linalg.solve(self.curvature(place)[np.ix_(moving, moving)], gradient)
            if float(gradient @ step) <= SHORT**2:
                return place
            found = self._move(place, place.free[moving], step, place.value - ROUNDING * (1.0 + abs(place.value)))
            if found is None:
                break
            place = found
        raise DivergenceError(f"the likelihood has no maximum that {MOST} Newton steps find")

    def _move(self, place: Place, which: Array, step: Array, least: float) -> Place | None:
        """Return the end of a step, halved until the likelihood is large enough; None if it never is."""
        for _ in range(HALVINGS):
            x = place.x.copy()
            x[which] += step
            found = self.at(x)
            if np.isfinite(found.value) and found.value >= least:
                return found
            step = step / 2.0
        return None

    def limit(self, top: Place, which: int, drop: float, side: int) -> float:
        """Return where the profile likelihood of a coefficient has dropped by an amount.

        Newton's method for both conditions at once, that the likelihood is at its level and the gradient in all other
        coefficients is zero (D. J. Venzon and S. H. Moolgavkar, 1988). Infinite where the level is never reached.
        """
        level, place = top.value - drop, top
        own = top.free.tolist().index(which)
        error = math.sqrt(drop * np.linalg.inv(self.curvature(top))[own, own])
        for _ in range(MOST):
            inverse = np.linalg.inv(self.curvature(place))
            gradient = place.score[place.free]
            excess = 2.0 * (place.value - level) + float(gradient @ inverse @ gradient)
            pull = np.zeros(len(gradient))
            pull[own] = side * math.sqrt(max(excess, 0.0) / inverse[own, own])
            step = inverse @ (gradient + pull)
            if float(step @ np.linalg.solve(inverse, step)) <= SHORT**2 * max(drop, 1.0):
                return float(place.x[which])
            found = self._move(place, place.free, step, level - drop)
            if found is None:
                break
            place = found
            if abs(place.x[which] - top.x[which]) > FAR * error:
                return side * math.inf
        raise DivergenceError(f"the profile likelihood did not lead to a limit in {MOST} Newton steps")


@dataclasses.dataclass(frozen=True)
class ProfileIntervals:
    """Intervals and tests of coefficients by the profile likelihood; ``print`` shows them.

    Attributes
    ----------
    names, coefficients
        Of the coefficients.
    lower, upper
        Between these the profile likelihood is at most so far below its maximum as the level says; infinite where it
        never is further below.
    statistics
        Those of likelihood ratio tests that each coefficient is 0.
    level, df
        Of the intervals, and the degrees of freedom of the dispersion; None without one.
    exchanges, bits_up, bits_down
        What was asked of the sites.
    """

    names: tuple[str, ...]
    coefficients: Array
    lower: Array
    upper: Array
    statistics: Array
    level: float
    df: float | None
    exchanges: int
    bits_up: int
    bits_down: int

    @property
    def p_values(self) -> Array:
        """Those of the likelihood ratio tests."""
        from scipy import stats

        sizes = self.statistics
        found: Array = stats.chi2.sf(sizes, 1) if self.df is None else stats.f.sf(sizes, 1, self.df)
        return found

    def frame(self) -> Any:
        """Return a data frame of pandas with a row for each coefficient."""
        import pandas

        columns = {
            "coefficient": self.coefficients, "lower": self.lower, "upper": self.upper, "statistic": self.statistics,
            "p": self.p_values,
        }  # fmt: skip
        return pandas.DataFrame(columns, index=pandas.Index(list(self.names), name="name"))

    def __str__(self) -> str:
        tail = 50.0 * (1.0 - self.level)
        grid = [["", "coefficient", f"{tail:.6g} %", f"{100.0 - tail:.6g} %", "p"]]
        columns = zip(self.names, self.coefficients, self.lower, self.upper, self.p_values, strict=True)
        grid += [[name, *map(format_number, numbers), format_p(p)] for name, *numbers, p in columns]
        return text_table(grid, [f"profile likelihood, {self.exchanges} exchanges"])

    __repr__ = __str__


class FirthSearch:
    """Firth's estimates: the maximum of ℓ(x) + ½ log det I(x), which is finite where outcomes are separated.

    x ← x + (I + C)⁻¹ (∇ℓ + ∇½ log det I), with C a correction of the curvature (:class:`Likelihood`), from the end of
    one round of the model's own fit. Columns that others determine keep zero.

    References
    ----------
    D. Firth, "Bias reduction of maximum likelihood estimates", Biometrika 80 (1993); G. Heinze and M. Schemper, "A
    solution to the problem of separation in logistic regression", Statistics in Medicine 21 (2002), and "A solution to
    the problem of monotone likelihood in Cox regression", Biometrics 57 (2001).
    """

    name = "Firth's penalty"

    def alternate(
        self, fitting: Fitting, problem: Problem, method: Any, rebuild: Callable[[], Problem]
    ) -> tuple[Result, Problem]:
        """Return the fit and its problem."""
        options = fitting.settings.options
        begun = run(
            problem, ProximalNewton(),
            dataclasses.replace(options, rounds=1, tol=None, callbacks=[*options.callbacks, fitting.iterates]),
        )  # fmt: skip
        likelihood = Likelihood(problem, firth=True)
        start = np.zeros(begun.x.size)
        alias = find_alias(likelihood.at(start).information, list(range(len(start))))
        likelihood.free = np.arange(len(start)) if alias is None else alias.kept
        moved = begun.x.astype(np.float64).ravel() if alias is None else alias.move(begun.x.astype(np.float64).ravel())
        place = likelihood.maximise(likelihood.at(moved))
        fitting.up, fitting.down = fitting.up + likelihood.up, fitting.down + likelihood.down
        objective = place.deviance / (2.0 * float(problem.losses.sizes.sum()))
        size = float(np.linalg.norm(place.score[place.free]))
        certificate = Certificate(
            objective, None, Residual(size, 0.0), 0.0, np.zeros_like(begun.x), max(objective, 1.0)
        )
        result = dataclasses.replace(
            begun, x=place.x.reshape(begun.x.shape), _v=None, objective=objective, status="converged",
            message="the penalised score is zero up to rounding", _certify=certificate,
        )  # fmt: skip
        return result, problem


def profile_intervals(
    fit: FitResult, design: Design, names: Sequence[str] | None, level: float
) -> ProfileIntervals:  # fmt: skip
    """Return the intervals of the profile likelihood of a fit, from the design of the same data."""
    family, outcome = fit.outcome.likelihood, fit.outcome
    if family is None or not family.is_likelihood or fit.variances is not None:
        raise ArgumentError("model", "must have a likelihood for profile intervals")
    if fit.refusal is not None:
        raise ArgumentError("model", "must be fitted without a penalty (Firth's apart) or bounds for profile intervals")
    every, values = fit.outcome.names_of(fit), outcome.values(fit)
    free = np.array([j for j, name in enumerate(every) if name not in fit.aliased])
    known = [every[j] for j in free]
    wanted = [every[j] for j in sorted(free, key=outcome.order(every).index)] if names is None else list(names)
    for name in wanted:
        if name not in known:
            raise ArgumentError("names", f"must be names of coefficients ({', '.join(known)}), got {name!r}")
    back = outcome.back(design.columns, design.scaled)
    assert back is not None
    if len(back) != len(values):
        raise ArgumentError("X", "must be the data of the fit, but has other columns")
    losses = design.build(outcome, np.zeros(design.columns.of_rows))
    likelihood = Likelihood(
        Problem(losses, Zero(), weights="samples"), firth=isinstance(fit.penalty, Firth), back=back,
        shift=outcome.shift(design.columns),
    )  # fmt: skip
    likelihood.free = free
    here = likelihood.at(values)
    if abs(here.deviance - fit.deviance) > OTHER * (1.0 + abs(fit.deviance)):
        told = f"the deviance is {here.deviance:.7g}, and not {fit.deviance:.7g}"
        raise ArgumentError("X", f"must be the data of the fit: {told}")
    top = likelihood.maximise(here)
    df, dispersion = (top.df, top.dispersion) if family.has_dispersion else (None, 1.0)
    drop = 0.5 * dispersion * quantile_of(level, df) ** 2
    rows = []
    for name in wanted:
        which = every.index(name)
        ends = [likelihood.limit(top, which, drop, side) for side in (-1, 1)]
        start = top.x.copy()
        inverse = np.linalg.inv(likelihood.curvature(top))
        start[free] -= top.x[which] * inverse[:, known.index(name)] / inverse[known.index(name), known.index(name)]
        start[which] = 0.0
        null = likelihood.maximise(likelihood.at(start), fixed=[which])
        rows.append((float(top.x[which]), *ends, max(2.0 * (top.value - null.value), 0.0) / dispersion))
    best, lower, upper, statistics = np.array(rows).reshape(-1, 4).T
    return ProfileIntervals(
        tuple(wanted), best, lower, upper, statistics, level, df, likelihood.exchanges, likelihood.up, likelihood.down
    )


def check_firth(outcome: Any, *, random: bool, method: Any, bounds: Any) -> None:
    """Refuse Firth's penalty for models that it is not available for, and with settings that do not go with it."""
    family = outcome.likelihood
    known = family is not None and (family.name, family.link) in (
        ("binomial", "logit"), ("poisson", "log"), ("Cox", "log"),
    )  # fmt: skip
    if not known:
        raise ArgumentError("penalty", "must not be Firth's, which is for logistic, Poisson (log link) and Cox models")
    for name, given in (("method", method), ("bounds", bounds)):
        if given is not None:
            raise ArgumentError(name, "must be None with Firth's penalty")
    if random:
        raise ArgumentError("site_effects", "must not be random with Firth's penalty")
