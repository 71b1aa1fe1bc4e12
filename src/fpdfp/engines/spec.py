"""Methods, penalties, maps and compressors as trees for parcels, so that a site learns from the server what is run.

A site must not execute what a server sends, so there are no pickles: an object is written as the name of its class and
the arguments of its constructor, and made anew by that constructor, which checks them. The classes are those of a list
(:mod:`fpdfp.engines.sendable`). What cannot be written so (a function, a class of another package) is an error that
names it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp.cohorts.validation import validate
from fpdfp.engines.sendable import classes, name_of, registry
from fpdfp.errors import MessageError


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
