"""Questions about the tables of sites before and for a model, with their answers.

Questions and answers are dataclasses whose fields are checked (:mod:`fpdfp.cohorts.serialization`), and trees of
numbers, texts and arrays on their way: :func:`write` and :func:`read_question`, :func:`write_answer` and
:func:`read_answer`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.question import Question, question, questions, reveals
from fpdfp.cohorts.question import read_answer as read_answer
from fpdfp.cohorts.serialization import constructor_hints, pack, validate
from fpdfp.datasets import Moments
from fpdfp.errors import MessageError
from fpdfp.formula.coding import Design
from fpdfp.formula.tree import Coded, Level, Survival
from fpdfp.inference import Information, add_up
from fpdfp.scores.site import SiteScores
from fpdfp.survival import Baseline, Concordance, LogRank, RiskCounts, RiskTotal
from fpdfp.survival.counts import name_periods
from fpdfp.survival.proportionality import Proportionality, Transform

#: The types of columns; ``"date"`` is for durations alone, ``"empty"`` has no value, ``"other"`` is none that models
#: know, and ``"hidden"`` is what a site's policy does not allow to use.
Kind = Literal["number", "integer", "truth", "category", "date", "empty", "other", "hidden"]
#: Where the order of levels comes from: from sorting; from a list that begins with the reference, as the categories
#: of pandas or R; or from a scale on which the levels lie, as those of an ordered factor.
Order = Literal["sorted", "listed", "ordered"]
#: At so many points predictions are evaluated in one question.
MOST_POINTS = 100
#: The powers of the survival curve by which log-rank tests weigh events.
POWERS = (0.0, 0.5, 1.0)
Family = Literal["Logistic", "Softmax", "LeastSquares", "GLM", "Multinomial", "Ordinal", "Cox"]


@dataclasses.dataclass(frozen=True)
class ColumnSchema:
    """The description of a column at a site.

    Attributes
    ----------
    name, kind, unit
        Its name, type and unit (None if the site does not say).
    missing
        In how many rows it has no value.
    levels, counts
        The levels of texts, truth values and integers of few different values, and the rows of each; empty where there
        are many, or the site does not say.
    least, largest
        The range of numbers, None where the site does not say.
    distinct
        Whether no two rows have the same value, as identifiers do.
    order
        Where the order of the levels comes from.
    """

    name: str
    kind: Kind
    unit: str | None = None
    missing: int = 0
    levels: tuple[Level, ...] = ()
    counts: tuple[int, ...] = ()
    least: float | None = None
    largest: float | None = None
    distinct: bool = False
    order: Order = "sorted"


@dataclasses.dataclass(frozen=True)
class Schema:
    """The columns of a site, and how many rows it has (None where it does not say)."""

    rows: int | None
    columns: tuple[ColumnSchema, ...]


class TableQuestion(Question):
    """A question about the table of a site: the operation that it declares, with its fields in their order."""

    def answer(self, table: Any) -> Any:
        """Return what the table has."""
        (operation,) = self.reveals.uses
        return getattr(table, operation)(*(getattr(self, name) for name in constructor_hints(type(self))))


@question("schema")
@dataclasses.dataclass(frozen=True)
class SchemaQuestion(TableQuestion):
    """The question for the columns of a site."""

    columns: tuple[str, ...] | None = None

    plain = True
    reveals = reveals("table", designs="columns", uses="describe")
    answers = Schema


@dataclasses.dataclass(frozen=True)
class Sums:
    """The answer of a site about a design.

    Attributes
    ----------
    rows, used
        All rows, and those in which nothing is missing that is not filled in.
    known, sums
        In how many rows each column that is filled in has a value, and the sum of these.
    levels
        The rows of each level of the design's categorical columns, of those used.
    classes
        The rows of each class, of those used.
    invalid
        In how many of the rows used the response, and then each term, is not a finite number.
    weight
        The sum of the weights of the rows used.
    """

    rows: int
    used: int
    known: IntArray
    sums: Array
    levels: list[IntArray]
    classes: IntArray
    invalid: IntArray
    weight: float = 0.0


class SumsTotal(NamedTuple):
    """Answers of several sites about a design: sums, but for the numbers of rows, which are by site.

    Sites count the rows that they have with their columns, and with the losses of a model how many of them are used.
    Rows in which a term is not finite are at sites that have no guard, since a guard refuses them.
    """

    rows: list[int]
    used: list[int]
    invalid: list[IntArray]
    known: IntArray
    sums: Array
    levels: list[IntArray]
    classes: IntArray
    weight: float


@question("sums")
@dataclasses.dataclass(frozen=True)
class SumsQuestion(TableQuestion):
    """The number of rows that there are for a design, and sums for what is missing; with classes, the rows of each."""

    design: Design
    classes: tuple[Level, ...] = ()

    reveals = reveals("table", designs="design", settings="classes", uses="add_up")
    answers = Sums

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> SumsTotal:
        """Return the sums over sites."""

        def total(name: str) -> Any:
            return sum(getattr(one, name) for one in sent)

        levels = [sum(counts) for counts in zip(*(one.levels for one in sent), strict=True)]
        return SumsTotal(
            [one.rows for one in sent], [one.used for one in sent], [one.invalid for one in sent], total("known"),
            total("sums"), levels, total("classes"), total("weight"),
        )  # fmt: skip

    def check(self, answer: Any) -> None:
        """Refuse sums of another design, and counts that cannot be."""
        design = self.design
        given = (answer.known, answer.sums, answer.levels, answer.classes, answer.invalid)
        lengths = [len(one) for one in given]
        wanted = [len(design.filled)] * 2 + [len(design.coded), len(self.classes), 1 + len(design.terms)]
        if lengths != wanted or not 0 <= answer.used <= answer.rows:
            raise MessageError(f"sums must have {wanted} numbers for the design, got {lengths}")
        if [one.shape for one in answer.levels] != [(len(one.levels),) for one in design.coded]:
            raise MessageError("sums must have a count for each level of the design")
        counts = [answer.known, *answer.levels, answer.classes, answer.invalid]
        if any(one.size and not 0 <= one.min() <= one.max() <= answer.rows for one in counts):
            raise MessageError(f"sums must have counts from 0 to the {answer.rows} rows")
        used = answer.used
        if (answer.invalid > used).any() or any(one.sum() > used for one in (*answer.levels, answer.classes)):
            raise MessageError(f"sums must have levels, classes and invalid rows of at most the {used} rows used")
        if answer.weight < 0 or (answer.used == 0 and answer.weight > 0):
            raise MessageError(f"sums must have a weight from 0 on, got {answer.weight:.3g}")


@dataclasses.dataclass(frozen=True)
class Distribution:
    """A family of outcomes, its link and its parameters, by name."""

    name: str
    link: str
    parameters: tuple[float, ...] = ()

    @classmethod
    def of(cls, family: Any) -> Distribution:
        """Return the description of a family."""
        return cls(family.name, family.link, tuple(float(getattr(family, one)) for one in family.parameter_names))

    def make(self) -> Any:
        """Return the family; raise MessageError for anything else."""
        from fpdfp.families import NAMED

        kind = NAMED.get(self.name)
        if kind is None or self.link not in kind.links or len(self.parameters) != len(kind.parameter_names):
            raise MessageError(f"a family must be one of {', '.join(NAMED)} with its link and parameters")
        try:
            return kind(self.link, *self.parameters)
        except ValueError as error:
            raise MessageError(f"a family cannot be used: {error}") from None


@question("moments")
@dataclasses.dataclass(frozen=True)
class MomentsQuestion(TableQuestion):
    """The moments of the features; with ``diagonal`` without what is between two of them.

    Rows have the weights of the design where they are ``weighted``, as for scales that a penalty is to have.
    """

    design: Design
    means: Array
    diagonal: bool = True
    weighted: bool = False

    reveals = reveals("table", designs="design", settings="means diagonal weighted", uses="moments")
    answers = Moments

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Moments:
        """Return the moments of all rows."""
        return Moments.total(sent)

    def check(self, answer: Any) -> None:
        """Refuse moments of other features."""
        d = len(self.design.names)
        mean, scatter = answer.mean, answer.scatter
        if mean.shape != (d,) or scatter.shape != ((d,) if self.diagonal else (d, d)) or not answer.count > 0:
            raise MessageError(f"moments must have {d} features, got {mean.shape}, {scatter.shape}")
        squares = np.diagonal(scatter) if scatter.ndim == 2 else scatter
        if squares.min(initial=0.0) < 0:
            raise MessageError("moments must have sums of squares of at least 0")
        spread = np.sqrt(squares)
        if scatter.ndim == 2 and (abs(scatter) > np.outer(spread, spread) * (1 + 1e-6) + 1e-300).any():
            raise MessageError("moments must have products of features of at most the roots of their squares")


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """All from which a site makes its losses.

    Attributes
    ----------
    design, means
        The features, and the means of the columns that are filled in.
    centre, scale
        What is subtracted from features, and what they are divided by; 0 for one that is constant, and left zero.
    intercept
        Whether a column of ones follows.
    family
        The losses.
    classes
        The classes of the response, none for numbers.
    ridge
        The ridge of each column.
    distribution
        The family of outcomes, for ``"GLM"``.
    weight_scale
        What weights of rows are multiplied with, so that their mean over all sites is 1.
    effects
        The sites that have an intercept of their own, each a column after all others: those whose difference to the
        other sites is estimated.
    class_weights
        What multiplies the weights of the rows of each class; none where all are 1.
    ties
        How events at the same time are treated, for ``"Cox"``.
    link
        The link of ``"Ordinal"``.
    periods
        The edges of periods, for hazards in discrete time: a GLM has a row for each period in which a row was at risk,
        and an indicator of each period after all other columns.
    """

    design: Design
    means: Array
    centre: Array
    scale: Array
    intercept: bool
    family: Family
    classes: tuple[Level, ...]
    ridge: Array
    distribution: Distribution | None = None
    weight_scale: float = 1.0
    effects: tuple[str, ...] = ()
    class_weights: tuple[float, ...] = ()
    ties: Literal["efron", "breslow"] = "efron"
    link: Literal["logit", "probit"] = "logit"
    periods: tuple[float, ...] = ()

    @property
    def columns(self) -> int:
        """The number of columns of the model."""
        return len(self.design.names) + int(self.intercept) + len(self.effects) + max(len(self.periods) - 1, 0)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        constant = ["Intercept"] if self.intercept else []
        effects = [f"site[{name}]" for name in self.effects]
        return [*self.design.names, *constant, *effects, *name_periods(self.periods)]

    def __post_init__(self) -> None:
        d = len(self.design.names)
        wanted = {"means": len(self.design.filled), "centre": d, "scale": d, "ridge": self.columns}
        if (self.distribution is not None) != (self.family == "GLM"):
            raise MessageError(f"{self.family} must have a distribution if it is a GLM, and none otherwise")
        if self.distribution is not None:
            self.distribution.make()
        if not 0 < self.weight_scale < math.inf:
            raise MessageError("weight_scale must be positive")
        if self.class_weights and (self.family != "GLM" or len(self.class_weights) != len(self.classes)):
            raise MessageError("class_weights must be one for each class of a GLM, or none")
        if not all(0 < weight < math.inf for weight in self.class_weights):
            raise MessageError("class_weights must be positive")
        for name, length in wanted.items():
            array = getattr(self, name)
            if array.shape != (length,) or array.dtype != np.float64:
                raise MessageError(f"{name} must be {length} numbers in float64, got {array.dtype} of {array.shape}")
        if (self.scale < 0).any() or (self.ridge < 0).any():
            raise MessageError("scale and ridge must be at least 0")
        if isinstance(self.design.response, Survival) != (self.family == "Cox" or bool(self.periods)):
            raise MessageError("times of events are the response of Cox and of periods, and of no other model")
        if self.periods and (
            self.family != "GLM" or self.intercept or self.effects or len(self.periods) < 2 or any(
                b <= a for a, b in itertools.pairwise(self.periods)
            )
        ):  # fmt: skip
            raise MessageError("periods must be of a GLM without other intercepts, with increasing edges")
        if self.family == "Cox":
            if self.intercept or self.effects or self.classes:
                raise MessageError("Cox must have neither an intercept nor classes: each site has its own hazard")
            return
        if self.family == "GLM":
            if len(self.classes) not in (0, 2):
                raise MessageError(f"a GLM must have no classes or two, got {len(self.classes)}")
            return
        if self.family == "Ordinal" and self.intercept:
            raise MessageError("Ordinal must have no intercept: thresholds take its place")
        least = {"Softmax": 3, "LeastSquares": 0}.get(self.family, 2)
        if len(self.classes) < least or (len(self.classes) != least and self.family in ("Logistic", "LeastSquares")):
            raise MessageError(f"{self.family} must have its classes, got {len(self.classes)}")

    @property
    def several_rows(self) -> bool:
        """Whether a person may have several rows: of periods, or between events with effects that change with time."""
        return bool(self.periods) or (self.family == "Cox" and self.design.varies)

    @property
    def by_person(self) -> ModelSpec:
        """A model of periods as one of times, which has a row for each person."""
        return self if not self.periods else dataclasses.replace(
            self, family="Cox", distribution=None, periods=(), classes=(), class_weights=(),
            ridge=self.ridge[: len(self.design.names)],
        )  # fmt: skip

    @property
    def digest(self) -> str:
        """A text that distinguishes models."""
        return hashlib.sha256(pack(dump(self))).hexdigest()[:32]


@question("risk")
@dataclasses.dataclass(frozen=True)
class RiskQuestion(TableQuestion):
    """The number of rows that are at risk, and have events, at which times; in each level of a column, if one is given.

    Without ``times`` at those at which rows enter and leave; a site may put neighbouring ones together.
    """

    response: Survival
    group: Coded | None = None
    times: Array | None = None

    reveals = reveals("table", designs="response group", settings="times", uses="count_at_risk")
    answers = RiskCounts

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> RiskTotal:
        """Return the counts of all sites, and the ends between which they are."""
        return RiskTotal.of(sent, self.times, late_entries=self.response.enters is not None)

    def check(self, answer: Any) -> None:
        """Refuse counts of other groups."""
        check_groups(1 if self.group is None else len(self.group.levels), len(answer.start))


@question("log_rank")
@dataclasses.dataclass(frozen=True)
class LogRankQuestion(TableQuestion):
    """The sums of a log-rank test between the levels of a column, over the strata of a site."""

    response: Survival
    group: Coded
    strata: tuple[str, ...] = ()
    rho: float = 0.0

    reveals = reveals("table", designs="response group strata", settings="rho", uses="log_rank")
    answers = LogRank

    def __post_init__(self) -> None:
        if self.rho not in POWERS:
            # A large power leaves the first event alone, and sums at many powers tell each event's part.
            raise MessageError(f"rho must be 0, 0.5 or 1, got {self.rho:g}")

    def check(self, answer: Any) -> None:
        """Refuse sums of other groups."""
        check_groups(len(self.group.levels), len(answer.observed))


@dataclasses.dataclass(frozen=True)
class Baselines:
    """The baseline hazards of a site: the names of strata, and the hazard of each."""

    strata: tuple[str, ...]
    hazards: list[Baseline]

    def coarsen(self, least: int) -> Baselines:
        """Return hazards at fewer times, with at least a given number of events between any two of them."""
        return dataclasses.replace(self, hazards=[one.coarsen(least) for one in self.hazards])


@question("baseline")
@dataclasses.dataclass(frozen=True)
class BaselineQuestion(TableQuestion):
    """The baseline hazard of each stratum, at the coefficients of a model and at given times, or all of events."""

    spec: ModelSpec
    x: Array
    times: Array | None = None

    reveals = reveals("table", designs="spec", points="x", settings="times", uses="hazards")
    answers = Baselines

    def __post_init__(self) -> None:
        check_coefficients(self.spec, self.x)

    def check(self, answer: Any) -> None:
        """Refuse hazards of other coefficients."""
        widths = {one.means.shape[1] for one in answer.hazards}
        if len(answer.strata) != len(answer.hazards) or widths - {self.spec.columns}:
            raise MessageError(f"an answer must have a hazard for each stratum, with {self.spec.columns} means")


@question("concordance")
@dataclasses.dataclass(frozen=True)
class ConcordanceQuestion(TableQuestion):
    """The concordance of the risks that a model gives with the times of events."""

    spec: ModelSpec
    x: Array

    reveals = reveals("table", designs="spec", points="x", uses="concordance")
    answers = Concordance

    def __post_init__(self) -> None:
        check_coefficients(self.spec, self.x)


@question("proportionality")
@dataclasses.dataclass(frozen=True)
class ProportionalityQuestion(TableQuestion):
    """The sums of a test of proportional hazards, at the coefficients of a Cox model."""

    spec: ModelSpec
    x: Array
    transform: Transform = "log"

    reveals = reveals("table", designs="spec", points="x", settings="transform", uses="proportionality")
    tells_pairs = True  # an information
    answers = Proportionality

    def __post_init__(self) -> None:
        check_coefficients(self.spec, self.x)

    def check(self, answer: Any) -> None:
        """Refuse sums of other coefficients."""
        if len(answer.score) != self.spec.columns or not 0 <= answer.events <= answer.rows:
            raise MessageError(f"an answer must have sums for {self.spec.columns} coefficients")


@question("evaluation")
@dataclasses.dataclass(frozen=True)
class EvaluationQuestion(TableQuestion):
    """The evaluation of a model's predictions: sums and counts, at its coefficients.

    Attributes
    ----------
    spec, x
        The model and its coefficients.
    more
        Further coefficients at which the same is asked, as those along a fit.
    """

    spec: ModelSpec
    x: Array
    more: list[Array] = dataclasses.field(default_factory=list)

    reveals = reveals("table", designs="spec", points="x more", uses="score")
    answers = SiteScores

    def __post_init__(self) -> None:
        if len(self.more) >= MOST_POINTS:
            raise MessageError(f"a question must be about at most {MOST_POINTS} points, got {1 + len(self.more)}")
        for x in (self.x, *self.more):
            check_point(self.spec, x)

    def check(self, answer: Any) -> None:
        """Refuse an answer about another number of points."""
        if len(answer.more) != len(self.more):
            raise MessageError(f"an answer must be about {1 + len(self.more)} points")


@question("calibration")
@dataclasses.dataclass(frozen=True)
class CalibrationQuestion(TableQuestion):
    """The sums of the model intercept + slope · η, η the linear predictor of a model, at a point of these two.

    For ``"Cox"`` there is the slope alone.
    """

    spec: ModelSpec
    x: Array
    point: Array

    reveals = reveals("table", designs="spec", points="x point", uses="calibrate")
    answers = Information

    def __post_init__(self) -> None:
        check_point(self.spec, self.x)
        count = 1 if self.spec.family == "Cox" else 2
        if self.spec.family in ("Softmax", "Multinomial", "Ordinal") or self.point.shape != (count,):
            raise MessageError("point must be the intercept and the slope of one linear predictor")
        if self.point.dtype != np.float64:
            raise MessageError("point must be in float64")

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Information:
        """Return the sums over sites."""
        return add_up(sent)

    def check(self, answer: Any) -> None:
        """Refuse sums of another number of coefficients."""
        count = len(self.point)
        if answer.parameters != count or answer.rows < 1:
            raise MessageError(f"an answer must have sums of rows for {count} coefficients")


#: Between the edges of a histogram is a tenth of a deviation, rounded to one digit; they cover COVERED deviations.
STEPS, COVERED = 10, 5
#: At most so many edges a histogram has.
MOST_EDGES = 500


@dataclasses.dataclass(frozen=True)
class Descriptions:
    """Sums by group; sums over sites add up.

    Attributes
    ----------
    rows
        The rows of each group.
    ungrouped
        The rows that have no group.
    known, means, scatters
        Shape (columns, groups): in how many rows a column has a value, their mean, and Σ (x − mean)².
    counts
        For each factor the rows of each level and group, shape (levels, groups).
    withheld
        For each column, and after these for each factor, how many sites withhold it; their numbers are zeros.
    """

    rows: IntArray
    ungrouped: int
    known: IntArray
    means: Array
    scatters: Array
    counts: list[IntArray]
    withheld: IntArray

    def __add__(self, other: Descriptions) -> Descriptions:
        """Return the sums of the rows of both."""
        known = self.known + other.known
        share = np.divide(other.known, known, out=np.zeros(known.shape), where=known > 0)
        apart = other.means - self.means
        return Descriptions(
            self.rows + other.rows,
            self.ungrouped + other.ungrouped,
            known,
            np.where(self.known > 0, self.means + share * apart, other.means),
            self.scatters + other.scatters + np.where(self.known > 0, self.known * share * apart**2, 0.0),
            [a + b for a, b in zip(self.counts, other.counts, strict=True)],
            self.withheld + other.withheld,
        )

    def withhold(self, places: Sequence[int]) -> Descriptions:
        """Return the same without some columns, and factors after these."""
        sums = {name: getattr(self, name).copy() for name in ("known", "means", "scatters", "withheld")}
        counts, columns = list(self.counts), len(self.known)
        for place in places:
            sums["withheld"][place] = 1
            if place >= columns:
                counts[place - columns] = np.zeros_like(counts[place - columns])
            else:
                sums["known"][place] = sums["means"][place] = sums["scatters"][place] = 0
        return dataclasses.replace(self, counts=counts, **sums)

    def coarsen(self, fewest: int) -> Descriptions:
        """Return the same without factors that have a level of fewer rows in some group."""
        few = [bool(((cells > 0) & (cells < fewest)).any()) for cells in self.counts]
        return self.withhold([len(self.known) + place for place, one in enumerate(few) if one])


@question("description")
@dataclasses.dataclass(frozen=True)
class DescriptionQuestion(TableQuestion):
    """Counts, means and deviations of columns and counts of levels, over all rows or in each level of a column."""

    columns: tuple[str, ...]
    factors: tuple[Coded, ...] = ()
    by: Coded | None = None

    reveals = reveals("table", designs="columns factors by", uses="summarise")
    answers = Descriptions

    def check(self, answer: Any) -> None:
        """Refuse sums of other columns, and counts that cannot be."""
        groups = 1 if self.by is None else len(self.by.levels)
        shape = (len(self.columns), groups)
        if answer.rows.shape != (groups,) or any(
            one.shape != shape for one in (answer.known, answer.means, answer.scatters)
        ):
            raise MessageError(f"a description must be of {shape[0]} columns in {groups} groups")
        if [one.shape for one in answer.counts] != [(len(one.levels), groups) for one in self.factors]:
            raise MessageError("a description must have a count for each level and group")
        counts = [answer.known, *answer.counts]
        if answer.rows.min(initial=0) < 0 or answer.ungrouped < 0 or any(
            (one < 0).any() or (one > answer.rows).any() for one in counts
        ):  # fmt: skip
            raise MessageError("a description must have counts from 0 to the rows of each group")
        if (
            answer.withheld.shape != (len(self.columns) + len(self.factors),)
            or not np.isin(answer.withheld, (0, 1)).all()
        ):
            raise MessageError("a description must have 0 or 1 for each column and factor")
        if not (np.isfinite(answer.means).all() and (answer.scatters >= 0).all()):
            raise MessageError("a description must have finite means, and sums of squares of at least 0")


@dataclasses.dataclass(frozen=True)
class Histograms:
    """In how many rows columns are below edges, by group; sums over sites add up.

    Attributes
    ----------
    least, most
        For each column, shape (groups, edges): between these the number of rows is that are at most the edge. They are
        the same where a site tells the count, and otherwise those of the nearest edges at which it does.
    totals
        In how many rows each column has a value, shape (columns, groups).
    """

    least: list[IntArray]
    most: list[IntArray]
    totals: IntArray

    def coarsen(self, fewest: int) -> Histograms:
        """Return the same such that no two edges that differ have fewer rows between them, but for none.

        >>> counts = np.array([[1, 2, 5, 5, 9]])
        >>> coarse = Histograms([counts], [counts], np.array([[9]])).coarsen(3)
        >>> coarse.least[0].tolist(), coarse.most[0].tolist()
        ([[0, 0, 5, 5, 9]], [[5, 5, 5, 5, 9]])
        """
        least, most = [], []
        for below, above, totals in zip(self.least, self.most, self.totals, strict=True):
            same = below == above  # what is not told here already stays so
            low, high = np.zeros_like(below), np.zeros_like(below)
            for group, (row, total) in enumerate(zip(below, totals.tolist(), strict=True)):
                told, last = np.zeros(len(row), dtype=bool), 0
                for place, count in enumerate(row.tolist()):
                    near = 0 < count - last < fewest or 0 < total - count < fewest
                    if same[group, place] and not near:
                        told[place], last = True, count
                known = np.where(told, row, -1)
                low[group] = np.maximum(np.maximum.accumulate(known), 0)
                after = np.where(told, row, total)
                high[group] = np.minimum.accumulate(after[::-1])[::-1]
            least.append(low)
            most.append(high)
        return Histograms(least, most, self.totals)


@question("histogram")
@dataclasses.dataclass(frozen=True)
class HistogramQuestion(TableQuestion):
    """In how many rows columns are at most as large as given edges, over all rows or in each level of a column.

    With ``fewest`` the cells between edges have at least this number of rows, also where a policy allows fewer.
    """

    columns: tuple[str, ...]
    edges: list[Array]
    by: Coded | None = None
    fewest: int = 1

    reveals = reveals("table", designs="columns by", settings="edges fewest", uses="count_below")
    answers = Histograms

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.columns):
            raise MessageError("a histogram must have edges for each column")
        for one in self.edges:
            if (
                one.ndim != 1
                or not 1 <= len(one) <= MOST_EDGES
                or not np.isfinite(one).all()
                or (np.diff(one) <= 0).any()
            ):
                raise MessageError(f"edges must be 1 to {MOST_EDGES} finite numbers that increase")

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Histograms:
        """Return the sums over sites."""
        least, most = ([sum(parts) for parts in zip(*one, strict=True)] for one in
                       ((part.least for part in sent), (part.most for part in sent)))  # fmt: skip
        return Histograms(least, most, sum(part.totals for part in sent))

    def check(self, answer: Any) -> None:
        """Refuse counts of other columns and edges, and such as cannot be."""
        groups = 1 if self.by is None else len(self.by.levels)
        wanted = [(groups, len(one)) for one in self.edges]
        if [one.shape for one in answer.least] != wanted or [one.shape for one in answer.most] != wanted:
            raise MessageError("a histogram must have counts for each edge and group")
        if answer.totals.shape != (len(self.columns), groups):
            raise MessageError("a histogram must have the rows of each column and group")
        for low, high, total in zip(answer.least, answer.most, answer.totals, strict=True):
            rising = (np.diff(low, axis=1) >= 0).all() and (np.diff(high, axis=1) >= 0).all()
            if not rising or (low < 0).any() or (low > high).any() or (high > total[:, None]).any():
                raise MessageError("a histogram must have counts that increase, from 0 to the rows")


def find_edges(total: Descriptions, whole: Sequence[bool]) -> list[Array]:
    """Return the edges of histograms, the same whatever groups there are: whole numbers have a cell each, if few."""
    edges = []
    for known, means, scatters, integer in zip(total.known, total.means, total.scatters, whole, strict=True):
        n = int(known.sum())
        mean = float(known @ means) / max(n, 1)
        variance = float(scatters.sum() + known @ (means - mean) ** 2) / max(n - 1, 1)
        deviation = math.sqrt(variance) or max(abs(mean), 1.0)
        step = 10.0 ** math.floor(math.log10(deviation / STEPS))
        step *= max(one for one in (1.0, 2.0, 5.0) if one * step <= deviation / STEPS * (1 + 1e-9))
        if integer and 2 * COVERED * deviation + 2 <= MOST_EDGES:
            step = 1.0
        first, last = math.floor((mean - COVERED * deviation) / step), math.ceil((mean + COVERED * deviation) / step)
        edges.append(np.round(np.arange(first, last + 1) * step, max(0, -math.floor(math.log10(step)))))
    return edges


def check_point(spec: ModelSpec, x: Array) -> None:
    """Refuse coefficients that do not belong to a model."""
    classes = len(spec.classes)
    shapes = {
        "Softmax": (classes, spec.columns), "Multinomial": ((classes - 1) * spec.columns,),
        "Ordinal": (spec.columns + classes - 1,),
    }  # fmt: skip
    wanted = shapes.get(spec.family, (spec.columns,))
    if x.shape != wanted or x.dtype != np.float64:
        raise MessageError(f"x must be the coefficients of the model, of shape {wanted} in float64")


def check_coefficients(spec: ModelSpec, x: Array) -> None:
    """Refuse coefficients that do not belong to a model of times."""
    if spec.family != "Cox" or x.shape != (spec.columns,) or x.dtype != np.float64:
        raise MessageError(f"x must be the {spec.columns} coefficients of a Cox model in float64")


def check_groups(wanted: int, found: int) -> None:
    """Refuse an answer about another number of groups."""
    if found != wanted:
        raise MessageError(f"an answer must be about {wanted} groups, got {found}")


def dump(value: Any) -> Any:
    """Return a dataclass as a tree of dictionaries, lists, numbers, texts and arrays."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: dump(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [dump(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def write(question: Question) -> dict[str, Any]:
    """Return a question as a tree.

    >>> write(SchemaQuestion(("age",)))
    {'kind': 'schema', 'question': {'columns': ['age']}}
    """
    return {"kind": question.name, "question": dump(question)}


def read_question(tree: dict[str, Any]) -> Question:
    """Return the question of a tree; raise MessageError for anything else."""
    kind, known = tree.get("kind"), {name: one for name, one in questions().items() if one.reveals.of == "table"}
    if not isinstance(kind, str) or kind not in known:
        raise MessageError(f"kind must be one of {', '.join(known)}, got {kind!a}")
    made: Question = validate(tree.get("question"), known[kind], f"a question for {kind}")
    return made


def write_answer(answer: Any) -> dict[str, Any]:
    """Return an answer as a tree."""
    tree: dict[str, Any] = dump(answer)
    return tree


def read_spec(tree: Any) -> ModelSpec:
    """Return the specification of a model; raise MessageError for anything else."""
    made: ModelSpec = validate(tree, ModelSpec, "a model")
    return made
