"""Sites as estimators see them: they answer questions and have losses, here or elsewhere; their columns compared."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.question import Cohort, Each, Question, Total
from fpdfp.cohorts.serialization import pack
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.federation.questions import ColumnSchema, ModelSpec, Schema, SchemaQuestion, write, write_answer
from fpdfp.federation.table import SiteTable, make_losses, read_frame
from fpdfp.formula import tree
from fpdfp.formula.parsing import is_definition, nearest, parse_condition
from fpdfp.formula.tree import Categorical, Formula, Level, Numeric
from fpdfp.losses import Losses
from fpdfp.traffic import count_exchange

#: Which levels are accepted: those that more than one site has, any, or lists by column.
Levels = Literal["shared", "any"] | Mapping[str, Sequence[Level]]
#: Columns whose values are all different are taken for identifiers from this many rows on.
IDENTIFIED = 20
#: How many levels a table for people shows.
SHOWN = 6


@dataclasses.dataclass(frozen=True)
class Agreed:
    """The schema of a formula over sites.

    Attributes
    ----------
    kinds, levels
        The types of columns, and their levels in order.
    absent
        The columns that have missing values somewhere.
    ordered
        The columns whose levels are on a scale: integers and truth values, and texts whose order is declared.
    """

    kinds: dict[str, str]
    levels: dict[str, tuple[Level, ...]]
    absent: tuple[str, ...]
    ordered: tuple[str, ...] = ()


class Schemas:
    """The columns of all sites; ``print`` shows one table, :meth:`frame` returns it.

    Parameters
    ----------
    sites
        The names of the sites.
    schemas
        What each says.

    Examples
    --------
    >>> here = Schema(100, (ColumnSchema("age", "integer", "years", 2, least=18, largest=90),))
    >>> there = Schema(80, (ColumnSchema("age", "number", "years", 0, least=20, largest=85),))
    >>> print(Schemas(["north", "south"], [here, there]))
    2 sites: north (100 rows), south (80 rows)
    column  type    unit   missing  levels or range
    age     number  years  2        18 to 90
    """

    def __init__(self, sites: Sequence[str], schemas: Sequence[Schema]) -> None:
        self.sites, self.schemas = list(sites), list(schemas)
        self.by_site = [{column.name: column for column in schema.columns} for schema in schemas]

    @property
    def names(self) -> list[str]:
        """The columns of all sites, in the order of the first site that has them."""
        return list(dict.fromkeys(name for found in self.by_site for name in found))

    def of(self, name: str) -> dict[str, ColumnSchema]:
        """Return what each site that has a column says about it."""
        return {site: found[name] for site, found in zip(self.sites, self.by_site, strict=True) if name in found}

    def frame(self) -> Any:
        """Return a data frame of pandas with a row for each column; what differs between sites is named."""
        import pandas

        return pandas.DataFrame([self._row(name) for name in self.names]).set_index("column")

    def _row(self, name: str) -> dict[str, Any]:
        found = self.of(name)
        kinds = {one.kind for one in found.values()} - {"empty"}
        units = sorted({one.unit for one in found.values() if one.unit is not None})
        lacking = [site for site in self.sites if site not in found]
        differs = [f"not at {', '.join(lacking)}"] if lacking else []
        if _common(kinds) is None and len(kinds) > 1:
            differs.append("type: " + ", ".join(f"{one.kind} at {site}" for site, one in found.items()))
        if len(units) > 1:
            differs.append("unit: " + ", ".join(f"{one.unit} at {site}" for site, one in found.items() if one.unit))
        for level, sites in self._owners(name).items():
            if len(sites) == 1 and len(self.sites) > 1 and "category" in kinds:
                differs.append(f"level {level!r} only at {sites[0]}")
        return {
            "column": name,
            "type": _common(kinds) or ", ".join(sorted(kinds)) or "empty",
            "unit": " or ".join(units),
            "missing": sum(one.missing for one in found.values()),
            "levels or range": _values(list(found.values())),
            "differs": "; ".join(differs),
        }

    def __str__(self) -> str:
        sites = [
            f"{site} ({schema.rows:,} rows)" if schema.rows is not None else site
            for site, schema in zip(self.sites, self.schemas, strict=True)
        ]
        rows = [self._row(name) for name in self.names]
        heads = [head for head in rows[0] if head != "differs" or any(row["differs"] for row in rows)] if rows else []
        cells = [heads, *([str(row[head]) for head in heads] for row in rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
        count = f"{len(self.sites)} site{'s' if len(self.sites) != 1 else ''}: "
        return "\n".join([count + ", ".join(sites), *(line.rstrip() for line in lines if heads)])

    __repr__ = __str__

    def agree(self, formula: Formula, levels: Levels = "shared", *, classify: bool | None = True) -> Agreed:
        """Return what a formula needs to know, or refuse a difference by column and site.

        Parameters
        ----------
        formula
            A formula.
        levels
            ``"shared"`` refuses a level that only one of several sites has, ``"any"`` accepts it, and lists by column
            name which levels there are, in order.
        classify
            Whether the response has classes; with None only one of texts or truth values.
        """
        given = _check_levels(levels)
        kinds = {name: self._kind(name) for name in formula.columns}
        for name in formula.columns:
            self._check_unit(name)
        plain = {factor.value.column: factor for factor in _factors(formula) if _is_plain(factor)}
        categorical = {one.column for one in _factors(formula) if isinstance(one, Categorical)}
        categorical |= {name for name in plain if kinds[name] == "category"}
        for name in (*plain, *categorical):
            self._check_identifier(name, kinds[name])
        response = formula.response
        with_classes = isinstance(response, tree.Column) and (
            kinds[response.column] in ("truth", "category") if classify is None else classify
        )
        wanted = [*categorical, *([response.column] if with_classes and isinstance(response, tree.Column) else [])]
        arranged = {name: self._levels(name, given, any_level=levels == "any") for name in wanted}
        found = {name: order for name, (order, _) in arranged.items()}
        declared = {one.column for one in _factors(formula) if isinstance(one, Categorical) and one.levels is not None}
        for name in categorical - declared:
            if not found[name]:
                raise ArgumentError(
                    "formula:",
                    f"no site lists levels of the column {name!r} ({kinds[name]}): it has too many different values, "
                    f"or policies hide them; name the levels as C({name}, levels=[…])",
                )
        absent = tuple(name for name in formula.columns if any(one.missing for one in self.of(name).values()))
        return Agreed(kinds, found, absent, tuple(name for name, (_, on_scale) in arranged.items() if on_scale))

    def _kind(self, name: str) -> str:
        """Return the type of a column, if all sites have it and of one type."""
        found = self.of(name)
        if not found and not is_definition(name):
            raise ArgumentError("formula:", f"no site has the column {name!r}{nearest(name, self.names)}")
        without = [site for site in self.sites if site not in found]
        if without and is_definition(name):
            raise ArgumentError(
                "formula:",
                f"{', '.join(without)} has not approved {name}: federation.propose('a_name', {name!r}) proposes it",
            )
        for site, columns in zip(self.sites, self.by_site, strict=True):
            if site not in found:
                raise ArgumentError(
                    "formula:",
                    f"the column {name!r} is missing at {site}{nearest(name, columns)}; add or rename it there, or "
                    "leave it out of the formula",
                )
        hidden = [site for site, one in found.items() if one.kind == "hidden"]
        if hidden:
            raise ArgumentError(
                "formula:",
                f"the policy of {', '.join(hidden)} does not allow the column {name!r} (columns and never in its "
                "policy.toml); use another column, or request it from these sites",
            )
        dates = [site for site, one in found.items() if one.kind == "date"]
        if dates:
            raise ArgumentError(
                "formula:",
                f"the column {name!r} holds dates at {', '.join(dates)}; write years(start, end), or days or months",
            )
        other = [site for site, one in found.items() if one.kind == "other"]
        if other:
            raise ArgumentError(
                "formula:", f"the column {name!r} holds neither numbers nor texts at {', '.join(other)}"
            )
        kinds = {one.kind for one in found.values()} - {"empty"}
        kind = _common(kinds) if kinds else "number"
        if kind is None:
            each = ", ".join(f"{one.kind} at {site}" for site, one in found.items())
            raise ArgumentError(
                "formula:",
                f"the column {name!r} has different types: {each}; make them the same, or declare its type at sites",
            )
        return kind

    def _check_unit(self, name: str) -> None:
        units = {site: one.unit for site, one in self.of(name).items() if one.unit is not None}
        if len(set(units.values())) > 1:
            each = ", ".join(f"{unit} at {site}" for site, unit in units.items())
            raise ArgumentError(
                "formula:", f"the column {name!r} has different units: {each}; convert it to one unit at all sites"
            )

    def _check_identifier(self, name: str, kind: str) -> None:
        """Refuse a column whose values are all different at every site."""
        found = self.of(name).values()
        rows = [schema.rows or 0 for schema in self.schemas]
        if kind in ("category", "integer") and all(one.distinct for one in found) and sum(rows) >= IDENTIFIED:
            raise ArgumentError(
                "formula:",
                f"all values of the column {name!r} are different, like an identifier's; exclude it"
                + (f", or write I({name}) if it is a measurement" if kind == "integer" else ""),
            )

    def _owners(self, name: str) -> dict[Level, list[str]]:
        """Return the sites that have each level of a column."""
        owners: dict[Level, list[str]] = {}
        for site, one in self.of(name).items():
            for level in one.levels:
                owners.setdefault(level, []).append(site)
        return owners

    def _levels(
        self, name: str, given: Mapping[str, Sequence[Level]], *, any_level: bool
    ) -> tuple[tuple[Level, ...], bool]:
        """Return the levels of a column as given, as sites declare them, or sorted; and whether they have a scale."""
        owners = self._owners(name)
        if name in given:
            strange = [level for level in owners if level not in given[name]]
            if strange:
                raise ArgumentError(
                    f"levels[{name!r}]",
                    f"must have all levels, but {strange[0]!r} at {owners[strange[0]][0]} is not there",
                )
            return tuple(given[name]), True
        for level, sites in owners.items():
            if len(sites) == 1 and len(self.sites) > 1 and not any_level and not name.startswith("cut("):
                others = sorted((one for one in owners if len(owners[one]) > 1), key=str)
                shown = ", ".join(map(repr, others[:12])) or "none"
                raise ArgumentError(
                    "formula:",
                    f"the column {name!r} has the level {level!r} only at {sites[0]} (levels that more than one site "
                    f'has: {shown}); correct it there, or accept it with levels="any"',
                )
        declared = {site: one for site, one in self.of(name).items() if one.order != "sorted" and one.levels}
        levels = sorted(owners, key=lambda level: (isinstance(level, str), level))
        if not declared:
            return tuple(levels), not any(isinstance(level, str) for level in levels)
        merged = merge_orders([one.levels for one in declared.values()])
        if merged is None:
            each = "; ".join(f"{' < '.join(map(str, one.levels))} at {site}" for site, one in declared.items())
            raise ArgumentError(
                "formula:",
                f"the levels of the column {name!r} are in different orders: {each}; give the order as "
                f"levels={{{name!r}: […]}}",
            )
        order, unique = merged
        rest = [level for level in levels if level not in order]
        on_scale = unique and not rest and all(one.order == "ordered" for one in declared.values())
        return (*order, *rest), on_scale


def merge_orders(orders: Sequence[Sequence[Level]]) -> tuple[tuple[Level, ...], bool] | None:
    """Return all levels in an order that agrees with each given one, and whether it is the only such; None for none.

    >>> merge_orders([("low", "high"), ("low", "medium", "high")])
    (('low', 'medium', 'high'), True)
    >>> merge_orders([("b", "a"), ("c", "a")]), merge_orders([("b", "a"), ("a", "b")])
    ((('b', 'c', 'a'), False), None)
    """
    left = {level: {above for one in orders if level in one for above in one[: one.index(level)]}
            for one in orders for level in one}  # fmt: skip
    merged: list[Level] = []
    unique = True
    while left:
        free = [level for level, above in left.items() if not above - set(merged)]
        if not free:
            return None
        unique &= len(free) == 1
        first = min(free, key=lambda level: (isinstance(level, str), level))
        merged.append(first)
        del left[first]
    return tuple(merged), unique


def _check_levels(levels: Any) -> Mapping[str, Sequence[Level]]:
    if isinstance(levels, Mapping):
        for name, one in levels.items():
            if not isinstance(one, list | tuple) or len(set(one)) < max(2, len(one)):
                raise ArgumentError(
                    f"levels[{name!r}]", f"must be a list of at least two different levels, got {one!r}"
                )
        return levels
    if levels not in ("shared", "any"):
        raise ArgumentTypeError("levels", f"must be 'shared', 'any' or lists by column, got {levels!r}")
    return {}


def _factors(formula: Formula) -> list[Any]:
    return [factor for term in formula.terms for factor in term]


def _is_plain(factor: Any) -> bool:
    return isinstance(factor, Numeric) and factor.value == tree.Column(factor.name)


def _common(kinds: set[Any]) -> str | None:
    """Return the type of values of some types together, None if missing; integers are numbers."""
    if len(kinds) == 1:
        return str(next(iter(kinds)))
    return "number" if kinds == {"integer", "number"} else None


def _values(found: list[ColumnSchema]) -> str:
    """Return the levels, or the range, of a column at all sites."""
    numbers = [one for one in found if one.least is not None and one.largest is not None]
    levels = list(dict.fromkeys(level for one in found for level in one.levels))
    if levels and (not numbers or len(levels) <= SHOWN):
        return ", ".join(shown if (shown := str(one)).isprintable() else ascii(one) for one in levels[:SHOWN]) + (
            ", …" if len(levels) > SHOWN else ""
        )
    if numbers:
        least, largest = min(one.least or 0.0 for one in numbers), max(one.largest or 0.0 for one in numbers)
        return f"{least:g} to {largest:g}"
    return ""


class TableCohort(Cohort):
    """Sites with tables, which answer questions about these, and have losses.

    Attributes
    ----------
    rows
        The condition of the rows that are asked about; empty for all rows.
    """

    rows: str = ""
    _whole: TableCohort | None = None

    @functools.cached_property
    def edges(self) -> dict[str, Array]:
        """The edges at which the sites were asked about columns, shared by all that are made of this cohort."""
        return {} if self._whole is None else self._whole.edges

    @property
    def whole(self) -> TableCohort:
        """The same sites with all of their rows."""
        return self._whole or self

    @abc.abstractmethod
    def gather(self, question: Question, names: Sequence[str], *, each: bool) -> list[Any]:
        """Return the answers of some sites, in their order.

        ``each`` says that they are to be seen one by one.
        """

    @abc.abstractmethod
    def losses(self, spec: ModelSpec) -> Losses:
        """Return the losses of a model, a client for each site, in order; those at sites know their engine."""

    #: What protects the sites: their filters, sums over all of them, or noise.
    level: str = "filter"

    def at_level(self) -> TableCohort:
        """Return the cohort as the policies of its sites let it be asked."""
        return self

    def without(self, sites: Collection[str]) -> TableCohort:
        """Return the cohort without some sites."""
        raise NotImplementedError(f"{type(self).__name__} has no parts")

    def filter(self, condition: str) -> TableCohort:
        """Return the same sites with the rows that meet a condition, such as ``"age >= 18"`` or a variable's name.

        Rows in which the condition has no value are excluded. A comparison must be approved by the sites of a
        federation. Together with all conditions before it, it must divide the rows of a site into parts of none or of
        as many rows as a site needs to take part. Otherwise the difference of two results would reveal few rows.
        """
        parse_condition(condition)
        if self.rows:
            raise ArgumentError("condition", f"must be one for all: write ({self.rows}) & ({condition})")
        made = self._take(condition)
        made.rows, made._whole = condition, self
        return made

    def _take(self, condition: str) -> TableCohort:
        raise NotImplementedError(f"{type(self).__name__} has no filter")

    def ask(self, question: Question, clients: IntArray | None = None) -> Total:
        count_exchange(question.name)
        names = [self.names[i] for i in range(len(self.names)) if clients is None or i in clients]
        # A sum over one site is the result of that site.
        answers = self.gather(question, names, each=len(names) == 1 and not question.plain)
        sums = question.add_up(answers, np.arange(len(answers)))
        return Total(sums, len(answers), *_count(question, answers))

    def ask_each(self, question: Question) -> Each:
        count_exchange(question.name)
        answers = self.gather(question, self.names, each=not question.plain)
        return Each(answers, *_count(question, answers))


def _count(question: Question, answers: Sequence[Any]) -> tuple[int, int]:
    """Return the bits of all answers, and of the question to all sites."""
    up = sum(8 * len(pack(write_answer(answer))) for answer in answers)
    return up, 8 * len(pack(write(question))) * len(answers)


class LocalCohort(TableCohort):
    """A table in this process whose rows belong to sites, or a table of each site.

    Parameters
    ----------
    table
        A file, a data frame, or a :class:`SiteTable`. Or several: a dictionary by the names of sites, or a list, of
        which files are named by their names without endings, and others by numbers.
    by
        The name of the column that names each row's site, or the names themselves; None for one site, and for several
        tables.
    order
        The order of the sites; sorted by default. Sums are formed in this order.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [61, 48, 70, 55], "hospital": ["north", "south", "north", "south"]})
    >>> print(LocalCohort(table, "hospital").describe())
    2 sites: north (2 rows), south (2 rows)
    column  type     unit  missing  levels or range
    age     integer        0        61, 70, 48, 55
    """

    def __init__(self, table: Any, by: Any = None, order: Sequence[Any] | None = None) -> None:
        self._variables: list[str] = []
        if isinstance(table, Mapping | list | tuple):
            self._names, self.tables = _read_several(table, by, order)
            return
        frame = (
            None if isinstance(table, SiteTable) else read_frame(table).rename(columns=lambda name: str(name).strip())
        )
        whole = table if frame is None else SiteTable.read(frame, derives=True)
        if not len(whole):
            raise ArgumentError("table", "must have rows, got none")
        labels, owner, column = _sites(whole, by)
        if order is not None:
            names = [str(one) for one in order]
            if sorted(names) != sorted(labels):
                raise ArgumentError(
                    "order", f"must name the sites {', '.join(labels)} once each, got {', '.join(names)}"
                )
            place = np.array([names.index(label) for label in labels])
            labels, owner = names, place[owner]
        self._names = labels
        rows = [np.flatnonzero(owner == site) for site in range(len(labels))]
        self.tables = [
            whole.take(own, [name for name in whole.columns if name != column])
            if frame is None
            else SiteTable.read(frame.iloc[own].drop(columns=[] if column is None else [column]), derives=True)
            for own in rows
        ]

    _names: list[str]
    #: The table of each site; types are found from its own rows, as at the site.
    tables: list[SiteTable]

    def __repr__(self) -> str:
        return f"LocalCohort({len(self.names)} sites, {sum(map(len, self.tables))} rows)"

    @property
    def names(self) -> list[str]:
        return self._names

    def without(self, sites: Collection[str]) -> LocalCohort:
        made = LocalCohort({
            name: table for name, table in zip(self.names, self.tables, strict=True) if name not in sites
        })  # fmt: skip
        made.rows, made._variables = self.rows, list(self._variables)
        made._whole = None if self._whole is None else self._whole.without(sites)
        made.edges = self.edges
        return made

    def propose(self, name: str | None = None, definition: str | None = None) -> Any:
        """Define a variable, as :meth:`fpdfp.Federation.propose` proposes one: here all sites say yes."""
        import pandas

        if name is not None:
            if name in self._variables or definition is None:
                raise ArgumentError("name", f"must be new, with a definition, got {name!r}")
            self.tables = [table.with_variables({name: definition}) for table in self.tables]
            self._variables.append(name)
        states = {site: dict.fromkeys(self._variables, "yes") for site in self.names}
        return pandas.DataFrame(states).rename_axis("variable")

    def _take(self, condition: str) -> LocalCohort:
        made = LocalCohort({
            name: table.take(table.where(condition)) for name, table in zip(self.names, self.tables, strict=True)
        })  # fmt: skip
        made._variables = list(self._variables)
        return made

    def describe(self) -> Schemas:
        """Return the columns of all sites side by side."""
        return Schemas(self.names, self.ask_each(SchemaQuestion()).answers)

    def gather(self, question: Question, names: Sequence[str], *, each: bool) -> list[Any]:
        answers = []
        for name, table in zip(self.names, self.tables, strict=True):
            if name not in names:
                continue
            try:
                answers.append(table.answer(question, site=name))
            except ArgumentError as error:
                raise ArgumentError(f"{error.args[0]}", f"{error.args[1]} (at {name})") from None
        return answers

    def losses(self, spec: ModelSpec) -> Losses:
        """Return the losses of a model, a client for each site, in order."""
        return make_losses(
            spec, [table.features(spec, name) for name, table in zip(self.names, self.tables, strict=True)]
        )


def _sites(table: SiteTable, by: Any) -> tuple[list[str], Any, str | None]:
    """Return the names of the sites, the number of each row's, and the column that they come from."""
    if by is None:
        return ["all"], np.zeros(len(table), dtype=np.int64), None
    if isinstance(by, str):
        column = table.column(by)
        if column.missing.any():
            raise ArgumentError("groups", f"must name a site for every row, but {by!r} is missing in some")
        found, owner = np.unique(column.numbers, return_inverse=True)
        names = [str(column.levels[int(one)]) if column.levels else f"{one:g}" for one in found]
        # Sorted as texts, as the sites of a federation are.
        order = np.argsort(np.array(names), kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return [names[i] for i in order], place[owner], by
    labels = _checks.host_array("groups", by)
    if labels.shape != (len(table),):
        raise ArgumentError("groups", f"must name the site of each of the {len(table)} rows, got shape {labels.shape}")
    sites, owner = _checks.labels("groups", labels.astype(str) if labels.dtype.kind in "OUT" else labels)
    return [str(one) for one in sites], owner, None


def _read_several(tables: Any, by: Any, order: Any) -> tuple[list[str], list[SiteTable]]:
    """Return the names of sites, and the table of each."""
    if by is not None or order is not None:
        raise ArgumentError("groups", "must be None where each site has a table of its own: its name is the key")
    if not isinstance(tables, Mapping):
        named = [Path(one).stem if isinstance(one, str | Path) else f"site {k}" for k, one in enumerate(tables)]
        tables = dict(zip(named, tables, strict=True))
        if len(tables) < len(named):
            raise ArgumentError("table", f"must be files of different names, got {', '.join(named)}; give a dictionary")
    names = [str(name) for name in tables]
    if not names:
        raise ArgumentError("table", "must have at least one site, got none")
    found = [one if isinstance(one, SiteTable) else SiteTable.read(one, derives=True) for one in tables.values()]
    for name, one in zip(names, found, strict=True):
        if not len(one):
            raise ArgumentError("table", f"must have rows at every site, got none at {name!r}")
    return names, found
