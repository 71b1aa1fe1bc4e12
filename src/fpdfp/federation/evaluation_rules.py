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
from fpdfp.scores.site import EXACT, SiteScores

#: The kinds of questions that these rules are for.
KINDS = ("evaluation", "calibration")


def check_model(
    losses: Losses, question: EvaluationQuestion | CalibrationQuestion, policy: Policy, earlier: Earlier
) -> Losses:
    """Refuse models that the site would not fit, and points it would not answer at; return the watched losses."""
    if not matches(losses.family.split("(")[0], policy.requests.families):
        raise RefusedError(f"this site does not answer for models of the family {losses.family}")
    check_design(losses, policy)
    watched = watch(losses, policy, earlier)
    if isinstance(watched, Watched):
        watched.look(question.x, np.arange(1))
        if isinstance(question, CalibrationQuestion):
            watched.look_along(question.x, question.point)
    return watched


def protect(found: SiteScores, question: EvaluationQuestion, watched: Losses, policy: Policy) -> SiteScores:
    """Return what may leave: cells are put together until no count is small, and what is still small is withheld."""
    least, withheld = policy.data.least_rows_per_level, list(found.withheld)
    sums = found.sums.copy()
    try:
        predictors = [one.coarsen(least) for one in found.predictors]
    except RefusalError:
        predictors = []
        withheld.append("auc")
    hits = found.hits
    if hits is not None and any(0 < count < least for count in (hits, found.rows - hits)):
        lengths = EXACT["binary"]
        sums[sum(lengths.values()) - lengths["accuracy"] :] = 0.0
        hits = None
        withheld.append("accuracy")
    changes: dict[str, object] = {}
    if isinstance(watched, Watched) and len(found.own):
        try:
            watched.look_along(question.x, found.own)
        except PointRefusedError:
            changes = {"own": np.zeros(0), "own_sums": []}
            withheld.append("calibration")
    return dataclasses.replace(
        found, sums=sums, predictors=predictors, residuals=[one.coarsen(least) for one in found.residuals], hits=hits,
        withheld=tuple(withheld), **changes,
    )  # type: ignore[arg-type]  # fmt: skip
