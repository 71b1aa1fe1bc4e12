r"""Bounds of F(x) − F*: what ``Problem.certificate`` rests on.

Let f = h + ½ Σ R_j x_j² with h(x) = Σ c_j φ(a_jᵀx). For every dual point (θ, v) with

    q + Bᵀv = 0 wherever R is 0,    q = Aᵀcθ,

weak duality (Fenchel and Rockafellar) bounds F(x) − F* by a sum of terms that are at least 0, so that nothing cancels:

    Σ c_j (φ(z_j) + φ*(θ_j) − z_j θ_j)  +  Σ_{R_k > 0} (q + Rx + Bᵀv)_k² / 2R_k  +  g(Bx) + g*(v) − ⟨Bx, v⟩,    z = Ax.

With a ridge on every coordinate θ = φ'(z) and any v will do. Without one a dual point is made feasible in three ways:

* by a direction d, θ = φ'(z) − φ''(z) Ad: A Newton step in the dual, along what g∘B does not see (an intercept, the
  constants of a total variation), or along all of x but where the Hessian is flat;
* by v ← v − w with Bᵀw = q + Rx + Bᵀv;
* by scaling, (sθ, sv), until sv is in the domain of g*, as is usual for the lasso.

Each bound holds up to the rounding of sums, for which an estimate is added. The smallest counts. All arrays are where x
is: in the memory of a GPU if the losses are there.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fpdfp._array import namespace
from fpdfp._numbers import accelerate
from fpdfp._typing import Array
from fpdfp.linops import LinOp, Matrix
from fpdfp.linops.base import as_matrix
from fpdfp.losses.base import EPS, ROUNDINGS, DualPoints, Losses
from fpdfp.penalties.base import Penalty

#: Up to this size of x, and of B as a dense matrix, what g∘B does not see is found from that matrix.
DENSE_COLUMNS, DENSE_ENTRIES = 1000, 1 << 22
#: For larger ones, the most products with B and Bᵀ that a search takes, unless its caller states it. A dual point of
#: the total variation of 64 × 64 × 16 voxels takes 605 of them.
PRODUCTS = 2000
#: Singular values below this part of the largest are taken for 0.
RANK = 1e-10
#: The most directions that g∘B does not see of a large B which are looked for.
MOST_UNSEEN = 256
#: Products with more directions than this are taken from the Hessian, in one question, and are less exact.
MANY = 12
#: A product of B with a unit vector is taken for 0 up to this size.
CONSTANT = 1e-12
#: So that nothing is divided by 0.
TINY = 1e-300
#: A dual point that has to be scaled by less gives a bound that says little, whatever clients say of it.
WORTH = 0.5
#: What is left of q + Bᵀv may be this many times the rounding of a sum.
LEFT = 32


class Space(Protocol):
    """The public part of a problem: :class:`fpdfp.problem.Model`."""

    @property
    def penalty(self) -> Penalty:
        """The penalty g."""

    @property
    def linop(self) -> LinOp:
        """The linear map B."""

    @property
    def xp(self) -> Any:
        """The package of the arrays: NumPy, or CuPy."""


class Bound(NamedTuple):
    """A bound of F(x) − F*, and its dual point: v and q = Aᵀcθ."""

    gap: float
    v: Array
    q: Array | None = None


class SmoothDuals:
    """Bounds from a gradient, perhaps a ridge, and a lower bound of f; with ``duals``, from gaps of rows.

    Nothing but a gap is asked of ``duals``: one number of each client. Entries of the gradient may be wrong by
    ``error``.
    """

    def __init__(
        self,
        losses: Losses,
        x: Array,
        weights: Array,
        gradient: Array,
        value: Callable[[], float],
        duals: Metered | None = None,
        error: float = 0.0,
    ) -> None:
        self._duals = duals
        total = float(weights.sum())
        self._x, self._value = x.astype(np.float64), value
        self._xp = namespace(x)
        convexity, ridge = losses.strong_convexity(weights), losses.least_convexity * total
        self.ridge = self._xp.full(losses.shape, max(convexity, ridge)) if duals is None else duals.ridge
        #: Without more convexity than a ridge gives, what is left of f has the lower bound of f.
        self._least = total * losses.lower_bound if duals is not None or convexity <= ridge else -np.inf
        self._gradient: Array = gradient.astype(np.float64) - self.ridge * self._x
        lipschitz = float((weights * losses.lipschitz()).sum())
        self._lipschitz = lipschitz if np.isfinite(lipschitz) else 0.0
        self._eps = float(np.finfo(losses.dtype).eps)
        self._error, self._is_quadratic = error, losses.form == "quadratic"

    def gradient(self, direction: Array | None = None, *, gap: bool = False) -> Array:
        """Return the gradient of h, the only dual point."""
        return self._gradient

    def gap(self, direction: Array | None, scale: float) -> float:
        """Return (1 − s)(h(x) − inf h), at least h(x) + h*(s∇h(x)) − s⟨x, ∇h(x)⟩ since h* is convex.

        Of a quadratic h that is (1 − s)²(h(x) − inf h).
        """
        if scale == 1.0:
            return 0.0
        if self._duals is not None and scale >= WORTH and not self._is_quadratic:
            return self._duals.gap(None, scale)
        value = self._value() - 0.5 * float((self.ridge * np.square(self._x)).sum())
        return (1.0 - scale) ** (2 if self._is_quadratic else 1) * (value - self._least)

    def rounding(self) -> Array:
        """Return LEFT units of the last place of gradients of this size, of x and of the gradient at 0.

        What clients have rounded comes on top of these.
        """
        size = float(np.linalg.norm(self._gradient)) + self._lipschitz * float(np.linalg.norm(self._x))
        sizes: Array = self._xp.full(self._x.shape, LEFT * self._eps * size / self._x.size**0.5 + self._error)
        return sizes

    def hessian_products(self, directions: Array) -> Array:
        """Not known."""
        raise NotImplementedError

    def hessian(self) -> Array | None:
        """Return None: it is not known."""
        return None


class Feasibility:
    """Finds w with Bᵀw = r, and the directions that g(B·) does not see: those in which g∘B is constant.

    With a ``face`` (1 for entries of v that may move, 0 for others) only such w are found, and the directions are those
    that these entries do not see.
    """

    def __init__(self, model: Space, face: Array | None = None) -> None:
        linop, self.xp = model.linop, model.xp
        self.linop = linop
        probe = self.xp.full(linop.out_shape, 1e30)
        # Where the dual is 0 for every point far away, its domain is {0}: g does not depend on that entry.
        unseen = (model.penalty.conjugate_prox(probe, 1.0) == 0) & (model.penalty.conjugate_prox(-probe, 1.0) == 0)
        self.seen: Array = self.xp.where(unseen, 0.0, 1.0) * (1.0 if face is None else face)

    @functools.cached_property
    def is_quick(self) -> bool:
        """Whether w is found in no more than a few products."""
        return self.linop.is_identity or self._spectrum is not None

    @functools.cached_property
    def _spectrum(self) -> tuple[Array, Array, Array] | None:
        """Bᵀ with the entries that g sees, and the eigenvalues and eigenvectors of its Gram matrix; None if large."""
        linop = self.linop
        if linop.size_in > DENSE_COLUMNS or linop.size_in * linop.size_out > DENSE_ENTRIES:
            return None
        rows = self.xp.asarray(as_matrix(linop, np.dtype(np.float64)).reshape(linop.size_in, -1)) * self.seen.ravel()
        values, vectors = self.xp.linalg.eigh(rows @ rows.T)
        return rows, values, vectors

    @property
    def range(self) -> Array | None:
        """The matrix Bᵀ with the entries that g sees, where it is at hand and not the identity."""
        return None if self.linop.is_identity or self._spectrum is None else self._spectrum[0]

    def project(self, r: Array, weights: Array) -> Array:
        """Return r without its part outside the range of Bᵀ, taken from entries in proportion to weights."""
        kernel = self.kernel.reshape(-1, r.size)
        if not len(kernel):
            return r
        largest = weights.max() or 1.0  # 0 where no entry may move
        weighted = kernel * (weights / largest).ravel()
        part = self.xp.linalg.pinv(weighted @ kernel.T, EPS) @ (kernel @ r.ravel())
        projected: Array = r - (part @ weighted).reshape(r.shape)
        return projected

    def sum_sizes(self, v: Array) -> Array:
        """Return Σ_i |b_ij v_i| for each entry j of Bᵀv."""
        assert self.range is not None
        sizes: Array = np.abs(self.range) @ np.abs(v).ravel()
        return sizes.reshape(self.linop.in_shape)

    @property
    def _least(self) -> float:
        """Eigenvalues up to this are 0, or rounding of the others."""
        assert self._spectrum is not None
        values = self._spectrum[1]
        return max(RANK**2, EPS * len(values)) * max(float(values[-1]), 1e-300)

    @functools.cached_property
    def kernel(self) -> Array:
        """Directions that g∘B does not see, one a row.

        For a large B they are the constants of its components, if these are few: of entries that no row ties to others.
        """
        linop, xp = self.linop, self.xp
        if linop.is_identity:
            entries = xp.flatnonzero(self.seen == 0)
            kernel: Array = xp.zeros((len(entries), linop.size_in))
            kernel[xp.arange(len(entries)), entries] = 1.0
        elif self._spectrum is not None:
            _, values, vectors = self._spectrum
            kernel = vectors[:, values <= self._least].T
        else:
            parts, steep = self._find_components()
            flat = xp.flatnonzero(xp.bincount(parts, weights=steep) <= CONSTANT)
            flat = flat if len(flat) <= MOST_UNSEEN else flat[:0]
            kernel = (parts == flat[:, None]) * 1.0
            kernel /= xp.sqrt(kernel.sum(axis=1, keepdims=True))
        return kernel.reshape(-1, *linop.in_shape)

    def _find_components(self) -> tuple[Array, Array]:
        """Return the component of each entry of x for a large B, and numbers that are 0 where B does not see constants.

        Of a B without entries at hand, all that it sees are one component.
        """
        linop, xp = self.linop, self.xp
        image = abs(self.seen * linop.apply(xp.ones(linop.in_shape))).ravel()
        if isinstance(linop, Matrix) and linop.sparse:
            from scipy.sparse import block_array, csr_array
            from scipy.sparse.csgraph import connected_components

            rows = abs(linop.matrix) * (self.seen != 0).reshape(-1, 1)
            graph = block_array([[None, csr_array(rows)], [csr_array(rows.shape[::-1]), None]])
            parts: Array = connected_components(graph, directed=False)[1][linop.size_out :]
            return np.unique(parts, return_inverse=True)[1], rows.T @ image
        # A product with random numbers is 0 where a column is, and nowhere else.
        random = xp.asarray(np.random.default_rng(0).standard_normal(linop.out_shape))
        held = (linop.adjoint(self.seen * random) != 0).ravel()
        parts = xp.where(held, 0, xp.cumsum(~held))
        return parts, held * image.max()

    def solve(self, r: Array, products: int = PRODUCTS) -> tuple[Array, int]:
        """Return a small w with Bᵀw = r, as far as there is one, and how many products with B and Bᵀ it took.

        For a large B these are at most ``products``, and w is wrong if they are not enough.
        """
        if self.linop.is_identity:
            return self.seen * r, 0
        if self._spectrum is None:
            return self._iterate(r, products)
        rows, values, vectors = self._spectrum
        there = values > self._least
        inverse = np.where(there, 1.0 / np.where(there, values, 1.0), 0.0)
        w = self.xp.zeros(rows.shape[1])
        for _ in range(2):  # the second time for what rounding has left
            w += rows.T @ (vectors @ (inverse * (vectors.T @ (r.ravel() - rows @ w))))
        return w.reshape(self.linop.out_shape), 0

    def _iterate(self, r: Array, products: int) -> tuple[Array, int]:
        """Return w after steps of Craig's method: conjugate gradients for BᵀBu = r, of which w = Bu is kept alone."""
        linop, done, kernel = self.linop, 0, self.kernel.reshape(len(self.kernel), r.size)
        # What no Bᵀw has is left alone: conjugate gradients would follow it without end.
        r = r - (kernel.T @ (kernel @ r.ravel())).reshape(r.shape)
        best = w = self.xp.zeros(linop.out_shape)
        rest, least, rounding = r, np.inf, float(np.vdot(r, r)) * (LEFT / 4 * EPS) ** 2
        while rounding < float(np.vdot(rest, rest)) < 0.25 * least:  # again for what rounding has left, while it helps
            best, size = w, float(np.vdot(rest, rest))
            least, direction = size, rest
            while EPS * least < size <= least / EPS and done < products:
                image = self.seen * linop.apply(direction)
                length = size / max(float(np.vdot(image, image)), TINY)
                w = w + length * image
                rest = rest - length * linop.adjoint(image)
                size, last = float(np.vdot(rest, rest)), size
                direction, done = rest + (size / last) * direction, done + 1
            rest = r - linop.adjoint(w)
        return (w if float(np.vdot(rest, rest)) < least else best), done


class Search:
    """Looks for the smallest bound at a point x.

    Parameters
    ----------
    model
        What is public of the problem.
    feasibility
        That of the model.
    duals
        The dual points of f near x.
    x, image, nearest
        The point, Bx, and the point of the domain of g nearest to Bx.
    products
        The most products with B and Bᵀ for a large B.
    """

    def __init__(
        self,
        model: Space,
        feasibility: Feasibility,
        duals: Any,
        x: Array,
        image: Array,
        nearest: Array,
        products: int = PRODUCTS,
    ) -> None:
        self.model, self.feasibility, self.duals = model, feasibility, duals
        self.x, self.image = x.astype(np.float64), image.astype(np.float64)
        self.value = model.penalty.value(nearest)
        self.products = products
        self.free = duals.ridge == 0
        self.rounding = duals.rounding()
        # Of the same θ that gaps are computed with: another sum for ∇f(x) would differ by the rounding of the forms.
        self.slope = duals.gradient()

    def bound(self, v: Array, *, direction: Array | None = None, whole: bool = False) -> Bound:
        """Return the bound at the dual point of v and a direction.

        v is moved so that Bᵀv fits wherever the ridge is 0, or with ``whole`` everywhere.
        """
        q = self.slope
        if direction is not None:
            # Where g∘B sees nothing the scale is 1, and the gap can come along.
            blind = len(self.feasibility.kernel) == self.x.size
            q = self.duals.gradient(direction, gap=blind)
        moved = np.ones_like(self.free) if whole else self.free
        found = self._bound(v, q, direction, moved)
        if found is None and self.free.all() and self.feasibility.range is not None:
            found = self._bound(v, q, direction, moved, uneven=True)
        return Bound(np.inf, v) if found is None else found

    def _bound(
        self, v: Array, q: Array, direction: Array | None, moved: Array, *, uneven: bool = False
    ) -> Bound | None:
        """Return the bound for the gradient q of a direction, None where Bᵀv does not fit.

        With ``uneven`` the sizes of entries differ by far. What no Bᵀw has is then left where gradients are rounded
        most, and what Bᵀv may be wrong by is judged by the terms that it is a sum of.
        """
        penalty, linop, duals = self.model.penalty, self.model.linop, self.duals
        rest = q + duals.ridge * self.x + linop.adjoint(v)
        if moved.any():
            wanted = np.where(moved, rest, 0.0)
            if uneven:
                wanted = self.feasibility.project(wanted, self.rounding + EPS * np.abs(q))
            change, spent = self.feasibility.solve(wanted, self.products)
            fitting, self.products = v - change, self.products - spent
            rounding = self.rounding + EPS * np.abs(q)
            v = fitting if penalty.finite else self._keep(v, fitting, np.where(moved, np.abs(rest), 0.0), rounding)
        scale = penalty.conjugate_scale(self._inflate(v) if moved.any() else v)
        v = scale * v
        back = linop.adjoint(v)
        rest = np.abs(scale * q + duals.ridge * self.x + back)
        allowed = self.rounding + EPS * (np.abs(q) + (self.feasibility.sum_sizes(v) if uneven else np.abs(back)))
        if not bool((rest <= LEFT * allowed)[self.free].all()):
            return None
        ridge = np.where(self.free, 1.0, duals.ridge)
        quadratic = float(np.where(self.free, 0.0, np.square(rest + allowed) / (2.0 * ridge)).sum())
        terms = (self.value, penalty.conjugate(v), -float(np.vdot(self.image, v)))
        young = (
            abs(sum(terms))
            + ROUNDINGS * EPS * sum(map(abs, terms))
            + float(((rest + allowed) * np.abs(self.x))[self.free].sum())
        )
        return Bound(duals.gap(direction, scale) + quadratic + young, v, scale * q)

    def _keep(self, v: Array, fitting: Array, rest: Array, rounding: Array) -> Array:
        """Return a v that fits, but as it was where what is left is rounding.

        The dual of a limit on one side has a sign, which rounding must not change where it is 0.
        """
        if self.model.linop.is_identity:
            return np.where(rest <= rounding, v, fitting)
        return v if bool((rest <= LEFT * rounding).all()) else fitting

    def _inflate(self, v: Array) -> Array:
        """Return v as large as rounding may have made it where B is the identity."""
        return v + np.sign(v) * self.rounding * self.feasibility.seen if self.model.linop.is_identity else v

    def best(self, points: Sequence[Array], steps: int, *, thorough: bool) -> Bound:
        """Return the smallest bound from some dual points.

        The Hessian, which is many numbers to send, is looked at only where nothing else gives a bound, or with
        ``thorough``.
        """
        bounds = [Bound(np.inf, points[-1])]
        if self.free.any() and not thorough:
            # Where the gradient is as small as its rounding nothing needs to be asked.
            bounds += [self.bound(point) for point in points]
        if not np.isfinite(min(map(_gap, bounds))):
            bounds += self.bounds(points)
        if not self.free.any():
            bounds.append(self.improve(min(bounds, key=_gap).v, steps))
        if thorough or not np.isfinite(min(map(_gap, bounds))):
            bounds += self.newton_bounds(points)
            bounds += self.face_bounds(points)
        return min(bounds, key=_gap)

    def face_bounds(self, points: Sequence[Array]) -> Iterator[Bound]:
        """Yield the bounds with constraints in which those that do not bind keep a v of 0.

        Others have no sign to spare for what makes v feasible: no scale but 0 would bring it back to its domain.
        """
        penalty, linop, feasibility = self.model.penalty, self.model.linop, self.feasibility
        if penalty.finite or linop.is_identity or not (feasibility.is_quick and self.free.any()):
            return
        for point in points:
            shifted = point + self.image
            face = penalty.conjugate_prox_derivative(shifted, 1.0)(np.ones_like(point)) != 0
            search = copy.copy(self)
            search.feasibility = Feasibility(self.model, face)
            v = penalty.conjugate_prox(shifted, 1.0)
            yield search.bound(v, direction=search.unseen_step(v))

    def newton_bounds(self, points: Sequence[Array]) -> Iterator[Bound]:
        """Yield the bounds after Newton steps along all of x."""
        hessian = self.duals.hessian()
        if hessian is None:
            return
        hessian[np.diag_indices_from(hessian)] += self.duals.ridge.ravel()
        for point, step in zip(points, self.newton(hessian, points), strict=False):
            if np.isfinite(step).all():
                yield self.bound(point, direction=step)

    def bounds(self, points: Sequence[Array]) -> Iterator[Bound]:
        """Yield the bounds that need no Hessian."""
        if not self.free.any():
            yield from map(self.bound, points)
        direction = self.unseen_step()
        points = points[:1] if self.model.linop.is_identity else points
        for point in points:
            if self.feasibility.is_quick or self.products > 0:
                if self.free.any():
                    yield self.bound(point, direction=direction)
                if not self.free.all():
                    yield self.bound(point, direction=direction, whole=True)

    def unseen_step(self, v: Array | None = None) -> Array | None:
        """Return a Newton step along what g∘B does not see, None where there is nothing, or no way to take it.

        On a face g∘B is linear along these directions, with the slope of v.
        """
        kernel = self.feasibility.kernel
        if not len(kernel) or isinstance(self.duals, SmoothDuals):
            return None
        slope = self.slope + self.duals.ridge * self.x + (0.0 if v is None else self.model.linop.adjoint(v))
        flat = kernel.reshape(len(kernel), -1)
        hessian = self.duals.hessian() if len(kernel) > MANY else None
        if hessian is None:
            curved = (self.duals.hessian_products(kernel) + self.duals.ridge * kernel).reshape(len(kernel), -1)
        else:
            curved = flat @ hessian + self.duals.ridge.ravel() * flat
        steps = np.linalg.pinv(flat @ curved.T, rcond=1e-13, hermitian=True) @ (flat @ slope.ravel())
        direction: Array = np.tensordot(steps, kernel, axes=1)
        return direction

    def newton(self, hessian: Array, points: Sequence[Array]) -> list[Array]:
        """Return the Newton step along all of x for each dual point, none where the Hessian is not definite and large.

        Where it is not definite, the step excludes the directions along which it is flat: classes that all move
        alike, features that are the same.
        """
        slope = self.slope + self.duals.ridge * self.x
        rest = np.stack([(slope + self.model.linop.adjoint(v)).ravel() for v in points])
        # Scaled to a diagonal of ones, since features may have very different units.
        roots = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
        found = _solve_definite(hessian / np.outer(roots, roots), (rest / roots).T)
        return [] if found is None else [(step / roots).reshape(slope.shape) for step in found.T]

    def improve(self, v: Array, steps: int) -> Bound:
        """Minimise the bound over v where every coordinate has a ridge, by accelerated proximal gradient steps.

        It is g*(v) − ⟨Bx, v⟩ + Σ (∇f + Bᵀv)_k²/2R_k, and a given number of terms that do not depend on v.
        """
        penalty, linop, ridge = self.model.penalty, self.model.linop, self.duals.ridge
        gradient = self.slope + ridge * self.x
        sigma = float(ridge.min()) / linop.squared_norm if linop.squared_norm > 0 else 1.0
        best = Bound(np.inf, v)
        theta, previous, point = 1.0, v, v
        quick = self.feasibility.is_quick
        for _ in range(steps if quick else min(steps, self.products)):
            slope = linop.apply((gradient + linop.adjoint(point)) / ridge) - self.image
            current = penalty.conjugate_prox(point - sigma * slope, sigma)
            beta, theta = accelerate(theta)
            point, previous = current + beta * (current - previous), current
            found = self.bound(current)
            best = found if found.gap < best.gap else best
        return best


def _gap(bound: Bound) -> float:
    return bound.gap


def _solve_definite(matrix: Array, right: Array) -> Array | None:
    """Solve systems with a diagonal of ones, excluding flat eigenvectors; None if there are some and it is large.

    A factorisation of a singular matrix may succeed by rounding, with a pivot as small as that.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    try:
        factor = cho_factor(matrix)
        if np.square(np.diag(factor[0])).min(initial=1.0) > RANK:
            solution: Array = cho_solve(factor, right)
            return solution
    except LinAlgError:
        pass
    if len(matrix) > DENSE_COLUMNS:
        return None
    values, vectors = np.linalg.eigh(matrix)
    there = values > RANK * values[-1]
    along: Array = vectors[:, there] @ ((vectors[:, there].T @ right) / values[there, None])
    return along


class Metered:
    """Dual points that report the messages they need: shapes of numbers in double precision, up and down.

    Parameters
    ----------
    duals
        The dual points.
    asked
        Receives the shapes of what comes up, and what goes down next to the point and the client's weight.
    joins
        Whether what is asked first goes along with the question about gradients at the point.
    """

    def __init__(self, duals: DualPoints, asked: Callable[..., None], *, joins: bool = False) -> None:
        self._duals, self._asked, self.ridge, self._joins = duals, asked, duals.ridge, joins
        self._known: Array | None = None

    def gradient(self, direction: Array | None = None, *, gap: bool = False) -> Array:
        """Return a gradient: one up, with a gap if that comes along, and a direction down.

        The gradient at x comes with ``rounding``.
        """
        if direction is not None:
            self._known = direction if gap else None
            up, down = (
                ([self.ridge.shape, ()], [direction, np.array(1.0)]) if gap else ([self.ridge.shape], [direction])
            )
            self._asked(up, down)
        return self._duals.gradient(direction, gap=gap)

    def gap(self, direction: Array | None, scale: float) -> float:
        """Return a gap: a number up, the scale and a direction down; nothing for the gap at x, and for a known one."""
        known = scale == 1.0 and direction is self._known
        if not known and (direction is not None or scale != 1.0):
            self._asked([()], [np.array(scale)] if direction is None else [direction, np.array(scale)])
        return self._duals.gap(direction, scale)

    def rounding(self) -> Array:
        """Return what rounding may do: the sizes of slopes, for each class, and of columns, up, and the gradient."""
        self._asked([self.ridge.shape, self.ridge.shape[:-1], self.ridge.shape[-1:]], [], joins=self._joins)
        return self._duals.rounding()

    def hessian_products(self, directions: Array) -> Array:
        """Return products: the directions down, as many gradients up."""
        self._asked([directions.shape], [directions])
        return self._duals.hessian_products(directions)

    def hessian(self) -> Array | None:
        """Return the Hessian: its lower triangle up."""
        matrix = self._duals.hessian()
        if matrix is not None:
            self._asked([(len(matrix) * (len(matrix) + 1) // 2,)], [])
        return matrix
