"""What clients send for scores of a cross-validation: sums over the rows that are excluded, at many points."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.question import Points, Question, question, reveals, rows_of
from fpdfp.engines.evaluations import Evaluations
from fpdfp.errors import MessageError
from fpdfp.losses.classes import ClassModel, Softmax
from fpdfp.losses.cox import Cox
from fpdfp.losses.glm import GLM, SingleForm
from fpdfp.losses.linear import LinearModel
from fpdfp.problem import LocalLosses
from fpdfp.scores import by_name
from fpdfp.scores.auc import AUC
from fpdfp.scores.base import Score, outcome_of
from fpdfp.survival.response import Times

#: Cells of the linear predictor for areas under ROC curves, in standard deviations from its mean.
EDGES = np.linspace(-5.0, 5.0, 1001)
#: The score that tells where the linear predictor is: the weight of rows, and the sums of it and of its square.
MOMENTS = "moments"
#: From here on sums of a mean are those of its standard error, which a cross-validation does not use.
FOR_ERRORS = 4


class Scored(NamedTuple):
    """What each client sends: for each point the sums of the score; counts of cells in single precision."""

    sums: Array


@question("held_scores")
@dataclasses.dataclass(frozen=True)
class HeldScores(Question):
    """Everyone scores its rows that are excluded at each of many points.

    Attributes
    ----------
    about
        The points, and which rows are excluded; all rows where none are.
    score
        The name of the score, or ``"moments"`` of the linear predictor.
    centres, scales
        Of each point: what is subtracted from the linear predictor before it is put in cells, and what it is divided
        by (for classes, whose cells are of log-odds, not used); none for other scores.
    """

    about: Evaluations
    score: str
    centres: Array = dataclasses.field(default_factory=lambda: np.zeros(0))
    scales: Array = dataclasses.field(default_factory=lambda: np.zeros(0))

    in_parts = False
    reveals = reveals(points="about", settings="score centres scales", uses="rows")

    def __post_init__(self) -> None:
        cells = self.score == AUC.name
        for one in (self.centres, self.scales):
            if one.shape != ((len(self.about.held),) if cells else (0,)) or one.dtype != np.float64:
                raise MessageError("centres and scales must be numbers for each point in float64, for areas alone")
        if not np.isfinite(self.centres).all() or not (np.isfinite(self.scales) & (self.scales > 0)).all():
            raise MessageError("centres must be finite, and scales positive")

    def points_at(self, shape: Shape) -> Points:
        """Return the points, with the folds that are excluded."""
        return self.about.points_at(shape)

    def answer(self, local: LocalLosses) -> Scored:
        """Return what clients send."""
        losses = rows_of(local.losses)
        if not isinstance(losses, LinearModel):
            raise MessageError("losses must be those of a linear model")
        all_sums = losses.admit_score(self.score, self.about)
        points, drawn = self.about.points(math.prod(losses.shape)), self.about.draw_folds(losses)
        score = None if self.score == MOMENTS else make_score(self.score, family_of(losses))
        ends = np.concatenate([[0], np.cumsum(losses.sizes)])
        rows = []
        for client in local.clients:
            own, found = slice(int(ends[client]), int(ends[client + 1])), []
            for place, (x, fold) in enumerate(zip(points, self.about.held, strict=True)):
                count = 1 if self.about.folds is None else self.about.folds.count
                labels = drawn[max(int(fold), 0) // count][own]
                left_out = np.ones(len(labels), dtype=bool) if fold < 0 else labels == fold
                found.append(self._score(score, losses, x.reshape(losses.shape), own, left_out, place))
            rows.append(np.array(found))
        sums = np.array(rows, dtype=np.float32 if isinstance(score, AUC) else np.float64)
        if not all_sums:
            sums[..., FOR_ERRORS:] = 0.0
        return Scored(sums)

    def _score(
        self, score: Score | None, losses: LinearModel, x: Array, own: slice, left_out: Array, place: int
    ) -> Array:
        """Return the sums over some rows of a client."""
        if isinstance(losses, Cox):
            assert score is not None
            return _score_times(score, losses, x, np.flatnonzero(left_out) + own.start)
        if isinstance(losses, Softmax | ClassModel):
            if score is None:
                raise MessageError("moments are those of one linear predictor")
            forms, classes = losses.class_forms(x, own)[left_out], losses._rows.y[own][left_out]
            return score.sums(forms, classes, losses.masses[own][left_out], "multinomial")
        assert isinstance(losses, SingleForm | GLM)
        glm = losses._as_glm if isinstance(losses, SingleForm) else losses
        z, y, weights = glm.forms(x, own), glm._rows.y[own].astype(np.float64), glm.weights_of_rows[own]
        z, y, weights = z[left_out], y[left_out], weights[left_out]
        if score is None:
            return np.array([weights.sum(), weights @ z, weights @ z**2])
        if len(self.centres):
            z = (z - self.centres[place]) / self.scales[place]
        return score.sums(z, y, weights, glm.distribution)

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Scored:
        """Return the sums over clients, a row for each point; with ``times`` of those that do not count there."""
        sums = np.asarray(sent.sums, dtype=np.float64)
        if sums.ndim != 3 or sums.shape[1] != len(self.about.held) or not np.isfinite(sums).all():
            raise MessageError("sums must be finite numbers for each point")
        if times is not None:
            sums = np.where((times == 0)[..., None], sums, 0.0)
        return Scored(np.asarray(sums.sum(axis=0)))


def make_score(name: str, family: Any) -> Score:
    """Return a score with cells that are few enough to be sent for many points; those of classes are of log-odds."""
    found = by_name(name, family)
    return AUC(EDGES) if isinstance(found, AUC) and outcome_of(family) != "classes" else found


def family_of(losses: LinearModel) -> Any:
    """Return the family of outcomes, as scores name it."""
    if isinstance(losses, Cox):
        return "cox"
    if isinstance(losses, SingleForm):
        return losses.outcome_family
    if isinstance(losses, GLM):
        return losses.distribution
    if isinstance(losses, Softmax | ClassModel):
        return "multinomial"
    raise MessageError(f"losses of the family {losses.family} have no scores but the deviance")


def _score_times(score: Score, losses: Cox, x: Array, some: Array) -> Array:
    """Return the sums over some rows with times.

    Times are those numbers that events have: a censored row leaves between two of them.
    """
    table = losses._risk.table
    event = table.event[some] >= 0
    time = np.where(event, table.event[some], table.last[some] - 0.5)
    risk = np.asarray(losses._rows.X[some] @ x).ravel() + table.offset[some]
    strata = np.searchsorted(table.rows, some, side="right")
    times = Times.of(time + 1.0, event, table.first[some] + 0.25)
    return score.sums(risk, (times, strata), table.weights[some], "cox")


def locate(moments: Array) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of the linear predictor, 0 where it is constant, from its sums."""
    weight = np.maximum(moments[:, 0], 1e-300)
    mean = moments[:, 1] / weight
    square = moments[:, 2] / weight
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    return mean, np.where(deviation > 1e-6 * np.sqrt(square), deviation, 0.0)
