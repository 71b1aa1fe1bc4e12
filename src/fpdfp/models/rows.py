"""Arguments about rows: tables and tensors, weights, offsets, sites, times, and the weights of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.federation.table import ModelRows
from fpdfp.survival import Times


def as_rows(X: Any) -> Any:
    """Return X as it may be validated: a table (pandas, Polars) is checked column by column, a tensor made an array."""
    if type(X).__name__ == "LazyFrame":
        raise ArgumentTypeError("X", "must be a table with its rows, got a LazyFrame: give X.collect()")
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        _check_columns(X)
        return X
    return _array("X", X)


def as_targets(y: Any) -> Any:
    """Return y as it may be validated; a column of a table must have no missing values."""
    if not (hasattr(y, "to_numpy") and hasattr(y, "dtype")):
        return _array("y", y)
    missing = _missing(y)
    if missing.any():
        raise ArgumentError("y", f"must have a value for every row, but {_count(missing)}")
    return y


def scale_of(y: Any) -> list[Any] | None:
    """Return the categories of an ordered categorical column in their order; None for anything else."""
    dtype: Any = getattr(y, "dtype", None)
    return list(dtype.categories) if getattr(dtype, "ordered", False) else None


def _array(name: str, value: Any) -> Any:
    """Return an array for a tensor that scikit-learn does not take, or should not; anything else unchanged."""
    plain = hasattr(value, "__array__") and not getattr(value, "requires_grad", False) and not _checks.is_on_gpu(value)
    tensor = hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")
    return _checks.host_array(name, value) if tensor and not plain else value


def _check_columns(X: Any) -> None:
    """Refuse columns that do not hold numbers, and missing values, by name."""
    for number, name in enumerate(X.columns):
        column = X.iloc[:, number] if hasattr(X, "iloc") else X.to_series(number)
        if not _is_numeric(column.dtype):
            raise TypeError(
                f"X: the column {name!r} must hold numbers, got {column.dtype}; encode it, for example with "
                "scikit-learn's OneHotEncoder, or leave it out"
            )
        missing = _missing(column)
        if missing.any():
            raise ValueError(
                f"X: the column {name!r} must have a value for every row, but {_count(missing)}; fill them in, for "
                "example with scikit-learn's SimpleImputer, or leave the rows out"
            )


def _is_numeric(dtype: Any) -> bool:
    """Whether a column holds numbers or truth values, by its dtype of pandas or of Polars."""
    if hasattr(dtype, "is_numeric"):
        return bool(dtype.is_numeric() or str(dtype) == "Boolean")
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    # A category of truth values would count as truth values.
    return not hasattr(dtype, "categories") and bool(is_numeric_dtype(dtype) or is_bool_dtype(dtype))


def _missing(column: Any) -> Array:
    """Return where a column of pandas or of Polars has no value, or NaN."""
    if hasattr(column, "isna"):
        return np.asarray(column.isna(), dtype=bool)
    missing = np.asarray(column.is_null(), dtype=bool)
    if column.dtype.is_float():
        missing |= np.asarray(column.is_nan().fill_null(True), dtype=bool)
    return missing


def _count(missing: Array) -> str:
    count = int(np.count_nonzero(missing))
    verb = "is" if count == 1 else "are"
    return f"{count} of {len(missing)} {verb} missing, the first in row {int(missing.argmax())}"


def column(name: str, value: Any, rows: int) -> Array:
    """Return a number for each row, of one for all or an array."""
    found = _checks.float_array(name, value, dtype=np.float64)
    if found.ndim == 0:
        return np.full(rows, float(found))
    if found.shape != (rows,):
        raise ArgumentError(name, f"must be a number for each of the {rows} rows, got shape {found.shape}")
    return found


def row_weights(sample_weight: Any, rows: int) -> tuple[Array | None, float]:
    """Return weights, None if missing, and what makes their mean 1."""
    if sample_weight is None:
        return None, 1.0
    weights = column("sample_weight", sample_weight, rows)
    if (weights < 0).any() or not weights.any():
        found = "but all are zero" if not weights.any() else f"got {weights.min():g}"
        raise ArgumentError("sample_weight", f"must be at least 0 for all rows, and positive for some, {found}")
    return weights, rows / float(weights.sum())


def refuse_of_rows(**given: Any) -> None:
    """Refuse what is said of rows where a formula says it."""
    for name, value in given.items():
        if value is not None:
            instead = "weights='column'" if name == "sample_weight" else "offset(…) in the formula"
            raise ArgumentError(name, f"must be None with a formula; give {instead}")


def refuse_column(weights: Any) -> None:
    """Refuse the name of a column without a table."""
    if weights is not None:
        raise ArgumentError("weights", "must be None without a formula; give sample_weight")


def check_class_weight(given: Any) -> None:
    """Refuse what is neither None, "balanced" nor positive numbers by class."""
    if given is None or (isinstance(given, str) and given == "balanced"):
        return
    if not isinstance(given, Mapping):
        raise ArgumentError("class_weight", "must be None, 'balanced', or a dictionary of positive numbers by class")
    for label, value in given.items():
        _checks.real(f"class_weight of {label!r}", value, positive=True)


def class_weights(given: Any, classes: Any, counts: IntArray) -> tuple[float, ...]:
    """Return the weight of each class, none where all are 1; ``counts`` are the rows of each over all sites.

    >>> class_weights("balanced", ["no", "yes"], np.array([30, 10]))
    (0.6666666666666666, 2.0)
    """
    if given is None:
        return ()
    if isinstance(given, str):
        return tuple(map(float, counts.sum() / (len(counts) * counts)))
    known = list(classes)
    strange = [label for label in given if label not in known]
    if strange:
        listed = ", ".join(str(one) for one in known)
        raise ArgumentError("class_weight:", f"{strange[0]!r} is not a class; the classes are {listed}")
    return tuple(float(given.get(label, 1.0)) for label in known)


def effects_of(site: Any, sites: Any, effects: Array, rows: int, *, random: bool = False) -> Array:
    """Return the intercepts of the sites of rows, in their last axis.

    ``effects`` has, in its last axis, those of all ``sites``, or of all but the first, whose own is 0. Where they are
    random those of other sites, or of none, are 0.

    >>> effects_of(["b", "a"], ["a", "b"], np.array([0.5]), 2)
    array([0.5, 0. ])
    """
    if site is None and random:
        return np.zeros((*effects.shape[:-1], rows))
    if site is None:
        raise ArgumentError("site", f"must say where rows are from, with site effects: one of {list(sites)}")
    whole = effects if random else np.concatenate([np.zeros((*effects.shape[:-1], 1)), effects], axis=-1)
    place = {str(name): j for j, name in enumerate(sites)}
    names = [str(site)] * rows if isinstance(site, str) or np.ndim(site) == 0 else [str(one) for one in site]
    strange = [name for name in names if name not in place]
    if len(names) != rows or (strange and not random):
        raise ArgumentError("site", f"must be one of {', '.join(place)} for each of the {rows} rows")
    whole = np.concatenate([whole, np.zeros((*effects.shape[:-1], 1))], axis=-1)
    return np.asarray(whole[..., [place.get(name, -1) for name in names]])


def read_sites(groups: Any, rows: int) -> tuple[Array, IntArray]:
    """Return the sites, and the number of each row's site."""
    if groups is None:
        return np.array([0]), np.zeros(rows, dtype=np.int64)
    labels = _checks.host_array("groups", groups)
    if labels.shape != (rows,):
        raise ValueError(f"groups must name the site of each of the {rows} rows of X, got shape {labels.shape}")
    found, owner = _checks.labels("groups", labels)
    return found, owner


def append_columns(X: Any, columns: Array) -> Any:
    """Return rows with further columns, dense or sparse as they were."""
    if not hasattr(X, "tocsr"):
        return np.concatenate([X, columns], axis=1)
    import scipy.sparse

    return scipy.sparse.hstack([X, columns], format="csr")


def read_response(y: Any, rows: int) -> Times:
    """Return the times of rows; numbers alone are times of events."""
    if y is None:
        raise ArgumentError(
            "y", "must be the times of rows: the model requires y to be passed, but the target y is None"
        )
    given = as_targets(y)
    array = _checks.host_array("y", given)
    if array.dtype.names is None and array.ndim == 1:
        if array.dtype.kind == "O":
            type_of_target(array, input_name="y", raise_unknown=True)
        times = Times.of(_checks.float_array("y", array), np.ones(len(array)))
    else:
        times = Times.read(array)
    if len(times.time) != rows:
        raise ArgumentError("y", f"must have a time for each of the {rows} rows of X, got {len(times.time)}")
    if not times.event.any():
        raise ArgumentError("y", "must have an event in some row, but all are censored")
    return times


def read_rows(X: Any, y: Any, strata: Any, weights: Any, offset: Any) -> ModelRows:
    """Return rows with their times, as a site has them."""
    times, count = read_response(y, X.shape[0]), X.shape[0]
    weight = (
        None if weights is None else _checks.float_array("sample_weight", weights, dtype=np.float64, shape=(count,))
    )
    if weight is not None and ((weight < 0).any() or not (weight[times.event] > 0).any()):
        raise ArgumentError("sample_weight", "must be at least zero for all rows, and not zero for some with an event")
    shifts = None if offset is None else _checks.float_array("offset", offset, dtype=np.float64, shape=(count,))
    labels = np.full(count, "")
    if strata is not None:
        names, codes = _checks.labels("strata", strata)
        if codes.shape != (count,):
            raise ArgumentError("strata", f"must have one label for each of the {count} rows, got {codes.shape}")
        labels = names.astype(str)[codes]
    return ModelRows(X, times.event.astype(np.float64), weight, shifts, times, labels)


def take_rows(rows: ModelRows, some: Array) -> ModelRows:
    """Return some rows."""
    times = None if rows.times is None else Times(*(one[some] for one in rows.times))
    weights, offset, strata = (None if one is None else one[some] for one in (rows.weights, rows.offset, rows.strata))
    clusters = None if rows.clusters is None else rows.clusters[some]
    return ModelRows(rows.X[some], rows.y[some], weights, offset, times, strata, clusters)
