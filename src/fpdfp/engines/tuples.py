"""Named tuples whose fields are known when a message comes."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any

from fpdfp.errors import MessageError


@functools.lru_cache(maxsize=64)
def tuple_kind(name: str, fields: tuple[str, ...]) -> Callable[..., Any]:
    """Return the kind of a named tuple with some fields: messages, questions and replies are told by these alone."""
    try:
        return namedtuple(name, fields)
    except (ValueError, TypeError) as error:
        raise MessageError(f"a message must have fields with valid names: {error}") from None
