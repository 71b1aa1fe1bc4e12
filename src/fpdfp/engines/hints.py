"""Values checked against type annotations: what a coordinator sends is what a constructor says that it takes."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from fpdfp.errors import MessageError

#: Integers are less than this: NumPy has no larger ones.
LARGEST = 1 << 63


@functools.cache
def constructor_hints(kind: type) -> dict[str, Any]:
    """Return the annotations of the fields of a dataclass or a named tuple that its constructor takes."""
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.init]
    else:
        names = list(kind._fields)  # type: ignore[attr-defined]
    hints = typing.get_type_hints(kind)
    unchecked = [name for name in names if hints[name] is Any or name.startswith("_")]
    if unchecked:
        raise TypeError(f"{kind.__name__} cannot be sent: nothing is said of the type of {', '.join(unchecked)}")
    return {name: hints[name] for name in names}


def fit(value: Any, hint: Any, name: str) -> Any:
    """Return a value that is what an annotation says; lists stand for tuples. Raise MessageError for any other.

    Numbers must be finite, but for those in arrays whose annotation is ``np.ndarray`` alone.

    >>> fit([1, 2], tuple[int, ...], "shape")
    (1, 2)
    >>> fit("1", int | None, "rows")
    Traceback (most recent call last):
      ...
    fpdfp.errors.MessageError: rows must be int or None, got str
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of(value, args, name)
    if origin is Literal:
        if not isinstance(value, str) or value not in args:
            raise _refusal(value, hint, name)
        return value
    if origin in (list, tuple) and isinstance(value, list | tuple):
        ends = args if origin is tuple and args[-1] is not Ellipsis else args[:1] * len(value)
        if len(ends) != len(value):
            raise MessageError(f"{name} must have {len(ends)} entries, got {len(value)}")
        return origin(fit(one, kind, f"{name}[{i}]") for i, (one, kind) in enumerate(zip(value, ends, strict=True)))
    if origin is dict and isinstance(value, dict):
        _check_names(value, name)
        return {key: fit(one, args[1], f"{name}[{key!r}]") for key, one in value.items()}
    if (origin or hint) is np.ndarray and isinstance(value, np.ndarray):
        return _array(value, args, name)
    if isinstance(value, dict) and isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return build(hint, value, name)
    if not _is_plain(value, hint):
        raise _refusal(value, hint, name)
    return value


def build(kind: type, given: Mapping[str, Any], name: str) -> Any:
    """Return a dataclass made of the fields in a dictionary, each of which must be what its annotation says."""
    hints = constructor_hints(kind)
    strange = set(given) - set(hints)
    if strange:
        raise MessageError(f"{name} is made of {sorted(hints)}, not of {', '.join(sorted(map(ascii, strange)))}")
    try:
        return kind(**{field: fit(one, hints[field], f"{name}: {field}") for field, one in given.items()})
    except TypeError as error:
        raise MessageError(f"{name} makes no sense: {error}") from None


def _one_of(value: Any, hints: tuple[Any, ...], name: str) -> Any:
    refused = None
    for hint in hints:
        try:
            return fit(value, hint, name)
        except MessageError as error:
            # The first is for what it should be, the others for what it may be instead.
            refused = refused or error
    if isinstance(value, list | dict | np.ndarray) and refused is not None:
        raise refused
    raise MessageError(f"{name} must be {' or '.join(map(_told, hints))}, got {type(value).__name__}")


def _array(value: np.ndarray[Any, Any], args: tuple[Any, ...], name: str) -> Any:
    wanted = get_args(args[1])[0] if args else Any
    if value.dtype.kind not in "fiub" or (wanted is not Any and value.dtype != wanted):
        raise MessageError(f"{name} must hold {'real numbers' if wanted is Any else _told(wanted)}, got {value.dtype}")
    if args and not np.isfinite(value).all():
        raise MessageError(f"{name} must be finite")
    return value


def _is_plain(value: Any, hint: Any) -> bool:
    """Whether a value is of a class; a whole number does for a float, and neither is too large."""
    if hint is None or hint is type(None):
        return value is None
    if hint is float and type(value) in (int, float):
        return abs(value) < LARGEST if type(value) is int else math.isfinite(value)
    if hint is int:
        return type(value) is int and abs(value) < LARGEST
    return isinstance(hint, type) and isinstance(value, hint)


def _check_names(value: Mapping[Any, Any], name: str) -> None:
    for key in value:
        if not isinstance(key, str) or not key.replace("_", "a").isalnum() or key.startswith("_"):
            raise MessageError(f"{name} has a name that must not be: {key!a}")


def _refusal(value: Any, hint: Any, name: str) -> MessageError:
    return MessageError(f"{name} must be {_told(hint)}, got {value if type(value) is float else type(value).__name__}")


def _told(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if hint is type(None):
        return "None"
    return str(getattr(hint, "__name__", hint))
