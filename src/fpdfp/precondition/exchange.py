"""Preconditioners from what clients send once."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.question import Points, Question, question, reveals
from fpdfp.cohorts.serialization import OUTSIDE
from fpdfp.compress import QSGD, Compressor, Full, Natural
from fpdfp.precondition.base import Announced, Preconditioner, full, lower, read_mask
from fpdfp.precondition.coordinates import Fourier, Scaling, Whitening
from fpdfp.precondition.quantized import SLOPE_LEVELS, filled
from fpdfp.problem import LocalLosses

Kind = Literal["auto", "moments", "diagonal", "fourier"]
KINDS: tuple[Kind, ...] = ("auto", "moments", "diagonal", "fourier")
#: The most levels of a slope, and twice what rounding to float32 may add to a scale.
MOST_LEVELS, SCALE_ROUNDING = (1 << 31) - 2, 2.0**-23
#: Fourth powers of bounds of features are sent within 2⁻¹²⁰ and 2¹²⁰, and entries of slopes up to a size.
LARGEST_POWER, LARGEST_SLOPE = 120, 1e17


class Moments(NamedTuple):
    """The message of a client: the lower triangle of the bound of its Hessian."""

    triangle: Array


class Diagonal(NamedTuple):
    """The message of a client: the diagonal of the bound of its Hessian."""

    diagonal: Array


class Response(NamedTuple):
    """The message of a client: its response to an impulse, and its Lipschitz constant."""

    response: Array
    lipschitz: Array


Once = Moments | Diagonal | Response


@question("exact_moments")
@dataclasses.dataclass(frozen=True)
class Exact(Question):
    """Each client sends what a preconditioner of a kind is made of, in full precision."""

    kind: Kind

    reveals = reveals(settings="kind", uses="curvatures curvature_diagonals gradients lipschitz")

    def __post_init__(self) -> None:
        _checks.choice("kind", self.kind, KINDS)

    @property
    def tells_pairs(self) -> bool:
        """Whether products of pairs of features are revealed: not by a diagonal or by one column of a convolution."""
        return self.kind not in ("diagonal", "fourier")

    def count_numbers(self, shape: Shape) -> int:
        """The number of numbers that a client works with."""
        return shape[-1] ** 2 if self.kind == "moments" else math.prod(shape)

    def answer(self, local: LocalLosses) -> Once:
        """Return what clients send."""
        return measure(self.kind, local)


class Bounds(NamedTuple):
    """The message of a client: the fourth power of a bound for each feature."""

    powers: Array


@question("feature_bounds")
@dataclasses.dataclass(frozen=True)
class FeatureBounds(Question):
    """All clients send bounds for each feature: of |∂f_i/∂x_j| or of ∂²f_i/∂x_j².

    Their fourth powers are rounded up to powers of two, whose exponents are sent: so bounds grow by less than a fifth.
    """

    kind: Literal["slopes", "curvatures"]

    reveals = reveals(settings="kind", uses="slope_bounds curvature_diagonals")

    def __post_init__(self) -> None:
        _checks.choice("kind", self.kind, ("slopes", "curvatures"))

    def count_numbers(self, shape: Shape) -> int:
        """The number of numbers that a client works with."""
        return math.prod(shape)

    def messages(self, shape: Shape) -> dict[str, tuple[Compressor, Shape]]:
        """Return how the field is sent, and its shape."""
        return {"powers": (Natural(), shape[-1:])}

    def answer(self, local: LocalLosses) -> Bounds:
        """Return what clients send."""
        bounds = local.slope_bounds() if self.kind == "slopes" else local.curvature_diagonals()
        if bounds is None:
            raise ValueError(f"losses must have bounds of their {self.kind}")
        fractions, exponents = np.frexp(bounds**4)
        powers = np.ldexp(1.0, np.clip(exponents - (fractions == 0.5), -LARGEST_POWER, LARGEST_POWER))
        return Bounds(np.where(bounds > 0, powers, 0.0).astype(np.float32))

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Bounds:
        """Return the sums of the bounds; infinite where one of them may be larger than could be sent."""
        powers = np.abs(sent[0].astype(np.float64))
        bounds = np.where(powers < 2.0**LARGEST_POWER, powers, np.inf) ** 0.25
        return Bounds(bounds.sum(axis=0))


class Gradient(NamedTuple):
    """The message of a client: its gradient at a point."""

    slope: Array


class Looked(NamedTuple):
    """The message of a client: its gradient at a point, and its loss there."""

    slope: Array
    value: Array


class Summed(NamedTuple):
    """The sums of what clients sent, and by how much rounding to levels may have changed any entry of the slope."""

    slope: Array
    error: Array
    value: Array


@question("slopes")
@dataclasses.dataclass(frozen=True)
class Slopes(Question):
    """Each client sends its gradient at a point in some levels, of which the server knows the error.

    Attributes
    ----------
    x
        The point, None for zero.
    levels
        The levels of an entry, from zero to the largest entry of a client.
    mask
        A one for each feature that is requested; None for all of them.
    values
        Whether losses are requested as well.
    """

    x: Announced | None = None
    levels: int = SLOPE_LEVELS
    mask: Announced | None = None
    values: bool = False

    reveals = reveals(points="x", settings="levels mask values", uses="gradients values")
    sent_dtype = np.dtype(np.float64)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _checks.integer("levels", self.levels, at_least=2, at_most=MOST_LEVELS))

    @property
    def sent_bits(self) -> int:
        """The bits of the question."""
        return sum(one.bits for one in (self.x, self.mask) if one is not None)

    def points_at(self, shape: Shape) -> Points:
        """Return the point."""
        x = np.zeros(shape) if self.x is None else self.x.array
        if x.shape != shape:
            raise ValueError(f"x must have shape {shape}, got {x.shape}")
        return Points(x[None], np.array([-1]))

    def count_numbers(self, shape: Shape) -> int:
        """The number of numbers that a client works with."""
        return math.prod(shape)

    def _features(self, shape: Shape) -> IntArray | None:
        """Return the features that are requested, None for all."""
        if self.mask is None:
            return None
        return read_mask(self.mask, shape[-1])

    def messages(self, shape: Shape) -> dict[str, tuple[Compressor, Shape]]:
        """Return how the field is sent, and its shape."""
        features = self._features(shape)
        sent = shape if features is None else (*shape[:-1], len(features))
        slope = (QSGD(self.levels, block=None, norm="max"), sent)
        return {"slope": slope} | ({"value": (Full(), ())} if self.values else {})

    def answer(self, local: LocalLosses) -> Gradient | Looked:
        """Return what clients send."""
        losses = local.losses
        x = losses.xp.asarray(self.points_at(losses.shape).x[0], dtype=losses.dtype)
        with np.errstate(all="ignore"):
            slope = to_host(local.gradients(x)).astype(np.float64)
            values = to_host(local.values(x)).astype(np.float64) if self.values else None
        features = self._features(losses.shape)
        if features is not None:
            slope = slope[..., features]
        slope = np.nan_to_num(np.clip(slope, -LARGEST_SLOPE, LARGEST_SLOPE))
        if values is None:
            return Gradient(slope)
        return Looked(slope, np.nan_to_num(values, nan=OUTSIDE, posinf=OUTSIDE).clip(max=OUTSIDE))

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Summed:
        """Return the sums over clients, and the error of the slope: at most a level of each client.

        The largest entry that a client sends may be a level below its scale, which float32 has rounded up. Entries that
        may have been too large to be sent have an infinite error.
        """
        slope = sent.slope.astype(np.float64)
        scales = np.abs(slope).reshape(len(slope), -1).max(axis=1, initial=0.0)
        error = (1.0 + SCALE_ROUNDING) * scales.sum() / (self.levels - 1)
        error = np.inf if self.values and scales.max(initial=0.0) >= LARGEST_SLOPE / 2 else error
        value = np.where(sent.value < OUTSIDE / 2, sent.value, np.inf).sum() if self.values else 0.0
        return Summed(slope.sum(axis=0), np.asarray(error), np.asarray(value))


def divide(sums: Once, count: int) -> Once:
    """Return the mean over a given number of clients; messages from elsewhere are recognised by their fields."""
    kind = next(kind for kind in (Moments, Diagonal, Response) if kind._fields == sums._fields)
    return kind(*(part / count for part in sums))


def measure(kind: Kind, local: LocalLosses) -> Once:
    """Return what each of some clients sends for a preconditioner of this kind."""
    losses = local.losses
    if kind == "fourier":
        # For quadratic losses the difference is the Hessian's column, for others an estimate of it.
        impulse = losses.xp.zeros(losses.shape, dtype=losses.dtype)
        impulse[tuple(n // 2 for n in losses.shape)] = 1.0
        responses = local.gradients(impulse) - local.gradients(np.zeros_like(impulse))
        return Response(responses.astype(np.float32), local.lipschitz()[:, None])
    bounds = local.curvature_diagonals() if kind == "diagonal" else local.curvatures()
    if bounds is None:
        raise ValueError(
            f"preconditioner={kind!r} needs losses with known bounds of their Hessians (linear models; 'moments' for "
            "at most 4,000 features); give one of fpdfp.precondition, or None"
        )
    if kind == "diagonal":
        return Diagonal(as_sent(bounds))
    return Moments(as_sent(lower(bounds)))


def as_sent(numbers: Array) -> Array:
    """Return numbers in float32, in which they are sent, unless that cannot hold them."""
    sizes = np.abs(numbers)
    beyond = sizes.max(initial=0.0) > 1e30 or sizes.max(initial=0.0) < 1e-20
    return numbers if beyond else numbers.astype(np.float32)


def build(means: Once, shape: Shape) -> Preconditioner:
    """Return the preconditioner for x of a shape that the means over all clients of what they sent stand for."""
    if isinstance(means, Response):
        made = Fourier(to_host(means.response).astype(np.float32))
        _ = made.factor  # refuses a response that is none, before anyone relies on it
        return made
    if isinstance(means, Diagonal):
        return Scaling(filled(means.diagonal), rows_of(shape))
    return whitening_of(means.triangle, shape)


def rows_of(shape: Shape) -> int | None:
    """The number of rows that an x has for which clients send what one row has; None for a vector."""
    return shape[0] if len(shape) == 2 else None


def whitening_of(triangle: Array, shape: Shape) -> Whitening:
    """Return the whitening of the mean of the clients' bounds, given by its lower triangle.

    Rounding the entries of a positive semidefinite H to float32, and the entries of its root, changes it by less than
    d 2⁻²¹ diag(H), which is added. So the result is above H, and positive definite also where H is not.
    """
    hessian = full(triangle)
    d, diagonal = len(hessian), filled(np.diag(hessian))
    hessian[np.diag_indices(d)] = diagonal * (1.0 + d * 2.0**-21)
    return Whitening(hessian, smoothness=1.0, rows=rows_of(shape))
