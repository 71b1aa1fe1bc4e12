"""Conversion of a user's g to a :class:`Penalty`."""

from __future__ import annotations

from typing import Any

from fpdfp import _checks
from fpdfp.errors import ArgumentTypeError
from fpdfp.penalties.base import Penalty
from fpdfp.penalties.wrapped import Wrapped


def as_penalty(value: Any, *, name: str = "penalty") -> Penalty:
    """Return a penalty of this package, or one made of an object with ``prox(x, tau)`` and ``__call__(x)``.

    PyProximal's operators are such objects. :class:`fpdfp.Problem` and :class:`fpdfp.penalties.Stacked` convert
    automatically.

    >>> from fpdfp.penalties import L1
    >>> as_penalty(L1(0.5))
    L1(0.5)
    """
    if isinstance(value, Penalty):
        return value
    if not isinstance(value, type) and callable(value) and callable(getattr(value, "prox", None)):
        return Wrapped(value)
    raise ArgumentTypeError(
        name,
        f"must be one of fpdfp.penalties, or an object with prox(x, tau) and __call__(x) as in PyProximal, "
        f"got {_checks.kind(value)}",
    )
