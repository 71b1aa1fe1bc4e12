"""Paths of penalty weights, stable selections and bootstraps: many penalties of one design in the same exchanges."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, Shape
from fpdfp.cohorts.record import open_record
from fpdfp.errors import ArgumentError
from fpdfp.folds import Folds
from fpdfp.linops import Identity
from fpdfp.losses import Losses
from fpdfp.models.design import Design, Settings
from fpdfp.models.penalty import Concave, Details, ElasticNet, ModelPenalty, NoPenalty, Ridge
from fpdfp.penalties import Zero
from fpdfp.problem import Model, Problem
from fpdfp.selection.batch import Batch
from fpdfp.selection.many import collect, run
from fpdfp.selection.paths import Path, check_grid, count_alphas, find_alphas, follow
from fpdfp.selection.stability import Bootstrap, Stability
from fpdfp.selection.task import Anchor, Task

#: The mixing of glmnet at which the largest weight of a ridge is computed, where no weight gives zero.
NEARLY_RIDGE = 1e-3
#: The fewest sites to draw from.
LEAST_SITES = 5


class PenalisedModels:
    """g and B of one design for any penalty; x is one vector for several classes, and no losses have a ridge."""

    def __init__(self, design: Design, settings: Settings, shape: Shape) -> None:
        self.design, self.settings = design, settings
        self._limits, self._columns = design.limits(settings.bounds), design.columns._replace(flat=True)
        self._shape = (math.prod(shape),)

    @functools.cached_property
    def details(self) -> Details:
        """The structure of the penalty; a graph is learnt from the sites' moments once."""
        return self.design.details(self.settings.penalty, progress=self.settings.options.progress)

    def of(self, penalty: ModelPenalty) -> Model:
        """Return g and B of a penalty."""
        made = penalty.build(self._columns, self.details).restrain(self._columns, self._limits, absorb=True)
        linop = Identity(self._shape) if made.linop is None else made.linop
        return Model(made.penalty.bind(linop.out_shape), linop, self._shape, np.dtype(np.float64))

    def at(self, alpha: float) -> Model:
        """Return g and B of the penalty with a weight."""
        return self.of(self.settings.penalty.with_options(alpha))

    def take_many(self, x: Array) -> tuple[Array, Array]:
        """Return coefficients and intercepts of many solutions."""
        design = self.design
        within = design.within(self.settings.bounds)
        return design.outcome.take_many(x, design.columns, design.scaled, within)

    def find_alphas(
        self, batch: Batch, alphas: Any, ratio: float, rounds: int, **mixing: float
    ) -> tuple[Array, Anchor | None]:
        """Return the weights, and the solution of the first one if it is trivial.

        No ridge makes coefficients zero: its largest weight is that of an elastic net with a thousandth of l1.
        """
        penalty: ModelPenalty = self.settings.penalty
        share = mixing.get("l1_ratio", getattr(penalty, "l1_ratio", 1.0))
        ridge = isinstance(penalty, Ridge) or (isinstance(penalty, ElasticNet) and share < NEARLY_RIDGE)
        if ridge:
            penalty, mixing = ElasticNet(factors=penalty.factors), {"l1_ratio": NEARLY_RIDGE}

        def model_at(alpha: float) -> Model:
            return self.of(penalty.with_options(alpha, **mixing))

        weights, trivial = find_alphas(batch, model_at, alphas, ratio, rounds)
        return weights, None if ridge else trivial


def check_convex(penalty: ModelPenalty, where: str) -> None:
    """Refuse penalties without one least value for each weight, and none."""
    if isinstance(penalty, NoPenalty | Concave):
        raise ArgumentError("penalty", f"must be a convex one {where}, got {penalty.name!r}")


def make_problem(losses: Losses) -> Problem:
    """Return the problem without a penalty."""
    return Problem(losses, Zero(), weights="samples")


def _models(design: Design, settings: Settings) -> tuple[Losses, PenalisedModels]:
    losses = design.build(design.outcome, np.zeros(design.columns.of_rows))
    return losses, PenalisedModels(design, settings, losses.shape)


def find_path(
    design: Design, settings: Settings, *, alphas: Any, ratio: float, tol: float, rounds: int, certify: bool,
    progress: bool | None, checkpoint: Any,
) -> Path:  # fmt: skip
    """Return the coefficients for a grid of penalty weights, all found in the same exchanges."""
    losses, models = _models(design, settings)
    names = tuple(design.names.features)
    batch = Batch(make_problem(losses), problems=count_alphas(alphas))
    with open_record(checkpoint, batch.problem):
        weights, trivial = models.find_alphas(batch, alphas, ratio, rounds)
        found = follow(batch, models.at, weights, trivial, tol, rounds, progress, names, certify=certify)
    coef, intercept = models.take_many(found.coef)
    return dataclasses.replace(found, coef=coef, intercept=intercept, labels=design.outcome.path_labels())


def find_stability(
    design: Design, settings: Settings, *, alphas: Any, ratio: float, pairs: int, tol: float, rounds: int,
    progress: bool | None, checkpoint: Any,
) -> Stability:  # fmt: skip
    """Return how often each feature is selected with half of the rows, for a grid of penalty weights."""
    losses, models = _models(design, settings)
    names = tuple(design.names.features)
    folds = Folds(2, settings.options.seed, design.outcome.stratifies, repeats=pairs)
    batch = Batch(make_problem(losses), folds, problems=(folds.all + 1) * count_alphas(alphas))
    with open_record(checkpoint, batch.problem):
        weights, _ = models.find_alphas(batch, alphas, ratio, rounds)
        each = [models.at(float(alpha)) for alpha in weights]
        # whatever excludes a half is fitted to the other
        tasks = [Task(model, fold) for fold in range(-1, 2 * pairs) for model in each]
        run(batch, tasks, tol, rounds, progress)
    found = collect(batch, tasks)
    coef, _ = models.take_many(found.x)
    chosen = (coef != 0).reshape(2 * pairs + 1, len(weights), -1, len(names)).any(axis=2)
    return Stability(
        weights, chosen[1:].mean(axis=0), chosen[1:].any(axis=1).sum(axis=1).mean(), pairs,
        found.converged, found.rounds, found.bits_up, found.bits_down, names,
    )  # fmt: skip


def draw_sites(
    design: Design, settings: Settings, *, draws: int, level: float, tol: float, rounds: int,
    progress: bool | None, checkpoint: Any,
) -> Bootstrap:  # fmt: skip
    """Return how coefficients vary if sites are drawn with replacement, for the penalty of the settings."""
    losses, models = _models(design, settings)
    names, sites = tuple(design.names.features), losses.n_clients
    if sites < LEAST_SITES:
        raise ArgumentError("groups", f"must be at least {LEAST_SITES} sites to draw from, got {sites}")
    shares = np.full(sites, 1.0 / sites)
    drawn = np.random.default_rng(settings.options.seed).multinomial(sites, shares, size=draws)
    batch = Batch(make_problem(losses), samples=drawn, problems=draws + 1)
    model = models.at(settings.penalty.strength)
    tasks = [Task(model, fold) for fold in range(-1, draws)]
    with open_record(checkpoint, batch.problem):
        run(batch, tasks, tol, rounds, progress)
    found = collect(batch, tasks)
    coef, _ = models.take_many(found.x)
    if coef.ndim == 3:
        names = tuple(f"{label}: {name}" for label in design.outcome.path_labels() for name in names)
    rows = coef.reshape(draws + 1, -1)
    return Bootstrap(
        rows[0], rows[1:], float(level), found.converged, found.rounds, found.bits_up, found.bits_down, names,
    )  # fmt: skip


def check_draws(draws: int, level: float, tol: float, rounds: int) -> None:
    """Refuse options of a bootstrap that cannot be."""
    _checks.integer("draws", draws, at_least=2, at_most=10_000)
    if not 0.0 < _checks.real("level", level) < 1.0:
        raise ArgumentError("level", f"must be between 0 and 1, got {level:g}")
    check_grid([1.0], ratio=0.5, tol=tol, rounds=rounds)
