"""Estimators that choose the weight of their penalty by cross-validation, in the exchanges of about one fit."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.cohorts.many_points import make_score
from fpdfp.cohorts.record import open_record
from fpdfp.engines.options import RunOptions
from fpdfp.errors import ArgumentError
from fpdfp.folds import Folds
from fpdfp.losses import Losses
from fpdfp.models.penalty import Columns, ModelPenalty, Structure
from fpdfp.models.selecting import Structures, check_convex, make_problem
from fpdfp.models.stepping import Scaled
from fpdfp.problem import Model, Problem
from fpdfp.scores.base import outcome_of
from fpdfp.selection.batch import Batch
from fpdfp.selection.choice import RULES, Curve, Rule, summarise
from fpdfp.selection.curves import Curves
from fpdfp.selection.many import collect, run
from fpdfp.selection.paths import RATIO, Path, check_grid, count_alphas, settle
from fpdfp.selection.task import Task

#: The names of scores.
SCORES = ("deviance", "brier", "accuracy", "auc", "mse", "mae", "concordance")


@dataclasses.dataclass(frozen=True, eq=False)
class CrossValidation:
    """How a cross-validation chooses the weight of a penalty.

    Parameters
    ----------
    folds
        In how many folds each site divides its rows at random, classes evenly; ``"sites"`` to leave out one site at a
        time; or an array with the fold of each row, a splitter of scikit-learn, or its pairs of training and test rows,
        whose test rows must be all rows once.
    alphas
        How many weights, from the smallest whose solution is zero down to ``ratio`` times that; or the weights.
    ratio
        The least weight relative to the largest.
    scoring
        ``"deviance"``: that of the rows left out, divided by their weight. Or, in one more exchange, ``"brier"``,
        ``"accuracy"`` or ``"auc"`` for classes, ``"mse"`` or ``"mae"`` for numbers, ``"concordance"`` for times. The
        area under the ROC curve (of several classes the mean of each against all others) is that of histograms of the
        linear predictor with 1,002 cells, in two exchanges; ``score_bound_`` says how far it is off at most.
        Sites with a policy tell deviances and Brier scores only.
    rule
        ``"min"`` for the weight of the best mean score, ``"1se"`` for the largest weight whose score is within one
        standard error of that.
    tol, rounds
        The relative accuracy of the problems of the cross-validation, as it is estimated, and the most exchanges. Scores
        are about the root of it from exact ones: with 1e-4 the weight of the best score is found up to 41 steps of 100
        away, with 1e-7 it is that of exact scores, or its neighbour (``tests/test_cv_tolerance.py``).
    checkpoint
        A folder to which all answers of sites, and the fit at the end, are written. After an interruption the same
        ``fit`` goes on there, to exactly the bits of one that was not interrupted; nothing is asked, nor paid for,
        twice.

    Examples
    --------
    >>> import fpdfp
    >>> fpdfp.FederatedLogisticRegressionCV(cv=fpdfp.CrossValidation("sites", rule="1se")).cv.folds
    'sites'
    """

    folds: Any = 5
    _: dataclasses.KW_ONLY
    alphas: int | Sequence[float] | Array = 100
    ratio: float = RATIO
    scoring: str = "deviance"
    rule: Rule = "min"
    tol: float = 1e-7
    rounds: int = 500
    checkpoint: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_grid(self.alphas, self.ratio, self.tol, self.rounds)
        _checks.choice("rule", self.rule, RULES)
        _checks.choice("scoring", self.scoring, SCORES)
        if isinstance(self.folds, str):
            _checks.choice("cv", self.folds, ("sites",))
        elif isinstance(self.folds, int | np.integer):
            _checks.integer("cv", self.folds, at_least=2)


class CrossValidated(Structures):
    """What the estimators have in common that choose their weight; see :class:`FederatedLogisticRegressionCV`."""

    cv: Any
    #: How the weight is chosen.
    _choice: CrossValidation

    def _check_parameters(self: Any) -> None:
        super()._check_parameters()  # type: ignore[misc]
        self._choice = self.cv if isinstance(self.cv, CrossValidation) else CrossValidation(self.cv)

    def _check_penalty(self: Any, given: ModelPenalty) -> ModelPenalty:
        check_convex(given, "for cross-validation")
        if given.weight is not None:
            raise ArgumentError("penalty", "must have no weight: it is chosen, from cv=fpdfp.CrossValidation(alphas=…)")
        return given

    def _split(self: Any, losses: Any) -> tuple[Folds | None, Any, Losses]:
        """Return how rows are left out, the fold of each site if sites are left out, and the losses."""
        if isinstance(self._choice.folds, str):
            if losses.n_clients < 2:
                raise ArgumentError("cv", "must be a number for one site: there must be another to learn from")
            return None, 1 - np.eye(losses.n_clients, dtype=np.int64), losses
        if isinstance(self._choice.folds, int | np.integer):
            rows = int(losses.sizes.sum())
            if rows < self._choice.folds:
                raise ArgumentError(
                    "cv", f"must be at most the number of rows, got {self._choice.folds} folds for n_samples={rows}"
                )
            return Folds(int(self._choice.folds), self._options().seed, stratified=self._stratifies), None, losses
        if getattr(self, "formula_", None) is not None or not hasattr(self, "_owner_of_rows"):
            raise ArgumentError("cv", "must be a number of folds, or 'sites', with a formula")
        owner = self._owner_of_rows
        used = vars(self).pop("_used_rows", None)
        if used is not None:  # rows of weight zero are not among those that are kept
            whole = np.full(len(used), -1)
            whole[used] = owner
            labels = _read_labels(self._choice.folds, whole)
            labels = labels[used] if labels.shape == used.shape else labels
        else:
            labels = _read_labels(self._choice.folds, owner)
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
        mixings = self.penalty_.mixings()
        left_out = (0 if folds is None else folds.all) + (0 if samples is None else len(samples))
        problems = len(mixings) * (left_out + 1) * count_alphas(self._choice.alphas)
        batch = Batch(problem if held is losses else make_problem(held), folds, samples, problems=problems)
        model_of = self._models(columns, scaled, losses.shape)
        place = None if self._choice.checkpoint is None else FilePath(self._choice.checkpoint) / "cv"
        with open_record(place, batch.problem):
            chosen = self._select(losses, batch, model_of, mixings, columns, scaled)
        solved: Problem = self._fit_chosen(losses, columns, scaled, choose, batch, *chosen)
        return solved

    def _select(
        self: Any, losses: Losses, batch: Batch, model_of: Callable[[ModelPenalty], Model],
        mixings: list[dict[str, float]], columns: Columns, scaled: Scaled,
    ) -> tuple[Array, dict[str, float]]:  # fmt: skip
        """Solve the problems of all weights and folds, and choose; return the solution, and how it is mixed."""
        choice: CrossValidation = self._choice
        tasks: list[Task] = []
        grids = []
        for mixing in mixings:
            weights, trivial = self._find_alphas(batch, model_of, choice.alphas, choice.ratio, choice.rounds, **mixing)
            grids.append(weights)
            made = [
                [Task(model_of(self.penalty_.with_options(float(alpha), **mixing)), fold) for alpha in weights]
                for fold in range(-1, batch.n_folds)
            ]  # fmt: skip
            settle(made[0][0], trivial)
            tasks += [task for fold in made for task in fold]
        interrupted = run(batch, tasks, choice.tol, choice.rounds, self._options().progress)
        found = collect(batch, tasks)
        if interrupted:
            raise KeyboardInterrupt
        if not found.converged:
            left = sum(status != "converged" for status in found.status)
            warn(
                f"{left} of the {len(tasks)} problems of the cross-validation have not reached tol={choice.tol:g} "
                f"in {batch.exchanges} rounds; allow more rounds, a larger ratio or a larger tol of "
                "fpdfp.CrossValidation",
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
        place = curve.best if self._choice.rule == "min" else curve.simplest
        self.alphas_ = weights if len(grids) == 1 else np.array(grids)
        self.scores_ = scores[0] if len(grids) == 1 else scores
        self.mean_score_, self.score_error_ = curve.mean, curve.error
        self.alpha_min_, self.alpha_1se_ = float(weights[curve.best]), float(weights[curve.simplest])
        self.alpha_ = float(weights[place])
        several = [name for name in self.penalty_.mixed if np.ndim(getattr(self.penalty_, name))]
        varied = [{name: one[name] for name in several} for one in mixings]
        self.curves_ = Curves(
            self._choice.scoring,
            greater,
            self._choice.rule,
            batch.n_folds,
            tuple(varied),
            tuple(grids),
            tuple(curves),
            best,
        )  # fmt: skip
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
        self.penalty_ = self.penalty_.with_options(self.alpha_, **mixing)
        chosen = self._make_structure(columns, self.penalty_).restrain(columns, None, absorb=True)
        self._warm = warm
        try:
            solved: Problem = super()._minimise(lambda: losses, chosen, columns, scaled, choose)  # type: ignore[misc]
        finally:
            for name in ("_warm", "_make_structure", "_owner_of_rows", "_used_rows"):
                vars(self).pop(name, None)  # of this fit alone
        self.n_iter_ += batch.exchanges
        self.bits_up_, self.bits_down_ = self.bits_up_ + batch.bits_up, self.bits_down_ + batch.bits_down
        return solved

    def _score(self: Any, batch: Batch, found: Any, shape: tuple[int, ...]) -> tuple[Array, bool]:
        """Return the score of each mixing, weight and fold, and whether greater is better."""
        self.score_bound_ = 0.0
        if self._choice.scoring == "deviance":
            return 2.0 * found.held_out_loss.reshape(shape)[:, 1:].transpose(0, 2, 1), False
        family = "cox" if self._survives else self._family() or "multinomial"
        score = make_score(self._choice.scoring, family)
        held = np.broadcast_to(np.arange(-1, batch.n_folds)[:, None], shape)
        points = np.nan_to_num(found.x).reshape(*shape, -1)[:, 1:].reshape(-1, batch.d)
        classes = outcome_of(family) == "classes"
        estimates = batch.score(points, held[:, 1:].ravel().copy(), score, classes=classes)
        self.score_bound_ = float(np.nanmax([one.bound for one in estimates]))
        values = np.array([one.value for one in estimates]).reshape(shape[0], shape[1] - 1, shape[2])
        return values.transpose(0, 2, 1), score.greater_is_better

    def _options(self: Any, **more: Any) -> RunOptions:
        if self._choice.checkpoint is not None and hasattr(self, "_warm"):  # the fit after the choice
            more |= {"checkpoint": FilePath(self._choice.checkpoint) / "fit.npz", "resume": True}
        options: RunOptions = super()._options(**more)  # type: ignore[misc]
        return options

    def _start(self: Any, columns: Columns, scaled: Scaled) -> Array | None:
        warm: Array | None = getattr(self, "_warm", None)
        return super()._start(columns, scaled) if warm is None else warm  # type: ignore[misc]


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
