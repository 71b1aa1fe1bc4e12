"""Methods, penalties, maps and compressors as trees for parcels, so that a site learns from the server what is run.

A site must not execute what a server sends, so there are no pickles: an object is written as the name of its class and
the arguments of its constructor, and made anew by that constructor, which checks them. The classes are those of a list
(:mod:`fpdfp.cohorts.spec`). What cannot be written so (a function, a class of another package) is an error that
names it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp import _checks, compress, linops, methods, penalties, precondition, steps
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.requests import Job, Place
from fpdfp.cohorts.serialization import constructor_hints, validate
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.folds import Folds
from fpdfp.linops import LinOp
from fpdfp.linops.maps import Filter
from fpdfp.methods.base import Algorithm, Method
from fpdfp.penalties import Penalty
from fpdfp.precondition.base import Announced
from fpdfp.problem import Model
from fpdfp.traffic import payload


class Sendable(NamedTuple):
    """The description of an object, and its reconstruction.

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
    """Return the description of a dataclass or a named tuple: its fields."""
    hints = constructor_hints(kind)
    return Sendable(kind, hints, lambda value: {name: getattr(value, name) for name in hints})


def by_attributes(make: Callable[..., Any], **hints: Any) -> Sendable:
    """Return the description of an object whose constructor's arguments are its attributes."""
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
    """Return the bits of the arrays of g and B, which clients receive.

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


def dump(value: Any) -> Any:
    """Return an object as a tree of a parcel.

    >>> import fpdfp
    >>> tree = dump(fpdfp.penalties.L1(0.5))
    >>> tree
    {'class': 'penalties.L1', 'fields': {'weight': 0.5}}
    >>> load(tree)
    L1(0.5)
    """
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str | bytes | np.ndarray):
        return value
    if isinstance(value, list) or type(value) is tuple:
        return [dump(one) for one in value]
    if isinstance(value, dict):
        return {name: dump(one) for name, one in value.items()}
    if type(value).__module__.startswith("scipy.sparse") and hasattr(value, "tocsr"):
        rows = value.tocsr()
        return {"shape": list(rows.shape), "data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
    kind = type(value)
    if kind not in registry():
        raise TypeError(
            f"{value!r} cannot be sent to sites: it is a {kind.__module__}.{kind.__qualname__}, and only numbers, "
            "arrays, sparse matrices and the penalties, maps, methods and compressors of fpdfp can"
        )
    return {"class": name_of(kind), "fields": {name: dump(one) for name, one in registry()[kind].read(value).items()}}


def load(tree: Any, kind: type = object) -> Any:
    """Return the object of a class that a tree stands for; raise MessageError if it stands for none."""
    try:
        return validate(_load(tree), kind, "a description of the run")
    except MessageError:
        raise
    except Exception as error:
        raise MessageError(f"a description of the run cannot be used: {type(error).__name__}: {error}") from error


def _load(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_load(one) for one in tree]
    if not isinstance(tree, dict):
        return tree
    if set(tree) == {"class", "fields"}:
        return _object(tree["class"], tree["fields"])
    if set(tree) == {"shape", "data", "indices", "indptr"}:
        return _matrix(**tree)
    return {name: _load(one) for name, one in tree.items()}


def _object(name: Any, fields: Any) -> Any:
    """Make an object by the constructor of its class, of all of its arguments and nothing else."""
    kind = classes().get(name) if isinstance(name, str) else None
    if kind is None:
        raise MessageError(f"a description of the run names {name!a}, which is not a class that may be sent")
    make, hints, _ = registry()[kind]
    if not isinstance(fields, dict) or set(fields) != set(hints):
        given = ", ".join(sorted(map(ascii, fields))) if isinstance(fields, dict) else type(fields).__name__
        raise MessageError(f"{name} is made of {sorted(hints)}, a description of the run has {given}")
    return make(**{field: validate(_load(one), hints[field], f"{name}: {field}") for field, one in fields.items()})


def _matrix(shape: Any, data: Any, indices: Any, indptr: Any) -> Any:
    """Make a sparse matrix whose indices are all inside it: kernels do not look."""
    from scipy.sparse import csr_array

    rows, columns = validate(shape, tuple[int, int], "shape")
    parts = [validate(one, np.ndarray, "a sparse matrix") for one in (data, indices, indptr)]
    if any(part.ndim != 1 for part in parts) or any(part.dtype.kind != "i" for part in parts[1:]):
        raise MessageError("a sparse matrix must have a row of numbers, and rows of indices")
    if len(parts[2]) != rows + 1:
        raise MessageError(f"indptr must have a number for each of {rows} rows, and one more, got {len(parts[2])}")
    _checks.compressed_rows(parts[2], parts[1])
    matrix = csr_array(tuple(parts), shape=(rows, columns))
    _checks.sparse_indices("a sparse matrix", matrix)
    return matrix
