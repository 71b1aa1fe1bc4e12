"""Losses whose data is elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.engines.checkpoint import probe
from fpdfp.engines.ledger import digest
from fpdfp.engines.remote_engine import RemoteEngine
from fpdfp.engines.traffic import Answers
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.linops.base import LinOp
from fpdfp.losses.base import Form, Losses
from fpdfp.rng import Draws

#: What a site may claim at most: the samples of a client, and any number.
LARGEST_SIZE, LARGEST_NUMBER = 1 << 40, 1e150
log = logging.getLogger("fpdfp.engines")
#: Families whose losses are never negative.
NONNEGATIVE = ("Logistic", "LeastSquares", "Softmax", "OperatorLeastSquares", "ProjectionLosses")


class RemoteLosses(Losses):
    """Losses whose data is at sites; the server knows what they have told it, and asks them for all else.

    Values and gradients at the point asked for last are kept, since more than one thing may be wanted there.
    """

    def __init__(self, engine: RemoteEngine, facts: Sequence[Mapping[str, Any]]) -> None:
        self.engine = engine
        first = facts[0]
        for name, fact in zip(engine.names, facts, strict=True):
            for what in ("family", "shape", "dtype", "form", "batches", "hessians", "duals"):
                if fact[what] != first[what]:
                    raise MessageError(
                        f"sites must have losses of the same kind: {what} is {fact[what]!r} at {name} and "
                        f"{first[what]!r} at {engine.names[0]}"
                    )
        _compare_features(engine.names, [fact["features"] for fact in facts])
        self._features: IntArray = first["features"]
        self._family, self._batches = str(first["family"]), bool(first["batches"])
        self._form: Form = first["form"]
        self.shape, self.dtype = tuple(map(int, first["shape"])), np.dtype(first["dtype"])
        self.sizes = np.concatenate([np.asarray(fact["sizes"], dtype=np.int64) for fact in facts])
        self._lipschitz: Array = np.concatenate([np.asarray(fact["lipschitz"], dtype=np.float64) for fact in facts])
        self._convexity = min(float(fact["least_convexity"]) for fact in facts)
        self._has_hessians, self._has_duals = bool(first["hessians"]), bool(first["duals"])
        self._constants = tuple(np.asarray(one) for one in first["constants"])
        self.lower_bound = 0.0 if self._family in NONNEGATIVE else -np.inf
        ends = np.cumsum([0, *(len(fact["sizes"]) for fact in facts)])
        #: The numbers of each site's clients.
        self.numbers = [np.arange(ends[i], ends[i + 1]) for i in range(len(facts))]
        #: Whether gradients are asked for along with values, since both are needed: at the end of a run.
        self.together = False
        #: The site of each client, with the client's number there where the site has several.
        self.client_names = np.array(
            [
                name if len(fact["sizes"]) == 1 else f"{name}, {i}"
                for name, fact in zip(engine.names, facts, strict=True)
                for i in range(len(fact["sizes"]))
            ]
        )
        points = {"probe": probe(self.shape, self.dtype), "values": np.zeros(self.shape, dtype=self.dtype)}
        self.answers: Answers[Array] = Answers(
            {
                ("values", digest([point])): np.concatenate([fact[name] for fact in facts])
                for name, point in points.items()
            }
        )

    def __repr__(self) -> str:
        return f"{self.family} of {self.n_clients} clients at {len(self.engine.names)} sites"

    @property
    def family(self) -> str:
        return self._family

    @property
    def feature_digests(self) -> IntArray:
        return self._features

    @property
    def form(self) -> Form:
        return self._form

    @property
    def nearly_convolution(self) -> bool:
        return self._form == "convolution"

    @property
    def supports_batches(self) -> bool:
        return self._batches

    @property
    def least_convexity(self) -> float:
        return self._convexity

    def values(self, x: Array, clients: IntArray) -> Array:
        self.check(x, clients, shared=True)
        return self._at(x, gradients=False)[clients]

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        self.check(x, clients, shared=True)
        if batch_size is not None:
            raise ArgumentError(
                "batch_size", "must be None: clients whose data is elsewhere draw mini-batches themselves"
            )
        return self._at(x, gradients=True)[clients]

    def _at(self, x: Array, *, gradients: bool) -> Array:
        point = digest([x])
        parts = self.answers.lacking(point, gradients=gradients, together=self.together)
        if parts:
            self.answers.keep(point, self.engine.at(x, parts))
        return self.answers["gradients" if gradients else "values", point]

    def lipschitz(self) -> Array:
        return self._lipschitz

    def lipschitz_in(self, factor: LinOp) -> Array:
        return self.engine.constants(factor, None)

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        return self.engine.constants(factor, batch_size)

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        # Clients compute with theirs; whether they can is all that a server asks.
        return np.empty((0, *x.shape, *x.shape)) if self._has_hessians and not len(clients) else None

    def constants(self) -> tuple[Array, ...]:
        return self._constants

    def dual_points(self, x: Array, weights: Array) -> Any:
        from fpdfp.engines.remote_duals import CURVATURES, RemoteDuals

        known = self._has_duals and self.family in CURVATURES
        return RemoteDuals(self.engine, self, x, weights) if known else None


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


def check_facts(facts: Mapping[str, Any]) -> None:
    """Refuse what a site says of its losses if it cannot be so."""
    kinds = {"family": str, "shape": list, "dtype": str, "form": str, "batches": bool, "hessians": bool}
    kinds |= {"duals": bool, "constants": list, "least_convexity": float}
    for name, kind in kinds.items():
        if not isinstance(facts[name], kind):
            raise MessageError(f"{name} must be a {kind.__name__}")
    shape, count = tuple(facts["shape"]), len(facts["sizes"])
    if any(type(n) is not int or not 1 <= n <= LARGEST_SIZE for n in shape):
        raise MessageError("shape must be a list of counts")
    shapes = {"sizes": (), "lipschitz": (), "probe": (), "values": ()}
    for name, rest in shapes.items():
        array = facts[name]
        if not isinstance(array, np.ndarray) or array.shape != (count, *rest) or array.dtype.kind not in "fi":
            raise MessageError(f"{name} must be numbers of shape {(count, *rest)}")
        if name != "lipschitz" and not (np.isfinite(array).all() and float(abs(array).max()) <= LARGEST_NUMBER):
            raise MessageError(f"{name} must be finite, and not too large")
    if (
        count < 1
        or facts["sizes"].dtype.kind != "i"
        or not ((facts["sizes"] >= 1) & (facts["sizes"] <= LARGEST_SIZE)).all()
    ):
        raise MessageError("sizes must say of each client how many samples it has")
    lipschitz = facts["lipschitz"]
    if not ((lipschitz >= 0) & ((lipschitz <= LARGEST_NUMBER) | np.isposinf(lipschitz))).all():
        raise MessageError("lipschitz must be at least 0")
    if not 0 <= facts["least_convexity"] <= LARGEST_NUMBER:
        raise MessageError("least_convexity must be at least 0")
    if facts["dtype"] not in ("<f4", "<f8") or facts["form"] not in get_args(Form):
        raise MessageError(f"dtype and form must be known, got {facts['dtype']!a} and {facts['form']!a}")
    features = facts["features"]
    if not isinstance(features, np.ndarray) or features.dtype != np.int64 or features.shape not in ((0,), shape[-1:]):
        raise MessageError("features must be a digest of the name of each feature, or empty")
    if not all(isinstance(one, np.ndarray) and one.dtype.kind == "f" for one in facts["constants"]):
        raise MessageError("constants must be arrays")
