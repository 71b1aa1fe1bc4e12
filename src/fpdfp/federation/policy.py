"""A site's policy: what it answers, whatever is asked. The file ``policy.toml`` explains every key."""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import functools
import importlib.resources
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from fpdfp import _checks
from fpdfp._settings import Document, Table, suggest
from fpdfp.errors import ArgumentError, ArgumentTypeError, Refusal
from fpdfp.formula.parsing import parse_variable

KINDS = ("schema", "sums", "moments", "products", "fits", "tests", "times", "evaluation")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HOURS = re.compile(r"([a-z]{3})-([a-z]{3}) ([01]\d|2[0-3]):([0-5]\d)-(?:([01]\d|2[0-3]):([0-5]\d)|24:00)")
#: Columns that are never used unless a policy says otherwise: whose they are can be looked up.
IDENTIFIERS = (
    "id", "*_id", "id_*", "mrn", "ssn", "name", "*_name", "*address*", "*phone*", "*mail*", "*postcode*", "*zip*",
    "*birth*", "*date*",
)  # fmt: skip
#: The rules that a site goes by; tests switch each off to show that an attack succeeds without it.
RULES = (
    "kinds", "columns", "places", "rows", "parameters", "cells", "leverage", "weights", "points", "domain", "folds",
    "constants", "hiding", "budget",
)  # fmt: skip
#: The names of keys of the file that differ from those of fields.
TABLES = ("variables", "columns_of_the_table")


def refuse(rule: str, sentence: str, detail: str = "") -> Refusal:
    """Return a refusal by one of the rules.

    The sentence is for the analyst: the rule, the column, and what to change. The detail has counts: it is for the log,
    and for the analyst too if the policy has ``counts``.
    """
    return Refusal(sentence, detail, rule)


@dataclasses.dataclass(frozen=True)
class Policy:
    """What a site answers; the comments of ``policy.toml`` explain each field.

    ``off`` has rules that are switched off. It cannot be set in a file: it is for tests of what the rules prevent.

    Examples
    --------
    >>> policy = Policy()
    >>> policy.rows, policy.allows("age"), policy.allows("patient_id")
    (10, True, False)
    >>> Policy(rows=0)
    Traceback (most recent call last):
    ...
    fpdfp.errors.ArgumentError: rows must be an integer of at least 1, got 0
    """

    level: Literal["filter"] = "filter"
    rows: int = 10
    cell: int = 3
    parameters: float = 0.2
    columns: tuple[str, ...] = ("*",)
    never: tuple[str, ...] = IDENTIFIERS
    kinds: tuple[str, ...] = KINDS
    single_sites: bool = True
    counts: bool = False
    analyses: int = 100
    refusals: int = 30
    hours: str = "mon-sun 00:00-24:00"
    hold: tuple[str, ...] = ()
    copies: bool = False
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    columns_of_the_table: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    off: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        _checks.choice("level", self.level, ("filter",))
        for name, least in (("rows", 1), ("cell", 1), ("analyses", 0), ("refusals", 1)):
            _checks.integer(name, getattr(self, name), at_least=least)
        _checks.real("parameters", self.parameters, positive=True)
        for name in ("single_sites", "counts", "copies"):
            _checks.flag(name, getattr(self, name))
        accepted: dict[str, tuple[str, ...]] = {"kinds": (*KINDS, "ranges"), "hold": (*KINDS, "analysis")}
        for name in ("columns", "never", "kinds", "hold"):
            _texts(name, getattr(self, name), accepted.get(name, ()))
        found = HOURS.fullmatch(self.hours) if isinstance(self.hours, str) else None
        if found is None or not {found[1], found[2]} <= {*DAYS} or self._times[0] == self._times[1]:
            raise ArgumentError("hours", f"must be days and times such as 'mon-fri 08:00-18:00', got {self.hours!r}")
        for name, text in self.variables.items():
            try:
                parse_variable(text)
            except ArgumentError as error:
                raise ArgumentError("variables", f"{name!r} cannot be read: {error}") from None

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a policy from a file; a mistake is an error with its line, and what is not there is as by default."""
        if not Path(path).exists():
            raise FileNotFoundError(
                f"{path}: file not found; `fpdfp federation join` without --policy writes one with all defaults"
            )
        document = Document.read(Path(path))
        file = Table(document, (), document.data)
        file.accept([one.name for one in dataclasses.fields(cls) if one.name != "off"])
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in file.values.items()
        }
        given |= {name: file.table(name).values for name in TABLES if name in file.values}
        try:
            return cls(**given)
        except ArgumentError as error:
            document.fail((str(error.args[0]),), str(error))

    @classmethod
    def allowing_everything(cls) -> Self:
        """Return a policy that refuses nothing: for tests, and for measuring what the defaults prevent."""
        huge = 10**12
        return cls(
            rows=1, cell=1, parameters=float(huge), never=(), kinds=(*KINDS, "ranges"), analyses=huge, refusals=huge,
            off=frozenset(RULES),
        )  # fmt: skip

    @functools.cached_property
    def approved(self) -> frozenset[Any]:
        """The expressions and splines that models may use unchanged."""
        return frozenset(parse_variable(text) for text in self.variables.values())

    def allows(self, column: str) -> bool:
        """Whether a column may be used."""
        return column in self.variables or (matches(column, self.columns) and not matches(column, self.never))

    def goes_by(self, rule: str) -> bool:
        """Whether a rule is switched on."""
        return rule not in self.off

    def is_open(self, now: datetime.datetime) -> bool:
        """Whether a site answers now; hours that end before they begin go past midnight, and count for their first day.

        >>> night = Policy(hours="fri-fri 22:00-06:00")
        >>> [night.is_open(datetime.datetime(2026, 1, day, hour)) for day, hour in ((2, 23), (3, 5), (3, 7), (2, 5))]
        [True, True, False, False]
        """
        (start, until), clock = self._times, f"{now:%H:%M}"
        first, last = (DAYS.index(day) for day in self.hours[:7].split("-"))
        days = {DAYS[(first + place) % 7] for place in range((last - first) % 7 + 1)}
        today, yesterday = DAYS[now.weekday()], DAYS[now.weekday() - 1]
        if start < until:
            return today in days and start <= clock < until
        return (today in days and clock >= start) or (yesterday in days and clock < until)

    @property
    def _times(self) -> tuple[str, str]:
        start, until = self.hours[8:].split("-")
        return start, until


def template() -> str:
    """Return the commented file with all defaults."""
    return importlib.resources.files("fpdfp.federation").joinpath("policy.toml").read_text(encoding="utf-8")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of some patterns, whatever its capitals.

    >>> matches("Patient_ID", ["*_id"]), matches("age", ["*_id"])
    (True, False)
    """
    return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def _texts(name: str, given: Any, accepted: tuple[str, ...]) -> None:
    """Check a list of texts, each one of those that are accepted, if there are such."""
    if not isinstance(given, tuple) or not all(isinstance(one, str) and one for one in given):
        raise ArgumentTypeError(name, f"must be a list of texts, got {given!r}")
    for one in given if accepted else ():
        if one not in accepted:
            raise ArgumentError(name, f"must hold any of {', '.join(accepted)}, got {one!r}{suggest(one, accepted)}")
