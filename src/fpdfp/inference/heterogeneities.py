"""How much sites differ in every coefficient: a table of Cochran's Q and I², with the estimates behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpdfp._sections import Section, shorten
from fpdfp.errors import ArgumentError
from fpdfp.inference.heterogeneity import Heterogeneity
from fpdfp.inference.table import Table, format_number, format_p, html_table

#: So many coefficients, and sites of each, are in a report: those that differ most.
MOST, MOST_SITES = 100, 200


@dataclass(frozen=True)
class HeterogeneityTable(Section):
    """Cochran's Q, I² and τ² of each coefficient; ``print`` shows them, and so does a notebook.

    Parameters
    ----------
    coefficients
        How much each differs between sites, by name.

    Examples
    --------
    >>> east, north = (Table(["age", "dose"], np.array([0.5, value]), np.eye(2) / 100) for value in (0.1, 0.6))
    >>> print(HeterogeneityTable.of_tables({"east": east, "north": north}))
          sites      Q  df        p    I²     τ²
    age       2  0.000   1    1.000   0 %  0.000
    dose      2  12.50   1  < 0.001  92 %  0.1150
    """

    section = "heterogeneity"

    coefficients: Mapping[str, Heterogeneity]

    @classmethod
    def of_tables(cls, tables: dict[str, Table | None]) -> HeterogeneityTable:
        """Return the coefficients that at least two sites have, of the tables of sites.

        Parameters
        ----------
        tables
            By site, as :func:`site_tables` or fits of the sites made them.
        """
        names = dict.fromkeys(name for table in tables.values() if table is not None for name in table.names)
        known = [table for table in tables.values() if table is not None]
        found = {
            name: Heterogeneity.of_tables(name, tables)
            for name in names
            if sum(name in table.names for table in known) > 1
        }
        if not found:
            raise ArgumentError("tables", "must be of at least two sites that have a coefficient in common")
        return cls(found)

    def frame(self) -> Any:
        """Return a data frame of pandas: a row for each coefficient."""
        import pandas

        return pandas.DataFrame(
            [
                (len(one.sites), one.test.statistic, one.test.df, one.test.p, one.i_squared, one.tau_squared)
                for one in self.coefficients.values()
            ],
            columns=["sites", "Q", "df", "p", "i_squared", "tau_squared"],
            index=pandas.Index(list(self.coefficients), name="name"),
        )

    def _grid(self) -> list[list[str]]:
        grid = [["", "sites", "Q", "df", "p", "I²", "τ²"]]
        for name, one in self.coefficients.items():
            test = one.test
            numbers = [format_number(test.statistic), str(test.df), format_p(test.p), f"{100 * one.i_squared:.0f} %"]
            grid.append([name, str(len(one.sites)), *numbers, format_number(one.tau_squared)])
        return grid

    def __str__(self) -> str:
        grid = self._grid()
        widths = [max(len(row[j]) for row in grid) for j in range(len(grid[0]))]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in grid]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rows = self._grid()
        return html_table(head, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return what a report shows: of more than 100 coefficients those with the smallest p values."""
        names = list(self.coefficients)
        p = np.array([self.coefficients[name].test.p for name in names])
        kept = [names[j] for j in np.sort(np.argsort(p, kind="stable")[:MOST])]
        first = self.coefficients[names[0]]
        return {
            "level": first.level,
            "exponentiate": first.exponentiate,
            "coefficients": [_describe(self.coefficients[name]) for name in kept],
            "of": len(names),
        }


def _describe(one: Heterogeneity) -> dict[str, Any]:
    """Return a coefficient in numbers: the test, the sites that weigh most, and the pooled estimates."""
    *rows, fixed, random = one._rows()
    heaviest = sorted(range(len(rows)), key=lambda j: -rows[j][4])[:MOST_SITES]
    shown = [rows[j] for j in sorted(heaviest)]
    test = one.test
    return {
        "name": one.name,
        "q": test.statistic, "df": test.df, "p": test.p, "i_squared": one.i_squared, "tau_squared": one.tau_squared,
        "sites": [[name, *shorten(numbers)] for name, *numbers in shown],
        "sites_in_all": len(rows),
        "fixed": shorten(fixed[1:4]),
        "random": shorten(random[1:4]),
        "prediction": None if (ends := _predict(one)) is None else shorten(ends),
    }  # fmt: skip


def _predict(one: Heterogeneity) -> Any:
    """Return where the coefficient of a further site is expected, on the scale that is shown."""
    ends = one.prediction_interval()
    return np.exp(ends) if ends is not None and one.exponentiate else ends
