"""What a site tells of predictions: no count of few rows, and nothing at points where few rows decide."""

from __future__ import annotations

import dataclasses

import numpy as np

from fpdfp.errors import RefusalError
from fpdfp.federation.designs import check_design
from fpdfp.federation.exposure import PointRefusedError, Watched, watch
from fpdfp.federation.points import Earlier
from fpdfp.federation.policy import Policy, RefusedError, matches
from fpdfp.federation.questions import CalibrationQuestion, EvaluationQuestion
from fpdfp.losses.base import Losses
from fpdfp.scores.counts import PredictorCounts
from fpdfp.scores.site import SiteScores

#: The kinds of questions that these rules are for.
KINDS = ("evaluation", "calibration")
#: To so many digits after the point a site tells the area under its ROC curve.
DIGITS = 4
#: In so many cells rows are counted at further points of a question, and rows of the rarer class in so many at least.
CELLS, LEAST_CELLS = 24, 4


def check_model(
    losses: Losses, question: EvaluationQuestion | CalibrationQuestion, policy: Policy, earlier: Earlier
) -> Losses:
    """Refuse models that the site would not fit, and points it would not answer at; return the watched losses."""
    if not matches(losses.family.split("(")[0], policy.requests.families):
        raise RefusedError(f"this site does not answer for models of the family {losses.family}")
    check_design(losses, policy)
    watched = watch(losses, policy, earlier)
    if isinstance(watched, Watched):
        for x in (question.x, *getattr(question, "more", ())):
            watched.look(x, np.arange(1))
        if isinstance(question, CalibrationQuestion):
            watched.look_along(question.x, question.point)
    return watched


def protect(
    found: SiteScores, question: EvaluationQuestion, watched: Losses, policy: Policy, *, few: bool = False
) -> SiteScores:
    """Return what may leave: cells are put together until no count is small, and what is still small is withheld.

    With ``few`` there are only so many cells as a curve needs.
    """
    least, withheld = policy.data.least_rows_per_level, list(found.withheld)
    sums, hits = found.sums, found.hits
    # Rounded areas do not tell that one pair of rows has changed places.
    areas = found.areas.copy()
    areas[:, 0], areas[:, 1] = np.round(areas[:, 0], DIGITS), 0.5 * 10.0**-DIGITS
    try:
        predictors = [one.coarsen(max(least, _least_of_few(one)) if few else least) for one in found.predictors]
    except RefusalError:
        predictors, areas = [], np.zeros((0, 3))
        withheld.append("auc")
    if hits is not None and any(0 < count < least for count in (hits, found.rows - hits)):
        sums, hits = found.withhold("accuracy"), None
        withheld.append("accuracy")
    own, own_sums = found.own, found.own_sums
    if isinstance(watched, Watched) and len(found.own):
        try:
            watched.look_along(question.x, found.own)
        except PointRefusedError:
            own, own_sums = np.zeros(0), []
            withheld.append("calibration")
    # Each further point by itself, as if it had been asked for alone.
    alone = [dataclasses.replace(question, x=x, more=[]) for x in question.more]
    return dataclasses.replace(
        found,
        sums=sums,
        areas=areas,
        predictors=predictors,
        residuals=[one.coarsen(least) for one in found.residuals],
        own=own,
        own_sums=own_sums,
        hits=hits,
        withheld=tuple(withheld),
        more=[protect(one, asked, watched, policy, few=True) for one, asked in zip(found.more, alone, strict=True)],
    )


def _least_of_few(counts: PredictorCounts) -> int:
    """Return how many rows a cell must have where few cells are told."""
    sums = [int(one.sum(dtype=np.int64)) for one in (counts.events, counts.others)]
    return min(sum(sums) // CELLS, min(sums) // LEAST_CELLS)
