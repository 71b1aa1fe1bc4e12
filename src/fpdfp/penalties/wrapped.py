"""Penalties that users or other packages bring, and sums of penalties of parts of y."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from fpdfp import _checks
from fpdfp._array import namespace
from fpdfp._typing import Array, Sent, Shape
from fpdfp.errors import ArgumentTypeError
from fpdfp.linops.maps import check_shape
from fpdfp.penalties.base import Penalty

#: The sizes of the points at which value and prox are compared, and the steps of the prox.
SIZES_AND_STEPS = ((0.01, 0.02), (1.0, 1.0), (100.0, 3.0))
#: How far value and prox may disagree, relative to the numbers compared: a prox may be iterative.
LOOSE = 0.02
#: And how far a prox may be from the exact one, relative to its size.
INEXACT = 1e-6
#: The step of a prox that gives the nearest point of the domain, up to rounding.
SHORT = 1e-12
#: Rounding errors of a number that are tolerated.
ROUNDINGS = 64


class Wrapped(Penalty):
    """g given by ``prox(x, tau)`` and ``__call__(x)`` for vectors, as in PyProximal.

    A value may be a number, or True and False for the indicator of a set. The prox of the conjugate is Moreau's. The
    conjugate itself is not known, so certificates have residuals and no duality gap.

    Parameters
    ----------
    operator
        The object. Its prox must belong to a convex function and depend only on its arguments. Both are checked at a
        few points once the shape of Bx is known.

    Examples
    --------
    >>> import numpy as np
    >>> class HalfSquare:
    ...     def __call__(self, x):
    ...         return 0.5 * np.sum(x**2)
    ...     def prox(self, x, tau):
    ...         return x / (1 + tau)
    >>> g = Wrapped(HalfSquare()).bind((2,))
    >>> g.value(np.array([3.0, 4.0])), g.prox(np.array([3.0, 4.0]), 1.0)
    (12.5, array([1.5, 2. ]))
    """

    has_conjugate = False

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.shape: Shape | None = None
        #: How far from its set a projection may be, relative to its largest entry.
        self.accuracy = 0.0

    def bind(self, shape: Shape) -> Wrapped:
        bound = copy.copy(self)
        bound.shape = shape
        bound._examine(shape)
        return bound

    def value(self, y: Array) -> float:
        value = self._call(y)
        if value < math.inf:
            return value
        nearest = self.prox(y, SHORT)
        rounding = ROUNDINGS * float(np.finfo(y.dtype).eps)
        if float(abs(nearest - y).max()) > max(self.accuracy, rounding) * float(abs(y).max()):
            return math.inf
        # The point is outside by rounding only; an indicator may even report this of its own projections.
        inside = self._call(nearest)
        return inside if inside < math.inf else 0.0

    def _call(self, y: Array) -> float:
        return _number(self.operator(y.ravel().copy()))

    def prox(self, y: Array, t: float) -> Array:
        if self.shape is None or y.shape == self.shape:
            return self._one(y, t)
        rows: Array = namespace(y).stack([self._one(row, t) for row in y]) if len(y) else y.copy()
        return rows

    def _one(self, y: Array, t: float) -> Array:
        # A copy, since an operator may work in place.
        result = namespace(y).asarray(self.operator.prox(y.ravel().copy(), float(t)))
        if result.dtype.kind not in "fiu" or result.size != y.size:
            raise TypeError(f"its prox must give {y.size} real numbers, got {result.dtype} of shape {result.shape}")
        shaped: Array = result.reshape(y.shape).astype(y.dtype, copy=False)
        return shaped

    def project(self, y: Array) -> Array:
        return y if self.finite else self.prox(y, SHORT)

    def conjugate(self, v: Array) -> float:
        raise NotImplementedError(f"the conjugate of {self._name} is not known")

    def subgradient(self, y: Array) -> Array:
        raise NotImplementedError(f"the subgradient of {self._name} is not known, only its prox")

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        raise NotImplementedError(f"the derivative of the prox of {self._name} is not known")

    def _examine(self, shape: Shape) -> None:
        """Check the operator at a few points and learn whether g is finite; raise an error if it is not a prox."""
        generator = np.random.default_rng(20240229)
        points = [size * generator.standard_normal(shape) for size, _ in SIZES_AND_STEPS]
        steps = [step for _, step in SIZES_AND_STEPS]
        try:
            proxes = [self._one(point, step) for point, step in zip(points, steps, strict=True)]
            again = self._one(points[-1], steps[-1])
            ends = [np.zeros(shape), *points, *proxes]
            told = [self.operator(end.ravel().copy()) for end in ends]
            values = [_number(value) for value in told]
        except Exception as error:
            raise ValueError(
                f"penalty: {self._name} cannot be used for Bx of shape {shape}: {type(error).__name__}: {error}"
            ) from error
        if not np.array_equal(again, proxes[-1]):
            raise ValueError(
                f"penalty: the prox of {self._name} must depend only on its arguments, but it gave two results for "
                "one point; a weight that is a function of the number of calls, or a warm start, cannot be used"
            )
        for number in range(len(points)):
            self._compare(number, steps[number], points, proxes, ends, values)
        self.finite = not any(_is_truth(value) for value in told) and all(math.isfinite(value) for value in values)
        if not self.finite:
            nearest = [self.prox(prox, SHORT) for prox in proxes]
            moved = [
                float(abs(one - two).max() / abs(one).max())
                for one, two in zip(proxes, nearest, strict=True)
                if one.any()
            ]
            self.accuracy = 10.0 * max(moved, default=0.0)

    def _compare(
        self,
        number: int,
        step: float,
        points: list[Array],
        proxes: list[Array],
        ends: list[Array],
        values: list[float],
    ) -> None:
        """With p the prox of y, v = (y − p)/t is a subgradient at p: g(z) ≥ g(p) + ⟨v, z − p⟩ for every z."""
        point, prox = points[number], proxes[number]
        subgradient = (point - prox) / step
        start, least = values[1 + number], values[1 + len(points) + number]
        if least == math.inf:  # an inexact projection
            least = 0.0
        for end, value in zip(ends, values, strict=True):
            slope = float(np.vdot(subgradient, end - prox))
            sizes = [abs(size) for size in (start, least, value, slope) if math.isfinite(size)]
            lengths = [float(np.linalg.norm(array)) for array in (prox, end)]
            rounding = ROUNDINGS * float(np.finfo(np.float64).eps) * float(np.linalg.norm(point)) / step
            slack = LOOSE * max(sizes) + (INEXACT * float(np.linalg.norm(subgradient)) + rounding) * max(lengths)
            if math.isnan(value) or value < least + slope - slack:
                raise ValueError(
                    f"penalty: value and prox of {self._name} do not belong to one convex function: where the prox "
                    f"has a value of {least:.6g}, another point has {value:.6g}, but at least {least + slope:.6g} is "
                    "possible; for a sum of parts with constraints use fpdfp.penalties.Stacked"
                )

    @property
    def _name(self) -> str:
        kind = type(self.operator)
        return f"{kind.__module__.split('.')[0]}.{kind.__name__}"

    def _parameters(self) -> str:
        return self._name


def _is_truth(value: Any) -> bool:
    """Whether a value comes from an indicator function: True inside a set, False outside."""
    return isinstance(value, bool | np.bool_)


def _number(value: Any) -> float:
    """Return a value as a number: 0 and infinity for True and False."""
    if _is_truth(value):
        return 0.0 if value else math.inf
    return float(value)


def as_penalty(value: Any, *, name: str = "penalty") -> Penalty:
    """Return a penalty of this package, or one made of an object with ``prox(x, tau)`` and ``__call__(x)``.

    PyProximal's operators are such objects. :class:`fpdfp.Problem` and :class:`fpdfp.penalties.Stacked` convert
    automatically.

    >>> from fpdfp.penalties import L1
    >>> as_penalty(L1(0.5))
    L1(0.5)
    """
    if isinstance(value, Penalty):
        return value
    if not isinstance(value, type) and callable(value) and callable(getattr(value, "prox", None)):
        return Wrapped(value)
    raise ArgumentTypeError(
        name,
        f"must be one of fpdfp.penalties, or an object with prox(x, tau) and __call__(x) as in PyProximal, "
        f"got {_checks.kind(value)}",
    )


class Stacked(Penalty):
    """g([y_1; y_2; …]) = g_1(y_1) + g_2(y_2) + …, the partner of :class:`fpdfp.linops.VStack`.

    Parameters
    ----------
    parts
        The penalties, or objects that :func:`fpdfp.penalties.as_penalty` accepts.
    shapes
        The shape of each part: the output shape of the map at the same place of the stack.

    Examples
    --------
    >>> import numpy as np
    >>> from fpdfp.penalties import L1, NonNegative
    >>> g = Stacked([L1(2.0), NonNegative()], shapes=[(2,), (2,)])
    >>> g.prox(np.array([3.0, 1.0, -1.0, 1.0]), 1.0)
    array([1., 0., 0., 1.])
    """

    sent: ClassVar[Sent] = {"parts": tuple[Penalty, ...], "shapes": tuple[Shape, ...]}

    def __init__(self, parts: Sequence[Any], shapes: Sequence[int | Shape]) -> None:
        if len(parts) == 0 or len(parts) != len(shapes):
            raise ValueError(
                f"parts and shapes must have the same length, at least 1, got {len(parts)} and {len(shapes)}"
            )
        self.shapes = tuple(check_shape(shape) for shape in shapes)
        self.parts = tuple(
            as_penalty(part, name=f"parts[{i}]").bind(shape)
            for i, (part, shape) in enumerate(zip(parts, self.shapes, strict=True))
        )
        self.finite = all(part.finite for part in self.parts)
        self.has_conjugate = all(part.has_conjugate for part in self.parts)
        self._edges = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)]).tolist()

    def bind(self, shape: Shape) -> Stacked:
        if shape != (self._edges[-1],):
            raise ValueError(f"shapes must add up to the shape {shape} of Bx, got {self._edges[-1]} entries")
        return self

    def _pieces(self, y: Array) -> Iterator[tuple[Penalty, Array]]:
        """Yield each penalty with its part of y."""
        for part, start, stop, shape in zip(self.parts, self._edges[:-1], self._edges[1:], self.shapes, strict=True):
            yield part, y[..., start:stop].reshape(*y.shape[:-1], *shape)

    def _join(self, y: Array, pieces: list[Array]) -> Array:
        joined: Array = namespace(y).concatenate([piece.reshape(*y.shape[:-1], -1) for piece in pieces], axis=-1)
        return joined

    def value(self, y: Array) -> float:
        return sum(part.value(piece) for part, piece in self._pieces(y))

    def conjugate(self, v: Array) -> float:
        return sum(part.conjugate(piece) for part, piece in self._pieces(v))

    def prox(self, y: Array, t: float) -> Array:
        return self._join(y, [part.prox(piece, t) for part, piece in self._pieces(y)])

    def conjugate_prox(self, y: Array, sigma: float) -> Array:
        return self._join(y, [part.conjugate_prox(piece, sigma) for part, piece in self._pieces(y)])

    def project(self, y: Array) -> Array:
        return self._join(y, [part.project(piece) for part, piece in self._pieces(y)])

    def subgradient(self, y: Array) -> Array:
        return self._join(y, [part.subgradient(piece) for part, piece in self._pieces(y)])

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        maps = [part.conjugate_prox_derivative(piece, sigma) for part, piece in self._pieces(y)]
        return lambda u: self._join(u, [each(piece) for each, (_, piece) in zip(maps, self._pieces(u), strict=True)])

    def _parameters(self) -> str:
        return ", ".join(map(repr, self.parts))
