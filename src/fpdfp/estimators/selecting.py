"""What estimators do for paths and cross-validation: many penalties of the same design in the same exchanges."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.errors import ArgumentError
from fpdfp.estimators.concave import USUAL
from fpdfp.estimators.stepping import Scaled
from fpdfp.estimators.structure import Columns, Structure
from fpdfp.linops import Identity
from fpdfp.losses import Losses
from fpdfp.penalties import Zero
from fpdfp.problem import Model, Problem
from fpdfp.selection.batch import Batch
from fpdfp.selection.paths import RATIO, Path, check_grid, find_alphas, follow
from fpdfp.selection.task import Anchor

#: The mixing of glmnet at which the largest weight of a ridge is computed, where no weight gives zero.
NEARLY_RIDGE = 1e-3


class Found(Exception):  # noqa: N818 - carries a result out of a fit that ends there
    """A path, found in the middle of a fit."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path


class Structures:
    """A part of an estimator that makes the penalty of any weight, for one design."""

    def _structure(self: Any, columns: Columns, moments: Any, scale: Array, feature_groups: Any) -> Structure:
        graphs: list[Any] = []

        def make(alpha: float, **mixing: float) -> Structure:
            one = copy.copy(self)
            one.alpha = alpha
            for name, value in mixing.items():
                setattr(one, name, value)
            if graphs:
                one.graph = graphs[0]  # learnt from the sites' moments once
            made: Structure = super(Structures, one)._structure(columns, moments, scale, feature_groups)  # type: ignore[misc]
            if hasattr(one, "graph_") and not graphs:
                graphs.append(one.graph_)
                self.graph_ = one.graph_
            return made

        self._make_structure = make
        # Sites are told no ridge: it depends on the weight, and is a part of the penalty.
        return Structure(Zero(), None, np.zeros(columns.of_rows))

    def _models(self: Any, columns: Columns, scaled: Scaled, shape: Shape) -> Callable[..., Model]:
        """Return g and B as a function of the weight, and of how it is mixed."""
        limits = self._limits(columns, scaled)

        def model_of(alpha: float, **mixing: Any) -> Model:
            made = self._make_structure(alpha, **mixing).restrain(columns, limits, absorb=True)
            linop = Identity(shape) if made.linop is None else made.linop
            return Model(made.penalty.bind(linop.out_shape), linop, shape, np.dtype(np.float64))

        return model_of

    def _find_alphas(
        self: Any, batch: Batch, model_of: Callable[..., Model], alphas: Any, ratio: float, rounds: int, **mixing: Any
    ) -> tuple[Array, Anchor | None]:
        """Return the weights, and the solution of the first one if it is trivial.

        No ridge makes coefficients zero: its largest weight is that of an elastic net with a thousandth of l1.
        """
        share = mixing.get("l1_ratio", self.l1_ratio)
        if self.penalty == "ridge" or (self.penalty == "elasticnet" and share < NEARLY_RIDGE):
            mixing |= {"penalty": "elasticnet", "l1_ratio": NEARLY_RIDGE}
            weights, _ = find_alphas(batch, functools.partial(model_of, **mixing), alphas, ratio, rounds)
            return weights, None
        return find_alphas(batch, functools.partial(model_of, **mixing), alphas, ratio, rounds)

    def _owners(self: Any, rows: int, groups: Any) -> IntArray:
        owner: IntArray = super()._owners(rows, groups)  # type: ignore[misc]
        self._owner_of_rows = owner
        return owner


class Following(Structures):
    """The part of an estimator that ends in the middle of a fit, with a path."""

    def _minimise(
        self: Any, build: Callable[[], Losses], structure: Structure, columns: Columns, scaled: Scaled, choose: Any
    ) -> Problem:
        losses = build()
        batch, model_of = Batch(make_problem(losses)), self._models(columns, scaled, losses.shape)
        alphas, ratio, tol, rounds, progress = self._grid
        weights, trivial = self._find_alphas(batch, model_of, alphas, ratio, rounds)
        found = follow(batch, model_of, weights, trivial, tol, rounds, progress, tuple(self._names().features))
        model = np.array([self._undo_scaling(x, *scaled, columns.intercept)[0] for x in found.coef])
        raise Found(dataclasses.replace(found, coef=model[:, :-1], intercept=model[:, -1]))


def make_problem(losses: Losses) -> Problem:
    """Return the problem without a penalty; refuse losses of several classes."""
    if len(losses.shape) != 1:
        raise ArgumentError(
            "y", "must have two classes for a path or a cross-validation; FederatedMultinomialRegression takes more"
        )
    return Problem(losses, Zero(), weights="samples")


class Selecting:
    """The part of all estimators that finds paths."""

    def path(
        self: Any, X: Any, y: Any, groups: Any = None, *, alphas: Any = 100, ratio: float = RATIO, tol: float = 1e-6,
        rounds: int = 500, progress: bool | None = False, **options: Any,
    ) -> Path:  # fmt: skip
        """Return the coefficients for a grid of penalty weights, all found in the same exchanges.

        The estimator is not fitted; its ``alpha`` is not used.

        Parameters
        ----------
        X, y, groups, options
            As in ``fit``.
        alphas
            How many weights, from the smallest that gives zero down; or the weights.
        ratio
            The least weight relative to the largest, where a number of them is given.
        tol, rounds, progress
            As in :func:`fpdfp.solve_many`.
        """
        check_grid(alphas, ratio, tol, rounds)
        if self.penalty in ("none", *USUAL):
            raise ArgumentError("penalty", f"must be a convex one for a path, got {self.penalty!r}")
        one = copy.copy(self)
        one.__class__ = type(f"{type(self).__name__}Path", (Following, type(self)), {})
        one._grid = (alphas, ratio, tol, rounds, progress)
        try:
            one.fit(X, y, groups, **options)
        except Found as found:
            return found.path
        raise AssertionError("a fit has no minimisation")
