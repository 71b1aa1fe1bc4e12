"""The linear maps that the package has, and the conversion of a user's B to one."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from fpdfp import _checks
from fpdfp._array import Constant, namespace
from fpdfp._typing import Array, Sent, Shape, SparseRows
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.linops.base import LinOp

#: What rounding in single precision may add to a squared norm.
ROUNDING = 1e-6


class Identity(LinOp):
    """B = I on arrays of a shape.

    >>> Identity(3).squared_norm
    1.0
    """

    sent: ClassVar[Sent] = {"shape": ("in_shape", Shape)}

    def __init__(self, shape: int | Shape) -> None:
        self.in_shape = self.out_shape = check_shape(shape)

    @property
    def is_identity(self) -> bool:
        return True

    def apply(self, x: Array) -> Array:
        return x

    def adjoint(self, v: Array) -> Array:
        return v

    @property
    def periodic(self) -> Array:
        return np.ones((*self.in_shape[:-1], self.in_shape[-1] // 2 + 1))

    def _squared_norm(self) -> float:
        return 1.0


def check_shape(shape: int | Shape) -> Shape:
    """Return a shape as a tuple of positive integers."""
    lengths = shape if isinstance(shape, tuple | list) else (shape,)
    if len(lengths) == 0:
        raise ValueError("shape must have at least one axis, got ()")
    return tuple(_checks.integer("shape", length, at_least=1) for length in lengths)


class Diagonal(LinOp):
    """Multiplication of every entry by its own factor.

    >>> import numpy as np
    >>> Diagonal([1.0, -2.0]).apply(np.ones(2))
    array([ 1., -2.])
    """

    sent: ClassVar[Sent] = {"factors": Array}

    def __init__(self, factors: Any) -> None:
        self.factors = _checks.own_array("factors", factors)
        if self.factors.size == 0:
            raise ValueError("factors must have at least one entry")
        self.in_shape = self.out_shape = self.factors.shape
        self._copies = Constant(self.factors)

    def apply(self, x: Array) -> Array:
        self.batch_of(x, self.in_shape, "x")
        product: Array = (self.beside(x) * x).astype(x.dtype, copy=False)
        return product

    def beside(self, x: Array) -> Array:
        """Return the factors for arithmetic with an array: besides one on the GPU they are there too."""
        return self.factors if namespace(x) is np else self._copies.like(x)

    def adjoint(self, v: Array) -> Array:
        return self.apply(v)

    def _squared_norm(self) -> float:
        return float(np.max(np.abs(self.factors))) ** 2


class Matrix(LinOp):
    """B given by its entries: a dense array or any SciPy sparse matrix.

    >>> import numpy as np
    >>> B = Matrix(np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]))
    >>> B.apply(np.array([3.0, 2.0, 0.0]))
    array([1., 2.])
    >>> B.adjoint(np.array([1.0, 2.0]))
    array([ 1.,  1., -2.])
    """

    sent: ClassVar[Sent] = {"matrix": Array | SparseRows}

    def __init__(self, matrix: Any, *, name: str = "matrix") -> None:
        if hasattr(matrix, "tocsr"):
            import scipy.sparse

            _checks.sparse_matrix(name, matrix)
            self.sparse = True
            self.matrix = scipy.sparse.csr_array(matrix, dtype=_float(matrix.dtype), copy=True)
            _checks.sparse_indices(name, self.matrix)
            self.matrix.sum_duplicates()
            _checks.finite(f"the stored entries of {name}", self.matrix.data)
        else:
            self.sparse = False
            self.matrix = _checks.own_array(name, matrix)
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise ArgumentError(name, f"must be a matrix with rows and columns, got shape {self.matrix.shape}")
        rows, columns = self.matrix.shape
        self.in_shape, self.out_shape = (columns,), (rows,)

    def apply(self, x: Array) -> Array:
        self.batch_of(x, self.in_shape, "x")
        return _multiply(self.matrix, x)

    def adjoint(self, v: Array) -> Array:
        self.batch_of(v, self.out_shape, "v")
        return _multiply(self._transpose, v)

    @functools.cached_property
    def _transpose(self) -> Any:
        return self.matrix.T.tocsr() if self.sparse else np.ascontiguousarray(self.matrix.T)

    def dual_step(self, *step: Any) -> None:
        """Do what :func:`fpdfp._kernels.matrix.dual_step_csr` does, with this sparse matrix."""
        there, back = self.matrix, self._transpose
        _kernels().dual_step_csr(
            there.data, there.indices, there.indptr, back.data, back.indices, back.indptr, *step
        )  # fmt: skip

    def dual_steps(self, *steps: Any) -> float:
        """Do what :func:`fpdfp._kernels.matrix.dual_steps_one` does, with this sparse matrix."""
        there, back = self.matrix, self._transpose
        theta: float = _kernels().dual_steps_one(
            there.data, there.indices, there.indptr, back.data, back.indices, back.indptr, *steps
        )  # fmt: skip
        return theta

    def _squared_norm(self) -> float:
        from fpdfp.linops.base import squared_norm_bound

        return squared_norm_bound(self.matrix)


def _float(dtype: Any) -> Any:
    return dtype if dtype in (np.float32, np.float64) else np.float64


@functools.cache
def _kernels() -> ModuleType:
    """Return the kernels: imported when first needed, and once, since even to find an imported module takes a while."""
    from fpdfp._kernels import matrix

    return matrix


def _multiply(matrix: Any, x: Array) -> Array:
    """Multiply each vector of ``x`` on its own: the bits do not depend on how many there are."""
    kernels = _kernels()
    vectors = np.ascontiguousarray(x).reshape(-1, matrix.shape[1])
    out: Array = kernels.multiply(matrix, vectors, x.dtype if x.dtype.kind == "f" else matrix.dtype)
    return out.reshape(*x.shape[:-1], matrix.shape[0])


class Difference(LinOp):
    r"""Forward differences of a vector, the (d − 1) × d matrix of full row rank of the fused lasso.

    .. math:: (Bx)_j = x_{j+1} - x_j, \qquad j = 1, \dots, d - 1

    >>> import numpy as np
    >>> Difference(4).apply(np.array([1.0, 1.0, 3.0, 0.0]))
    array([ 0.,  2., -3.])
    """

    sent: ClassVar[Sent] = {"size": ("size_in", int)}

    def __init__(self, size: int) -> None:
        length = _checks.integer("size", size, at_least=2)
        self.in_shape, self.out_shape = (length,), (length - 1,)

    def apply(self, x: Array) -> Array:
        self.batch_of(x, self.in_shape, "x")
        differences: Array = x[..., 1:] - x[..., :-1]
        return differences

    def adjoint(self, v: Array) -> Array:
        self.batch_of(v, self.out_shape, "v")
        out: Array = namespace(v).zeros((*v.shape[:-1], *self.in_shape), dtype=v.dtype)
        out[..., 1:] += v
        out[..., :-1] -= v
        return out

    def _squared_norm(self) -> float:
        return _path_laplacian_norm(self.in_shape[0])


class Gradient(LinOp):
    """The discrete gradient of a 1-, 2- or 3-dimensional image, by forward differences.

    .. math:: (Bx)_{a, j} = x_{j + e_a} - x_j

    with zero where j + e_a is outside the image (Neumann). The result has the axis of components first.

    >>> import numpy as np
    >>> Gradient((2, 2)).apply(np.array([[0.0, 1.0], [2.0, 5.0]]))
    array([[[2., 4.],
            [0., 0.]],
    <BLANKLINE>
           [[1., 0.],
            [3., 0.]]])
    """

    sent: ClassVar[Sent] = {"shape": ("in_shape", Shape)}

    def __init__(self, shape: int | Shape) -> None:
        self.in_shape = check_shape(shape)
        if len(self.in_shape) > 3:
            raise ValueError(f"shape must have 1, 2 or 3 axes, got {len(self.in_shape)}")
        self.out_shape = (len(self.in_shape), *self.in_shape)

    def apply(self, x: Array) -> Array:
        batch = self.batch_of(x, self.in_shape, "x")
        if len(self.in_shape) == 3 and x.dtype in (np.float32, np.float64) and x.dtype.isnative:
            return _by_kernel("gradient", x, self.in_shape, self.out_shape)
        out_shape = self.out_shape if batch is None else (batch, *self.out_shape)
        out: Array = namespace(x).zeros(out_shape, dtype=x.dtype)
        for axis in range(len(self.in_shape)):
            component = out[_component(axis, batch)]
            component[self._but_last(axis)] = x[self._but_first(axis)] - x[self._but_last(axis)]
        return out

    def adjoint(self, v: Array) -> Array:
        batch = self.batch_of(v, self.out_shape, "v")
        if len(self.in_shape) == 3 and v.dtype in (np.float32, np.float64) and v.dtype.isnative:
            return _by_kernel("adjoint", v, self.out_shape, self.in_shape)
        out: Array = namespace(v).zeros(self.in_shape if batch is None else (batch, *self.in_shape), dtype=v.dtype)
        for axis in range(len(self.in_shape)):
            component = v[_component(axis, batch)]
            out[self._but_first(axis)] += component[self._but_last(axis)]
            out[self._but_last(axis)] -= component[self._but_last(axis)]
        return out

    def _but_first(self, axis: int) -> Any:
        return (..., slice(1, None), *[slice(None)] * (len(self.in_shape) - axis - 1))

    def _but_last(self, axis: int) -> Any:
        return (..., slice(None, -1), *[slice(None)] * (len(self.in_shape) - axis - 1))

    @property
    def periodic(self) -> Array:
        # With edges that wrap round there are more differences, and |exp(iω) − 1|² = 4 sin²(ω/2).
        axes = [4.0 * np.sin(np.pi * np.arange(length) / length) ** 2 for length in self.in_shape]
        axes[-1] = axes[-1][: self.in_shape[-1] // 2 + 1]
        total: Array = sum(np.ix_(*axes), np.zeros(()))
        return total

    def _squared_norm(self) -> float:
        # BᵀB is a sum of one-dimensional Laplacians that share their eigenvectors: the largest add up.
        return sum(_path_laplacian_norm(length) for length in self.in_shape)


class MaskedGradient(LinOp):
    """The gradient of an image of 1, 2 or 3 dimensions that has values inside a mask only.

    x has an entry for each True of the mask, in C order, and perhaps others after them that have no place. A difference
    is taken where both of its ends are inside:

    .. math:: (Bx)_{a, j} = x_{j + e_a} - x_j

    with zero elsewhere. The result has the axis of components first, then the entries of the mask.

    Parameters
    ----------
    mask
        Where the image has values.
    others
        The number of entries after the image, such as an intercept.

    Examples
    --------
    >>> import numpy as np
    >>> MaskedGradient(np.array([[True, True], [False, True]]), others=1).apply(np.array([1.0, 4.0, 6.0, 9.0]))
    array([[0., 2., 0.],
           [3., 0., 0.]])
    """

    def __init__(self, mask: Any, others: int = 0) -> None:
        inside = np.asarray(mask)
        if inside.dtype != bool or not 1 <= inside.ndim <= 3 or not inside.any():
            raise ArgumentError(
                "mask", f"must be an array of 1, 2 or 3 axes of truth values, some of them True, got {inside.dtype} of "
                f"shape {inside.shape}"
            )  # fmt: skip
        count = int(inside.sum())
        self.in_shape = (count + _checks.integer("others", others, at_least=0),)
        self.out_shape = (inside.ndim, count)
        place = np.full(inside.shape, -1)
        place[inside] = np.arange(count)
        #: For each axis and entry the number of the entry after it and before it, −1 for none.
        self.following = np.full(self.out_shape, -1, dtype=np.int32)
        self.preceding = np.full(self.out_shape, -1, dtype=np.int32)
        for axis in range(inside.ndim):
            first, second = (np.moveaxis(place, axis, 0)[part].ravel() for part in (slice(-1), slice(1, None)))
            both = (first >= 0) & (second >= 0)
            self.following[axis, first[both]] = second[both]
            self.preceding[axis, second[both]] = first[both]
        #: For each axis the length of the longest row of neighbours.
        self.longest = [_longest_run(np.moveaxis(inside, axis, -1)) for axis in range(inside.ndim)]

    def apply(self, x: Array) -> Array:
        from fpdfp._kernels import masked

        lead = () if self.batch_of(x, self.in_shape, "x") is None else x.shape[:1]
        rows = np.ascontiguousarray(x, dtype=_float(x.dtype)).reshape(-1, *self.in_shape)
        out: Array = np.empty((len(rows), *self.out_shape), dtype=rows.dtype)
        masked.apply(rows, self.following, out)
        return out.reshape(*lead, *self.out_shape)

    def adjoint(self, v: Array) -> Array:
        from fpdfp._kernels import masked

        lead = () if self.batch_of(v, self.out_shape, "v") is None else v.shape[:1]
        rows = np.ascontiguousarray(v, dtype=_float(v.dtype)).reshape(-1, *self.out_shape)
        out: Array = np.empty((len(rows), *self.in_shape), dtype=rows.dtype)
        masked.adjoint(rows, self.following, self.preceding, out)
        return out.reshape(*lead, *self.in_shape)

    def _squared_norm(self) -> float:
        # Along an axis the differences form paths; the norms of the axes add up to a bound, exact for a full box.
        return sum(_path_laplacian_norm(length) for length in self.longest)


def _by_kernel(name: str, array: Array, shape: Shape, out_shape: Shape) -> Array:
    """Call a kernel for volumes; the shapes belong to one client's array and its result."""
    xp = namespace(array)
    clients = array.shape[: array.ndim - len(shape)]
    out: Array = xp.empty((*clients, *out_shape), dtype=array.dtype)
    if array.size:
        rows = xp.ascontiguousarray(array).reshape(-1, *shape)
        getattr(tv_kernels(array), name)(rows, out.reshape(-1, *out_shape))
    return out


def tv_kernels(array: Array) -> Any:
    """Return the kernels of total variation for where an array is."""
    if namespace(array) is np:
        from fpdfp._kernels import tv

        return tv
    from fpdfp._cuda import tv as on_gpu

    return on_gpu


def _component(axis: int, batch: int | None) -> Any:
    return (axis,) if batch is None else (slice(None), axis)


def _path_laplacian_norm(length: int) -> float:
    """The largest eigenvalue of the Laplacian of a path, 4 sin²(π(d − 1)/2d), rounded up."""
    return 4.0 * math.sin(math.pi * (length - 1) / (2 * length)) ** 2 * (1.0 + 1e-15)


def _longest_run(inside: Array) -> int:
    """The largest number of consecutive True along the last axis."""
    outside = np.flatnonzero(~np.pad(inside, [*[(0, 0)] * (inside.ndim - 1), (1, 1)]))
    return int(np.diff(outside).max()) - 1


class EachRow(LinOp):
    """The same matrix applied to every row of an x of shape (rows, d).

    Attributes
    ----------
    one
        The map of one row.

    Examples
    --------
    >>> import numpy as np
    >>> sums = EachRow([[1.0, 1.0, 1.0]], rows=2)
    >>> sums
    EachRow((2, 3) → (2, 1))
    >>> sums.apply(np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 4.0]]))
    array([[6.],
           [4.]])
    """

    sent: ClassVar[Sent] = {"matrix": ("one.matrix", Array | SparseRows), "rows": int}

    def __init__(self, matrix: Any, rows: int) -> None:
        self.one = Matrix(matrix)
        count = _checks.integer("rows", rows, at_least=1)
        self.rows = count
        self.in_shape, self.out_shape = (count, *self.one.in_shape), (count, *self.one.out_shape)

    def apply(self, x: Array) -> Array:
        self.batch_of(x, self.in_shape, "x")
        # The rows of all clients go where Matrix has its client axis.
        return self.one.apply(x.reshape(-1, *self.one.in_shape)).reshape(*x.shape[:-1], *self.one.out_shape)

    def adjoint(self, v: Array) -> Array:
        self.batch_of(v, self.out_shape, "v")
        return self.one.adjoint(v.reshape(-1, *self.one.out_shape)).reshape(*v.shape[:-1], *self.one.in_shape)

    def _squared_norm(self) -> float:
        return self.one.squared_norm


class VStack(LinOp):
    """B = [B_1; B_2; …]: the results of several maps of the same argument, flattened and joined.

    Together with :class:`fpdfp.penalties.Stacked` this gives sums such as total variation plus
    non-negativity.

    >>> import numpy as np
    >>> from fpdfp.linops import Difference, Identity
    >>> VStack([Difference(3), Identity(3)]).apply(np.array([1.0, 2.0, 4.0]))
    array([1., 2., 1., 2., 4.])
    """

    sent: ClassVar[Sent] = {"parts": tuple[LinOp, ...]}

    def __init__(self, parts: Sequence[Any]) -> None:

        if len(parts) == 0:
            raise ValueError("parts must hold at least one map, got none")
        self.parts: tuple[LinOp, ...] = tuple(aslinop(part, name=f"parts[{i}]") for i, part in enumerate(parts))
        self.in_shape = self.parts[0].in_shape
        for i, part in enumerate(self.parts):
            if part.in_shape != self.in_shape:
                raise ValueError(f"parts[{i}] acts on shape {part.in_shape} but parts[0] on shape {self.in_shape}")
        self._edges = np.cumsum([0, *(part.size_out for part in self.parts)]).tolist()
        self.out_shape = (self._edges[-1],)

    def apply(self, x: Array) -> Array:
        lead = () if self.batch_of(x, self.in_shape, "x") is None else x.shape[:1]
        results = [part.apply(x).reshape(*lead, part.size_out) for part in self.parts]
        joined: Array = namespace(x).concatenate(results, axis=-1)
        return joined

    def adjoint(self, v: Array) -> Array:
        lead = () if self.batch_of(v, self.out_shape, "v") is None else v.shape[:1]
        total: Array | None = None
        for part, start, stop in zip(self.parts, self._edges[:-1], self._edges[1:], strict=True):
            term = part.adjoint(v[..., start:stop].reshape(*lead, *part.out_shape))
            total = term if total is None else total + term
        assert total is not None
        return total

    @property
    def periodic(self) -> Array | None:
        total: Array = np.zeros(())
        for part in self.parts:
            gains = part.periodic
            if gains is None:
                return None
            total = total + gains
        return total

    def _squared_norm(self) -> float:
        total = sum(part.squared_norm for part in self.parts)
        if sum(not part.is_identity for part in self.parts) <= 1:
            return total  # the identity has every vector for an eigenvector: the norms add up
        # The sum of the parts' bounds always holds; a direct estimate may be tighter.
        return min(super()._squared_norm(), total)


class Wrapped(LinOp):
    """B given by ``matvec`` and ``rmatvec``, as in SciPy's ``LinearOperator`` and PyLops.

    Parameters
    ----------
    operator
        The operator, acting on vectors. It is called, not copied: what changes its results changes a problem.
    in_shape, out_shape
        The shapes of arguments and results; vectors by default.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> Wrapped(aslinearoperator(np.array([[1.0, 2.0]]))).apply(np.array([3.0, 4.0]))
    array([11.])
    """

    def __init__(self, operator: Any, in_shape: Shape | None = None, out_shape: Shape | None = None) -> None:
        dtype = getattr(operator, "dtype", None)
        if dtype is not None and np.dtype(dtype).kind == "c":
            raise TypeError(f"a linear map must be real, got an operator of dtype {dtype}")
        rows, columns = operator.shape
        self.operator = operator
        self.in_shape = (columns,) if in_shape is None else tuple(in_shape)
        self.out_shape = (rows,) if out_shape is None else tuple(out_shape)
        for name, shape, size in (("in_shape", self.in_shape, columns), ("out_shape", self.out_shape, rows)):
            if int(np.prod(shape)) != size:
                raise ArgumentError(name, f"must have {size} entries, which is the operator's size, got {shape}")

    def apply(self, x: Array) -> Array:
        return self._each(self.operator.matvec, x, self.in_shape, self.out_shape, "x")

    def adjoint(self, v: Array) -> Array:
        return self._each(self.operator.rmatvec, v, self.out_shape, self.in_shape, "v")

    def _each(self, product: Any, array: Array, shape: Shape, result_shape: Shape, name: str) -> Array:
        if self.batch_of(array, shape, name) is None:
            return self._one(product, array, result_shape)
        out: Array = namespace(array).empty((len(array), *result_shape), dtype=array.dtype)
        for i, row in enumerate(array):
            out[i] = self._one(product, row, result_shape)
        return out

    def _one(self, product: Any, array: Array, result_shape: Shape) -> Array:
        result = namespace(array).asarray(product(array.ravel()))
        if result.dtype.kind == "c":  # an operator may declare a wrong dtype
            raise TypeError(f"a linear map must be real, but {type(self.operator).__name__} gives complex numbers")
        shaped: Array = result.reshape(result_shape).astype(array.dtype, copy=False)
        return shaped


class Filter(LinOp):
    """Multiplication of the discrete Fourier transform with real, positive gains that are even: symmetric."""

    sent: ClassVar[Sent] = {"shape": ("in_shape", Shape), "gains": Array}

    def __init__(self, shape: Shape, gains: Array) -> None:
        if gains.shape != (*shape[:-1], shape[-1] // 2 + 1) or not (np.isfinite(gains) & (gains > 0)).all():
            raise ValueError(f"gains must be positive, one for each frequency of {shape}, got shape {gains.shape}")
        self.in_shape = self.out_shape = shape
        self.gains = gains
        self._gains = Constant(gains)
        self._plans: dict[tuple[Shape, str], tuple[Any, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Filter, (self.in_shape, self.gains)

    def apply(self, x: Array) -> Array:
        self.batch_of(x, self.in_shape, "x")
        axes = tuple(range(-len(self.in_shape), 0))
        if namespace(x) is not np:
            return self._apply_on_gpu(x, axes)
        import scipy.fft

        spectrum = scipy.fft.rfftn(x, axes=axes) * self._gains.like(x)
        filtered: Array = scipy.fft.irfftn(spectrum, s=self.in_shape, axes=axes)
        return filtered

    def _apply_on_gpu(self, x: Array, axes: tuple[int, ...]) -> Array:
        """Transform with plans that are kept: CuPy takes longer to look a plan up than the GPU to carry it out."""
        from cupy.cuda import cufft

        xp = namespace(x)
        x = xp.ascontiguousarray(x)
        spectrum = xp.empty((*x.shape[:-1], self.gains.shape[-1]), dtype=np.result_type(x.dtype, np.complex64))
        plans = self._plans.get((x.shape, x.dtype.char))
        if plans is None:
            from cupyx.scipy.fftpack import get_fft_plan

            there = get_fft_plan(x, axes=axes, value_type="R2C")
            back = get_fft_plan(spectrum, shape=self.in_shape, axes=axes, value_type="C2R")
            plans = self._plans[x.shape, x.dtype.char] = there, back
        plans[0].fft(x, spectrum, cufft.CUFFT_FORWARD)
        spectrum *= self._gains.like(x)
        filtered: Array = xp.empty_like(x)
        plans[1].fft(spectrum, filtered, cufft.CUFFT_INVERSE)
        filtered /= math.prod(self.in_shape)
        return filtered

    def adjoint(self, v: Array) -> Array:
        return self.apply(v)

    @property
    def periodic(self) -> Array:
        return np.square(self.gains)

    def _squared_norm(self) -> float:
        return float(self.gains.max()) ** 2 * (1.0 + ROUNDING)


class Compose(LinOp):
    """B S: first S, then B.

    >>> import numpy as np
    >>> from fpdfp.linops import Difference
    >>> Compose(Difference(3), np.diag([1.0, 2.0, 3.0])).apply(np.ones(3))
    array([1., 1.])
    """

    sent: ClassVar[Sent] = {"outer": LinOp, "inner": LinOp}

    def __init__(self, outer: Any, inner: Any) -> None:

        self.outer, self.inner = aslinop(outer, name="outer"), aslinop(inner, name="inner")
        if self.outer.in_shape != self.inner.out_shape:
            raise ValueError(
                f"inner gives arrays of shape {self.inner.out_shape}, but outer acts on shape {self.outer.in_shape}"
            )
        self.in_shape, self.out_shape = self.inner.in_shape, self.outer.out_shape

    def apply(self, x: Array) -> Array:
        return self.outer.apply(self.inner.apply(x))

    def adjoint(self, v: Array) -> Array:
        return self.inner.adjoint(self.outer.adjoint(v))

    def _squared_norm(self) -> float:
        if self.outer.is_identity:
            return self.inner.squared_norm
        outer = self.outer.periodic if isinstance(self.inner, Filter) else None
        if isinstance(self.inner, Filter) and outer is not None:
            # ‖BSx‖ ≤ ‖CSx‖ for a convolution C, and CS multiplies frequencies.
            return float((outer * self.inner.periodic).max()) * (1.0 + ROUNDING)
        # The product of the bounds always holds; a direct estimate is tighter.
        return min(super()._squared_norm(), self.outer.squared_norm * self.inner.squared_norm)


def aslinop(value: Any, *, name: str = "linop", in_shape: Shape | None = None) -> LinOp:
    """Return a linear map for an array, a sparse matrix, a ``LinearOperator`` or a :class:`LinOp`.

    A PyLops operator whose ``dims`` are ``in_shape``, the shape of x, acts on arrays of that shape; any other operator
    acts on vectors.

    >>> aslinop([[1.0, -1.0]])
    Matrix((2,) → (1,))
    """
    if isinstance(value, LinOp):
        return value
    if hasattr(value, "matvec") and hasattr(value, "rmatvec") and hasattr(value, "shape"):
        dims, dimsd = (_shape(value, attribute) for attribute in ("dims", "dimsd"))
        return Wrapped(value, dims, dimsd) if dims is not None and dims == in_shape else Wrapped(value)
    if any(hasattr(value, attribute) for attribute in ("tocsr", "__array__", "__dlpack__")) or isinstance(
        value, list | tuple
    ):
        return Matrix(value, name=name)
    raise ArgumentTypeError(
        name,
        f"must be an array, a sparse matrix, a SciPy LinearOperator or an fpdfp.linops map, got {type(value).__name__}",
    )


def _shape(operator: Any, attribute: str) -> Shape | None:
    """Return the shape that a PyLops operator has for its arguments or results, None for other operators."""
    found = getattr(operator, attribute, None)
    return None if found is None else tuple(int(length) for length in found)
