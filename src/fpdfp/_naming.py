"""Names that a user knows, in errors."""

from __future__ import annotations

import types
from typing import Any, cast


def own_init(cls: type) -> None:
    """Give a class that inherits ``__init__`` one of its own name, by which Python names it in errors.

    >>> class Hidden:
    ...     def __init__(self, size=1): ...
    ...     def __init_subclass__(cls): own_init(cls)
    >>> class Seen(Hidden): ...
    >>> Seen(length=1)
    Traceback (most recent call last):
    ...
    TypeError: Seen.__init__() got an unexpected keyword argument 'length'
    """
    inherited = cast(Any, cls).__init__
    if "__init__" in vars(cls) or not isinstance(inherited, types.FunctionType):
        return
    own = types.FunctionType(
        inherited.__code__, inherited.__globals__, "__init__", inherited.__defaults__, inherited.__closure__
    )
    own.__kwdefaults__, own.__annotations__ = inherited.__kwdefaults__, inherited.__annotations__
    own.__qualname__, own.__doc__ = f"{cls.__name__}.__init__", inherited.__doc__
    cast(Any, cls).__init__ = own
