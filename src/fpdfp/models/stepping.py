"""How estimators minimise: one run, or several where each follows from the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.losses import Informations
from fpdfp.engines import Result
from fpdfp.engines.iterates import Iterates
from fpdfp.errors import ArgumentError
from fpdfp.losses import Losses
from fpdfp.models import random_effects
from fpdfp.models.by_feature import Limits, Names, find_limits, find_start
from fpdfp.models.penalty import SETTLED, STEPS, Columns, Concave, Structure
from fpdfp.penalties import L1
from fpdfp.precondition.base import full
from fpdfp.problem import Problem


class Scaled(NamedTuple):
    """How features were centred and scaled (by 1 where they are constant)."""

    centre: Array
    scale: Array


class Stepping:
    """The part of :class:`fpdfp.models.base.FederatedLinearModel` that knows runs.

    Attributes
    ----------
    n_steps_
        How many problems were solved: more than one for ``"mcp"``, ``"scad"`` and random site effects.
    iterates_
        Some of the iterates, for :meth:`learning_curve`.
    """

    def _minimise(
        self: Any, build: Callable[[], Losses], structure: Structure, columns: Columns, scaled: Scaled,
        choose: Callable[[Problem], Any],
    ) -> Problem:  # fmt: skip
        """Minimise the losses that ``build`` makes plus a structure; keep the result with rounds and bits of all."""
        limits = self._limits(columns, scaled)
        self._spent, self.iterates_ = [0, 0, 0], Iterates()
        for left in ("_variances", "site_variance_"):  # of an earlier fit
            if hasattr(self, left):
                delattr(self, left)
        self.n_steps_ = 0
        losses = [build()]

        def problem_of(penalised: Structure, ridge: float = 0.0) -> Problem:
            restrained = penalised.restrain(columns, limits, ridge)
            return Problem(losses[0], restrained.penalty, restrained.linop, weights="samples")

        def solve(problem: Problem, x0: Array | None) -> Result:
            result: Result = self._solve(problem, choose(problem), x0)
            spent = (result.rounds, result.total_up, result.total_down)
            self._spent = [one + more for one, more in zip(self._spent, spent, strict=True)]
            self.n_steps_ += 1
            return result

        def rebuild() -> Problem:
            losses[0] = build()  # of another family
            return problem_of(structure)

        x0 = self._start(columns, scaled)
        problem: Problem
        if self.penalty_.is_concave:
            problem, result = self._reweight(structure, problem_of, solve, x0)
        elif columns.random:
            problem, result = self._reestimate(structure, columns, problem_of, solve, x0)
        else:
            problem = problem_of(structure)
            result, problem = self._run(problem, choose(problem), rebuild, x0)
            self._spent, self.n_steps_ = [result.rounds, result.total_up, result.total_down], 1
        self.result_, self.history_ = result, result.history
        self.n_iter_, self.bits_up_, self.bits_down_ = self._spent
        return problem

    def _reweight(
        self: Any, structure: Structure, problem_of: Callable[..., Problem],
        solve: Callable[[Problem, Array | None], Result], x0: Array | None,
    ) -> tuple[Problem, Result]:  # fmt: skip
        """Solve weighted l1 problems, each with the slopes of a concave penalty where the last one ended."""
        concave: Concave = self.penalty_
        assert isinstance(structure.penalty, L1)
        most: Any = structure.penalty.weight
        weights = most if x0 is None else concave.slopes(x0, most)
        for _ in range(STEPS):
            problem = problem_of(structure._replace(penalty=L1(weights)))
            result = solve(problem, x0)
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
        self: Any, structure: Structure, columns: Columns, problem_of: Callable[..., Problem],
        solve: Callable[[Problem, Array | None], Result], x0: Array | None,
    ) -> tuple[Problem, Result]:  # fmt: skip
        """Fit with a ridge of the sites' effects, whose variance is estimated from each fit, until it settles."""
        if columns.effects < 2:
            raise ArgumentError("site_effects", "must not be random for one site")
        share = 0.1 / columns.effects  # the ridge by the weight of all rows, about a tenth of the effects' information
        free = np.append(structure.ridge[: columns.features] == 0, np.ones(columns.all - columns.features, dtype=bool))
        if isinstance(structure.penalty, L1) and structure.linop is None:
            free &= structure.penalty.weight == 0
        for _ in range(random_effects.STEPS):
            problem = problem_of(structure, share)
            result = solve(problem, x0)
            x0 = result.x.astype(np.float64)
            told, _, up, down = clients_of(problem).ask(Informations(x0, robust=False))
            self._spent[1] += up
            self._spent[2] += down
            rows, weight, _, _, pearson = map(float, told.numbers)
            kept = np.flatnonzero(free | (x0 != 0))
            sums = random_effects.Sums(
                x0[kept], told.score[kept], full(told.hessian)[np.ix_(kept, kept)],
                weight * structure.ridge[kept], pearson, int(rows), columns.effects,
            )  # fmt: skip
            found = random_effects.estimate(sums, share * weight, has_dispersion=self._family().has_dispersion)
            before, share = share, found.ridge / weight
            if abs(np.log(share / before)) <= random_effects.SETTLED:
                break
        else:
            warn(
                f"the variance of the site effects has not settled after {random_effects.STEPS} steps",
                ConvergenceWarning,
            )
        self._variances, self.site_variance_ = found, found.variance
        return problem, result

    def _names(self: Any) -> Names:
        """Return the names of the features, and with a formula their terms."""
        given = getattr(self, "feature_names_in_", None)
        names = [f"x{j}" for j in range(self.n_features_in_)] if given is None else list(map(str, given))
        plan = getattr(self, "plan_", None)
        return Names(names, names if plan is None else list(plan.design.term_of_each))

    def _limits(self: Any, columns: Columns, scaled: Scaled) -> Limits | None:
        """Return the limits of the coefficients of scaled features."""
        found = find_limits(self.bounds, self._names())
        return None if found is None else Limits(found.lower * scaled.scale, found.upper * scaled.scale)

    def _start(self: Any, columns: Columns, scaled: Scaled) -> Array | None:
        """Return where runs start, in the columns of the model."""
        found = find_start(self.start, self._names(), intercept=columns.intercept, classes=columns.classes)
        if found is None:
            return None
        x0 = np.zeros((*found.shape[:-1], columns.all))
        x0[..., : found.shape[-1]] = found
        if columns.intercept:
            x0[..., columns.features] += found[..., : columns.features] @ scaled.centre
        x0[..., : columns.features] *= scaled.scale
        return x0.ravel() if columns.flat else x0

    def _within(self: Any, coefficients: Array) -> Array:
        """Return coefficients within their limits, where rounding, or what a run has left, puts them outside."""
        found = find_limits(self.bounds, self._names())
        return coefficients if found is None else np.clip(coefficients, found.lower, found.upper)
