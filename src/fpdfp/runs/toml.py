"""Settings as TOML text, which ``tomllib`` reads back."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(settings: Mapping[str, Any]) -> str:
    """Return nested settings as TOML: plain values first, then a section for each mapping.

    TOML has no null: what is None is excluded.

    >>> print(dumps({"name": "first", "run": {"rounds": 10, "seeds": [0, 1]}}), end="")
    name = "first"
    <BLANKLINE>
    [run]
    rounds = 10
    seeds = [0, 1]
    """
    return "\n".join(_section((), settings)).lstrip("\n") + "\n"


def _section(path: tuple[str, ...], settings: Mapping[str, Any]) -> list[str]:
    plain = {name: value for name, value in settings.items() if not isinstance(value, Mapping) and value is not None}
    nested = {name: value for name, value in settings.items() if isinstance(value, Mapping)}
    lines = []
    if path and (plain or not nested):
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(name)} = {_value(value)}" for name, value in plain.items()]
    for name, value in nested.items():
        lines += _section((*path, name), value)
    return lines


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but for the character DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return repr(value) if math.isfinite(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_value(one)}" for name, one in value.items()) + " }"
    raise TypeError(f"TOML has no form for {type(value).__name__}")
