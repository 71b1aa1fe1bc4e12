"""Many penalties of one design in the same exchanges: paths, stable selections, bootstraps, and cross-validation."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from fpdfp import _checks
from fpdfp._typing import Array, Shape
from fpdfp._warn import warn
from fpdfp.cohorts.many_points import make_score
from fpdfp.cohorts.record import open_record
from fpdfp.errors import ArgumentError
from fpdfp.folds import Folds
from fpdfp.linops import Identity
from fpdfp.losses import Losses
from fpdfp.models.design import Design, Settings
from fpdfp.models.fitting import Search, fit_design
from fpdfp.models.penalty import Concave, Details, ElasticNet, ModelPenalty, NoPenalty, Ridge
from fpdfp.models.result import Choice, FitResult
from fpdfp.penalties import Zero
from fpdfp.problem import Model, Problem
from fpdfp.scores.base import outcome_of
from fpdfp.selection.batch import Batch
from fpdfp.selection.curves import RULES, Bootstrap, Curve, Curves, Rule, Stability, summarise
from fpdfp.selection.many import collect, run
from fpdfp.selection.paths import RATIO, Path, check_grid, count_alphas, find_alphas, follow, settle
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

        No ridge makes coefficients zero: its largest weight is as for an elastic net with a thousandth of l1.
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
    left = sum(status != "converged" for status in found.status)
    if left:
        warn(
            f"{left} of the {len(weights)} weights of the path have not reached tol={tol:g} in {found.rounds} rounds; "
            "allow more rounds, a larger ratio or a larger tol",
            ConvergenceWarning,
        )
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


#: The names of scores.
SCORES = ("deviance", "brier", "accuracy", "auc", "mse", "mae", "concordance")


@dataclasses.dataclass(frozen=True, eq=False)
class CrossValidation:
    """Options of a cross-validation.

    Parameters
    ----------
    folds
        In how many folds each site divides its rows at random, classes evenly; ``"sites"`` to exclude one site at a
        time. Or an array with the fold of each row, a splitter of scikit-learn, or its pairs of training and test rows,
        whose test rows must be all rows once.
    alphas
        How many weights, from the smallest whose solution is zero down to ``ratio`` times that; or the weights.
    ratio
        The least weight relative to the largest.
    scoring
        ``"deviance"``: the deviance of the excluded rows, divided by their weight. Or, in one more exchange,
        ``"brier"``,
        ``"accuracy"`` or ``"auc"`` for classes, ``"mse"`` or ``"mae"`` for numbers, ``"concordance"`` for times. The
        area under the ROC curve (of several classes the mean of each against all others) comes from histograms of the
        linear predictor with 1,002 cells, in two exchanges; ``score_bound_`` describes how far it is off at most.
        Sites with a policy show deviances and Brier scores only.
    rule
        ``"min"`` for the weight of the best mean score, ``"1se"`` for the largest weight whose score is within one
        standard error of that.
    tol, rounds
        The relative accuracy of the problems of the cross-validation, as it is estimated, and the most exchanges.
        Scores are about the root of it from exact ones. With 1e-4 the weight of the best score is found up to 41 steps
        of 100 away, with 1e-7 it is the weight of exact scores, or its neighbour.
    checkpoint
        A folder to which all answers of sites, and the fit at the end, are written. After an interruption the same
        ``fit`` continues there, to exactly the bits of one that was not interrupted; nothing is asked, nor paid for,
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


def cross_validate(
    design: Design, settings: Settings, validation: CrossValidation, *, search: Search | None = None,
    note: Callable[[Any], None] | None = None,
) -> FitResult:  # fmt: skip
    """Choose a weight, and return the fit to all rows with it, from the solution that the cross-validation has.

    ``search`` and ``note`` are as in :func:`fpdfp.models.fitting.fit_design`.
    """
    losses = design.build(design.outcome, np.zeros(design.columns.of_rows))
    models = PenalisedModels(design, settings, losses.shape)
    folds, samples, held = _split(design, settings, validation.folds, losses)
    mixings = settings.penalty.mixings()
    left_out = (0 if folds is None else folds.all) + (0 if samples is None else len(samples))
    problems = len(mixings) * (left_out + 1) * count_alphas(validation.alphas)
    batch = Batch(make_problem(held), folds, samples, problems=problems)
    folder = None if validation.checkpoint is None else FilePath(validation.checkpoint)
    with open_record(None if folder is None else folder / "cv", batch.problem):
        choice, warm, mixing = _select(design, settings, validation, batch, models, mixings)
    options = settings.options
    if folder is not None:
        options = dataclasses.replace(options, checkpoint=folder / "fit.npz", resume=True)
    chosen = dataclasses.replace(
        settings, penalty=settings.penalty.with_options(choice.alpha, **mixing), options=options
    )  # fmt: skip
    # The losses of the cross-validation are those of the fit: sites make them once.
    same = dataclasses.replace(design, build=lambda *_: losses)
    fit = fit_design(
        same, chosen, search=search, details=models.details, start=warm.reshape(losses.shape), absorb=True, note=note
    )  # fmt: skip
    return dataclasses.replace(
        fit, choice=choice, n_iter=fit.n_iter + batch.exchanges, bits_up=fit.bits_up + batch.bits_up,
        bits_down=fit.bits_down + batch.bits_down,
    )  # fmt: skip


def _split(design: Design, settings: Settings, given: Any, losses: Losses) -> tuple[Folds | None, Any, Losses]:
    """Return how rows are excluded, the fold of each site if sites are excluded, and the losses."""
    if isinstance(given, str):
        if losses.n_clients < 2:
            raise ArgumentError("cv", "must be a number for one site: there must be another to learn from")
        return None, 1 - np.eye(losses.n_clients, dtype=np.int64), losses
    if isinstance(given, int | np.integer):
        rows = int(losses.sizes.sum())
        if rows < given:
            raise ArgumentError("cv", f"must be at most the number of rows, got {given} folds for n_samples={rows}")
        return Folds(int(given), settings.options.seed, stratified=design.outcome.stratifies), None, losses
    owner = design.owner
    if owner is None:
        raise ArgumentError("cv", "must be a number of folds, or 'sites', with a formula")
    if design.kept is not None:  # rows of weight zero are not among those that are kept
        whole = np.full(len(design.kept), -1)
        whole[design.kept] = owner
        labels = _read_labels(given, whole)
        labels = labels[design.kept] if labels.shape == design.kept.shape else labels
    else:
        labels = _read_labels(given, owner)
    if labels.shape != owner.shape:
        raise ArgumentError("cv", f"must have the fold of each of the {len(owner)} rows, got shape {labels.shape}")
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ArgumentError("cv", "must have at least two different folds")
    made: Any = copy.copy(losses)
    made.folds = made.place_rows(codes.astype(np.int64)[np.argsort(owner, kind="stable")])
    return Folds(len(names), given=True), None, made


def _select(
    design: Design, settings: Settings, validation: CrossValidation, batch: Batch, models: PenalisedModels,
    mixings: list[dict[str, float]],
) -> tuple[Choice, Array, dict[str, float]]:  # fmt: skip
    """Solve the problems of all weights and folds, and choose; return the solution, and how it is mixed."""
    tasks: list[Task] = []
    grids = []
    for mixing in mixings:
        weights, trivial = models.find_alphas(batch, validation.alphas, validation.ratio, validation.rounds, **mixing)
        grids.append(weights)
        made = [
            [Task(models.of(settings.penalty.with_options(float(alpha), **mixing)), fold) for alpha in weights]
            for fold in range(-1, batch.n_folds)
        ]  # fmt: skip
        settle(made[0][0], trivial)
        tasks += [task for fold in made for task in fold]
    interrupted = run(batch, tasks, validation.tol, validation.rounds, settings.options.progress)
    found = collect(batch, tasks)
    if interrupted:
        raise KeyboardInterrupt
    if not found.converged:
        left = sum(status != "converged" for status in found.status)
        warn(
            f"{left} of the {len(tasks)} problems of the cross-validation have not reached tol={validation.tol:g} "
            f"in {batch.exchanges} rounds; allow more rounds, a larger ratio or a larger tol of "
            "fpdfp.CrossValidation",
            ConvergenceWarning,
        )
    return _choose(design, settings, validation, batch, models, grids, mixings, found)


def _choose(
    design: Design, settings: Settings, validation: CrossValidation, batch: Batch, models: PenalisedModels,
    grids: list[Array], mixings: list[dict[str, float]], found: Any,
) -> tuple[Choice, Array, dict[str, float]]:  # fmt: skip
    """Choose a weight by the scores; return its solution, and how the penalty is mixed."""
    shape = (len(mixings), batch.n_folds + 1, len(grids[0]))
    scores, greater, bound = _score(design, validation, batch, found, shape)
    curves: list[Curve] = [summarise(one, batch.weights, greater_is_better=greater) for one in scores]
    sign = 1.0 if greater else -1.0
    best = int(np.argmax([sign * curve.mean[curve.best] for curve in curves]))
    curve, weights, penalty = curves[best], grids[best], settings.penalty
    place = curve.best if validation.rule == "min" else curve.simplest
    several = [name for name in penalty.mixed if np.ndim(getattr(penalty, name))]
    varied = tuple({name: one[name] for name in several} for one in mixings)
    x = found.x.reshape(*shape, -1)[best, 0]
    coef, intercept = models.take_many(x)
    own = slice(best * shape[1] * shape[2], best * shape[1] * shape[2] + shape[2])
    alpha = float(weights[place])
    path = Path(
        weights, coef, intercept, found.objective[own], found.gap[own], found.status[own], found.rounds,
        found.bits_up, found.bits_down, tuple(design.names.features), design.outcome.path_labels(), alpha,
    )  # fmt: skip
    choice = Choice(
        alpha=alpha, alpha_min=float(weights[curve.best]), alpha_1se=float(weights[curve.simplest]),
        alphas=weights if len(grids) == 1 else np.array(grids), scores=scores[0] if len(grids) == 1 else scores,
        mean_score=curve.mean, score_error=curve.error, score_bound=bound,
        curves=Curves(
            validation.scoring, greater, validation.rule, batch.n_folds, varied, tuple(grids), tuple(curves), best
        ),
        path=path,
    )  # fmt: skip
    return choice, x[place], mixings[best]


def _score(
    design: Design, validation: CrossValidation, batch: Batch, found: Any, shape: tuple[int, ...]
) -> tuple[Array, bool, float]:
    """Return the score of each mixing, weight and fold, whether greater is better, and how far one is off at most."""
    if validation.scoring == "deviance":
        return 2.0 * found.held_out_loss.reshape(shape)[:, 1:].transpose(0, 2, 1), False, 0.0
    outcome = design.outcome
    family = "cox" if outcome.survives else outcome.likelihood or "multinomial"
    score = make_score(validation.scoring, family)
    held = np.broadcast_to(np.arange(-1, batch.n_folds)[:, None], shape)
    points = np.nan_to_num(found.x).reshape(*shape, -1)[:, 1:].reshape(-1, batch.d)
    classes = outcome_of(family) == "classes"
    estimates = batch.score(points, held[:, 1:].ravel().copy(), score, classes=classes)
    bound = float(np.nanmax([one.bound for one in estimates]))
    values = np.array([one.value for one in estimates]).reshape(shape[0], shape[1] - 1, shape[2])
    return values.transpose(0, 2, 1), score.greater_is_better, bound


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
