"""Intervals after a fit with a penalty: the debiased lasso, and sample splitting across sites."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.inference.information import Information, add_up, invert
from fpdfp.inference.table import Table

#: Nodewise regressions end when their duality gap is this part of the variance they explain.
TOLERANCE = 1e-7


def debias(
    names: Sequence[str],
    coefficients: Array,
    sites: Information | Sequence[Information],
    *,
    has_dispersion: bool,
    unpenalised: Sequence[str] = ("Intercept",),
    node_alpha: float | None = None,
    errors: Literal["model", "HC0"] = "model",
    level: float = 0.95,
    exponentiate: bool = False,
) -> Table:
    """Return the debiased lasso: the coefficients of a penalised fit, corrected, with standard errors.

    The correction is one Newton step, x + Θ Σ s, with an approximate inverse Θ of the summed Hessian from one lasso for
    each coefficient (van de Geer, Bühlmann, Ritov and Dezeure, 2014). It uses sums alone, so it needs no further
    exchange. Intervals are asymptotic: they assume that few coefficients are different from zero, that the fit is near
    them (as the lasso with a suitable ``alpha`` is), and that columns depend on few others. Those of coefficients that
    are not zero cover too rarely where the correction is not complete.

    Parameters
    ----------
    names, coefficients
        Of the fit with a penalty.
    sites
        The sums of each site, or of all, at these coefficients.
    has_dispersion
        Whether the family has a dispersion; it is estimated by Pearson's sum over n less the coefficients that are not
        zero.
    unpenalised
        Names of coefficients that were fitted without a penalty; those that do not occur are ignored.
    node_alpha
        The penalty of the lassos that make Θ, for columns of variance 1. The default is ½ √(log p / n), or 0, which
        is the exact inverse, if there are at least 20 rows for each coefficient.
    errors
        ``"model"``, or ``"HC0"`` for robust ones.
    level, exponentiate
        As of :class:`Table`.

    Returns
    -------
    Table
        The corrected coefficients, of which none is zero, labelled as debiased.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=100)
    >>> x = np.array([0.9, 0.0, 0.0])  # as of a lasso: too small
    >>> residuals = y - X @ x
    >>> sums = Information.of_rows(X, residuals, np.ones(100), weight=100, pearson=(residuals**2).sum())
    >>> debias(["a", "b", "c"], x, sums, has_dispersion=True).coefficients.round(2).tolist()
    [1.0, -0.01, -0.02]
    """
    _checks.choice("errors", errors, ("model", "HC0"))
    total = add_up(sites)
    names = [str(name) for name in names]
    x = _checks.float_array("coefficients", coefficients, shape=(total.parameters,), dtype=np.float64)
    free = np.array([name in unpenalised for name in names])
    alpha = default_node_alpha(total) if node_alpha is None else _checks.real("node_alpha", node_alpha, at_least=0.0)
    inverse = approximate_inverse(total.hessian, alpha, free, names)
    if errors == "HC0" and total.meat is None:
        raise ArgumentError("errors", "'HC0' needs the sum of squared scores (meat), which some sites did not send")
    dispersion = 1.0
    if has_dispersion:
        left = total.rows - int(np.count_nonzero(x))
        if left < 1:
            raise ArgumentError("sites", f"must have more rows than coefficients that are not zero, got {total.rows}")
        dispersion = total.pearson / left
    inner = total.meat if errors == "HC0" and total.meat is not None else dispersion * total.hessian
    product = inverse @ inner @ inverse.T
    robust = " robust (HC0)" if errors == "HC0" else ""
    return Table(
        names,
        x + inverse @ total.score,
        (product + product.T) / 2.0,
        errors=f"debiased lasso{robust}, nodewise with alpha = {alpha:.3g}",
        level=level,
        exponentiate=exponentiate,
    )


def default_node_alpha(total: Information) -> float:
    """Return the penalty of nodewise lassos where none is given.

    >>> default_node_alpha(Information(100, 100.0, 0.0, 0.0, 0.0, np.zeros(50), np.eye(50))).__round__(3)
    0.099
    """
    if total.rows >= 20 * total.parameters:
        return 0.0
    return 0.5 * math.sqrt(math.log(max(total.parameters, 2)) / max(total.rows, 1))


def approximate_inverse(
    hessian: Array, alpha: float, free: Array | None = None, names: Sequence[str] | None = None
) -> Array:
    """Return an approximate inverse of a Hessian by regressing each column on all others with an l1 penalty.

    Row j is (1, −γ)/τ², where γ are the coefficients of that lasso, and τ² is the part of the variance of the column
    that they leave. Then |Θ H − I| ≤ alpha/τ² entry by entry off the diagonal, for columns of variance 1.

    Parameters
    ----------
    hessian
        Symmetric and positive semi-definite, shape (p, p).
    alpha
        The penalty for columns of variance 1. With 0 it is the inverse.
    free
        Columns on which others are regressed without a penalty, such as an intercept.
    names
        Of the columns, for errors.

    Examples
    --------
    >>> approximate_inverse(np.array([[2.0, 1.0], [1.0, 2.0]]), 0.0).round(3).tolist()
    [[0.667, -0.333], [-0.333, 0.667]]
    >>> approximate_inverse(np.array([[2.0, 1.0], [1.0, 2.0]]), 0.2).round(3).tolist()
    [[0.588, -0.176], [-0.176, 0.588]]
    """
    if alpha == 0:
        return invert(hessian, names)
    size = len(hessian)
    free = np.zeros(size, dtype=bool) if free is None else np.asarray(free, dtype=bool)
    diagonal = np.diag(hessian)
    if not (diagonal > 0).all():
        invert(hessian, names)  # names the columns that have no information
    scale = 1.0 / np.sqrt(diagonal)
    unit = hessian * np.outer(scale, scale)
    inverse = np.empty_like(unit)
    shared = _projected(unit, np.flatnonzero(free)) if not free.all() else None
    for j in range(size):
        own = free.copy()
        own[j] = False
        left = np.flatnonzero(~own)
        projected = shared if shared is not None and not free[j] else _projected(unit, np.flatnonzero(own))
        inverse[j] = _row(projected, left, np.flatnonzero(own), int(np.flatnonzero(left == j)[0]), alpha, size)
    return inverse * np.outer(scale, scale)


class _Projected(NamedTuple):
    """The columns with a penalty, less what those without explain: a square root, and how much that is."""

    root: Array
    explained: Array


def _projected(unit: Array, free: Array) -> _Projected:
    left = np.setdiff1d(np.arange(len(unit)), free)
    explained = (
        np.linalg.solve(unit[np.ix_(free, free)], unit[np.ix_(free, left)]) if len(free) else np.zeros((0, len(left)))
    )
    rest = unit[np.ix_(left, left)] - unit[np.ix_(left, free)] @ explained
    values, vectors = np.linalg.eigh((rest + rest.T) / 2.0)
    return _Projected(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T, explained)


def _row(projected: _Projected, left: Array, free: Array, place: int, alpha: float, size: int) -> Array:
    """Return a row of the approximate inverse; ``place`` is its column's place among the remaining ones."""
    from sklearn.linear_model import Lasso

    root = projected.root
    others = np.delete(np.arange(len(left)), place)
    slopes = np.zeros(len(others))
    if len(others):
        # The root has the same products as rows, so that the lasso of a library serves; it divides by their number.
        model = Lasso(alpha / len(root), fit_intercept=False, tol=TOLERANCE, max_iter=100_000)
        slopes = model.fit(np.asfortranarray(root[:, others]), root[:, place]).coef_
    row = np.zeros(size)
    row[left[place]] = 1.0
    row[left[others]] = -slopes
    row[free] = -projected.explained @ row[left]
    variance = root[:, place] @ (root[:, place] - root[:, others] @ slopes)
    scaled: Array = row / variance
    return scaled


class Split(NamedTuple):
    """Sites that select columns, and those on which inference is made."""

    select: list[str]
    infer: list[str]


def split_sites(rows: Mapping[str, int], *, share: float = 0.5, seed: int = 0) -> Split:
    """Divide sites at random: fit with a penalty on some, then without one on the others, with what was selected.

    The second fit does not know of the selection, so its standard errors hold, for the coefficients of the model that
    was selected. They are larger than with all rows, and may depend on the seed: choose it beforehand.

    Parameters
    ----------
    rows
        The rows of each site.
    share
        About which part of the rows selects.
    seed
        Of the division.

    Returns
    -------
    Split
        Names of sites, at least one in each part.

    Examples
    --------
    >>> split_sites({"east": 100, "north": 120, "south": 80, "west": 90}, seed=1)
    Split(select=['east', 'north'], infer=['south', 'west'])
    """
    names = list(rows)
    counts = {name: _checks.integer(f"rows[{name!r}]", rows[name], at_least=0) for name in names}
    if len(names) < 2:
        raise ArgumentError("rows", f"must belong to at least two sites, got {len(names)}")
    if not 0.0 < _checks.real("share", share) < 1.0:
        raise ArgumentError("share", f"must be between 0 and 1, got {share:g}")
    order = np.random.default_rng(_checks.integer("seed", seed, at_least=0)).permutation(len(names))
    ends = np.cumsum([counts[names[j]] for j in order])
    # Where the part is nearest to what was requested, with at least one site on each side.
    count = 1 + int(np.argmin(np.abs(ends[:-1] - share * ends[-1])))
    chosen = {names[j] for j in order[:count]}
    return Split([name for name in names if name in chosen], [name for name in names if name not in chosen])


def selected(coefficients: Mapping[str, float], always: Sequence[str] = ()) -> list[str]:
    """Return the names of coefficients that are not zero, and those that are always part of the model.

    >>> selected({"Intercept": 0.0, "age": 0.5, "dose": 0.0}, always=["Intercept"])
    ['Intercept', 'age']
    """
    return [name for name, value in coefficients.items() if value != 0 or name in always]
