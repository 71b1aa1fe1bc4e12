"""Checks of arguments: each error names the argument, what was wrong and what is accepted."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp._typing import Array, Shape
from fpdfp.errors import ArgumentError, ArgumentTypeError

#: How many entries of an array are looked at at a time.
AT_A_TIME = 1 << 20
#: The devices of DLPack whose memory the processor can read: its own, and what is pinned for CUDA or for ROCm.
HOST_MEMORY = (1, 3, 11)


def integer(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """Return ``value`` as an int in the given range; raise an error otherwise."""
    if type(value) is int and value >= at_least and (at_most is None or value <= at_most):
        return value
    accepted = f"an integer of at least {at_least}" + (f" and at most {at_most}" if at_most is not None else "")
    if isinstance(value, bool):
        raise ArgumentTypeError(name, f"must be {accepted}, got {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(name, f"must be {accepted}, got {value!r}") from None
    if number < at_least or (at_most is not None and number > at_most):
        raise ArgumentError(name, f"must be {accepted}, got {number}")
    return number


def real(name: str, value: Any, *, positive: bool = False, at_least: float | None = None) -> float:
    """Return ``value`` as a finite float, positive or at least a bound where asked."""
    accepted = "a finite number"
    if positive:
        accepted += " greater than 0"
    elif at_least is not None:
        accepted += f" of at least {at_least:g}"
    if isinstance(value, bool | np.bool_ | str | bytes):
        raise ArgumentTypeError(name, f"must be {accepted}, got {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(name, f"must be {accepted}, got {type(value).__name__}") from None
    if not math.isfinite(number) or (positive and number <= 0) or (at_least is not None and number < at_least):
        raise ArgumentError(name, f"must be {accepted}, got {number:g}")
    return number


def share(name: str, value: Any) -> float:
    """Return ``value`` as a number above 0 and at most 1."""
    number = real(name, value, positive=True)
    if number > 1:
        raise ArgumentError(name, f"must be at most 1, got {number:g}")
    return number


def flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentTypeError(name, f"must be True or False, got {value!r}")
    return bool(value)


def kind(value: Any) -> str:
    """Say what was given where an instance of something was wanted."""
    if isinstance(value, type):
        return f"the class {value.__name__}: make one, as {value.__name__}(…)"
    return type(value).__name__


def shape(name: str, value: Any) -> Shape:
    """Return ``value`` as a tuple of lengths."""
    if not isinstance(value, tuple | list):
        raise ArgumentTypeError(name, f"must be a tuple of lengths, got {value!r}")
    return tuple(integer(f"{name}: a length", length, at_least=0) for length in value)


def choice(name: str, value: Any, accepted: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of the accepted words."""
    if not isinstance(value, str) or value not in accepted:
        raise ArgumentError(name, f"must be one of {', '.join(map(repr, accepted))}, got {value!r}")
    return value


def finite(name: str, array: Array, place: Callable[[int], tuple[int, ...]] | None = None) -> Array:
    """Return ``array`` if every entry is finite, or say where the first other one is.

    ``place`` returns the index to name for an entry, given its number; by default the index in the array. Entries are
    looked at some at a time: rows in a file that is mapped into memory may be more than fit there.
    """
    if array.size <= AT_A_TIME and np.isfinite(array).all():
        return array
    order: Any = "F" if array.flags.f_contiguous else "C"
    flat, bad, first = array.reshape(-1, order=order), 0, 0
    for start in range(0, flat.size, AT_A_TIME):
        wrong = ~np.isfinite(flat[start : start + AT_A_TIME])
        if wrong.any():
            first = first if bad else start + int(np.argmax(wrong))
            bad += int(np.count_nonzero(wrong))
    if bad:
        where = tuple(map(int, np.unravel_index(first, array.shape, order=order))) if place is None else place(first)
        raise ArgumentError(
            name,
            f"must be finite, but {bad} of its {array.size} entries are NaN or infinite; "
            f"the first is at index {where if len(where) != 1 else where[0]}",
        )
    return array


def host_array(name: str, value: Any) -> Array:
    """Return ``value`` as an array of NumPy: anything that NumPy takes, and tensors that offer DLPack alone."""
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentTypeError(name, "must not be a masked array: fill in or exclude masked values")
    _refuse_gradient(name, value)
    if is_on_gpu(value):
        raise ArgumentTypeError(
            name,
            f"must be in the memory of the processor, got {_article(value)} on the GPU: give a copy, .get() of "
            "CuPy or .cpu() of PyTorch",
        )
    try:
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray) and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{name} cannot be made into an array: {error}") from None


def _refuse_gradient(name: str, value: Any) -> None:
    """Refuse a tensor that is part of a computation; of one on the GPU even to ask where it is would be an error."""
    if getattr(value, "requires_grad", False) is True:
        raise ArgumentTypeError(name, "must not be a tensor that requires a gradient: give .detach()")


def is_on_gpu(value: Any) -> bool:
    """Whether an array or a tensor is in the memory of another device."""
    if isinstance(value, np.ndarray | np.generic | list | tuple | int | float):
        return False
    if hasattr(value, "__cuda_array_interface__"):
        return True
    return hasattr(value, "__dlpack_device__") and int(value.__dlpack_device__()[0]) not in HOST_MEMORY


def _article(value: Any) -> str:
    """Say what kind of array it is."""
    name = type(value).__name__
    return "an array" if name == "ndarray" else f"a {name}"


def float_array(name: str, value: Any, *, shape: Shape | None = None, dtype: Any = None, xp: Any = np) -> Array:
    """Return ``value`` as a finite C-ordered float array, of the given shape and dtype where asked.

    ``xp`` is NumPy, or CuPy for an array on the GPU, to which others are copied.
    """
    _refuse_gradient(name, value)
    if xp is np:
        array = host_array(name, value)
    elif is_on_gpu(value):
        array = _device_array(value, xp)
    else:
        there: Array = xp.asarray(float_array(name, value, shape=shape, dtype=dtype))
        return there
    if array.dtype.kind not in "fiub":
        raise ArgumentTypeError(name, f"must hold real numbers, got dtype {array.dtype}")
    if dtype is None:
        dtype = kept_dtype(array.dtype)
    array = xp.ascontiguousarray(array, dtype=dtype).reshape(array.shape)
    if shape is not None and array.shape != shape:
        raise ArgumentError(name, f"must have shape {shape}, got {array.shape}")
    return finite(name, array)


def kept_dtype(dtype: Any) -> Any:
    """Return the dtype in which numbers of a dtype are kept: float32 for such, in any order of bytes, else float64."""
    return np.dtype(np.float32 if dtype.newbyteorder("=") == np.float32 else np.float64)


def own(array: Any, given: Any) -> Any:
    """Return an array that was made of what a user gave, copied where edits of that would change it.

    This is the rule of the whole package. An array of NumPy is used as it is only if no one can write to it. It is
    read-only, and so is what it is a view of, unless nothing else refers to that (``numpy.load`` and ``reshape`` return
    views). Of tables, tensors and arrays on the GPU it is not known who writes to them: they are copied.
    """
    if isinstance(given, np.ndarray):
        return array.copy() if np.may_share_memory(array, given) and not _is_read_only(given, array) else array
    return array if isinstance(given, list | tuple) else array.copy()


def _is_read_only(array: Array, made: Array) -> bool:
    """Whether no one can write to an array; ``made`` is an array that was made of it, and may be a view."""
    if array.flags.writeable:
        return False
    view: Any = array
    while isinstance(view.base, np.ndarray):
        known = _ALONE + (made is not array and made.base is view.base)
        if view.base.flags.writeable and _references(view) > known:
            return False
        view = view.base
    try:
        return view.base is None or memoryview(view.base).readonly
    except TypeError:  # no buffer that could be asked: the flag of the array counts
        return True


def _references(view: Any) -> int:
    """Return the number of references to what an array is a view of."""
    base = view.base
    return sys.getrefcount(base)


#: The same where nothing but the view and that function refers to it.
_ALONE = _references(np.zeros(2).reshape(1, 2))


def own_array(name: str, value: Any, *, shape: Shape | None = None, dtype: Any = None, xp: Any = np) -> Array:
    """Return what :func:`float_array` does, as an array that edits of ``value`` do not change."""
    array: Array = own(float_array(name, value, shape=shape, dtype=dtype, xp=xp), value)
    return array


def numbers(name: str, value: Any, accepted: str, *, shape: Shape | None = None, infinite: bool = False) -> Array:
    """Return a number or an array of numbers in float64 that edits of ``value`` do not change.

    Truth values, texts and everything else are refused, with ``accepted`` for what may be given in their place.
    """
    array = host_array(name, value)
    if array.dtype.kind not in "fiu":
        raise ArgumentTypeError(name, f"must be {accepted}, got {_describe(value, array)}")
    if shape is not None and array.shape != shape:
        raise ArgumentError(name, f"must have shape {shape}, got {array.shape}")
    array = own(np.ascontiguousarray(array, dtype=np.float64).reshape(array.shape), value)
    if infinite and np.isnan(array).any():
        raise ArgumentError(name, f"must not be NaN, which {np.count_nonzero(np.isnan(array))} of its entries are")
    return array if infinite else finite(name, array)


def _describe(value: Any, array: Array) -> str:
    """Say what was given where numbers were wanted."""
    if array.ndim == 0:
        return repr(value) if value is None or isinstance(value, str | bytes | bool | np.bool_) else kind(value)
    return "truth values" if array.dtype.kind == "b" else f"dtype {array.dtype}"


def weights(name: str, value: Any) -> Array:
    """Return a number or an array of numbers, none of them negative, that edits of ``value`` do not change."""
    array = numbers(name, value, "a number of at least 0, or an array of such numbers")
    if (array < 0).any():
        raise ArgumentError(name, f"must not be negative, got {array.min():g}")
    return array


def _device_array(value: Any, xp: Any) -> Array:
    """Return an array or a tensor on the GPU as one of CuPy, in the memory where it is."""
    there = hasattr(value, "__cuda_array_interface__")
    array: Array = xp.asarray(value) if there else xp.from_dlpack(value)
    return array


def sparse_matrix(name: str, value: Any) -> None:
    """Refuse a sparse matrix that is on the GPU, or does not hold real numbers."""
    if type(value).__module__.startswith("cupyx"):
        raise ArgumentTypeError(
            name, "must be in the memory of the processor, got a matrix on the GPU: give a copy, .get()"
        )
    if value.dtype.kind not in "fiub":
        raise ArgumentTypeError(name, f"must hold real numbers, got dtype {value.dtype}")


def sparse_indices(name: str, matrix: Any) -> None:
    """Refuse a sparse matrix whose indices point outside it: kernels do not look."""
    try:
        compressed_rows(matrix.indptr, matrix.indices)
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise ArgumentError(name, f"is not a valid sparse matrix: {error}") from None


def compressed_rows(indptr: Array, indices: Array) -> None:
    """Refuse rows of a sparse matrix that overlap or are outside its entries.

    SciPy's own check looks at no row where the last number is not positive, and its differences may overflow.
    """
    ends = indptr.astype(np.int64)
    if not ends.size or ends[0] != 0 or ends[-1] > len(indices) or (np.diff(ends) < 0).any():
        raise ValueError("indptr must start with 0, not decrease, and end at most at the number of indices")


def labels(name: str, value: Any) -> tuple[Array, Array]:
    """Return the distinct labels in sorted order and the number of each entry's label; refuse missing ones."""
    array = host_array(name, value)
    if array.dtype.kind == "O":
        missing = any(_is_missing(label) for label in array.ravel())
    else:
        missing = bool(array.dtype.kind in "fcmM" and (array != array).any())  # NaN, NaT
    if missing or (array.dtype.kind == "f" and not np.isfinite(array).all()):
        raise ArgumentError(name, "must name one for every entry, but some are None, NaN or infinite")
    try:
        names, codes = np.unique(array, return_inverse=True)
    except TypeError as error:
        raise ArgumentTypeError(name, f"must be of one kind that can be sorted: {error}") from None
    return names, codes.reshape(array.shape).astype(np.int64)


def _is_missing(label: Any) -> bool:
    """Whether a label is None, NaN, NaT or pandas' NA, which does not even state whether it differs from itself."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True
