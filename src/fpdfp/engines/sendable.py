"""The list of classes that may come over a wire, and how each is told: the arguments of its constructor."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp import compress, linops, methods, penalties, precondition, steps
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.validation import constructor_hints
from fpdfp.engines.job import Job, Place
from fpdfp.engines.traffic import payload
from fpdfp.errors import ArgumentError
from fpdfp.folds import Folds
from fpdfp.linops import LinOp
from fpdfp.linops.maps import Filter
from fpdfp.methods.base import Algorithm, Method
from fpdfp.penalties import Penalty
from fpdfp.precondition.base import Announced
from fpdfp.problem import Model


class Sendable(NamedTuple):
    """How an object is told, and made again.

    Attributes
    ----------
    make
        The constructor, which checks what it is given.
    hints
        Its arguments: the name and the type of each.
    read
        Returns the arguments that make an object anew; nothing that is computed from them is among these.
    """

    make: Callable[..., Any]
    hints: Mapping[str, Any]
    read: Callable[[Any], Mapping[str, Any]]


def by_fields(kind: type) -> Sendable:
    """Return how a dataclass or a named tuple is told: by its fields."""
    hints = constructor_hints(kind)
    return Sendable(kind, hints, lambda value: {name: getattr(value, name) for name in hints})


def by_attributes(make: Callable[..., Any], **hints: Any) -> Sendable:
    """Return how an object is told whose constructor's arguments are its attributes."""
    return Sendable(make, hints, lambda value: {name: getattr(value, name) for name in hints})


@functools.cache
def penalties_and_maps() -> dict[type, Sendable]:
    """Return the penalties and linear maps that may be sent."""
    from scipy.sparse import csr_array

    matrix: Any = Array | csr_array
    return {
        penalties.Zero: by_attributes(penalties.Zero),
        penalties.L1: by_attributes(penalties.L1, weight=float | Array),
        penalties.Box: by_attributes(penalties.Box, lower=np.ndarray, upper=np.ndarray),
        penalties.NonNegative: by_attributes(penalties.NonNegative),
        penalties.GroupL12: by_attributes(
            penalties.GroupL12, weight=float | Array, groups=IntArray | None, axis=int | None
        ),
        penalties.ElasticNet: by_attributes(
            penalties.ElasticNet, l1=np.ndarray, l2=np.ndarray, lower=np.ndarray, upper=np.ndarray
        ),
        penalties.SparseGroup: by_attributes(
            penalties.SparseGroup, weight=float | Array, group_weight=float | Array, groups=IntArray
        ),
        penalties.Stacked: by_attributes(penalties.Stacked, parts=tuple[Penalty, ...], shapes=tuple[Shape, ...]),
        linops.Identity: Sendable(linops.Identity, {"shape": Shape}, lambda B: {"shape": B.in_shape}),
        linops.Gradient: Sendable(linops.Gradient, {"shape": Shape}, lambda B: {"shape": B.in_shape}),
        linops.Difference: Sendable(linops.Difference, {"size": int}, lambda B: {"size": B.size_in}),
        linops.Diagonal: by_attributes(linops.Diagonal, factors=Array),
        linops.Matrix: by_attributes(linops.Matrix, matrix=matrix),
        linops.EachRow: Sendable(
            linops.EachRow,
            {"matrix": matrix, "rows": int},
            lambda B: {"matrix": B.one.matrix, "rows": B.in_shape[0]},
        ),
        linops.VStack: by_attributes(linops.VStack, parts=tuple[LinOp, ...]),
        linops.Compose: by_attributes(linops.Compose, outer=LinOp, inner=LinOp),
    }


def public_bits(model: Model) -> int:
    """Return the bits of the arrays of g and B, which clients are told.

    Zero where these cannot be described without code: sites have them already.
    """
    try:
        return payload([_arguments(model.penalty), _arguments(model.linop)])
    except TypeError:
        return 0


def _arguments(value: Any) -> Any:
    """Return what makes a penalty or a map: the arguments of its constructor, and those of its parts."""
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, int | float | str | np.ndarray):
        return value
    if isinstance(value, list | tuple):
        return [_arguments(one) for one in value]
    if type(value).__module__.startswith("scipy.sparse"):
        rows = value.tocsr()
        return [rows.data, rows.indices, rows.indptr]
    known = penalties_and_maps().get(type(value))
    if known is None:
        raise TypeError(f"{value!r} cannot be described")
    return [_arguments(one) for one in known.read(value).values()]


@functools.cache
def registry() -> dict[type, Sendable]:
    """Return all classes that may be sent. A dataclass needs no more than its name here."""
    fields = (
        steps.Constant, steps.Decreasing, steps.Theorem2, steps.Automatic,
        compress.Full, compress.Half, compress.QSGD, compress.NUQSGD, compress.Natural, compress.Sign, compress.RandK,
        compress.TopK,
        methods.InnerSolve, *methods_and_algorithms(), Folds, Announced, Place, Job,
    )  # fmt: skip
    return {kind: by_fields(kind) for kind in fields} | penalties_and_maps() | {
        Filter: Sendable(Filter, {"shape": Shape, "gains": Array}, lambda S: {"shape": S.in_shape, "gains": S.gains}),
        precondition.Scaling: by_attributes(
            precondition.Scaling.from_messages, announced=tuple[Announced, ...], rows=int | None, squared=bool
        ),
        precondition.Whitening: by_attributes(
            precondition.Whitening.from_messages,
            announced=tuple[Announced, ...],
            smoothness=float | None,
            rows=int | None,
        ),
        precondition.LowRank: by_attributes(
            precondition.LowRank.from_messages, announced=tuple[Announced, ...], rows=int | None
        ),
        precondition.Fourier: by_attributes(precondition.Fourier, response=Array, centre=Shape, floor=float),
        Model: Sendable(
            make_model,
            {
                "penalty": Penalty, "linop": LinOp, "shape": Shape, "dtype": Literal["<f4", "<f8"],
                "device": Literal["cpu", "cuda"],
            },
            lambda model: model._asdict() | {"dtype": np.dtype(model.dtype).str},
        ),
    }  # fmt: skip


def methods_and_algorithms() -> list[type]:
    """Return the methods whose clients can be elsewhere (``traits.restorable``), and the algorithms in their files."""
    chosen = [getattr(methods, name) for name in methods.__all__]
    chosen = [one for one in chosen if issubclass(one, Method) and one is not Method and one.traits.restorable]
    files = [vars(sys.modules[method.__module__]).values() for method in chosen]
    found = [one for file in files for one in file if isinstance(one, type) and issubclass(one, Algorithm)]
    return [*chosen, *dict.fromkeys(one for one in found if not inspect.isabstract(one))]


def make_model(penalty: Penalty, linop: LinOp, shape: Shape, dtype: str, device: str) -> Model:
    """Return a model whose parts fit each other."""
    if linop.in_shape != shape:
        raise ArgumentError("linop", f"must act on arrays of shape {shape}, got one for {linop.in_shape}")
    return Model(penalty.bind(linop.out_shape), linop, shape, np.dtype(dtype), device)


@functools.cache
def classes() -> dict[str, type]:
    """Return the classes by their names in a tree."""
    return {name_of(kind): kind for kind in registry()}


def name_of(kind: type) -> str:
    """Return the name of a class in a tree: that of its part of the package, and its own.

    >>> name_of(penalties.L1)
    'penalties.L1'
    """
    return f"{kind.__module__.split('.')[1]}.{kind.__qualname__}"
