"""Tests of what a user wrote: that a gradient, a prox, a conjugate or an adjoint is what it is said to be.

Each compares functions with each other at a few random points, by relations that hold for every right one. So what is
right passes, up to rounding; what passes need not be right. The parts of this package are not tested here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp._array import namespace, to_host
from fpdfp._typing import Array
from fpdfp.compress.base import on_device
from fpdfp.linops.base import LinOp
from fpdfp.linops.maps import Compose, VStack, Wrapped
from fpdfp.losses.base import Losses
from fpdfp.penalties.base import Penalty
from fpdfp.penalties.wrapped import Stacked

SEED = 20240229
#: How far the two sides of the dot test may be apart, relative to the typical size of such a product. An operator may
#: compute in single precision whatever it is given.
ADJOINT = 1e-4
#: The same for a slope and a gradient, and for a prox, a value and a conjugate. In single precision: a hundred times.
CLOSE = 1e-4
#: Distances over which slopes are taken, relative to the size of the point, until one agrees with the gradient.
REACHES = (1e-4, 1e-6, 1e-2)
#: How far below the truth a Lipschitz constant may be that was estimated.
ESTIMATED = 0.02
#: Sizes of the points at which penalties are tried, and the steps of their prox.
SIZES_AND_STEPS = ((1.0, 0.7), (0.01, 0.02), (100.0, 3.0))

SKIP = "correct it, or skip this test with check=False"


def is_own(thing: object) -> bool:
    """Whether a class comes from outside this package."""
    return type(thing).__module__.partition(".")[0] != "fpdfp"


def verify_problem(losses: Losses, penalty: Penalty, linop: LinOp) -> None:
    """Test what of a problem the user wrote; raise ValueError for what is wrong."""
    if is_own(losses):
        verify_losses(losses)
    verify_adjoint("linop", linop, losses.dtype, losses.device)
    verify_penalty("penalty", penalty, linop.out_shape, losses.dtype, losses.device)


# --- linear maps


def verify_adjoint(name: str, linop: LinOp, dtype: Any = np.float64, device: str = "cpu") -> None:
    """Compare ⟨Bx, v⟩ with ⟨x, Bᵀv⟩ at random points, where B or a part of it was not made by this package."""
    if isinstance(linop, VStack):
        for i, part in enumerate(linop.parts):
            verify_adjoint(f"parts[{i}] of {name}", part, dtype, device)
    elif isinstance(linop, Compose):
        for label in ("outer", "inner"):
            verify_adjoint(f"{label} of {name}", getattr(linop, label), dtype, device)
    elif isinstance(linop, Wrapped) or is_own(linop):
        _dot_test(name, linop, dtype, device)


def _dot_test(name: str, linop: LinOp, dtype: Any, device: str) -> None:
    xp, generator = on_device(device), np.random.default_rng(SEED)
    kind = type(linop.operator if isinstance(linop, Wrapped) else linop).__name__
    for _ in range(2):
        x = xp.asarray(generator.standard_normal(linop.in_shape).astype(dtype))
        v = xp.asarray(generator.standard_normal(linop.out_shape).astype(dtype))
        image, back = linop.apply(x), linop.adjoint(v)
        for what, array, shape in (("image", image, linop.out_shape), ("adjoint", back, linop.in_shape)):
            if array.shape != shape:
                raise ValueError(f"{name}: {kind} must give an {what} of shape {shape}, got {array.shape}")
        forward, backward = _dot(image, v), _dot(x, back)
        # For independent normal entries a product is about as large as the length of one of its factors.
        size = max(_length(image), _length(back))
        if not abs(forward - backward) <= ADJOINT * size:
            raise ValueError(
                f"{name}: the adjoint of {kind} is not the transpose of the map: for random x and v, ⟨Bx, v⟩ is "
                f"{forward:.6g} but ⟨x, Bᵀv⟩ is {backward:.6g}; {SKIP}"
            )


# --- losses


def verify_losses(losses: Losses) -> None:
    """Compare the first and the last client's gradients with slopes of its values and with its constants."""
    with np.errstate(all="ignore"):
        for client in sorted({0, losses.n_clients - 1}):
            _verify_client(losses, client)


def _verify_client(losses: Losses, client: int) -> None:
    generator, one = np.random.default_rng(SEED), np.array([client])
    close = CLOSE * (100 if losses.dtype == np.float32 else 1)
    largest = float(losses.lipschitz()[client])
    # Numbers about 1, and numbers as large as the first gradient step makes them.
    first = _length(losses.gradients(losses.xp.zeros(losses.shape, losses.dtype), one)[0])
    typical = first / largest / math.sqrt(math.prod(losses.shape)) if largest > 0 else 0.0
    for size in (1.0, typical):
        if not (math.isfinite(size) and size > 0):
            continue
        point, direction = (_normal(losses, generator) for _ in range(2))
        point, direction = size * point, direction / _length(direction)
        gradient = losses.gradients(point, one)[0]
        if not np.isfinite(_length(gradient)):
            continue
        _compare_slopes(losses, one, largest, point, direction, gradient, close)
        _compare_constants(losses, one, largest, point, direction, gradient, close)
        _compare_hessians(losses, one, point, direction, gradient, close)


def _compare_slopes(
    losses: Losses, one: Any, largest: float, point: Array, direction: Array, gradient: Array, close: float
) -> None:
    told, worst = _dot(gradient, direction), None
    kink = largest if math.isfinite(largest) else 0.0  # how much slopes may differ where the second derivative jumps
    typical = _length(gradient) / math.sqrt(gradient.size)
    for reach in REACHES:
        step = reach * _length(point)
        ahead, behind = (float(losses.values(point + sign * step * direction, one)[0]) for sign in (1, -1))
        slope = (ahead - behind) / (2 * step)
        apart = abs(slope - told) - close * max(abs(slope), abs(told), typical)
        if not apart > 0:  # or there is no value here
            return
        rounding = 1000 * float(np.finfo(losses.dtype).eps) * max(abs(ahead), abs(behind)) / step
        if apart > rounding + kink * step / 2:
            worst = slope
    if worst is not None:
        raise ValueError(
            f"losses: gradient of client {one[0]} disagrees with value: in a random direction at a random point "
            f"the slope of value is {worst:.6g}, but gradient gives {told:.6g}; {SKIP}"
        )


def _compare_constants(
    losses: Losses, one: Any, largest: float, point: Array, direction: Array, gradient: Array, close: float
) -> None:
    """Compare differences of gradients with the constants of smoothness and of strong convexity."""
    client, step, least = int(one[0]), _length(point), losses.least_convexity
    for _ in range(2):
        difference = losses.gradients(point + step * direction, one)[0] - gradient
        change = _length(difference) / step
        if not math.isfinite(change):
            return
        rounding = 1000 * float(np.finfo(losses.dtype).eps) * _length(gradient) / step
        if change > (1 + ESTIMATED) * largest + rounding:
            raise ValueError(
                f"losses: lipschitz of client {client} is {largest:.6g}, but its gradients at two random points differ "
                f"by {change:.6g} times the distance of the points; give a larger one, or skip this test with "
                "check=False"
            )
        curvature = _dot(difference, direction) / step
        if curvature < least - ESTIMATED * max(least, close * change) - rounding:
            claim = f"strong_convexity is {least:.6g}" if least > 0 else "losses must be convex"
            raise ValueError(
                f"losses: {claim}, but between two random points client {client} has a curvature of {curvature:.6g}; "
                f"{SKIP}"
            )
        if change == 0.0:
            return
        direction = difference / (change * step)  # closer to where the curvature is largest


def _compare_hessians(losses: Losses, one: Any, point: Array, direction: Array, gradient: Array, close: float) -> None:
    """Compare Hessians, where there are any, with differences of gradients."""
    found = losses.hessians(point, one)
    if found is None or not np.isfinite(found).all():
        return
    told, client = found[0] @ direction, int(one[0])
    size = _length(told)
    if _length(found[0] - found[0].T) > close * _length(found[0]):
        raise ValueError(f"losses: hessian of client {client} is not symmetric; {SKIP}")
    worst = None
    for reach in REACHES:
        step = reach * _length(point)
        ahead, behind = (losses.gradients(point + sign * step * direction, one)[0] for sign in (1, -1))
        change = (ahead - behind) / (2 * step)
        apart = _length(change - told)
        if not apart > 10 * close * max(size, _length(change)):  # or there is no gradient here
            return
        if apart > 1000 * float(np.finfo(losses.dtype).eps) * _length(gradient) / step:
            worst = apart
    if worst is not None:
        raise ValueError(
            f"losses: hessian of client {client} does not agree with gradient: in a random direction at a random point "
            f"differences of gradients are {worst:.6g} away from the Hessian's {size:.6g}; {SKIP}"
        )


# --- penalties


def verify_penalty(name: str, penalty: Penalty, shape: Any, dtype: Any = np.float64, device: str = "cpu") -> None:
    """Compare value, prox and conjugate with each other, where g or a part of it was not made by this package."""
    if isinstance(penalty, Stacked):
        for i, (part, part_shape) in enumerate(zip(penalty.parts, penalty.shapes, strict=True)):
            verify_penalty(f"parts[{i}] of {name}", part, part_shape, dtype, device)
    elif is_own(penalty):
        with np.errstate(all="ignore"):
            _Trial(name, penalty, shape, dtype, device).run()


class _Trial:
    """A user's penalty, tried at a few points: y, p = prox(y, t) and v = (y − p)/t, a subgradient of g at p."""

    def __init__(self, name: str, penalty: Penalty, shape: Any, dtype: Any, device: str) -> None:
        self.penalty, self.shape = penalty, shape
        self.label = f"{name}: {{}} of {type(penalty).__name__}"
        xp, generator = on_device(device), np.random.default_rng(SEED)
        self.zero = xp.zeros(shape, dtype)
        self.points = [
            (xp.asarray((size * generator.standard_normal(shape)).astype(dtype)), step)
            for size, step in SIZES_AND_STEPS
        ]
        self.close = CLOSE * (100 if np.dtype(dtype) == np.float32 else 1)

    def run(self) -> None:
        proxes = [self._prox(y, t) for y, t in self.points]
        ends = [self.zero, *(y for y, _ in self.points), *proxes]
        values = [self._value(end) for end in ends]
        if self.penalty.finite and math.inf in values:
            raise ValueError(
                f"{self.label.format('value')} is infinite at a random point, so the class must have finite = False, "
                f"and project(y), the nearest point of its domain; {SKIP}"
            )
        for (y, t), p in zip(self.points, proxes, strict=True):
            self._subgradient(y, t, p, ends, values)
            if self.penalty.has_conjugate:
                self._fenchel_young(y, t, p)
                self._moreau(y, t)
            if not self.penalty.finite and self._value(self.penalty.project(y)) == math.inf:
                raise ValueError(
                    f"{self.label.format('value')} is infinite at project(y), which must be in the domain up to "
                    f"rounding; {SKIP}"
                )
        self._client_axis(proxes)

    def _value(self, y: Array) -> float:
        value = float(self.penalty.value(y))
        if math.isnan(value) or value == -math.inf:
            raise ValueError(f"{self.label.format('value')} gives {value} at a random point; {SKIP}")
        return value

    def _prox(self, y: Array, t: float) -> Array:
        given = y.copy()
        result = self.penalty.prox(y, t)
        if getattr(result, "shape", None) != self.shape or not np.isfinite(_length(result)):
            raise ValueError(
                f"{self.label.format('prox')} must give an array of shape {self.shape} of finite numbers; {SKIP}"
            )
        if not bool((y == given).all()):
            raise ValueError(f"{self.label.format('prox')} changes the array that it is given; {SKIP}")
        return result

    def _subgradient(self, y: Array, t: float, p: Array, ends: list[Array], values: list[float]) -> None:
        """g(z) ≥ g(p) + ⟨v, z − p⟩ for every z; near p too, where a prox that is a little off shows."""
        v, noise = (y - p) / t, self._noise(y, t)
        least = self._value(p)
        if least == math.inf:
            if self.penalty.finite:
                raise ValueError(f"{self.label.format('value')} is infinite at prox(y, t); {SKIP}")
            least = self._value(self.penalty.project(p))
        near = [p + s * (y - p) for s in (-0.1, 0.1)] + [s * p for s in (0.9, 1.1)]
        for z, value in zip([*ends, *near], [*values, *map(self._value, near)], strict=True):
            slope = _dot(v, z - p)
            slack = self.close * max(abs(least), abs(slope), abs(value) if value < math.inf else 0.0)
            if value < least + slope - slack - noise * max(_length(p), _length(z)):
                raise ValueError(
                    f"{self.label.format('prox')} does not minimise value(u) + ‖u − y‖²/2t: with p = prox(y, {t:g}) of "
                    f"a random y, value(p) is {least:.6g}, and another point has a value of {value:.6g} where at "
                    f"least {least + slope:.6g} is possible; {SKIP}"
                )

    def _fenchel_young(self, y: Array, t: float, p: Array) -> None:
        """g(p) + g*(v) = ⟨p, v⟩, since v is a subgradient of g at p."""
        v, noise = (y - p) / t, self._noise(y, t)
        value, product = self._value(p if self.penalty.finite else self.penalty.project(p)), _dot(p, v)
        # Rounding may put v just outside the domain.
        off = max(1e-2 * self.close, noise / max(_length(v), noise)) if _length(v) > 0 else 0.0
        found = min(float(self.penalty.conjugate(scale * v)) for scale in (1.0, 1.0 - off, 1.0 + off))
        slack = self.close * max(abs(product), abs(value), abs(found) if math.isfinite(found) else 0.0)
        if not abs(value + found - product) <= slack + (noise + off * _length(v)) * _length(p):
            raise ValueError(
                f"{self.label.format('conjugate')} does not agree with value and prox: with p = prox(y, t) of a random "
                f"y and v = (y − p)/t, value(p) + conjugate(v) must be ⟨p, v⟩ = {product:.6g} but is "
                f"{value + found:.6g} (a v is in the domain if it is so up to rounding); {SKIP}"
            )

    def _moreau(self, y: Array, t: float) -> None:
        found = self.penalty.conjugate_prox(y, t)
        expected = y - t * self.penalty.prox(y / t, 1.0 / t)
        if not _length(found - expected) <= self.close * _length(y):
            raise ValueError(
                f"{self.label.format('conjugate_prox')} disagrees with prox by Moreau's identity, y − σ prox(y/σ, 1/σ);"
                f" {SKIP}"
            )

    def _client_axis(self, proxes: list[Array]) -> None:
        (y, t), p = self.points[0], proxes[0]
        try:
            both = self.penalty.prox(namespace(y).stack([y, 2 * y]), t)
            wrong = both.shape != (2, *self.shape) or not _length(both[0] - p) <= self.close * _length(y)
        except (ValueError, IndexError, TypeError) as error:
            raise ValueError(f"{self.label.format('prox')} must take a leading client axis: {error}") from error
        if wrong:
            raise ValueError(
                f"{self.label.format('prox')} must take arrays with a leading client axis, and give each client what "
                f"it would have alone; {SKIP}"
            )

    def _noise(self, y: Array, t: float) -> float:
        """The rounding error of (y − p)/t."""
        return 1000 * float(np.finfo(y.dtype).eps) * _length(y) / t


def _normal(losses: Losses, generator: np.random.Generator) -> Array:
    array: Array = losses.xp.asarray(generator.standard_normal(losses.shape).astype(losses.dtype))
    return array


def _dot(one: Array, other: Array) -> float:
    return float(np.vdot(to_host(one).astype(np.float64), to_host(other).astype(np.float64)))


def _length(array: Array) -> float:
    return float(np.linalg.norm(to_host(array).astype(np.float64, copy=False)))
