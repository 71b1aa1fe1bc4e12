"""The changes of coordinates: a scaling of each feature, a whitening, one of low rank, and a filter of frequencies."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any, ClassVar, Self

import numpy as np

from fpdfp import _checks
from fpdfp._array import Constant, namespace
from fpdfp._typing import Array, IntArray, Sent, Shape
from fpdfp.compress import QSGD, Natural
from fpdfp.linops import Diagonal, EachRow, LinOp, Matrix
from fpdfp.linops.maps import Filter
from fpdfp.precondition.base import Announced, Coded, Preconditioner, side

#: What rounding of the announced directions leaves of a steep one is at most this part of the level ρ.
LEFT = 0.1
#: How much smaller the spread of the curvature must be for these coordinates to be of use.
HELPS = 0.5


class Scaling(Coded):
    """P = diag(1/h): every coordinate has its own step.

    Parameters
    ----------
    curvature
        h, the curvature of f along each coordinate, all positive.
    rows
        How many rows x has, each with the curvature h; by default x has the shape of h.

    Examples
    --------
    >>> import numpy as np
    >>> Scaling(np.array([4.0, 1.0])).factor.apply(np.ones(2))
    array([0.5, 1. ])
    """

    sent: ClassVar[Sent] = {"announced": tuple[Announced, ...], "rows": int | None, "squared": bool}

    def __init__(self, curvature: Any, rows: int | None = None) -> None:
        values = _checks.float_array("curvature", curvature, dtype=np.float64)
        if (values <= 0).any():
            raise ValueError("curvature must be positive in every coordinate")
        self._announce((Announced.plain(np.sqrt(values).astype(np.float32)),), rows, squared=False)

    @classmethod
    def coarse(cls, curvature: Array, rows: int | None = None) -> Self:
        """Return the same for curvatures that are powers of two, which are sent as their exponents."""
        return cls.from_messages((Announced.rounded(Natural(), curvature.astype(np.float32)),), rows, squared=True)

    @classmethod
    def from_messages(cls, announced: tuple[Announced, ...], rows: int | None, squared: bool) -> Self:
        """Return the one that the server announces: with messages of the roots of h, or of h itself (``squared``)."""
        made = cls.__new__(cls)
        made._announce(announced, rows, squared=squared)
        return made

    def _announce(self, announced: tuple[Announced, ...], rows: int | None, *, squared: bool) -> None:
        """Take what is announced, if it is one array of positive numbers."""
        if len(announced) != 1:
            raise ValueError(f"announced must be one message, got {len(announced)}")
        values = announced[0].array
        if values.size == 0 or not (values > 0).all():
            raise ValueError("announced must hold positive numbers")
        self.announced, self.squared = announced, squared
        self.rows = None if rows is None else _checks.integer("rows", rows, at_least=1)

    @functools.cached_property
    def _roots(self) -> Constant:
        values = self.announced[0].array.astype(np.float64)
        return Constant(np.sqrt(values) if self.squared else values)

    @property
    def shape(self) -> Shape:
        return self.with_rows(self._roots.values.shape)

    @functools.cached_property
    def factor(self) -> Diagonal:  # type: ignore[override]
        return Diagonal(np.broadcast_to(1.0 / self._roots.values, self.shape))

    def coordinates(self, x: Array) -> Array:
        roots = self._roots.values if namespace(x) is np else self._roots.like(x)
        u: Array = (roots * x).astype(x.dtype, copy=False)
        return u

    def gradient(self, slope: Array) -> Array:
        return self.coordinates(slope)

    def metric(self, features: IntArray) -> Array:
        """Return S⁻ᵀS⁻¹ between some features of a row."""
        return np.diag(self._roots.values[features] ** 2)


class Whitening(Coded):
    """P = H⁻¹ for a symmetric positive definite matrix H: with H = CCᵀ, S = C⁻ᵀ.

    C is rounded to float32, in which it is sent, or to a coarser grid (:meth:`coarse`). For x of several rows the same
    is done to each of them.

    Parameters
    ----------
    hessian
        H.
    smoothness
        An upper bound of the Lipschitz constant of ∇f in the new coordinates, if one is known: about 1 where H bounds
        the Hessian of f everywhere. By default it is found from the clients' losses.
    rows
        How many rows x has, each with the Hessian H; by default x is a vector.

    Examples
    --------
    >>> import numpy as np
    >>> whitening = Whitening(np.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> S = whitening.inverse
    >>> (S.T @ np.array([[4.0, 2.0], [2.0, 2.0]]) @ S).round(6)
    array([[1., 0.],
           [0., 1.]])
    """

    sent: ClassVar[Sent] = {"announced": tuple[Announced, ...], "smoothness": float | None, "rows": int | None}

    def __init__(self, hessian: Any, smoothness: float | None = None, rows: int | None = None) -> None:
        matrix = _checks.float_array("hessian", hessian, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"hessian must be a square matrix, got shape {matrix.shape}")
        if not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-6 * float(np.abs(matrix).max())):
            raise ValueError("hessian must be symmetric")
        root = cholesky((matrix + matrix.T) / 2.0)
        self._announce((Announced.plain(root[np.tril_indices(len(root))].astype(np.float32)),), smoothness, rows)

    @classmethod
    def from_messages(cls, announced: tuple[Announced, ...], smoothness: float | None, rows: int | None) -> Self:
        """Return the one that the server announces: C, and where it has a scale the squares of that."""
        made = cls.__new__(cls)
        made._announce(announced, smoothness, rows)
        return made

    def _announce(self, announced: tuple[Announced, ...], smoothness: float | None, rows: int | None) -> None:
        """Take what is announced, if it is a triangle with a positive diagonal and perhaps a positive scale."""
        if len(announced) not in (1, 2):
            raise ValueError(f"announced must be one or two messages, got {len(announced)}")
        triangle = announced[0].array
        d = side(triangle) if triangle.ndim == 1 else 0
        if d < 1 or triangle.size != d * (d + 1) // 2 or not (triangle[np.arange(1, d + 1).cumsum() - 1] > 0).all():
            raise ValueError("announced must hold a triangle of numbers with a positive diagonal")
        for part in announced[1:]:
            if part.array.shape != (d,) or not (part.array > 0).all():
                raise ValueError(f"announced must hold a positive scale for each of {d} features")
        self.announced = announced
        self.smoothness = None if smoothness is None else _checks.real("smoothness", smoothness, positive=True)
        self.rows = None if rows is None else _checks.integer("rows", rows, at_least=1)

    @classmethod
    def coarse(cls, matrix: Array, step: float, scale: Array | None = None, rows: int | None = None) -> Self:
        """Return the whitening of a matrix whose root is rounded, at random, to multiples of at most ``step``.

        With ``scale``, powers of two, it belongs to the matrix whose rows and columns are multiplied with their roots.
        The diagonal of the root stays positive where the step is below the root of the least eigenvalue.
        """
        root = cholesky(matrix)
        levels = max(1, math.ceil(float(np.abs(root).max()) * (1.0 + 1e-6) / step))
        quantizer = QSGD(min(levels, QSGD.most_levels), block=None, norm="max")
        parts = [Announced.rounded(quantizer, root[np.tril_indices(len(root))].astype(np.float32))]
        if scale is not None:
            parts.append(Announced.rounded(Natural(), scale.astype(np.float32)))
        return cls.from_messages(tuple(parts), None, rows)

    def bounded(self, smoothness: float) -> Self:
        """Return the same, with a known smoothness."""
        other = copy.copy(self)
        other.smoothness = _checks.real("smoothness", smoothness, positive=True)
        return other

    @property
    def diagonal(self) -> Array:
        """The diagonal of H."""
        squares: Array = (self._root**2).sum(axis=1)
        return squares

    @functools.cached_property
    def _root(self) -> Array:
        triangle = self.announced[0].array.astype(np.float64)
        d = side(triangle)
        root = np.zeros((d, d))
        root[np.tril_indices(d)] = triangle
        if len(self.announced) > 1:
            root *= np.sqrt(self.announced[1].array.astype(np.float64))[:, None]
        return root

    @functools.cached_property
    def inverse(self) -> Array:
        """S as a matrix, for one row of x."""
        from scipy.linalg import solve_triangular

        inverse: Array = solve_triangular(self._root, np.eye(len(self._root)), lower=True).T
        return np.ascontiguousarray(inverse)

    @property
    def shape(self) -> Shape:
        return self.with_rows((side(self.announced[0].array),))

    @functools.cached_property
    def factor(self) -> LinOp:  # type: ignore[override]
        return self._map(self.inverse)

    def _map(self, matrix: Array) -> LinOp:
        return Matrix(matrix) if self.rows is None else EachRow(matrix, self.rows)

    def coordinates(self, x: Array) -> Array:
        u: Array = (x @ self._root).astype(x.dtype, copy=False)
        return u

    def gradient(self, slope: Array) -> Array:
        return self._inverse_adjoint.apply(slope)

    @functools.cached_property
    def _inverse_adjoint(self) -> LinOp:
        return self._map(self._root)


def cholesky(matrix: Array) -> Array:
    """Return the lower triangular root of a positive definite matrix."""
    try:
        root: Array = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        raise ValueError("hessian must be positive definite: add a ridge to it") from None
    return root


class Stretch(LinOp):
    """I + Q diag(g − 1) Qᵀ on the rows of x: directions, the orthonormal columns of Q, are multiplied with gains g."""

    def __init__(self, directions: Array, gains: Array, shape: Shape) -> None:
        self.in_shape = self.out_shape = shape
        self.directions, self.gains = Matrix(np.ascontiguousarray(directions.T)), gains

    @property
    def one(self) -> Stretch:
        """The map of one row."""
        return Stretch(self.directions.matrix.T, self.gains, self.in_shape[-1:])

    def apply(self, x: Array) -> Array:
        self.batch_of(x, self.in_shape, "x")
        flat = x.reshape(-1, self.in_shape[-1])
        parts = self.directions.apply(flat)
        moved: Array = flat + self.directions.adjoint((parts * (self.gains - 1.0)).astype(x.dtype, copy=False))
        return moved.reshape(x.shape)

    def adjoint(self, v: Array) -> Array:
        return self.apply(v)

    def _squared_norm(self) -> float:
        return max(1.0, float(self.gains.max())) ** 2 * (1.0 + 1e-9)


class LowRank(Coded):
    """P = (I + U diag(λ/ρ − 1) Uᵀ)⁻¹: directions u_k of curvatures λ_k above a level ρ get the curvature ρ.

    For x of several rows the same is done to each of them.

    Parameters
    ----------
    directions
        The u_k, the columns of a matrix. They are rounded when they are announced, and then made orthonormal.
    ratios
        λ_k/ρ, all at least 1.
    rows
        How many rows x has; by default x is a vector.

    Examples
    --------
    >>> import numpy as np
    >>> made = LowRank(np.array([[1.0], [0.0]]), [4.0])
    >>> made.factor.apply(np.ones(2)).round(6)
    array([0.5, 1. ])
    """

    sent: ClassVar[Sent] = {"announced": tuple[Announced, ...], "rows": int | None}

    def __init__(self, directions: Any, ratios: Any, rows: int | None = None) -> None:
        basis = _checks.float_array("directions", directions, dtype=np.float64)
        wanted = _checks.float_array("ratios", ratios, dtype=np.float64)
        if basis.ndim != 2 or not 0 < basis.shape[1] <= basis.shape[0] or wanted.shape != basis.shape[1:]:
            raise ValueError("directions must be columns, no more than features, and ratios one number for each")
        if not (wanted.astype(np.float32) >= 1).all():
            raise ValueError(f"ratios must be at least 1, got {wanted.min():g}")
        # Stochastic rounding in steps of max|u|/s turns a direction by an angle of about max|u| √(d/6)/s.
        turned = float(np.abs(basis).max()) * math.sqrt(len(basis) / 6.0)
        levels = math.ceil(turned * math.sqrt(float(wanted.max()) / LEFT))
        quantizer = QSGD(min(max(levels, 1), QSGD.most_levels), block=None, norm="max")
        messages = (
            Announced.rounded(quantizer, np.ascontiguousarray(basis.T).astype(np.float32)),
            Announced.plain(wanted.astype(np.float32)),
        )
        self._announce(messages, rows)

    @classmethod
    def from_messages(cls, announced: tuple[Announced, ...], rows: int | None) -> Self:
        """Return the one that the server announces: rows that span the directions, and the ratios."""
        made = cls.__new__(cls)
        made._announce(announced, rows)
        return made

    def _announce(self, announced: tuple[Announced, ...], rows: int | None) -> None:
        if len(announced) != 2:
            raise ValueError(f"announced must be two messages, got {len(announced)}")
        basis, ratios = announced[0].array, announced[1].array
        if basis.ndim != 2 or not 0 < len(basis) <= basis.shape[1] or ratios.shape != (len(basis),):
            raise ValueError("announced must hold directions, no more than features, and a ratio for each")
        if not (ratios >= 1).all():
            raise ValueError("announced must hold ratios of at least 1")
        self.announced = announced
        self.rows = None if rows is None else _checks.integer("rows", rows, at_least=1)

    @property
    def shape(self) -> Shape:
        return self.with_rows((self.announced[0].array.shape[1],))

    @functools.cached_property
    def _basis(self) -> Array:
        """The directions, orthonormal: what rounding did to their angles is undone."""
        basis, triangle = np.linalg.qr(self.announced[0].array.T.astype(np.float64))
        lengths = np.abs(np.diag(triangle))
        if not np.isfinite(basis).all() or lengths.min() <= 1e-9 * lengths.max():
            raise ValueError("directions must be independent, also when rounded to be announced")
        return basis

    def _stretch(self, power: float) -> Stretch:
        return Stretch(self._basis, self.announced[1].array.astype(np.float64) ** power, self.shape)

    @functools.cached_property
    def factor(self) -> Stretch:  # type: ignore[override]
        return self._stretch(-0.5)

    @functools.cached_property
    def _inverse(self) -> Stretch:
        return self._stretch(0.5)

    def coordinates(self, x: Array) -> Array:
        return self._inverse.apply(x)

    def gradient(self, slope: Array) -> Array:
        return self._inverse.apply(slope)

    def metric(self, features: IntArray) -> Array:
        """Return S⁻ᵀS⁻¹ between some features of a row."""
        part = self._basis[features]
        metric: Array = np.eye(len(part)) + (part * (self.announced[1].array.astype(np.float64) - 1.0)) @ part.T
        return metric


class Fourier(Preconditioner):
    """P = the inverse of a convolution, for images and volumes whose Hessian is nearly one (tomography, blurs).

    S multiplies the discrete Fourier transform with max(ŝ, floor · max ŝ)^{-1/2}, where ŝ is the transform of the
    Hessian's response to an impulse. Edges wrap round.

    Parameters
    ----------
    response
        The response: the Hessian of f times an array that is 1 at ``centre`` and 0 elsewhere.
    centre
        Where the impulse was; by default the middle, n // 2 on each axis.
    floor
        Frequencies with less than this share of the largest response are treated as if they had it.

    Examples
    --------
    >>> import numpy as np
    >>> blur = np.zeros((4, 4))
    >>> blur[2, 2] = 4.0
    >>> Fourier(blur).factor.apply(np.ones((4, 4)))[0]
    array([0.5, 0.5, 0.5, 0.5])
    """

    sent: ClassVar[Sent] = {"response": Array, "centre": Shape, "floor": float}

    def __init__(self, response: Any, centre: tuple[int, ...] | None = None, floor: float = 0.05) -> None:
        values = _checks.float_array("response", response)
        if values.ndim == 0 or values.size == 0:
            raise ValueError(f"response must have the shape of x, got shape {values.shape}")
        middle = tuple(n // 2 for n in values.shape) if centre is None else tuple(np.atleast_1d(centre).tolist())
        if len(middle) != values.ndim or not all(0 <= at < n for at, n in zip(middle, values.shape, strict=True)):
            raise ValueError(f"centre must be a place in an array of shape {values.shape}, got {centre!r}")
        self.response, self.centre, self.floor = values.astype(np.float32), middle, _checks.share("floor", floor)

    @functools.cached_property
    def _spectrum(self) -> Array:
        import scipy.fft

        at_origin = np.roll(self.response.astype(np.float64), [-at for at in self.centre], range(self.response.ndim))
        spectrum: Array = scipy.fft.rfftn(at_origin).real
        if spectrum.max() <= 0:
            raise ValueError("response must belong to a positive semidefinite Hessian, and not be zero")
        return spectrum

    @functools.cached_property
    def factor(self) -> Filter:  # type: ignore[override]
        return Filter(self.response.shape, np.maximum(self._spectrum, self.floor * self._spectrum.max()) ** -0.5)

    def helps(self, lipschitz: float, lipschitz_here: float) -> bool:
        """Whether f is better conditioned in these coordinates, by its Lipschitz constants without and with them.

        Each is compared with the mean curvature of the response. Where the Hessian is not nearly a convolution,
        the one with these coordinates is large.
        """
        without = float(self.response[self.centre])
        here = float(np.mean(self._spectrum * self.factor.gains**2))
        return lipschitz_here * without < HELPS * lipschitz * here

    def coordinates(self, x: Array) -> Array:
        return Filter(self.response.shape, 1.0 / self.factor.gains).apply(x)

    def gradient(self, slope: Array) -> Array:
        return self.coordinates(slope)

    @property
    def numbers(self) -> Array:
        return self.response
