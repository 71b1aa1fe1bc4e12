"""Models over sites whose policies have the level ``private``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.federation.columns import Schemas
from fpdfp.federation.masked import Exchanging, Members
from fpdfp.federation.questions import ModelSpec, dump
from fpdfp.formula.coding import code
from fpdfp.formula.parsing import parse
from fpdfp.linops import LinOp
from fpdfp.models.formulas import _classes, _standards, check_response
from fpdfp.penalties.base import Penalty
from fpdfp.privacy.accounting import mu_of
from fpdfp.privacy.fit import Goal, NoisySum, PrivateFit, newton, statistics
from fpdfp.privacy.fixed_point import WORD
from fpdfp.privacy.releases import LongRows, Release, read_sum


def _design(sites: Members, formula: str) -> tuple[Any, tuple[Any, ...]]:
    """Return the design of a formula and its classes, from what policies declare."""
    parsed = parse(formula)
    check_response(parsed, survival=False)
    if _standards(parsed):
        raise ArgumentError("formula:", "center(…) and scale(…) need means that sites do not tell at this level")
    agreed = Schemas(sites.names, sites.schemas()).agree(parsed, "any", classify=None)
    classes = _classes(parsed, agreed, classify=None)
    return code(parsed, agreed.kinds, agreed.levels, missing="drop"), classes


def private_model(
    federation: Exchanging, formula: str, *, rows: float, epsilon: float, delta: float = 1e-6,
    ranges: Mapping[str, Sequence[float]] | None = None, ridge: float = 0.0, penalty: Penalty | None = None,
    linop: LinOp | None = None, long_rows: LongRows = "drop", mechanism: str = "newton",
) -> PrivateModel:  # fmt: skip
    """Fit a logistic model, or least squares, with differential privacy for rows.

    Parameters
    ----------
    federation
        Sites whose policies have ``level = "private"``.
    formula
        As ``"died ~ age + C(stage)"``; a response of two classes is a logistic model, a number is least squares.
    rows
        About how many rows there are at all sites; public.
    epsilon, delta
        What this model may cost of each site's budget.
    ranges
        The public range of features, by name: they are mapped to [−1, 1]. Rows may be outside.
    ridge, penalty, linop
        ½ ridge‖x‖² + penalty(Bx), in the coordinates of the ranges; they cost nothing.
    long_rows
        ``"drop"`` rows longer than the policies' radius, or ``"scale"`` them, which predicts better and is biased.
    mechanism
        ``"newton"``, or ``"statistics"``, which is released once; least squares are always from statistics.
    """
    _checks.choice("mechanism", mechanism, ("newton", "statistics"))
    sites = Members(federation)
    design, classes = _design(sites, formula)
    d = len(design.names)
    centre, scale = np.zeros(d), np.ones(d)
    for name, ends in (ranges or {}).items():
        if name not in design.names or len(ends) != 2 or not ends[0] < ends[1]:
            raise ArgumentError("ranges", f"must be the least and largest value of features, got {name!r}: {ends!r}")
        place = design.names.index(name)
        centre[place], scale[place] = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    loss: Any = "logistic" if classes else "squares"
    spec = ModelSpec(
        design, np.zeros(0), centre, scale, True, "Logistic" if classes else "LeastSquares", classes, np.zeros(d + 1)
    )
    budgets = sites.exchange({"kind": "budget"})
    if any(budget.get("level") != "private" for budget in budgets.values()):
        raise ArgumentError("federation", "must have sites whose policies have level = 'private'")
    radius, masked = _common(budgets, "radius"), bool(_common(budgets, "shares") > 1)
    if masked:
        sites.meet()
    tree = dump(spec)

    def ask(release: Release) -> NoisySum:
        replies = sites.exchange({"kind": "release", "spec": tree, "release": dump(release)})
        shares = int(_common(replies, "shares"))
        if _common(replies, "radius") != radius:
            raise MessageError("the sites' radius has changed")
        if masked:
            total = sites.add_up(replies, WORD).view(np.int64)
        else:
            total = np.sum([np.frombuffer(reply["words"], "<i8") for reply in replies.values()], axis=0)
        if len(total) != release.length(d + 1):
            raise MessageError("a release must have the length that was asked for")
        deviation = release.standard_deviation(radius, d + 1, len(replies), shares)
        return NoisySum(read_sum(release, total, radius), deviation)

    goal = Goal(
        rows, d + 1, radius, mu_of(epsilon, delta), delta, ridge, penalty, linop, loss=loss, long_rows=long_rows
    )
    fit = newton(ask, goal) if loss == "logistic" and mechanism == "newton" else statistics(ask, goal)()
    back = np.diag(np.append(1 / scale, 1.0))
    back[-1, :-1] = -centre / scale
    return PrivateModel((*design.names, "Intercept"), back @ fit.x, fit, back)


def _common(replies: Mapping[str, Any], name: str) -> float:
    """Return a number that all sites say alike."""
    found = {float(reply.get(name, math.nan)) for reply in replies.values()}
    if len(found) != 1 or not math.isfinite(next(iter(found))):
        raise MessageError(f"sites must have the same {name}, got {sorted(found)}")
    return found.pop()


@dataclasses.dataclass(frozen=True)
class PrivateModel:
    """A model with differential privacy.

    Attributes
    ----------
    names, coefficients
        The coefficients, in the units of the columns.
    fit
        The fit in the coordinates of the ranges, and what it cost.
    """

    names: tuple[str, ...]
    coefficients: Array
    fit: PrivateFit
    _back: Array = dataclasses.field(repr=False)

    @property
    def privacy(self) -> Any:
        """The cost, with its unit."""
        return self.fit.privacy

    def frame(self, level: float = 0.95) -> Any:
        """Return a data frame of pandas: estimates, and intervals where there are any."""
        import pandas
        from scipy.stats import norm

        table = pandas.DataFrame({"estimate": self.coefficients}, index=pandas.Index(self.names, name="coefficient"))
        if self.fit.covariance is not None:
            errors = np.sqrt(np.diag(self._back @ self.fit.covariance @ self._back.T))
            reach = norm.ppf((1 + level) / 2) * errors
            table["error"], table["lower"], table["upper"] = (
                errors,
                self.coefficients - reach,
                self.coefficients + reach,
            )
        return table
