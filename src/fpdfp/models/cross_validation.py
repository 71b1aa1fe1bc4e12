"""Estimators that choose the weight of their penalty by cross-validation, in the exchanges of about one fit."""

from __future__ import annotations

import copy
import inspect
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.cohorts.many_points import make_score
from fpdfp.cohorts.record import open_record
from fpdfp.errors import ArgumentError
from fpdfp.folds import Folds
from fpdfp.losses import Losses
from fpdfp.models.concave import USUAL
from fpdfp.models.selecting import Structures, make_problem
from fpdfp.models.stepping import Scaled
from fpdfp.models.structure import Columns, Name, Structure
from fpdfp.problem import Model, Problem
from fpdfp.scores.base import outcome_of
from fpdfp.selection.batch import Batch
from fpdfp.selection.choice import RULES, Curve, summarise
from fpdfp.selection.curves import Curves
from fpdfp.selection.many import collect, run
from fpdfp.selection.paths import Path, check_grid, count_alphas, settle
from fpdfp.selection.task import Task

#: The parameters that a cross-validation has in place of ``alpha``.
OWN = {
    "alphas": 100, "ratio": 1e-3, "cv": 5, "scoring": "deviance", "rule": "min", "cv_tol": 1e-4, "cv_rounds": 500,
    "cv_checkpoint": None,
}  # fmt: skip
#: The names of scores.
SCORES = ("deviance", "brier", "accuracy", "auc", "mse", "mae", "concordance")
#: What may be a list, and is then chosen too.
MIXED = ("l1_ratio", "l1_weight")


class CrossValidated(Structures):
    """What the estimators have in common that choose their weight; see :class:`FederatedLogisticRegressionCV`."""

    alphas: Any
    ratio: float
    cv: Any
    scoring: str
    rule: Literal["min", "1se"]
    cv_tol: float
    cv_rounds: int
    cv_checkpoint: str | os.PathLike[str] | None
    #: Of the model that is fitted at the end.
    alpha = 1.0

    if TYPE_CHECKING:  # every class has one of its own, below

        def __init__(
            self,
            *args: Any,
            penalty: Name = "l1",
            alphas: int | Sequence[float] | Array = 100,
            ratio: float = 1e-3,
            cv: Any = 5,
            scoring: str = "deviance",
            rule: Literal["min", "1se"] = "min",
            cv_tol: float = 1e-4,
            cv_rounds: int = 500,
            cv_checkpoint: str | os.PathLike[str] | None = None,
            l1_ratio: float | Sequence[float] = 0.5,
            l1_weight: float | Sequence[float] = 1.0,
            **others: Any,
        ) -> None: ...

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        base: Any = next(
            one for one in cls.__mro__ if issubclass(one, BaseEstimator) and not issubclass(one, Structures)
        )
        own = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in OWN.items()
        ]
        inherited = [one for name, one in inspect.signature(base).parameters.items() if name != "alpha"]
        inherited = [_defaults(one) for one in inherited]
        first = [one for one in inherited if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        rest = [one for one in inherited if one.kind is inspect.Parameter.KEYWORD_ONLY]
        signature = inspect.Signature([*first, *own, *rest])

        def __init__(self: Any, *args: Any, **given: Any) -> None:  # noqa: N807
            bound = signature.bind(*args, **given)
            bound.apply_defaults()
            for name in OWN:
                setattr(self, name, bound.arguments.pop(name))
            base.__init__(self, alpha=1.0, **bound.arguments)

        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        __init__.__signature__ = signature.replace(parameters=[this, *signature.parameters.values()])  # type: ignore[attr-defined]
        __init__.__qualname__ = f"{cls.__name__}.__init__"
        cls.__init__ = __init__  # type: ignore[method-assign]

    def _mixings(self: Any) -> list[dict[str, float]]:
        """Return all ways in which the penalty is mixed."""
        lists = {name: np.atleast_1d(getattr(self, name)).tolist() for name in MIXED}
        return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]

    def _check_parameters(self: Any) -> None:
        for mixing in self._mixings():
            one = copy.copy(self)
            vars(one).update(mixing)
            super(CrossValidated, one)._check_parameters()  # type: ignore[misc]
        if self.penalty in ("none", *USUAL):
            raise ArgumentError("penalty", f"must be a convex one for cross-validation, got {self.penalty!r}")
        check_grid(self.alphas, self.ratio, self.cv_tol, self.cv_rounds)
        _checks.choice("rule", self.rule, RULES)
        _checks.choice("scoring", self.scoring, SCORES)
        if isinstance(self.cv, str):
            _checks.choice("cv", self.cv, ("sites",))
        elif isinstance(self.cv, int | np.integer):
            _checks.integer("cv", self.cv, at_least=2)

    def _split(self: Any, losses: Any) -> tuple[Folds | None, Any, Losses]:
        """Return how rows are left out, the fold of each site if sites are left out, and the losses."""
        if isinstance(self.cv, str):
            if losses.n_clients < 2:
                raise ArgumentError("cv", "must be a number for one site: there must be another to learn from")
            return None, 1 - np.eye(losses.n_clients, dtype=np.int64), losses
        if isinstance(self.cv, int | np.integer):
            rows = int(losses.sizes.sum())
            if rows < self.cv:
                raise ArgumentError(
                    "cv", f"must be at most the number of rows, got {self.cv} folds for n_samples={rows}"
                )
            return Folds(int(self.cv), self._draw_seed(), stratified=self._stratifies), None, losses
        if getattr(self, "formula_", None) is not None or not hasattr(self, "_owner_of_rows"):
            raise ArgumentError("cv", "must be a number of folds, or 'sites', with a formula")
        owner = self._owner_of_rows
        used = vars(self).pop("_used_rows", None)
        if used is not None:  # rows of weight zero are not among those that are kept
            whole = np.full(len(used), -1)
            whole[used] = owner
            labels = _read_labels(self.cv, whole)
            labels = labels[used] if labels.shape == used.shape else labels
        else:
            labels = _read_labels(self.cv, owner)
        if labels.shape != owner.shape:
            raise ArgumentError("cv", f"must have the fold of each of the {len(owner)} rows, got shape {labels.shape}")
        names, codes = np.unique(labels, return_inverse=True)
        if len(names) < 2:
            raise ArgumentError("cv", "must have at least two different folds")
        made = copy.copy(losses)
        made.folds = losses.place_rows(codes.astype(np.int64)[np.argsort(owner, kind="stable")])
        return Folds(len(names), given=True), None, made

    def _mark_rows(self: Any, used: Array) -> None:
        self._used_rows = used

    def _minimise(
        self: Any, build: Callable[[], Losses], structure: Structure, columns: Columns, scaled: Scaled, choose: Any
    ) -> Problem:
        losses = build()
        problem = make_problem(losses)
        folds, samples, held = self._split(losses)
        mixings = self._mixings()
        left_out = (0 if folds is None else folds.all) + (0 if samples is None else len(samples))
        problems = len(mixings) * (left_out + 1) * count_alphas(self.alphas)
        batch = Batch(problem if held is losses else make_problem(held), folds, samples, problems=problems)
        model_of = self._models(columns, scaled, losses.shape)
        place = None if self.cv_checkpoint is None else FilePath(self.cv_checkpoint) / "cv"
        with open_record(place, batch.problem):
            chosen = self._select(losses, batch, model_of, mixings, columns, scaled)
        solved: Problem = self._fit_chosen(losses, columns, scaled, choose, batch, *chosen)
        return solved

    def _select(
        self: Any, losses: Losses, batch: Batch, model_of: Callable[..., Model], mixings: list[dict[str, float]],
        columns: Columns, scaled: Scaled,
    ) -> tuple[Array, dict[str, float]]:  # fmt: skip
        """Solve the problems of all weights and folds, and choose; return the solution, and how it is mixed."""
        tasks: list[Task] = []
        grids = []
        for mixing in mixings:
            weights, trivial = self._find_alphas(batch, model_of, self.alphas, self.ratio, self.cv_rounds, **mixing)
            grids.append(weights)
            made = [
                [Task(model_of(float(alpha), **mixing), fold) for alpha in weights]
                for fold in range(-1, batch.n_folds)
            ]  # fmt: skip
            settle(made[0][0], trivial)
            tasks += [task for fold in made for task in fold]
        interrupted = run(batch, tasks, self.cv_tol, self.cv_rounds, self.progress)
        found = collect(batch, tasks)
        if interrupted:
            raise KeyboardInterrupt
        if not found.converged:
            left = sum(status != "converged" for status in found.status)
            warn(
                f"{left} of the {len(tasks)} problems of the cross-validation have not reached cv_tol={self.cv_tol:g} "
                f"in {batch.exchanges} rounds; allow more cv_rounds, a larger ratio or a larger cv_tol",
                ConvergenceWarning,
            )
        chosen: tuple[Array, dict[str, float]] = self._choose(losses, columns, scaled, batch, grids, mixings, found)
        return chosen

    def _choose(
        self: Any, losses: Losses, columns: Columns, scaled: Scaled, batch: Batch, grids: list[Array],
        mixings: list[dict[str, float]], found: Any,
    ) -> tuple[Array, dict[str, float]]:  # fmt: skip
        """Keep scores, and choose a weight; return its solution, and how the penalty is mixed."""
        shape = (len(mixings), batch.n_folds + 1, len(grids[0]))
        scores, greater = self._score(batch, found, shape)
        curves: list[Curve] = [summarise(one, batch.weights, greater_is_better=greater) for one in scores]
        sign = 1.0 if greater else -1.0
        best = int(np.argmax([sign * curve.mean[curve.best] for curve in curves]))
        curve, weights = curves[best], grids[best]
        place = curve.best if self.rule == "min" else curve.simplest
        self.alphas_ = weights if len(grids) == 1 else np.array(grids)
        self.scores_ = scores[0] if len(grids) == 1 else scores
        self.mean_score_, self.score_error_ = curve.mean, curve.error
        self.alpha_min_, self.alpha_1se_ = float(weights[curve.best]), float(weights[curve.simplest])
        self.alpha_ = float(weights[place])
        self.l1_ratio_, self.l1_weight_ = (mixings[best][name] for name in MIXED)
        varied = [{name: one[name] for name in MIXED if np.ndim(getattr(self, name))} for one in mixings]
        self.curves_ = Curves(
            self.scoring, greater, self.rule, batch.n_folds, tuple(varied), tuple(grids), tuple(curves), best
        )
        x = found.x.reshape(*shape, -1)[best, 0]
        coef, intercept = self._unscale_many(x, columns, scaled)
        own = slice(best * shape[1] * shape[2], best * shape[1] * shape[2] + shape[2])
        self.path_ = Path(
            weights, coef, intercept, found.objective[own], found.gap[own], found.status[own], found.rounds,
            found.bits_up, found.bits_down, tuple(self._names().features), self._path_labels(), self.alpha_,
        )  # fmt: skip
        return x[place].reshape(losses.shape), mixings[best]

    def _fit_chosen(
        self: Any, losses: Losses, columns: Columns, scaled: Scaled, choose: Any, batch: Batch, warm: Array,
        mixing: dict[str, float],
    ) -> Problem:  # fmt: skip
        """Fit all rows with the chosen weight, from what the cross-validation has found."""
        chosen = self._make_structure(columns, self.alpha_, **mixing).restrain(columns, None, absorb=True)
        self._warm = warm
        if self.cv_checkpoint is not None:  # options of a run are read from attributes of their names
            self.checkpoint, self.resume = FilePath(self.cv_checkpoint) / "fit.npz", True
        try:
            solved: Problem = super()._minimise(lambda: losses, chosen, columns, scaled, choose)  # type: ignore[misc]
        finally:
            for name in ("_warm", "_make_structure", "_owner_of_rows", "_used_rows", "checkpoint", "resume"):
                vars(self).pop(name, None)  # of this fit alone
        self.n_iter_ += batch.exchanges
        self.bits_up_, self.bits_down_ = self.bits_up_ + batch.bits_up, self.bits_down_ + batch.bits_down
        return solved

    def _score(self: Any, batch: Batch, found: Any, shape: tuple[int, ...]) -> tuple[Array, bool]:
        """Return the score of each mixing, weight and fold, and whether greater is better."""
        self.score_bound_ = 0.0
        if self.scoring == "deviance":
            return 2.0 * found.held_out_loss.reshape(shape)[:, 1:].transpose(0, 2, 1), False
        family = "cox" if self._survives else self._family() or "multinomial"
        score = make_score(self.scoring, family)
        held = np.broadcast_to(np.arange(-1, batch.n_folds)[:, None], shape)
        points = np.nan_to_num(found.x).reshape(*shape, -1)[:, 1:].reshape(-1, batch.d)
        classes = outcome_of(family) == "classes"
        estimates = batch.score(points, held[:, 1:].ravel().copy(), score, classes=classes)
        self.score_bound_ = float(np.nanmax([one.bound for one in estimates]))
        values = np.array([one.value for one in estimates]).reshape(shape[0], shape[1] - 1, shape[2])
        return values.transpose(0, 2, 1), score.greater_is_better

    def _start(self: Any, columns: Columns, scaled: Scaled) -> Array | None:
        warm: Array | None = getattr(self, "_warm", None)
        return super()._start(columns, scaled) if warm is None else warm  # type: ignore[misc]


def _defaults(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter with the default that a cross-validation has: there is no choice without a penalty."""
    if parameter.name == "penalty" and parameter.default == "none":
        return parameter.replace(default="l1")
    return parameter


def _read_labels(cv: Any, owner: Array) -> Array:
    """Return the fold of each row, given by an array, by a splitter or by pairs of training and test rows."""
    rows = len(owner)
    if hasattr(cv, "split"):
        cv = list(cv.split(np.zeros((rows, 1)), None, owner))
    if not isinstance(cv, list | tuple) or not cv or not isinstance(cv[0], list | tuple):
        return _checks.host_array("cv", cv)
    labels, times = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    for fold, (train, test) in enumerate(cv):
        chosen = np.zeros(rows, dtype=bool)
        chosen[test] = True
        labels[chosen] = fold
        times += chosen
        if chosen[train].any() or len(np.unique(np.arange(rows)[train])) + chosen.sum() != rows:
            raise ArgumentError("cv", "must have pairs whose training rows are all that are not test rows")
    if (times != 1).any():
        raise ArgumentError("cv", "must have pairs whose test rows are all rows once")
    return labels
