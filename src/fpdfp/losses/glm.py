"""Losses of generalised linear models."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.losses import _rows
from fpdfp.losses._linear import DENSE_HESSIAN, LinearModel, _names_of
from fpdfp.losses.base import Form, InformationSums

if TYPE_CHECKING:
    from fpdfp.families import Family


class GLM(LinearModel):
    r"""Losses of a generalised linear model with a ridge, one for each client.

    .. math:: f_i(x) = \frac{1}{n_i} \sum_{j} w_j \varphi(a_j^T x + o_j, y_j) + \frac{1}{2} \sum_k l_{2,k} x_k^2

    over the rows j that client i holds, φ half the unit deviance of a family. Most families have no Lipschitz constant:
    :class:`fpdfp.ProximalNewton` needs none.

    Parameters
    ----------
    X
        The rows of all clients: a dense matrix or a SciPy sparse one.
    y
        Their outcomes.
    clients
        Which client holds each row: any labels, numbered in sorted order. None means one client.
    family
        One of :mod:`fpdfp.families`, or its name.
    link
        The name of the link, by default the usual one of the family.
    l2
        The weight of the ridge: a number, or one for each feature (0 for an intercept, for instance).
    n_clients
        If given, ``clients`` must be integers below it, and each must hold a row.
    weights
        The weight of each row, 1 by default.
    weight_scale
        What weights are multiplied with in the losses, and not in deviances and likelihoods: so that their mean is 1.
    offset
        What is added to the linear form of each row, such as the logarithm of an exposure.
    feature_names
        The names of the columns; by default those of a table. Sites of one federation must agree on them.
    dtype
        float32 or float64: the precision of the rows, and with them of x, gradients and messages. By default that of X.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> X, counts = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), [1.0, 3.0, 6.0]
    >>> losses = fpdfp.losses.GLM(X, counts, family="poisson")
    >>> losses
    GLM(Poisson(link='log'), dense 3 × 2, 1 clients, l2=0)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=50, tol=1e-10).x.round(4)
    array([0.1502, 0.8341])
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        clients: Any = None,
        family: Any = "gaussian",
        link: str | None = None,
        l2: Any = 0.0,
        n_clients: int | None = None,
        *,
        weights: Any = None,
        weight_scale: float = 1.0,
        offset: Any = None,
        feature_names: Sequence[str] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        from fpdfp import families

        self.distribution: Family = families.make(family, link)
        self.weight_scale = _checks.real("weight_scale", weight_scale, positive=True)
        rows = _rows.collect(X, y, clients, n_clients, dtype, weights, offset)
        if rows.weights is not None:
            rows = rows._replace(weights=self.weight_scale * rows.weights)
        self.distribution.check(rows.y)
        self._hold(rows, l2, _names_of(X, feature_names))
        self.curvature = self.distribution.curvature * float(1.0 if rows.weights is None else rows.weights.max())

    @classmethod
    def of_rows(cls, rows: _rows.Rows, family: Any, l2: Any, names: tuple[str, ...] | None) -> GLM:
        """Return the losses of rows that were checked before."""
        from fpdfp import families

        made = cls.__new__(cls)
        made.distribution, made.weight_scale = families.make(family), 1.0
        made._hold(rows, l2, names)
        made.curvature = made.distribution.curvature
        return made

    def __repr__(self) -> str:
        return super().__repr__().replace("GLM(", f"GLM({self.distribution!r}, ", 1)

    @property
    def family(self) -> str:
        return f"GLM({self.distribution!r})"

    @property
    def form(self) -> Form:
        return "quadratic" if self.distribution.curvature == 1.0 and self.distribution.name == "gaussian" else "linear"

    @property
    def is_convex(self) -> bool:
        return self.distribution.is_convex

    @property
    def least_convexity(self) -> float:
        return super().least_convexity if self.is_convex else 0.0

    @property
    def weights_of_rows(self) -> Array:
        """The weight of each row, as it was given."""
        weights = self._rows.weights
        return np.ones(len(self._rows.y)) if weights is None else weights / self.weight_scale

    def forms(self, x: Array, rows: slice = slice(None)) -> Array:
        """Return the linear predictors of rows, offsets included."""
        z: Array = np.asarray(self._rows.X[rows] @ x, dtype=np.float64)
        return z if self._rows.shifts is None else z + self._rows.shifts[rows]

    def start_model(self, clients: IntArray, *, level: bool = False) -> tuple[Array, Array]:
        """Return for each client the quadratic model that a fit starts from: its slope at zero, and its matrix.

        Each row's loss is replaced by its second-order model with the expected weight, at the linear predictor that the
        family starts from, as iteratively reweighted least squares do. The minimum of these may be outside the domain
        of a link. With ``level`` the model is the squared distance from the linear predictor of the client's mean
        outcome, which an intercept reaches.
        """
        rows, functions, y = self._rows, self.distribution.functions, self._rows.y.astype(np.float64)
        given, z = self.weights_of_rows, np.zeros(len(y))
        for own in map(self._place, clients):  # a client starts from its own rows, whoever else there is
            z[own] = self.distribution.start(_level(y[own], given[own]) if level else y[own], given[own])
        weights = np.ones(len(y)) if rows.weights is None else rows.weights
        away = z if rows.shifts is None else z - rows.shifts
        bend = weights if level else functions.weight(z, y, self.distribution.parameters) * weights
        pull = -bend * away
        if not level:
            pull += functions.slope(z, y, self.distribution.parameters) * weights
        slopes = np.stack([(rows.X[own].T @ pull[own]) / (own.stop - own.start) for own in map(self._place, clients)])
        matrices = self._grams(clients, lambda own: bend[own])
        assert matrices is not None
        return slopes, matrices

    def sums_at(self, x: Array, clients: IntArray, *, robust: bool) -> InformationSums | None:
        made = [self._sums_of(x, self._place(client), robust) for client in clients]
        return InformationSums(*map(np.stack, zip(*made, strict=True)))

    def _sums_of(self, x: Array, own: slice, robust: bool) -> tuple[Array, Array, Array, Array]:
        family, y, weights = self.distribution, self._rows.y[own].astype(np.float64), self.weights_of_rows[own]
        X, z = self._rows.X[own], self.forms(x, own)
        pull = -weights * family.functions.slope(z, y, family.parameters)
        bend = weights * family.functions.weight(z, y, family.parameters)
        mu = family.mean(z)
        variance = family.variance(mu)
        # Rows that are fitted to the last digit have no variance, and nothing left.
        left = np.divide((y - mu) ** 2, variance, out=np.zeros(len(y)), where=variance > 0)
        numbers = np.array([
            np.count_nonzero(weights), weights.sum(), np.nan_to_num(family.saturated(y, weights)),
            2.0 * (weights * family.functions.value(z, y, family.parameters)).sum(),
            (weights * left).sum(),
        ])  # fmt: skip
        meat = _triangle(X, pull**2) if robust else np.zeros(0)
        return numbers, np.asarray(X.T @ pull, dtype=np.float64), _triangle(X, bend), meat

    def overdispersion_at(self, x: Array, clients: IntArray, theta: float) -> Array | None:
        if self.distribution.name not in ("poisson", "negative binomial") or self.distribution.link != "log":
            return None
        from fpdfp.families.negative_binomial import theta_sums

        weights = self.weights_of_rows
        return np.stack([
            theta_sums(self._rows.y[own].astype(np.float64), np.exp(self.forms(x, own)), weights[own], theta)
            for own in map(self._place, clients)
        ])  # fmt: skip

    def _place(self, client: int) -> slice:
        return slice(int(self._rows.offsets[client]), int(self._rows.offsets[client + 1]))

    def _kernel(self, name: str) -> Callable[..., None]:
        from fpdfp._kernels import glm

        functions, rows = self.distribution.functions, self._rows
        function = functions.value if name == "values" else functions.slope
        return functools.partial(
            getattr(glm, name), function.address, *self.distribution.parameters, rows.weights, rows.shifts
        )

    def _functions(self) -> tuple[Any, ...]:
        functions, rows = self.distribution.functions, self._rows
        return (
            functions.value.address, functions.slope.address, *self.distribution.parameters, rows.weights, rows.shifts
        )  # fmt: skip

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        return self._grams(clients, lambda own: self._curvature_at(x, own, self.distribution.functions.second))

    def informations(self, x: Array, clients: IntArray) -> Array | None:
        """Return the Hessian at x of each of the given clients, the expected one where it could be negative."""
        functions = self.distribution.functions
        curvature = functions.second if self.is_convex else functions.weight
        return self._grams(clients, lambda own: self._curvature_at(x, own, curvature))

    def _curvature_at(self, x: Array, rows: slice, function: Any) -> Array:
        y, weights = self._rows.y[rows], self._rows.weights
        found: Array = function(self.forms(x, rows), y, self.distribution.parameters)
        return found if weights is None else found * weights[rows]

    def hessian(self, x: Array, weights: Array) -> Array | None:
        if self.n_features > DENSE_HESSIAN:
            return None
        z = self.forms(x)
        hessian = self._weighted_gram(self._row_weights(weights) * self._second(z, self._rows.y))
        hessian[np.diag_indices_from(hessian)] += float(weights.sum()) * self._ridge
        return hessian

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        X = self._rows.X
        scale = self._row_weights(weights) * self._second(self.forms(x), self._rows.y)
        product: Array = X.T @ (scale * (X @ direction)) + float(weights.sum()) * self._ridge * direction
        return product

    @property
    def has_duals(self) -> bool:
        zero = np.zeros(0)
        return self.is_convex and self.distribution.young_gaps(zero, zero, zero, 1.0) is not None

    def _row_weights(self, weights: Array) -> Array:
        shares = super()._row_weights(weights)
        return shares if self._rows.weights is None else shares * self._rows.weights

    def _shift(self, z: Array) -> Array:
        return z if self._rows.shifts is None else z + self._rows.shifts

    def _bend(self, z: Array, y: Array) -> float:
        return min(self.curvature, 2.0 * float(self._second(z, y).max(initial=0.0)))

    def _second(self, z: Array, y: Array) -> Array:
        return self.distribution.functions.second(z, y, self.distribution.parameters)

    def _slopes(self, z: Array, y: Array) -> Array:
        return self.distribution.functions.slope(z, y, self.distribution.parameters)

    def _curve(self, z: Array, y: Array, change: Array) -> Array:
        return self._second(z, y) * change

    def _young_gaps(self, z: Array, y: Array, change: Array | None, scale: float) -> Array:
        gaps = self.distribution.young_gaps(z, y, np.zeros_like(z) if change is None else change, scale)
        assert gaps is not None
        return gaps


def _triangle(X: Any, scale: Array) -> Array:
    """Return the lower triangle of Σ_j s_j a_j a_jᵀ."""
    product = X.T @ (X.multiply(scale[:, None]).tocsr() if hasattr(X, "tocsr") else X * scale[:, None])
    dense = product.toarray() if hasattr(product, "toarray") else product
    triangle: Array = dense[np.tril_indices(len(dense))].astype(np.float64)
    return triangle


def _level(y: Array, weights: Array) -> Array:
    """Return the mean outcome, once for each row."""
    total = float(weights.sum())
    return np.full(len(y), float(weights @ y) / total if total > 0 else float(y.mean()))
