"""Values checked against type annotations: what a coordinator sends is what a constructor says that it takes."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from fpdfp.errors import MessageError

#: Integers are less than this: NumPy has no larger ones.
LARGEST = 1 << 63

#: The most rows: a column of them has 16 GiB.
ROWS = 1 << 31
#: The largest number in an answer: a sum over this many rows of squares of numbers of 1e15; in single precision, 1e11.
NUMBER, SINGLE = 1e40, 1e32
#: What is sent for the value of a loss outside its domain.
OUTSIDE = 1e100

#: Returns a value if it is what an annotation says, else raises MessageError.
Check = Callable[[Any], Any]


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


def validate(value: Any, hint: Any, name: str) -> Any:
    """Return a value that is what an annotation says; lists stand for tuples. Raise MessageError for any other.

    Numbers must be finite, but for those in arrays whose annotation is ``np.ndarray`` alone. A dictionary stands for a
    dataclass.

    >>> validate([1, 2], tuple[int, ...], "shape")
    (1, 2)
    >>> validate("1", int | None, "rows")
    Traceback (most recent call last):
      ...
    fpdfp.errors.MessageError: rows: must be int or None, got str
    """
    return _inside(name, check_of(hint), value)


@functools.cache
def check_of(hint: Any) -> Check:
    """Return the check of an annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if hasattr(origin, "__value__"):  # an alias of PEP 695, as NDArray is since NumPy 2.5
        return check_of(origin.__value__[args])
    if origin in (Union, types.UnionType):
        return _one_of(args)
    if origin is Literal:
        return _plain(hint, lambda value: isinstance(value, str) and value in args)
    if origin is list or (origin is tuple and args[-1] is Ellipsis):
        return _many(origin, check_of(args[0]), hint)
    if origin is tuple:
        return _several([check_of(one) for one in args], hint)
    if origin is dict:
        return _names(check_of(args[1]), hint)
    if (origin or hint) is np.ndarray:
        return _array(get_args(args[1])[0] if args else None, hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return lambda value: build(hint, value) if isinstance(value, dict) else _instance(value, hint)
    if hint in (None, type(None)):
        return _plain(hint, lambda value: value is None)
    if hint is int:
        return _plain(hint, lambda value: type(value) is int and abs(value) < LARGEST)
    if hint is float:
        return _plain(hint, _is_float)
    return _plain(hint, lambda value: isinstance(value, hint))


def build(kind: type, given: Mapping[str, Any]) -> Any:
    """Return a dataclass made of the fields in a dictionary, each of which must be what its annotation says."""
    checks = _field_checks(kind)
    if not checks.keys() >= given.keys():
        strange = ", ".join(sorted(ascii(name) for name in given if name not in checks))
        raise MessageError(f"is made of {sorted(checks)}, not of {strange}")
    fields = _each(given, checks.__getitem__)
    try:
        return kind(**fields)
    except TypeError as error:
        raise MessageError(f"cannot be built: {error}") from None


@functools.cache
def _field_checks(kind: type) -> dict[str, Check]:
    return {name: check_of(hint) for name, hint in constructor_hints(kind).items()}


def _each(given: Mapping[str, Any], check_for: Callable[[str], Check]) -> dict[str, Any]:
    """Check the values of a dictionary; an error begins with the name of the first that is refused."""
    made, name = {}, ""
    try:
        for name, value in given.items():
            made[name] = check_for(name)(value)
    except MessageError as error:
        raise MessageError(f"{name}: {error}") from None
    return made


def _inside(name: Any, check: Check, value: Any) -> Any:
    """Check a value; an error begins with its name."""
    try:
        return check(value)
    except MessageError as error:
        raise MessageError(f"{name}: {error}") from None


def _one_of(hints: tuple[Any, ...]) -> Check:
    checks = [check_of(hint) for hint in hints]

    def check(value: Any) -> Any:
        refused = []
        for one in checks:
            try:
                return one(value)
            except MessageError as error:
                refused.append(error)
        if isinstance(value, list | dict | np.ndarray):
            raise refused[0]
        raise MessageError(f"must be {' or '.join(map(_describe, hints))}, got {_show(value)}")

    return check


def _plain(hint: Any, is_one: Callable[[Any], bool]) -> Check:
    def check(value: Any) -> Any:
        if is_one(value):
            return value
        raise MessageError(f"must be {_describe(hint)}, got {_show(value)}")

    return check


def _is_float(value: Any) -> bool:
    """Whether a value is a finite number; a whole one does."""
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is int and abs(value) < LARGEST


def _instance(value: Any, kind: type) -> Any:
    if isinstance(value, kind):
        return value
    raise MessageError(f"must be {_describe(kind)}, got {_show(value)}")


def _many(kind: type, one: Check, hint: Any) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise MessageError(f"must be {_describe(hint)}, got {_show(value)}")
        made: list[Any] = []
        # One block for all of them: a round has hundreds of messages.
        try:
            for part in value:
                made.append(one(part))  # noqa: PERF401 - the error describes how many were right
        except MessageError as error:
            raise MessageError(f"{len(made)}: {error}") from None
        return made if kind is list else kind(made)

    return check


def _several(checks: list[Check], hint: Any) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(checks):
            raise MessageError(f"must be {_describe(hint)}, got {_show(value)}")
        return tuple(_inside(i, one, part) for i, (one, part) in enumerate(zip(checks, value, strict=True)))

    return check


def _names(one: Check, hint: Any) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            raise MessageError(f"must be {_describe(hint)}, got {_show(value)}")
        for name in value:
            if not isinstance(name, str) or not name.replace("_", "a").isalnum() or name.startswith("_"):
                raise MessageError(f"has a name that must not be: {name!a}")
        return _each(value, lambda _: one)

    return check


def _array(wanted: Any, hint: Any) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            raise MessageError(f"must be {_describe(hint)}, got {_show(value)}")
        if value.dtype.kind not in "fiub" or (wanted not in (None, Any) and value.dtype != wanted):
            numbers = _describe(wanted) if isinstance(wanted, type) and wanted is not Any else "real numbers"
            raise MessageError(f"must hold {numbers}, got {value.dtype}")
        if wanted is not None and value.dtype.kind == "f" and not np.isfinite(value).all():
            raise MessageError("must be finite")
        return value

    return check


def check_numbers(value: Any) -> None:
    """Refuse an answer with numbers, anywhere in it, that no table gives: too large, or of too many rows.

    Integers count rows, but in fields that :attr:`unbounded` of their class names, as digests and pairs of rows.
    """
    if dataclasses.is_dataclass(value):
        free = getattr(value, "unbounded", ())
        for field in dataclasses.fields(value):
            try:
                if field.name not in free:
                    check_numbers(getattr(value, field.name))
            except MessageError as error:
                raise MessageError(f"{field.name}: {error}") from None
    elif isinstance(value, Mapping):
        check_numbers(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            check_numbers(one)
    elif isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iuf":
        most = ROWS if value.dtype.kind != "f" else SINGLE if value.dtype.itemsize == 4 else NUMBER
        sizes = np.abs(value.astype(np.float64))
        _check_number(float(sizes[np.isfinite(sizes) & (sizes != OUTSIDE)].max(initial=0.0)), most)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        _check_number(abs(value), ROWS if isinstance(value, int) else NUMBER)


def _check_number(largest: float, most: float) -> None:
    if largest > most == ROWS:
        raise MessageError(f"a site cannot have {largest:.3g} rows")
    if largest > most:
        raise MessageError(f"an answer has the number {largest:.3g}, which no table gives")


def _show(value: Any) -> str:
    return repr(value) if isinstance(value, int | float) else type(value).__name__


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if hint is type(None):
        return "None"
    return str(hint if get_args(hint) else getattr(hint, "__name__", hint))
