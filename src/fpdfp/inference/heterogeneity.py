"""Meta-analysis: estimates of sites, how much they differ, and what they are together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._sections import Section, shorten
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.inference.hypotheses import HypothesisTest, judge
from fpdfp.inference.table import Table, format_number, format_p, html_table


class Pooled(NamedTuple):
    """An estimate of all sites, with its standard error, confidence limits and p value."""

    estimate: float
    standard_error: float
    lower: float
    upper: float
    p: float


@dataclass(frozen=True)
class Heterogeneity:
    """One coefficient at several sites: Cochran's Q, I², τ², and pooled estimates; ``print`` shows them.

    Parameters
    ----------
    estimates, standard_errors
        Of each site.
    sites
        Their names.
    name
        Of the coefficient.
    level
        Of confidence intervals.
    exponentiate
        Whether to show exp of estimates and limits: odds, rate or hazard ratios.
    note
        How the estimates and errors of sites were made, which is shown below them.

    Examples
    --------
    >>> found = Heterogeneity([0.1, 0.5, 0.3], [0.1, 0.15, 0.08], ["east", "north", "south"], name="dose")
    >>> print(found)
    dose            estimate     2.5 %  97.5 %  weight
    east              0.1000  -0.09600  0.2960  33.3 %
    north             0.5000    0.2060  0.7940  14.8 %
    south             0.3000    0.1432  0.4568  52.0 %
    fixed effect      0.2630    0.1500  0.3761
    random effects    0.2787   0.08149  0.4758
    Q = 5.367 on 2 df, p = 0.068; I² = 63 %; τ² = 0.01874
    """

    estimates: Any
    standard_errors: Any
    sites: Sequence[str] = ()
    name: str = ""
    level: float = 0.95
    exponentiate: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        values = _checks.float_array("estimates", self.estimates, dtype=np.float64)
        if values.ndim != 1 or len(values) < 2:
            raise ArgumentError("estimates", f"must belong to at least two sites, got shape {values.shape}")
        errors = _checks.float_array("standard_errors", self.standard_errors, shape=values.shape, dtype=np.float64)
        if not (errors > 0).all():
            raise ArgumentError("standard_errors", f"must be greater than 0, got {errors.min():g}")
        names = [str(one) for one in self.sites] or [f"site {j}" for j in range(len(values))]
        if len(names) != len(values):
            raise ArgumentError("sites", f"must name each of the {len(values)} sites, got {len(names)} names")
        if not 0.0 < _checks.real("level", self.level) < 1.0:
            raise ArgumentError("level", f"must be between 0 and 1, as 0.95, got {self.level:g}")
        for field, value in (("estimates", values), ("standard_errors", errors), ("sites", names)):
            object.__setattr__(self, field, value)

    @classmethod
    def of_tables(cls, name: str, tables: dict[str, Table | None]) -> Heterogeneity:
        """Return a coefficient of the tables of sites; sites without it are excluded.

        Parameters
        ----------
        name
            Of the coefficient.
        tables
            By site, as :func:`site_tables` or fits of the sites made them.
        """
        having = {site: table for site, table in tables.items() if table is not None and name in table.names}
        if len(having) < 2:
            known = sorted({one for table in tables.values() if table is not None for one in table.names})
            raise ArgumentError(
                "name",
                f"{name!r} is known at {len(having)} sites, and two are needed; coefficients: {', '.join(known)}",
            )
        places = [list(table.names).index(name) for table in having.values()]
        first = next(iter(having.values()))
        return cls(
            [table.coefficients[j] for table, j in zip(having.values(), places, strict=True)],
            [table.standard_errors[j] for table, j in zip(having.values(), places, strict=True)],
            list(having),
            name=name,
            level=first.level,
            exponentiate=first.exponentiate,
            note=f"estimates and errors {first.errors}",
        )

    @property
    def test(self) -> HypothesisTest:
        """Cochran's Q: the test that the coefficient is the same at all sites. With few sites its power is small."""
        weights = 1.0 / self.standard_errors**2
        q = float((weights * (self.estimates - weights @ self.estimates / weights.sum()) ** 2).sum())
        return judge("Cochran's Q", q, len(self.estimates) - 1, None)

    @property
    def i_squared(self) -> float:
        """The part of the variation that is between sites rather than by chance, from 0 to 1 (Higgins, Thompson)."""
        test = self.test
        return max(0.0, 1.0 - test.df / test.statistic) if test.statistic > 0 else 0.0

    @property
    def tau_squared(self) -> float:
        """The variance of the coefficient between sites, by DerSimonian and Laird."""
        weights, test = 1.0 / self.standard_errors**2, self.test
        return max(0.0, (test.statistic - test.df) / float(weights.sum() - (weights**2).sum() / weights.sum()))

    @property
    def fixed(self) -> Pooled:
        """The common coefficient, if there is one: the mean weighted by 1/SE²."""
        weights = 1.0 / self.standard_errors**2
        return self._pooled(weights, 1.0 / math.sqrt(weights.sum()), None)

    @property
    def random(self) -> Pooled:
        """The mean of the coefficients that sites have: the mean weighted by 1/(SE² + τ²)."""
        weights = 1.0 / (self.standard_errors**2 + self.tau_squared)
        return self._pooled(weights, 1.0 / math.sqrt(weights.sum()), None)

    @property
    def knapp_hartung(self) -> Pooled:
        """As :attr:`random`, with the interval of Knapp and Hartung, which holds better with few sites."""
        weights, df = 1.0 / (self.standard_errors**2 + self.tau_squared), len(self.estimates) - 1
        mean = weights @ self.estimates / weights.sum()
        spread = (weights * (self.estimates - mean) ** 2).sum() / (df * weights.sum())
        return self._pooled(weights, math.sqrt(spread), df)

    def prediction_interval(self) -> tuple[float, float] | None:
        """Return where the coefficient of another site is expected (Higgins et al., 2009); None for two sites."""
        from scipy import stats

        df = len(self.estimates) - 2
        if df < 1:
            return None
        random = self.random
        deviation = math.hypot(random.standard_error, math.sqrt(self.tau_squared))
        width = float(stats.t.isf((1.0 - self.level) / 2.0, df)) * deviation
        return random.estimate - width, random.estimate + width

    def _pooled(self, weights: Array, error: float, df: int | None) -> Pooled:
        estimate = float(weights @ self.estimates / weights.sum())
        table = Table([self.name], np.array([estimate]), np.array([[error**2]]), df=df, level=self.level)
        lower, upper = table.intervals()[0].tolist()
        return Pooled(estimate, error, lower, upper, float(table.p_values[0]) if error > 0 else 0.0)

    def frame(self) -> Any:
        """Return a data frame of pandas: a row for each site, and the pooled estimates."""
        import pandas

        rows = self._rows()
        names = ["estimate", "lower", "upper", "weight"]
        return pandas.DataFrame([row[1:] for row in rows], columns=names, index=pandas.Index([row[0] for row in rows]))

    def _rows(self) -> list[tuple[str, float, float, float, float]]:
        """Return name, estimate, limits and weight (of the fixed effect) of the sites and of both pooled estimates."""
        from scipy import stats

        width = stats.norm.isf((1.0 - self.level) / 2.0) * self.standard_errors
        weights = 1.0 / self.standard_errors**2
        parts = zip(
            self.sites,
            self.estimates,
            self.estimates - width,
            self.estimates + width,
            weights / weights.sum(),
            strict=True,
        )
        rows = [(site, float(a), float(b), float(c), float(d)) for site, a, b, c, d in parts]
        for name, pooled in (("fixed effect", self.fixed), ("random effects", self.random)):
            rows.append((name, pooled.estimate, pooled.lower, pooled.upper, math.nan))
        if not self.exponentiate:
            return rows
        return [(name, math.exp(a), math.exp(b), math.exp(c), d) for name, a, b, c, d in rows]

    def words(self) -> str:
        """Say how much sites differ, in a line."""
        test = self.test
        p = f"p {'' if test.p < 0.001 else '= '}{format_p(test.p)}"
        variance = f"τ² = {format_number(self.tau_squared)}"
        return (
            f"Q = {format_number(test.statistic)} on {test.df} df, {p}; I² = {100 * self.i_squared:.0f} %; {variance}"
        )

    def __str__(self) -> str:
        tail = 50.0 * (1.0 - self.level)
        shown = "exp(estimate)" if self.exponentiate else "estimate"
        grid = [[self.name, shown, f"{tail:.6g} %", f"{100.0 - tail:.6g} %", "weight"]]
        for name, *numbers, weight in self._rows():
            share = "" if math.isnan(weight) else f"{100 * weight:.1f} %"
            grid.append([name, *map(format_number, numbers), share])
        widths = [max(len(row[j]) for row in grid) for j in range(5)]
        lines = ["  ".join([row[0].ljust(widths[0]), *(row[j].rjust(widths[j]) for j in range(1, 5))]) for row in grid]
        return "\n".join([*(line.rstrip() for line in lines), self.words(), *([self.note] if self.note else [])])

    __repr__ = __str__


#: This many coefficients, and sites of each, are in a report: those that differ most.
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
    estimates and errors of the model (expected information)
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
        return "\n".join([*(line.rstrip() for line in lines), self.note])

    @property
    def note(self) -> str:
        """How the estimates and errors of sites were made."""
        return next(iter(self.coefficients.values())).note

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rows = self._grid()
        return f"{html_table(head, rows)}<p>{self.note}</p>"

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
