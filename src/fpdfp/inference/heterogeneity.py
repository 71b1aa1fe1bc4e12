"""Whether sites differ: their own coefficients to first order, meta-analysis of estimates, and forest plots."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from fpdfp import _checks
from fpdfp._plotting import BLUE, DARK, GREY, new_axes, save
from fpdfp._sections import Section, shorten
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.inference.hypotheses import HypothesisTest, judge
from fpdfp.inference.information import SINGULAR, Information, add_up, as_sites
from fpdfp.inference.table import Table, format_number, format_p, html_table, text_table


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
    random effects    0.2787   -0.1872  0.7445
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
        """The mean of the coefficients that sites have, with the interval of Knapp and Hartung.

        Weights are 1/(SE² + τ²). The error is estimated from how sites vary, and limits are of a t distribution, as in
        R's metafor with ``method="DL", test="knha"``. It also holds with few sites, where :attr:`dersimonian_laird`
        does not.
        """
        weights, df = 1.0 / (self.standard_errors**2 + self.tau_squared), len(self.estimates) - 1
        mean = weights @ self.estimates / weights.sum()
        spread = (weights * (self.estimates - mean) ** 2).sum() / (df * weights.sum())
        return self._pooled(weights, math.sqrt(spread), df)

    @property
    def dersimonian_laird(self) -> Pooled:
        """The same mean with an interval that takes τ² as known: with three sites 95 % intervals cover 0.83."""
        weights = 1.0 / (self.standard_errors**2 + self.tau_squared)
        return self._pooled(weights, 1.0 / math.sqrt(weights.sum()), None)

    def prediction_interval(self) -> tuple[float, float] | None:
        """Return where the coefficient of another site is expected (Higgins et al., 2009); None for two sites.

        It is a rough guide: between 0.87 and all of further sites are in a 95 % interval, by size of τ².
        """
        from scipy import stats

        df = len(self.estimates) - 2
        if df < 1:
            return None
        random = self.dersimonian_laird
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
        return text_table(grid, [self.words(), *([self.note] if self.note else [])])

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
        return text_table(self._grid(), [self.note])

    @property
    def note(self) -> str:
        """The way in which estimates and errors of sites were made."""
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


#: How the estimates of sites are made here.
ONE_STEP = "of a site, by one Newton step from the common fit"
#: The kinds of standard errors that a site has by itself.
SiteErrors: TypeAlias = Literal["model", "HC0", "HC1", "robust"]
#: A coefficient is a site's own business if at most this part of it lies where the site has no information.
ESTIMABLE = 1e-8


def site_tables(
    names: Sequence[str],
    coefficients: Array,
    sites: Sequence[Information],
    *,
    has_dispersion: bool,
    errors: SiteErrors = "model",
    level: float = 0.95,
    exponentiate: bool = False,
) -> list[Table | None]:
    """Return each site's own coefficients, by one Newton step from the common fit.

    For least squares these are the site's own fit. For other families they are near it where the site does not differ
    much from all (the error is of second order in the difference), and no further exchange is needed.

    Parameters
    ----------
    names, coefficients
        Of the common fit.
    sites
        The sums of each site at these coefficients.
    has_dispersion
        Whether the family has a dispersion, which is then estimated at each site.
    errors
        ``"model"``, or ``"HC0"`` for robust ones; ``"HC1"``, also called ``"robust"``, with the factor n/(n − p).
    level, exponentiate
        As of :class:`Table`.

    Returns
    -------
    list of Table or None
        With the coefficients that the rows of the site determine, or None without enough rows.

    Examples
    --------
    Two sites with means 1 and 3, and a common mean of 2:

    >>> sums = [Information.of_rows(np.ones((4, 1)), slopes, np.ones(4), weight=4, pearson=(slopes**2).sum())
    ...         for slopes in (np.array([-2.0, 0.0, -1.0, -1.0]), np.array([2.0, 0.0, 1.0, 1.0]))]
    >>> [table.coefficients.tolist() for table in site_tables(["mean"], np.array([2.0]), sums, has_dispersion=True)]
    [[1.0], [3.0]]
    """
    _checks.choice("errors", errors, get_args(SiteErrors))
    tables: list[Table | None] = []
    for site in as_sites(sites):
        inverse, kept, rank = _pseudo_inverse(site.hessian)
        left = site.rows - rank
        if not len(kept) or ((has_dispersion or errors in ("HC1", "robust")) and left < 1):
            tables.append(None)
            continue
        step = inverse @ site.score
        # What remains of Pearson's sum after the step, exactly so for least squares.
        dispersion = max(site.pearson - float(site.score @ step), 0.0) / left if has_dispersion else 1.0
        spread = dispersion * inverse if errors == "model" else _robust(site, inverse)
        spread = spread * site.rows / left if errors in ("HC1", "robust") else spread
        tables.append(
            Table(
                [names[j] for j in kept],
                (coefficients + step)[kept],
                spread[np.ix_(kept, kept)],
                df=float(left) if has_dispersion else None,
                errors=ONE_STEP + {"model": "", "HC0": "; robust (HC0)"}.get(errors, "; robust (HC1)"),
                level=level,
                exponentiate=exponentiate,
            )
        )
    return tables


def homogeneity_test(sites: Sequence[Information], *, has_dispersion: bool) -> HypothesisTest:
    """Test that all sites have the same coefficients, from their scores at the common fit without a penalty.

    Σ Sᵀ H⁻¹ S over the sites: the score test, which for least squares is the F test of Chow (1960). Coefficients that
    only one site determines, as an intercept of each site, do not count.

    Parameters
    ----------
    sites
        The sums of each site at the coefficients of the common fit.
    has_dispersion
        Whether the family has a dispersion.

    Examples
    --------
    >>> sums = [Information.of_rows(np.ones((4, 1)), slopes, np.ones(4), weight=4, pearson=(slopes**2).sum())
    ...         for slopes in (np.array([-2.0, 0.0, -1.0, -1.0]), np.array([2.0, 0.0, 1.0, 1.0]))]
    >>> homogeneity_test(sums, has_dispersion=True)
    the same coefficients at all sites: F = 12.00 on 1 and 6 degrees of freedom, p = 0.013
    """
    found = as_sites(sites)
    total = add_up(found)
    gain, ranks = 0.0, 0
    for site in found:
        inverse, _, rank = _pseudo_inverse(site.hessian)
        gain += float(site.score @ inverse @ site.score)
        ranks += rank
    df = ranks - _pseudo_inverse(total.hessian)[2]
    if df < 1:
        raise ArgumentError("sites", "must be at least two that determine a coefficient in common")
    name = "the same coefficients at all sites"
    if not has_dispersion:
        return judge(name, gain, df, None)
    left = total.rows - ranks
    if left < 1:
        raise ArgumentError(
            "sites", f"must have more rows than the {ranks} coefficients of all sites, got {total.rows}"
        )
    return judge(name, gain / ((total.pearson - gain) / left), df, float(left))


def _robust(site: Information, inverse: Array) -> Array:
    """Return the robust covariance of a site's own coefficients: at the common ones, scores do not add up to zero."""
    if site.meat is None:
        raise ArgumentError("errors", "'HC0' needs the sum of squared scores (meat), which some sites did not send")
    robust: Array = inverse @ (site.meat - np.outer(site.score, site.score) / site.rows) @ inverse
    return robust


def _pseudo_inverse(hessian: Array) -> tuple[Array, Array, int]:
    """Return the inverse where a site has information, the coefficients that it determines, and the rank."""
    diagonal = np.diag(hessian)
    scale = np.where(diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    values, vectors = np.linalg.eigh(hessian * np.outer(scale, scale))
    good = values > SINGULAR * len(hessian)
    inverse = (vectors[:, good] / values[good]) @ vectors[:, good].T * np.outer(scale, scale)
    outside = (vectors[:, ~good] ** 2).sum(axis=1)
    return inverse, np.flatnonzero((outside < ESTIMABLE) & (diagonal > 0)), int(good.sum())


def forest_plot(found: Heterogeneity, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw the estimates of sites as squares, larger for those that weigh more, and pooled ones as diamonds.

    Parameters
    ----------
    found
        The estimates. Ratios are drawn on a logarithmic axis.
    path
        A file for the picture, whose ending sets the format; None saves nothing.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Examples
    --------
    >>> figure = forest_plot(Heterogeneity([0.1, 0.5, 0.3], [0.1, 0.15, 0.08], ["east", "north", "south"], "dose"))
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['east', 'north', 'south', 'fixed effect', 'random effects']
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if not isinstance(found, Heterogeneity):
        raise ArgumentTypeError("found", f"must be a Heterogeneity, got {_checks.kind(found)}")
    rows = [
        Row(name, estimate, lower, upper, None if math.isnan(weight) else 20.0 + 180.0 * weight)
        for name, estimate, lower, upper, weight in found._rows()
    ]
    axes = draw_forest(rows)
    if found.exponentiate:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(1.0 if found.exponentiate else 0.0, color=GREY, linewidth=0.8)
    axes.axhline(len(found.sites) - 0.5, color="#C0C0C0", linewidth=0.6)
    axes.set_xlabel(f"exp({found.name})" if found.exponentiate else found.name)
    axes.set_title("\n".join([found.words(), *([found.note] if found.note else [])]), fontsize="small", loc="left")
    return save(axes.figure, path)


class Row(NamedTuple):
    """A row of a forest plot: a square of this size for a site, a diamond where the size is None."""

    name: str
    estimate: float
    lower: float
    upper: float
    size: float | None


def draw_forest(rows: Sequence[Row]) -> Any:
    """Return axes with names on the left and numbers on the right."""
    axes = new_axes(7.0, 1.4 + 0.32 * len(rows), hidden=["top", "right", "left"])
    for place, (_, estimate, lower, upper, size) in enumerate(rows):
        if size is None:
            axes.fill([lower, estimate, upper, estimate], [place, place - 0.25, place, place + 0.25], color=DARK)
            continue
        axes.plot([lower, upper], [place, place], color=BLUE, linewidth=1.2)
        axes.scatter([estimate], [place], s=size, marker="s", color=BLUE, zorder=3)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(rows)), [f"{row.estimate:.3g} ({row.lower:.3g} to {row.upper:.3g})" for row in rows])
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    return axes


def forest_svg(found: Heterogeneity) -> str:
    """Return the forest plot as text in SVG, to be put into a page; the same plot is always the same text.

    >>> forest_svg(Heterogeneity([0.1, 0.5], [0.1, 0.15])).startswith("<svg")
    True
    """
    import io

    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": "forest", "svg.fonttype": "none"}):
        forest_plot(found).savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
