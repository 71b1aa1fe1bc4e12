"""The interface of preconditioners, and symmetric matrices as they are sent: flat lower triangles."""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import math
from typing import Any, Self

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import QSGD, Compressor, Full, Natural, decode
from fpdfp.compress.plain import plain_bits
from fpdfp.errors import MessageError
from fpdfp.linops import LinOp
from fpdfp.rng import Draws, Purpose

#: The most numbers that are announced: the triangle of 11,000 features.
LARGEST = 1 << 26
#: Levels that are tried, in this order, for messages that may have an error.
LEVELS = (1, 3, 15, 127, 2047)


@dataclasses.dataclass(frozen=True)
class Announced:
    """Numbers as the server announces them: the message, and its exact length."""

    message: bytes
    bits: int

    def __post_init__(self) -> None:
        if not 0 <= 8 * len(self.message) - self.bits < 8:
            raise ValueError(f"bits must match a message of {len(self.message)} bytes, got {self.bits}")

    @classmethod
    def mask(cls, numbers: IntArray, count: int) -> Self:
        """Return a one for each of some features, a zero for the others, of that many."""
        mask = np.zeros(count, dtype=np.float32)
        mask[numbers] = 1.0
        return cls.rounded(Natural(), mask)

    @classmethod
    def rounded(cls, compressor: Compressor, numbers: Array) -> Self:
        """Return what a compressor makes of numbers, always the same."""
        draws = Draws(0, 0, np.zeros(1, dtype=np.int64))
        quantized = compressor.quantize(numbers[None], draws, Purpose.ANNOUNCE)
        made = cls.__new__(cls)
        # The message itself is written where it is sent: in a simulation it never is.
        vars(made).update(
            bits=int(compressor.nbits(quantized)[0]),
            array=compressor.dequantize(quantized)[0],
            unwritten=(compressor, quantized),
        )
        return made

    def __getattr__(self, name: str) -> Any:
        if name != "message" or "unwritten" not in vars(self):
            raise AttributeError(name)
        compressor, quantized = vars(self)["unwritten"]
        message = compressor.encode(quantized)[0]
        vars(self)["message"] = message
        return message

    @classmethod
    def plain(cls, numbers: Array) -> Self:
        """Return numbers unchanged."""
        return cls.rounded(Full(), numbers)

    @classmethod
    def within(cls, reach: float, numbers: Array, dtype: np.dtype[Any]) -> Self:
        """Return a short message of numbers with a bounded error, or else one in a given precision."""
        if float(np.linalg.norm(numbers)) <= reach:
            return cls.plain(np.zeros_like(numbers, dtype=dtype))
        for levels in LEVELS:
            made = cls.rounded(QSGD(levels, norm="max"), numbers.astype(dtype))
            if float(np.linalg.norm(made.array.astype(np.float64) - numbers)) <= reach:
                return made
        return cls.plain(numbers.astype(dtype))

    @functools.cached_property
    def array(self) -> Array:
        """The numbers that all clients decode."""
        return decode(self.message, limit=LARGEST)


def read_mask(mask: Announced, n_features: int) -> IntArray:
    """Return the features of a mask; raise MessageError for anything else."""
    array = mask.array
    if array.shape != (n_features,) or not ((array == 0) | (array == 1)).all() or not array.any():
        raise MessageError(f"mask must have a zero or a one for each of the {n_features} features, and a one at least")
    return np.flatnonzero(array)


class Preconditioner(abc.ABC):
    """A change of coordinates x = S u.

    Attributes
    ----------
    factor
        S.
    smoothness
        An upper bound of the Lipschitz constant of u ↦ Sᵀ∇f(Su), where one is known.
    """

    factor: LinOp
    smoothness: float | None = None

    @property
    def shape(self) -> Shape:
        """The shape of x; known without building the factor where that may be large."""
        return self.factor.in_shape

    @abc.abstractmethod
    def coordinates(self, x: Array) -> Array:
        """Return u with S u = x."""

    @abc.abstractmethod
    def gradient(self, slope: Array) -> Array:
        """Return p with Sᵀ p = slope: a gradient in x from one in u; also over a leading client axis."""

    @property
    @abc.abstractmethod
    def numbers(self) -> Array:
        """The numbers that S is made of, as all clients know them."""

    @property
    def bits(self) -> int:
        """The bits of the message that describes S to one client."""
        return plain_bits(self.numbers.shape, self.numbers.dtype)

    def __repr__(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.numbers).tobytes()).hexdigest()[:12]
        return f"{type(self).__name__}({self.factor.size_in} coordinates, {digest})"


class Coded(Preconditioner):
    """One that is made of what the server announces, and of nothing else: so both sides have the same.

    Attributes
    ----------
    announced
        The messages, which each client gets once.
    """

    announced: tuple[Announced, ...]
    rows: int | None

    def with_rows(self, one: Shape) -> Shape:
        """Return the shape of x from the shape of one of its rows."""
        return one if self.rows is None else (self.rows, *one)

    @property
    def numbers(self) -> Array:
        return np.concatenate([part.array.ravel() for part in self.announced])

    @property
    def bits(self) -> int:
        return sum(part.bits for part in self.announced)


def lower(matrices: Array) -> Array:
    """The lower triangles of symmetric matrices, flat."""
    rows, columns = np.tril_indices(matrices.shape[-1])
    return matrices[..., rows, columns]


def full(triangle: Array) -> Array:
    """The symmetric matrix of a lower triangle."""
    d = side(triangle)
    matrix = np.zeros((d, d))
    matrix[np.tril_indices(d)] = triangle
    return matrix + np.tril(matrix, -1).T


def side(triangle: Array) -> int:
    """The number of rows that the matrix of a lower triangle has."""
    return (math.isqrt(8 * len(triangle) + 1) - 1) // 2
