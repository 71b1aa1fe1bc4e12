"""Losses whose data is elsewhere."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.losses import OUTSIDE, LossBounds, LossFacts, probe
from fpdfp.cohorts.plausible import compare_facts
from fpdfp.cohorts.remote import RemoteEngine
from fpdfp.errors import MessageError
from fpdfp.linops.base import LinOp
from fpdfp.losses.base import Form, Losses
from fpdfp.losses.linear import DENSE_HESSIAN, form_rounding, sum_rounding
from fpdfp.precondition.base import Announced, full
from fpdfp.rng import Draws
from fpdfp.traffic import Answers, digest

#: The curvature of the loss of a row, for families in which it is the same everywhere.
CURVATURES = {"Logistic": 0.25, "LeastSquares": 1.0, "Softmax": 0.5}


class RemoteDuals:
    """The dual points near x, from sums over sites (:class:`fpdfp.losses.base.DualPoints`)."""

    def __init__(self, losses: RemoteLosses, x: Array, weights: Array) -> None:
        self._losses, self._x, self._weights = losses, x, weights
        self.ridge = np.broadcast_to(
            float(weights.sum()) * (losses.constants()[0] if losses.constants() else losses.least_convexity),
            losses.shape,
        )

    @functools.cached_property
    def _start(self) -> dict[str, Array]:
        """The gradient, and what rounding depends on."""
        shape = self._losses.shape
        return self._ask("start", {"gradient": shape, "sizes": shape[:-1], "columns": shape[-1:]})

    def _ask(
        self, part: str, shapes: Mapping[str, Shape], direction: Array | None = None, scale: float | None = None
    ) -> dict[str, Array]:
        ask = {"part": part, "direction": direction, "scale": scale}
        return self._losses.engine.duals(self._x, ask, self._weights, shapes, self._losses.features)

    def gradient(self, direction: Array | None = None) -> Array:
        """Return Aᵀcθ with s = 1."""
        if direction is None:
            return self._start["gradient"]
        return self._ask("gradient", {"gradient": self._losses.shape}, direction)["gradient"]

    def gap(self, direction: Array | None, scale: float) -> float:
        """Return Σ c_j (φ(z_j) + φ*(θ_j) − z_j θ_j)."""
        curvature = CURVATURES.get(self._losses.family)
        if curvature is None or "_start" not in vars(self):  # sites describe what rounding adds
            return float(self._ask("gap", {"gap": ()}, direction, scale)["gap"])
        rounding = form_rounding(curvature, self._start["columns"], self._x)
        if direction is None and scale == 1.0:
            return rounding
        return float(self._ask("gap", {"gap": ()}, direction, scale)["gap"]) + rounding

    def rounding(self) -> Array:
        """Return what rounding may have done to each entry of the gradient."""
        return sum_rounding(self._start["sizes"], self._start["columns"])

    def curvature(self, direction: Array) -> Array:
        """Return the Hessian of h at x times a direction."""
        return self._ask("curvature", {"curvature": self._losses.shape}, direction)["curvature"]

    def hessian(self) -> Array | None:
        """Return the Hessian of h at x as a matrix, None where it would be too large."""
        size = self._x.size
        if size > DENSE_HESSIAN:
            return None
        return full(self._ask("hessian", {"hessian": (size * (size + 1) // 2,)})["hessian"])


log = logging.getLogger("fpdfp.engines")
#: Families whose losses are never negative.
NONNEGATIVE = ("Logistic", "LeastSquares", "Softmax", "GLM", "OperatorLeastSquares", "ProjectionLosses")

#: Families whose slopes are bounded but for a ridge.
BOUNDED = ("Logistic", "Softmax")


class RemoteLosses(Losses):
    """Losses whose data is at sites; the server keeps what they have sent, and requests the rest.

    Values and gradients at the point requested last are kept, since more than one thing may be wanted there.
    """

    def __init__(
        self, engine: RemoteEngine, facts: Sequence[LossFacts], bounds: Sequence[LossBounds], features: bytes = b""
    ) -> None:
        self.engine = engine
        #: The digest of the features that these losses are functions of, empty for all.
        self.features = features
        first = facts[0]
        for name, fact in zip(engine.names, facts, strict=True):
            for what in ("family", "shape", "dtype", "form", "batches", "hessians", "duals", "restricts", "convex"):
                if getattr(fact, what) != getattr(first, what):
                    raise MessageError(
                        f"sites must have losses of the same kind: {what} is {getattr(fact, what)!r} at {name} and "
                        f"{getattr(first, what)!r} at {engine.names[0]}"
                    )
        compare_facts(engine.names, facts, bounds)
        if not features:
            _compare_features(engine.names, [fact.features for fact in facts])
        self._facts, self.shape, self.dtype = first, first.shape, np.dtype(first.dtype)
        self.sizes = np.concatenate([fact.sizes for fact in facts])
        self._lipschitz: Array = np.concatenate([bound.lipschitz for bound in bounds])
        self._convexity = min(bound.least_convexity for bound in bounds)
        self.lower_bound = 0.0 if first.family.split("(")[0] in NONNEGATIVE else -np.inf
        ends = np.cumsum([0, *(len(fact.sizes) for fact in facts)])
        #: The numbers of each site's clients.
        self.numbers = [np.arange(ends[i], ends[i + 1]) for i in range(len(facts))]
        #: Whether gradients are requested along with values, since both are needed: at the end of a run.
        self.together = False
        #: The site of each client, with the client's number there where the site has several.
        self.client_names = np.array(
            [
                name if len(fact.sizes) == 1 else f"{name}, {i}"
                for name, fact in zip(engine.names, facts, strict=True)
                for i in range(len(fact.sizes))
            ]
        )
        points = {"probe": probe(self.shape, self.dtype), "values": np.zeros(self.shape, dtype=self.dtype)}
        self.answers: Answers[Array] = Answers(
            {
                ("values", digest([point])): _known(np.concatenate([getattr(fact, name) for fact in facts]))
                for name, point in points.items()
            }
        )

    def __repr__(self) -> str:
        return f"{self.family} of {self.n_clients} clients at {len(self.engine.names)} sites"

    @property
    def family(self) -> str:
        return self._facts.family

    @property
    def feature_digests(self) -> IntArray:
        return self._facts.features

    @property
    def form(self) -> Form:
        return self._facts.form

    @property
    def nearly_convolution(self) -> bool:
        return self._facts.form == "convolution"

    @property
    def supports_batches(self) -> bool:
        return self._facts.batches

    @property
    def least_convexity(self) -> float:
        return self._convexity

    def values(self, x: Array, clients: IntArray) -> Array:
        raise NotImplementedError("what single clients answer is for their cohort: ask for value")

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        raise NotImplementedError(
            "what single clients answer is for their cohort: ask for gradient, or Cohort.ask_each"
        )

    def value(self, x: Array, weights: Array) -> float:
        return float((weights * self.rows_at(x, gradients=False)).sum())

    def gradient(self, x: Array, weights: Array) -> Array:
        total: Array = np.zeros(self.shape, dtype=np.float64)
        rows = self.rows_at(x, gradients=True)
        for clients in self.chunks():
            part = rows[clients]
            total += (weights[clients].reshape(-1, *[1] * len(self.shape)) * part).sum(axis=0)
        return total.astype(self.dtype, copy=False)

    def rows_at(self, x: Array, *, gradients: bool) -> Array:
        """Return the values, or the gradients, of all clients at a point, for this package alone."""
        self.check(x, np.arange(0), shared=True)
        point = digest([x])
        parts = self.answers.lacking(point, gradients=gradients, together=self.together)
        if parts:
            found = self.engine.at(x, parts, self.features)
            self.answers.keep(point, {part: _known(one) if part == "values" else one for part, one in found.items()})
        return self.answers["gradients" if gradients else "values", point]

    @property
    def smooth(self) -> bool:
        return bool(np.isfinite(self._lipschitz).all())

    def lipschitz(self) -> Array:
        return self._lipschitz

    def lipschitz_in(self, factor: LinOp) -> Array:
        return self.engine.constants(factor, None, self.features)

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        return self.engine.constants(factor, batch_size, self.features)

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        # Clients compute with theirs; whether they can is all that a server asks.
        return np.empty((0, *x.shape, *x.shape)) if self._facts.hessians and not len(clients) else None

    def slope_bounds(self, clients: IntArray) -> Array | None:
        # As for hessians.
        bounded = self._facts.duals and self.family in BOUNDED and not len(clients)
        return np.empty((0, self.shape[-1])) if bounded else None

    @property
    def has_duals(self) -> bool:
        """Whether the conjugate of the loss of a row is known."""
        return self._facts.duals

    @property
    def can_restrict(self) -> bool:
        return self._facts.restricts

    @property
    def is_convex(self) -> bool:
        return self._facts.convex

    def restrict(self, features: IntArray) -> RemoteLosses:
        mask = Announced.mask(features, self.shape[-1])
        return self.engine.ask_facts(self.engine.masks.keep(features, mask))

    def constants(self) -> tuple[Array, ...]:
        return tuple(self._facts.constants)

    def dual_points(self, x: Array, weights: Array) -> Any:
        from fpdfp.cohorts.remote_losses import RemoteDuals

        return RemoteDuals(self, x, weights) if self.has_duals else None


def _known(values: Array) -> Array:
    """Return values unchanged, infinite where sites have said that a point is outside the domain of their loss."""
    return np.where(values >= OUTSIDE / 2, np.inf, values)


def _compare_features(sites: Sequence[str], features: Sequence[IntArray]) -> None:
    """Refuse sites whose features have other names, or stand in another order."""
    if not any(len(one) for one in features):
        log.warning(
            "no site names its features (feature_names= of its losses): that columns are the same is not checked"
        )
    for site, found in zip(sites, features, strict=True):
        wanted = "sites must have the same features in the same order"
        if len(found) != len(features[0]):
            named, unnamed = (site, sites[0]) if len(found) else (sites[0], site)
            raise MessageError(f"{wanted}: {named} names its features, but {unnamed} does not (feature_names=)")
        different = np.flatnonzero(found != features[0])
        if different.size:
            order = "in another order" if np.array_equal(np.sort(found), np.sort(features[0])) else "with other names"
            shown = ", ".join(map(str, different[:10])) + (", …" if different.size > 10 else "")
            raise MessageError(
                f"{wanted}: {site} has them {order} than {sites[0]}; they differ at the columns {shown} (from 0)"
            )
