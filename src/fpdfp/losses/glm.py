"""Losses of rows with one linear form each: least squares, logistic regression and generalised linear models."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from fpdfp import _checks
from fpdfp._numbers import kullback_leibler
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.losses.base import Form, InformationSums
from fpdfp.losses.linear import DENSE_HESSIAN, LinearModel, gram, lower_triangle
from fpdfp.losses.rows import Rows

if TYPE_CHECKING:
    from fpdfp.families import Family

#: The Hessian of an earlier point serves where no row's curvature is off by more than this share of its own.
STALE = 0.05
#: The smallest eigenvalue of AᵀA is looked for if forming it takes no more operations than this.
GRAM_BUDGET = 10**10


class OneForm(LinearModel):
    """A mean over rows of w_j φ(a_jᵀx + o_j, y_j): what follows from φ and its derivatives."""

    def forms(self, x: Array, rows: slice = slice(None)) -> Array:
        """Return the linear predictors of rows, offsets included."""
        return self._shift(self._rows.X[rows] @ x, rows)

    def _shift(self, z: Array, rows: slice = slice(None)) -> Array:
        return z if self._rows.shifts is None else z + self._rows.shifts[rows]

    @abc.abstractmethod
    def _functions(self) -> tuple[Any, ...]: ...

    @abc.abstractmethod
    def _second(self, z: Array, y: Array) -> Array:
        """The second derivative of φ at each row."""

    def _curve(self, z: Array, y: Array, change: Array) -> Array:
        return self._second(z, y) * change

    def _kernel(self, name: str) -> Callable[..., None]:
        from fpdfp._kernels import glm

        value, slope, *given = self._functions()
        return functools.partial(getattr(glm, name), value if name == "values" else slope, *given)

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        return self._hessians_with(self._second, x, clients)

    def _hessians_with(self, second: Callable[[Array, Array], Array], x: Array, clients: IntArray) -> Array | None:
        """The Hessian of each client, with a function in place of the second derivative of φ."""

        def scale(own: slice) -> Array:
            found, weights = second(self.forms(x, own), self._rows.y[own]), self._rows.weights
            return found if weights is None else found * weights[own]

        return self._grams(clients, scale)

    def hessian(self, x: Array, weights: Array) -> Array | None:
        if self.n_features > DENSE_HESSIAN:
            return None
        hessian = self._weighted_gram(self._row_weights(weights) * self._second(self.forms(x), self._rows.y))
        hessian[np.diag_indices_from(hessian)] += float(weights.sum()) * self._ridge
        return hessian

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        X = self._rows.X
        scale = self._row_weights(weights) * self._second(self.forms(x), self._rows.y)
        product: Array = X.T @ (scale * (X @ direction)) + float(weights.sum()) * self._ridge * direction
        return product


class PooledRows:
    """Σ_j w_j φ(a_jᵀx, y_j) + ½ Σ_k r_k x_k², over the rows of all clients.

    A solver requests the value, the gradient and the Hessian at the same point in turn; each of them starts from the
    linear forms a_jᵀx, which are computed once. The Hessian may come from an earlier point (``STALE``): good enough
    for a search direction, and a weighted Gram matrix saved.
    """

    def __init__(self, losses: SingleForm, weights: Array) -> None:
        self._losses = losses
        self._X = losses._rows.X
        self._y = losses._rows.y
        self._weights = losses._row_weights(weights)
        self._ridge = float(weights.sum()) * losses._ridge
        self._at: Array | None = None
        self._forms: Any = None
        self._curvatures: Array | None = None
        self._hessian: Array | None = None

    def _linear_forms(self, x: Array) -> Array:
        if self._at is None or not np.array_equal(x, self._at):
            self._forms = self._X @ x
            self._at = x.copy()
        forms: Array = self._forms
        return forms

    def value(self, x: Array) -> float:
        """Return f(x)."""
        losses = self._losses._phi(self._linear_forms(x), self._y)
        return float((self._weights * losses).sum() + 0.5 * (self._ridge * x * x).sum())

    def gradient(self, x: Array) -> Array:
        """Return ∇f(x)."""
        slopes = self._weights * self._losses._slopes(self._linear_forms(x), self._y)
        gradient: Array = self._X.T @ slopes + self._ridge * x
        return gradient

    def hessian(self, x: Array) -> Array | None:
        """Return ∇²f of x or of a point near it; None where it is too large for a matrix."""
        if self._losses.n_features > DENSE_HESSIAN:
            return None
        curvatures = self._losses._second(self._linear_forms(x), self._y)
        if self._hessian is None or not self._is_close(curvatures):
            self._hessian = self._losses._weighted_gram(self._weights * curvatures)
            self._hessian[np.diag_indices_from(self._hessian)] += self._ridge
            self._curvatures = curvatures
        return self._hessian

    def _is_close(self, curvatures: Array) -> bool:
        assert self._curvatures is not None
        return bool((np.abs(curvatures - self._curvatures) <= STALE * self._curvatures).all())

    def hessian_product(self, x: Array, direction: Array) -> Array:
        """Return ∇²f(x) times a direction."""
        scale = self._weights * self._losses._second(self._linear_forms(x), self._y)
        product: Array = self._X.T @ (scale * (self._X @ direction)) + self._ridge * direction
        return product


class SingleForm(OneForm):
    """Base class of logistic and least-squares losses over a matrix; see there."""

    #: Which φ the kernels take.
    kind: ClassVar[int]
    #: The family of outcomes whose likelihood it is.
    outcome_family: ClassVar[str]

    def _functions(self) -> tuple[Any, ...]:
        from fpdfp._kernels import glm

        name = ("logistic", "squared")[self.kind]
        value, slope = getattr(glm, name), getattr(glm, f"{name}_slope")
        return value.address, slope.address, 0.0, 0.0, self._rows.weights, self._rows.shifts

    def sums_at(self, x: Array, clients: IntArray, *, robust: bool) -> InformationSums | None:
        return self._as_glm.sums_at(x, clients, robust=robust)

    def jeffreys_at(self, x: Array, clients: IntArray, inverse: Array) -> Array | None:
        return self._as_glm.jeffreys_at(x, clients, inverse)

    def jeffreys_weights(self, x: Array, client: int, inverse: Array) -> Array | None:
        """Return what multiplies each row of a client in :meth:`jeffreys_at`; None for losses without it."""
        return self._as_glm.jeffreys_weights(x, client, inverse)

    def start_model(self, clients: IntArray, *, level: bool = False) -> tuple[Array, Array] | None:
        return self._as_glm.start_model(clients, level=level)

    @functools.cached_property
    def _as_glm(self) -> GLM:
        """The same losses as a generalised linear model."""
        return GLM.of_rows(self._rows._replace(y=self._outcomes()), self.outcome_family, self.l2, self.feature_names)

    def _outcomes(self) -> Array:
        """The outcomes of rows as a family has them."""
        return self._rows.y

    def pooled(self, weights: Array) -> PooledRows | None:
        # The products of single precision are too coarse for what is built on them; the kernels sum in double.
        return PooledRows(self, weights) if self.dtype == np.float64 else None

    def _phi(self, z: Array, y: Array) -> Array:
        """φ at each row."""
        raise NotImplementedError


class LeastSquares(SingleForm):
    r"""Squared losses over the rows of a matrix, one for each client.

    .. math:: f_i(x) = \frac{1}{2 n_i} \|A_i x - b_i\|^2 + \frac{1}{2} \sum_k l_{2,k} x_k^2

    where A_i and b_i are the rows that client i holds. For operators see :class:`OperatorLeastSquares`.

    Parameters
    ----------
    X
        The rows of all clients: a dense matrix or a SciPy sparse one.
    y
        Their targets.
    clients
        Which client holds each row: any labels, numbered in sorted order. None means one client.
    l2
        The weight of the ridge: a number, or one for each feature (0 for an intercept, for instance).
    n_clients
        If given, ``clients`` must be integers below it, and each must hold a row.
    feature_names
        The names of the columns; by default the names in a table. Sites of one federation must agree on them.
    dtype
        float32 or float64: the precision of the rows, and with them of x, gradients and messages. By default the
        precision of X. Sums that must not lose digits, objectives and certificates are float64 regardless.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(2 * np.eye(2), [1.0, 1.0], clients=[0, 1])
    >>> losses.gradients(np.zeros(2), np.array([0, 1]))
    array([[-2.,  0.],
           [ 0., -2.]])
    >>> losses.lipschitz()
    array([4., 4.])
    """

    kind = 1  # SQUARED of the kernels
    outcome_family = "gaussian"
    curvature = 1.0

    @property
    def form(self) -> Form:
        return "quadratic"

    def strong_convexity(self, weights: Array) -> float:
        ridge = super().strong_convexity(weights)
        rows, columns = self._rows.X.shape
        if rows * columns**2 > GRAM_BUDGET:
            return ridge
        hessian = self.hessian(np.zeros(self.shape, dtype=self.dtype), weights)
        if hessian is None:
            return ridge
        spectrum = np.linalg.eigvalsh(hessian.astype(np.float64))
        # What forming the matrix (in float64, over all rows) and LAPACK can have added, with room to spare.
        rounding = 16 * (rows + columns) * float(np.finfo(np.float64).eps) * float(np.trace(hessian))
        least = float(spectrum[0])
        return max(ridge, least - rounding) if least > 4 * rounding else ridge

    def _phi(self, z: Array, y: Array) -> Array:
        losses: Array = 0.5 * (z - y) ** 2
        return losses

    def _slopes(self, z: Array, y: Array) -> Array:
        return z - y

    def _second(self, z: Array, y: Array) -> Array:
        return np.ones_like(z)

    def _young_gaps(self, z: Array, y: Array, change: Array | None, scale: float) -> Array:
        moved = (scale - 1.0) * (z - y) - (0.0 if change is None else scale * change)
        gaps: Array = 0.5 * np.square(moved)
        return gaps


class Logistic(SingleForm):
    r"""Logistic losses with a ridge, one for each client.

    .. math:: f_i(x) = \frac{1}{n_i} \sum_{j} \log(1 + \exp(-y_j a_j^T x)) + \frac{1}{2} \sum_k l_{2,k} x_k^2

    over the rows j that client i holds.

    Parameters
    ----------
    X, clients, l2, n_clients, feature_names, dtype
        As in :class:`LeastSquares`.
    y
        Their labels, in {−1, 1} or in {0, 1}.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.Logistic(np.eye(4), [0, 1, 1, 0], clients=["b", "a", "a", "b"], l2=0.1)
    >>> losses
    Logistic(dense 4 × 4, 2 clients, l2=0.1)
    >>> losses.values(np.zeros(4), np.array([0, 1]))
    array([0.69314718, 0.69314718])
    """

    kind = 0  # LOGISTIC of the kernels
    outcome_family = "binomial"
    curvature = 0.25
    steepest = 1.0

    @staticmethod
    def _targets(y: Any) -> Any:
        labels = _checks.float_array("y", y)
        found = np.unique(labels)
        if not (np.isin(found, (-1.0, 1.0)).all() or np.isin(found, (0.0, 1.0)).all()):
            shown = ", ".join(f"{value:g}" for value in found[:6]) + (", …" if found.size > 6 else "")
            raise ArgumentError("y", f"must hold labels in {{-1, 1}} or in {{0, 1}}, got {shown}")
        if found.size < 2:
            raise ArgumentError("y", f"must hold both classes, but every label is {found[0]:g}")
        return np.where(labels > 0, 1.0, -1.0)

    def _outcomes(self) -> Array:
        outcomes: Array = (self._rows.y + 1.0) / 2.0
        return outcomes

    def _phi(self, z: Array, y: Array) -> Array:
        from scipy.special import log_expit

        losses: Array = -log_expit(y * z)
        return losses

    def _slopes(self, z: Array, y: Array) -> Array:
        from scipy.special import expit

        slopes: Array = -y * expit(-y * z)
        return slopes

    def _second(self, z: Array, y: Array) -> Array:
        from scipy.special import expit

        probability = expit(z)
        curvature: Array = probability * (1.0 - probability)
        return curvature

    def _young_gaps(self, z: Array, y: Array, change: Array | None, scale: float) -> Array:
        # θ = −y p with p the probability of the other class: φ + φ* − zθ is the divergence of the new p from p.
        from scipy.special import expit

        probability, opposite = expit(-y * z), expit(y * z)
        moved = (scale - 1.0) * probability + (0.0 if change is None else scale * y * change)
        return kullback_leibler(moved, probability) + kullback_leibler(-moved, opposite)


class GLM(OneForm):
    r"""Losses of a generalised linear model with a ridge, one for each client.

    .. math:: f_i(x) = \frac{1}{n_i} \sum_{j} w_j \varphi(a_j^T x + o_j, y_j) + \frac{1}{2} \sum_k l_{2,k} x_k^2

    over the rows j that client i holds, φ half the unit deviance of a family. Most families have no Lipschitz constant:
    :class:`fpdfp.ProximalNewton` needs none.

    Parameters
    ----------
    X, clients, l2, n_clients, feature_names, dtype
        As in :class:`LeastSquares`.
    y
        Their outcomes.
    family
        One of :mod:`fpdfp.families`, or its name.
    link
        The name of the link, by default the usual one of the family.
    weights
        The weight of each row, 1 by default.
    weight_scale
        What weights are multiplied with in the losses, and not in deviances and likelihoods: so that their mean is 1.
    offset
        What is added to the linear form of each row, such as the logarithm of an exposure.

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
        clusters: Any = None,
        feature_names: Sequence[str] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        from fpdfp import families

        self.distribution: Family = families.make(family, link)
        self._gather(X, y, clients, l2, n_clients, feature_names, dtype, weights, weight_scale, offset)
        self.distribution.check(self._rows.y)
        if clusters is not None:
            together, count = _checks.labels("clusters", clusters)[1], len(self._rows.y)
            if together.shape != (count,):
                raise ArgumentError("clusters", f"must have one label for each of the {count} rows")
            owner = np.zeros(count, dtype=np.int64) if clients is None else _checks.labels("clients", clients)[1]
            self._rows = self._rows._replace(clusters=together[np.argsort(owner, kind="stable")])
        most = 1.0 if self._rows.weights is None else float(self._rows.weights.max())
        self.curvature = self.distribution.curvature * most

    @classmethod
    def of_rows(cls, rows: Rows, family: Any, l2: Any, names: tuple[str, ...] | None) -> GLM:
        """Return the losses of rows that were checked before."""
        from fpdfp import families

        made = cls.__new__(cls)
        made.distribution = families.make(family)
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

    def forms(self, x: Array, rows: slice = slice(None)) -> Array:
        return super().forms(x, rows).astype(np.float64, copy=False)

    def start_model(self, clients: IntArray, *, level: bool = False) -> tuple[Array, Array]:
        """Return for each client the quadratic model that a fit starts from: its slope at zero, and its matrix.

        Each row's loss is replaced by its second-order model with the expected weight, at the linear predictor that the
        family starts from, as iteratively reweighted least squares do. The minimum of these may be outside the domain
        of a link. With ``level`` the model is the squared distance from the linear predictor of the client's mean
        outcome, which an intercept reaches.
        """
        rows, functions, y = self._rows, self.distribution.functions, self._rows.y.astype(np.float64)
        given, z = self.weights_of_rows, np.zeros(len(y))
        for own in map(self._place, clients):  # a client starts from its own rows, anyone who else there is
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

    def _sums_of(self, x: Array, own: slice, robust: bool) -> tuple[Array, ...]:
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
        meat, clusters = np.zeros(0), self._rows.clusters
        if robust and clusters is None:
            meat = lower_triangle(gram(X, pull**2))
        elif robust and clusters is not None:
            scores = _add_clusters(X, pull, clusters[own])
            meat = lower_triangle(scores.T @ scores)
        return numbers, np.asarray(X.T @ pull, dtype=np.float64), lower_triangle(gram(X, bend)), meat

    def cluster_sizes(self, client: int) -> IntArray:
        """Return how many rows each cluster of a client has: ones without clusters."""
        if self._rows.clusters is None:
            return np.ones(int(self.sizes[client]), dtype=np.int64)
        sizes: IntArray = np.unique(self._rows.clusters[self._place(client)], return_counts=True)[1]
        return sizes

    def overdispersion_at(self, x: Array, clients: IntArray, theta: float) -> Array | None:
        if self.distribution.name not in ("poisson", "negative binomial") or self.distribution.link != "log":
            return None
        from fpdfp.families.counts import theta_sums

        weights = self.weights_of_rows
        return np.stack([
            theta_sums(self._rows.y[own].astype(np.float64), np.exp(self.forms(x, own)), weights[own], theta)
            for own in map(self._place, clients)
        ])  # fmt: skip

    def jeffreys_at(self, x: Array, clients: IntArray, inverse: Array) -> Array | None:
        found = []
        for client in map(int, clients):
            weights = self.jeffreys_weights(x, client, inverse)
            if weights is None:
                return None
            found.append(np.asarray(self._rows_of(client).T @ weights, dtype=np.float64))
        return np.stack(found)

    def jeffreys_weights(self, x: Array, client: int, inverse: Array) -> Array | None:
        """Return what multiplies each row of a client in :meth:`jeffreys_at`: ½ w ∂(μ'²/V)/∂z aᵀ V a."""
        own, X = self._place(client), self._rows_of(client)
        bend = self.distribution.weight_slope(self.forms(x, own))
        if bend is None:
            return None
        leverages = np.asarray((X @ inverse) * (X.toarray() if hasattr(X, "toarray") else X)).sum(axis=1)
        weights: Array = 0.5 * self.weights_of_rows[own] * bend * leverages
        return weights

    def spread_at(self, x: Array, clients: IntArray) -> Array | None:
        from fpdfp.families import Quantile

        family = self.distribution
        if not isinstance(family, Quantile):
            return None
        _, width = family.parameters
        weights, found = self.weights_of_rows, []
        for own in map(self._place, clients):
            kernel = width * self._second(self.forms(x, own), self._rows.y[own].astype(np.float64))
            found.append([weights[own].sum(), (weights[own] * kernel).sum()])
        return np.array(found)

    def _functions(self) -> tuple[Any, ...]:
        functions, rows = self.distribution.functions, self._rows
        return (
            functions.value.address, functions.slope.address, *self.distribution.parameters, rows.weights, rows.shifts
        )  # fmt: skip

    def informations(self, x: Array, clients: IntArray) -> Array | None:
        """Return the Hessian at x of each of the given clients, the expected one where it could be negative."""
        return self._hessians_with(self._second if self.is_convex else self._expected, x, clients)

    @property
    def has_duals(self) -> bool:
        zero = np.zeros(0)
        return self.is_convex and self.distribution.young_gaps(zero, zero, zero, 1.0) is not None

    def _bend(self, z: Array, y: Array) -> float:
        return min(self.curvature, 2.0 * float(self._second(z, y).sum()))  # the largest would be one row's

    def _second(self, z: Array, y: Array) -> Array:
        return self.distribution.functions.second(z, y, self.distribution.parameters)

    def _expected(self, z: Array, y: Array) -> Array:
        """The expected second derivative, which is positive."""
        return self.distribution.functions.weight(z, y, self.distribution.parameters)

    def _slopes(self, z: Array, y: Array) -> Array:
        return self.distribution.functions.slope(z, y, self.distribution.parameters)

    def _young_gaps(self, z: Array, y: Array, change: Array | None, scale: float) -> Array:
        gaps = self.distribution.young_gaps(z, y, np.zeros_like(z) if change is None else change, scale)
        assert gaps is not None
        return gaps


def _add_clusters(X: Any, pull: Array, clusters: IntArray) -> Array:
    """Return the scores of rows, added up over those that belong together, a row for each cluster."""
    from scipy.sparse import csr_array

    number = np.unique(clusters, return_inverse=True)[1]
    members = csr_array((pull, (number, np.arange(len(pull)))), shape=(int(number.max()) + 1, len(pull)))
    found = members @ X
    dense: Array = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
    return dense


def _level(y: Array, weights: Array) -> Array:
    """Return the mean outcome, once for each row."""
    total = float(weights.sum())
    return np.full(len(y), float(weights @ y) / total if total > 0 else float(y.mean()))
