"""Models over sites whose policies have the level ``sums`` or ``private``."""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.cohorts.losses import Informations
from fpdfp.errors import AccuracyWarning, ArgumentError, MessageError
from fpdfp.families import NAMED
from fpdfp.federation.questions import Distribution, ModelSpec, dump
from fpdfp.formula.coding import code
from fpdfp.formula.parsing import parse
from fpdfp.linops import LinOp
from fpdfp.models.formulas import Asking, _agree, _classes, _standards, check_response
from fpdfp.penalties.base import Penalty
from fpdfp.privacy.accounting import mu_of
from fpdfp.privacy.fit import Goal, NoisySum, PrivateFit, newton, statistics
from fpdfp.privacy.fixed_point import WIDE, WORD, from_wide
from fpdfp.privacy.masks import Membership, add_up
from fpdfp.privacy.releases import LongRows, Release, read_sum

#: The most Newton steps, and halvings of one.
STEPS, HALVINGS = 50, 30
#: A step is the last if no coefficient moves by more than this many of its standard errors.
STILL = 1e-10


class Exchanging(Protocol):
    """The transport of requests to sites: :class:`fpdfp.Federation`."""

    @property
    def names(self) -> list[str]:
        """The names of the sites."""

    def exchange(self, run: str, trees: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Ask sites; return their replies."""


@dataclasses.dataclass(frozen=True)
class MaskedFit:
    """A generalised linear model from masked sums.

    Attributes
    ----------
    names
        Of the coefficients.
    coefficients, covariance
        The estimates, with the dispersion in their covariance.
    rows, deviance, dispersion
        Of all sites together.
    steps
        How many sums were requested.
    """

    names: tuple[str, ...]
    coefficients: Array
    covariance: Array
    rows: int
    deviance: float
    dispersion: float
    steps: int

    @property
    def standard_errors(self) -> Array:
        """The square roots of the covariance's diagonal."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    def frame(self, level: float = 0.95) -> Any:
        """Return a data frame of pandas: estimates, standard errors, z, p, and intervals."""
        import pandas
        from scipy.stats import norm

        errors = self.standard_errors
        z = self.coefficients / errors
        reach = norm.ppf((1 + level) / 2) * errors
        columns = {
            "estimate": self.coefficients, "error": errors, "z": z, "p": 2 * norm.sf(np.abs(z)),
            "lower": self.coefficients - reach, "upper": self.coefficients + reach,
        }  # fmt: skip
        return pandas.DataFrame(columns, index=pandas.Index(self.names, name="coefficient"))


class Protected:
    """The sites of a federation at the level ``sums`` or ``private``, in one run.

    Parameters
    ----------
    federation
        The federation; all its sites must have the same level and members.
    """

    def __init__(self, federation: Exchanging) -> None:
        self.federation, self.names = federation, list(federation.names)
        self.run = secrets.token_hex(16)
        self._membership: Membership | None = None

    def exchange(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Ask all sites the same; return their replies."""
        return self.federation.exchange(self.run, {name: dict(tree) for name in self.names})

    def meet(self) -> None:
        """Have the members make keys of this run with each other; two exchanges."""
        keys = self.exchange({"kind": "join"})
        members = {tuple(reply.get("members", ())) for reply in keys.values()}
        if members != {tuple(sorted(self.names))}:
            raise ArgumentError("federation", f"must have the members of each site's policy, got {sorted(self.names)}")
        pairs = {name: [reply["public"], reply["signature"]] for name, reply in keys.items()}
        self.exchange({"kind": "meet", "keys": pairs})
        # who they are is the sites' business: for sums it counts that no one is missing
        self._membership = Membership({name: reply["public"] for name, reply in keys.items()})

    def add_up(self, replies: Mapping[str, Any], bits: int) -> Any:
        """Return the sum of masked words."""
        assert self._membership is not None
        width = 2 if bits == WIDE else 1
        words = {}
        for name, reply in replies.items():
            found = np.frombuffer(reply["words"], "<u8")
            if len(found) % width:
                raise MessageError(f"the words of {name} are not whole")
            words[name] = found.reshape(-1, 2) if bits == WIDE else found
        return add_up(words, self._membership, bits)

    def design(self, formula: str, *, classify: bool | None) -> tuple[Any, tuple[Any, ...]]:
        """Return the design of a formula and its classes, from what policies declare."""
        parsed = parse(formula)
        check_response(parsed, survival=False)
        if _standards(parsed):
            raise ArgumentError("formula:", "center(…) and scale(…) need means that sites do not tell at this level")
        asking = Asking(self.federation)  # type: ignore[arg-type]
        agreed = _agree(asking, parsed, "any", classify)
        classes = _classes(parsed, agreed, classify=classify)
        if classify and len(classes) != 2:
            raise ArgumentError("formula:", f"the response must have two classes, got {len(classes)}")
        return code(parsed, agreed.kinds, agreed.levels, missing="drop"), classes


def masked_glm(federation: Exchanging, formula: str, family: Any = "binomial") -> MaskedFit:
    """Fit a generalised linear model by Newton steps from masked sums: no site's numbers are seen by anyone.

    Every step requests the score, the expected information and the deviance of all sites together, and costs one
    exchange. Sums are exact (128-bit integers), so the result is that of all rows in one place up to rounding.

    Parameters
    ----------
    federation
        Sites whose policies have ``level = "sums"`` and the same members.
    formula
        As ``"died ~ age + C(stage)"``; columns, types and levels are those that policies declare.
    family
        A family of outcomes or its name; its linear predictor must be valid at 0.
    """
    chosen = NAMED[family]() if isinstance(family, str) and family in NAMED else family
    if not hasattr(chosen, "parameter_names"):
        raise ArgumentError("family", f"must be a family or one of {', '.join(NAMED)}, got {family!r}")
    sites = Protected(federation)
    binomial = chosen.name == "binomial"
    design, classes = sites.design(formula, classify=binomial)
    d = len(design.names)
    spec = ModelSpec(
        design, np.zeros(0), np.zeros(d), np.ones(d), True, "GLM", classes, np.zeros(d + 1), Distribution.of(chosen)
    )
    tree = dump(spec)
    sites.meet()
    statements = {
        name: [reply["varying"], reply["signature"]]
        for name, reply in sites.exchange({"kind": "varying", "spec": tree}).items()
    }
    asked = 0

    def information(x: Array) -> tuple[Array, Array, Array]:
        nonlocal asked
        asked += 1
        question = {"kind": "information", "spec": tree, "statements": statements}
        replies = sites.exchange(question | {"question": dump(Informations(x, robust=False))})
        found = from_wide(sites.add_up(replies, WIDE))
        count = len(found) - (d + 1) - (d + 1) * (d + 2) // 2
        hessian = np.zeros((d + 1, d + 1))
        hessian[np.tril_indices(d + 1)] = found[count + d + 1 :]
        return found[:count], found[count : count + d + 1], hessian + np.tril(hessian, -1).T

    x = np.zeros(d + 1)
    numbers, score, hessian = information(x)
    for _ in range(STEPS):
        scale = 1 / np.sqrt(np.maximum(np.diag(hessian), 1e-300))
        try:
            step = scale * np.linalg.solve(hessian * np.outer(scale, scale), scale * score)
        except np.linalg.LinAlgError:
            raise ArgumentError("formula:", "has columns that determine one another") from None
        moved = float(np.max(np.abs(step) * np.sqrt(np.diag(hessian))))
        for _ in range(HALVINGS):
            tried = information(x + step)
            if tried[0][3] <= numbers[3] + 1e-9 * abs(numbers[3]) or moved < 1e-6:
                break
            step = step / 2
        x, (numbers, score, hessian) = x + step, tried
        if moved <= STILL:
            break
    else:
        warn(f"Newton steps ended after {STEPS}; the last moved by {moved:.1e} standard errors", AccuracyWarning)
    rows = round(float(numbers[0]))
    dispersion = 1.0 if chosen.name in ("binomial", "poisson") else float(numbers[4]) / (rows - d - 1)
    names = (*design.names, "Intercept")
    return MaskedFit(names, x, dispersion * np.linalg.inv(hessian), rows, float(numbers[3]), dispersion, asked)


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
    sites = Protected(federation)
    design, classes = sites.design(formula, classify=None)
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
