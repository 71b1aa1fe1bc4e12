"""The composite problem: minimise f(x) + g(Bx), with f the mean of the clients' losses."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fpdfp import _checks, linops
from fpdfp._array import beside, namespace, read_only
from fpdfp._typing import Array, IntArray, Shape
from fpdfp._verify import verify_problem
from fpdfp.bounds import PRODUCTS, Bound, Feasibility, Metered, Search, SmoothDuals
from fpdfp.compress.base import on_device
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.losses.base import EPS, ROUNDINGS, Losses
from fpdfp.losses.linear import CURVATURES
from fpdfp.penalties.base import Penalty
from fpdfp.penalties.separable import L1
from fpdfp.penalties.wrapped import Stacked, as_penalty
from fpdfp.quadratic import dual
from fpdfp.rng import Draws

#: So that nothing is divided by 0.
TINY = 1e-300
#: How many values and gradients a run keeps: those of the start, and of the point that it looks at.
LATEST = 4
#: Below this part of the objective at 0 nearly nothing is left.
VANISHING = 1e-8
#: Random multiples of x that show how large each entry of Bx can be: all of them are less than a tenth of its size once
#: in 10⁹ entries.
PROBES = 8


class Model(NamedTuple):
    """The public part of a problem: the penalty g, the linear map B, the shape, dtype and device of x. No data."""

    penalty: Penalty
    linop: linops.LinOp
    shape: Shape
    dtype: Any
    device: str = "cpu"

    @property
    def sent_dtype(self) -> str:
        """The name of the dtype."""
        return str(np.dtype(self.dtype).str)

    @staticmethod
    def from_messages(penalty: Penalty, linop: linops.LinOp, shape: Shape, dtype: str, device: str) -> Model:
        """Return a model whose parts fit each other."""
        if linop.in_shape != shape:
            raise ArgumentError("linop", f"must act on arrays of shape {shape}, got one for {linop.in_shape}")
        return Model(penalty.bind(linop.out_shape), linop, shape, np.dtype(dtype), device)

    @property
    def xp(self) -> Any:
        """The package whose arrays x and v are: NumPy, or CuPy."""
        return on_device(self.device)

    @property
    def dual_shape(self) -> Shape:
        """The shape of Bx and of the dual variable v."""
        return self.linop.out_shape

    @property
    def largest_lambda(self) -> float:
        """1/ρ_max(BBᵀ), from a certain upper bound of ρ_max: the largest λ that PDFP's theory allows."""
        return 1.0 / self.linop.squared_norm if self.linop.squared_norm > 0 else 1.0

    @property
    def rounding(self) -> float:
        """The allowance of duality gaps for rounding, relative to the numbers that were summed."""
        return ROUNDINGS * float(np.finfo(self.dtype).eps)

    def dual_step(self, half: Array, v: Array, gamma: float, sigma: float) -> Array:
        """Return v⁺ = prox_{σg*}( v + σB(half − γBᵀv) ), over a client axis of both or of ``half`` alone."""
        return dual.take_step(self, half, v, gamma, sigma, wants_x=False)[1]

    def primal_dual_step(self, half: Array, v: Array, gamma: float, sigma: float) -> tuple[Array, Array]:
        """Return x⁺ = half − γBᵀv⁺ and the v⁺ of :meth:`dual_step`, in one pass where g∘B is a total variation."""
        return dual.take_step(self, half, v, gamma, sigma)

    def pdfp_step(self, x: Array, slopes: Array, v: Array, gamma: float, sigma: float) -> tuple[Array, Array]:
        """Return the x⁺ and v⁺ of :meth:`primal_dual_step` from half = x − γ · slopes."""
        return dual.pdfp_step(self, x, slopes, v, gamma, sigma)

    def make_feasible(self, x: Array) -> Array:
        """Return the point nearest to x at which g(Bx) is finite, where constraints are on x itself; otherwise x.

        That is where B is the identity, or where it is part of a stack whose other parts have no constraints.
        """
        penalty, linop = self.penalty, self.linop
        if linop.is_identity:
            return penalty.project(x)
        if not (isinstance(penalty, Stacked) and isinstance(linop, linops.VStack)):
            return x
        pairs = list(zip(penalty.parts, linop.parts, strict=False))
        constrained = [one for one, part in pairs if not one.finite and part.is_identity]
        matches = penalty.shapes == tuple(part.out_shape for part in linop.parts)
        if not matches or len(constrained) != 1 or sum(not one.finite for one, _ in pairs) != 1:
            return x
        return constrained[0].project(x)

    def fenchel_gap(self, image: Array, v: Array) -> float:
        """Return g(Bx) + g*(v) − ⟨Bx, v⟩ for the image Bx, with an allowance for rounding."""
        terms = (self.penalty.value(image), self.penalty.conjugate(v), -float(np.vdot(image, v)))
        return max(sum(terms), 0.0) + self.rounding * sum(map(abs, terms))


class LocalLosses(NamedTuple):
    """The clients of a round: their losses, all that ``client_update`` sees of the data, and their memory."""

    losses: Losses
    clients: IntArray
    scaling: Array | None
    memory: Any = ()
    total: float = 1.0

    def gradients(self, x: Array, batch_size: int | None = None, draws: Draws | None = None) -> Array:
        """Return N w_i ∇f_i(x) for each client, whose plain mean over all clients is ∇f(x)."""
        return self.weigh(self.losses.gradients(x, self.clients, batch_size, draws))

    def own_gradients(self, x: Array, batch_size: int | None = None, draws: Draws | None = None) -> Array:
        """Return W ∇f_i(x) for each client, whatever its weight, with W the sum of all weights, usually 1."""
        gradients = self.losses.gradients(x, self.clients, batch_size, draws)
        return gradients if self.total == 1.0 else self.total * gradients

    def values(self, x: Array) -> Array:
        """Return N w_i f_i(x) for each client."""
        return self.weigh(self.losses.values(x, self.clients))

    def least_convexities(self) -> Array:
        """Return constants with which N w_i f_i are strongly convex for certain."""
        return self.weigh(np.full(len(self.clients), self.losses.least_convexity))

    def curvatures(self) -> Array | None:
        """Return matrices that bound the Hessians of N w_i f_i for each client; None if none are known."""
        bounds = self.losses.curvatures(self.clients)
        return None if bounds is None else self.weigh(bounds)

    def curvature_diagonals(self) -> Array | None:
        """Return the diagonals of ``curvatures``; None if none are known."""
        bounds = self.losses.curvature_diagonals(self.clients)
        return None if bounds is None else self.weigh(bounds)

    def slope_bounds(self) -> Array | None:
        """Return bounds of |∂/∂x_j| of N w_i f_i without its ridge for each client and feature; None if unbounded."""
        bounds = self.losses.slope_bounds(self.clients)
        return None if bounds is None else self.weigh(bounds)

    def curvature_products(self, vectors: Array) -> Array | None:
        """Return ``curvatures`` times each of some vectors; None if none are known."""
        products = self.losses.curvature_products(self.clients, vectors)
        return None if products is None else self.weigh(products)

    def hessians(self, x: Array) -> Array | None:
        """Return the Hessian of N w_i f_i at x for each client; None if unknown."""
        matrices = self.losses.hessians(x, self.clients)
        return None if matrices is None else self.weigh(matrices)

    def informations(self, x: Array) -> Array | None:
        """Return matrices near the Hessians of N w_i f_i that are never negative; None if unknown."""
        matrices = self.losses.informations(x, self.clients)
        return None if matrices is None else self.weigh(matrices)

    def start_model(self, *, level: bool = False) -> tuple[Array, Array] | None:
        """Return quadratic models of N w_i f_i to start from: slopes at zero and matrices, or None."""
        found = self.losses.start_model(self.clients, level=level)
        return None if found is None else (self.weigh(found[0]), self.weigh(found[1]))

    def lipschitz(self) -> Array:
        """Return upper bounds of the Lipschitz constants of N w_i ∇f_i for each client."""
        return self.weigh(self.losses.lipschitz()[self.clients])

    def weigh(self, arrays: Array, total: float = 1.0) -> Array:
        """Return N w_i / total times the array of each client."""
        if self.scaling is None:
            return arrays
        factors = (self.scaling[self.clients] / total).astype(arrays.dtype)
        weighed: Array = arrays * beside(factors.reshape(-1, *[1] * (arrays.ndim - 1)), arrays)
        return weighed


class Residual(NamedTuple):
    """The residual of (x, v) in the optimality condition of Lemma 1.

    ``primal`` is ‖∇f(x) + Bᵀv⁺‖ and ``dual`` is ‖v⁺ − v‖, with v⁺ one dual step from (x, v).
    """

    primal: float
    dual: float

    @property
    def norm(self) -> float:
        """Both parts together."""
        return float(np.hypot(self.primal, self.dual))


class Certificate(NamedTuple):
    """A bound of the distance to the optimum.

    Attributes
    ----------
    objective
        f(x) + g(Bx); where g is infinite at Bx, g is taken at the nearest point of its domain, and
        ``violation`` describes how far away that is.
    gap
        A duality gap: F(x) − F* is at most this, up to rounding; with a violation, the gap of ``objective``. None where
        no bound is known.
    residual
        The residual of Lemma 1.
    violation
        The largest distance of an entry of Bx from the domain of g.
    v
        The dual point that gives the gap.
    scale
        What the gap is compared with: |F(x)|, or the objective at 0 times machine epsilon where that is more.
    """

    objective: float
    gap: float | None
    residual: Residual
    violation: float
    v: Array
    scale: float

    @property
    def relative_gap(self) -> float | None:
        """The gap divided by ``scale``."""
        return None if self.gap is None else self.gap / self.scale


class Seen(NamedTuple):
    """The value and the gradient of f at a point as clients have sent them, rounded.

    Attributes
    ----------
    value, gradient
        What the clients' messages add up to.
    error
        How far at most each entry of the gradient is from ∇f(x).
    """

    value: float
    gradient: Array
    error: float


class Meter(Protocol):
    """Records the questions to clients."""

    def name_point(self, x: Array) -> bytes:
        """Return a key that identifies a point."""

    def asked(self, x: Array, point: bytes, *, gradients: bool = False) -> None:
        """Take note of a point at which values, or gradients, were requested."""

    def constant(self) -> None:
        """Take note of a constant that each client was requested."""

    def asked_near(self, x: Array, up: Sequence[Shape], down: Sequence[Array], *, joins: bool = False) -> None:
        """Take note of a question about dual points near x: what came up, and what went down besides x and a weight.

        ``joins`` says that gradients at x may have been asked along with it.
        """


class Problem:
    r"""Minimise :math:`f(x) + g(Bx)`, :math:`f = \sum_i w_i f_i` over clients i.

    Parameters
    ----------
    losses
        The clients' smooth losses, :mod:`fpdfp.losses`. Where they live on a GPU, so do x, v and all messages.
    penalty
        The non-smooth g: one of :mod:`fpdfp.penalties`, or an operator of PyProximal.
    linop
        B: an array, a sparse matrix, a SciPy ``LinearOperator`` (so PyLops too) or an :mod:`fpdfp.linops` map.
        None means the identity.
    weights
        ``"uniform"``: w_i = 1/N, a plain mean over clients. ``"samples"``: w_i = n_i/Σn, the pooled loss.
        Or an array with a positive weight for each client, used unchanged.
    check
        Whether to test, at a few random points, a penalty, losses or a linear map that are not of this package. It
        compares prox and conjugate against value, gradients against differences of values, the adjoint against the map.
        What does not agree raises a ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(3), [3.0, 1.0, 0.1], clients=[0, 0, 1])
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), linop=fpdfp.linops.Difference(3))
    >>> problem
    Problem(LeastSquares(dense 3 × 3, 2 clients, l2=0), L1(0.1), Difference((3,) → (2,)), weights='uniform')
    >>> problem.objective(np.ones(3))
    0.7025
    """

    #: What counts the messages of a run.
    meter: Meter | None = None
    _latest: dict[tuple[bool, bytes], Any] = {}  # noqa: RUF012 - replaced, never written to

    def __init__(
        self, losses: Losses, penalty: Any, linop: Any = None, *, weights: Any = "uniform", check: bool = True
    ) -> None:
        if not isinstance(losses, Losses):
            raise ArgumentTypeError("losses", f"must be one of fpdfp.losses, got {type(losses).__name__}")
        penalty = as_penalty(penalty)
        operator = linops.Identity(losses.shape) if linop is None else linops.aslinop(linop, in_shape=losses.shape)
        if operator.in_shape != losses.shape:
            raise ValueError(
                f"linop acts on arrays of shape {operator.in_shape}, but x has shape {losses.shape} by the losses"
            )
        self.losses = losses
        self.model = Model(penalty.bind(operator.out_shape), operator, losses.shape, losses.dtype, losses.device)
        if check:
            verify_problem(losses, self.model.penalty, operator)
        self._weighting = weights if isinstance(weights, str) else "given"
        self.weights = _weights(weights, losses)

    def __repr__(self) -> str:
        return f"Problem({self.losses!r}, {self.penalty!r}, {self.linop!r}, weights={self._weighting!r})"

    @property
    def penalty(self) -> Penalty:
        """The penalty g."""
        return self.model.penalty

    @property
    def linop(self) -> linops.LinOp:
        """The linear map B."""
        return self.model.linop

    @property
    def n_clients(self) -> int:
        """The number N of clients."""
        return self.losses.n_clients

    @functools.cached_property
    def scaling(self) -> Array | None:
        """N w_i for each client; None where all are 1."""
        scaling: Array = self.n_clients * self.weights
        return None if np.allclose(scaling, 1.0, rtol=1e-14, atol=0.0) else scaling

    def metered(self, meter: Meter) -> Problem:
        """Return the same problem for one run, whose messages are counted."""
        _ = self.scaling, self.total_weight, self.lipschitz, self.strong_convexity  # found once for all runs
        copied = copy.copy(self)
        copied.meter, copied._latest = meter, {}
        return copied

    def restrict(self, features: IntArray) -> Problem:
        """Return the problem in some features, with all others zero; B must be the identity and g an l1 norm."""
        if not (self.linop.is_identity and isinstance(self.penalty, L1)):
            raise ValueError(f"penalty must be an l1 norm of x itself to restrict a problem, got {self!r}")
        return self.with_losses(self.losses.restrict(features), self.penalty.restrict(features))

    def with_losses(self, losses: Losses, penalty: Penalty) -> Problem:
        """Return the problem of other losses of the same clients, with B the identity."""
        made = Problem(losses, penalty, weights=self.weights, check=False)
        made._weighting = self._weighting
        return made

    def local(self, clients: IntArray, memory: Any = ()) -> LocalLosses:
        """Return what the given clients know."""
        return LocalLosses(self.losses, clients, self.scaling, memory, self.total_weight)

    @functools.cached_property
    def total_weight(self) -> float:
        """The sum of the clients' weights; 1 for uniform weights and for those by samples."""
        total = float(self.weights.sum())
        return 1.0 if abs(total - 1.0) < 1e-12 else total

    @functools.cached_property
    def lipschitz(self) -> Array:
        """Upper bounds of the Lipschitz constants of N w_i ∇f_i; their mean bounds the constant of ∇f."""
        return self._scaled(self.losses.lipschitz())

    def lipschitz_in(self, factor: linops.LinOp) -> Array:
        """Like ``lipschitz``, for u ↦ Sᵀ∇f_i(Su) with S the factor of a preconditioner."""
        constants = self.losses.lipschitz_in(factor)
        if self.meter is not None:
            self.meter.constant()
        return self._scaled(constants)

    def batch_smoothness(self, batch_size: int | None, factor: linops.LinOp | None = None) -> Array:
        """An upper bound of what mini-batches add to the mean-square smoothness of each client's gradient.

        With a factor S, of u ↦ Sᵀ∇f_i(Su).
        """
        if batch_size is None:
            return np.zeros(self.n_clients)
        constants = self.losses.batch_smoothness(batch_size, factor)
        if self.meter is not None:
            self.meter.constant()
        return self._scaled(constants)

    def _scaled(self, constants: Array) -> Array:
        return constants if self.scaling is None else self.scaling * constants

    @functools.cached_property
    def strong_convexity(self) -> float:
        """A constant with which f is strongly convex for certain; 0 where none is known."""
        return self.losses.strong_convexity(self.weights)

    def smooth_value(self, x: Array) -> float:
        """Return f(x)."""
        return float(self._ask(x, self.losses.value, gradients=False))

    def gradient(self, x: Array) -> Array:
        """Return ∇f(x)."""
        gradient: Array = self._ask(x, self.losses.gradient, gradients=True)
        return gradient

    def hessian(self, x: Array) -> Array | None:
        """Return the Hessian of f at x as a matrix, None where it is not known or too large."""
        matrix = self.losses.hessian(x, self.weights)
        if matrix is not None and self.meter is not None:
            self.meter.asked_near(x, [(len(matrix) * (len(matrix) + 1) // 2,)], [])
        return matrix

    def _ask(self, x: Array, compute: Callable[[Array, Array], Any], *, gradients: bool) -> Any:
        """Return what all clients together say about a point; within a run, what was computed lately is kept."""
        if self.meter is None:
            return compute(x, self.weights)
        key = (gradients, self.meter.name_point(x))
        if key not in self._latest:
            answer = compute(x, self.weights)
            self._latest = dict([*self._latest.items(), (key, read_only(answer) if gradients else answer)][-LATEST:])
        self.meter.asked(x, key[1], gradients=gradients)
        return self._latest[key]

    def objective(self, x: Array) -> float:
        """Return F(x) = f(x) + g(Bx); infinity where Bx is outside the domain of g."""
        x = self._point("x", x, self.model.shape)
        return self.smooth_value(x) + self.penalty.value(self.linop.apply(x))

    def _point(self, name: str, value: Any, shape: Shape, dtype: Any = None) -> Array:
        """Return a point that was given, checked and where the losses are."""
        return _checks.float_array(name, value, shape=shape, dtype=dtype, xp=self.model.xp)

    def _image(self, x: Array) -> Array:
        """Return Bx in double precision, since a gap is a small difference of sums over it."""
        return self.linop.apply(x.astype(np.float64))

    def evaluate(self, x: Array) -> tuple[float, float]:
        """Return f(x) + g(y) with y the point of the domain of g nearest to Bx, and ‖y − Bx‖_∞."""
        return self._evaluate(x, self.linop.apply(x))

    def _evaluate(self, x: Array, image: Array) -> tuple[float, float]:
        if self.penalty.finite:
            return self.smooth_value(x) + self.penalty.value(image), 0.0
        nearest = self.penalty.project(image)
        return self.smooth_value(x) + self.penalty.value(nearest), float(np.max(np.abs(nearest - image)))

    def is_nearly_feasible(self, x: Array, v: Array, tol: float, scale: float) -> bool:
        """Whether constraints on Bx are violated by no more than a tolerance.

        A violation is compared with the size of its own entry: the limit, or the terms (Bx)_i is a sum of.
        To first order F(x) is below its minimum by no more than what the violations gain at the prices v, which is
        compared with ``scale``.
        """
        if self.penalty.finite:
            return True
        image = self.linop.apply(x)
        nearest = self.penalty.project(image)
        violations = np.abs(nearest - image)
        if not bool(violations.any()):
            return True
        sizes = np.maximum(self._largest(self.linop.apply, x), np.abs(nearest))
        # A step subtracts γBᵀv: where x should be zero, the rounding of that is left of it.
        steps = self.default_step * self._largest(self.linop.adjoint, v)
        allowed = tol * sizes + ROUNDINGS * float(np.finfo(x.dtype).eps) * self._largest(self.linop.apply, steps)
        gain = float((np.abs(v) * violations).sum())
        return gain <= tol * scale and bool((violations <= allowed).all())

    def _largest(self, product: Callable[[Array], Array], x: Array) -> Array:
        """Return how large each entry of a product is for x with other factors in place of its signs, about."""
        factors = np.random.default_rng(0).standard_normal((PROBES, *x.shape))
        largest: Array = np.abs(product(self.model.xp.asarray(factors, dtype=x.dtype) * x)).max(axis=0)
        return largest

    def dual_step(self, x: Array, v: Array | None, gradient: Array, step: float | None = None) -> Array:
        r"""Return T(x, v) of Lemma 1: one dual step of PDFP.

        .. math:: T(x, v) = \mathrm{prox}_{\frac{λ}{γ} g^*}\big(\tfrac{λ}{γ} B(x - γ∇f(x)) + (I - λBB^T)v\big)
        """
        lam = self.model.largest_lambda
        gamma = self.default_step if step is None else step
        point = x - gamma * gradient
        if v is None:
            v = namespace(x).zeros(self.model.dual_shape, dtype=x.dtype)
        else:
            point = point - gamma * self.linop.adjoint(v)
        return self.penalty.conjugate_prox(lam / gamma * self.linop.apply(point) + v, lam / gamma)

    @property
    def default_step(self) -> float:
        """1/L with L the mean of the clients' Lipschitz constants, at least the constant of ∇f; 1 without constants."""
        mean = float(self.lipschitz.mean())
        return 1.0 / mean if 0 < mean < math.inf else 1.0

    def residual(self, x: Array, v: Array, *, gradient: Array | None = None, step: float | None = None) -> Residual:
        """Return how far (x, v) is from the fixed point of Lemma 1; both parts vanish at a solution alone.

        Who knows the gradient of f at x already need not have it computed again; ``step`` is γ, by default 1/L.
        """
        x = self._point("x", x, self.model.shape)
        v = self._point("v", v, self.model.dual_shape)
        gradient = self.gradient(x) if gradient is None else gradient
        return self._residual(v, self.dual_step(x, v, gradient, step), gradient)

    def _residual(self, v: Array, stepped: Array, gradient: Array) -> Residual:
        primal = float(np.linalg.norm(gradient + self.linop.adjoint(stepped)))
        return Residual(primal, float(np.linalg.norm(stepped - v)))

    def duality_gap(self, x: Array, v: Array) -> float | None:
        r"""Return the bound of F(x) − F* at one dual point, or None where it gives none.

        Where f = h + ½ Σ R_j x_j² has a ridge R_j > 0 in every coordinate,

        .. math:: F(x) - F^* \le g(Bx) + g^*(v) - \langle Bx, v\rangle
                  + \sum_j \frac{(\nabla f(x) + B^T v)_j^2}{2 R_j} ;

        elsewhere v is first made feasible. :meth:`certificate` looks for the smallest bound. An allowance for rounding
        is added.
        """
        x = self._point("x", x, self.model.shape, self.model.dtype)
        v = self._point("v", v, self.model.dual_shape).astype(np.float64)
        if not (self.penalty.has_conjugate and self.losses.is_convex):
            return None
        duals = self.losses.dual_points(x, self.weights)
        search = self._search(x, self._image(x), self.gradient(x), duals)
        gap = search.bound(v, direction=search.unseen_step() if search.free.any() else None).gap
        return gap if math.isfinite(gap) else None

    def certificate(
        self,
        x: Array,
        v: Array | None = None,
        *,
        dual_steps: int | None = None,
        thorough: bool = True,
        products: int = PRODUCTS,
        slopes_only: bool = False,
        seen: Seen | None = None,
    ) -> Certificate:
        """Say how far x is from optimal.

        The gap is a bound of F(x) − F* by weak duality, see `fpdfp/bounds.py`: exact up to rounding for linear models
        (logistic, least squares, softmax), with a ridge or without. Other losses need a ridge (``strong_convexity``),
        or a lower bound and a g(Bx) that sees every direction. Without a bound, the gap is None.

        Parameters
        ----------
        x, v
            The point, and a dual point, if there is one.
        dual_steps
            Where every coordinate has a ridge, v is improved by a given number of accelerated dual steps for x
            unchanged, which need no more of the data. By default 100, fewer where the dual is large.
        thorough
            Whether to look at the Hessian of f, if clients can give it, also where there is a bound without it.
        products
            The most products with B and Bᵀ, where B is so large that a feasible dual point is found by steps. If these
            do not suffice, the bound is missing.
        slopes_only
            Whether clients send the value and the gradient, and else single numbers alone.
        seen
            The value and the gradient at x where these are known, rounded; only with ``slopes_only``, and where
            :attr:`can_round` says so.
        """
        if dual_steps is None:
            dual_steps = min(100, max(5, 10**8 // self.linop.size_out))
        x = self._point("x", x, self.model.shape, self.model.dtype)
        if v is not None:
            v = self._point("v", v, self.model.dual_shape, x.dtype)
        bounded = self.penalty.has_conjugate and self.losses.is_convex
        duals = self.losses.dual_points(x, self.weights) if bounded else None
        if duals is not None and not slopes_only:
            duals.begin()  # first: the gradient may come along
        gradient = self.gradient(x) if seen is None else seen.gradient.astype(x.dtype)
        image = self._image(x)
        if seen is None:
            objective, violation = self._evaluate(x, image)
        else:
            objective, violation = seen.value + self.penalty.value(image), 0.0
        stepped = self.dual_step(x, v, gradient)
        start = stepped if v is None else v
        residual = self._residual(start, self.dual_step(x, start, gradient), gradient)
        best = Bound(math.inf, stepped)
        if bounded and math.isfinite(objective):
            points = [point.astype(np.float64) for point in (start, stepped)]
            if abs(objective) <= VANISHING * self.least_scale / EPS:
                points.append(np.zeros_like(points[0]))  # where nearly nothing is left, rounding of v would hide it
            search = self._search(x, image, gradient, duals, products, slopes_only, seen)
            best = search.best(points, dual_steps, thorough=thorough)
        gap = best.gap if math.isfinite(best.gap) else None
        scale = max(abs(objective), self.least_scale, TINY)
        return Certificate(objective, gap, residual, violation, self.model.xp.asarray(best.v, dtype=x.dtype), scale)

    @functools.cached_property
    def least_scale(self) -> float:
        """The floor of the scale of gaps: the objective at 0 times machine epsilon."""
        zero: Array = self.model.xp.zeros(self.model.shape, dtype=self.model.dtype)
        value = abs(self.evaluate(zero)[0])
        return EPS * value if math.isfinite(value) else 0.0

    @property
    def has_large_map(self) -> bool:
        """Whether B is so large that a certificate depends on how many products with it are allowed."""
        return not self._feasibility.is_quick

    @functools.cached_property
    def slopes_suffice(self) -> bool:
        """Whether values and gradients bound the gap: with a ridge everywhere, or where g∘B sees every direction.

        Along others, as an intercept, a dual point is feasible only after a step that takes products with the Hessian.
        """
        return self.losses.least_convexity > 0 or not len(self._feasibility.kernel)

    @property
    def can_round(self) -> bool:
        """Whether a bound may be computed from rounded gradients.

        That is where any dual point is feasible, since there is a ridge everywhere, or where the domain of g* is a box.
        """
        ridge = self.losses.least_convexity > 0
        return self.slopes_suffice and self.penalty.finite and (ridge or self._has_box)

    @property
    def _has_box(self) -> bool:
        return isinstance(self.penalty, L1) and self.linop.is_identity

    @property
    def can_expect(self) -> bool:
        """Whether ``expected_gap`` says something."""
        return self.penalty.has_conjugate and (self.losses.least_convexity > 0 or self._feasibility.is_quick)

    def expected_gap(self, x: Array, v: Array, slope: Array, scale: float) -> float:
        """Return about what a gap will be, from what is taken for ∇f(x), and with no one asked.

        By strong convexity, or with v made feasible and scaled; ``scale`` is about the objective. With limits on Bx, v
        may have no room for that: what is left of the slope then counts for a step as long as x, and a gradient step.
        """
        rest = slope + self.linop.adjoint(v)
        convexity = self.total_weight * self.losses.least_convexity
        gap = float(np.vdot(rest, rest)) / (2.0 * convexity) if convexity > 0 else math.inf
        if not self._feasibility.is_quick:
            return gap
        image = self.linop.apply(x)
        moved = v - self._feasibility.solve(rest)[0]
        share = self.penalty.conjugate_scale(moved)
        nearest = image if self.penalty.finite else self.penalty.project(image)
        young = (
            self.penalty.value(nearest) + self.penalty.conjugate(share * moved) - share * float(np.vdot(image, moved))
        )
        gap = min(gap, (1.0 - share) ** 2 * scale + max(young, 0.0))
        if self.penalty.finite:
            return gap
        young = self.penalty.value(nearest) + self.penalty.conjugate(v) - float(np.vdot(nearest, v))
        left = float(np.abs(rest * x).sum()) + self.default_step * float(np.vdot(rest, rest))
        return min(gap, max(young, 0.0) + left)

    @functools.cached_property
    def _feasibility(self) -> Feasibility:
        return Feasibility(self.model)

    def _search(
        self,
        x: Array,
        image: Array,
        gradient: Array,
        duals: Any,
        products: int = PRODUCTS,
        slopes_only: bool = False,
        seen: Seen | None = None,
    ) -> Search:
        if duals is not None and self.meter is not None:
            duals = Metered(duals, functools.partial(self.meter.asked_near, x), joins=self.losses.family in CURVATURES)
        if duals is None or slopes_only:
            value, error = (lambda: self.smooth_value(x), 0.0) if seen is None else (lambda: seen.value, seen.error)
            duals = SmoothDuals(self.losses, x, self.weights, gradient, value, duals, error)
        nearest = image if self.penalty.finite else self.penalty.project(image)
        return Search(self.model, self._feasibility, duals, x, image, nearest, products)


def infinite_start(objective: float) -> ArgumentError:
    """Return the error of a start without a finite objective."""
    return ArgumentError(
        "x0", f"must be a point where the objective is finite, got {objective:g}; look at x0 and at the losses"
    )


def _weights(weights: Any, losses: Losses) -> Array:
    """Return the weight of each client."""
    count = losses.n_clients
    if isinstance(weights, str):
        if _checks.choice("weights", weights, ("uniform", "samples")) == "uniform":
            return np.full(count, 1.0 / count)
        shares: Array = losses.sizes / losses.sizes.sum()
        return shares
    accepted = f"'uniform', 'samples' or a positive number for each of the {count} clients"
    given = _checks.numbers("weights", weights, accepted, shape=(count,))
    if (given <= 0).any():
        where = int(given.argmin())
        raise ArgumentError(
            "weights", f"must be positive, got {given[where]:g} for client {where}; exclude clients that do not count"
        )
    return given
