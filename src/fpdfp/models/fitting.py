"""The way of every fit: from a design and settings through one run, or several, to a result.

At the end are parameters of a family that are found together with the coefficients: θ of the negative binomial family,
and the width of smoothed quantiles.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.losses import Informations, Overdispersions, Spread
from fpdfp.cohorts.question import Each, Question, Total
from fpdfp.engines import Result
from fpdfp.engines.choice import MOST_COEFFICIENTS, choose_method, suits_newton
from fpdfp.engines.loop import Iterates
from fpdfp.engines.prepare import RunOptions
from fpdfp.engines.solve import run
from fpdfp.errors import ArgumentError, DataWarning, RefusalError, SeparationError
from fpdfp.families import Family, NegativeBinomial, Poisson, Quantile
from fpdfp.families.base import link_of
from fpdfp.inference import PENALISED, Information
from fpdfp.inference.estimability import FAR, NOTHING, Alias, find_alias, newton_step
from fpdfp.losses.base import InformationSums
from fpdfp.methods import ProximalNewton
from fpdfp.methods.base import Method
from fpdfp.models import random_effects
from fpdfp.models.design import Design, Settings
from fpdfp.models.likelihood import FirthSearch, check_firth
from fpdfp.models.outcomes import Hazards
from fpdfp.models.penalty import SETTLED, STEPS, Concave, Details, Firth, Structure, find_limits
from fpdfp.models.result import BOUNDED, FitResult
from fpdfp.penalties import L1
from fpdfp.penalties.base import Zero
from fpdfp.precondition.base import full
from fpdfp.problem import Problem
from fpdfp.traffic import count_exchange, for_purpose

#: The part of a deviance by which that of the intercept alone may be above the least.
LEFT = 1e-12
#: Families whose likelihood may grow for ever.
GROWING = (
    "binomial",
    "poisson",
    "quasi-binomial",
    "quasi-poisson",
    "negative binomial",
    "multinomial",
    "ordinal",
    "Cox",
)


class Search(Protocol):
    """Finds a parameter of the family together with the coefficients; the fit counts what that takes."""

    def alternate(
        self, fitting: Fitting, problem: Problem, method: Any, rebuild: Callable[[], Problem]
    ) -> tuple[Result, Problem]:
        """Return the fit and its problem; ``rebuild`` makes the problem of the outcome that ``fitting`` has by then."""


def why_not(settings: Settings) -> str | None:
    """Return why standard errors are missing; None if they are possible."""
    return PENALISED if settings.penalty.penalises else BOUNDED if settings.bounds is not None else None


def is_plain(settings: Settings, coefficients: int, sites: int) -> bool:
    """Whether a fit is plain maximum likelihood, whose standard errors are wanted, with nothing said against it."""
    plain = settings.method is None and not settings.penalty.penalises and settings.inference is not False
    return plain and not settings.selecting and suits_newton(coefficients, sites, settings.options)


def fit_design(
    design: Design, settings: Settings, *, search: Search | None = None, details: Details | None = None,
    start: Array | None = None, absorb: bool = False, note: Callable[[Any], None] | None = None,
) -> FitResult:  # fmt: skip
    """Return the fit of a design.

    Parameters
    ----------
    design, settings
        What is fitted, and how.
    search
        Finds a parameter of the family besides the coefficients.
    details
        What the penalty needs of the design, where it is known already.
    start
        Where the run starts; by default where ``settings`` say.
    absorb
        Whether the ridge of columns is a part of the penalty, of which sites receive nothing.
    note
        Called with the engine of the run after it, in a federation.
    """
    return Fitting(design, settings, search).fit(details, start, absorb=absorb, note=note)


class Fitting:
    """A fit under way.

    Attributes
    ----------
    outcome
        The outcome, whose family a search changes.
    rounds, up, down
        The rounds of all runs, and the bits of these and of all that was asked.
    """

    def __init__(self, design: Design, settings: Settings, search: Search | None = None) -> None:
        self.design, self.settings, self.outcome = design, settings, design.outcome
        self.iterates = Iterates()
        self.steps = self.rounds = self.up = self.down = 0
        if isinstance(settings.penalty, Firth):
            check_firth(
                self.outcome, random=design.columns.random, method=settings.method, bounds=settings.bounds
            )  # fmt: skip
            search = FirthSearch()
        self._search = search
        self._variances: random_effects.Variances | None = None

    def fit(
        self, details: Details | None, start: Array | None, *, absorb: bool, note: Callable[[Any], None] | None
    ) -> FitResult:
        """Minimise, request what standard errors need, and return the result."""
        design, settings = self.design, self.settings
        if details is None:
            details = design.details(settings.penalty, progress=settings.options.progress)
        structure = settings.penalty.build(design.columns, details)
        if absorb:
            structure = structure.restrain(design.columns, None, absorb=True)
        problem, result = self._minimise(structure, design.start(settings.start) if start is None else start)
        engine = getattr(problem.losses, "engine", None)
        if note is not None and engine is not None:
            note(engine)
        rows, x = int(problem.losses.sizes.sum()), result.x
        image = problem.penalty.project(problem.linop.apply(x))
        penalised = problem.penalty.value(image) + design.columns.square(structure.ridge, x) / 2.0
        coefficients = self.outcome.take(x, design.columns, design.scaled, design.within(settings.bounds))
        found = FitResult(
            title=settings.title, outcome=self.outcome, names=design.names, named=design.named, sites=design.sites,
            rows=design.rows, left_out=design.left_out, formula=design.formula, plan=design.plan,
            coef=coefficients.coef, intercept=coefficients.intercept, effects=coefficients.effects,
            thresholds=coefficients.thresholds, has_intercept=design.columns.intercept, penalty=settings.penalty,
            refusal=why_not(settings), graph=details.graph, status=result.status, run=result, iterates=self.iterates,
            columns=design.columns, scaled=design.scaled, limits=find_limits(settings.bounds, design.names),
            ridge=structure.ridge,
            deviance=2.0 * rows * (result.objective - penalised), variances=self._variances,
            run_folder=getattr(engine, "run_folder", None), options=settings.options,
            standardized=settings.standardize,
        )  # fmt: skip
        found = self._ask(problem, found) if self.outcome.has_information else self._look_at_classes(problem, found)
        return dataclasses.replace(
            found, n_iter=self.rounds, n_steps=self.steps, bits_up=self.up + design.up,
            bits_down=self.down + design.down,
        )  # fmt: skip

    def ask(self, problem: Problem, question: Question, purpose: str) -> Any:
        """Return the sums of all clients, asked for a purpose; count the bits."""
        with for_purpose(purpose):
            told = clients_of(problem).ask(question)
        self._count(told)
        return told.sums

    def _count(self, told: Total | Each) -> None:
        self.up, self.down = self.up + told.up, self.down + told.down

    def count_run(self, result: Result) -> None:
        """Count a run."""
        self.rounds += result.rounds
        self.up, self.down = self.up + result.total_up, self.down + result.total_down

    # The runs.

    def _minimise(self, structure: Structure, x0: Array | None) -> tuple[Problem, Result]:
        """Minimise the losses of the design plus a structure, in one run or in several that follow from each other."""
        design, settings = self.design, self.settings
        limits = design.limits(settings.bounds)
        losses = [design.build(self.outcome, structure.ridge)]
        count_exchange("facts")

        def problem_of(penalised: Structure, ridge: float = 0.0) -> Problem:
            restrained = penalised.restrain(design.columns, limits, ridge)
            return Problem(losses[0], restrained.penalty, restrained.linop, weights="samples")

        def rebuild() -> Problem:
            losses[0] = design.build(self.outcome, structure.ridge)  # of another family
            count_exchange("facts")
            return problem_of(structure)

        if settings.penalty.is_concave:
            return self._reweight(structure, problem_of, x0)
        if design.columns.random:
            return self._reestimate(structure, problem_of, x0)
        problem = problem_of(structure)
        method = self._choose(problem)
        if self._search is None:
            result = self.solve(problem, method, x0)
        else:
            result, problem = self._search.alternate(self, problem, method, rebuild)
        self.steps = 1
        self.count_run(result)
        return problem, result

    def _choose(self, problem: Problem) -> Method | None:
        """Return the method of a fit: the given one, Newton's, or None for the default of ``solve``.

        With None, ``solve`` also compresses messages, and begins with few features.
        """
        settings = self.settings
        if settings.method is not None:
            return settings.method
        exact = self.outcome.newton or is_plain(settings, math.prod(problem.losses.shape), len(self.design.sites))
        chosen = choose_method(problem, settings.options, "exact" if exact else "fit")
        return chosen if isinstance(chosen, ProximalNewton) else None

    def solve(self, problem: Problem, method: Method | None, x0: Array | None = None) -> Result:
        """Run a method, and warn where it has not reached the tolerance."""
        options = self.settings.options
        result = run(
            problem, method, dataclasses.replace(options, x0=x0, callbacks=[*options.callbacks, self.iterates])
        )
        # Newton's method ends where its model of F says that tol is reached, which is no bound.
        newton = self.outcome.newton or isinstance(method, ProximalNewton)
        reached = ("converged", "diverged", "stationary") if newton else ("converged", "diverged")
        if options.tol is not None and result.status not in reached:
            warn(self._shortfall(result, options.tol), ConvergenceWarning)
        return result

    def _solve_one(self, problem: Problem, x0: Array | None) -> Result:
        """Run the method of one of several problems, and count it."""
        result = self.solve(problem, self._choose(problem), x0)
        self.steps += 1
        self.count_run(result)
        return result

    def _shortfall(self, result: Result, tol: float) -> str:
        """Return a text on how far a run is from the tolerance and what may help."""
        gap = result.certificate.relative_gap
        reached = "no duality gap is available" if gap is None else f"the relative duality gap is {gap:.2g}"
        advice = ["allow more rounds or a larger tol"] if result.status == "finished" else []
        advice += [] if self.settings.standardize else ["scale the features (standardize=True)"]
        hint = f"; {', or '.join(advice)}" if advice else ""
        return (
            f"{self.settings.title} may not have reached tol={tol:g} after {result.rounds} rounds "
            f"({result.status}; {reached}){hint}"
        )

    def _reweight(
        self, structure: Structure, problem_of: Callable[..., Problem], x0: Array | None
    ) -> tuple[Problem, Result]:
        """Solve weighted l1 problems, each with the slopes of a concave penalty where the last one ended."""
        concave = self.settings.penalty
        assert isinstance(concave, Concave)
        assert isinstance(structure.penalty, L1)
        most: Any = structure.penalty.weight
        weights = most if x0 is None else concave.slopes(x0, most)
        for _ in range(STEPS):
            problem = problem_of(structure._replace(penalty=L1(weights)))
            result = self._solve_one(problem, x0)
            x0 = result.x
            before, weights = weights, concave.slopes(x0.astype(np.float64), most)
            if np.abs(weights - before).max(initial=0.0) <= SETTLED * most.max(initial=0.0):
                break
        else:
            warn(
                f"the weights of {concave.name} have not settled after {STEPS} steps; a larger concavity or weight, or "
                "standardize=True, may help",
                ConvergenceWarning,
            )
        return problem, result

    def _reestimate(
        self, structure: Structure, problem_of: Callable[..., Problem], x0: Array | None
    ) -> tuple[Problem, Result]:
        """Fit with a ridge of the sites' effects, whose variance is estimated from each fit, until it settles."""
        columns = self.design.columns
        if columns.effects < 2:
            raise ArgumentError("site_effects", "must not be random for one site")
        share = 0.1 / columns.effects  # the ridge by the weight of all rows, about a tenth of the effects' information
        free = np.append(structure.ridge[: columns.features] == 0, np.ones(columns.all - columns.features, dtype=bool))
        if isinstance(structure.penalty, L1) and structure.linop is None:
            free &= structure.penalty.weight == 0
        for _ in range(random_effects.STEPS):
            problem = problem_of(structure, share)
            result = self._solve_one(problem, x0)
            x0 = result.x.astype(np.float64)
            told = self.ask(problem, Informations(x0, robust=False), "variance")
            rows, weight, _, _, pearson = map(float, told.numbers)
            kept = np.flatnonzero(free | (x0 != 0))
            sums = random_effects.Sums(
                x0[kept], told.score[kept], full(told.hessian)[np.ix_(kept, kept)],
                weight * structure.ridge[kept], pearson, int(rows), columns.effects,
            )  # fmt: skip
            found = random_effects.estimate(
                sums, share * weight, has_dispersion=self.outcome.likelihood.has_dispersion
            )  # fmt: skip
            before, share = share, found.ridge / weight
            if abs(np.log(share / before)) <= random_effects.SETTLED:
                break
        else:
            warn(
                f"the variance of the site effects has not settled after {random_effects.STEPS} steps",
                ConvergenceWarning,
            )
        self._variances = found
        return problem, result

    # What is asked of the solution.

    def _ask(self, problem: Problem, fit: FitResult) -> FitResult:
        """Ask all sites for their sums at the solution, and for the null deviance."""
        likelihood, columns, settings = self.outcome.likelihood, self.design.columns, self.settings
        refusal = why_not(settings)
        wanted = settings.inference is True or (settings.inference == "auto" and refusal is None)
        firth = isinstance(settings.penalty, Firth)
        may_separate = refusal is None and not columns.random and not firth and likelihood.name in GROWING
        if not (wanted or may_separate):
            return fit
        purpose = "information" if wanted else "separation"
        assert fit.run is not None
        x = np.asarray(fit.run.x, dtype=np.float64)
        with for_purpose(purpose):
            told = self._ask_sites(problem, Informations(x, wanted), needed=columns.random)
        self._count(told)
        sums = InformationSums(*(np.sum(field, axis=0) for field in zip(*told.answers, strict=True)))
        if may_separate:
            self._check_separation(problem, fit.run.x, sums, self._names_of_x())
        if not wanted:
            return fit
        back = self.outcome.back(columns, self.design.scaled)
        assert back is not None
        sites = []
        for numbers, score, hessian, meat in told.answers:
            rows, weight, saturated, deviance, pearson = map(float, numbers)
            known = saturated - 0.5 * deviance if not likelihood.has_dispersion else math.nan
            site = Information(int(rows), weight, known, deviance, pearson, score, full(hessian), full(meat))
            sites.append(site.change(back))
        if columns.random:
            assert self._variances is not None
            sites = random_effects.integrate(sites, columns.effects, self._variances)
        if isinstance(likelihood, Quantile):
            fit = dataclasses.replace(fit, effective_rows=self._count_effective(problem, x))
        places = self.outcome.null_places(columns)
        if self.design.plan is not None and refusal is None and not columns.random:
            names = self._names_of_x()
            alias = find_alias(sum(sites[1:], sites[0]).hessian, self.outcome.alias_order(names))
            if alias is not None:
                fit = _leave_out(fit, alias, names)
                sites = [site.take(alias.kept.tolist()) for site in sites]
        fit = dataclasses.replace(
            fit, information=sites, saturated=float(sums.numbers[2]), deviance=sum(site.deviance for site in sites),
            null_parameters=len(places),
        )  # fmt: skip
        if refusal is not None or columns.random or firth:
            return fit
        return self._ask_null(problem, fit) if len(places) else self._ask_zero(problem, fit)

    def _ask_sites(self, problem: Problem, question: Informations, *, needed: bool) -> Each:
        """Return the sums of each site, or of all together where a site does not show its own."""
        clients = clients_of(problem)
        try:
            return clients.ask_each(question)
        except RefusalError:
            if needed:
                raise
            told = clients.ask(question)
            return Each([told.sums], told.up, told.down)

    def _count_effective(self, problem: Problem, x: Array) -> float:
        """Return how many rows near a quantile decide the density of residuals.

        (Σ K)²/Σ K² is 6 Σ K(r/h) where the density is flat, with the logistic kernel K.
        """
        weight, inside = map(float, self.ask(problem, Spread(x), "spread").numbers)
        return 6.0 * inside * float(problem.losses.sizes.sum()) / weight

    def ask_sums(self, problem: Problem, x: Array, purpose: str) -> InformationSums:
        """Return the sums over all sites at a point, for a purpose."""
        sums: InformationSums = self.ask(problem, Informations(np.asarray(x, dtype=np.float64), robust=False), purpose)
        return sums

    def _ask_null(self, problem: Problem, fit: FitResult) -> FitResult:
        """Fit the intercept alone, by the same exchanges, and keep its deviance."""
        known = self._null_deviance(problem)
        if known is not None:
            return dataclasses.replace(fit, null_deviance=known)
        own = self.settings.options
        options = RunOptions(rounds=own.rounds, tol=own.tol or 1e-8, progress=False)
        with for_purpose("null deviance"):
            losses = problem.losses.restrict(self.outcome.null_places(self.design.columns))
            count_exchange("facts")
            null = Problem(losses, Zero(), weights=problem.weights, check=False)
            found = run(null, choose_method(null, options, "exact"), options)
        self.up, self.down = self.up + found.total_up, self.down + found.total_down
        # The objective is the weighted mean of half the unit deviances.
        assert fit.information is not None
        weight = sum(site.weight for site in fit.information)
        return dataclasses.replace(fit, null_deviance=2.0 * weight * found.objective)

    def _null_deviance(self, problem: Problem) -> float | None:
        """Return the deviance of the intercept alone where its mean is the mean of all outcomes; None where it is not.

        The score at 0 is proportional to the difference of that mean from the one at 0. With offsets the score at the
        intercept that follows is not 0.
        """
        family, (place, *more) = self.outcome.likelihood, self.outcome.null_places(self.design.columns)
        if not isinstance(family, Family) or isinstance(family, Quantile) or more:
            return None
        mean = family.mean(np.zeros(1))
        variance = family.variance(mean)
        if not (np.isfinite(mean).all() and variance > 0):
            return None
        x = np.zeros(problem.losses.shape)
        try:
            sums = self.ask_sums(problem, x, "null deviance")
            rate = math.sqrt(full(sums.hessian)[place, place] * float(sums.numbers[1] / variance[0]))
            with np.errstate(all="ignore"):
                (x[place],) = link_of(family.link, mean + sums.score[place] / rate)
            if not math.isfinite(x[place]):
                return None
            sums = self.ask_sums(problem, x, "null deviance")
        except RefusalError:
            return None
        left, deviance = sums.score[place] ** 2 / full(sums.hessian)[place, place], float(sums.numbers[3])
        return deviance if left <= LEFT * deviance else None

    def _ask_zero(self, problem: Problem, fit: FitResult) -> FitResult:
        """Keep the deviance at zero, or at the offsets, as in the null model without an intercept."""
        if not self.outcome.has_zero_model:
            return fit
        sums = self.ask_sums(problem, np.zeros(problem.losses.shape), "null deviance")
        fit = dataclasses.replace(fit, null_deviance=float(sums.numbers[3]))
        if isinstance(self.outcome, Hazards):
            statistic = float(sums.score @ np.linalg.pinv(full(sums.hessian), hermitian=True) @ sums.score)
            fit = dataclasses.replace(fit, score_statistic=statistic)
        return fit

    # Separation.

    def _names_of_x(self) -> list[str]:
        columns, design = self.design.columns, self.design
        effects = self.outcome.effect_names(list(map(str, design.sites)), columns.effects)
        return self.outcome.names_of_x(list(design.names.features), intercept=columns.intercept, effects=effects)

    def _look_at_classes(self, problem: Problem, fit: FitResult) -> FitResult:
        """Refuse a fit of several classes, with coefficients of each, that has no maximum."""
        assert fit.run is not None
        x = fit.run.x
        if fit.refusal is not None or x.size > MOST_COEFFICIENTS:
            return fit
        try:
            sums = self.ask_sums(problem, x, "separation")
        except RefusalError:  # a site that shows no second moments takes part in the fit still
            return fit
        # Coefficients of classes are known up to a constant, so that all classes of a column grow: it alone is named.
        names = self._names_of_x()
        self._check_separation(problem, x, sums, names * (x.size // len(names)))
        return fit

    def _check_separation(self, problem: Problem, x: Array, sums: InformationSums, names: list[str]) -> None:
        """Raise SeparationError if the likelihood of an unpenalised fit has no maximum; ``names`` are of entries of x.

        It costs nothing where a further Newton step promises nothing; otherwise one exchange, which is counted.
        """
        shape, x = x.shape, x.astype(np.float64).ravel()
        weight, _, deviance, _ = sums.numbers[1:].tolist()
        hessian = full(sums.hessian)
        found = newton_step(sums.score, hessian)
        if not found.is_suspect(0.5 * deviance, weight, self.settings.options.tol or 1e-8):
            # All rows are fitted, and none of them has information left: their means are at the end of the scale.
            if deviance < NOTHING * weight and np.abs(hessian).max() < NOTHING * weight:
                _refuse(names, list(range(len(names))))
            return
        try:
            far = self.ask_sums(problem, (x + FAR * found.step).reshape(shape), "separation")
        except RefusalError:  # a site does not answer where all but a few rows are certain, as they are there
            _refuse(names, found.growing(x))
            return
        if found.separates(deviance, float(far.numbers[3])):
            _refuse(names, found.growing(x))


def _refuse(names: list[str], columns: list[int]) -> None:
    if columns:
        raise SeparationError(list(dict.fromkeys(names[j] for j in columns)))


def _leave_out(fit: FitResult, alias: Alias, names: list[str]) -> FitResult:
    """Return the fit with the same predictions and zeros for coefficients that are not estimated."""
    moved = fit.outcome.place(alias.move(fit.outcome.values(fit)), fit)
    return dataclasses.replace(fit, **moved, aliased=tuple(names[j] for j in alias.left))


#: A θ that changes by less, relatively, is found; a Newton step that is shorter leaves about its square.
FOUND_THETA, SHORT = 1e-9, 1e-5
#: The most changes between θ, or a width, and coefficients, and Newton steps for one θ. Each change makes a width that
#: is too large at least about three times smaller.
MOST = 50
#: With a larger θ, relative to the mean, counts cannot be distinguished from Poisson's.
LARGEST = 1e8


class Theta:
    """The estimate of θ, as of ``glm.nb`` of R's MASS.

    Attributes
    ----------
    value, standard_error
        θ and its standard error; infinite and NaN where there is no more variance than Poisson's.
    """

    def __init__(self) -> None:
        self.value, self.standard_error = math.inf, math.nan

    def alternate(
        self, fitting: Fitting, problem: Problem, method: Method | None, rebuild: Callable[[], Problem]
    ) -> tuple[Result, Problem]:
        """Return the fit, and its problem; ``rebuild`` makes the problem of the present family."""
        result: Result = fitting.solve(problem, method)
        weight, excess, spread, _, _ = self._ask(fitting, problem, result, 1.0)
        if excess <= 0.0:
            return self._give_up(result, problem)
        theta = self._search(fitting, problem, result, weight / max(spread, weight / LARGEST))
        for _ in range(MOST):
            if not math.isfinite(theta):
                fitting.outcome = _with_family(fitting.outcome, Poisson())
                problem = rebuild()
                fitting.count_run(result)
                return self._give_up(fitting.solve(problem, method), problem)
            fitting.outcome = _with_family(fitting.outcome, NegativeBinomial("log", theta))
            problem = rebuild()
            fitting.count_run(result)
            result = fitting.solve(problem, method, x0=result.x)
            before, theta = theta, self._search(fitting, problem, result, theta)
            if abs(theta - before) <= FOUND_THETA * before:
                self.value = before
                return result, problem
        warn(f"θ of the negative binomial family still changes after {MOST} fits", DataWarning)
        self.value = before
        return result, problem

    def _search(self, fitting: Fitting, problem: Problem, result: Result, theta: float) -> float:
        """Return θ for given coefficients, by Newton's method in its logarithm; infinite if it grows without end."""
        for _ in range(MOST):
            _, _, _, score, information = self._ask(fitting, problem, result, theta)
            curvature = theta * information - score
            step = score / curvature if curvature > 0 else math.copysign(1.0, score)
            self.standard_error = 1.0 / math.sqrt(information) if information > 0 else math.nan
            if abs(step) <= FOUND_THETA:
                return theta
            theta *= math.exp(float(np.clip(step, -2.0, 2.0)))
            if theta > LARGEST:
                return math.inf
            if abs(step) <= SHORT:
                return theta
        return theta

    def _ask(self, fitting: Fitting, problem: Problem, result: Result, theta: float) -> tuple[float, ...]:
        question = Overdispersions(np.asarray(result.x, dtype=np.float64), float(theta))
        return tuple(map(float, fitting.ask(problem, question, "theta").numbers))

    def _give_up(self, result: Result, problem: Problem) -> tuple[Result, Problem]:
        self.value, self.standard_error = math.inf, math.nan
        warn(
            "counts vary no more than Poisson's: θ of the negative binomial family is infinite, and the model is that "
            "of the Poisson family",
            DataWarning,
        )
        return result, problem


#: A width that changes by less, relatively, is found.
FOUND_WIDTH = 0.01


class Width:
    """The width h = κσ of :class:`fpdfp.families.Quantile`: fits in turn with the spread σ of their residuals.

    At each fit, σ is h/κ times the ratio of the share of kernel weight that normal residuals would have to that of the
    data. The first width is that for the deviation of least squares, which outliers only make too large.

    Attributes
    ----------
    family
        The family, with its level.
    """

    def __init__(self, family: Quantile) -> None:
        self.family = family

    def alternate(
        self, fitting: Fitting, problem: Problem, method: Method | None, rebuild: Callable[[], Problem]
    ) -> tuple[Result, Problem]:
        """Return the fit, and its problem; ``rebuild`` makes the problem of the present family."""
        result: Result = fitting.solve(problem, method)  # of least squares
        rows, coefficients = int(problem.losses.sizes.sum()), math.prod(problem.losses.shape)
        relative = self.family.relative_width(rows, coefficients)
        wanted = self.family.share(relative)
        width = relative * math.sqrt(2.0 * result.objective)
        if not width > 0.0:
            width = relative  # least squares leave nothing: any width is small enough
        for _ in range(MOST):
            fitting.outcome = _with_family(fitting.outcome, Quantile(level=self.family.level, width=width))
            fitting.count_run(result)
            problem = rebuild()
            result = fitting.solve(problem, method, x0=result.x)
            question = Spread(result.x.astype(np.float64))
            weight, inside = map(float, fitting.ask(problem, question, "width").numbers)
            before, width = width, width * wanted * weight / inside if inside > 0.0 else 2.0 * width
            if abs(math.log(width / before)) <= FOUND_WIDTH:
                return result, problem
        warn(f"the width of the quantile's kernel still changes after {MOST} fits", DataWarning)
        return result, problem


def _with_family(outcome: Any, family: Family) -> Any:
    """Return the same outcome with another family."""
    return dataclasses.replace(outcome, distribution=family)
