"""Sites as estimators see them: they are asked questions, and have losses; in one process, or anywhere."""

from __future__ import annotations

import abc
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.question import Cohort, Each, Question, Total
from fpdfp.cohorts.serialization import pack
from fpdfp.errors import ArgumentError
from fpdfp.federation.columns import Schemas, read_frame
from fpdfp.federation.questions import ModelSpec, SchemaQuestion, write, write_answer
from fpdfp.federation.table import SiteTable, make_losses
from fpdfp.formula.parsing import parse_condition
from fpdfp.losses import Losses
from fpdfp.traffic import count_exchange


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
