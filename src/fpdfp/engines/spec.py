"""Methods, penalties, maps and compressors as trees for parcels, so that a site learns from the server what is run.

A site must not execute what a server sends, so there are no pickles: an object is written as the name of its class and
its attributes, and only classes of this package that describe a problem or a method are made anew. What
cannot be written so (a function, a class of another package) is an error that names it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import math
import types
from typing import Any

import numpy as np

from fpdfp.errors import MessageError
from fpdfp.linops.matrix import Matrix

#: What a class has in the place of attributes that objects must not have of their own.
COMPUTED = (functools.cached_property, property, types.FunctionType, classmethod, staticmethod)
#: The parts of the package whose classes may be sent.
PACKAGES = ("penalties", "linops", "methods", "steps", "compress", "precondition", "problem")


def dump(value: Any) -> Any:
    """Return an object as a tree of a parcel.

    >>> import fpdfp
    >>> tree = dump(fpdfp.penalties.L1(0.5))
    >>> tree["class"]
    'fpdfp.penalties.l1:L1'
    >>> load(tree)
    L1(0.5)
    """
    if isinstance(value, np.generic):
        return {"number": value.dtype.str, "value": np.asarray(value).reshape(1)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if isinstance(value, type) and issubclass(value, np.generic):
        return {"dtype": np.dtype(value).str}
    if isinstance(value, list):
        return [dump(one) for one in value]
    if type(value) is tuple:
        return {"tuple": [dump(one) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[dump(name), dump(one)] for name, one in value.items()]}
    if type(value).__module__.startswith("scipy.sparse") and hasattr(value, "tocsr"):
        return _sparse(value)
    return _instance(value)


def load(tree: Any) -> Any:
    """Return the object that a tree stands for; raise MessageError if it stands for none that may be sent."""
    try:
        return _load(tree)
    except MessageError:
        raise
    except Exception as error:
        raise MessageError(f"a description of the run makes no sense: {type(error).__name__}: {error}") from error


def _load(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_load(one) for one in tree]
    if not isinstance(tree, dict):
        return tree
    match tree:
        case {"number": dtype, "value": value}:
            return np.dtype(dtype).type(value[0])
        case {"float": text}:
            return float(text)
        case {"dtype": text}:
            return np.dtype(text)
        case {"tuple": items}:
            return tuple(_load(one) for one in items)
        case {"dict": pairs}:
            return {_load(name): _load(one) for name, one in pairs}
        case {"sparse": "csr", "shape": shape, "data": data, "indices": indices, "indptr": indptr}:
            from scipy.sparse import csr_array

            matrix = csr_array((data, indices, indptr), shape=tuple(shape))
            matrix.check_format()
            return matrix
        case {"class": name, "fields": fields}:
            return _made(_class(name), {field: _load(one) for field, one in fields.items()})
    raise MessageError(f"a description of the run has a part that makes no sense: {sorted(tree)}")


def _sparse(matrix: Any) -> dict[str, Any]:
    rows = matrix.tocsr()
    return {
        "sparse": "csr", "shape": list(rows.shape), "data": rows.data, "indices": rows.indices, "indptr": rows.indptr,
    }  # fmt: skip


def _instance(value: Any) -> dict[str, Any]:
    kind = type(value)
    name = f"{kind.__module__}:{kind.__qualname__}"
    if not _may_be_sent(kind.__module__):
        raise TypeError(
            f"{value!r} cannot be sent to sites: it is a {kind.__module__}.{kind.__qualname__}, and only numbers, "
            f"arrays, sparse matrices and objects of fpdfp.{', fpdfp.'.join(PACKAGES)} can"
        )
    return {"class": name, "fields": {field: dump(one) for field, one in _fields(value).items()}}


def _fields(value: Any) -> dict[str, Any]:
    """Return what an object is made of, but for what it has computed and kept."""
    if isinstance(value, tuple):
        return dict(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    kept = {
        name
        for kind in type(value).__mro__
        for name, one in vars(kind).items()
        if isinstance(one, functools.cached_property)
    }
    return {name: one for name, one in vars(value).items() if name not in kept}


def _made(kind: type, fields: dict[str, Any]) -> Any:
    """Make an object of its attributes; what has a constructor of its own fields goes through it, and is checked."""
    if issubclass(kind, tuple) or dataclasses.is_dataclass(kind):
        return kind(**fields)
    made = object.__new__(kind)
    for name, one in fields.items():
        # An attribute in the place of a method, or of what is computed from others, would go around all checks.
        if inspect.getattr_static(kind, name, None).__class__ in COMPUTED:
            raise MessageError(f"a description of the run sets {name!a} of {kind.__name__}, which is not to be set")
        object.__setattr__(made, name, one)
    if isinstance(made, Matrix):
        _check_matrix(made)
    return made


def _check_matrix(made: Matrix) -> None:
    """Refuse a matrix that is none: kernels rely on it."""
    from scipy.sparse import csr_array

    kind = csr_array if made.sparse else np.ndarray
    if type(made.matrix) is not kind or made.matrix.ndim != 2 or made.matrix.dtype not in (np.float32, np.float64):
        raise MessageError("a description of the run has a matrix that is none")
    if made.matrix.shape != (*made.out_shape, *made.in_shape):
        raise MessageError("a description of the run has a matrix of another shape than it says")


def _may_be_sent(module: str) -> bool:
    """Whether the classes of a module may be sent."""
    return any(module == f"fpdfp.{one}" or module.startswith(f"fpdfp.{one}.") for one in PACKAGES)


def _class(name: Any) -> type:
    """Return the class of a name, if it is one that may be sent."""
    where, _, what = name.partition(":")
    if _may_be_sent(where) and what.isidentifier():
        module: types.ModuleType = importlib.import_module(where)
        kind = vars(module).get(what)
        if isinstance(kind, type) and kind.__module__ == where:
            return kind
    raise MessageError(f"a description of the run names {name!r}, which is no class that may be sent")
