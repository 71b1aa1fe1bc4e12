"""Checks of arguments: each error names the argument, what was wrong and what is accepted."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from fpdfp._typing import Array, Shape


def integer(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """Return ``value`` as an int in the given range, or say why it is none."""
    if type(value) is int and value >= at_least and (at_most is None or value <= at_most):
        return value
    accepted = f"an integer of at least {at_least}" + (f" and at most {at_most}" if at_most is not None else "")
    if isinstance(value, bool):
        raise TypeError(f"{name} must be {accepted}, got {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be {accepted}, got {value!r}") from None
    if number < at_least or (at_most is not None and number > at_most):
        raise ValueError(f"{name} must be {accepted}, got {number}")
    return number


def real(name: str, value: Any, *, positive: bool = False, at_least: float | None = None) -> float:
    """Return ``value`` as a finite float, positive or at least a bound where asked."""
    accepted = "a finite number"
    if positive:
        accepted += " greater than 0"
    elif at_least is not None:
        accepted += f" of at least {at_least:g}"
    if isinstance(value, bool | np.bool_ | str | bytes):
        raise TypeError(f"{name} must be {accepted}, got {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be {accepted}, got {type(value).__name__}") from None
    if not math.isfinite(number) or (positive and number <= 0) or (at_least is not None and number < at_least):
        raise ValueError(f"{name} must be {accepted}, got {number:g}")
    return number


def share(name: str, value: Any) -> float:
    """Return ``value`` as a number above 0 and at most 1."""
    number = real(name, value, positive=True)
    if number > 1:
        raise ValueError(f"{name} must be at most 1, got {number:g}")
    return number


def flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def kind(value: Any) -> str:
    """Say what was given where an instance of something was wanted."""
    if isinstance(value, type):
        return f"the class {value.__name__}: make one, as {value.__name__}(…)"
    return type(value).__name__


def shape(name: str, value: Any) -> Shape:
    """Return ``value`` as a tuple of lengths."""
    if not isinstance(value, tuple | list):
        raise TypeError(f"{name} must be a tuple of lengths, got {value!r}")
    return tuple(integer(f"{name}: a length", length, at_least=0) for length in value)


def choice(name: str, value: Any, accepted: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of the accepted words."""
    if not isinstance(value, str) or value not in accepted:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}, got {value!r}")
    return value


def finite(name: str, array: Array) -> Array:
    """Return ``array`` if every entry is finite, or say where the first other one is."""
    good = np.isfinite(array)
    if not good.all():
        where = tuple(int(i) for i in np.argwhere(~good)[0])
        count = int(array.size - np.count_nonzero(good))
        raise ValueError(
            f"{name} must be finite, but {count} of its {array.size} entries are NaN or infinite; "
            f"the first is at index {where if len(where) != 1 else where[0]}"
        )
    return array


def float_array(name: str, value: Any, *, shape: Shape | None = None, dtype: Any = None, xp: Any = np) -> Array:
    """Return ``value`` as a finite C-ordered float array, of the given shape and dtype where asked.

    ``xp`` is NumPy, or CuPy for an array on the GPU, to which others are copied.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array: fill in or leave out what is masked")
    on_gpu = hasattr(value, "__cuda_array_interface__")
    if xp is np and on_gpu:
        raise TypeError(f"{name} must be in the memory of the processor, got an array on the GPU: give a copy, .get()")
    if xp is not np and not on_gpu:
        there: Array = xp.asarray(float_array(name, value, shape=shape, dtype=dtype))
        return there
    try:
        array = xp.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} cannot be made into an array: {error}") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if dtype is None:
        dtype = array.dtype if array.dtype in (np.float32, np.float64) else np.float64
    array = xp.ascontiguousarray(array, dtype=dtype).reshape(array.shape)
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return finite(name, array)


def sparse_indices(name: str, matrix: Any) -> None:
    """Refuse a sparse matrix whose indices point outside it: kernels do not look."""
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{name} is not a valid sparse matrix: {error}") from None


def labels(name: str, value: Any) -> tuple[Array, Array]:
    """Return the distinct labels in sorted order and the number of each entry's label; refuse missing ones."""
    array = np.asarray(value)
    if array.dtype.kind == "O":
        missing = any(label is None or label != label for label in array.ravel())  # NaN
    else:
        missing = bool(array.dtype.kind in "fcmM" and (array != array).any())  # NaN, NaT
    if missing or (array.dtype.kind == "f" and not np.isfinite(array).all()):
        raise ValueError(f"{name} must name one for every entry, but some are None, NaN or infinite")
    try:
        names, codes = np.unique(array, return_inverse=True)
    except TypeError as error:
        raise TypeError(f"{name} must be of one kind that can be sorted: {error}") from None
    return names, codes.reshape(array.shape).astype(np.int64)
