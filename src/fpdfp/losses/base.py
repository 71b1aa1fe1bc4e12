"""The interface of losses, and the losses of some of the clients."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from fpdfp._array import beside
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress.base import on_device
from fpdfp.linops.base import LinOp
from fpdfp.rng import Draws, OwnDraws

if TYPE_CHECKING:
    from fpdfp.quadratic.newton import Smooth

#: What is known of the form of losses: functions of linear forms of x, quadratic ones of them, or nearly a convolution.
Form = Literal["linear", "quadratic", "convolution", "other"]
#: Gradients of many clients are summed in pieces of at most this many numbers.
CHUNK = 1 << 22
#: How many roundings a sum over rows allows for, relative to the sum of the terms' sizes.
ROUNDINGS = 8
#: The machine epsilon of double precision.
EPS = float(np.finfo(np.float64).eps)


class InformationSums(NamedTuple):
    """Sums over the rows of each client, with a leading client axis; of a likelihood and its dispersion φ.

    Attributes
    ----------
    numbers
        The number of rows, the sum of weights, what the log-likelihood needs next to the deviance, the deviance, and
        Pearson's sum Σ w (y − μ)²/V(μ).
    score
        The gradient of the log-likelihood times φ.
    hessian
        The expected information times φ, without a ridge, as its lower triangle.
    meat
        Σ_j s_j s_jᵀ with the scores s_j of rows, as its lower triangle; empty where it is not requested.
    """

    numbers: Array
    score: Array
    hessian: Array
    meat: Array


class DualPoints(Protocol):
    r"""Dual points of f = h + ½ Σ R_j x_j² near a point x, with h(x) = Σ c_j φ(a_jᵀx).

    A direction d and a scale s give θ = s (φ'(z) − φ''(z) Ad) at the linear forms z = Ax. With d = 0 and s = 1 it is
    the dual point of x itself.
    """

    #: R, with the shape of x.
    ridge: Array

    def begin(self) -> None:
        """Ask what is needed for all but a gap, where clients are at sites."""

    def gradient(self, direction: Array | None = None, *, gap: bool = False) -> Array:
        """Return Aᵀcθ with s = 1: the gradient of h at x without a direction.

        ``gap`` announces that the gap with s = 1 is requested next: it may come along.
        """

    def gap(self, direction: Array | None, scale: float) -> float:
        """Return Σ c_j (φ(z_j) + φ*(θ_j) − z_j θ_j), at least 0; infinity where θ is outside the domain of φ*."""

    def rounding(self) -> Array:
        """Return an estimated bound of the rounding error of each entry of the gradient."""

    def hessian_products(self, directions: Array) -> Array:
        """Return the Hessian of h at x times each of some directions."""

    def hessian(self) -> Array | None:
        """Return the Hessian of h at x as a matrix, None if it is not available."""


class Losses(abc.ABC):
    """The smooth losses f_1, …, f_N of N clients.

    Functions that run in every round take an array of client numbers and compute for those clients only. A client's
    row of a result depends only on that client's data, to the last bit.

    Attributes
    ----------
    shape
        The shape of x.
    dtype
        The dtype of x and of gradients.
    sizes
        The number of samples of each client.
    device
        Where points and gradients are: ``"cpu"``, or ``"cuda"`` for CuPy arrays on the GPU.
    feature_names
        The names of the features, along the last axis of x, or None. All sites must have the same.
    """

    shape: Shape
    dtype: np.dtype[np.floating]
    sizes: IntArray
    device: str = "cpu"
    feature_names: tuple[str, ...] | None = None
    #: A lower bound of every f_i without its ridge; −∞ if unknown.
    lower_bound: float = -np.inf
    #: Whether several threads of Python may request gradients at the same time.
    concurrent: bool = False

    @property
    def n_clients(self) -> int:
        """The number N of clients."""
        return len(self.sizes)

    @property
    def feature_digests(self) -> IntArray:
        """A digest of each feature's name, by which sites are compared; empty if features have no names."""
        names = self.feature_names or ()
        found = [hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).digest() for name in names]
        return np.frombuffer(b"".join(found), dtype="<i8").astype(np.int64)

    @property
    def xp(self) -> Any:
        """The array package of points and gradients: NumPy or CuPy."""
        return on_device(self.device)

    @property
    def family(self) -> str:
        """The name of the kind of losses, which checkpoints compare."""
        return type(self).__qualname__

    @property
    def form(self) -> Form:
        """The form of the losses, from which a preconditioner is chosen."""
        return "convolution" if self.nearly_convolution else "other"

    def part(self, clients: IntArray) -> Losses:
        """Return the losses of some of the clients, renumbered from 0, to be sent to another process."""
        return Part(self, clients)

    @property
    def nearly_convolution(self) -> bool:
        """Whether the Hessian of f may be nearly a convolution, as in tomography and for blurred images."""
        return False

    @abc.abstractmethod
    def values(self, x: Array, clients: IntArray) -> Array:
        """Return f_i(x) for each of the given clients."""

    @abc.abstractmethod
    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        """Return ∇f_i for each of the given clients, with a leading client axis.

        ``x`` has the shape of one point, or a leading client axis. With ``batch_size`` the gradient is that
        of a uniformly random subset of a given number of samples, drawn from ``draws`` by the numbers that clients have
        there; a client with fewer samples uses them all.
        """

    def check(self, x: Array, clients: IntArray, *, shared: bool = False, draws: Draws | None = None) -> None:
        """Raise an error for points of the wrong shape and for unknown clients, before a kernel gets them.

        With ``shared`` all clients must have the same point. Clients that an engine has drawn are known.
        """
        if x.shape != self.shape and (shared or x.shape != (len(clients), *self.shape)):
            axis = "" if shared else ", or that with a leading client axis"
            raise ValueError(f"x must have shape {self.shape}{axis}, got {x.shape}")
        if type(draws) is OwnDraws and draws.clients is clients:
            return
        # As unsigned integers, negative numbers are large: one comparison checks both ends.
        if len(clients) and np.maximum.reduce(clients.view(np.uint64)) >= len(self.sizes):
            raise IndexError(f"clients must be numbers from 0 to {self.n_clients - 1}")

    @abc.abstractmethod
    def lipschitz(self) -> Array:
        """Return, for each client, an upper bound of the Lipschitz constant of ∇f_i."""

    @property
    def smooth(self) -> bool:
        """Whether the gradients are known to be Lipschitz continuous."""
        return True

    def lipschitz_in(self, factor: LinOp) -> Array:
        """Return, for each client, a bound or an estimate of the Lipschitz constant of u ↦ Sᵀ∇f_i(Su), S the factor."""
        return self.lipschitz() * factor.squared_norm

    def curvatures(self, clients: IntArray) -> Array | None:
        """Return, for each of the given clients, a matrix that bounds the Hessian of f_i everywhere; None if unknown.

        A ridge is in it. The rows and columns are the entries of x; for x with two axes the entries of one row of x,
        and the bound has this block for each row, and nothing between rows.
        """
        return None

    def curvature_diagonals(self, clients: IntArray) -> Array | None:
        """Return the diagonals of ``curvatures``, which may be known where those are too large; None if unknown."""
        return None

    def slope_bounds(self, clients: IntArray) -> Array | None:
        """Return, for each of the given clients and each feature, a bound of |∂f_i/∂x_j| everywhere, without a ridge.

        None for losses without one, such as least squares.
        """
        return None

    @property
    def can_restrict(self) -> bool:
        """Whether the losses can be restricted to some features."""
        return False

    def restrict(self, features: IntArray) -> Losses:
        """Return the losses as functions of some features, with all others zero."""
        raise NotImplementedError(f"{type(self).__name__} cannot be restricted to some features")

    def curvature_products(self, clients: IntArray, vectors: Array) -> Array | None:
        """Return ``curvatures`` times each of some vectors, rows of a matrix, for each client; None if unknown."""
        return None

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        """Return the Hessian of f_i at x for each of the given clients, as matrices; None if unknown."""
        return None

    def informations(self, x: Array, clients: IntArray) -> Array | None:
        """Return matrices near the Hessians of f_i at x that are never negative; the Hessians themselves by default."""
        return self.hessians(x, clients)

    def sums_at(self, x: Array, clients: IntArray, *, robust: bool) -> InformationSums | None:
        """Return what standard errors and tests at x need of each of the given clients; None if unknown."""
        return None

    def overdispersion_at(self, x: Array, clients: IntArray, theta: float) -> Array | None:
        """Return each client's sums from which θ of negative binomial counts is estimated; None for other losses."""
        return None

    def jeffreys_at(self, x: Array, clients: IntArray, inverse: Array) -> Array | None:
        """Return each client's part of the gradient of ½ log det I at x: the Jeffreys penalty of Firth.

        It is ½ tr(V ∂I_i/∂x_j) for each coefficient j, with I_i the information of client i and V = I⁻¹ the inverse for
        all clients, which ``inverse`` is. None for losses without it.
        """
        return None

    def spread_at(self, x: Array, clients: IntArray) -> Array | None:
        """Return the weight of each client's rows and their kernel weight; None for losses other than quantiles."""
        return None

    def start_model(self, clients: IntArray, *, level: bool = False) -> tuple[Array, Array] | None:
        """Return quadratic models from which a fit may start, slopes at zero and matrices, or None.

        With ``level`` their minimum is near a constant prediction, which is in the domain of f.
        """
        return None

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        """Return the mean-square amount that mini-batches add to each client's smoothness, for u ↦ Sᵀ∇f_i(Su).

        For batches of b of m samples drawn without replacement this is at most (m − b)/(b(m − 1)) times the
        largest Lipschitz constant of a sample. The default is 0, if nothing is known about single samples.
        """
        return np.zeros(self.n_clients)

    def _batch_shares(self, batch_size: int) -> Array:
        """Return (m − b)/(b(m − 1)) for each client, 0 if a batch contains all of its samples."""
        m, b = self.sizes, np.minimum(batch_size, self.sizes)
        shares: Array = (m - b) / (b * np.maximum(m - 1, 1))
        return shares

    @property
    def supports_batches(self) -> bool:
        """Whether gradients over random subsets of the samples are available."""
        return True

    def strong_convexity(self, weights: Array) -> float:
        """Return a constant with which Σ w_i f_i is strongly convex; 0 if unknown."""
        return self.least_convexity * float(weights.sum())

    @property
    def is_convex(self) -> bool:
        """Whether every f_i is convex; bounds of F(x) − F* need that."""
        return True

    @property
    def least_convexity(self) -> float:
        """A constant with which every f_i is strongly convex; 0 if unknown."""
        return 0.0

    def constants(self) -> tuple[Array, ...]:
        """Return numbers that checkpoints compare, for losses that may have the same value at one point."""
        return ()

    def value(self, x: Array, weights: Array) -> float:
        """Return Σ w_i f_i(x)."""
        return float((weights * self.values(x, np.arange(self.n_clients))).sum())

    def gradient(self, x: Array, weights: Array) -> Array:
        """Return Σ w_i ∇f_i(x), summed in the order of client numbers."""
        total: Array = self.xp.zeros(self.shape, dtype=np.float64)
        for clients in self.chunks():
            part = self.gradients(x, clients)
            # no BLAS, whose order of summation may change with the number of threads
            total += (beside(weights[clients].reshape(-1, *[1] * len(self.shape)), part) * part).sum(axis=0)
        return total.astype(self.dtype, copy=False)

    def hessian(self, x: Array, weights: Array) -> Array | None:
        """Return the Hessian of Σ w_i f_i as a dense matrix, or None if it is not available."""
        return None

    def pooled(self, weights: Array) -> Smooth | None:
        """Return Σ w_i f_i as one function whose value, gradient and Hessian share work; None if not available.

        For solvers with all data in one place; see :class:`fpdfp.quadratic.newton.Smooth`.
        """
        return None

    @property
    def has_duals(self) -> bool:
        """Whether there are dual points, from which a duality gap is computed."""
        return False

    def dual_points(self, x: Array, weights: Array) -> DualPoints | None:
        """Return the dual points of Σ w_i f_i near x, from which a duality gap is computed; None if unknown."""
        return None

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        """Return the Hessian of Σ w_i f_i at x times a direction.

        The default is a central difference of gradients, accurate enough for a search direction.
        """
        length = float(np.linalg.norm(direction))
        if length == 0.0:
            return np.zeros_like(x)
        reach = np.cbrt(np.finfo(self.dtype).eps) * max(1.0, float(np.linalg.norm(x))) / length
        ahead = self.gradient(x + reach * direction, weights)
        behind = self.gradient(x - reach * direction, weights)
        difference: Array = (ahead - behind) / (2 * reach)
        return difference

    def chunks(self) -> Iterator[IntArray]:
        """Yield all client numbers in pieces whose gradients fit in memory."""
        dim = int(np.prod(self.shape))
        length = max(1, CHUNK // max(1, dim))
        for start in range(0, self.n_clients, length):
            yield np.arange(start, min(start + length, self.n_clients))


def checked_draws(draws: Draws | None, clients: IntArray) -> Draws:
    """Return the draws of some clients, whose numbers there are those in the whole federation, not in a part of it."""
    if draws is None:
        raise ValueError("draws must be given with batch_size")
    if len(draws.clients) != len(clients):
        raise ValueError(f"draws must be for the {len(clients)} clients, got draws for {len(draws.clients)}")
    return draws


def _of_whole(name: str) -> Any:
    """Return a property that is the same for some clients as for all."""
    return property(lambda part: getattr(part.whole, name))


class Part(Losses):
    """Some clients of other losses, renumbered from 0."""

    def __init__(self, whole: Losses, clients: IntArray) -> None:
        self.whole, self.chosen = whole, np.asarray(clients, dtype=np.int64)
        self.shape, self.dtype, self.device = whole.shape, whole.dtype, whole.device
        self.sizes = whole.sizes[self.chosen]
        self.feature_names = whole.feature_names

    def __repr__(self) -> str:
        return f"{self.n_clients} of the clients of {self.whole!r}"

    family = _of_whole("family")
    form = _of_whole("form")
    nearly_convolution = _of_whole("nearly_convolution")
    supports_batches = _of_whole("supports_batches")
    least_convexity = _of_whole("least_convexity")
    smooth = _of_whole("smooth")

    def values(self, x: Array, clients: IntArray) -> Array:
        return self.whole.values(x, self.chosen[clients])

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        return self.whole.gradients(x, self.chosen[clients], batch_size, draws)

    def lipschitz(self) -> Array:
        return self.whole.lipschitz()[self.chosen]

    def lipschitz_in(self, factor: LinOp) -> Array:
        return self.whole.lipschitz_in(factor)[self.chosen]

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        return self.whole.batch_smoothness(batch_size, factor)[self.chosen]

    def curvatures(self, clients: IntArray) -> Array | None:
        return self.whole.curvatures(self.chosen[clients])

    def curvature_diagonals(self, clients: IntArray) -> Array | None:
        return self.whole.curvature_diagonals(self.chosen[clients])

    def curvature_products(self, clients: IntArray, vectors: Array) -> Array | None:
        return self.whole.curvature_products(self.chosen[clients], vectors)

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        return self.whole.hessians(x, self.chosen[clients])

    def constants(self) -> tuple[Any, ...]:
        return self.whole.constants()
