r"""The rule against points at which few rows decide.

The gradient of a logistic loss at a steep plane (x large) is a sum over the rows on one side of it. That is a sum over
many rows, but the difference of two such sums, for planes between which one row lies, is that row: a bisection finds
single rows of any site with some thirty gradients, and sums over sites do not hide them. A rule on the size or the
concentration of gradients does not see this. What gives a steep plane away is curvature: with :math:`z = Ax`, row j
responds to changes of x with the weight :math:`h_j = \sigma'(z_j)`, which is near zero for all rows but those at the
plane. So a point is refused where the effective number of rows

.. math:: N(h) = \Big(\sum_j h_j\Big)^2 \Big/ \sum_j h_j^2

is too small: over all rows, and over the rows in which a feature is not at its most common value, since a plane may be
steep for these alone. For softmax, h is the product of two classes' probabilities, for each pair of classes. Where N
rows share the transition of a plane, differences of gradients are means with smooth weights over N rows, and to resolve
single ones amplifies rounding by about :math:`\exp(\pi^2 N / 6)`, beyond double precision from N = 23 on.

A second rule compares probabilities with those at earlier points: a change that is nearly all of one row's (N of the
change below 2) is refused. Least squares have constant curvature: gradients at any points tell nothing beyond second
moments, and the rules on the design below are all there is.

The cost is a product with the rows for each point, and sums of the size of the data.
"""

from __future__ import annotations

import collections
import copy
import functools
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.engines.checkpoint import probe
from fpdfp.federation.policy import Policy, RefusedError
from fpdfp.linops.base import LinOp
from fpdfp.losses._duals import RowDuals
from fpdfp.losses._linear import LinearModel
from fpdfp.losses._pooled import PooledRows
from fpdfp.losses.base import Losses
from fpdfp.losses.least_squares import LeastSquares
from fpdfp.losses.logistic import Logistic
from fpdfp.losses.softmax import Softmax
from fpdfp.rng import Draws

#: What an analyst is told of a point that is refused, whichever rule it was.
TOO_FEW = "this site does not answer at this point: too few of its rows would decide the reply"
#: A row that a combination of features tells from all others, up to this share.
MOST_LEVERAGE = 0.95
#: So many features at most: leverages are computed, and pairs of columns compared.
MANY = 2000
#: Of the rows in which a feature is not at its most common value, one in so many must be effective: in honest fits of
#: a9a with weak penalties one in twelve is.
IN_A_GROUP = 15.0
#: Combinations of columns that are so much shorter than the longest are only rounding.
ROUNDED = 1e-12
#: Changes of a probability that are only rounding.
ROUNDING = 1e-14
#: Of how many different numbers of rows earlier points are kept.
SIZES = 8
#: A change that fewer effective rows share is one row's.
ONE_ROW = 2.0


class PointRefusedError(RefusedError):
    """A point is refused."""

    def __init__(self, detail: str) -> None:
        super().__init__(TOO_FEW, detail)


class Earlier:
    """Probabilities at the points that were answered, for each number of rows.

    A site has one of these for all models: else points could be compared by asking for each under another model's
    name, or with another choice of features.

    Parameters
    ----------
    most
        How many points are kept, the newest.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._points: collections.OrderedDict[int, collections.deque[Array]] = collections.OrderedDict()

    def of(self, size: int) -> collections.deque[Array]:
        """Return what is known of points with so many probabilities, the newest last."""
        found = self._points.setdefault(size, collections.deque(maxlen=self._most))
        self._points.move_to_end(size)
        if len(self._points) > SIZES:
            self._points.popitem(last=False)
        return found


class Watched(LinearModel):
    """What the losses of a site have in addition: every point passes here before anything is computed of it."""

    policy: Policy
    _earlier: Earlier

    @property
    def family(self) -> str:
        return type(self).__mro__[2].__qualname__

    def _without_caches(self) -> Self:
        made = super()._without_caches()
        vars(made).pop("_groups", None)
        return made

    def values(self, x: Array, clients: IntArray) -> Array:
        # The mean loss at the probe, by which data are recognised: one number, at a point that nobody chooses.
        if not np.array_equal(x, probe(self.shape, self.dtype)):
            self.look(x, clients)
        return super().values(x, clients)

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        least = self.policy.requests.least_batch_size
        if batch_size is not None and batch_size < min(least, int(self.sizes[clients].min(initial=least))):
            raise RefusedError(
                f"this site does not answer for mini-batches of fewer than {least} rows", f"batch_size={batch_size}"
            )
        self.look(x, clients)
        return super().gradients(x, clients, batch_size, draws)

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        self.look(x, clients)
        return super().hessians(x, clients)

    def hessian(self, x: Array, weights: Array) -> Array | None:
        self.look(x, np.arange(self.n_clients))
        return super().hessian(x, weights)

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        self.look(x, np.arange(self.n_clients))
        return super().hessian_product(x, direction, weights)

    def dual_points(self, x: Array, weights: Array) -> RowDuals:
        self.look(x, np.arange(self.n_clients))
        return super().dual_points(x, weights)

    def pooled(self, weights: Array) -> PooledRows | None:
        """Return None: its points would not pass here."""
        return None

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        if not self.policy.requests.batch_constants:
            raise RefusedError("this site does not tell constants for mini-batches: they are those of single rows")
        return super().batch_smoothness(batch_size, factor)

    def look(self, x: Array, clients: IntArray) -> None:
        """Refuse points at which too few of a client's rows decide; x may have a leading client axis."""
        if not self.policy.points.check:
            return
        points = np.asarray(x, dtype=np.float64)
        shared = points.shape == self.shape
        for place, client in enumerate(clients):
            self._look_at(points if shared else points[place], int(client))

    def _look_at(self, x: Array, client: int) -> None:
        """Refuse a point of one client."""
        if not np.isfinite(x).all():
            raise PointRefusedError("the point is not finite")
        p, weights = self._respond(self._rows_of(client) @ x.T)
        if not weights:
            return
        for what, h in weights:
            self._count(h, client, what)
        earlier = self._earlier.of(p.size)
        for old in earlier if self.n_clients == 1 else ():
            change = np.abs(p - old)
            if change.max() > ROUNDING and effective(change) < ONE_ROW:
                raise PointRefusedError(
                    f"one row has {change.max() / change.sum():.0%} of the change since another point"
                )
        if self.n_clients == 1:
            earlier.append(p)

    def _count(self, h: Array, client: int, what: str) -> None:
        """Refuse curvature that too few rows share."""
        needed = self.least_rows(client)
        found = effective(h)
        if not found >= needed:
            raise PointRefusedError(f"{found:.1f} effective rows{what} share the curvature, {needed:.1f} are needed")
        members, sizes = self._groups[client]
        sums, squares = members.T @ h, members.T @ h**2
        with np.errstate(invalid="ignore", divide="ignore"):
            inside = sums**2 / squares
        short = ~(inside >= np.minimum(needed, sizes / IN_A_GROUP))
        if short.any():
            worst = int(np.flatnonzero(short)[0])
            raise PointRefusedError(
                f"{inside[worst]:.1f} effective rows{what} of the {sizes[worst]} in which a feature is not at its most "
                "common value share the curvature"
            )

    def least_rows(self, client: int) -> float:
        """How many effective rows a client must have at a point."""
        rows = int(self.sizes[client])
        return max(float(self.n_features), min(float(self.policy.points.least_effective_rows), rows / 3.0))

    @functools.cached_property
    def _groups(self) -> list[tuple[Any, Array]]:
        """For each client, in which of its rows each feature is not at its most common value; without those of all."""
        found = []
        for client in range(self.n_clients):
            members = uncommon(self._rows_of(client))
            sizes = np.asarray(members.sum(axis=0)).ravel()
            # A column of measurements has no common value: all rows are in it, and these are counted already.
            some = np.flatnonzero((sizes > 0) & (sizes < 0.9 * members.shape[0]))
            found.append((members[:, some], sizes[some]))
        return found

    def _respond(self, z: Array) -> tuple[Array, list[tuple[str, Array]]]:
        """Return probabilities at each row, and weights with which rows respond to changes, each with a name."""
        raise NotImplementedError


class WatchedLogistic(Watched, Logistic):
    """Logistic losses of a site."""

    def _respond(self, z: Array) -> tuple[Array, list[tuple[str, Array]]]:
        from scipy.special import expit

        p = expit(z)
        return p, [("", p * expit(-z))]


class WatchedSoftmax(Watched, Softmax):
    """Softmax losses of a site: every pair of classes is a plane of its own."""

    def _respond(self, z: Array) -> tuple[Array, list[tuple[str, Array]]]:
        from scipy.special import softmax

        p = softmax(z, axis=1)
        present = np.flatnonzero(np.bincount(self._rows.y.astype(np.int64), minlength=self.n_classes))
        pairs = [(int(a), int(b)) for i, a in enumerate(present) for b in present[:i]]
        return p.ravel(), [(f" between classes {b} and {a}", p[:, a] * p[:, b]) for a, b in pairs]


class WatchedLeastSquares(Watched, LeastSquares):
    """Least squares of a site: the curvature is the same at all points."""

    def _respond(self, z: Array) -> tuple[Array, list[tuple[str, Array]]]:
        return z, []


KINDS: dict[type, type[Watched]] = {
    Logistic: WatchedLogistic, Softmax: WatchedSoftmax, LeastSquares: WatchedLeastSquares,
}  # fmt: skip


def watch(losses: Losses, policy: Policy, earlier: Earlier | None = None) -> Losses:
    """Return a site's losses such that every point is checked; refuse a family whose points cannot be."""
    kind = KINDS.get(type(losses))
    if kind is None:
        if policy.points.check:
            raise RefusedError(f"this site does not answer for losses of the family {losses.family}")
        return losses
    made = copy.copy(losses)
    made.__class__ = kind
    assert isinstance(made, Watched)
    made.policy = policy
    made._earlier = Earlier(policy.points.compared_points) if earlier is None else earlier
    return made


def effective(weights: Array) -> float:
    """Return (Σw)²/Σw² of weights of at least 0: how many rows share them; 0 where all are 0.

    >>> effective(np.array([1.0, 1.0, 1.0, 0.0])), effective(np.zeros(3))
    (3.0, 0.0)
    """
    largest = float(weights.max(initial=0.0))
    if largest == 0.0:
        return 0.0
    scaled = weights / largest  # squares of small numbers would be zero
    return float(scaled.sum() ** 2 / np.square(scaled).sum())


def uncommon(X: Any) -> Any:
    """Return in which rows each column is not at its most common value: a sparse matrix of zeros and ones."""
    from scipy.sparse import csc_array

    columns = csc_array(X)
    count, features = columns.shape
    places, ends = [], [0]
    for j in range(features):
        rows = columns.indices[columns.indptr[j] : columns.indptr[j + 1]]
        values = columns.data[columns.indptr[j] : columns.indptr[j + 1]]
        rows, values = rows[values != 0], values[values != 0]
        found, counts = np.unique(values, return_counts=True)
        if len(found) and counts.max() > count - len(rows):
            common = found[counts.argmax()]
            rows = np.concatenate([rows[values != common], np.setdiff1d(np.arange(count), rows, assume_unique=True)])
        places.append(np.sort(rows))
        ends.append(ends[-1] + len(rows))
    indices = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
    return csc_array((np.ones(len(indices)), indices, np.array(ends)), shape=(count, features))


def check_design(losses: Losses, policy: Policy) -> None:
    """Refuse a model that tells single rows whatever the point: by its rows, coefficients and columns."""
    data, family = policy.data, losses.family
    rows = int(losses.sizes.min())
    if rows < data.least_rows:
        raise RefusedError(f"this site takes part with at least {data.least_rows} rows only", f"there are {rows}")
    parameters = int(np.prod(losses.shape))
    if isinstance(losses, Softmax):
        parameters -= losses.n_features  # one class is determined by the others
    if parameters > data.most_parameters * rows:
        raise RefusedError(
            f"this site answers for at most {data.most_parameters:g} coefficients for each of its rows",
            f"{parameters} coefficients, {rows} rows",
        )
    if not isinstance(losses, LinearModel):
        return
    moments = policy.moments
    if isinstance(losses, LeastSquares) and not (
        moments.allowed and rows >= moments.least_rows_per_feature * losses.n_features
    ):
        raise RefusedError("this site does not answer for least squares, which tell second moments of its rows")
    for client in range(losses.n_clients):
        check_columns(losses._rows_of(client), data.least_rows_per_level, losses.feature_names)
    if family != "LeastSquares":
        for client in range(losses.n_clients):
            counts = np.unique(losses.targets_of(client), return_counts=True)[1]
            if int(counts.min()) < data.least_rows_per_level:
                raise RefusedError(
                    f"this site answers for classes of at least {data.least_rows_per_level} rows only",
                    f"one has {counts.min()}",
                )


def check_columns(X: Any, least: int, names: Sequence[str] | None = None) -> None:
    """Refuse columns, pairs of columns and combinations of columns that tell fewer rows than so many from the rest."""
    if least <= 1:
        return
    sentence = f"this site answers for columns only that tell no fewer than {least} of its rows from the others"
    members = uncommon(X)
    count, features = members.shape
    shown = [str(j) for j in range(features)] if names is None else list(names)
    sizes = np.asarray(members.sum(axis=0)).ravel()
    few = np.flatnonzero((sizes > 0) & (sizes < least))
    if few.size:
        raise RefusedError(sentence, f"column {shown[few[0]]}: {sizes[few[0]]:g} rows are not at its most common value")
    if features > MANY:
        raise RefusedError(
            f"this site answers for at most {MANY:,} columns, so that it can compare them", f"{features}"
        )
    few = np.flatnonzero(shares(X) < least - 1e-6)
    if few.size:
        raise RefusedError(sentence, f"column {shown[few[0]]}: fewer rows have nearly all of its deviations")
    # Measurements are left out: nearly every row has a value of its own there.
    coded = np.flatnonzero((sizes > 0) & (sizes <= count / 2))
    some = members[:, coded]
    apart = sizes[coded][:, None] + sizes[coded] - 2.0 * (some.T @ some).toarray()
    apart = np.minimum(apart, count - apart)
    close = np.argwhere((apart > 0) & (apart < least))
    if close.size:
        first, second = (shown[coded[one]] for one in close[0])
        raise RefusedError(sentence, f"columns {first} and {second} differ in fewer rows")
    if (largest := leverages(X).max()) > MOST_LEVERAGE:
        raise RefusedError(sentence, f"a combination of columns is one row's to {largest:.1%}")


def leverages(X: Any) -> Array:
    """Return how much of some combination of columns is each row's alone: 1 where one tells it from all others."""
    dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X, dtype=np.float64)
    largest = np.abs(dense).max(axis=0, initial=0.0)
    if not largest.any():
        return np.zeros(len(dense))
    columns = dense[:, largest > 0] / largest[largest > 0]  # squares of small numbers would be zero
    columns /= np.sqrt(np.square(columns).mean(axis=0))
    # Not of products of columns: two that differ by a millionth in one row would be the same there.
    basis, triangle = np.linalg.qr(columns)
    vectors, values, _ = np.linalg.svd(triangle)
    kept = values > ROUNDED * values.max(initial=0.0)
    return np.asarray(np.square(basis @ vectors[:, : len(values)][:, kept]).sum(axis=1))


def shares(X: Any) -> Array:
    """Return for each column how many effective rows share its deviations from the middle; infinite for a constant.

    >>> shares(np.array([[1.0, 0.0, 5.0], [1.0, 0.0, 5.0], [0.0, 1e-9, 5.0], [0.0, 1.0, 5.0], [0.0, 0.0, 5.0]]))
    array([ 2.,  1., inf])
    """
    columns: Any = X.tocsc() if hasattr(X, "tocsc") else np.asarray(X)
    found = np.full(X.shape[1], np.inf)
    for j in range(X.shape[1]):
        column = columns[:, [j]].toarray().ravel() if hasattr(columns, "toarray") else columns[:, j]
        deviations = np.abs(column - np.median(column))
        if deviations.max(initial=0.0) > 0:
            found[j] = effective(deviations)
    return found
