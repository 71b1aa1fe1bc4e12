"""A site's policy: what it answers, whatever is asked. The file ``policy.toml`` explains every key."""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import functools
import importlib.resources
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from fpdfp import _checks
from fpdfp._settings import Document, Table, suggest
from fpdfp.errors import ArgumentError, ArgumentTypeError, Refusal
from fpdfp.formula.parsing import is_definition, name_of, parse_variable

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
    "kinds", "columns", "places", "values", "rows", "parameters", "cells", "leverage", "weights", "points", "domain",
    "folds", "constants", "hiding", "budget",
)  # fmt: skip
#: The names of keys of the file that differ from those of fields.
TABLES = ("variables", "members", "columns_of_the_table")
#: What protects a site: its filter alone; sums over its members as well; or noise, as much as a budget allows.
LEVELS = ("filter", "sums", "private")
#: The least number of members of a masked sum.
MEMBERS = 3


@functools.cache
def sentences() -> dict[str, tuple[str, str]]:
    """Return all refusals of the filter by name: the rule, and the sentence for the analyst."""
    text = importlib.resources.files("fpdfp.federation").joinpath("refusals.toml").read_text(encoding="utf-8")
    return {key: (rule, said) for rule, group in tomllib.loads(text).items() for key, said in group.items()}


def refuse(key: str, detail: str = "", **words: Any) -> Refusal:
    """Return a refusal for a sentence of ``refusals.toml``.

    The detail has counts: it is for the log, and for the analyst too if the policy has ``counts``.
    """
    rule, sentence = sentences()[key]
    return Refusal(sentence.format(**words), detail, rule)


@dataclasses.dataclass(frozen=True)
class Policy:
    """The answer of a site; the comments of ``policy.toml`` explain each field.

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

    level: Literal["filter", "sums", "private"] = "filter"
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
    epsilon: float = 1.0
    delta: float = 1e-6
    radius: float = 4.0
    colluding: int = 1
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    members: Mapping[str, str] = dataclasses.field(default_factory=dict)
    columns_of_the_table: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    off: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        _checks.choice("level", self.level, LEVELS)
        self._check_protection()
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

    def _check_protection(self) -> None:
        """Check what the levels ``sums`` and ``private`` go by."""
        for name in ("epsilon", "delta", "radius"):
            _checks.real(name, getattr(self, name), positive=True)
        if self.delta >= 1 or self.epsilon > 100:
            raise ArgumentError("epsilon", f"must be at most 100, and delta below 1, got {self.epsilon}, {self.delta}")
        _checks.integer("colluding", self.colluding, at_least=0)
        for name, key in self.members.items():
            if not isinstance(key, str) or re.fullmatch("[0-9a-f]{64}", key) is None:
                raise ArgumentError("members", f"{name!r} must have the 64 digits of its key, got {key!r}")
        if len(set(self.members.values())) < len(self.members):
            raise ArgumentError("members", "must have different keys")
        if (self.members or self.level == "sums") and len(self.members) < MEMBERS:
            raise ArgumentError(
                "members", f"must be at least {MEMBERS} sites, this one among them, got {len(self.members)}: of two, "
                "each would find the other's numbers by subtracting its own",
            )  # fmt: skip
        if self.members and self.level != "filter" and len(self.members) - self.colluding < 2:
            raise ArgumentError("colluding", f"must leave two of {len(self.members)} members, got {self.colluding}")

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
        """The expressions, definitions and splines that models may use unchanged."""
        return frozenset(parse_variable(text) for text in self.variables.values())

    @functools.cached_property
    def _definitions(self) -> frozenset[str]:
        """The names of columns that approved definitions make."""
        return frozenset(name_of(text) for text in self.variables.values() if is_definition(text))

    def allows(self, column: str) -> bool:
        """Whether a column may be used; one that is named by its definition must be approved."""
        if column in self.variables or column in self._definitions:
            return True
        return not is_definition(column) and matches(column, self.columns) and not matches(column, self.never)

    def goes_by(self, rule: str) -> bool:
        """Whether a rule is switched on."""
        return rule not in self.off

    def refuse_if(self, wrong: Any, key: str, detail: str = "", **words: Any) -> None:
        """Refuse with a sentence of ``refusals.toml`` where something is wrong, and its rule is switched on.

        >>> Policy().refuse_if(9 < 10, "rows", "9 rows", rows=10)
        Traceback (most recent call last):
        ...
        fpdfp.errors.Refusal: this site takes part with at least 10 rows only
        """
        if wrong and self.goes_by(sentences()[key][0]):
            raise refuse(key, detail, **words)

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
