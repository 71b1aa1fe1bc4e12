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
change below 2) is refused. Where a fold of rows is left out, sums over each fold can be told from those over all rows,
so both rules hold for every fold as for a site of its own. Least squares have constant curvature: gradients at any
points tell nothing beyond second moments, and the rules on designs (:mod:`fpdfp.federation.designs`) are all there is.

The cost is a product with the rows for each point, and sums of the size of the data.
"""

from __future__ import annotations

import collections
import copy
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.engines.checkpoint import probe
from fpdfp.engines.evaluations import Evaluations
from fpdfp.federation.designs import check_folds, effective, uncommon
from fpdfp.federation.partitions import Partitions
from fpdfp.federation.points import Earlier
from fpdfp.federation.policy import Policy, RefusedError
from fpdfp.linops.base import LinOp
from fpdfp.losses.base import InformationSums, Losses
from fpdfp.losses.classes import LINKS, Multinomial, Ordinal, Softmax
from fpdfp.losses.cox import Cox
from fpdfp.losses.glm import GLM, LeastSquares, Logistic, PooledRows
from fpdfp.losses.linear import LinearModel, ManyDuals, ManySums, RowDuals
from fpdfp.rng import Draws

#: What an analyst is told of a point that is refused, whichever rule it was.
TOO_FEW = "this site does not answer at this point: too few of its rows would decide the reply"
#: Of the rows in which a feature is not at its most common value, one in so many must be effective: in honest fits of
#: a9a with weak penalties one in twelve is.
IN_A_GROUP = 15.0
#: Changes of a probability that are only rounding.
ROUNDING = 1e-14
#: A change that fewer effective rows share is one row's.
ONE_ROW = 2.0
#: How many probabilities of the points of one question are kept to compare the others with, at least 64 points'.
ROOM = 1 << 24
#: Scores that are sums of smooth functions of the linear predictor, as losses are.
SMOOTH = ("brier",)


class PointRefusedError(RefusedError):
    """A point is refused."""

    def __init__(self, detail: str) -> None:
        super().__init__(TOO_FEW, detail)


class Group(NamedTuple):
    """Rows over which sums are told: all of a client's, or a fold.

    Attributes
    ----------
    rows
        Which of the client's rows.
    size
        How many.
    members, sizes
        In which of these each feature is not at its most common value, and in how many.
    """

    rows: Any
    size: int
    members: Any
    sizes: Array


class Watched(LinearModel):
    """What the losses of a site have in addition: every point passes here before anything is computed of it."""

    policy: Policy
    _earlier: Earlier
    _partitions: Partitions

    @property
    def family(self) -> str:
        return type(self).__mro__[2].__qualname__

    def _without_caches(self) -> Self:
        made = super()._without_caches()
        vars(made).pop("_groups", None)
        made._admitted = {}
        return made

    #: The folds of each division of rows that was admitted, of each client.
    _admitted: dict[bytes, list[list[Group]]]

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

    def informations(self, x: Array, clients: IntArray) -> Array | None:
        self.look(x, clients)
        return super().informations(x, clients)

    def sums_at(self, x: Array, clients: IntArray, *, robust: bool) -> InformationSums | None:
        self.look(x, clients)
        return super().sums_at(x, clients, robust=robust)

    def overdispersion_at(self, x: Array, clients: IntArray, theta: float) -> Array | None:
        self.look(x, clients)
        return super().overdispersion_at(x, clients, theta)

    def hessian(self, x: Array, weights: Array) -> Array | None:
        self.look(x, np.arange(self.n_clients))
        return super().hessian(x, weights)

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        self.look(x, np.arange(self.n_clients))
        return super().hessian_product(x, direction, weights)

    def dual_points(self, x: Array, weights: Array) -> RowDuals | None:
        self.look(x, np.arange(self.n_clients))
        return super().dual_points(x, weights)

    def evaluate_many(self, points: Array, held: IntArray, labels: IntArray, clients: IntArray) -> ManySums:
        found: ManySums = self._pass(points, held, labels, clients).evaluate_many(points, held, labels, clients)
        return found

    def duals_at_many(self, points: Array, held: IntArray, labels: IntArray, clients: IntArray) -> ManyDuals:
        found: ManyDuals = self._pass(points, held, labels, clients).duals_at_many(points, held, labels, clients)
        return found

    def _pass(self, points: Array, held: IntArray, labels: IntArray, clients: IntArray) -> Any:
        """Refuse points at which too few rows decide; return the losses that answer at all others."""
        folds = self.admit_folds(labels)
        if self.policy.points.check:
            for client in map(int, clients):
                self._look_at_many(points, held >= 0, labels, folds[client] if folds else [], client)
        plain = copy.copy(self)
        plain.__class__ = type(self).__mro__[2]
        return plain

    def admit_score(self, name: str, about: Evaluations) -> bool:
        if not self.policy.points.check:
            return True
        if name not in SMOOTH:
            raise RefusedError(
                f"this site tells deviances and Brier scores of rows that are left out, and not {name!a}, which counts "
                "rows: counts at many points tell single ones; ask for model.evaluate, or for check = false under "
                "[points] of its policy.toml"
            )
        points, drawn = about.points(math.prod(self.shape)).reshape(-1, *self.shape), about.draw_folds(self)
        division = np.maximum(about.held, 0) // (1 if about.folds is None else about.folds.count)
        for number in np.unique(division):
            some, folds = division == number, self.admit_folds(drawn[number])
            for client in range(self.n_clients):
                own = folds[client] if folds else []
                self._look_at_many(points[some], about.held[some] >= 0, drawn[number], own, client)
        return False

    def admit_folds(self, labels: IntArray) -> list[list[Group]]:
        """Return the folds of each client, none where rows are not divided; refuse a division that tells few rows."""
        if labels.max(initial=-1) < 0:
            return []
        labels = labels - labels.min()
        key = labels.tobytes()
        if key not in self._admitted:
            check_folds(self, labels, self.policy)
            given = np.empty_like(labels)
            given[self.place_rows(np.arange(len(labels)))] = labels
            self._partitions.admit(given)
            ends = np.concatenate([[0], np.cumsum(self.sizes)])
            self._admitted[key] = [
                [self._group(client, labels[ends[client] : ends[client + 1]] == fold) for fold in np.unique(labels)]
                for client in range(self.n_clients)
            ]
        return self._admitted[key]

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

    def look_along(self, x: Array, point: Array) -> None:
        """Refuse an intercept and a slope of the linear predictor at x, if too few rows of the first client decide."""
        if not self.policy.points.check:
            return
        if not np.isfinite(point).all():
            raise PointRefusedError("the point is not finite")
        intercept, slope = point
        self._compare(*self._respond(intercept + slope * self._forms_of(0, x), 0), 0)

    def _look_at(self, x: Array, client: int) -> None:
        """Refuse a point of one client."""
        self._compare(*self._see(x, client), client)

    def _look_at_many(
        self, points: Array, held: Array, labels: IntArray, folds: Sequence[Group], client: int
    ) -> None:  # fmt: skip
        """Refuse points of one client, some of them with a fold left out; if one is, nothing is told of any.

        They are compared with those before them as if each had been asked for by itself, and, as far as there is room,
        with all others of the question.
        """
        first, end = self._rows.offsets[client : client + 2]
        own, beside = labels[first:end] - labels.min(initial=0), collections.deque[Array]()
        for x, divided in zip(points, held, strict=True):
            p, weights = self._see(x, client)
            if not weights:
                continue
            groups = folds if divided else ()
            for what, h in weights:
                for group in (self._groups[client], *groups):
                    self._count(h, group, what)
            if self.n_clients == 1:
                self._compare_changes(p, own if divided else None, beside)
                beside.append(p)
                if len(beside) > max(self.policy.points.compared_points, ROOM // p.size):
                    beside.popleft()
        for p in list(beside)[-self.policy.points.compared_points :]:
            self._keep(p)

    def _see(self, x: Array, client: int) -> tuple[Array, list[tuple[str, Array]]]:
        """Return how the rows of a client respond at a point."""
        if not np.isfinite(x).all():
            raise PointRefusedError("the point is not finite")
        return self._respond(self._forms_of(client, x), client)

    def _compare(self, p: Array, weights: list[tuple[str, Array]], client: int) -> None:
        """Refuse a point by how rows respond there, and by how that has changed since other points."""
        if not weights:
            return
        for what, h in weights:
            self._count(h, self._groups[client], what)
        if self.n_clients > 1:
            return
        self._compare_changes(p)
        self._keep(p)

    def _compare_changes(self, p: Array, folds: IntArray | None = None, beside: Sequence[Array] = ()) -> None:
        """Refuse a point if the change since another one is one row's, of all rows or of those of a fold."""
        from fpdfp._kernels.rows import share_of_one

        which = np.zeros(p.size, dtype=np.int64) if folds is None else np.repeat(folds, p.size // len(folds))
        count = int(which.max(initial=0)) + 1
        for old in (*self._earlier.of(p.size), *beside):
            share = share_of_one(p, old, which, count, ONE_ROW, ROUNDING)
            if share:
                raise PointRefusedError(f"one row has {share:.0%} of the change since another point")

    def _keep(self, p: Array) -> None:
        """Keep the probabilities at a point, if they are not there already."""
        if not any(np.abs(p - old).max(initial=0.0) <= ROUNDING for old in self._earlier.of(p.size)):
            self._earlier.add(p)

    def _count(self, h: Array, group: Group, what: str) -> None:
        """Refuse curvature that too few rows of a group share."""
        needed, own = self.least_rows(group.size), h[group.rows]
        found = effective(own)
        if not found >= needed:
            raise PointRefusedError(f"{found:.1f} effective rows{what} share the curvature, {needed:.1f} are needed")
        sums, squares = group.members.T @ own, group.members.T @ own**2
        with np.errstate(invalid="ignore", divide="ignore"):
            inside = sums**2 / squares
        short = ~(inside >= np.minimum(needed, group.sizes / IN_A_GROUP))
        if short.any():
            worst = int(np.flatnonzero(short)[0])
            raise PointRefusedError(
                f"{inside[worst]:.1f} effective rows{what} of the {group.sizes[worst]} in which a feature is not at "
                "its most common value share the curvature"
            )

    def least_rows(self, rows: int) -> float:
        """How many effective rows of so many there must be at a point."""
        return max(float(self.n_features), min(float(self.policy.points.least_effective_rows), rows / 3.0))

    @functools.cached_property
    def _groups(self) -> list[Group]:
        """All rows of each client."""
        return [self._group(client, slice(None)) for client in range(self.n_clients)]

    def _group(self, client: int, rows: Any) -> Group:
        """Return some rows of a client, and in which of them each feature is not at its most common value."""
        members = uncommon(self._rows_of(client)[rows])
        sizes = np.asarray(members.sum(axis=0)).ravel()
        # A column of measurements has no common value: all rows are in it, and these are counted already.
        some = np.flatnonzero((sizes > 0) & (sizes < 0.9 * members.shape[0]))
        return Group(rows, int(members.shape[0]), members[:, some], sizes[some])

    def _forms_of(self, client: int, x: Array) -> Array:
        """Return the linear forms of a client's rows."""
        forms: Array = self._rows_of(client) @ x.T
        return forms

    def _respond(self, z: Array, client: int) -> tuple[Array, list[tuple[str, Array]]]:
        """Return probabilities at each row, and weights with which rows respond to changes, each with a name."""
        raise NotImplementedError


class WatchedLogistic(Watched, Logistic):
    """Logistic losses of a site."""

    def _respond(self, z: Array, client: int) -> tuple[Array, list[tuple[str, Array]]]:
        from scipy.special import expit

        p = expit(z)
        return p, [("", p * expit(-z))]


class WatchedSoftmax(Watched, Softmax):
    """Softmax losses of a site: every pair of classes is a plane of its own."""

    def _respond(self, z: Array, client: int) -> tuple[Array, list[tuple[str, Array]]]:
        from scipy.special import softmax

        return between_classes(softmax(z, axis=1), self._rows.y, np.ones(len(z)))


class WatchedMultinomial(Watched, Multinomial):
    """Multinomial losses of a site, watched as those of softmax are."""

    def _forms_of(self, client: int, x: Array) -> Array:
        return self.predictors(x, self._place(client))

    def _respond(self, z: Array, client: int) -> tuple[Array, list[tuple[str, Array]]]:
        own = self._place(client)
        return between_classes(self.probabilities(z), self._rows.y[own], self.weights_of_rows[own])


class WatchedOrdinal(Watched, Ordinal):
    """Losses of ordered classes of a site: every threshold is a plane of its own."""

    @property
    def family(self) -> str:
        return f"Ordinal({self.link})"

    def _forms_of(self, client: int, x: Array) -> Array:
        return self.predictors(x, self._place(client))

    def _respond(self, z: Array, client: int) -> tuple[Array, list[tuple[str, Array]]]:
        if not (np.diff(z[0]) > 0).all():
            return z, []  # outside the domain, where the answer has no numbers
        link = LINKS[self.link]
        below, above = link.chances(z), link.chances(-z)
        weights = self.weights_of_rows[self._place(client)]
        return below.ravel(), [
            (f" at threshold {k + 1}", weights * below[:, k] * above[:, k]) for k in range(z.shape[1])
        ]


class WatchedLeastSquares(Watched, LeastSquares):
    """Least squares of a site: the curvature is the same at all points."""

    def _respond(self, z: Array, client: int) -> tuple[Array, list[tuple[str, Array]]]:
        return z, []


class WatchedGLM(Watched, GLM):
    """Losses of a generalised linear model of a site: rows respond by their expected weights."""

    @property
    def family(self) -> str:
        return f"GLM({self.distribution!r})"

    def _forms_of(self, client: int, x: Array) -> Array:
        return self.forms(x, self._place(client))

    def _respond(self, z: Array, client: int) -> tuple[Array, list[tuple[str, Array]]]:
        own, family = self._place(client), self.distribution
        if self.form == "quadratic" and self._rows.weights is None:
            return z, []
        y = self._rows.y[own].astype(np.float64)
        with np.errstate(all="ignore"):
            weights = family.functions.weight(z, y, family.parameters) * self.weights_of_rows[own]
            losses = family.functions.value(z, y, family.parameters)
        if not (np.isfinite(weights).all() and np.isfinite(losses).all()):
            return z, []  # outside the domain, where the answer has no numbers
        return np.asarray(family.mean(z)), [("", weights)]


class WatchedCox(Watched, Cox):
    """Cox losses of a site: a row responds by the events that are expected of it."""

    def _see(self, x: Array, client: int) -> tuple[Array, list[tuple[str, Array]]]:
        if not np.isfinite(x).all():
            raise PointRefusedError("the point is not finite")
        expected, spread = self.responses(x, client)
        return expected, [("", spread)]

    def look_along(self, x: Array, point: Array) -> None:
        if self.policy.points.check:
            self._look_at(point[-1] * x, 0)


def between_classes(p: Array, y: Array, weights: Array) -> tuple[Array, list[tuple[str, Array]]]:
    """Return probabilities of classes, and how rows with weights respond to each pair of classes that are there."""
    present = np.flatnonzero(np.bincount(y.astype(np.int64), minlength=p.shape[1]))
    pairs = [(int(a), int(b)) for i, a in enumerate(present) for b in present[:i]]
    return p.ravel(), [(f" between classes {b} and {a}", weights * p[:, a] * p[:, b]) for a, b in pairs]


KINDS: dict[type, type[Watched]] = {
    Logistic: WatchedLogistic, Softmax: WatchedSoftmax, LeastSquares: WatchedLeastSquares, GLM: WatchedGLM,
    Cox: WatchedCox,
    Multinomial: WatchedMultinomial, Ordinal: WatchedOrdinal,
}  # fmt: skip


def watch(
    losses: Losses, policy: Policy, earlier: Earlier | None = None, partitions: Partitions | None = None
) -> Losses:  # fmt: skip
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
    made._partitions = partitions or Partitions(policy.points.most_divisions, policy.data.least_rows)
    made._admitted = {}
    return made
