"""What estimators do for paths and cross-validation: many penalties of the same design in the same exchanges."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.record import open_record
from fpdfp.errors import ArgumentError
from fpdfp.folds import Folds
from fpdfp.linops import Identity
from fpdfp.losses import Losses
from fpdfp.models.penalty import (
    Columns,
    Concave,
    Details,
    ElasticNet,
    ModelPenalty,
    NoPenalty,
    Ridge,
    Structure,
    as_model_penalty,
)
from fpdfp.models.stepping import Scaled
from fpdfp.penalties import Zero
from fpdfp.problem import Model, Problem
from fpdfp.selection.batch import Batch
from fpdfp.selection.many import collect, run
from fpdfp.selection.paths import RATIO, Path, check_grid, count_alphas, find_alphas, follow
from fpdfp.selection.stability import Bootstrap, Stability
from fpdfp.selection.task import Anchor, Task

#: The mixing of glmnet at which the largest weight of a ridge is computed, where no weight gives zero.
NEARLY_RIDGE = 1e-3
#: The fewest sites to draw from.
LEAST_SITES = 5


class Found(Exception):  # noqa: N818 - carries a result out of a fit that ends there
    """What was wanted, found in the middle of a fit."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what = what


class Design(NamedTuple):
    """What a fit has before it minimises: losses, penalties by weight, and how to name and unscale coefficients."""

    losses: Losses
    build_model: Callable[[ModelPenalty], Model]
    model_of: Callable[[float], Model]
    names: tuple[str, ...]
    labels: tuple[str, ...]
    unscale: Callable[[Array], tuple[Array, Array]]


class Structures:
    """A part of an estimator that makes the penalty of any weight, for one design."""

    def _structure(self: Any, columns: Columns, moments: Any, scale: Array) -> Structure:
        details: list[Details] = []

        def make(columns: Columns, penalty: ModelPenalty) -> Structure:
            if not details:  # a graph is learnt from the sites' moments once
                details.append(self._details(self.penalty_, columns.features, moments, scale))
            return penalty.build(columns, details[0])

        self._make_structure = make
        # Sites are told no ridge: it depends on the weight, and is a part of the penalty.
        return Structure(Zero(), None, np.zeros(columns.of_rows))

    def _models(self: Any, columns: Columns, scaled: Scaled, shape: Shape) -> Callable[[ModelPenalty], Model]:
        """Return g and B as a function of the penalty; x is one vector for several classes."""
        limits, flat, shape = self._limits(columns, scaled), columns._replace(flat=True), (math.prod(shape),)

        def model_of(penalty: ModelPenalty) -> Model:
            made = self._make_structure(flat, penalty).restrain(flat, limits, absorb=True)
            linop = Identity(shape) if made.linop is None else made.linop
            return Model(made.penalty.bind(linop.out_shape), linop, shape, np.dtype(np.float64))

        return model_of

    def _find_alphas(
        self: Any, batch: Batch, model_of: Callable[[ModelPenalty], Model], alphas: Any, ratio: float, rounds: int,
        **mixing: float,
    ) -> tuple[Array, Anchor | None]:  # fmt: skip
        """Return the weights, and the solution of the first one if it is trivial.

        No ridge makes coefficients zero: its largest weight is that of an elastic net with a thousandth of l1.
        """
        penalty: ModelPenalty = self.penalty_
        share = mixing.get("l1_ratio", getattr(penalty, "l1_ratio", 1.0))
        ridge = isinstance(penalty, Ridge) or (isinstance(penalty, ElasticNet) and share < NEARLY_RIDGE)
        if ridge:
            penalty, mixing = ElasticNet(factors=penalty.factors), {"l1_ratio": NEARLY_RIDGE}

        def model_at(alpha: float) -> Model:
            return model_of(penalty.with_options(alpha, **mixing))

        weights, trivial = find_alphas(batch, model_at, alphas, ratio, rounds)
        return weights, None if ridge else trivial

    def _owners(self: Any, rows: int, groups: Any) -> IntArray:
        owner: IntArray = super()._owners(rows, groups)  # type: ignore[misc]
        self._owner_of_rows = owner
        return owner


class Interrupted(Structures):
    """The part of an estimator whose fit ends before it minimises: the rest is done by a function of the design."""

    def _minimise(
        self: Any, build: Callable[[], Losses], structure: Structure, columns: Columns, scaled: Scaled, choose: Any
    ) -> Problem:
        losses = build()
        build_model = self._models(columns, scaled, losses.shape)

        def model_of(alpha: float) -> Model:
            found: Model = build_model(self.penalty_.with_options(alpha))
            return found

        def unscale(x: Array) -> tuple[Array, Array]:
            found: tuple[Array, Array] = self._unscale_many(x, columns, scaled)
            return found

        names = tuple(self._names().features)
        raise Found(self._then(self, Design(losses, build_model, model_of, names, self._path_labels(), unscale)))

    def _suits_newton(self, coefficients: int) -> bool:
        return False  # a path has a penalty, whatever the weight of the estimator is


def fit_until(estimator: Any, then: Callable[[Any, Design], Any], *data: Any, **options: Any) -> Any:
    """Return what a function makes of a copy of an estimator and of the design of a fit to data."""
    check_convex(as_model_penalty(estimator.penalty), "here")
    one = copy.copy(estimator)
    one.__class__ = type(type(estimator).__name__, (Interrupted, type(estimator)), {})
    one._then = then
    try:
        one.fit(*data, **options)
    except Found as found:
        return found.what
    raise AssertionError("a fit has no minimisation")


def check_convex(penalty: ModelPenalty, where: str) -> None:
    """Refuse penalties without one least value for each weight, and none."""
    if isinstance(penalty, NoPenalty | Concave):
        raise ArgumentError("penalty", f"must be a convex one {where}, got {penalty.name!r}")


def make_problem(losses: Losses) -> Problem:
    """Return the problem without a penalty."""
    return Problem(losses, Zero(), weights="samples")


class Selecting:
    """The part of all estimators that finds paths, and how stable they are."""

    def path(
        self: Any, X: Any, y: Any, groups: Any = None, *, alphas: Any = 100, ratio: float = RATIO, tol: float = 1e-6,
        rounds: int = 500, certify: bool = False, progress: bool | None = False, checkpoint: Any = None,
        **options: Any,
    ) -> Path:  # fmt: skip
        """Return the coefficients for a grid of penalty weights, all found in the same exchanges.

        The estimator is not fitted; the weight of its penalty is not used.

        Parameters
        ----------
        X, y, groups, options
            As in ``fit``.
        alphas
            How many weights, from the smallest that gives zero down; or the weights.
        ratio
            The least weight relative to the largest, where a number of them is given.
        tol, rounds, certify, progress, checkpoint
            As in :func:`fpdfp.solve_many`.
        """
        check_grid(alphas, ratio, tol, rounds)

        def find(one: Any, design: Design) -> Path:
            batch = Batch(make_problem(design.losses), problems=count_alphas(alphas))
            with open_record(checkpoint, batch.problem):
                weights, trivial = one._find_alphas(batch, design.build_model, alphas, ratio, rounds)
                found = follow(
                    batch, design.model_of, weights, trivial, tol, rounds, progress, design.names, certify=certify
                )
            coef, intercept = design.unscale(found.coef)
            return dataclasses.replace(found, coef=coef, intercept=intercept, labels=design.labels)

        found: Path = fit_until(self, find, X, y, groups, **options)
        return found

    def stability(
        self: Any, X: Any, y: Any, groups: Any = None, *, alphas: Any = 20, ratio: float = 0.3, pairs: int = 50,
        tol: float = 1e-4, rounds: int = 500, progress: bool | None = False, checkpoint: Any = None,
        **options: Any,
    ) -> Stability:  # fmt: skip
        """Return how often each feature is selected with half of the rows, for a grid of penalty weights.

        Each site divides its rows in halves at random, many times; all halves and weights travel in the same exchanges.
        Of several classes a feature is selected if it has a coefficient for any. The estimator is not fitted.

        Parameters
        ----------
        X, y, groups, options
            As in ``fit``.
        alphas, ratio
            As in :meth:`path`. Small weights select much, and make the bound on false selections large.
        pairs
            How many times rows are divided: twice as many halves are fitted.
        tol, rounds, progress, checkpoint
            As in :func:`fpdfp.solve_many`.
        """
        check_grid(alphas, ratio, tol, rounds)
        _checks.integer("pairs", pairs, at_least=1, at_most=1000)

        def find(one: Any, design: Design) -> Stability:
            folds = Folds(2, one._options().seed, one._stratifies, repeats=pairs)
            batch = Batch(make_problem(design.losses), folds, problems=(folds.all + 1) * count_alphas(alphas))
            with open_record(checkpoint, batch.problem):
                weights, _ = one._find_alphas(batch, design.build_model, alphas, ratio, rounds)
                models = [design.model_of(float(alpha)) for alpha in weights]
                # whatever leaves out a half is fitted to the other
                tasks = [Task(model, fold) for fold in range(-1, 2 * pairs) for model in models]
                run(batch, tasks, tol, rounds, progress)
            found = collect(batch, tasks)
            coef, _ = design.unscale(found.x)
            chosen = (coef != 0).reshape(2 * pairs + 1, len(weights), -1, len(design.names)).any(axis=2)
            return Stability(
                weights, chosen[1:].mean(axis=0), chosen[1:].any(axis=1).sum(axis=1).mean(), pairs,
                found.converged, found.rounds, found.bits_up, found.bits_down, design.names,
            )  # fmt: skip

        found: Stability = fit_until(self, find, X, y, groups, **options)
        return found

    def bootstrap_sites(
        self: Any, X: Any, y: Any, groups: Any = None, *, draws: int = 200, level: float = 0.95, tol: float = 1e-6,
        rounds: int = 500, progress: bool | None = False, checkpoint: Any = None,
        **options: Any,
    ) -> Bootstrap:  # fmt: skip
        """Return how coefficients vary if sites are drawn with replacement, for the penalty of the estimator.

        All draws travel in the same exchanges; sites do not learn which of them count. With few sites this tells
        little: there must be five. The estimator is not fitted. A penalty shrinks coefficients in every draw, so that
        intervals are those of the penalised estimate, and need not cover the coefficients of the population.

        Parameters
        ----------
        X, y, groups, options
            As in ``fit``.
        draws
            How many samples of sites.
        level
            The level of the intervals, by quantiles.
        tol, rounds, progress, checkpoint
            As in :func:`fpdfp.solve_many`.
        """
        _checks.integer("draws", draws, at_least=2, at_most=10_000)
        if not 0.0 < _checks.real("level", level) < 1.0:
            raise ArgumentError("level", f"must be between 0 and 1, got {level:g}")
        check_grid([1.0], ratio=0.5, tol=tol, rounds=rounds)

        def find(one: Any, design: Design) -> Bootstrap:
            sites = design.losses.n_clients
            if sites < LEAST_SITES:
                raise ArgumentError("groups", f"must be at least {LEAST_SITES} sites to draw from, got {sites}")
            drawn = np.random.default_rng(one._options().seed).multinomial(
                sites, np.full(sites, 1.0 / sites), size=draws
            )
            batch = Batch(make_problem(design.losses), samples=drawn, problems=draws + 1)
            model = design.model_of(one.penalty_.strength)
            tasks = [Task(model, fold) for fold in range(-1, draws)]
            with open_record(checkpoint, batch.problem):
                run(batch, tasks, tol, rounds, progress)
            found = collect(batch, tasks)
            coef, _ = design.unscale(found.x)
            names = design.names
            if coef.ndim == 3:
                names = tuple(f"{label}: {name}" for label in design.labels for name in names)
            rows = coef.reshape(draws + 1, -1)
            return Bootstrap(
                rows[0], rows[1:], float(level), found.converged, found.rounds, found.bits_up, found.bits_down, names,
            )  # fmt: skip

        found: Bootstrap = fit_until(self, find, X, y, groups, **options)
        return found

    @property
    def _stratifies(self: Any) -> bool:
        """Whether folds are to have equal shares of outcomes: of classes, or of events."""
        family = self._family()
        return family is None or self._survives or family.name in ("binomial", "multinomial", "ordinal")

    def _unscale_many(self: Any, x: Array, columns: Columns, scaled: Scaled) -> tuple[Array, Array]:
        """Return coefficients and intercepts of many solutions, of several classes with an axis for these."""
        shape = () if columns.classes is None else (columns.classes,)
        model = np.array([
            self._undo_scaling(one, *scaled, columns.intercept) for one in x.reshape(len(x), *shape, columns.all)
        ])  # fmt: skip
        model = model.reshape(len(x), *shape, -1)
        return model[..., :-1], model[..., -1]

    def _path_labels(self) -> tuple[str, ...]:
        """Return the names of the classes that have coefficients each; none where there is one vector of them."""
        return ()
