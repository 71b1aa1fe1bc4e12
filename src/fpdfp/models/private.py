"""Fits of sites at the level ``private``: sums with noise in the place of a run."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fpdfp.errors import ArgumentError
from fpdfp.federation.private import PrivateCohort, name_response
from fpdfp.inference import Information
from fpdfp.models.design import Design, Settings
from fpdfp.models.fitting import why_not
from fpdfp.models.penalty import find_limits
from fpdfp.models.result import FitResult
from fpdfp.privacy.accounting import mu_of
from fpdfp.privacy.fit import STEPS, Goal, gradients, newton, statistics

#: The families that sites release sums of, with their links, and the losses there.
LOSSES: dict[tuple[str, str], tuple[Any, Any]] = {
    ("binomial", "logit"): ("logistic", "Logistic"),
    ("gaussian", "identity"): ("squares", "LeastSquares"),
}


def in_ranges(settings: Settings) -> Settings:
    """Return settings in which features are mapped from their public ranges; penalties are in these coordinates."""
    return dataclasses.replace(settings, standardize=True)


def fit_private(design: Design, settings: Settings) -> FitResult:
    """Return the fit of a design from releases with noise, with their price.

    Penalties and limits cost nothing. Standard errors count the noise: they belong to an information H with
    H⁻¹ = H₂⁻¹ + σ²H₂⁻² (:func:`fpdfp.privacy.fit.newton`).
    """
    cohort, outcome, columns = design.cohort, design.outcome, design.columns
    assert isinstance(cohort, PrivateCohort)
    assert design.plan is not None
    assert design.spec is not None
    family, privacy = outcome.likelihood, cohort.privacy
    known = None if family is None else LOSSES.get((family.name, family.link))
    if known is None or not columns.intercept or outcome.loss not in ("GLM", "Logistic", "LeastSquares"):
        raise ArgumentError(
            "model", "must be logistic or linear, of two classes or a number, with an intercept, at the level 'private'"
        )
    if settings.penalty.is_concave or settings.method is not None:
        raise ArgumentError("penalty", "must be convex, and method None, at the level 'private'")
    loss, kind = known
    structure = settings.penalty.build(columns, design.details(settings.penalty, progress=False))
    structure = structure.restrain(columns, None, absorb=True).restrain(columns, design.limits(settings.bounds))
    refusal = why_not(settings)
    spec = dataclasses.replace(
        design.spec, family=kind, distribution=None, classes=design.plan.classes, ridge=np.zeros(columns.all)
    )
    centre, scale = (0.0, 1.0) if loss == "logistic" else cohort.outcome(name_response(design.plan.design))
    radius, ask = cohort.asking(spec)
    goal = Goal(
        privacy.rows, columns.all, radius, mu_of(privacy.epsilon, privacy.delta), privacy.delta, 0.0,
        None if refusal is None else structure.penalty, structure.linop, loss=loss, long_rows=privacy.long_rows,
        outcome=(centre, scale),
    )  # fmt: skip
    if loss == "logistic" and privacy.mechanism == "newton" and goal.steps > STEPS[0]:
        fit = newton(ask, goal)
    elif loss == "logistic" and privacy.mechanism == "gradients":
        fit = gradients(ask, goal)
    else:
        fit = statistics(ask, goal)()
    x = scale * fit.x  # back in the units of the response
    x[columns.features] += centre
    found = outcome.take(x, columns, design.scaled, design.within(settings.bounds))
    information = None
    if fit.covariance is not None and refusal is None:
        back, p = outcome.back(columns, design.scaled), columns.all
        assert back is not None
        rows, inverse = round(privacy.rows), np.linalg.inv(fit.covariance)
        one = Information(rows, privacy.rows, math.nan, math.nan, math.nan, np.zeros(p), inverse, None)
        information = [one.change(back)]
    elif refusal is None:
        refusal = f"standard errors are not available: {fit.reason}."
    return FitResult(
        title=settings.title, outcome=outcome, names=design.names, named=design.named, sites=design.sites,
        rows=design.rows, left_out=design.left_out, formula=design.formula, plan=design.plan._replace(counts=()),
        coef=found.coef, intercept=found.intercept, effects=found.effects, thresholds=found.thresholds,
        has_intercept=True, penalty=settings.penalty, refusal=refusal, status="released", columns=columns,
        scaled=design.scaled, limits=find_limits(settings.bounds, design.names), options=settings.options,
        deviance=math.nan, standardized=settings.standardize, n_iter=len(fit.privacy.releases),
        bits_up=cohort.members.up, bits_down=cohort.members.down, information=information, privacy=fit.privacy,
    )  # fmt: skip
