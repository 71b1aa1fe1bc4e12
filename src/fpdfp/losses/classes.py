"""Losses of rows with classes: softmax, multinomial with a reference class, and ordered classes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike

from fpdfp import _checks
from fpdfp._numbers import kullback_leibler
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.losses.base import Losses
from fpdfp.losses.linear import DENSE_HESSIAN, LinearModel, ManySums, evaluate_classes, gram, lower_triangle
from fpdfp.losses.rows import count_classes
from fpdfp.rng import Draws

#: Of two linear predictors: a number for each row.
Pairs = Callable[[int, int], Array]
#: The largest loss of a row in the statistic of Pearson: its exponential, and a sum of those, are finite.
LARGEST = 600.0
Link = Literal["logit", "probit"]


def class_sums(
    weights: Array, lost: Array, slopes: Array, bends: Pairs, robust: bool, collect: Callable[[Array], Array],
    collect_pairs: Callable[[Pairs], Array],
) -> tuple[Array, ...]:  # fmt: skip
    """Return the fields of :class:`InformationSums` of one client, given losses of rows and their derivatives.

    ``collect`` and ``collect_pairs`` take derivatives in the linear predictors to derivatives in x.
    """
    pull = -weights[:, None] * slopes
    # A row's class has the chance exp(−loss): its squared distance from what was expected, by its variance.
    pearson = float((weights * np.expm1(np.minimum(lost, LARGEST))).sum())
    numbers = np.array([np.count_nonzero(weights), weights.sum(), 0.0, 2.0 * (weights * lost).sum(), pearson])
    hessian = collect_pairs(lambda a, b: weights * bends(a, b))
    meat = lower_triangle(collect_pairs(lambda a, b: pull[:, a] * pull[:, b])) if robust else np.zeros(0)
    return numbers, collect(pull), lower_triangle(hessian), meat


def class_blocks(count: int, features: int, block: Callable[[int, int], Array]) -> Array:
    """Return a symmetric matrix of blocks, one for each pair of classes."""
    blocks = np.empty((count, features, count, features))
    for a in range(count):
        for b in range(a + 1):
            blocks[a, :, b] = block(a, b)
            blocks[b, :, a] = blocks[a, :, b].T
    return blocks.reshape(count * features, count * features)


class Softmax(LinearModel):
    r"""Multinomial logistic losses with a ridge, one for each client; x has a row for each class.

    .. math:: f_i(x) = \frac{1}{n_i} \sum_j \Big( \log \sum_k \exp(a_j^T x_k) - a_j^T x_{y_j} \Big)
              + \frac{1}{2} \sum_{k,m} l_{2,m} x_{km}^2

    over the rows j that client i holds. Its Hessian is at most :math:`\frac{1}{2} I \otimes A_i^T A_i / n_i` plus the
    ridge, and :meth:`curvatures` are the blocks of that, the same for each class.

    Parameters
    ----------
    X, clients, l2, n_clients, feature_names, dtype
        As in :class:`LeastSquares`.
    y
        Their classes, integers from 0.
    weights
        The weight of each row, 1 by default. Weights exclude mini-batches.
    n_classes
        The number of classes; by default as many as ``y`` has. Needed where a class has no rows.

    References
    ----------
    D. Böhning, "Multinomial logistic regression algorithm", Annals of the Institute of Statistical Mathematics 44
    (1992).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.Softmax(np.eye(3), [0, 2, 1], l2=0.1)
    >>> losses
    Softmax(dense 3 × 3, 3 classes, 1 clients, l2=0.1)
    >>> losses.values(np.zeros((3, 3)), np.array([0]))  # log 3
    array([1.09861229])
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.01))
    >>> fpdfp.solve(problem, rounds=30).x.argmax(axis=0)
    array([0, 2, 1])
    """

    curvature = 0.5
    steepest = 1.0

    def __init__(
        self,
        X: Any,
        y: Any,
        clients: Any = None,
        l2: Any = 0.0,
        n_clients: int | None = None,
        n_classes: int | None = None,
        *,
        weights: Any = None,
        feature_names: Sequence[str] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        self._gather(X, y, clients, l2, n_clients, feature_names, dtype, weights)
        if self._rows.weights is not None:
            most = float(self._rows.weights.max())
            self.curvature, self.steepest = 0.5 * most, most
        self.n_classes = count_classes(self._rows.y, n_classes)
        self.shape = (self.n_classes, self.n_features)

    @property
    def _size(self) -> str:
        return f"{super()._size}, {self.n_classes} classes"

    @property
    def supports_batches(self) -> bool:
        return self._rows.weights is None

    def _kernel(self, name: str) -> Callable[..., None]:
        if self._rows.weights is not None:
            return self._weighted_values if name == "values" else self._weighted_gradients
        from fpdfp._kernels import softmax

        kernel: Callable[..., None] = getattr(softmax, name)
        return kernel

    def _weighted_values(self, *given: Any) -> None:
        """Write the values of clients whose rows have weights; the last arguments are the kernel's."""
        clients, x, ridge, out = given[-4:]
        for place, own in enumerate(map(self._place, clients)):
            losses = _class_losses(self.class_forms(x, own), self._rows.y[own])
            out[place] = float(self._masses_of(own) @ losses) / len(losses) + ridge

    def _weighted_gradients(self, *given: Any) -> None:
        """The same for gradients."""
        clients, _, x, l2, out = given[-5:]
        for place, own in enumerate(map(self._place, clients)):
            point = x[0] if len(x) == 1 else x[place]
            slopes = self._slopes(self.class_forms(point, own), self._rows.y[own])
            slopes = slopes * (self._masses_of(own) / len(slopes))[:, None]
            out[place] = np.asarray(self._rows.X[own].T @ slopes).T + l2 * point

    def _masses_of(self, own: slice) -> Array:
        """The weights of the rows of a client."""
        return np.ones(own.stop - own.start) if self._rows.weights is None else self._rows.weights[own]

    def evaluate_many(self, points: Array, held: IntArray, labels: IntArray, clients: IntArray) -> ManySums:
        self.check(np.ascontiguousarray(points[0], dtype=self.dtype), clients, shared=True)
        return evaluate_classes(self, points, held, labels, clients, None)

    def class_forms(self, x: Array, rows: slice = slice(None)) -> Array:
        """Return what the softmax of is the chances of classes, a column for each, of some rows."""
        forms: Array = np.asarray(self._rows.X[rows] @ x.T, dtype=np.float64)
        return forms

    @property
    def ridge_of_x(self) -> Array:
        return np.broadcast_to(self._ridge, self.shape)

    def informations(self, x: Array, clients: IntArray) -> Array | None:
        """Return the Hessian of each client, with the entries of x in the order of its rows."""
        if x.size > DENSE_HESSIAN:
            return None
        return np.stack([self._hessian_of(x, self._place(client)) for client in clients])

    def _hessian_of(self, x: Array, own: slice) -> Array:
        X, scale = self._rows.X[own], self._masses_of(own) / (own.stop - own.start)
        chances = _softmax(self.class_forms(x, own))
        found = class_blocks(self.n_classes, self.n_features, lambda a, b: gram(X, scale * _bend(chances, a, b)))
        found[np.diag_indices(x.size)] += self.ridge_of_x.ravel()
        return found

    def hessian(self, x: Array, weights: Array) -> Array | None:
        classes, d = self.shape
        if classes * d > DENSE_HESSIAN:
            return None
        probabilities, scale = self._probabilities(x), self._row_weights(weights)
        hessian = class_blocks(classes, d, lambda k, m: self._weighted_gram(scale * _bend(probabilities, k, m)))
        hessian[np.diag_indices_from(hessian)] += np.tile(float(weights.sum()) * self._ridge, classes)
        return hessian

    def _sums_of(self, x: Array, own: slice, robust: bool) -> tuple[Array, ...]:
        X, y, z = self._rows.X[own], self._rows.y[own], self.class_forms(x, own)
        chances = _softmax(z)
        return class_sums(
            self._masses_of(own), _class_losses(z, y), self._slopes(z, y), lambda a, b: _bend(chances, a, b), robust,
            lambda slopes: np.asarray(X.T @ slopes).T.ravel(),
            lambda bends: class_blocks(self.n_classes, self.n_features, lambda a, b: gram(X, bends(a, b))),
        )  # fmt: skip

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        X, probabilities = self._rows.X, self._probabilities(x)
        change = _covariance(probabilities, X @ direction.T)
        product: Array = (X.T @ (self._row_weights(weights)[:, None] * change)).T
        return product + float(weights.sum()) * self._ridge * direction

    def _probabilities(self, x: Array) -> Array:
        """The probability of each class at each row."""
        return _softmax(self._rows.X @ x.T.astype(np.float64))

    def _slopes(self, z: Array, y: Array) -> Array:
        slopes = _softmax(z)
        slopes[np.arange(len(z)), y.astype(np.int64)] -= 1.0
        return slopes

    def _curve(self, z: Array, y: Array, change: Array) -> Array:
        return _covariance(_softmax(z), change)

    def _young_gaps(self, z: Array, y: Array, change: Array | None, scale: float) -> Array:
        # θ is what the probabilities p have more than the class of the row: φ + φ* − ⟨z, θ⟩ is the divergence from p.
        moved = (scale - 1.0) * self._slopes(z, y) - (0.0 if change is None else scale * change)
        # Probabilities that rounding keeps from adding up to 1 are scaled, which moves ⟨z, θ⟩ and the divergence.
        scaled = np.abs(moved.sum(axis=1)) * (1.0 + np.ptp(z, axis=1))
        gaps: Array = kullback_leibler(moved, _softmax(z)).sum(axis=1) + scaled
        return gaps


def _softmax(z: Array) -> Array:
    """The probability of each class, given the linear forms of rows."""
    from scipy.special import softmax

    probabilities: Array = softmax(z, axis=1)
    return probabilities


def _class_losses(z: Array, y: Array) -> Array:
    """The loss of each row: minus the logarithm of the probability of its class."""
    from scipy.special import logsumexp

    losses: Array = logsumexp(z, axis=1) - z[np.arange(len(y)), y.astype(np.int64)]
    return losses


def _bend(chances: Array, a: int, b: int) -> Array:
    """The second derivative of each row's loss in the linear forms of two classes."""
    bend: Array = chances[:, a] * (float(a == b) - chances[:, b])
    return bend


def _covariance(probabilities: Array, change: Array) -> Array:
    """(diag(p) − ppᵀ) times a change of the linear forms, for each row.

    What all classes have in common drops out first: it may be very large, and rows of the product add up to 0.
    """
    likeliest = probabilities.argmax(axis=1)[:, None]
    apart = change - np.take_along_axis(change, likeliest, axis=1)
    product: Array = probabilities * (apart - (probabilities * apart).sum(axis=1, keepdims=True))
    np.put_along_axis(product, likeliest, 0.0, axis=1)
    np.put_along_axis(product, likeliest, -product.sum(axis=1, keepdims=True), axis=1)
    return product


class ClassModel(LinearModel):
    """A mean over rows of a loss of the row's class and its linear predictors η_1, …, η_m, which are linear in x.

    x is a vector. A subclass describes what the predictors are, collects derivatives in them into derivatives in x, and
    has the loss of a row.
    """

    #: That losses are never negative says little of how far a point is from the minimum.
    lower_bound = -np.inf
    #: Entries of x are not features: runs cannot be restricted to some of them, and no blocks bound the Hessian.
    by_forms = False

    def _begin(
        self, X: Any, y: Any, clients: Any, l2: Any, n_clients: int | None, n_classes: int | None, weights: Any,
        weight_scale: float, offset: Any, feature_names: Sequence[str] | None, *, width: int | None = None,
    ) -> None:  # fmt: skip
        self._gather(
            X, y, clients, l2, n_clients, feature_names, np.float64, weights, weight_scale, offset, width
        )  # fmt: skip
        self.n_classes = count_classes(self._rows.y, n_classes)
        self.shape = (self._length(self.n_features),)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the entries of x; None if columns have no names."""
        return None if self.column_names is None else tuple(self._entry_names(self.column_names))

    @feature_names.setter
    def feature_names(self, names: tuple[str, ...] | None) -> None:
        #: The names of the columns.
        self.column_names = names

    @abc.abstractmethod
    def _entry_names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the entries of x, given column names."""

    def _restrict_columns(self, columns: IntArray) -> Self:
        """Return the losses as functions of some columns."""
        made = LinearModel.restrict(self, columns)
        names = self.column_names
        made.column_names = None if names is None else tuple(names[j] for j in columns)
        made.shape = (made._length(len(columns)),)
        return made

    @property
    def _size(self) -> str:
        return f"{super()._size}, {self.n_classes} classes"

    @abc.abstractmethod
    def _length(self, features: int) -> int:
        """The length of x for a given number of features."""

    @abc.abstractmethod
    def predictors(self, x: Array, rows: slice = slice(None)) -> Array:
        """Return the linear predictors of rows, a column for each."""

    @abc.abstractmethod
    def class_forms(self, x: Array, rows: slice = slice(None)) -> Array:
        """Return what the softmax of is the chances of classes, a column for each, of some rows."""

    @abc.abstractmethod
    def _losses_of(self, z: Array, y: IntArray) -> Array:
        """The loss of each row, infinite outside the domain."""

    @abc.abstractmethod
    def _slopes_of(self, z: Array, y: IntArray) -> Array:
        """Its derivatives in the predictors, a column for each."""

    @abc.abstractmethod
    def _bends_of(self, z: Array, y: IntArray) -> Pairs:
        """Its second derivatives."""

    @abc.abstractmethod
    def _collect(self, X: Any, slopes: Array) -> Array:
        """Return Σ_j over rows of derivatives in x, given those in the predictors."""

    @abc.abstractmethod
    def _collect_pairs(self, X: Any, bends: Pairs) -> Array:
        """Return Σ_j over rows of second derivatives in x, given those in pairs of predictors."""

    def values(self, x: Array, clients: IntArray) -> Array:
        x = np.asarray(x, dtype=np.float64)
        self.check(x, clients, shared=True)
        ridge = 0.5 * float((self.ridge_of_x * x**2).sum())
        out = np.empty(len(clients))
        for place, client in enumerate(clients):
            own = self._place(client)
            found = self._losses_of(self.predictors(x, own), self._classes(own))
            out[place] = self._weigh(found, own).sum() / self.sizes[client] + ridge
        return out

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        if batch_size is not None:
            raise ValueError(f"{type(self).__name__} has no gradients over mini-batches")
        points = np.asarray(x, dtype=np.float64)
        self.check(points, clients)
        points = np.broadcast_to(points, (len(clients), *self.shape))
        out = np.empty(points.shape)
        for place, (client, point) in enumerate(zip(clients, points, strict=True)):
            own = self._place(client)
            slopes = self._slopes_of(self.predictors(point, own), self._classes(own))
            out[place] = self._collect(self._rows.X[own], self._weigh(slopes, own)) / self.sizes[client]
            out[place] += self.ridge_of_x * point
        return out

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        if self.shape[0] > DENSE_HESSIAN:
            return None
        out = np.empty((len(clients), *self.shape, *self.shape))
        for place, client in enumerate(clients):
            own = self._place(client)
            bends = self._bends_of(self.predictors(x, own), self._classes(own))
            out[place] = self._collect_pairs(self._rows.X[own], self._weighed(bends, own)) / self.sizes[client]
            out[place][np.diag_indices(self.shape[0])] += self.ridge_of_x
        return out

    def hessian(self, x: Array, weights: Array) -> Array | None:
        found = self.hessians(x, np.arange(self.n_clients))
        return None if found is None else np.asarray((weights[:, None, None] * found).sum(axis=0))

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        return Losses.hessian_product(self, x, direction, weights)

    def _sums_of(self, x: Array, own: slice, robust: bool) -> tuple[Array, ...]:
        X, y, z = self._rows.X[own], self._classes(own), self.predictors(x, own)
        return class_sums(
            self.weights_of_rows[own], self._losses_of(z, y), self._slopes_of(z, y), self._bends_of(z, y), robust,
            lambda slopes: self._collect(X, slopes), lambda bends: self._collect_pairs(X, bends),
        )  # fmt: skip

    def _classes(self, own: slice) -> IntArray:
        return self._rows.y[own].astype(np.int64)

    def _weigh(self, numbers: Array, own: slice) -> Array:
        if self._rows.weights is None:
            return numbers
        weights = self._rows.weights[own]
        weighed: Array = numbers * (weights if numbers.ndim == 1 else weights[:, None])
        return weighed

    def _weighed(self, bends: Pairs, own: slice) -> Pairs:
        return bends if self._rows.weights is None else lambda a, b: self._weigh(bends(a, b), own)

    @property
    def can_restrict(self) -> bool:
        return False

    def constants(self) -> tuple[Array, ...]:
        return (self.ridge_of_x,)


class Multinomial(ClassModel):
    r"""Multinomial logistic losses with a reference class and a ridge, one for each client; x is a vector.

    .. math:: f_i(x) = \frac{1}{n_i} \sum_j w_j \Big( \log \sum_{k=0}^{K-1} \exp(a_j^T x_k) - a_j^T x_{y_j} \Big)
              + \frac{1}{2} \sum_{k,m} l_{2,m} x_{km}^2, \qquad x_0 = 0,

    over the rows j that client i holds. x has the coefficients of the classes 1, …, K − 1, one after the other.
    Unlike :class:`Softmax`, whose coefficients are determined up to a constant, it has a single minimum where there is
    one, and standard errors.

    Parameters
    ----------
    X, clients, l2, n_clients, feature_names
        As in :class:`LeastSquares`.
    y
        Their classes, integers from 0; 0 is the reference.
    n_classes
        The number of classes; by default as many as ``y`` has. Needed where a class has no rows.
    weights
        The weight of each row, 1 by default.
    weight_scale
        What weights are multiplied with in the losses, and not in deviances and likelihoods: so that their mean is 1.
    offset
        What is added to the linear predictors of each row: a number for all classes but the reference, or a column for
        each of the classes 1, …, K − 1.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.Multinomial(np.ones((6, 1)), [0, 1, 1, 2, 2, 2])
    >>> losses
    Multinomial(dense 6 × 1, 3 classes, 1 clients, l2=0)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=50, tol=1e-10).x.round(4)  # log 2 and log 3
    array([0.6931, 1.0986])
    """

    curvature = 0.5

    def __init__(
        self,
        X: Any,
        y: Any,
        clients: Any = None,
        l2: Any = 0.0,
        n_clients: int | None = None,
        *,
        n_classes: int | None = None,
        weights: Any = None,
        weight_scale: float = 1.0,
        offset: Any = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        shape = np.shape(offset)
        width = shape[1] if len(shape) == 2 else None
        self._begin(X, y, clients, l2, n_clients, n_classes, weights, weight_scale, offset, feature_names, width=width)
        if width not in (None, self.n_classes - 1):
            raise ArgumentError("offset", f"must have a column for each of {self.n_classes - 1} classes, got {width}")
        if self._rows.weights is not None:
            self.curvature = 0.5 * float(self._rows.weights.max())

    def _length(self, features: int) -> int:
        return (self.n_classes - 1) * features

    def predictors(self, x: Array, rows: slice = slice(None)) -> Array:
        z: Array = np.asarray(self._rows.X[rows] @ x.reshape(self.n_classes - 1, self.n_features).T)
        if self._rows.shifts is None:
            return z
        shifts = self._rows.shifts[rows]
        return z + (shifts if shifts.ndim == 2 else shifts[:, None])

    def evaluate_many(self, points: Array, held: IntArray, labels: IntArray, clients: IntArray) -> ManySums:
        self.check(np.ascontiguousarray(points[0], dtype=self.dtype), clients, shared=True)
        count, (n, others) = len(points), (len(self._rows.y), self.n_classes - 1)
        whole = np.zeros((count, others + 1, self.n_features))  # with the coefficients of the reference
        whole[:, 1:] = points.reshape(count, others, -1)
        shifts = None
        if self._rows.shifts is not None:
            shifts = np.zeros((n, others + 1))
            shifts[:, 1:] = self._rows.shifts.reshape(n, -1)
        found = evaluate_classes(self, whole, held, labels, clients, shifts)
        return found._replace(slopes=found.slopes[:, :, 1:].reshape(len(clients), *points.shape))

    def probabilities(self, z: Array) -> Array:
        """Return the probability of each class, the reference first, given linear predictors."""
        return _softmax(_with_reference(z))

    def class_forms(self, x: Array, rows: slice = slice(None)) -> Array:
        return _with_reference(self.predictors(x, rows))

    def restrict(self, features: IntArray) -> Self:
        """Return the losses as functions of some entries of x: the same features of all classes."""
        columns = np.unique(np.asarray(features) % self.n_features)
        whole = (np.arange(self.n_classes - 1)[:, None] * self.n_features + columns).ravel()
        if not np.array_equal(whole, features):
            raise ArgumentError("features", "must be the same for all classes")
        return self._restrict_columns(columns)

    def _entry_names(self, columns: Sequence[str]) -> list[str]:
        return [f"{k}: {name}" for k in range(1, self.n_classes) for name in columns]

    @property
    def ridge_of_x(self) -> Array:
        return np.tile(self._ridge, self.n_classes - 1)

    def _losses_of(self, z: Array, y: IntArray) -> Array:
        return _class_losses(_with_reference(z), y)

    def _slopes_of(self, z: Array, y: IntArray) -> Array:
        slopes = self.probabilities(z)
        slopes[np.arange(len(y)), y] -= 1.0
        return slopes[:, 1:]

    def _bends_of(self, z: Array, y: IntArray) -> Pairs:
        chances = self.probabilities(z)[:, 1:]
        return lambda a, b: _bend(chances, a, b)

    def _collect(self, X: Any, slopes: Array) -> Array:
        return np.asarray(X.T @ slopes).T.ravel()

    def _collect_pairs(self, X: Any, bends: Pairs) -> Array:
        return class_blocks(self.n_classes - 1, X.shape[1], lambda a, b: gram(X, bends(a, b)))


def _with_reference(z: Array) -> Array:
    """The linear forms of all classes, 0 for the reference."""
    return np.concatenate([np.zeros((len(z), 1)), z], axis=1)


class Interval(NamedTuple):
    """−log(F(u) − F(l)) with its derivatives in the ends u and l of an interval."""

    value: Array
    upper: Array
    lower: Array
    upper_upper: Array
    lower_lower: Array
    upper_lower: Array


class Logit:
    """The logistic distribution: F(u) − F(l) = F(u) F(−l) (1 − exp(l − u)), so that nothing cancels."""

    def chances(self, z: Array) -> Array:
        """Return F(z)."""
        from scipy.special import expit

        return np.asarray(expit(z))

    def quantiles(self, shares: Array) -> Array:
        """Return where F has some values."""
        from scipy.special import logit

        return np.asarray(logit(shares))

    def interval(self, upper: Array, lower: Array) -> Interval:
        """Return the loss of rows between two ends, of which the upper may be ∞ and the lower −∞."""
        from scipy.special import expit, log_expit

        gap = upper - lower
        value = -log_expit(upper) - log_expit(-lower) - np.log(-np.expm1(-gap))
        near = 1.0 / np.expm1(gap)
        both = near + near**2
        return Interval(
            np.where(gap > 0, value, np.inf), -expit(-upper) - near, expit(lower) + near,
            expit(upper) * expit(-upper) + both, expit(lower) * expit(-lower) + both, -both,
        )  # fmt: skip


class Probit:
    """The normal distribution; intervals above 0 are reflected, so that digits are kept."""

    def chances(self, z: Array) -> Array:
        from scipy.special import ndtr

        return np.asarray(ndtr(z))

    def quantiles(self, shares: Array) -> Array:
        from scipy.special import ndtri

        return np.asarray(ndtri(shares))

    def interval(self, upper: Array, lower: Array) -> Interval:
        from scipy.special import log_ndtr

        right = lower > 0
        most, least = log_ndtr(np.where(right, -lower, upper)), log_ndtr(np.where(right, -upper, lower))
        chance = most + np.log(-np.expm1(np.minimum(least - most, 0.0)))
        ends = [np.where(np.isfinite(end), end, 0.0) for end in (upper, lower)]
        at_upper, at_lower = (
            np.where(np.isfinite(given), np.exp(-0.5 * end**2 - 0.5 * np.log(2.0 * np.pi) - chance), 0.0)
            for given, end in zip((upper, lower), ends, strict=True)
        )
        return Interval(
            np.where(upper > lower, -chance, np.inf), -at_upper, at_lower, ends[0] * at_upper + at_upper**2,
            -ends[1] * at_lower + at_lower**2, -at_upper * at_lower,
        )  # fmt: skip


LINKS: dict[str, Logit | Probit] = {"logit": Logit(), "probit": Probit()}


class Ordinal(ClassModel):
    r"""Losses of ordered classes with proportional odds and a ridge, one for each client; x is a vector.

    .. math:: f_i(x) = -\frac{1}{n_i} \sum_j w_j \log\big( F(\theta_{y_j} - a_j^T b - o_j)
              - F(\theta_{y_j - 1} - a_j^T b - o_j) \big) + \frac{1}{2} \sum_m l_{2,m} b_m^2

    with thresholds :math:`-\infty = \theta_{-1} < \theta_0 < \dots < \theta_{K-1} = \infty` between K classes and F the
    logistic or the normal distribution function. A row is in one of the classes up to k with chance
    :math:`F(\theta_k - a_j^T b)`, as in ``polr`` of R's MASS. Rows need no intercept.

    x has the coefficients b, and then how much each threshold differs from :attr:`base`, so that x = 0 is in the
    domain. Losses are convex, and infinite where thresholds are not increasing: :class:`fpdfp.ProximalNewton` makes
    shorter steps there.

    Parameters
    ----------
    X, clients, n_clients, feature_names
        As in :class:`LeastSquares`.
    y
        Their classes, integers from 0 for the lowest.
    l2
        The weight of the ridge: a number, or one for each feature; thresholds have none.
    link
        ``"logit"`` or ``"probit"``.
    n_classes
        The number of classes; by default as many as ``y`` has. Needed where a class has no rows.
    weights, weight_scale
        As in :class:`Multinomial`.
    offset
        What is added to the linear form of each row.

    References
    ----------
    P. McCullagh, "Regression models for ordinal data", J. R. Stat. Soc. B 42 (1980). J. W. Pratt, "Concavity of the log
    likelihood", JASA 76 (1981).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.Ordinal(np.array([[1.0], [-1.0], [1.0], [1.0]]), [0, 1, 1, 2], l2=1e9)
    >>> losses
    Ordinal(logit, dense 4 × 1, 3 classes, 1 clients, l2=1e+09)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> x = fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=50, tol=1e-10).x
    >>> losses.thresholds(x).round(4)  # a quarter is below the first, and three quarters below the second
    array([-1.0986,  1.0986])
    """

    curvature = np.inf

    def __init__(
        self,
        X: Any,
        y: Any,
        clients: Any = None,
        l2: Any = 0.0,
        n_clients: int | None = None,
        *,
        link: Link = "logit",
        n_classes: int | None = None,
        weights: Any = None,
        weight_scale: float = 1.0,
        offset: Any = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        _checks.choice("link", link, tuple(LINKS))
        self.link = link
        self._begin(X, y, clients, l2, n_clients, n_classes, weights, weight_scale, offset, feature_names)
        #: The thresholds at x = 0: those of classes with the same chance.
        self.base = base_of(self.link, self.n_classes)

    def __repr__(self) -> str:
        return super().__repr__().replace("Ordinal(", f"Ordinal({self.link}, ", 1)

    @property
    def family(self) -> str:
        return f"Ordinal({self.link})"

    def thresholds(self, x: Array) -> Array:
        """Return the thresholds between classes."""
        found: Array = self.base + x[self.n_features :]
        return found

    def _length(self, features: int) -> int:
        return features + self.n_classes - 1

    def predictors(self, x: Array, rows: slice = slice(None)) -> Array:
        z = np.asarray(self._rows.X[rows] @ x[: self.n_features], dtype=np.float64)
        if self._rows.shifts is not None:
            z = z + self._rows.shifts[rows]
        found: Array = self.thresholds(x) - z[:, None]
        return found

    def class_forms(self, x: Array, rows: slice = slice(None)) -> Array:
        ends = _with_ends(self.predictors(x, rows))
        with np.errstate(all="ignore"):
            return -LINKS[self.link].interval(ends[:, 1:], ends[:, :-1]).value

    def restrict(self, features: IntArray) -> Self:
        """Return the losses as functions of some entries of x: some features, and all thresholds."""
        kept, count = np.asarray(features), self.n_classes - 1
        if not np.array_equal(kept[kept >= self.n_features], np.arange(self.n_features, self.n_features + count)):
            raise ArgumentError("features", "must have all thresholds among them")
        return self._restrict_columns(kept[kept < self.n_features])

    def _entry_names(self, columns: Sequence[str]) -> list[str]:
        return [*columns, *(f"{k}|{k + 1}" for k in range(self.n_classes - 1))]

    @property
    def ridge_of_x(self) -> Array:
        return np.concatenate([self._ridge, np.zeros(self.n_classes - 1)])

    def _interval(self, z: Array, y: IntArray) -> Interval:
        rows = np.arange(len(y))
        whole = _with_ends(z)
        with np.errstate(all="ignore"):
            return LINKS[self.link].interval(whole[rows, y + 1], whole[rows, y])

    def _losses_of(self, z: Array, y: IntArray) -> Array:
        found = self._interval(z, y).value
        # Also thresholds between which there is no row must be in order.
        return np.where((np.diff(z, axis=1) > 0).all(axis=1), found, np.inf)

    def _slopes_of(self, z: Array, y: IntArray) -> Array:
        found, rows = self._interval(z, y), np.arange(len(y))
        slopes = np.zeros((len(y), self.n_classes + 1))
        slopes[rows, y + 1], slopes[rows, y] = found.upper, found.lower
        return slopes[:, 1:-1]

    def _bends_of(self, z: Array, y: IntArray) -> Pairs:
        found = self._interval(z, y)

        def bend(a: int, b: int) -> Array:
            # Threshold k is the upper end of class k, and the lower end of class k + 1.
            if a == b:
                return np.where(y == a, found.upper_upper, np.where(y == a + 1, found.lower_lower, 0.0))
            return np.where(y == max(a, b), found.upper_lower, 0.0) if abs(a - b) == 1 else np.zeros(len(y))

        return bend

    def _collect(self, X: Any, slopes: Array) -> Array:
        return np.concatenate([-(X.T @ slopes.sum(axis=1)), slopes.sum(axis=0)])

    def _collect_pairs(self, X: Any, bends: Pairs) -> Array:
        count, d = self.n_classes - 1, X.shape[1]
        out = np.zeros((d + count, d + count))
        whole = np.zeros(X.shape[0])
        for a in range(count):
            row = np.zeros(X.shape[0])
            for b in range(count):
                found = bends(a, b)
                out[d + a, d + b] = found.sum()
                row += found
            out[d + a, :d] = out[:d, d + a] = -(X.T @ row)
            whole += row
        out[:d, :d] = gram(X, whole)
        return out


def _with_ends(z: Array) -> Array:
    """The thresholds of rows with −∞ before and ∞ after them."""
    return np.pad(z, ((0, 0), (1, 1)), constant_values=((0.0, 0.0), (-np.inf, np.inf)))


def base_of(link: Link, classes: int) -> Array:
    """Return the thresholds between a given number of classes of the same chance.

    >>> base_of("logit", 2)
    array([0.])
    """
    return LINKS[link].quantiles(np.arange(1, classes) / classes)
