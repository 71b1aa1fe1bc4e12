"""Tables and tensors in the form that scikit-learn accepts; errors name the column."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError


def rows(X: Any) -> Any:
    """Return X as it may be validated: a table (pandas, Polars) is checked column by column, a tensor made an array."""
    if type(X).__name__ == "LazyFrame":
        raise ArgumentTypeError("X", "must be a table with its rows, got a LazyFrame: give X.collect()")
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        _check_columns(X)
        return X
    return _array("X", X)


def targets(y: Any) -> Any:
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
    """Return an array for a tensor that scikit-learn does not take, or should not; anything else as it is."""
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
