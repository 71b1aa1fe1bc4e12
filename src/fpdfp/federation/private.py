"""A cohort whose sites release sums with noise alone: what a model needs besides is public, and declared."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from fpdfp import _checks
from fpdfp.cohorts.question import Question
from fpdfp.datasets import Moments
from fpdfp.errors import ArgumentError, MessageError, RefusalError
from fpdfp.federation.cohort import Schemas, TableCohort
from fpdfp.federation.masked import Exchanging, MaskedCohort, Members
from fpdfp.federation.questions import ModelSpec, MomentsQuestion, SchemaQuestion, Sums, SumsQuestion, dump
from fpdfp.formula.coding import Design
from fpdfp.losses import Losses
from fpdfp.privacy.accounting import mu_of
from fpdfp.privacy.fit import NoisySum
from fpdfp.privacy.fixed_point import WORD
from fpdfp.privacy.releases import LongRows, Release, read_sum


@dataclasses.dataclass(frozen=True)
class Privacy:
    """The price of each fit in the budgets of sites at the level ``private``, and what is public about their rows.

    Parameters
    ----------
    rows
        About how many rows there are at all sites.
    epsilon, delta
        The price of each fit.
    ranges
        The range of features, by name, which is mapped to [−1, 1], and of a response that is a number. Rows may be
        outside.
    long_rows
        ``"drop"`` rows longer than the radius of the policies, or ``"scale"`` them to it: that is biased, and there are
        no intervals, but with a radius that many rows exceed predictions are better.
    mechanism
        ``"newton"`` for Newton steps, ``"statistics"`` for one release of sufficient statistics, or ``"gradients"`` for
        proximal gradient steps, which suit many features. Least squares are always from statistics, and so is a
        logistic model where the budget pays for fewer than three Newton steps.

    Examples
    --------
    >>> Privacy(rows=9000, epsilon=0.5, ranges={"age": (20, 100)}).delta
    1e-06
    """

    rows: float
    epsilon: float
    delta: float = 1e-6
    ranges: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    long_rows: LongRows = "drop"
    mechanism: str = "newton"

    def __post_init__(self) -> None:
        _checks.real("rows", self.rows, positive=True)
        mu_of(self.epsilon, self.delta)
        _checks.choice("long_rows", self.long_rows, get_args(LongRows))
        _checks.choice("mechanism", self.mechanism, ("newton", "statistics", "gradients"))
        for name, ends in self.ranges.items():
            if len(ends) != 2 or not -math.inf < ends[0] < ends[1] < math.inf:
                raise ArgumentError("ranges", f"must be the least and largest value of features, got {name}: {ends!r}")


class PrivateCohort(TableCohort):
    """The sites of a federation at the level ``private``, as one site of which only what is declared is known.

    Parameters
    ----------
    federation
        The federation.
    privacy
        The price of a fit, and what is public.
    """

    level = "private"

    def __init__(self, federation: Exchanging, privacy: Privacy | None) -> None:
        if privacy is None:
            raise ArgumentError(
                "privacy", "must state the budget of a fit at sites of the level 'private', such as "
                "Federation(study, privacy=fpdfp.Privacy(rows=9000, epsilon=0.5))",
            )  # fmt: skip
        self.members, self.privacy = Members(federation), privacy
        self._declared = MaskedCohort(federation)
        self.title = self._declared.title
        self._columns: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [self.title]

    def describe(self) -> Schemas:
        """Return the columns that the policies of all sites declare."""
        return self._declared.describe()

    def gather(self, question: Question, names: Sequence[str], *, each: bool) -> list[Any]:
        rows = round(self.privacy.rows)
        if isinstance(question, SchemaQuestion):
            (schema,) = self._declared.gather(SchemaQuestion(), names, each=each)
            self._columns = tuple(one.name for one in schema.columns)
            wanted = question.columns
            some = tuple(one for one in schema.columns if wanted is None or one.name in wanted)
            return [dataclasses.replace(schema, columns=some)]
        if isinstance(question, SumsQuestion):  # every level may be there
            levels = [np.full(len(one.levels), rows) for one in question.design.coded]
            none = np.zeros(len(question.design.filled))
            return [
                Sums(
                    rows, rows, none.astype(np.int64), none, levels, np.full(len(question.classes), rows),
                    np.zeros(1 + len(question.design.terms), dtype=np.int64), float(rows),
                )
            ]  # fmt: skip
        if isinstance(question, MomentsQuestion) and question.diagonal:
            return [self._moments(question)]
        raise RefusalError(
            f"at the level 'private' sites do not answer {question.name!r}: they release sums with noise for "
            "logistic and linear models alone"
        )

    def _moments(self, question: MomentsQuestion) -> Moments:
        """Return moments by which features are mapped from their ranges to [−1, 1]."""
        names, rows = list(question.design.names), round(self.privacy.rows)
        strange = [name for name in self.privacy.ranges if name not in names and name not in self._columns]
        if strange:
            known = ", ".join(dict.fromkeys([*names, *self._columns]))
            raise ArgumentError("ranges", f"must be of features or columns, which are {known}; got {strange[0]!r}")
        ends = np.array([self.privacy.ranges.get(name, (-1.0, 1.0)) for name in names], dtype=np.float64)
        return Moments(rows, ends.mean(axis=1), rows * np.square((ends[:, 1] - ends[:, 0]) / 2.0))

    def outcome(self, response: str) -> tuple[float, float]:
        """Return the centre and the scale of a response that is a number."""
        if response not in self.privacy.ranges:
            raise ArgumentError(
                "ranges", f"must have the range of the response {response!r}: outcomes are part of rows, and rows that "
                "are longer than the radius do not count",
            )  # fmt: skip
        low, high = self.privacy.ranges[response]
        return (low + high) / 2.0, (high - low) / 2.0

    def losses(self, spec: ModelSpec) -> Losses:
        raise RefusalError("at the level 'private' sites release sums with noise, and no losses")

    def asking(self, spec: ModelSpec) -> tuple[float, Any]:
        """Return the sites' radius, and a function that asks them for a release of a model."""
        budgets = self.members.exchange({"kind": "budget"})
        radius, masked = _common(budgets, "radius"), _common(budgets, "shares") > 1
        if masked:
            self.members.meet()
        tree = dump(spec)

        def ask(release: Release) -> NoisySum:
            replies = self.members.exchange({"kind": "release", "spec": tree, "release": dump(release)})
            shares = int(_common(replies, "shares"))
            if _common(replies, "radius") != radius:
                raise MessageError("the sites' radius has changed")
            if masked:
                total = self.members.add_up(replies, WORD).view(np.int64)
            else:
                words = [np.frombuffer(reply["words"], "<i8") for reply in replies.values()]
                self.members.up += sum(8 * one.nbytes for one in words)
                total = np.sum(words, axis=0)
            if len(total) != release.length(spec.columns):
                raise MessageError("a release must have the requested length")
            deviation = release.standard_deviation(radius, spec.columns, len(replies), shares)
            return NoisySum(read_sum(release, total, radius), deviation)

        return radius, ask


def name_response(design: Design) -> str:
    """Return the name of a response."""
    return str(getattr(design.response, "column", design.response))


def _common(replies: Mapping[str, Any], name: str) -> float:
    """Return a number that all sites say alike."""
    found = {float(reply.get(name, math.nan)) for reply in replies.values()}
    if len(found) != 1 or not math.isfinite(next(iter(found))):
        raise MessageError(f"sites must have the same {name}, got {sorted(found)}")
    return found.pop()
