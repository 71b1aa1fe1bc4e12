"""Questions about losses: what a server must know of them, and their values, gradients and dual points."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.bounds import MANY
from fpdfp.cohorts.question import Points, Question, Rows, question, reveals
from fpdfp.cohorts.serialization import OUTSIDE
from fpdfp.compress import QSGD, Compressor, Natural
from fpdfp.compress.wire import DEFAULT_LIMIT
from fpdfp.errors import MessageError
from fpdfp.linops import LinOp
from fpdfp.losses.base import Form, InformationSums
from fpdfp.losses.linear import LinearModel, RowDuals
from fpdfp.precondition import Preconditioner
from fpdfp.precondition.base import Announced, lower, read_mask
from fpdfp.precondition.quantized import powers_above, weights
from fpdfp.problem import LocalLosses

#: What a site may claim at most: the samples of a client, and any number.
LARGEST_SIZE, LARGEST_NUMBER = 1 << 40, 1e150


@dataclasses.dataclass(frozen=True)
class LossFacts:
    """Facts of a site's losses, and their values at a probe and at zero."""

    family: str
    shape: Shape
    dtype: Literal["<f4", "<f8"]
    sizes: IntArray
    form: Form
    batches: bool
    hessians: bool
    duals: bool
    restricts: bool
    convex: bool
    features: IntArray
    constants: list[Array]
    probe: Array
    values: Array

    unbounded = ("features",)  # digests

    def __post_init__(self) -> None:
        if min(self.shape, default=1) < 1 or math.prod(self.shape) > DEFAULT_LIMIT:
            raise MessageError(f"shape must be lengths of at least 1, of at most {DEFAULT_LIMIT:,} entries in all")
        rows = (len(self.sizes),) if self.sizes.ndim == 1 and self.sizes.size else (1,)
        if self.sizes.shape != rows or not ((self.sizes >= 1) & (self.sizes <= LARGEST_SIZE)).all():
            raise MessageError("sizes must have the number of samples of each client")
        for name in ("probe", "values"):
            if getattr(self, name).shape != rows:
                raise MessageError(f"{name} must be numbers of shape {rows}")
            if float(abs(getattr(self, name)).max()) > LARGEST_NUMBER:
                raise MessageError(f"{name} must not be too large")
        if self.features.shape not in ((0,), self.shape[-1:]):
            raise MessageError("features must be a digest of the name of each feature, or empty")


@question("facts")
@dataclasses.dataclass(frozen=True)
class Facts(Question):
    """Facts that the server needs before it can choose steps."""

    reveals = reveals(uses="values hessians")
    answers = LossFacts

    def points_at(self, shape: Shape) -> Points:
        """Return the probe, and zero."""
        dtype = np.dtype(np.float64)
        return Points(np.stack([probe(shape, dtype), np.zeros(shape)]), np.full(2, -1))

    def answer(self, local: LocalLosses) -> LossFacts:
        """Return what is known of the losses."""
        losses, clients = local.losses, local.clients
        zero = losses.xp.zeros(losses.shape, dtype=losses.dtype)
        return LossFacts(
            family=losses.family,
            shape=losses.shape,
            dtype="<f4" if losses.dtype == np.float32 else "<f8",
            sizes=losses.sizes,
            form=losses.form,
            batches=losses.supports_batches,
            hessians=losses.hessians(zero, np.arange(0)) is not None,
            duals=isinstance(losses, LinearModel) and losses.has_duals,
            restricts=losses.can_restrict,
            convex=losses.is_convex,
            features=losses.feature_digests,
            constants=[np.asarray(one, dtype=np.float64) for one in losses.constants()],
            probe=bounded(losses.values(losses.xp.asarray(probe(losses.shape, losses.dtype)), clients)),
            values=bounded(losses.values(zero, clients)),
        )


@dataclasses.dataclass(frozen=True)
class LossBounds:
    """Lipschitz constants of the clients' gradients, infinite if missing, and a constant of convexity."""

    lipschitz: np.ndarray
    least_convexity: float

    def __post_init__(self) -> None:
        if not ((self.lipschitz >= 0) & ((self.lipschitz <= LARGEST_NUMBER) | np.isposinf(self.lipschitz))).all():
            raise MessageError("lipschitz must be at least 0")
        if not 0 <= self.least_convexity <= LARGEST_NUMBER:
            raise MessageError("least_convexity must be at least 0")


@question("bounds")
@dataclasses.dataclass(frozen=True)
class Bounds(Question):
    """The largest and the smallest curvature of the losses.

    A question of its own: of these the server takes maxima, minima and means over clients, and a cohort that hides what
    single clients answer can answer it with these alone.
    """

    reveals = reveals(uses="lipschitz")
    answers = LossBounds

    def answer(self, local: LocalLosses) -> LossBounds:
        """Return the bounds of all clients."""
        return LossBounds(local.losses.lipschitz(), local.losses.least_convexity)


@dataclasses.dataclass(frozen=True)
class LossConstants:
    """A number for each client."""

    constants: Array

    def __post_init__(self) -> None:
        if not ((self.constants >= 0) & (self.constants <= LARGEST_NUMBER)).all():
            raise MessageError("constants must be at least 0 and not too large")


@question("constants")
@dataclasses.dataclass(frozen=True)
class Constants(Question):
    """Lipschitz constants in the coordinates of a factor, or of a preconditioner; or what mini-batches add to them."""

    factor: LinOp | None = None
    coordinates: Preconditioner | None = None
    batch_size: int | None = None

    reveals = reveals(settings="factor coordinates batch_size", uses="lipschitz_in batch_smoothness")
    answers = LossConstants

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise MessageError(f"batch_size must be at least 1, got {self.batch_size}")

    def answer(self, local: LocalLosses) -> LossConstants:
        """Return the constants of all clients."""
        losses = local.losses
        check_coordinates(self.coordinates, losses.shape)
        factor = self.factor if self.coordinates is None else self.coordinates.factor
        check_factor(factor, losses.shape)
        if self.batch_size is not None:
            return LossConstants(losses.batch_smoothness(self.batch_size, factor))
        if factor is None:
            raise MessageError("Lipschitz constants were requested in coordinates that the losses lack")
        return LossConstants(losses.lipschitz_in(factor))


def check_coordinates(coordinates: Preconditioner | None, shape: Shape) -> None:
    """Refuse coordinates of points that the losses do not have, before a factor is built of them."""
    if coordinates is not None and coordinates.shape != shape:
        raise MessageError(f"coordinates must be for arrays of shape {shape}, got some for {coordinates.shape}")


def check_factor(factor: LinOp | None, shape: Shape) -> None:
    """Refuse a map that does not take points of the losses to such."""
    if factor is not None and not factor.in_shape == factor.out_shape == shape:
        raise MessageError(f"a factor must map arrays of shape {shape} to such, got {factor!r}")


@question("at")
@dataclasses.dataclass(frozen=True)
class At(Question):
    """f_i(x), ∇f_i(x) or both."""

    x: Array
    parts: list[Literal["values", "gradients"]]

    reveals = reveals(points="x", settings="parts", uses="values gradients")
    answers = Rows

    def answer(self, local: LocalLosses) -> Rows:
        """Return what losses give."""
        losses = local.losses
        x, given = losses.xp.asarray(self.x), {"values": losses.values, "gradients": losses.gradients}
        with np.errstate(all="ignore"):
            found: Rows = {part: to_host(given[part](x, local.clients)) for part in self.parts}
        if "values" in found:
            found["values"] = bounded(found["values"])
        return found


def bounded(values: Array) -> Array:
    """Return values as they can be sent: a large number stands for points outside the domain of a loss."""
    return np.nan_to_num(values, nan=OUTSIDE, posinf=OUTSIDE).clip(max=OUTSIDE)


@dataclasses.dataclass(frozen=True)
class SumsAtDuals:
    """A site's part of what was asked of dual points; a gap below 0 stands for an infinite one."""

    gradient: Array | None = None
    sizes: Array | None = None
    columns: Array | None = None
    curvature: Array | None = None
    gap: Array | None = None
    hessian: Array | None = None


@question("duals")
@dataclasses.dataclass(frozen=True)
class Duals(Question):
    """Sums from which a bound of F(x) − F* is computed; x belongs to the digest ``point``.

    ``direction`` has an axis more for curvatures: several directions. A gradient with a ``scale`` comes with the gap.
    """

    point: bytes
    part: Literal["start", "gradient", "curvature", "gap", "hessian"]
    weights: Array
    direction: Array | None = None
    scale: float | None = None
    x: Array | None = None

    reveals = reveals(points="x", weights="weights", settings="point part direction scale", uses="dual_points")
    answers = SumsAtDuals

    @property
    def tells_pairs(self) -> bool:
        """Whether the Hessian is wanted, or its products with several directions."""
        several = self.part == "curvature" and self.direction is not None and len(self.direction) > 1
        return self.part == "hessian" or several

    def answer(self, local: LocalLosses) -> SumsAtDuals:
        """Return sums over the site's clients."""
        losses, part = local.losses, self.part
        weights = np.asarray(self.weights, dtype=np.float64)
        direction = None if self.direction is None else np.asarray(self.direction, np.float64)
        one = direction
        if direction is not None and part == "curvature":
            if not 1 <= len(direction) <= MANY:
                raise MessageError(f"a question about curvatures must have 1 to {MANY} directions")
            one = direction[0]
        for name, array in (("x", self.x), ("direction", one)):
            if array is not None and array.shape != losses.shape:
                raise MessageError(f"{name} must have shape {losses.shape}, got {array.shape}")
        if weights.shape != (losses.n_clients,):
            raise MessageError("a question about dual points must have a weight for each client")
        duals = losses.dual_points(np.asarray(self.x, np.float64), weights)
        if not isinstance(duals, RowDuals):
            raise MessageError(f"{losses.family} has no dual points")
        if part == "start":
            return SumsAtDuals(gradient=duals.gradient(), sizes=np.asarray(duals.sizes()), columns=duals.columns)
        if part == "curvature" and direction is not None:
            return SumsAtDuals(curvature=duals.hessian_products(direction))
        gap = None if self.scale is None else duals.gap(direction, self.scale)
        told = None if gap is None else np.array(gap if np.isfinite(gap) else -1.0)  # messages hold finite numbers
        if part == "gradient":
            return SumsAtDuals(gradient=duals.gradient(direction), gap=told)
        if part == "gap" and told is not None:
            return SumsAtDuals(gap=told)
        if part == "hessian":
            matrix = duals.hessian()
            return SumsAtDuals() if matrix is None else SumsAtDuals(hessian=lower(matrix))
        raise MessageError("a question about dual points is one for start, gradient, curvature, gap or hessian")


@dataclasses.dataclass(frozen=True)
class AtCoefficients(Question):
    """Each client sends numbers at the coefficients of a model.

    Attributes
    ----------
    x
        The coefficients.
    """

    x: Array

    #: What losses that cannot answer lack.
    lacking: ClassVar[str]

    def __post_init__(self) -> None:
        if self.x.dtype != np.float64 or not np.isfinite(self.x).all():
            raise ValueError("x must be finite numbers in float64")

    def answer(self, local: LocalLosses) -> Any:
        """Return what clients send."""
        if self.x.shape != local.losses.shape:
            raise MessageError(f"x must be a point of shape {local.losses.shape}, got {self.x.shape}")
        found = self.find(local.losses, local.clients)
        if found is None:
            raise MessageError(f"{local.losses.family} has no {self.lacking}")
        return found

    @abc.abstractmethod
    def find(self, losses: Any, clients: IntArray) -> Any:
        """Return the numbers, None where the losses have none."""


@question("information")
@dataclasses.dataclass(frozen=True)
class Informations(AtCoefficients):
    """The score, the expected information and some numbers; with ``robust`` the squares of the rows' scores too."""

    robust: bool = True

    reveals = reveals(points="x", settings="robust", uses="sums_at")
    tells_pairs = True
    lacking = "likelihood"

    def find(self, losses: Any, clients: IntArray) -> InformationSums | None:
        """Return the sums of the score and of its squares."""
        found: InformationSums | None = losses.sums_at(self.x, clients, robust=self.robust)
        return found


class Numbers(NamedTuple):
    """Some numbers of each client."""

    numbers: Array


@question("overdispersion")
@dataclasses.dataclass(frozen=True)
class Overdispersions(AtCoefficients):
    """Sums from which θ of a model of counts is found, with its score and information at ``theta``.

    They go along with an expected information, and are refused where that is; see
    :func:`fpdfp.families.counts.theta_sums`.
    """

    theta: float

    reveals = reveals(points="x", settings="theta", uses="overdispersion_at")
    tells_pairs = True
    lacking = "counts"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.theta < np.inf:
            raise ValueError("theta must be positive")

    def find(self, losses: Any, clients: IntArray) -> Numbers | None:
        """Return the sums."""
        found = losses.overdispersion_at(self.x, clients, self.theta)
        return None if found is None else Numbers(found)


class JeffreysSums(NamedTuple):
    """Each client's part of the gradient of ½ log det I."""

    gradient: Array


@question("jeffreys")
@dataclasses.dataclass(frozen=True)
class Jeffreys(AtCoefficients):
    """The gradient of ½ log det I, of which Firth's penalised score is made.

    Third moments go along with an expected information, and are refused where that is. ``inverse`` is the inverse of
    the information of all clients.
    """

    inverse: Array

    reveals = reveals(points="x", settings="inverse", uses="jeffreys_at")
    tells_pairs = True
    lacking = "penalty of Firth"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inverse.dtype != np.float64 or not np.isfinite(self.inverse).all():
            raise ValueError("inverse must be finite numbers in float64")

    def find(self, losses: Any, clients: IntArray) -> JeffreysSums | None:
        """Return the parts of the gradient."""
        if self.inverse.shape != (self.x.size, self.x.size):
            raise MessageError(f"inverse must be a matrix for {self.x.size} coefficients, got {self.inverse.shape}")
        found = losses.jeffreys_at(self.x, clients, self.inverse)
        return None if found is None else JeffreysSums(found)


@question("spread")
@dataclasses.dataclass(frozen=True)
class Spread(AtCoefficients):
    """The weight of the rows, and Σ w K(r/h) with the residuals r of a quantile, the kernel K and the model's width h.

    A point at which few rows share the curvature is refused as for gradients.
    """

    reveals = reveals(points="x", uses="spread_at")
    lacking = "quantile"

    def find(self, losses: Any, clients: IntArray) -> Numbers | None:
        """Return the sums."""
        found = losses.spread_at(self.x, clients)
        return None if found is None else Numbers(found)


#: What may be asked at a point, and without one.
Part = Literal["value", "gradient", "hessian", "information", "start", "level", "curvature", "slopes", "facts"]
#: Parts that are about no point.
ANYWHERE = ("start", "level", "curvature", "slopes", "facts")


class SumsAtPoint(NamedTuple):
    """Each client's part of the sums; parts that are not requested are empty.

    Attributes
    ----------
    outside
        Whether a loss is not finite at the point; its numbers are then zeros.
    value, gradient, matrix
        The loss, its gradient (or the slope of a model to start from), and the lower triangle of a matrix.
    facts
        The number of rows, and a flag if the Hessian has no bound; ``gradient`` is the diagonal of such a bound.
    """

    outside: Array
    value: Array
    gradient: Array
    matrix: Array
    facts: Array


@question("sums_at")
@dataclasses.dataclass(frozen=True)
class SumsAt(Question):
    """Sums over clients, each with its weight: losses, gradients and Hessians at a point, or what a run starts from.

    Attributes
    ----------
    parts
        What is asked: ``"value"``, ``"gradient"`` and ``"hessian"`` or ``"information"`` at a point; the models that a
        fit may start from; the bound of the Hessian; bounds of slopes; or the facts.
    x
        The point.
    """

    parts: tuple[Part, ...]
    x: Array | None = None

    reveals = reveals(
        points="x", settings="parts",
        uses="values gradients hessians informations start_model curvatures curvature_diagonals slope_bounds",
    )  # fmt: skip

    def __post_init__(self) -> None:
        anywhere = [part for part in self.parts if part in ANYWHERE]
        if not self.parts or (len(self.parts) > 1 and anywhere) or (self.x is None) != bool(anywhere):
            raise MessageError("sums must be of a point, or one of what is about no point")
        if {"hessian", "information"} <= set(self.parts):
            raise MessageError("parts must have one matrix at most")
        if self.x is not None and (self.x.dtype != np.float64 or not np.isfinite(self.x).all()):
            raise MessageError("x must be finite numbers in float64")

    @property
    def tells_pairs(self) -> bool:
        """Whether a matrix is requested."""
        return bool({"hessian", "information", "curvature", "start", "level"} & set(self.parts))

    def answer(self, local: LocalLosses) -> SumsAtPoint:
        """Return what clients add to the sums."""
        losses, parts, n = local.losses, self.parts, len(local.clients)
        value, gradient, matrix = np.zeros((n, 0)), np.zeros((n, 0)), np.zeros((n, 0))
        outside, facts = np.zeros((n, 1)), np.zeros((n, 0))
        if parts == ("facts",):
            # not Lipschitz constants: sums of largest eigenvalues in other coordinates would tell each term
            bounds = local.curvature_diagonals()
            facts = np.column_stack([losses.sizes, np.full(n, bounds is None)])
            gradient = gradient if bounds is None else bounds
        elif parts == ("curvature",):
            bounds = local.curvatures()
            if bounds is None:
                raise MessageError(f"{losses.family} has no bound of its Hessian")
            matrix = lower(bounds)
        elif parts == ("slopes",):
            slopes = local.slope_bounds()
            if slopes is None:
                raise MessageError(f"{losses.family} has no bounds of its slopes")
            gradient = slopes
        elif parts in (("start",), ("level",)):
            started = local.start_model(level=parts == ("level",))
            if started is None:
                outside[:] = 1.0
            else:
                gradient, matrix = started[0], lower(started[1])
        else:
            outside, value, gradient, matrix = self._at_point(local)
        return SumsAtPoint(outside, value, gradient.reshape(n, -1), matrix, facts)

    def _at_point(self, local: LocalLosses) -> tuple[Array, Array, Array, Array]:
        """Return what is asked at the point, zeros outside the domain."""
        x, n = self.x, len(local.clients)
        if x is None or x.shape != local.losses.shape:
            raise MessageError(f"x must be a point of shape {local.losses.shape}")
        value, gradient, matrix = np.zeros((n, 0)), np.zeros((n, 0)), np.zeros((n, 0))
        with np.errstate(all="ignore"):
            if "value" in self.parts:
                value = local.values(x)[:, None]
            if "gradient" in self.parts:
                gradient = local.gradients(x).reshape(n, -1)
            if "hessian" in self.parts or "information" in self.parts:
                found = local.hessians(x) if "hessian" in self.parts else local.informations(x)
                if found is None:
                    raise MessageError(f"{local.losses.family} has no Hessian")
                matrix = lower((found + found.swapaxes(1, 2)) / 2.0)
        finite = np.ones(n, dtype=bool)
        for one in (value, gradient, matrix):
            finite &= np.isfinite(one).all(axis=1)
        value, gradient, matrix = (np.where(finite[:, None], one, 0.0) for one in (value, gradient, matrix))
        return (~finite).astype(np.float64)[:, None], value, gradient, matrix


#: The most levels of second derivatives: more than single precision distinguishes.
MOST_LEVELS = 1 << 23


class LocalModel(NamedTuple):
    """The message of a client: powers of two above the diagonal of its Hessian, and its lower triangle."""

    sizes: Array
    triangle: Array


class ModelSum(NamedTuple):
    """The sum over clients of the lower triangles of their Hessians."""

    triangle: Array


@question("local_models")
@dataclasses.dataclass(frozen=True)
class LocalModels(Question):
    """The curvature of each client's loss in some features, at a point that is zero elsewhere.

    Attributes
    ----------
    x
        The point, None for zero.
    mask
        A one for each of these features; None for all.
    levels
        With how many levels second derivatives are sent.
    """

    x: Announced | None = None
    mask: Announced | None = None
    levels: int = 2047

    reveals = reveals(points="x", settings="mask levels", uses="restrict hessians")
    tells_pairs = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _checks.integer("levels", self.levels, at_least=1, at_most=MOST_LEVELS))

    @property
    def sent_bits(self) -> int:
        """The bits of the question."""
        return sum(one.bits for one in (self.x, self.mask) if one is not None)

    def points_at(self, shape: Shape) -> Points:
        """Return the point, with all features."""
        x = np.zeros(shape) if self.x is None else self.x.array.astype(np.float64)
        numbers = self._numbers(shape)
        if x.shape != shape or np.delete(x, numbers).any():
            raise MessageError(f"x must be a point of shape {shape} that is zero in features that are not requested")
        return Points(x[None], np.array([-1]))

    def _numbers(self, shape: Shape) -> IntArray:
        """Return the features of x of a shape that are requested."""
        if len(shape) != 1:
            raise MessageError(f"losses of shape {shape} have no model in some features")
        return np.arange(shape[0]) if self.mask is None else read_mask(self.mask, shape[0])

    def count_numbers(self, shape: Shape) -> int:
        """The number of numbers that a client works with."""
        return len(self._numbers(shape)) ** 2

    def messages(self, shape: Shape) -> dict[str, tuple[Compressor, Shape]]:
        """Return how the fields are sent, and their shapes."""
        count = len(self._numbers(shape))
        triangle = QSGD(self.levels, block=None, norm="max"), (count * (count + 1) // 2,)
        return {"sizes": (Natural(), (count,)), "triangle": triangle}

    def answer(self, local: LocalLosses) -> LocalModel:
        """Return what clients send."""
        losses = local.losses
        numbers = self._numbers(losses.shape)
        if not losses.can_restrict:
            raise MessageError(f"{losses!r} has no model in some features")
        x = self.points_at(losses.shape).x[0][numbers]
        few = losses if self.mask is None else losses.restrict(numbers)
        matrices = few.hessians(x.astype(few.dtype), local.clients)
        if matrices is None:
            raise MessageError(f"{losses!r} has no Hessians of {len(numbers)} features")
        matrices = local.weigh(matrices)
        sizes = powers_above(np.diagonal(matrices, axis1=1, axis2=2))
        triangles = np.clip(lower(matrices) / weights(sizes), -1.0, 1.0)
        return LocalModel(sizes.astype(np.float32), triangles.astype(np.float32))

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> ModelSum:
        """Return the sum of what clients sent."""
        return ModelSum((sent.triangle * weights(sent.sizes.astype(np.float64))).sum(axis=0))


def probe(shape: Shape, dtype: Any) -> Array:
    """Return a point at which losses that differ have different values."""
    return np.cos(np.arange(math.prod(shape))).reshape(shape).astype(dtype)
