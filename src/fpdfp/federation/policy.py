"""A site's policy: what it answers, whatever the coordinator asks."""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import importlib.resources
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from fpdfp import _checks
from fpdfp._settings import Document, Table, suggest
from fpdfp.errors import ArgumentError, ArgumentTypeError, Refusal

KINDS = (
    "schema", "sums", "moments", "risk", "log_rank", "baseline", "concordance", "evaluation", "calibration", "request",
)  # fmt: skip
FAMILIES = ("Logistic", "LeastSquares", "Softmax", "GLM", "Multinomial", "Ordinal", "Cox")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")
#: Columns that are never used unless a policy says otherwise: whose they are can be looked up.
IDENTIFIERS = (
    "id", "*_id", "id_*", "mrn", "ssn", "name", "*_name", "*address*", "*phone*", "*mail*", "*postcode*", "*zip*",
    "*birth*", "*date*",
)  # fmt: skip


#: What solvers may ask: these questions by their names, and all others under "gather".
PARTS = ("facts", "gather", "constants", "at", "duals", "answers", "memory", "update")
RefusedError = Refusal


@dataclasses.dataclass(frozen=True)
class Data:
    """Which data take part: see the comments of ``policy.toml``, here and below."""

    least_rows: int = 10
    least_rows_per_level: int = 3
    most_parameters: float = 0.1
    ranges: bool = False
    columns: tuple[str, ...] = ("*",)
    never_columns: tuple[str, ...] = IDENTIFIERS

    def __post_init__(self) -> None:
        _checks.integer("least_rows", self.least_rows, at_least=1)
        _checks.integer("least_rows_per_level", self.least_rows_per_level, at_least=1)
        _positive(self, "most_parameters")
        _checks.flag("ranges", self.ranges)
        _texts(self, "columns")
        _texts(self, "never_columns")

    def allows(self, column: str) -> bool:
        """Whether a model may use a column."""
        return matches(column, self.columns) and not matches(column, self.never_columns)


@dataclasses.dataclass(frozen=True)
class Requests:
    """What may be asked."""

    kinds: tuple[str, ...] = KINDS
    parts: tuple[str, ...] = tuple(part for part in PARTS if part != "memory")
    families: tuple[str, ...] = FAMILIES
    methods: tuple[str, ...] = ("*",)
    least_batch_size: int = 10
    batch_constants: bool = False
    least_sites: int = 1

    def __post_init__(self) -> None:
        _texts(self, "kinds", KINDS)
        _texts(self, "parts", PARTS)
        _texts(self, "families")
        _texts(self, "methods")
        _checks.integer("least_batch_size", self.least_batch_size, at_least=1)
        _checks.flag("batch_constants", self.batch_constants)
        _checks.integer("least_sites", self.least_sites, at_least=1)


@dataclasses.dataclass(frozen=True)
class SecondMoments:
    """Whether second moments may leave."""

    allowed: bool = True
    least_rows_per_feature: float = 10.0

    def __post_init__(self) -> None:
        _checks.flag("allowed", self.allowed)
        _positive(self, "least_rows_per_feature", zero=True)


@dataclasses.dataclass(frozen=True)
class Points:
    """At which points losses and gradients are told."""

    check: bool = True
    least_effective_rows: int = 30
    compared_points: int = 64
    most_divisions: int = 3
    most_refusals: int = 10

    def __post_init__(self) -> None:
        _checks.flag("check", self.check)
        _checks.integer("least_effective_rows", self.least_effective_rows, at_least=1)
        _checks.integer("compared_points", self.compared_points, at_least=0)
        _checks.integer("most_divisions", self.most_divisions, at_least=0)
        _checks.integer("most_refusals", self.most_refusals, at_least=1)


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much leaves over the life of a site's folder."""

    runs: int = 50
    requests: int = 20_000
    bits_per_value: float = 32.0
    models: int = 500
    refusals: int = 50
    problems_in_plan: int = 2000
    price_in_plan: float = 0.01
    points_per_problem: int = 10

    def __post_init__(self) -> None:
        _checks.integer("runs", self.runs, at_least=0)
        _checks.integer("requests", self.requests, at_least=0)
        _checks.integer("models", self.models, at_least=0)
        _checks.integer("refusals", self.refusals, at_least=1)
        _positive(self, "bits_per_value")
        _checks.integer("problems_in_plan", self.problems_in_plan, at_least=1)
        _positive(self, "price_in_plan", zero=True)
        _checks.integer("points_per_problem", self.points_per_problem, at_least=1)


@dataclasses.dataclass(frozen=True)
class Hours:
    """When a site answers, by its own clock."""

    days: tuple[str, ...] = DAYS
    start: str = "00:00"
    until: str = "24:00"
    #: How the fields are called in the file where that is no name in Python.
    names: ClassVar[Mapping[str, str]] = {"from": "start"}

    def __post_init__(self) -> None:
        _texts(self, "days", DAYS)
        for name, shown in (("start", "from"), ("until", "until")):
            value = getattr(self, name)
            if not isinstance(value, str) or CLOCK.fullmatch(value) is None:
                raise ArgumentError(shown, f"must be a time such as '08:30' or '24:00', got {value!r}")
        if self.start == self.until:
            raise ArgumentError("until", f"must differ from from, got {self.until!r} for both")

    def allows(self, now: datetime.datetime) -> bool:
        """Whether a site answers now; hours that end before they begin go past midnight, and count for their first day.

        >>> night = Hours(days=("fri",), start="22:00", until="06:00")
        >>> [night.allows(datetime.datetime(2026, 1, day, hour)) for day, hour in ((2, 23), (3, 5), (3, 7), (2, 5))]
        [True, True, False, False]
        """
        clock, today = f"{now:%H:%M}", DAYS[now.weekday()]
        if self.start < self.until:
            return today in self.days and self.start <= clock < self.until
        yesterday = DAYS[now.weekday() - 1]
        return (today in self.days and clock >= self.start) or (yesterday in self.days and clock < self.until)


@dataclasses.dataclass(frozen=True)
class Hold:
    """What a person must release."""

    kinds: tuple[str, ...] = ()
    seconds: float = 3600.0
    keep_copies: bool = False

    def __post_init__(self) -> None:
        _texts(self, "kinds", (*KINDS, "run", "plan"))
        _positive(self, "seconds")
        _checks.flag("keep_copies", self.keep_copies)


@dataclasses.dataclass(frozen=True)
class Replies:
    """How large replies may be."""

    most_growth: float = 1000.0

    def __post_init__(self) -> None:
        if not _positive(self, "most_growth") > 1.0:
            raise ArgumentError("most_growth", f"must be above 1, got {self.most_growth:g}")


@dataclasses.dataclass(frozen=True)
class Policy:
    """What a site answers.

    Examples
    --------
    >>> policy = Policy()
    >>> policy.data.least_rows, policy.data.allows("age"), policy.data.allows("patient_id")
    (10, True, False)
    >>> Policy(data=Data(least_rows=0))
    Traceback (most recent call last):
    ...
    fpdfp.errors.ArgumentError: least_rows must be an integer of at least 1, got 0
    """

    data: Data = dataclasses.field(default_factory=Data)
    requests: Requests = dataclasses.field(default_factory=Requests)
    moments: SecondMoments = dataclasses.field(default_factory=SecondMoments)
    points: Points = dataclasses.field(default_factory=Points)
    budget: Budget = dataclasses.field(default_factory=Budget)
    hours: Hours = dataclasses.field(default_factory=Hours)
    hold: Hold = dataclasses.field(default_factory=Hold)
    replies: Replies = dataclasses.field(default_factory=Replies)
    columns: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, section in SECTIONS.items():
            given = getattr(self, name)
            if not isinstance(given, section):
                raise ArgumentTypeError(name, f"must be a {section.__name__}, got {_checks.kind(given)}")

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a policy from a file; a mistake is an error with its line, and what is not there is as by default."""
        if not Path(path).exists():
            raise FileNotFoundError(
                f"there is no file {path}; `fpdfp federation join` without --policy writes one with all defaults"
            )
        document = Document.read(Path(path))
        file = Table(document, (), document.data)
        file.accept([*SECTIONS, "columns"], what="section")
        # What is said of columns is checked where the table is read.
        made = {name: _read(SECTIONS[name], file.table(name)) for name in file.values if name != "columns"}
        return cls(**made, columns=file.table("columns").values)

    @classmethod
    def allowing_everything(cls) -> Self:
        """Return a policy that refuses nothing: for tests, and for measuring what the defaults prevent."""
        huge = 10**12
        return cls(
            Data(1, 1, float(huge), True, ("*",), ()),
            Requests(KINDS, PARTS, ("*",), ("*",), 1, True, 1),
            SecondMoments(True, 0.0),
            Points(False, 1, 0, huge, huge),
            Budget(huge, huge, float(huge), huge, huge, huge, 0.0, huge),
            replies=Replies(1e100),
        )


#: The sections of a policy.
SECTIONS: dict[str, type] = {
    "data": Data, "requests": Requests, "moments": SecondMoments, "points": Points, "budget": Budget, "hours": Hours,
    "hold": Hold, "replies": Replies,
}  # fmt: skip


def template() -> str:
    """Return the commented file with all defaults."""
    return importlib.resources.files("fpdfp.federation").joinpath("policy.toml").read_text(encoding="utf-8")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of some patterns, whatever its capitals.

    >>> matches("Patient_ID", ["*_id"]), matches("age", ["*_id"])
    (True, False)
    """
    return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def _read(section: type, table: Table) -> Any:
    """Make a section of its table."""
    fields: dict[str, str] = dict(getattr(section, "names", {}))
    fields |= {one.name: one.name for one in dataclasses.fields(section) if one.name not in fields.values()}
    table.accept(fields)
    given = {fields[key]: tuple(value) if isinstance(value, list) else value for key, value in table.values.items()}
    return table.make(section, given)


def _positive(section: Any, name: str, *, zero: bool = False) -> float:
    value = getattr(section, name)
    return _checks.real(name, value, at_least=0.0) if zero else _checks.real(name, value, positive=True)


def _texts(section: Any, name: str, accepted: tuple[str, ...] = ()) -> None:
    """Check a list of texts, each one of those that are accepted, if there are such."""
    given = getattr(section, name)
    if not isinstance(given, tuple) or not all(isinstance(one, str) and one for one in given):
        raise ArgumentTypeError(name, f"must be a list of texts, got {given!r}")
    for one in given if accepted else ():
        if one not in accepted:
            raise ArgumentError(name, f"must hold any of {', '.join(accepted)}, got {one!r}{suggest(one, accepted)}")
