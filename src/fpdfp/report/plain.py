"""Values of files that anybody may have written: what they should be, or nothing."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any) -> float | int | None:
    """Return a finite number as it is, and None for anything else.

    >>> number(2.5), number("2.5"), number(float("nan")), number(True)
    (2.5, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def text(value: Any) -> str:
    """Return a text as it is, and an empty one for anything else; surrogates have no place in UTF-8."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def mapping(value: Any) -> dict[str, Any]:
    """Return a dictionary as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def numbers(value: Any, most: int) -> list[float | int | None]:
    """Return the first entries of a list as finite numbers or None; an empty list for anything else.

    >>> numbers([1, "a", 2.5, 4], 3), numbers("abc", 3)
    ([1, None, 2.5], [])
    """
    return [number(one) for one in as_list(value)[:most]]
